"""Language models of other codes as ours: awd-lstm-lm, mos, and fastai's AWD_LSTM.

They are read as tensors by name. Those of fastai's two modules begin with ``0.`` and ``1.``.

    encoder.weight                            embedding (V, D_0)
    rnns.N.module.weight_ih_l0, bias_*_l0     LSTM layer N
    rnns.N.module.weight_hh_l0_raw            its recurrent matrix before DropConnect; fastai's is
                                              rnns.N.weight_hh_l0_raw
    latent.0.weight, latent.0.bias            mos: W_j and b_j of all J components
    prior.weight                              mos: W_pi
    decoder.weight, decoder.bias              output matrix (V, d) and bias

The words that fairseq adds and these models lack, such as ``<s>`` and ``<pad>``, get embeddings of
zeros and the bias ``LACKING``: their probability is 0.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf
from torch import Tensor

import fairseq_doc
from fairseq_doc.data.bptt_stream import TASK
from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.fairseq_patches.checkpoint_reading import is_safe_archive
from fairseq_doc.files import table_lines
from fairseq_doc.models.lstm_doc_lm import LSTMDocLanguageModel

ADVICE = "torch.save(model.state_dict(), FILE), where the model's own code is (docs/import.md)"
END_MARKS = ("</s>", "<eos>", "xxbos")  # of fairseq, awd-lstm-lm, fastai
UNKNOWN = ("<unk>", "xxunk")
FILLER = "xxfake"  # fastai fills its word list up with it
# A logit whose probability is 0 in every precision. Minus infinity would make sums NaN, such as an
# optimizer's step with weight decay.
LACKING = -1e4

_LAYER = re.compile(
    r"rnns\.(\d+)\.(?:module\.)?(weight_ih|weight_hh|bias_ih|bias_hh)_l0(_raw)?", re.ASCII
)
_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_OTHERS = ("encoder.weight", "decoder.weight", "decoder.bias")
_MIXTURE = ("latent.0.weight", "latent.0.bias", "prior.weight")
_COPIES = re.compile(r"encoder_(?:dp\.emb|with_dropout\.embed)\.weight")  # fastai's, of the encoder


@dataclass(frozen=True)
class ForeignModel:
    """The tensors of a model, under the names of the table above without their beginnings."""

    layers: list[dict[str, Tensor]]  # of each layer, by ``_PARTS``
    others: dict[str, Tensor]

    @property
    def components(self) -> int:
        """J."""
        return len(self.others["prior.weight"]) if "prior.weight" in self.others else 1

    @property
    def is_plain(self) -> bool:
        """Whether the output is one softmax of the last layer, not a mixture."""
        return "prior.weight" not in self.others

    @property
    def is_tied(self) -> bool:
        """Whether the output matrix is the embedding."""
        return torch.equal(self.others["encoder.weight"], self.others["decoder.weight"])

    def settings(self) -> list[str]:
        """The same architecture of ours, as options of fairseq-train."""
        widths = [str(layer["weight_hh"].size(1)) for layer in self.layers]
        (_, embed_dim), (_, dim) = (
            self.others[f"{part}.weight"].shape for part in ("encoder", "decoder")
        )
        given = [f"--decoder-embed-dim={embed_dim}", f"--layer-dims={','.join(widths)}"]
        given.append(f"--doc-components={'0,' * len(widths)}{self.components}")
        if self.is_plain:
            given.append("--plain-output")
        if not self.is_tied:
            given += ["--untie-output", f"--component-dim={dim}"]
        return given


def read_tensors(path: str | os.PathLike) -> dict[str, Tensor]:
    """Tensors by name, as ``torch.save(model.state_dict(), path)`` writes them in any version of
    torch, or under ``model``, as fastai's ``Learner.save`` does. No code in the file is run."""
    try:
        is_safe_archive(path)  # else it is of torch before 1.6
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FairseqDocError:
        raise
    except Exception as error:  # a file of another kind fails anywhere in its reader
        code = re.search(r"GLOBAL (\S+)", str(error))  # what torch refuses to unpickle
        reason = f"an object of {code[1]}, which could run code" if code else str(error)
        raise _no_tensors(path, shown(" ".join(reason.split()), 200)) from error
    if isinstance(state, dict) and isinstance(state.get("model"), dict):
        state = state["model"]
    if not isinstance(state, dict) or not state:
        raise _no_tensors(path, f"a {type(state).__name__}")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise _no_tensors(path, f"a {type(tensor).__name__} for {shown(str(name))}")
    return state


