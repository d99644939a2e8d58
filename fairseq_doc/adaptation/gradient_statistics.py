"""Root mean squares of a model's gradients, in a file; they scale dynamic evaluation's updates.

    M = sqrt(mean over n of g_n^2), elementwise

g_n is the gradient of the mean NLL of batch n of the training text: B columns, T steps, a carried
state, no dropout (Krause et al., 2018). M depends on B and T, since the mean over more tokens has
smaller gradients. The file therefore records B, T and a hash of the weights.
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble, windows_of
from fairseq_doc.evaluation.progress import track
from fairseq_doc.files import check_input, check_output, whole_file

KIND = "gradient statistics of fairseq-doc, 1"
# Names in the file that no parameter has; _PROGRESS: number of batches, and whether these are all,
# since version 0.5.0 wrote incomplete files too.
_HEADER, _PROGRESS = "#header", "#progress"


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


def gradients_of(
    model: Any, net_output: tuple, target: torch.Tensor, parameters: Iterable[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """The gradients of the mean NLL of the targets (B, T), which dynamic evaluation descends."""
    with torch.enable_grad():
        loss = model.token_nll(net_output, target, -100) / target.numel()
    return torch.autograd.grad(loss, list(parameters), materialize_grads=True)


def statistics_of(
    ensemble: Ensemble,
    path: str | os.PathLike[str],
    columns: int,
    segment: int,
    batches: int | None = None,
) -> dict[str, torch.Tensor]:
    """{name: M} of the ensemble's only model, read from the file ``path``, or computed on the split
    ``train`` and written there. ``batches`` None: the whole split. Raises ``FairseqDocError`` for a
    file of a different model or other settings, and for more columns than the split can fill."""
    parameters = trained_parameters(ensemble.single)
    settings = {"split": "train", "columns": columns, "segment": segment, "batches": batches}
    header = {"kind": KIND, "model": _digest(parameters), **settings}
    arrays = _read(path, header) if os.path.lexists(path) else {}
    if not arrays or not arrays[_PROGRESS][1]:
        try:
            check_output(path, overwrite=True)
        except FairseqDocError as error:
            option = "dynamic.statistics"
            raise FairseqDocError(f"{error}; name another file with {option}", option) from None
        arrays = _computed(ensemble, columns, segment, batches)
        arrays[_HEADER] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        with whole_file(path, binary=True) as file:
            np.savez(file, **arrays)
    squares = {name: torch.from_numpy(arrays[name]).to(p) for name, p in parameters.items()}
    return {name: (sums / int(arrays[_PROGRESS][0])).sqrt_() for name, sums in squares.items()}


def _digest(parameters: dict[str, nn.Parameter]) -> str:
    """SHA-256 of the weights."""
    digest = hashlib.sha256()
    for name, parameter in parameters.items():
        digest.update(f"{name} {tuple(parameter.shape)}\n".encode())
        digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _read(path: str | os.PathLike[str], header: dict[str, Any]) -> dict[str, Any]:
    check_input(path, again=True)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        written = json.loads(arrays[_HEADER].tobytes())
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        raise FairseqDocError(
            f"{path}: expected gradient statistics of fairseq-doc; got another file; remove it, or "
            "name another one with dynamic.statistics",
            "dynamic.statistics",
        ) from None
    differing = [name for name in header if written.get(name) != header[name]]
    if differing:
        options = [f"dynamic.{name}" for name in differing if name not in ("kind", "model")]
        values = [f"{option} {written.get(option[8:])}" for option in options]
        got = "other weights" if "model" in differing else ", ".join(values)
        raise FairseqDocError(
            f"{path}: expected gradient statistics of this model and these settings; got those of "
            f"{got}; remove it, or name another file with dynamic.statistics",
            *options,
            "dynamic.statistics",
        )
    return arrays


def _computed(
    ensemble: Ensemble, columns: int, segment: int, batches: int | None
) -> dict[str, Any]:
    """The sums of squared gradients, {name: sum}, and the number of batches."""
    windows = windows_of(ensemble, "train", columns, segment)
    if batches:
        windows.take(batches)
    model, parameters = ensemble.single, trained_parameters(ensemble.single)
    squares: Any = [torch.zeros_like(p) for p in parameters.values()]
    with differentiable(model):
        for window in track(windows, "gradient statistics"):
            target = window["target"].to(ensemble.device)
            source = window["net_input"]["src_tokens"].to(ensemble.device)
            with torch.enable_grad():
                output = model(source, window=window["net_input"]["window"])
            gradients = gradients_of(model, output, target, parameters.values())
            torch._foreach_addcmul_(squares, gradients, gradients)
    arrays: dict[str, Any] = {
        name: total.cpu().numpy() for name, total in zip(parameters, squares, strict=True)
    }
    return arrays | {_PROGRESS: np.array([len(windows), True], np.int64)}
