"""``fairseq-doc generate``."""

import argparse
import sys
from typing import Any

from fairseq_doc.cli.arguments import (
    add_model_arguments,
    ensemble_of,
    progress_of,
)
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.sampling import sample_text
from fairseq_doc.preparation.byte_tokens import text_of, tokens_of

EXAMPLE = 'fairseq-doc generate data-bin/ptb --path a.pt --prompt "the company" --sampling-topk 20'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_model_arguments(parser)
    parser.add_argument("--prompt", default="", help="text to continue (default: none)")
    parser.add_argument(
        "--length", type=int, default=100, help="number of words, or bytes, to draw (default: 100)"
    )
    parser.add_argument("--samples", type=int, default=1, help="number of texts (default: 1)")
    parser.add_argument(
        "--temperature", type=float, default=1.0, help="T: draw from P^(1/T) (default: 1)"
    )
    parser.add_argument(
        "--sampling-topk",
        type=int,
        help="draw from the k most probable words, or bytes (default: all)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="equal seeds give equal texts (default: 1)"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``prompt``, its words or bytes; ``samples``, those drawn for each, ``</s>`` included; ``end``,
    the end mark; ``texts``, the plain text of each sample after its prompt."""
    check_utf8(args.prompt)
    ensemble = ensemble_of(args)
    dictionary, unit = ensemble.dictionary, ensemble.unit
    prompt = tokens_of(args.prompt, unit)
    unknown = [word for word in prompt if word not in dictionary]
    if unknown:
        print(
            f"fairseq-doc generate: {unit}s outside the dictionary, read as <unk>: "
            f"{', '.join(unknown)}",
            file=sys.stderr,
        )
    samples = sample_text(
        ensemble,
        prompt,
        args.length,
        args.samples,
        args.temperature,
        args.sampling_topk,
        args.seed,
        progress_of(args),
    )
    texts = [text_of(prompt + sample, unit) for sample in samples]
    return {"prompt": prompt, "samples": samples, "end": dictionary.eos_word, "texts": texts}


def check_utf8(prompt: str) -> None:
    """
    Raises:
        FairseqDocError: bytes that are not UTF-8, which Python passes on as lone surrogates.
    """
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FairseqDocError(
            f"--prompt is not UTF-8: expected text, got {ascii(prompt[error.start])} at "
            f"{error.start + 1}"
        ) from None


def as_text(result: dict[str, Any]) -> str:
    """The texts without line ends at their ends, an empty line between them."""
    return "\n\n".join(text.rstrip("\n") for text in result["texts"])
