"""``fairseq-doc generate``."""

import argparse
import sys
from typing import Any

from fairseq.tokenizer import tokenize_line

from fairseq_doc.cli.arguments import add_model_arguments, ensemble_of, progress_of
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.sampling import sample_text

NAME = "generate"
HELP = "sample text from a model or an ensemble"
EXAMPLE = 'fairseq-doc generate data-bin/ptb --path a.pt --prompt "the company" --sampling-topk 20'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_model_arguments(parser)
    parser.add_argument("--prompt", default="", help="words to continue (default: none)")
    parser.add_argument(
        "--length", type=int, default=100, help="number of words to draw (default: 100)"
    )
    parser.add_argument("--samples", type=int, default=1, help="number of texts (default: 1)")
    parser.add_argument(
        "--temperature", type=float, default=1.0, help="T: draw from P^(1/T) (default: 1)"
    )
    parser.add_argument(
        "--sampling-topk", type=int, help="draw from the k most probable words (default: all)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="equal seeds give equal texts (default: 1)"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``prompt``; ``samples``, the drawn words of each, ``</s>`` included; ``end``, the end mark."""
    prompt = words_of(args.prompt)
    ensemble = ensemble_of(args)
    dictionary = ensemble.dictionary
    unknown = [word for word in prompt if word not in dictionary]
    if unknown:
        print(
            f"fairseq-doc generate: words outside the dictionary, read as <unk>: {', '.join(unknown)}",
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
    return {"prompt": prompt, "samples": samples, "end": dictionary.eos_word}


def words_of(prompt: str) -> list[str]:
    """Split a prompt at blanks.

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
    return tokenize_line(prompt)


def as_text(result: dict[str, Any]) -> str:
    """Each text after its prompt, a line end for each end mark, an empty line between texts."""
    texts = []
    for sample in result["samples"]:
        lines: list[list[str]] = [[]]
        for word in result["prompt"] + sample:
            if word == result["end"]:
                lines.append([])
            else:
                lines[-1].append(word)
        texts.append("\n".join(map(" ".join, lines)).rstrip("\n"))
    return "\n\n".join(texts)
