"""Loading checkpoints of one task; language models whose probabilities are averaged.

Axes: B streams, T time, V vocabulary, M models.
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from fairseq.utils import split_paths

from fairseq_doc.errors import FairseqDocError, first_usage_error
from fairseq_doc.models.mixture_model import MixtureModel
from fairseq_doc.modules.mixture import at_temperature, check_finite
from fairseq_doc.ops.matmul import PRECISIONS, matmul_dtype
from fairseq_doc.optim.nt_asgd import TASK
from fairseq_doc.preparation.byte_tokens import unit_of

Paths: TypeAlias = str | Sequence[str]  # "a.pt:b.pt" or ["a.pt", "b.pt"]


class Ensemble:
    """M >= 1 language models over one dictionary, in evaluation: P(y) = mean_m P_m(y) at every
    token, as in the paper's Tables 7 and 8. Each carries its own LSTM state.

    Args:
        models: language models of this package.
        task: the ``bptt_language_modeling`` task with their dictionary.
    """

    def __init__(self, models: Sequence[torch.nn.Module], task: FairseqTask):
        # Any: mypy does not know fairseq's models.
        self.models: list[Any] = [model.eval() for model in models]
        self.task = task

    @property
    def matmul_precisions(self) -> list[str]:
        """The dtype of the factors of each model's large products, as the device takes them."""
        outputs = [model.decoder.output for model in self.models]
        dtypes = [matmul_dtype(output.weight, output.precision) for output in outputs]
        return [str(dtype).removeprefix("torch.") for dtype in dtypes]

    @property
    def dictionary(self) -> Dictionary:
        """The dictionary of all models and of the task."""
        return self.task.dictionary

    @property
    def unit(self) -> str:
        """What a token is: ``word`` or ``byte``."""
        return unit_of(self.dictionary)

    @property
    def device(self) -> torch.device:
        """The device of the models."""
        return next(self.models[0].parameters()).device

    def to(self, *args: Any) -> "Ensemble":
        """Move or cast every model, as ``torch.nn.Module.to``."""
        self.models = [model.to(*args) for model in self.models]
        return self

    def split(self, name: str) -> Any:
        """A split of the task's folder, loaded once."""
        if name not in self.task.datasets:
            self.task.load_dataset(name)
        return self.task.dataset(name)

    @property
    def single(self) -> Any:
        """The only model.

        Raises:
            FairseqDocError: an ensemble of several.
        """
        if len(self.models) != 1:
            raise FairseqDocError(
                f"expected one checkpoint, since this describes one model; got {len(self.models)}"
            )
        return self.models[0]

    @torch.no_grad()
    def token_log_probs(
        self,
        src_tokens: torch.Tensor,
        target: torch.Tensor,
        window: int,
        counted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """log P of the targets, natural logarithm, without any (B, T, V) tensor.

        Args:
            src_tokens: (B, T) word indices.
            target: (B, T) word indices.
            window: 0 starts from a state of zeros, k > 0 goes on from window k - 1 of the same B.
            counted: (B, T), true where a target is scored; None: everywhere.

        Returns:
            (n,), float64, the scored targets, row by row.

        Raises:
            FairseqDocError: a score that is not finite.
        """
        if counted is None:
            counted = torch.ones_like(target, dtype=torch.bool)
        return self._log_probs(src_tokens, window, lambda params: params[counted], target[counted])

    @torch.no_grad()
    def continuation_log_probs(
        self,
        tokens: torch.Tensor,
        window: int,
        streams: torch.Tensor,
        rows: torch.Tensor,
        target: torch.Tensor,
    ) -> torch.Tensor:
        """log P of several continuations of each stream, natural logarithm.

        Args:
            tokens: (B,) word indices, the next of each stream.
            window: as in :meth:`token_log_probs`.
            streams: (B,) the streams of the last call that these go on from; unused at window 0.
            rows: (n,) which of the B streams each target continues.
            target: (n,) word indices.

        Returns:
            (n,), float64.

        Raises:
            FairseqDocError: a score that is not finite.
        """
        if window:
            for model in self.models:
                model.decoder.reorder_evaluation_state(streams)
        return self._log_probs(tokens[:, None], window, lambda params: params[rows, 0], target)

    def _log_probs(
        self,
        src_tokens: torch.Tensor,
        window: int,
        select: Callable[[torch.Tensor], torch.Tensor],
        target: torch.Tensor,
    ) -> torch.Tensor:
        """log P of (n,) targets; ``select`` takes their (n, C) mixture parameters from the (B, T, C)
        that a model returns."""
        of_models = []
        for model in self.models:
            mixture_params = select(model(src_tokens, window=window)[0])  # (n, C)
            nll = model.token_nll((mixture_params,), target, -100, reduction="none")  # (n,)
            of_models.append(-nll.double())
        log_probs = average_log_probs(of_models)
        check_finite(log_probs)
        return log_probs

    @torch.no_grad()
    def next_log_probs(
        self, src_tokens: torch.Tensor, window: int, temperature: float = 1.0
    ) -> torch.Tensor:
        """log P of every word after the last step, (B, V).

        At temperature T each model's P becomes P^(1/T), renormalised; the average comes after.

        Raises:
            FairseqDocError: a model whose scores are not numbers.
        """
        of_models = []
        for model in self.models:
            mixture_params, extra = model(src_tokens, window=window)
            last = (mixture_params[:, -1:], extra)
            log_probs = model.get_normalized_probs(last, log_probs=True)[:, 0]  # (B, V)
            check_finite(log_probs.amax(-1))
            if temperature != 1.0:
                log_probs = at_temperature(log_probs, 1 / temperature)
            of_models.append(log_probs)
        return average_log_probs(of_models)


def windows_of(ensemble: Ensemble, split: str, columns: int = 1, length: int | None = None) -> Any:
    """The windows of a split, in order: the batches of the task, with a length. They have ``length``
    steps; None: as many as ``--eval-window`` allows."""
    data = ensemble.split(split)
    return ensemble.task.eval_lm_dataloader(data, batch_size=columns, length=length)


def average_log_probs(of_models: Sequence[torch.Tensor]) -> torch.Tensor:
    """log of the mean of M probabilities given as logarithms, tensors of one shape."""
    if len(of_models) == 1:
        return of_models[0]
    return torch.stack(list(of_models)).logsumexp(0) - math.log(len(of_models))


def load_models(
    paths: Paths,
    task_name: str,
    overrides: dict[str, Any],
    precision: str | None = None,
    dropout_scale: float = 1.0,
) -> tuple[list[torch.nn.Module], FairseqTask]:
    """Load checkpoints of one task, over one dictionary a side.

    Args:
        paths: ``a.pt:b.pt`` or a list.
        task_name: the ``--task`` of their training.
        overrides: settings that replace those in the checkpoints.
        precision: of the large products, ``float32`` or ``bfloat16``; None: as trained.
        dropout_scale: factor of all dropout rates.

    Returns:
        (models, task).

    Raises:
        FairseqDocError: no such file, one of another task, or one over another dictionary; no such
            precision.
    """
    if precision is not None and precision not in PRECISIONS:
        raise FairseqDocError(
            f"--matmul-precision: expected {' or '.join(PRECISIONS)}; got {precision!r}"
        )
    paths = split_paths(paths) if isinstance(paths, str) else list(paths)
    models, task = [], None
    for path in paths:
        state = checkpoint_utils.load_checkpoint_to_cpu(path, overrides)
        _check_task(path, state, task_name)
        if dropout_scale != 1.0:
            _scale_dropouts(state["cfg"].model, dropout_scale)
        try:
            (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
                [path], task=task, state=state
            )
        except Exception as error:
            usage_error = first_usage_error(error)
            if usage_error is None:
                raise
            raise FairseqDocError(f"{path}: {usage_error}") from error
        if precision is not None:
            if not isinstance(model, MixtureModel):
                raise FairseqDocError(
                    f"{path}: --matmul-precision expects a model of this package; got a "
                    f"{type(model).__name__}"
                )
            model.set_matmul_precision(precision)
        models.append(model)
    return models, task


def _scale_dropouts(settings: Any, scale: float) -> None:
    for name in settings:
        if name.endswith("dropout"):
            settings[name] *= scale


def _check_task(path: str, state: dict[str, Any], expected: str) -> None:
    settings = state.get("cfg") or {}
    task = getattr(settings.get("task"), "_name", None) or getattr(state.get("args"), "task", None)
    if task != expected:
        raise FairseqDocError(
            f"{path} is a model of another task: expected a checkpoint of --task {expected}; got one "
            f"of --task {task}"
        )


def load_ensemble(
    paths: Paths,
    data: str | os.PathLike,
    eval_window: int | None = None,
    precision: str | None = None,
    dropout_scale: float = 1.0,
) -> Ensemble:
    """Load an :class:`Ensemble`.

    Args:
        paths: checkpoints, ``a.pt:b.pt`` or a list.
        data: folder of ``fairseq-preprocess --only-source``, for its dictionary and splits.
        eval_window: tokens evaluated at once; None: as trained.
        precision, dropout_scale: as in :func:`load_models`.

    Raises:
        FairseqDocError: as :func:`load_models`.
    """
    overrides: dict[str, Any] = {"data": os.fspath(data)}
    if eval_window is not None:
        overrides["eval_window"] = eval_window
    return Ensemble(*load_models(paths, TASK, overrides, precision, dropout_scale))
