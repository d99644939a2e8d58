"""``fairseq-doc rouge``."""

import argparse
from typing import Any

from fairseq_doc.cli.scoring_arguments import (
    add_scoring_arguments,
    p_text,
    read_texts,
    system_names,
)
from fairseq_doc.scoring.rouge import TYPES, count_lost, score_rouge

EXAMPLE = "fairseq-doc rouge plain.txt doc.txt --reference test.tgt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's own."""
    add_scoring_arguments(parser)
    parser.add_argument("--lang", default="en", help="language, for --tokenizer (default: en)")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``read`` (what was read and undone, in lines), ``outputs``, and ``scores``: for ``unstemmed``
    and ``stemmed`` text and each type a list of ``f1``, ``low`` and ``high`` (its 95 % interval)
    and ``p``, of the difference from the first output; ``reference_words`` and, among these,
    ``words_with_lost_characters``."""
    texts = read_texts(args)
    words, lost = count_lost(texts.references)
    return {
        "read": texts.read,
        "outputs": args.outputs,
        "scores": score_rouge(texts.systems, texts.references, args.bootstrap),
        "reference_words": words,
        "words_with_lost_characters": lost,
    }


def as_text(result: dict[str, Any]) -> str:
    """What was read and what rouge-score leaves out, then two lines of scores for each output."""
    lines = list(result["read"])
    if result["words_with_lost_characters"]:
        lines.append(
            f"{result['words_with_lost_characters']:,} of {result['reference_words']:,} words of "
            "the references hold letters outside a-z, or # for a digit: rouge-score leaves these "
            "out"
        )
    for number, name in enumerate(system_names(result)):
        for stemming, kinds in result["scores"].items():
            cells = [name, f"{stemming:9}"]
            for kind, title in TYPES.items():
                own = kinds[kind][number]
                interval = f"[{own['low']:.2f}, {own['high']:.2f}]"
                cells.append(f"{title} {own['f1']:.2f} {interval}{p_text(own['p'])}")
            lines.append("  ".join(cells))
    return "\n".join(lines)
