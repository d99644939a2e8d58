"""Perplexity and time of a mixture without its lightest components, for several thresholds.

    python scripts/benchmark_threshold.py DATA MODEL.pt [--thresholds 0,.001,.01,.1] [--words 10000] [--json]

The first --words tokens of the split are scored in one column with the carried state, in windows of
--eval-window tokens. The thresholds take turns in each of --repeats rounds; a time is the fastest. The baseline
is threshold 0, all components. Nothing else should run on the machine.
"""

import json
import logging
import warnings
from collections.abc import Callable
from functools import partial

from benchmark_tools import fastest_in_turns, make_parser, print_machine


def arguments():
    """The arguments of the command line."""
    from fairseq_doc.cli.arguments import positive

    parser = make_parser(__doc__)
    parser.add_argument("data", help="folder of fairseq-preprocess")
    parser.add_argument("path", help="checkpoint of a mixture")
    parser.add_argument("--gen-subset", default="valid", help="default: valid")
    parser.add_argument("--words", type=positive, default=10_000, help="default: 10000")
    parser.add_argument("--eval-window", type=positive, default=1000, help="default: 1000")
    parser.add_argument("--repeats", type=positive, default=3, help="default: 3")
    parser.add_argument("--thresholds", default="0,.001,.01,.1", help="default: 0,.001,.01,.1")
    return parser.parse_args()


def main():
    """Evaluate in turns, and print."""
    args = arguments()
    import torch

    from fairseq_doc.evaluation.ensemble import load_ensemble, windows_of
    from fairseq_doc.evaluation.perplexity import Evaluation, evaluate_at

    logging.disable(logging.INFO)  # fairseq names the split at each evaluation
    warnings.filterwarnings("ignore", message="'pin_memory'")
    print_machine(to_stderr=args.json)
    ensemble = load_ensemble(args.path, args.data, eval_window=args.eval_window)
    output = ensemble.single.decoder.output
    thresholds = [float(part) for part in args.thresholds.split(",")]
    found: dict[float, Evaluation] = {}

    def evaluate(threshold):
        output.threshold = threshold
        (found[threshold],) = evaluate_at(ensemble, args.gen_subset, tokens=args.words)

    @torch.no_grad()
    def kept(threshold):
        """The mean number of components of a token that are not left out."""
        counts, tokens = 0.0, 0
        for window in windows_of(ensemble, args.gen_subset):
            if tokens >= args.words:
                break
            sample = window["net_input"]
            log_weights = ensemble.single(sample["src_tokens"], window=sample["window"])[1]
            weights = log_weights["log_weights"].flatten(0, 1).exp()  # (N, J)
            heaviest = weights == weights.amax(1, keepdim=True)
            counts += ((weights >= threshold) | heaviest).sum().item()
            tokens += len(weights)
        return counts / tokens

    works: dict[str, Callable[[], object]] = {
        str(threshold): partial(evaluate, threshold) for threshold in thresholds
    }
    seconds = fastest_in_turns(works, args.repeats)
    rows = [
        {
            "threshold": threshold,
            "components": kept(threshold),
            "perplexity": found[threshold].perplexity,
            "seconds": seconds[str(threshold)],
            "ratio": seconds[str(threshold)] / seconds[str(thresholds[0])],
        }
        for threshold in thresholds
    ]
    if args.json:
        print(json.dumps(rows))
        return
    print(f"{output.n_components} components, {found[thresholds[0]].tokens:,} words")
    for row in rows:
        print(
            "threshold {threshold:<6g} {components:6.2f} components a word, perplexity {perplexity:9.4f}, "
            "{seconds:7.2f} s, {ratio:5.2f} of the first".format(**row)
        )


if __name__ == "__main__":
    main()
