"""Converts language models of awd-lstm-lm, mos and fastai's AWD_LSTM into checkpoints.

They are read as tensors by name. fastai's names begin with ``0.`` or ``1.``.

    encoder.weight                            embedding (V, D_0)
    rnns.N.module.weight_ih_l0, bias_*_l0     LSTM layer N
    rnns.N.module.weight_hh_l0_raw            its recurrent matrix before DropConnect; in fastai
                                              rnns.N.weight_hh_l0_raw
    latent.0.weight, latent.0.bias            mos: W_j and b_j of all J components
    prior.weight                              mos: W_pi
    decoder.weight, decoder.bias              output matrix (V, d) and bias

fairseq's dictionary has words that these models lack, such as ``<s>`` and ``<pad>``. They get
embeddings of zeros and the bias ``LACKING``, so that their probability is 0.
"""

import os
import re
from collections.abc import Sequence
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

END_MARKS = ("</s>", "<eos>", "xxbos")  # of fairseq, awd-lstm-lm, fastai
UNKNOWN = ("<unk>", "xxunk")
FILLER = "xxfake"  # fastai pads its list of words with it
# A logit whose probability is 0 in every precision. Minus infinity could become NaN, for example in
# weight decay.
LACKING = -1e4

# Removed from names: fastai's two modules, and the marks of matrices under DropConnect.
_AFFIXES = re.compile(r"^[01]\.|(?<=\d\.)module\.|_raw$")
_COPIES = re.compile(r"encoder_(dp\.emb|with_dropout\.embed)\.weight")  # fastai's, of the encoder
# Tensors of every model outside its layers, with a row for each word, and those of a mixture.
_OTHERS = ("encoder.weight", "decoder.weight", "decoder.bias")
_MIXTURE = ("latent.0.weight", "latent.0.bias", "prior.weight")


def read_model(path: str | os.PathLike) -> dict[str, Tensor]:
    """The tensors of a model in float32, by the names above without ``0.``, ``1.``, ``module.`` and
    ``_raw``.

    The file was written by ``torch.save(model.state_dict(), path)`` in any version of torch, or by
    fastai's ``Learner.save``, which puts the tensors under ``model``. Code in the file is not run.
    Raises ``FairseqDocError`` for any other file, and for unknown or missing tensors.
    """
    try:
        is_safe_archive(path)  # False for files of torch before 1.6, which are read too
        state = torch.load(path, map_location="cpu", weights_only=True)
        state = state.get("model", state)
        # Sorted, so that NAME_raw replaces NAME, the matrix after DropConnect.
        named = {_AFFIXES.sub("", name): state[name].float() for name in sorted(state)}
    except FairseqDocError:
        raise
    except Exception as error:  # a file of another kind fails anywhere
        code = re.search(r"GLOBAL (\S+)", str(error))  # what torch refuses to unpickle
        reason = f"an object of {code[1]}, which could run code" if code else str(error)
        raise FairseqDocError(
            f"{path}: expected tensors by name; write them by torch.save(model.state_dict(), FILE), "
            "where the model's own code is (docs/import.md); got "
            f"{shown(' '.join(reason.split()), 100)}"
        ) from error
    tensors = {name: tensor for name, tensor in named.items() if not _COPIES.fullmatch(name)}
    expected = {*_OTHERS, *(_MIXTURE if tensors.keys() & set(_MIXTURE) else ())}
    for number in range(max(1, _n_layers(tensors))):
        parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        expected |= {f"rnns.{number}.{part}_l0" for part in parts}
    if others := tensors.keys() ^ expected:
        missing, unknown = (
            ", ".join(sorted(others & names)[:3]) or "none" for names in (expected, tensors.keys())
        )
        raise FairseqDocError(
            f"{path}: expected an AWD-LSTM or MoS of awd-lstm-lm, mos or fastai; missing tensors: "
            f"{missing}; unknown: {unknown}"
        )
    if len({len(tensors[name]) for name in _OTHERS}) > 1:
        raise FairseqDocError(f"{path}: {', '.join(_OTHERS)} differ in their numbers of words")
    return tensors


def _n_layers(model: dict[str, Tensor]) -> int:
    return len({name.split(".")[1] for name in model if name.startswith("rnns.")})


