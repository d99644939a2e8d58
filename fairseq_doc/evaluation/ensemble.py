"""Loads checkpoints of one task as an ensemble, whose models' probabilities are averaged."""

import math
import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from fairseq.utils import split_paths
from omegaconf import DictConfig

import fairseq_doc
from fairseq_doc.data.bptt_stream import TASK
from fairseq_doc.errors import FairseqDocError, first_usage_error, require
from fairseq_doc.ops.matmul import PRECISIONS
from fairseq_doc.preparation.text_form import TextForm, form_of, unit_of

Paths: TypeAlias = str | Sequence[str]  # "a.pt:b.pt" or ["a.pt", "b.pt"]
Own = TypeVar("Own", bound="LoadedModels")


class LoadedModels:
    """M >= 1 models of one task over the same dictionaries, in evaluation."""

    def __init__(self, models: Sequence[torch.nn.Module], task: FairseqTask):
        # Any: mypy does not know fairseq's models.
        self.models: list[Any] = [model.eval() for model in models]
        self.task = task

    @property
    def device(self) -> torch.device:
        return next(self.models[0].parameters()).device

    def to(self: Own, *args: Any) -> Own:
        """Move or cast every model, as ``torch.nn.Module.to``."""
        self.models = [model.to(*args) for model in self.models]
        return self

    @property
    def single(self) -> Any:
        """The only model; ``FairseqDocError`` if there are several."""
        if len(self.models) != 1:
            raise FairseqDocError(
                f"expected one checkpoint, since this works on one model; got {len(self.models)}"
            )
        return self.models[0]


class Ensemble(LoadedModels):
    """Language models over one dictionary: P(y) = mean_m P_m(y) at every token, as in the paper's
    Tables 7 and 8. Each carries its own LSTM state. ``task`` is the ``bptt_language_modeling`` task
    with their dictionary."""

    @property
    def dictionary(self) -> Dictionary:
        return self.task.dictionary

    @property
    def unit(self) -> str:
        """What a token is: ``word`` or ``byte``."""
        return unit_of(self.dictionary)

    @cached_property
    def form(self) -> TextForm:
        """How text becomes tokens, by the task's data folder."""
        return form_of(self.task.cfg.data, self.dictionary)

    def split(self, name: str) -> Any:
        """A split of the task's folder, loaded once."""
        if name not in self.task.datasets:
            self.task.load_dataset(name)
        return self.task.dataset(name)


def windows_of(ensemble: Ensemble, split: str, columns: int = 1, length: int | None = None) -> Any:
    """The windows of a split in order, batches of the task. They have ``length`` steps; None: as
    many as the task's ``eval_window`` allows."""
    data = ensemble.split(split)
    return ensemble.task.eval_lm_dataloader(data, batch_size=columns, length=length)


def average_log_probs(of_models: Sequence[torch.Tensor]) -> torch.Tensor:
    """log of the mean of M probabilities given as logarithms, in tensors of one shape."""
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
    """Register the package, and load checkpoints of the task ``task_name`` over the same
    dictionaries. Raises ``FairseqDocError`` for a missing file, an unknown precision, a different
    task or a different dictionary.

    Args:
        overrides: settings that replace those in the checkpoints.
        precision: of the large products, ``float32`` or ``bfloat16``; None: as trained.
        dropout_scale: factor of all dropout rates.
    """
    fairseq_doc.register()
    require(precision in (None, *PRECISIONS), "precision", " or ".join(PRECISIONS), precision)
    if precision is not None:
        overrides = {**overrides, "matmul_precision": precision}
    models, task = [], None
    for path in split_paths(paths) if isinstance(paths, str) else paths:
        state = checkpoint_utils.load_checkpoint_to_cpu(path, overrides)
        settings = _model_settings(path, state, task_name)
        is_ours = isinstance(settings, DictConfig) and "matmul_precision" in settings
        if precision is not None and not is_ours:
            name = getattr(settings, "_name", None) or getattr(settings, "arch", "model")
            raise FairseqDocError(
                f"precision: expected a model of this package; got {path}, a {name}", "precision"
            )
        if dropout_scale != 1.0:
            rates = {name: settings[name] for name in settings if name.endswith("dropout")}
            for name, rate in rates.items():
                most = f"below {1 / rate:g} for the {name} of {rate:g}" if rate else ""
                require(rate * dropout_scale < 1, "dropout_scale", most, dropout_scale)
                settings[name] = rate * dropout_scale
        try:
            (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
                [path], task=task, state=state
            )
        except Exception as error:
            usage_error = first_usage_error(error)
            if usage_error is None:
                raise
            raise FairseqDocError(f"{path}: {usage_error}", *usage_error.parameters) from error
        models.append(model)
    return models, task


def _model_settings(path: str, state: dict[str, Any], expected: str) -> Any:
    """The model's settings in a checkpoint of the task ``expected``."""
    settings = state.get("cfg") or {}
    task = getattr(settings.get("task"), "_name", None) or getattr(state.get("args"), "task", None)
    if task != expected:
        raise FairseqDocError(
            f"{path}: expected a checkpoint of the task {expected}; got one of the task {task}"
        )
    return settings["model"]


def load_ensemble(
    paths: Paths,
    data: str | os.PathLike,
    eval_window: int | None = None,
    precision: str | None = None,
    dropout_scale: float = 1.0,
    kind: type[Ensemble] = Ensemble,
) -> Ensemble:
    """Load an :class:`Ensemble`; other arguments and errors as of :func:`load_models`.

    Args:
        data: folder of ``fairseq-preprocess --only-source``, for its dictionary and splits.
        eval_window: tokens evaluated at once; None: as trained.
        kind: the class of the result.
    """
    overrides: dict[str, Any] = {"data": os.fspath(data)}
    if eval_window is not None:
        overrides["eval_window"] = eval_window
    return kind(*load_models(paths, TASK, overrides, precision, dropout_scale))
