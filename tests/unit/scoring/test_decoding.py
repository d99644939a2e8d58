"""The best beam and length penalty, against a search for each pair."""

from types import SimpleNamespace

import pytest
import torch
from conftest import refusal

from fairseq_doc.evaluation.translation import Found, SearchOptions
from fairseq_doc.scoring.decoding import DecodingOptions, table, tune_decoding
from fairseq_doc.scoring.metrics import METRICS, metric_of

from ..conftest import small_translation_model
from ..evaluation.conftest import translator

LINES = ["s1 s4 s2", "", "s7", "s3 s3 s8 s9 s0 s5"]
FILES = {"input": "valid.s", "reference": "valid.t"}


@pytest.mark.parametrize("metric", METRICS)
def test_each_value_is_that_of_a_search_with_this_pair(metric):
    own = translator(small_translation_model(scale=8.0).eval())
    sources, search = own.sources(LINES), SearchOptions(max_len_b=9)
    references = [best.text for best, *_ in own.hypotheses(sources, SearchOptions(beam=1))]
    references[0] += " w1"
    options = DecodingOptions(**FILES, metric=metric, beams="4,1,4", lenpens="0:2:0.5")
    best, result = tune_decoding(own, sources, references, options, search)
    tried = {(one["beam"], one["lenpen"]): one["value"] for one in result["tried"]}
    assert list(tried) == [(beam, n / 2) for beam in (1, 4) for n in range(5)]
    judge = metric_of(metric, "t")
    for (beam, lenpen), value in tried.items():
        settings = SearchOptions(beam=beam, lenpen=lenpen, max_len_b=9)
        texts = [best.text for best, *_ in own.hypotheses(sources, settings)]
        pairs = zip(texts, references, strict=True)
        sums = sum(torch.tensor(judge.statistics(*pair)) for pair in pairs)
        assert value == pytest.approx(judge.value(sums.numpy()))
    assert len(set(tried.values())) > 1 and best.max_len_b == 9
    assert result["value"] == max(tried.values(), key=lambda value: judge.sign * value)
    assert tried[best.beam, best.lenpen] == result["value"] and result["metric"] == judge.name


@pytest.mark.parametrize(
    "reference, expected",
    [("a b c", (2, 1.0)), ("a b", (1, 0.0))],
    ids=["the longer one wins", "of equal ones the smallest beam"],
)
def test_a_beam_is_searched_once_and_ties_keep_the_order_of_the_grid(reference, expected):
    """With the beam 2 the shorter hypothesis has the score -4 / 3^L, the longer one -5 / 4^L."""
    beams = []
    found = {
        1: Found(["a b"], [3], torch.tensor([-4.0])),
        2: Found(["a b", "a b c"], [3, 4], torch.tensor([-4.0, -5.0])),
    }

    def search(sources, settings, max_tokens):
        beams.append(settings.beam)
        return [found[settings.beam]]

    own = SimpleNamespace(search=search, task=SimpleNamespace(cfg=SimpleNamespace(target_lang="t")))
    options = DecodingOptions(**FILES, metric="wer", beams="1,2", lenpens="0:2:0.5")
    best, result = tune_decoding(own, ["source"], [reference], options, SearchOptions())
    assert beams == [1, 2] and (best.beam, best.lenpen) == expected
    rows = [line.split() for line in table(result["tried"], best)]
    assert rows[0] == ["lenpen", "beam", "1", "beam", "2"] and len(rows) == 1 + 5
    starred = [(row[0], row.index(cell)) for row in rows for cell in row if cell.endswith("*")]
    assert starred == [(f"{expected[1]:g}", expected[0])]


@pytest.mark.parametrize(
    "options, named",
    [
        ({"reference": None}, "--tune-reference"),
        ({"beams": "5,0"}, "--tune-beams"),
        ({"beams": ""}, "--tune-beams"),
        ({"lenpens": "1"}, "--tune-lenpens"),
        ({"lenpens": "0:20:1"}, "--tune-lenpens must be between -10 and 10; got 0:20:1"),
    ],
)
def test_options_that_are_refused(options, named):
    assert named in refusal(DecodingOptions, **{**FILES, **options})


@pytest.mark.parametrize(
    "lines, reference, problem",
    [("a\nb\n", "a\n", "got 2"), ("", "", "expected words"), ("a\n", "\n", "expected words")],
)
def test_files_of_different_lengths_or_without_text(tmp_path, lines, reference, problem):
    paths = {name: str(tmp_path / name) for name in FILES}
    (tmp_path / "input").write_text(lines)
    (tmp_path / "reference").write_text(reference)
    assert problem in refusal(DecodingOptions(**paths).read)
