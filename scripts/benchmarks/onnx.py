"""An exported language model beside the model itself: size, perplexity and words a second on one thread.

The first --words tokens of the split are scored in one column with the carried state, in three ways: a token at
a time with log P of every word, as shallow fusion does; a token at a time with its own log P alone; and so in
windows of --window tokens. Ours, ONNX in float32 and ONNX in 8 bits take turns in each of --repeats rounds; a time
is the fastest.
"""

import math
from dataclasses import dataclass

import torch

from benchmarks.tools import fastest_in_turns
from fairseq_doc.evaluation.ensemble import load_ensemble, windows_of
from fairseq_doc.evaluation.scorer import scorer
from fairseq_doc.export.contract import LOG_PROBS, NLL
from fairseq_doc.export.file import exported_file
from fairseq_doc.options import REQUIRED, option, positive

KINDS = {"ONNX float32": False, "ONNX int8": True}


@dataclass(frozen=True, kw_only=True)
class Options:
    data: str = option("folder of fairseq-preprocess", REQUIRED, positional=True)
    path: str = option("checkpoint", REQUIRED, positional=True)
    gen_subset: str = option("split", "valid")
    words: int = option("tokens of the split", 2000, type=positive)
    window: int = option("tokens at a time", 100, type=positive)
    repeats: int = option("rounds", 3, type=positive)


def text_of(ensemble, split, words):
    """The first tokens of a split, (1, words + 1)."""
    window = next(iter(windows_of(ensemble, split, length=words)))
    return window["net_input"]["src_tokens"], window["target"]


def own_pass(ensemble, source, target, window, every_word):
    """A function that scores the text with our model, and gives -log P of it."""

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


def run(settings):
    """``parameters``, ``words``, ``bytes``; {way: {form: perplexity and words a second}}."""
    torch.set_num_threads(1)
    ensemble = load_ensemble(settings.path, settings.data, precision="float32")
    parameters = sum(p.numel() for p in ensemble.single.parameters())
    source, target = text_of(ensemble, settings.gen_subset, settings.words)
    files = {
        (kind, form): exported_file(ensemble, form, int8=int8)
        for kind, int8 in KINDS.items()
        for form in (LOG_PROBS, NLL)
    }
    sizes = {kind: len(files[kind, LOG_PROBS].data) for kind in KINDS}
    found = {"parameters": parameters, "words": source.size(1), "bytes": sizes}
    print(f"{parameters:,} parameters, {source.size(1):,} words of {settings.gen_subset}")
    print(", ".join(f"{kind} {size:,} bytes" for kind, size in sizes.items()))
    ways = {
        "a token, all log P": (LOG_PROBS, 1),
        "a token, its log P": (NLL, 1),
        f"windows of {settings.window}": (NLL, settings.window),
    }
    for way, (form, window) in ways.items():
        text = source, target, window, form == LOG_PROBS
        passes = {"ours": own_pass(ensemble, *text)}
        passes |= {kind: onnx_pass(files[kind, form], *text) for kind in KINDS}
        found[way] = compare(way, passes, source.size(1), settings.repeats)
    return found


def compare(way, passes, words, repeats):
    """{form: perplexity and words a second} of one way, printed."""
    nll: dict[str, float] = {}
    noted = {
        kind: lambda kind=kind, work=work: nll.update({kind: work()})
        for kind, work in passes.items()
    }
    seconds = fastest_in_turns(noted, repeats)
    found = {}
    for kind, taken in seconds.items():
        perplexity, speed = math.exp(nll[kind] / words), words / taken
        found[kind] = {"perplexity": perplexity, "words a second": speed}
        line = f"{way:20}{kind:14}perplexity {perplexity:9.4f}{speed:9,.0f} words a second"
        print(f"{line}{seconds['ours'] / taken:7.2f} times ours", flush=True)
    return found
