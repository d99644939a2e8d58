"""Converts language models of awd-lstm-lm, mos and fastai's AWD_LSTM into checkpoints.

They are read as tensors by name. fastai's names begin with ``0.`` or ``1.``.

    encoder.weight                            embedding (V, D_0)
    rnns.N.module.weight_ih_l0, bias_*_l0     LSTM layer N
    rnns.N.module.weight_hh_l0_raw            its recurrent matrix before DropConnect; in fastai
                                              rnns.N.weight_hh_l0_raw
    latent.0.weight, latent.0.bias            mos: W_j and b_j of all J components
    prior.weight                              mos: W_pi
    decoder.weight, decoder.bias              output matrix (V, d) and bias

fairseq adds words that these models lack, such as ``<s>`` and ``<pad>``. They get embeddings of
zeros and the bias ``LACKING``, so that their probability is 0.
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
FILLER = "xxfake"  # fastai pads its list of words with it
# A logit whose probability is 0 in every precision. Minus infinity could become NaN, for instance
# by weight decay.
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
    """The tensors of a model."""

    path: str | os.PathLike
    layers: list[dict[str, Tensor]]  # {part of ``_PARTS``: tensor} for each layer
    others: dict[str, Tensor]  # by their names in the table above

    @property
    def components(self) -> int:
        """J."""
        return 1 if self.is_plain else len(self.others["prior.weight"])

    @property
    def is_plain(self) -> bool:
        """Whether the output is one softmax of the last layer, not a mixture."""
        return "prior.weight" not in self.others

    def options(self) -> list[str]:
        """The options of fairseq-train for the same architecture."""
        encoder, decoder = self.others["encoder.weight"], self.others["decoder.weight"]
        widths = [str(layer["weight_hh"].size(1)) for layer in self.layers]
        options = [f"--decoder-embed-dim={encoder.size(1)}", f"--layer-dims={','.join(widths)}"]
        options.append(f"--doc-components={'0,' * len(widths)}{self.components}")
        if self.is_plain:
            options.append("--plain-output")
        if not torch.equal(encoder, decoder):
            options += ["--untie-output", f"--component-dim={decoder.size(1)}"]
        return options


def read_tensors(path: str | os.PathLike) -> dict[str, Tensor]:
    """Tensors by name from a file of ``torch.save(model.state_dict(), path)`` of any version of
    torch, or of fastai's ``Learner.save``, which has them under ``model``. Code in the file is not
    run."""
    try:
        is_safe_archive(path)  # False for files of torch before 1.6, which are read too
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
        if not isinstance(tensor, Tensor):
            raise _no_tensors(path, f"a {type(tensor).__name__} for {shown(str(name))}")
    return state


def _no_tensors(path: str | os.PathLike, got: str) -> FairseqDocError:
    return FairseqDocError(f"{path}: expected tensors by name; got {got}: write them by {ADVICE}")


def recognise(path: str | os.PathLike, tensors: dict[str, Tensor]) -> ForeignModel:
    """The model with these tensors. Raises ``FairseqDocError`` for tensors that an AWD-LSTM or a
    mixture of softmaxes does not have, and for missing ones."""
    layers: dict[int, dict[str, Tensor]] = {}
    others: dict[str, Tensor] = {}
    problem = f"{path}: expected an AWD-LSTM or MoS of awd-lstm-lm, mos or fastai"
    for name in sorted(tensors):  # NAME_raw replaces NAME, the matrix after DropConnect
        short = re.sub(r"^[01]\.", "", name)
        tensor = tensors[name].float()
        if found := _LAYER.fullmatch(short):
            layers.setdefault(int(found[1]), {})[found[2]] = tensor
        elif short in (*_OTHERS, *_MIXTURE):
            others[short] = tensor
        elif not _COPIES.fullmatch(short):
            raise FairseqDocError(
                f"{problem}; got a tensor {shown(name)}, which such a model does not have"
            )
    expected = [*_OTHERS, *(_MIXTURE if set(_MIXTURE) & others.keys() else ())]
    missing = [name for name in expected if name not in others]
    for number in range(max(layers, default=0) + 1):
        own = layers.get(number, {})
        missing += [f"rnns.{number}.{part}_l0" for part in _PARTS if part not in own]
    if missing:
        raise FairseqDocError(f"{problem}; it lacks {', '.join(missing[:4])}")
    if len({len(others[name]) for name in _OTHERS}) > 1:
        raise FairseqDocError(
            f"{problem}; its {', '.join(_OTHERS)} differ in their numbers of words"
        )
    return ForeignModel(path, [layers[number] for number in sorted(layers)], others)


def read_words(path: str, count: int) -> list[str]:
    """The ``count`` words of the model, one per line, in the order of its rows."""
    words = list(table_lines(path))
    if len(words) != count:
        raise FairseqDocError(
            f"{path}: expected {count:,} words, one per line, as many as rows of encoder.weight; "
            f"got {len(words):,}"
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
            raise FairseqDocError(f"{path}: line {number}: {shown(word)} occurs twice")
        seen.add(word)
    return words


def dictionary_of(
    words: Sequence[str], end_mark: str | None = None, unknown: str | None = None
) -> tuple[Dictionary, list[int | None]]:
    """fairseq's dictionary, and the row of each of its words in the model, None without a row.

    Args:
        end_mark: the word for ``</s>``; None: the first of ``END_MARKS`` among the words.
        unknown: the word for ``<unk>``; None: the first of ``UNKNOWN``, if any is among them.
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
    row_of: dict[str | None, int] = {word: row for row, word in enumerate(words)}
    special = {dictionary.eos_word: end, dictionary.unk_word: unknown}
    rows = [row_of.get(special.get(symbol, symbol)) for symbol in dictionary.symbols]
    taken = set(rows)
    for row, word in enumerate(words):
        if row not in taken:
            dictionary.add_symbol(word)
            rows.append(row)
    return dictionary, rows


def imported_checkpoint(
    model: ForeignModel, dictionary: Dictionary, rows: Sequence[int | None], data: str
) -> dict[str, Any]:
    """The contents of a checkpoint, with ``dictionary`` and ``rows`` from :func:`dictionary_of`.
    ``data`` is the folder in which the checkpoint looks for its dictionary. Raises
    ``FairseqDocError`` if the sizes of the tensors do not fit together."""
    fairseq_doc.register()
    parser = options.get_training_parser(default_task=TASK)
    words = [data, f"--task={TASK}", "--arch=lstm_doc_lm", "--criterion=doc_cross_entropy"]
    cfg = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(parser, [*words, *model.options()])
    )
    try:
        made = LSTMDocLanguageModel.build_model(
            cfg.model, SimpleNamespace(target_dictionary=dictionary)
        )
        made.load_state_dict({**made.state_dict(), **_renamed(model, rows)})
    except FairseqDocError as error:
        raise FairseqDocError(
            f"{model.path}: expected LSTM layers and an output: {error}"
        ) from error
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
    """The tensors under our names, with a row for each word of the dictionary."""
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
    """The rows in the dictionary's order, ``lacking`` where the model has none."""
    filled = torch.cat([tensor, tensor.new_full((1, *tensor.shape[1:]), lacking)])
    return filled[[len(tensor) if row is None else row for row in rows]]
