"""Translation of plain text against fairseq's generator, a sentence at a time."""

import pytest
import torch
from conftest import assert_refused, refusal
from fairseq.sequence_generator import SequenceGenerator

from fairseq_doc.evaluation.translation import SearchOptions

from ..conftest import small_translation_model
from .conftest import translator

LINES = ["s1 s4 nowhere s2", "", "s7", " \t", "s3 s3 s8 s9 s0 s5"]


@pytest.fixture(scope="module")
def models():
    kinds = {0: {}, 1: {"doc_components": "0,0,0,2"}}
    return [small_translation_model(seed=seed, **kinds[seed]).eval() for seed in kinds]


def of_fairseq(models, line, beam, lenpen, unkpen=0.0):
    """[(text, score)] of one line, the best first."""
    source, target = models[0].encoder.dictionary, models[0].decoder.dictionary
    generator = SequenceGenerator(
        models, target, beam, max_len_b=9, len_penalty=lenpen, unk_penalty=unkpen
    )
    tokens = source.encode_line(line, add_if_not_exist=False).long().unsqueeze(0)
    found = generator.generate(models, {"net_input": {"src_tokens": tokens}})[0]
    return [(target.string(one["tokens"]), one["score"].item()) for one in found]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("lenpen", [0.0, 0.6, 1.0, 2.5])
def test_hypotheses_are_fairseqs_in_the_order_of_the_lines(models, count, beam, lenpen):
    models = models[:count]
    settings = SearchOptions(beam=beam, lenpen=lenpen, nbest=beam, max_len_b=9)
    own = translator(*models)
    sources = own.sources(LINES)
    for max_tokens in (1, 1_000):  # a batch for each line, and one for all
        found = own.hypotheses(sources, settings, max_tokens)
        for line, hypotheses in zip(LINES, found, strict=True):
            if not line.strip():
                assert [one.text for one in hypotheses] == [""]
                continue
            expected = of_fairseq(models, line, beam, lenpen)
            assert [one.text for one in hypotheses] == [text for text, _ in expected]
            scores = [one.score for one in hypotheses]
            assert scores == pytest.approx([score for _, score in expected], rel=1e-5)
            norms = [one.log_prob / one.tokens**lenpen for one in hypotheses]
            assert scores == pytest.approx(norms, rel=1e-6)


def test_the_penalty_of_unknown_units(models):
    model = small_translation_model().eval()
    with torch.no_grad():
        model.decoder.output.bias[model.decoder.dictionary.unk()] = 20
    own, unkpen = translator(model), 100.0
    texts = []
    for settings in (SearchOptions(max_len_b=9), SearchOptions(max_len_b=9, unkpen=unkpen)):
        ((best,),) = own.hypotheses(own.sources(["s1 s2"]), settings)
        expected = of_fairseq([model], "s1 s2", 5, 1.0, settings.unkpen)[0]
        assert (best.text, best.score) == (expected[0], pytest.approx(expected[1], rel=1e-5))
        texts.append(best.text)
    assert "<unk>" in texts[0].split() and "<unk>" not in texts[1].split()


def test_a_line_that_is_too_long_is_refused_or_cut(models):
    own, line = translator(models[0], longest=5), "s1 s2 s3 s4 s5 s6"
    message = refusal(own.sources, ["s1", line], name="a.txt")
    assert message.startswith("a.txt: line 2: ") and "truncate_source" in message
    (cut,) = own.sources([line], truncate=True)
    (whole,) = own.sources(["s1 s2 s3 s4"])
    assert cut.dropped == 2 and whole.dropped == 0
    assert torch.equal(cut.indices, whole.indices)


def test_lines_and_settings_that_are_refused(models):
    own = translator(models[0])
    assert_refused(
        "a.txt: line 2 holds one of fairseq's", own.sources, ["", "s1 </s>"], False, "a.txt"
    )
    for settings, name in (
        ({"beam": 0}, "beam"),
        ({"beam": 2, "nbest": 3}, "nbest"),
        ({"lenpen": 1e3}, "lenpen"),
        ({"lenpen": float("nan")}, "lenpen"),
    ):
        assert_refused(name, SearchOptions, **settings)


def test_from_python(models):
    own = translator(*models)
    settings = {"beam": 3, "max_len_b": 9}
    texts = own.translate(LINES, **settings)
    assert texts == [best.text for best, *_ in own.nbest(LINES, nbest=2, **settings)]
    assert texts[1] == texts[3] == "" and own.translate(LINES[0], **settings) == texts[0]
    assert own.to(torch.float32).translate(LINES[0], **settings) == texts[0]
    assert own.translate("s1 " * 30, truncate_source=True, **settings)
