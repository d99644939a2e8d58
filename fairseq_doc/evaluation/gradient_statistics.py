"""Root mean squares of a model's gradients, in a file: what dynamic evaluation scales its updates by.

    M = sqrt(mean over n of g_n^2), for each parameter on its own

g_n is the gradient of the mean NLL of batch n of the training text: B columns, T steps, the state
carried from batch to batch, no dropout (Krause et al., 2018). M depends on B and T, since the mean over
more tokens has smaller gradients, so the file knows both, and the model's weights.

Axes: B columns, T steps of a segment.
"""

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble, windows_of
from fairseq_doc.evaluation.progress import Part, Progress, no_progress
from fairseq_doc.files import check_input, check_output, whole_file

SAVED_EVERY = 120  # seconds of gathering that an interruption may lose
KIND = "gradient statistics of fairseq-doc, 1"
# Names in the file that no parameter has.
_HEADER, _PROGRESS, _STATE = "#header", "#progress", "#state"


@dataclass(frozen=True)
class GatheringSettings:
    """What gradient statistics depend on, besides the model and the text.

    Attributes:
        columns: B.
        segment: T, in steps.
        batches: how many batches at most; None: the whole text.
    """

    columns: int = 100
    segment: int = 5
    batches: int | None = None

    def __post_init__(self) -> None:
        for name in ("columns", "segment", "batches"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FairseqDocError(f"--dynamic-{name} must be at least 1; got {value}")


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Name -> parameter; a tied one once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


@contextmanager
def differentiable(model: Any) -> Iterator[None]:
    """A model in evaluation, without dropout, whose gradients can be computed.

    cuDNN computes gradients of an LSTM in training mode only. So torch's LSTM modules, which have no
    dropout of their own, are put into it.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.LSTM)]
    model.eval()
    for layer in layers:
        layer.train()
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
    settings: GatheringSettings,
    split: str = "train",
    progress: Progress = no_progress,
) -> dict[str, torch.Tensor]:
    """The statistics of the ensemble's only model, from the file if there is one; else they are gathered
    and written there. A gathering that was interrupted goes on where it was last saved.

    Returns:
        Name -> M, for each trained parameter.

    Raises:
        FairseqDocError: a file of another model or other settings, or a damaged one.
    """
    model = ensemble.single
    header = {"kind": KIND, "model": weights_digest(model), "split": split, **asdict(settings)}
    found = _Sums.read(path, header, model) if os.path.lexists(path) else _Sums.zero(model)
    if not found.complete:
        check_output(path, overwrite=True)
        _gather(ensemble, path, header, found, progress)
    return {name: (total / found.batches).sqrt_() for name, total in found.squares.items()}


def weights_digest(model: nn.Module) -> str:
    """SHA-256 of all trained parameters, in hexadecimal digits."""
    digest = hashlib.sha256()
    for name, parameter in trained_parameters(model).items():
        digest.update(f"{name} {tuple(parameter.shape)}\n".encode())
        digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


class _Sums:
    """Sums of squared gradients of the first batches, and the state after them."""

    def __init__(self, squares, batches=0, states=None, complete=False):
        self.squares: dict[str, torch.Tensor] = squares
        self.batches, self.states, self.complete = batches, states, complete

    @classmethod
    def zero(cls, model):
        return cls({name: torch.zeros_like(p) for name, p in trained_parameters(model).items()})

    @classmethod
    def read(cls, path, header, model):
        check_input(path, again=True)
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            written = json.loads(bytes(arrays[_HEADER]))
            batches, complete = (int(number) for number in arrays[_PROGRESS])
            squares = {
                name: torch.from_numpy(arrays[name]).to(p)
                for name, p in trained_parameters(model).items()
                if isinstance(written, dict) and written == header
            }
            states = [arrays[name] for name in sorted(arrays) if name.startswith(_STATE)]
        except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
            raise FairseqDocError(
                f"{path}: expected gradient statistics of fairseq-doc; got a file that is damaged or of "
                f"another kind ({error}); remove it, and they are gathered again"
            ) from None
        if written != header:
            raise FairseqDocError(_differing(path, written, header))
        return cls(squares, batches, [torch.from_numpy(state) for state in states], bool(complete))

    def write(self, path, header):
        arrays: dict[str, Any] = {name: total.cpu().numpy() for name, total in self.squares.items()}
        arrays[_HEADER] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        arrays[_PROGRESS] = np.array([self.batches, self.complete])
        for number, state in enumerate([] if self.complete else self.states):
            arrays[f"{_STATE}{number:03}"] = state.cpu().numpy()
        with whole_file(path, binary=True) as file:
            np.savez(file, **arrays)


def _differing(path, written, header):
    if not isinstance(written, dict) or written.get("kind") != KIND:
        return (
            f"{path}: expected gradient statistics of fairseq-doc; got a file of another kind; name "
            "another by --dynamic-statistics"
        )
    names = {
        "model": "weights",
        **{name: f"--dynamic-{name}" for name in ("columns", "segment")},
    }
    names |= {"batches": "--dynamic-batches", "split": "split"}
    parts = [name for key, name in names.items() if written.get(key) != header[key]]
    values = [f"{key} {written.get(key)}" for key in names if key != "model"]
    same_model = written.get("model") == header["model"]
    remedy = "give these settings" if same_model else "remove it"
    return (
        f"{path}: expected gradient statistics of this model and these settings; got those with other "
        f"{', '.join(parts)} ({', '.join(values)}); {remedy}, or name another file by "
        "--dynamic-statistics"
    )


def _gather(ensemble, path, header, sums, progress):
    model, decoder = ensemble.single, ensemble.single.decoder
    length = len(ensemble.split(header["split"]))
    if 2 * header["columns"] > length:
        raise FairseqDocError(
            f"--dynamic-columns {header['columns']}: expected at most {length // 2}, two tokens a column of "
            f"the {length} of split {header['split']!r}"
        )
    windows = windows_of(ensemble, header["split"], header["columns"], header["segment"])
    total = header["batches"] or len(windows)
    if sums.batches:
        states = iter(sums.states)
        like = decoder.lstm.zero_state(header["columns"], next(model.parameters()))
        carried = [tuple(next(states).to(part) for part in layer) for layer in like]
        decoder.evaluation_states = {sums.batches: carried}
    parameters = trained_parameters(model)
    saved = time.monotonic()
    rest = Part(windows, sums.batches, total)
    with differentiable(model), torch.enable_grad():
        for window in progress(rest, "gradient statistics"):
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
                sums.states = _carried_parts(decoder)
                sums.write(path, header)
                saved = time.monotonic()
    sums.complete = True
    sums.write(path, header)


def _carried_parts(decoder):
    """The state that evaluation carries into the next window, as a list of tensors."""
    states = decoder.evaluation_states
    return [part for layer in states[max(states)] for part in layer]
