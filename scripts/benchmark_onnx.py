"""An exported language model beside the model itself: size, perplexity and words a second on one thread.

    python scripts/benchmark_onnx.py DATA MODEL.pt [--gen-subset valid] [--words 2000] [--repeats 3] [--json]

The first --words tokens of the split are scored in one column with the carried state, in three ways: a token at
a time with log P of every word, as shallow fusion does; a token at a time with its own log P alone; and so in
windows of --window tokens. Ours, ONNX in float32 and ONNX in 8 bits take turns in each of --repeats rounds; a time
is the fastest. Nothing else should run on the machine.
"""

import json
import math
from collections.abc import Callable
from functools import partial

from benchmark_tools import fastest_in_turns, make_parser, print_machine

KINDS = {"ONNX float32": False, "ONNX int8": True}


def arguments():
    """The arguments of the command line."""
    from fairseq_doc.cli.arguments import positive

    parser = make_parser(__doc__)
    parser.add_argument("data", help="folder of fairseq-preprocess")
    parser.add_argument("path", help="checkpoint")
    parser.add_argument("--gen-subset", default="valid", help="default: valid")
    parser.add_argument("--words", type=positive, default=2000, help="default: 2000")
    parser.add_argument("--window", type=positive, default=100, help="default: 100")
    parser.add_argument("--repeats", type=positive, default=3, help="default: 3")
    return parser.parse_args()


def text_of(ensemble, split, words):
    """The first tokens of a split, (1, words + 1)."""
    from fairseq_doc.evaluation.ensemble import windows_of

    window = next(iter(windows_of(ensemble, split, length=words)))
    source, target = window["net_input"]["src_tokens"], window["target"]
    return source, target


def own_pass(ensemble, source, target, window, every_word):
    """A function that scores the text with our model, and gives -log P of it."""
    from fairseq_doc.evaluation.scorer import scorer

    def score():
        nll = 0.0
        with scorer(ensemble) as one:
            for number, start in enumerate(range(0, source.size(1), window)):
                x, y = (part[:, start : start + window] for part in (source, target))
                if every_word:
                    nll -= one.next_log_probs(x, number)[0, y[0, 0]].item()
                else:
                    nll -= one.log_probs(x, y, number).sum().item()
        return nll

    return score


def onnx_pass(run, source, target, window, every_word):
    """The same with an exported model."""
    source, target = source.numpy(), target.numpy()

    def score():
        nll, state = 0.0, run.zero_state(1)
        for start in range(0, source.shape[1], window):
            x, y = (part[:, start : start + window] for part in (source, target))
            if every_word:
                log_probs, *state = run(x, *state)
                nll -= float(log_probs[0, y[0, 0]])
            else:
                of_window, *state = run(x, y, *state)
                nll += float(of_window[0])
        return nll

    return score


def note(results, name, work):
    """Keep what a function gives."""
    results[name] = work()


def main():
    """Export, score, and print."""
    args = arguments()
    import torch

    from fairseq_doc.evaluation.ensemble import load_ensemble
    from fairseq_doc.export.contract import LOG_PROBS, NLL
    from fairseq_doc.export.file import ExportedModel, exported_file

    torch.set_num_threads(1)
    print_machine(to_stderr=args.json)
    ensemble = load_ensemble(args.path, args.data, precision="float32")
    parameters = sum(p.numel() for p in ensemble.single.parameters())
    source, target = text_of(ensemble, args.gen_subset, args.words)
    files = {
        (kind, form): exported_file(ensemble, form, int8=int8).data
        for kind, int8 in KINDS.items()
        for form in (LOG_PROBS, NLL)
    }
    sizes = {kind: len(files[kind, LOG_PROBS]) for kind in KINDS}
    found = {"parameters": parameters, "words": source.size(1), "bytes": sizes}
    if not args.json:
        print(f"{parameters:,} parameters, {source.size(1):,} words of {args.gen_subset}")
        print(", ".join(f"{kind} {size:,} bytes" for kind, size in sizes.items()))
    ways = {
        "a token, all log P": (LOG_PROBS, 1),
        "a token, its log P": (NLL, 1),
        f"windows of {args.window}": (NLL, args.window),
    }
    for way, (form, window) in ways.items():
        text = source, target, window, form == LOG_PROBS
        passes = {"ours": own_pass(ensemble, *text)}
        for kind in KINDS:
            passes[kind] = onnx_pass(ExportedModel(files[kind, form]), *text)
        nll: dict[str, float] = {}
        noted: dict[str, Callable[[], object]] = {
            kind: partial(note, nll, kind, work) for kind, work in passes.items()
        }
        seconds = fastest_in_turns(noted, args.repeats)
        found[way] = {
            kind: {
                "perplexity": math.exp(nll[kind] / source.size(1)),
                "words a second": source.size(1) / taken,
            }
            for kind, taken in seconds.items()
        }
        for kind, figures in found[way].items() if not args.json else ():
            print(
                f"{way:20}{kind:14}perplexity {figures['perplexity']:9.4f}"
                f"{figures['words a second']:9,.0f} words a second"
                f"{seconds['ours'] / seconds[kind]:7.2f} times ours",
                flush=True,
            )
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
