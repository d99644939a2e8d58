"""Candidates a second of reranking, against scoring one candidate at a time.

    python scripts/benchmark_rerank.py DATA NBEST --path CHECKPOINT [--sentences 40] [--repeats 3] [--json]

Measured on the distinct candidates of the same sentences, taken evenly from the whole list, in one
process: the median of the repeats, in which the forms take turns. Forms:

    one at a time      the model reads each candidate alone
    by length          batches of like lengths (evaluation/scoring.py)
    prefix tree        each distinct prefix once (evaluation/prefix_tree.py): what fairseq-doc rerank does
"""

import json
import statistics
import sys
import time
from itertools import chain

import torch
from benchmark_tools import make_parser, print_machine

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import load_ensemble
from fairseq_doc.evaluation.prefix_tree import score_prefix_tree
from fairseq_doc.evaluation.scoring import score_text
from fairseq_doc.parsing.reranking import read_sentences

ONE, LENGTH, TREE = "one at a time", "by length", "prefix tree"


def one_at_a_time(ensemble, candidates):
    """Each alone."""
    return [score_text(ensemble, [candidate]).log_prob for candidate in candidates]


def by_length(ensemble, candidates):
    """In batches of like lengths."""
    return [sentence.log_prob for sentence in score_text(ensemble, candidates).sentences]


FORMS = {ONE: one_at_a_time, LENGTH: by_length, TREE: score_prefix_tree}


def measure(ensemble, candidates, repeats):
    """{form: median seconds}; the forms' scores must agree."""
    seconds: dict[str, list[float]] = {form: [] for form in FORMS}
    scores = {}
    for _ in range(repeats):
        for form, score in FORMS.items():
            start = time.perf_counter()
            scores[form] = torch.tensor(score(ensemble, candidates), dtype=torch.float64)
            seconds[form].append(time.perf_counter() - start)
    for form in FORMS:
        torch.testing.assert_close(scores[form], scores[ONE], rtol=1e-5, atol=1e-3)
    return {form: statistics.median(times) for form, times in seconds.items()}


def main(arguments=None):
    """Measure what the arguments say.

    Returns:
        The exit status: 0; 1 for an error that the user can correct, printed in one line.
    """
    parser = make_parser(__doc__)
    parser.add_argument("data", help="folder that fairseq-doc prepare-parsing wrote")
    parser.add_argument("nbest", help="n-best file")
    parser.add_argument("--path", required=True, help="checkpoint, or a.pt:b.pt")
    parser.add_argument("--sentences", type=int, default=40, help="(default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="(default: %(default)s)")
    args = parser.parse_args(arguments)
    print_machine(to_stderr=args.json)
    try:
        # In float32: the forms' scores agree up to its rounding.
        ensemble = load_ensemble(args.path, args.data, precision="float32")
        sentences = read_sentences(args.nbest, ensemble.dictionary)
        lists = [[text.split(" ") for text in sentence.symbols] for sentence in sentences]
        step = max(1, len(lists) // args.sentences)
        lists = lists[::step][: args.sentences]
        candidates = list(chain.from_iterable(lists))
        seconds = measure(ensemble, candidates, args.repeats)
    except FairseqDocError as error:
        print(f"benchmark_rerank: error: {error}", file=sys.stderr)
        return 1
    rates = {form: len(candidates) / taken for form, taken in seconds.items()}
    over_one = {form: rate / rates[ONE] for form, rate in rates.items()}
    result = {
        "sentences": len(lists),
        "candidates": len(candidates),
        "threads": torch.get_num_threads(),
        "candidates_per_second": rates,
        "over_one_at_a_time": over_one,
    }
    if args.json:
        print(json.dumps(result))
        return 0
    print(
        f"{len(candidates):,} distinct candidates of {len(lists):,} sentences, "
        f"{result['threads']} threads"
    )
    for form, rate in rates.items():
        print(f"{form:15} {rate:8.1f} candidates a second  {over_one[form]:6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
