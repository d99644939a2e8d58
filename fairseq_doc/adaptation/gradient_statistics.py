"""Root mean squares of a model's gradients, in a file; they scale dynamic evaluation's updates.

    M = sqrt(mean over n of g_n^2), elementwise

g_n is the gradient of the mean NLL of batch n of the training text: B columns, T steps, a carried
state, no dropout (Krause et al., 2018). M depends on B and T, since the mean over more tokens has
smaller gradients. So the file names both, and the model's weights.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble, windows_of
from fairseq_doc.evaluation.progress import Progress, Slice, no_progress
from fairseq_doc.files import check_input, check_output, whole_file
from fairseq_doc.modules.awd_lstm import States

SAVED_EVERY = 120  # seconds of gathering that an interruption may lose
KIND = "gradient statistics of fairseq-doc, 1"
# Names in the file that no parameter has.
_HEADER, _PROGRESS, _STATE = "#header", "#progress", "#state"


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """{name: parameter}; a tied one once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


@contextmanager
def differentiable(model: Any) -> Iterator[None]:
    """A model in evaluation, without dropout, whose gradients can be computed. cuDNN computes
    gradients of an LSTM in training mode only, so torch's LSTM modules, which have no dropout of
    their own, are put into it."""
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.LSTM):
            module.train()
    try:
        yield
    finally:
        model.eval()


def mean_nll(model: Any, net_output: tuple, target: torch.Tensor) -> torch.Tensor:
    """The mean NLL of the targets (B, T), nats: the loss that dynamic evaluation descends."""
    return model.token_nll(net_output, target, -100) / target.numel()


def statistics_of(
    ensemble: Ensemble,
    path: str | os.PathLike[str],
    columns: int,
    segment: int,
    batches: int | None = None,
    progress: Progress = no_progress,
) -> dict[str, torch.Tensor]:
    """{name: M} of the ensemble's only model, read from the file ``path``. If it is missing or
    incomplete, the rest is gathered and written there. ``batches`` None: the whole split."""
    model = ensemble.single
    header = {
        "kind": KIND,
        "model": weights_digest(model),
        "split": "train",
        "columns": columns,
        "segment": segment,
        "batches": batches,
    }
    sums = _Sums({name: torch.zeros_like(p) for name, p in trained_parameters(model).items()})
    if os.path.lexists(path):
        sums.read(path, header, model)
    if not sums.complete:
        check_output(path, overwrite=True)
        _gather(ensemble, path, header, sums, progress)
    return {name: (total / sums.batches).sqrt_() for name, total in sums.squares.items()}


def weights_digest(model: nn.Module) -> str:
    """SHA-256 of all trained parameters."""
    digest = hashlib.sha256()
    for name, parameter in trained_parameters(model).items():
        digest.update(f"{name} {tuple(parameter.shape)}\n".encode())
        digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@dataclass
class _Sums:
    """Sums of squared gradients, {parameter: sum}, and the state after the last batch."""

    squares: dict[str, torch.Tensor]
    state: States = field(default_factory=list)
    batches: int = 0
    complete: bool = False

    def tensors(self) -> dict[str, torch.Tensor]:
        """By their names in the file."""
        parts = [] if self.complete else [part for layer in self.state for part in layer]
        return self.squares | {f"{_STATE}{number:03}": part for number, part in enumerate(parts)}

    def write(self, path: str | os.PathLike[str], header: dict[str, Any]) -> None:
        arrays: Any = {name: tensor.cpu().numpy() for name, tensor in self.tensors().items()}
        arrays[_HEADER] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        arrays[_PROGRESS] = np.array([self.batches, self.complete], np.int64)
        with whole_file(path, binary=True) as file:
            np.savez(file, **arrays)

    def read(self, path: str | os.PathLike[str], header: dict[str, Any], model: Any) -> None:
        """Fill the tensors from a file of the same model and settings."""
        check_input(path, again=True)
        try:
            with np.load(path, allow_pickle=False) as arrays:
                written = json.loads(arrays[_HEADER].tobytes())
                if written["kind"] != KIND:
                    raise ValueError("another kind")
                if written == header:
                    self._fill(arrays, header["columns"], model)
        except Exception as error:  # of many kinds: zipfile and numpy trust what they read
            raise FairseqDocError(
                f"{path}: expected gradient statistics of fairseq-doc; got a file that is damaged "
                f"or of another kind ({error!r:.200}); remove it, and they are gathered again"
            ) from None
        if written != header:
            raise FairseqDocError(*_differing(path, written, header))

    def _fill(self, arrays: Mapping[str, np.ndarray], columns: int, model: Any) -> None:
        self.batches, complete = map(int, arrays[_PROGRESS])
        self.complete = bool(complete)
        if not self.complete:
            self.state = model.decoder.lstm.zero_state(columns, next(model.parameters()))
        for name, tensor in self.tensors().items():
            tensor.copy_(torch.from_numpy(arrays[name]))


def _differing(
    path: str | os.PathLike[str], written: dict[str, Any], header: dict[str, Any]
) -> tuple[str, ...]:
    """The error message for a file with another header, and the parameters that it names."""
    options = {name: f"dynamic.{name}" for name in ("columns", "segment", "batches")}
    names = {"model": "weights", **options, "split": "split"}
    parts = [name for key, name in names.items() if written.get(key) != header[key]]
    values = [f"{key} {written.get(key)}" for key in names if key != "model"]
    same_model = written.get("model") == header["model"]
    remedy = "give these settings" if same_model else "remove it"
    message = (
        f"{path}: expected gradient statistics of this model and these settings; got those with "
        f"other {', '.join(parts)} ({', '.join(values)}); {remedy}, or name another file by "
        "dynamic.statistics"
    )
    return message, *options.values(), "dynamic.statistics"


def _gather(
    ensemble: Ensemble,
    path: str | os.PathLike[str],
    header: dict[str, Any],
    sums: _Sums,
    progress: Progress,
) -> None:
    model, decoder = ensemble.single, ensemble.single.decoder
    columns, split = header["columns"], header["split"]
    length = len(ensemble.split(split))
    if 2 * columns > length:
        raise FairseqDocError(
            f"dynamic.columns {columns}: expected at most {length // 2}, two tokens a column of "
            f"the {length} of split {split!r}",
            "dynamic.columns",
        )
    windows = windows_of(ensemble, split, columns, header["segment"])
    total = min(header["batches"] or len(windows), len(windows))
    if sums.batches > total:
        raise FairseqDocError(
            f"{path}: expected statistics of at most {total} batches of split {split!r}; got "
            f"{sums.batches}; remove it, and they are gathered again"
        )
    decoder.evaluation_states = {sums.batches: sums.state}
    parameters = trained_parameters(model)
    saved = time.monotonic()
    with differentiable(model), torch.enable_grad():
        for window in progress(Slice(windows, sums.batches, total), "gradient statistics"):
            target = window["target"].to(ensemble.device)
            source = window["net_input"]["src_tokens"].to(ensemble.device)
            output = model(source, window=window["net_input"]["window"])
            gradients = torch.autograd.grad(
                mean_nll(model, output, target), list(parameters.values()), materialize_grads=True
            )
            with torch.no_grad():
                for name, gradient in zip(parameters, gradients, strict=True):
                    sums.squares[name].addcmul_(gradient, gradient)
            sums.batches += 1
            if time.monotonic() - saved > SAVED_EVERY:
                states = decoder.evaluation_states
                sums.state = states[max(states)]
                sums.write(path, header)
                saved = time.monotonic()
    sums.complete = True
    sums.write(path, header)
