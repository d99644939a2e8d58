"""``--matmul-precision`` through the commands, on any processor: the variable forces both answers."""

from conftest import (
    digest_of,
    evaluated,
    evaluation,
    last_validation,
    load,
    result_of,
    run_here,
    training,
)

from fairseq_doc.modules import lstm

OPTIONS = "--matmul-precision bfloat16 --max-update 25"
WARNING = "matmul precision bfloat16: expected a processor with AMX or AMD's AVX512_BF16"


def same_weights(*paths):
    one, other = (digest_of(load(path)["model"]) for path in paths)
    return one == other


def test_training_and_scoring(corpus, tmp_path, processor, monkeypatch):
    processor("yes")
    monkeypatch.setattr(lstm, "LEAST_WEIGHTS", 0)
    whole = run_here(training(corpus.data, tmp_path / "a", OPTIONS))
    assert WARNING not in whole
    last = tmp_path / "a" / "checkpoint_last.pt"
    run_here(training(corpus.data, tmp_path / "exact", "--max-update 25"))
    assert not same_weights(last, tmp_path / "exact" / "checkpoint_last.pt")

    options = "--gen-subset valid --batch-size 4"

    def bits(further=""):
        """As ``fairseq-doc eval-lm`` gives them, in all digits."""
        line = f"eval-lm {corpus.data} --path {last} {options} {further} --cpu --no-progress-bar"
        return result_of(*line.split())["bits"]

    def rounded_bits(further=""):
        """As ``fairseq-eval-lm`` prints them."""
        return evaluated(run_here(evaluation(corpus.data, last, f"{options} {further}")))[1]

    as_trained, exact = bits(), bits("--matmul-precision float32")
    assert bits("--matmul-precision bfloat16") == as_trained
    assert 0 < abs(as_trained - exact) < 0.01
    assert abs(last_validation(whole)["nll_loss"] - as_trained) < 1e-3
    assert abs(rounded_bits() - as_trained) < 1e-4
    other = """--model-overrides '{"matmul_precision": "float32"}'"""
    assert abs(rounded_bits(other) - exact) < 1e-4

    processor("no")
    assert bits() == exact


def test_a_processor_without_bfloat16_trains_in_float32_and_says_so(corpus, tmp_path, processor):
    processor("no")
    output = run_here(training(corpus.data, tmp_path / "a", OPTIONS))
    assert output.count(WARNING) == 1
    run_here(training(corpus.data, tmp_path / "b", OPTIONS.replace("bfloat16", "float32")))
    assert same_weights(*(tmp_path / name / "checkpoint_last.pt" for name in "ab"))
