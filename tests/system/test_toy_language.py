"""The commands that a user types learn a language of known probabilities: a model needs at most 1.03
times its bits, and 1.37 times with its LSTM layers detached or words shuffled in training."""

import pytest
import toy_language
from conftest import (
    SMALL_MODEL,
    SMALL_TRAINING,
    doc,
    evaluated,
    evaluation,
    result_of,
    run_here,
    training,
)

# No regularisation: the language is simple, and the text long enough for it.
DOC = f"""{SMALL_MODEL} --decoder-embed-dim 32 --layer-dims 64,48 --doc-components 0,2,2 {SMALL_TRAINING}
    --embed-dropout 0 --input-dropout 0 --hidden-dropout 0 --output-dropout 0
    --component-dropout 0 --weight-dropout 0 --ar-alpha 0 --tar-beta 0 --weight-decay 0
    --lr 3 --clip-norm 1 --bptt 10 --max-length-delta 4 --batch-size 20 --batch-size-valid 10
    --nonmono 3 --no-epoch-checkpoints --max-epoch 9"""
# As published: Adam without momentum; every column reads the text in a loop.
MELIS = """--arch lstm_melis_lm --hidden-size 32 --embedding-ratio 0.5 --input-dropout 0 --state-dropout 0
    --output-dropout 0 --task bptt_language_modeling --criterion doc_cross_entropy --sentence-avg
    --l2 1e-7 --optimizer adam --adam-betas (0.0,0.999) --adam-eps 1e-9 --clip-norm 10 --lr 0.01
    --lr-scheduler plateau --updates-per-epoch 100 --drop-at 3 --max-checks 4
    --batch-size 16 --batch-size-valid 10 --bptt 20 --best-checkpoint-metric nll_loss --num-workers 0
    --seed 3 --cpu --no-epoch-checkpoints --log-format simple --log-interval 100"""


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    """A data folder, and the bits a symbol that the language itself needs for the test split."""
    folder = tmp_path_factory.mktemp("language")
    toy_language.write_corpus(folder / "text", train=24_000, valid=4_000, test=10_000)
    doc("prepare-lm", "text", folder / "text", folder / "bin")
    lines = (folder / "text" / "test.txt").read_text().splitlines()
    return folder / "bin", toy_language.bits(lines)


@pytest.mark.parametrize(
    "settings",
    [DOC, *(f"{MELIS} --cell {cell}" for cell in ("lstm", "rhn --rhn-depth 2", "nas"))],
    ids=["doc", "lstm", "rhn", "nas"],
)
def test_a_model_comes_within_three_percent_of_the_language(language, settings, tmp_path):
    data, bits = language
    run_here(training(data, tmp_path, model=settings, schedule=""))
    # In eight columns, since these cells take a step at a time.
    checkpoint, options = tmp_path / "checkpoint_best.pt", "--gen-subset test --batch-size 8"
    perplexity, found, tokens = evaluated(run_here(evaluation(data, checkpoint, options)))
    ours = result_of("eval-lm", data, "--path", checkpoint, "--cpu", *options.split())
    assert ours["perplexity"] == pytest.approx(perplexity, abs=0.011)
    assert tokens > 9_900
    assert 0.995 * bits < found < 1.03 * bits