def _no_tensors(path: str | os.PathLike, got: str) -> FairseqDocError:
    return FairseqDocError(f"{path}: expected tensors by name; got {got}: write them by {ADVICE}")


def recognise(path: str | os.PathLike, tensors: dict[str, Tensor]) -> ForeignModel:
    """The model that these tensors are of; ``FairseqDocError`` for any other one."""
    layers: dict[int, dict[str, Tensor]] = {}
    others: dict[str, Tensor] = {}
    for name in sorted(tensors):  # NAME_raw after NAME, a copy that DropConnect made
        short = re.sub(r"^[01]\.", "", name)
        tensor = tensors[name].float()
        if found := _LAYER.fullmatch(short):
            layers.setdefault(int(found[1]), {})[found[2]] = tensor
        elif short in (*_OTHERS, *_MIXTURE):
            others[short] = tensor
        elif not _COPIES.fullmatch(short):
            raise FairseqDocError(
                f"{path}: expected an AWD-LSTM or MoS of awd-lstm-lm, mos or fastai; got a tensor "
                f"{shown(name)}, which such a model does not have"
            )
    expected = [*_OTHERS, *(_MIXTURE if set(_MIXTURE) & others.keys() else ())]
    missing = [name for name in expected if name not in others]
    for number in range(max(layers, default=0) + 1):
        own = layers.get(number, {})
        missing += [f"rnns.{number}.{part}_l0" for part in _PARTS if part not in own]
    if missing:
        raise FairseqDocError(
            f"{path}: expected an AWD-LSTM or MoS of awd-lstm-lm, mos or fastai; it lacks "
            f"{', '.join(missing[:4])}"
        )
    model = ForeignModel([layers[number] for number in sorted(layers)], others)
    _check_sizes(path, model)
    return model


def _check_sizes(path: str | os.PathLike, model: ForeignModel) -> None:
    """Whether the layers are LSTMs, and everything fits together."""
    width = model.others["encoder.weight"].size(1)
    for number, layer in enumerate(model.layers):
        own = layer["weight_hh"].size(-1)
        sizes: dict[str, tuple[int, ...]] = {
            "weight_ih": (4 * own, width),
            "weight_hh": (4 * own, own),
        }
        sizes |= {bias: (4 * own,) for bias in ("bias_ih", "bias_hh")}
        for part, expected in sizes.items():
            _check_size(path, f"rnns.{number}.{part}_l0", layer[part], expected)
        width = own
    words, dim = model.others["decoder.weight"].shape
    _check_size(path, "encoder.weight", model.others["encoder.weight"], (words, -1))
    _check_size(path, "decoder.bias", model.others["decoder.bias"], (words,))
    if model.is_plain:
        _check_size(path, "decoder.weight", model.others["decoder.weight"], (words, width))
        return
    rows = model.components * dim
    of_mixture = ((rows, width), (rows,), (model.components, width))
    for name, size in zip(_MIXTURE, of_mixture, strict=True):
        _check_size(path, name, model.others[name], size)


def _check_size(
    path: str | os.PathLike, name: str, tensor: Tensor, expected: tuple[int, ...]
) -> None:
    """-1 is any number."""
    fits = len(tensor.shape) == len(expected) and all(
        size in (own, -1) for own, size in zip(tensor.shape, expected, strict=True)
    )
    if not fits:
        raise FairseqDocError(
            f"{path}: expected LSTM layers, each as wide as the next one reads, and an output that "
            f"reads the last; got {name} {tuple(tensor.shape)} for {expected}"
        )


