"""Candidates per second in reranking, compared with scoring one candidate at a time.

All forms score the distinct candidates of the same sentences, chosen evenly from the whole list, in one
process; they take turns, and the fastest of the repeats counts. Forms:

    one at a time      the model reads each candidate alone
    by length          batches of similar lengths (evaluation/scoring.py)
    prefix tree        each distinct prefix once (evaluation/prefix_tree.py), as in fairseq-doc rerank
"""

from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch

from benchmarks.tools import fastest_in_turns
from fairseq_doc.evaluation.ensemble import load_ensemble
from fairseq_doc.evaluation.prefix_tree import sequence_log_probs
from fairseq_doc.evaluation.scoring import score_text
from fairseq_doc.options import REQUIRED, option
from fairseq_doc.parsing.nbest import parse_lists, read_nbest
from fairseq_doc.parsing.reranking import read_tree_lists

ONE, LENGTH, TREE = "one at a time", "by length", "prefix tree"


@dataclass(frozen=True, kw_only=True)
class Options:
    data: str = option("folder written by fairseq-doc prepare-parsing", REQUIRED, positional=True)
    nbest: str = option("n-best file", REQUIRED, positional=True)
    path: str = option("checkpoint, or a.pt:b.pt", REQUIRED)
    sentences: int = option("sentences", 40, least=1)
    repeats: int = option("rounds", 3, least=1)


def by_prefix_tree(ensemble, texts):
    """ln P of each candidate."""
    dictionary = ensemble.dictionary
    encoded = [[*map(dictionary.index, words), dictionary.eos()] for words in texts]
    return [row.sum() for row in sequence_log_probs(ensemble, encoded, dictionary.eos())]


FORMS = {
    ONE: lambda ensemble, texts: [score_text(ensemble, [text])[0].log_prob for text in texts],
    LENGTH: lambda ensemble, texts: [x.log_prob for x in score_text(ensemble, texts)],
    TREE: by_prefix_tree,
}


def measure(ensemble, candidates, repeats):
    """{form: seconds of its fastest run}; the scores of all forms must agree."""
    forms = {form: partial(score, ensemble, candidates) for form, score in FORMS.items()}
    scores = {form: torch.tensor(score(), dtype=torch.float64) for form, score in forms.items()}
    for found in scores.values():
        torch.testing.assert_close(found, scores[ONE], rtol=1e-5, atol=1e-3)
    return fastest_in_turns(forms, repeats)


def run(settings):
    """Result: ``candidates_per_second`` and ``over_one_at_a_time`` of each form, and what was scored."""
    # In float32, in which the scores of all forms agree up to rounding.
    ensemble = load_ensemble(settings.path, settings.data, precision="float32")
    dictionary = ensemble.dictionary
    parsed = parse_lists(settings.nbest, read_nbest(settings.nbest))
    lists = [
        [[dictionary[index] for index in sequence[:-1]] for sequence in sequences]
        for sequences in read_tree_lists(settings.nbest, parsed, dictionary).encoded
    ]
    step = max(1, len(lists) // settings.sentences)
    lists = lists[::step][: settings.sentences]
    candidates = list(chain.from_iterable(lists))
    print(f"{len(candidates):,} distinct candidates of {len(lists):,} sentences")
    seconds = measure(ensemble, candidates, settings.repeats)
    rates = {form: len(candidates) / taken for form, taken in seconds.items()}
    over_one = {form: rate / rates[ONE] for form, rate in rates.items()}
    for form, rate in rates.items():
        print(f"{form:15} {rate:8.1f} candidates per second  {over_one[form]:6.2f}")
    return {
        "sentences": len(lists),
        "candidates": len(candidates),
        "threads": torch.get_num_threads(),
        "candidates_per_second": rates,
        "over_one_at_a_time": over_one,
    }
