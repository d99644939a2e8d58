"""``fairseq-doc collect-parses``."""

import argparse
import os
from typing import Any

from fairseq_doc.cli.outputs import named_outputs, output_lines
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_output, write_lines
from fairseq_doc.parsing.outputs import (
    DROPPED,
    FLAT,
    REPAIRED,
    WELL_FORMED,
    candidate_lists,
    nbest_lines,
)
from fairseq_doc.preparation.trees import read_trees
from fairseq_doc.scoring.generated import read_generated

EXAMPLE = "fairseq-doc collect-parses test.out --sentences trees/test.mrg --output test.nbest"
KINDS = (WELL_FORMED, REPAIRED, DROPPED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's own."""
    parser.add_argument(
        "generated", metavar="OUT", help="fairseq-generate's output, --nbest or not"
    )
    parser.add_argument(
        "--sentences",
        metavar="TREES",
        required=True,
        help="trees over the same sentences; their words and tags are used",
    )
    parser.add_argument("--output", metavar="NBEST", required=True, help="n-best file to write")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing output")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``sentences``; ``outputs``, and how many were ``well_formed``, ``repaired`` (brackets or
    words) and ``dropped`` (another number of words); ``first_...``, the same of each sentence's
    first output; ``flat_trees``, sentences without any other tree; ``output``, the file."""
    if os.path.realpath(args.output) in map(os.path.realpath, (args.generated, args.sentences)):
        raise FairseqDocError(f"{args.output} is an input too; name another file to write")
    check_output(args.output, args.overwrite)
    sentences = [tree for _, tree in read_trees(args.sentences)]
    found = candidate_lists(read_generated(args.generated), sentences, args.generated)
    write_lines(args.output, nbest_lines(found.lists), args.overwrite)
    result: dict[str, Any] = {
        "sentences": len(found.lists),
        "outputs": sum(found.counts[kind] for kind in KINDS),
        "flat_trees": found.counts[FLAT],
    }
    for kind in KINDS:
        key = kind.replace("-", "_")
        result[key] = found.counts[kind]
        result[f"first_{key}"] = found.first_counts[kind]
    return result | named_outputs(args, "output")


def as_text(result: dict[str, Any]) -> str:
    """What became of the outputs, in one line; the file."""
    outputs = _shares(result, "", result["outputs"])
    first_outputs = _shares(result, "first_", result["sentences"])
    counts = (
        f"{result['sentences']:,} sentences, {result['outputs']:,} outputs: {outputs}; first "
        f"outputs: {first_outputs}; {result['flat_trees']:,} sentences have only a flat tree"
    )
    return "\n".join([counts, *output_lines(result, "output")])


def _shares(result: dict[str, Any], prefix: str, total: int) -> str:
    """The counts with this prefix, and their shares of the total."""
    parts = []
    for kind in KINDS:
        count = result[prefix + kind.replace("-", "_")]
        parts.append(f"{count:,} {kind} ({count / total:.1%})")
    return ", ".join(parts)