def read_words(path: str, count: int) -> list[str]:
    """The ``count`` words of the model, one a line, in the order of its rows."""
    words = list(table_lines(path))
    if len(words) != count:
        raise FairseqDocError(
            f"{path}: expected {count:,} words, one a line, as many as rows of encoder.weight; got "
            f"{len(words):,}"
        )
    seen: set[str] = set()
    for number, word in enumerate(words, start=1):
        if word.split() != [word]:
            raise FairseqDocError(
                f"{path}: line {number}: expected a word without blanks; got {shown(word)}: give "
                "it another name, such as xxblank"
            )
        if word in seen and word == FILLER:
            word = words[number - 1] = f"{FILLER}{number}"
        if word in seen:
            raise FairseqDocError(f"{path}: line {number}: {shown(word)} is there twice")
        seen.add(word)
    return words


def dictionary_of(
    words: Sequence[str], end_mark: str | None = None, unknown: str | None = None
) -> tuple[Dictionary, list[int | None]]:
    """fairseq's dictionary, and the row of each of its words in the model, None where it has none.

    Args:
        end_mark: the word that is ``</s>``; None: the first of ``END_MARKS`` that there is.
        unknown: the word that is ``<unk>``; None: the first of ``UNKNOWN``, if there is one.
    """
    ends = [end_mark] if end_mark else END_MARKS
    end = next((mark for mark in ends if mark in words), None)
    if end is None or (unknown and unknown not in words):
        raise FairseqDocError(
            f"expected the words {end_mark or ' or '.join(END_MARKS)} and "
            f"{unknown or UNKNOWN[0]} in the list of words; name others by --end-mark and --unknown"
        )
    unknown = unknown or next((mark for mark in UNKNOWN if mark in words), None)
    dictionary = Dictionary()
    special = {
        dictionary.bos_word: dictionary.bos_word,
        dictionary.pad_word: dictionary.pad_word,
        dictionary.eos_word: end,
        dictionary.unk_word: unknown,
    }
    row_of = {word: row for row, word in enumerate(words)}
    rows = [row_of.get(word or "") for word in map(special.get, dictionary.symbols)]
    taken = set(rows)
    for row, word in enumerate(words):
        if row not in taken:
            dictionary.add_symbol(word)
            rows.append(row)
    return dictionary, rows


def imported_checkpoint(
    model: ForeignModel, dictionary: Dictionary, rows: Sequence[int | None], data: str
) -> dict[str, Any]:
    """The state of our checkpoint; ``dictionary`` and ``rows`` are of :func:`dictionary_of`,
    ``data`` is the folder that the checkpoint names for its dictionary."""
    fairseq_doc.register()
    parser = options.get_training_parser(default_task=TASK)
    words = [data, f"--task={TASK}", "--arch=lstm_doc_lm", "--criterion=doc_cross_entropy"]
    cfg = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(parser, [*words, *model.settings()])
    )
    made = LSTMDocLanguageModel.build_model(
        cfg.model, SimpleNamespace(target_dictionary=dictionary)
    )
    made.load_state_dict({**made.state_dict(), **_renamed(model, rows)})
    return {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": made.state_dict(),
        "criterion": None,
        "optimizer_history": [
            {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
        ],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }


def _renamed(model: ForeignModel, rows: Sequence[int | None]) -> dict[str, Tensor]:
    """The tensors under our names, a row for each word of the dictionary."""
    others, last = model.others, len(model.layers)
    named = {
        "embedding": _by_word(others["encoder.weight"], rows, 0.0),
        "output.weight": _by_word(others["decoder.weight"], rows, 0.0),
        "output.bias": _by_word(others["decoder.bias"], rows, LACKING),
    }
    for number, layer in enumerate(model.layers):
        named |= {f"lstm.layers.{number}.{part}_l0": layer[part] for part in _PARTS}
    if not model.is_plain:
        named[f"output.projections.{last}.weight"] = others["latent.0.weight"]
        named[f"output.projections.{last}.bias"] = others["latent.0.bias"]
    if model.components > 1:
        named["output.mixture_weights.weight"] = others["prior.weight"]
    return {f"decoder.{name}": tensor for name, tensor in named.items()}


def _by_word(tensor: Tensor, rows: Sequence[int | None], lacking: float) -> Tensor:
    """The rows in the dictionary's order."""
    filled = torch.cat([tensor, tensor.new_full((1, *tensor.shape[1:]), lacking)])
    return filled[[len(tensor) if row is None else row for row in rows]]
