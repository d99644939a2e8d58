"""Scores of systems, their ceilings, and the bootstrap of ROUGE."""

import numpy as np
import pytest

from fairseq_doc.cli.scoring_arguments import ceiling_lines
from fairseq_doc.preparation.tokenization import moses
from fairseq_doc.scoring.hypotheses import System, Undoing
from fairseq_doc.scoring.systems import SEED, compare_systems, count_lost, score_bleu, score_rouge

VALUES = np.random.default_rng(0).uniform(size=50)


def system(*texts, targets=None):
    targets = targets or [None] * len(texts)
    return System("a.out", list(texts), Undoing(), targets, None, 0)


def test_rouge_is_in_percent_and_targets_bound_it():
    references = ["a dog runs", "two dogs"]
    systems = [system("a dog runs", "two cats"), system("x", "y", targets=["a dog", None])]
    scores = score_rouge(systems, references, 100)
    assert scores["unstemmed"]["rouge1"][0]["f1"] == pytest.approx(75)
    assert scores["stemmed"]["rouge1"][0]["ceiling"] is None
    assert scores["stemmed"]["rouge1"][1]["ceiling"] == pytest.approx(80)


def test_words_with_characters_that_rouge_drops_are_counted():
    assert count_lost(["An é and ## in", "a-b Straße 7."]) == (8, 3)


def test_targets_that_cannot_be_undone_bound_bleu():
    """Moses leaves blanks around such a quote and around slashes."""
    references = ["Il n’a pas d’interface dans /usr/bin.", "Un chien dort ici, un chat aussi."]
    texts = [moses("fr").decode(moses("fr").encode(line)) for line in references]

    def ceiling(*targets):
        systems = [system(*texts, targets=targets)]
        (row,) = score_bleu(systems, references, "fr", resamples=100)["BLEU"]["systems"]
        printed = list(ceiling_lines(["a"], {"BLEU": [row]}))
        assert bool(printed) == (row["ceiling"] not in (None, 100))
        return row["ceiling"], row["score"]

    low, score = ceiling(*texts)
    assert low == score < 99
    assert ceiling(None, references[1])[0] == 100 and ceiling(None, None)[0] is None


def test_systems_are_compared_with_the_first():
    """By means over the same sentences, drawn with replacement; p is the share of resamples at least
    as far from the difference as that is from zero."""
    other = VALUES[::-1] + 0.02
    first, same, better, near = compare_systems([VALUES, VALUES, VALUES + 0.1, other], 300)
    rng = np.random.default_rng(SEED)
    drawn = [rng.integers(50, size=50) for _ in range(300)]
    means, resampled = (np.array([x[own].mean() for own in drawn]) for x in (VALUES, other))
    low, high = np.percentile(means, [2.5, 97.5])
    expected = {"f1": 100 * VALUES.mean(), "low": 100 * low, "high": 100 * high}
    assert first == {**expected, "p": None} and low < VALUES.mean() < high
    assert same == {**expected, "p": 1.0}
    assert better["p"] == pytest.approx(1 / 301)
    assert better["f1"] == pytest.approx(100 * (VALUES.mean() + 0.1))
    difference = other.mean() - VALUES.mean()
    beyond = sum(abs(one - difference) >= abs(difference) for one in resampled - means)
    assert near["p"] == (beyond + 1) / 301 and 0.01 < near["p"] < 1