def architecture(model: dict[str, Tensor]) -> list[str]:
    """The options of fairseq-train for the architecture of a model from :func:`read_model`."""
    encoder, decoder = model["encoder.weight"], model["decoder.weight"]
    layers = range(_n_layers(model))
    widths = ",".join(str(model[f"rnns.{number}.weight_hh_l0"].size(1)) for number in layers)
    components = len(model["prior.weight"]) if "prior.weight" in model else 1
    words = [f"--decoder-embed-dim={encoder.size(1)}", f"--layer-dims={widths}"]
    words.append(f"--doc-components={'0,' * len(layers)}{components}")
    if "prior.weight" not in model:
        words.append("--plain-output")
    if not torch.equal(encoder, decoder):
        words += ["--untie-output", f"--component-dim={decoder.size(1)}"]
    return words


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
        if word == FILLER and word in seen:
            word = words[number - 1] = f"{FILLER}{number}"
        if word.split() != [word] or word in seen:
            raise FairseqDocError(
                f"{path}: line {number}: expected a word without spaces that occurs only once; got "
                f"{shown(word)}: give it another name, such as xxblank"
            )
        seen.add(word)
    return words


def dictionary_of(
    words: Sequence[str], end_mark: str | None = None, unknown: str | None = None
) -> tuple[Dictionary, list[int]]:
    """fairseq's dictionary, and the row of each of its words in the model, -1 without a row.

    Args:
        end_mark: the word for ``</s>``; None: the first of ``END_MARKS`` among the words.
        unknown: the word for ``<unk>``; None: the first of ``UNKNOWN``, if any is among them.
    """
    row_of = {word: row for row, word in enumerate(words)}
    ends = [end_mark] if end_mark else END_MARKS
    unknowns = [unknown] if unknown else UNKNOWN
    end = next((mark for mark in ends if mark in row_of), None)
    if end is None:
        raise FairseqDocError(
            f"expected {' or '.join(ends)} in the list of words; name another by --end-mark"
        )
    if unknown and unknown not in row_of:
        raise FairseqDocError(f"expected {unknown} in the list of words; name another by --unknown")
    dictionary = Dictionary()
    special = {
        dictionary.eos_word: end,
        dictionary.unk_word: next((mark for mark in unknowns if mark in row_of), ""),
    }
    rows = [row_of.get(special.get(symbol, symbol), -1) for symbol in dictionary.symbols]
    taken = set(rows)
    for row, word in enumerate(words):
        if row not in taken:
            if word in dictionary:
                raise FairseqDocError(
                    f"expected no word {word} in the list of words beside the one that --end-mark or "
                    "--unknown names; rename it there"
                )
            dictionary.add_symbol(word)
            rows.append(row)
    return dictionary, rows


def imported_checkpoint(
    model: dict[str, Tensor], dictionary: Dictionary, rows: Sequence[int], data: str
) -> dict[str, Any]:
    """The contents of a checkpoint of a model from :func:`read_model`, with ``dictionary`` and
    ``rows`` from :func:`dictionary_of`. ``data`` is the folder in which the checkpoint looks for its
    dictionary. Raises ``FairseqDocError`` if the sizes of the tensors do not fit together."""
    fairseq_doc.register()
    parser = options.get_training_parser(default_task=TASK)
    words = [data, f"--task={TASK}", "--arch=lstm_doc_lm", "--criterion=doc_cross_entropy"]
    cfg = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(parser, [*words, *architecture(model)])
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


def _renamed(model: dict[str, Tensor], rows: Sequence[int]) -> dict[str, Tensor]:
    """The tensors under our names, with a row for each word of the dictionary."""
    projections = f"output.projections.{_n_layers(model)}"
    ours = {
        "encoder.weight": "embedding",
        "decoder.weight": "output.weight",
        "decoder.bias": "output.bias",
        "latent.0.weight": f"{projections}.weight",
        "latent.0.bias": f"{projections}.bias",
        "prior.weight": "output.mixture_weights.weight",
    }
    renamed = {}
    for name, tensor in model.items():
        if name in _OTHERS:
            lacking = LACKING if name == "decoder.bias" else 0.0
            tensor = torch.cat([tensor, torch.full_like(tensor[:1], lacking)])[rows]
        if name != "prior.weight" or len(tensor) > 1:  # a single component has no weight
            renamed[f"decoder.{ours.get(name, name.replace('rnns', 'lstm.layers'))}"] = tensor
    return renamed
