"""Arguments that several commands share, and the objects they name."""

import argparse
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from fairseq.logging.progress_bar import progress_bar
from fairseq.utils import split_paths

from fairseq_doc.evaluation.ensemble import Ensemble, load_ensemble
from fairseq_doc.evaluation.progress import Progress, no_progress
from fairseq_doc.files import text_lines
from fairseq_doc.ops.matmul import PRECISIONS
from fairseq_doc.preparation.binarisation import load_dictionary
from fairseq_doc.preparation.byte_tokens import BYTE, unit_of


def add_checkpoint_arguments(parser: argparse.ArgumentParser, ensembles: bool = True) -> None:
    """The data folder and ``--path``."""
    parser.add_argument(
        "data", help="folder of fairseq-preprocess, for its dictionaries and splits"
    )
    several = "; a.pt:b.pt:... averages the models' probabilities" if ensembles else ""
    parser.add_argument("--path", required=True, help=f"checkpoint{several}")


def add_model_arguments(
    parser: argparse.ArgumentParser, ensembles: bool = True, progress: bool = True
) -> None:
    """The data folder, ``--path``, ``--cpu``, and how progress is shown."""
    add_checkpoint_arguments(parser, ensembles)
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")
    parser.add_argument(
        "--matmul-precision",
        choices=PRECISIONS,
        help="precision of the large matrix products (default: as trained); bfloat16 is faster on "
        "processors with AVX512_BF16 or AMX and on GPUs; others stay in float32, with a warning",
    )
    if not progress:
        return
    parser.add_argument("--no-progress-bar", action="store_true", help="show no progress")
    parser.add_argument(
        "--log-interval",
        type=positive,
        default=100,
        help="batches between lines of progress, where it goes into a file (default: 100)",
    )


def add_split_arguments(parser: argparse.ArgumentParser) -> None:
    """``--gen-subset`` and ``--eval-window``."""
    parser.add_argument("--gen-subset", default="test", help="split to read (default: test)")
    parser.add_argument(
        "--eval-window",
        type=positive,
        help="tokens evaluated at once; memory and speed, not results (default: as trained)",
    )


def add_picture_arguments(parser: argparse.ArgumentParser, positional: bool = False) -> None:
    """Where to draw, and ``--overwrite``."""
    if positional:
        parser.add_argument("picture", help="picture to write, such as curves.png")
    else:
        parser.add_argument(
            "--picture", help="also draw the result into this file, such as NAME.png"
        )
    parser.add_argument("--overwrite", action="store_true", help="replace existing outputs")


def positive(text: str) -> int:
    """An integer of at least 1."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def ensemble_of(args: argparse.Namespace) -> Ensemble:
    """The models that ``data`` and ``--path`` name, on a GPU where there is one."""
    eval_window = getattr(args, "eval_window", None)
    scale = getattr(args, "dropout_scale", None)
    dropout_scale = 1.0 if scale is None else scale
    ensemble = load_ensemble(
        args.path, args.data, eval_window, args.matmul_precision, dropout_scale
    )
    return ensemble.to("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")


def progress_of(args: argparse.Namespace) -> Progress:
    """(iterable with a length, name) -> the same with fairseq's progress bar on standard error."""
    if args.no_progress_bar:
        return no_progress
    for name in ("fairseq.logging.progress_bar", "fairseq_doc.evaluation"):
        logging.getLogger(name).setLevel(logging.INFO)

    def bar(iterable: Any, name: str) -> Iterable[Any]:
        shown = progress_bar(iterable, log_interval=args.log_interval, prefix=name)
        for item in shown:
            yield item
            shown.log({})

    return bar


def unit_of_data(args: argparse.Namespace) -> str:
    """What a token of the data folder is, ``word`` or ``byte``: known before the models are loaded."""
    return unit_of(load_dictionary(Path(split_paths(args.data)[0]) / "dict.txt"))


def bits_a_character(unit: str, bits: float) -> dict[str, float]:
    """The entry of a result where a token is a byte: ``bits``, the mean of a token; else none."""
    return {"bits_per_character": bits} if unit == BYTE else {}


def read_lines(path: str, errors: str = "strict") -> list[str]:
    """:func:`fairseq_doc.files.text_lines` as a list."""
    return list(text_lines(path, errors=errors))
