"""An exported language model compared with the model itself: size, perplexity and words per second on one thread.

The first --words tokens of the split are scored in one column with the carried state, token by token and with log P of
every word, as in shallow fusion. Ours, ONNX in float32 and ONNX in 8 bits take turns in each of --repeats rounds, and the
fastest time counts.
"""

import math
from dataclasses import dataclass

import torch

from benchmarks.tools import fastest_in_turns
from fairseq_doc.evaluation.ensemble import load_ensemble, windows_of
from fairseq_doc.evaluation.scorer import scorer
from fairseq_doc.export.file import exported_file
from fairseq_doc.options import REQUIRED, option

KINDS = {"ONNX float32": False, "ONNX int8": True}


@dataclass(frozen=True, kw_only=True)
class Options:
    data: str = option("folder written by fairseq-preprocess", REQUIRED, positional=True)
    path: str = option("checkpoint", REQUIRED, positional=True)
    gen_subset: str = option("split", "valid")
    words: int = option("number of tokens to score", 2000, least=1)
    repeats: int = option("rounds", 3, least=1)


def text_of(ensemble, split, words):
    """The first tokens of a split, (1, words + 1)."""
    window = next(iter(windows_of(ensemble, split, length=words)))
    return window["net_input"]["src_tokens"], window["target"]


def own_pass(ensemble, source, target):
    """A function that scores the text with our model and returns its -log P."""

    def score():
        nll = 0.0
        with scorer(ensemble) as one:
            for at in range(source.size(1)):
                log_probs = one.next_log_probs(source[:, at : at + 1], at)
                nll -= log_probs[0, target[0, at]].item()
        return nll

    return score


def onnx_pass(run, source, target):
    """A function that scores the text with an exported model and returns its -log P."""
    source, target = source.numpy(), target.numpy()

    def score():
        nll, state = 0.0, run.zero_state(1)
        for at in range(source.shape[1]):
            log_probs, *state = run(source[:, at : at + 1], *state)
            nll -= float(log_probs[0, target[0, at]])
        return nll

    return score


def run(settings):
    """Result: ``parameters``, ``words``, ``bytes``; {form: perplexity and words per second}."""
    torch.set_num_threads(1)
    ensemble = load_ensemble(settings.path, settings.data, precision="float32")
    parameters = sum(p.numel() for p in ensemble.single.parameters())
    text = text_of(ensemble, settings.gen_subset, settings.words)
    files = {kind: exported_file(ensemble, int8=int8) for kind, int8 in KINDS.items()}
    sizes = {kind: len(file.data) for kind, file in files.items()}
    words = text[0].size(1)
    print(f"{parameters:,} parameters, {words:,} words of {settings.gen_subset}")
    print(", ".join(f"{kind} {size:,} bytes" for kind, size in sizes.items()))
    passes = {"ours": own_pass(ensemble, *text)}
    passes |= {kind: onnx_pass(file, *text) for kind, file in files.items()}
    found = compare(passes, words, settings.repeats)
    return {"parameters": parameters, "words": words, "bytes": sizes, **found}


def compare(passes, words, repeats):
    """{form: perplexity and words per second}; also prints them."""
    nll = {kind: work() for kind, work in passes.items()}
    seconds = fastest_in_turns(passes, repeats)
    found = {}
    for kind, taken in seconds.items():
        perplexity, speed = math.exp(nll[kind] / words), words / taken
        found[kind] = {"perplexity": perplexity, "words a second": speed}
        line = f"{kind:14}perplexity {perplexity:9.4f}{speed:9,.0f} words per second"
        print(f"{line}{seconds['ours'] / taken:7.2f} times ours", flush=True)
    return found
