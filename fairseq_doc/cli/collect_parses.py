"""What an encoder-decoder wrote as symbols of trees -> an n-best file of trees.

    fairseq-generate data-bin/wsj/pairs ... --beam 10 --nbest 10 > test.out
    python scripts/collect_parses.py test.out --sentences data-bin/wsj/trees/test.mrg --output test.nbest

Words and tags are those of the sentences. An output with as many words as its sentence is kept, with its
brackets repaired where they do not match (fairseq_doc/parsing/generated.py has the rule); every other is
dropped; a sentence of which nothing is left gets a flat tree. All of it is counted.
"""

import argparse
import json
import os
import sys

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_output, write_lines
from fairseq_doc.parsing.outputs import (
    DROPPED,
    FALLBACK,
    REPAIRED,
    WELL_FORMED,
    candidate_lists,
    nbest_lines,
    read_outputs,
)
from fairseq_doc.preparation.trees import read_trees

HOW = (WELL_FORMED, REPAIRED, DROPPED)


def make_parser():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        description="Make an n-best file of trees of what fairseq-generate wrote."
    )
    parser.add_argument("generated", help="fairseq-generate's output")
    parser.add_argument(
        "--sentences",
        required=True,
        help="trees over the same sentences, of which the words and tags are taken",
    )
    parser.add_argument("--output", required=True, help="n-best file to write")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing output")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def shares(kinds):
    """What became of outputs, counted, as text."""
    every = sum(kinds[how] for how in HOW)
    return ", ".join(f"{kinds[how]:,} {how} ({kinds[how] / every:.1%})" for how in HOW)


def main(arguments=None):
    """Collect as told.

    Returns:
        The exit status: 0; 1 for what the user can mend, told in one line.
    """
    args = make_parser().parse_args(arguments)
    try:
        if os.path.realpath(args.output) in map(os.path.realpath, (args.generated, args.sentences)):
            raise FairseqDocError(f"{args.output} is read here; name another file to write")
        check_output(args.output, args.overwrite)
        sentences = [tree for _, tree in read_trees(args.sentences)]
        outputs = read_outputs(args.generated)
        lists, kinds, firsts = candidate_lists(outputs, sentences, args.generated)
        write_lines(args.output, nbest_lines(lists))
    except (FairseqDocError, OSError) as error:
        print(f"collect_parses: error: {error}", file=sys.stderr)
        return 1
    every = sum(kinds[how] for how in HOW)
    result = {"sentences": len(lists), "outputs": every, "flat_trees": kinds[FALLBACK]}
    result |= {how.replace("-", "_"): kinds[how] for how in HOW}
    result |= {f"first_{how.replace('-', '_')}": firsts[how] for how in HOW}
    if args.json:
        print(json.dumps(result))
    else:
        print(
            f"{len(lists):,} sentences, {every:,} outputs: {shares(kinds)}; first outputs: "
            f"{shares(firsts)}; {kinds[FALLBACK]:,} sentences have nothing but a flat tree"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
