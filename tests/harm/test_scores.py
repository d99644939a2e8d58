"""A score depends on what is scored alone, not on the batch, the order or the group it is scored in: to
1e-5 in float32, to 1e-10 in float64."""

import hypothesis
import numpy as np
import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from harm.campaign import WHOLE
from hypothesis import strategies as st

from fairseq_doc.evaluation.attention import load_translator
from fairseq_doc.evaluation.ensemble import load_ensemble
from fairseq_doc.evaluation.perplexity import evaluate
from fairseq_doc.evaluation.prefix_tree import score_prefix_tree
from fairseq_doc.evaluation.scoring import check_sentences, score_text
from fairseq_doc.parsing.reranking import read_sentences, score_candidates

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
MODELS = {"one model": "a.pt", "an ensemble": "a.pt:b.pt"}
some = hypothesis.settings(
    max_examples=40 if WHOLE else 5,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
every_model = pytest.mark.parametrize("models", MODELS)


def assert_equal_scores(got, expected, dtype):
    """Equal to the tolerance, relative to scores beyond 1."""
    got, expected = np.asarray(got), np.asarray(expected)
    errors = np.abs(got - expected) / np.maximum(1, np.abs(expected))
    assert errors.max() <= TOLERANCE[dtype]


def ensemble_of(folder, models, dtype):
    paths = [str(folder / path) for path in MODELS.get(models, models).split(":")]
    return load_ensemble(paths, folder / "data").to(dtype)


@every_dtype
@every_model
def test_sentences(models, dtype, inputs):
    folder = inputs("lm")
    ensemble = ensemble_of(folder, models, dtype)
    lines = (folder / "text" / "valid.txt").read_text().splitlines()[:24]
    tokenized = check_sentences(lines)
    alone = [score_text(ensemble, [words]).sentences[0].log_prob for words in tokenized]

    @some
    @hypothesis.given(
        st.permutations(range(len(lines))), st.integers(1, len(lines)), st.integers(1, 900)
    )
    def in_any_order_and_batch(order, count, max_tokens):
        chosen = order[:count]
        scored = score_text(ensemble, [tokenized[i] for i in chosen], max_tokens=max_tokens)
        got = [sentence.log_prob for sentence in scored.sentences]
        assert_equal_scores(got, [alone[i] for i in chosen], dtype)

    in_any_order_and_batch()


@every_dtype
@every_model
def test_a_text_in_any_windows(models, dtype, inputs):
    folder = inputs("lm")
    paths = [str(folder / path) for path in MODELS[models].split(":")]
    found = []
    for window in (1, 3, 20, 77, 1000):
        ensemble = load_ensemble(paths, folder / "data", eval_window=window).to(dtype)
        found.append(evaluate(ensemble, "test").nll)
    assert_equal_scores(found, [found[0]] * len(found), dtype)
    lines = (folder / "text" / "test.txt").read_text().splitlines()
    tokenized = check_sentences(lines, "carried")
    for max_tokens in (1, 50, 5000):
        scored = score_text(ensemble, tokenized, "carried", max_tokens)
        assert_equal_scores(-scored.log_prob, found[0], dtype)


@every_dtype
def test_an_ensemble_in_any_order(dtype, inputs):
    folder = inputs("lm")
    words = check_sentences((folder / "lines.txt").read_text().splitlines())
    scores = [
        [s.log_prob for s in score_text(ensemble_of(folder, paths, dtype), words).sentences]
        for paths in ("a.pt:b.pt", "b.pt:a.pt", "a.pt", "a.pt:a.pt")
    ]
    assert_equal_scores(scores[1], scores[0], dtype)
    assert_equal_scores(scores[3], scores[2], dtype)


@every_dtype
def test_candidates(dtype, inputs):
    folder = inputs("trees")
    ensemble = ensemble_of(folder, "lm.pt", dtype)
    path = str(folder / "dev.nbest")
    sentences = read_sentences(path, ensemble.dictionary)
    flat = [symbols.split(" ") for sentence in sentences for symbols in sentence.symbols]
    alone = [score_text(ensemble, [words]).sentences[0].log_prob for words in flat]
    for at_once in (1, 4, 2000):
        scored = score_candidates(ensemble, sentences, at_once)
        assert_equal_scores(np.concatenate(scored), alone, dtype)

    @some
    @hypothesis.given(st.permutations(range(len(flat))), st.integers(1, len(flat)))
    def in_any_order_and_group(order, count):
        chosen = order[:count]
        got = score_prefix_tree(ensemble, [flat[i] for i in chosen])
        assert_equal_scores(got, [alone[i] for i in chosen], dtype)

    in_any_order_and_group()


@every_dtype
@pytest.mark.parametrize("paths", ["mt.pt", "mt.pt:plain.pt"])
@pytest.mark.parametrize("beam", [1, 3])
def test_translations(paths, beam, dtype, inputs, tmp_path):
    """Hypotheses of a sentence translated alone, and in batches with others."""
    folder = inputs("translation")
    paths = [str(folder / path) for path in paths.split(":")]
    translator = load_translator(paths[0], folder / "data", beam)
    models = [model.to(dtype) for model in translator.models]
    if len(paths) > 1:  # the same architecture with other weights
        torch.manual_seed(0)
        other = load_translator(paths[0], folder / "data", beam).models[0].to(dtype)
        for parameter in other.parameters():
            parameter.data.uniform_(-0.3, 0.3)
        models.append(other)
    task = translator.task
    task.load_dataset("train")
    dataset = task.dataset("train")
    generator = SequenceGenerator(
        models, task.target_dictionary, beam_size=beam, max_len_b=10, min_len=1
    )

    def translated(indices):
        sample = dataset.collater([dataset[i] for i in indices])
        found = generator.generate(models, {"net_input": sample["net_input"]})
        return dict(zip(sample["id"].tolist(), found, strict=True))

    chosen = range(12)
    alone = {i: translated([i])[i] for i in chosen}

    @some
    @hypothesis.given(st.permutations(chosen), st.integers(1, len(chosen)))
    def in_any_batch(order, count):
        for index, hypotheses in translated(order[:count]).items():
            for got, expected in zip(hypotheses, alone[index], strict=True):
                assert_equal_scores(got["score"].item(), expected["score"].item(), dtype)
                if torch.equal(got["tokens"], expected["tokens"]):
                    scores = got["positional_scores"], expected["positional_scores"]
                    assert_equal_scores(*(s.tolist() for s in scores), dtype)
                else:  # nearly equal scores may change places
                    assert dtype == torch.float32

    in_any_batch()
