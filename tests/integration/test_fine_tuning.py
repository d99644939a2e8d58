"""Training from another model: other text, more words, more components (docs/fine_tuning.md)."""

import pytest
import torch
from conftest import doc, fail_here, load, refused, result_of, run_here, training

from fairseq_doc.preparation.binarisation import load_dictionary


@pytest.fixture(scope="module")
def folders(corpus, tmp_path_factory):
    """Another text: like the first data folder, and with a dictionary of its own."""
    folder = tmp_path_factory.mktemp("fine_tuning")
    (folder / "text").mkdir()
    for split in ("train", "valid", "test"):
        lines = (corpus.text / f"{split}.txt").read_text().splitlines()
        text = "".join(f"{line} zebra\n" for line in lines)
        (folder / "text" / f"{split}.txt").write_text(text)
    doc("prepare-lm", "text", folder / "text", folder / "like", "--like", corpus.data)
    doc("prepare-lm", "text", folder / "text", folder / "more")
    return folder


def test_another_text_begins_with_the_averages_and_forgets_the_rest(
    corpus, folders, trained, tmp_path
):
    last = trained.folder / "checkpoint_last.pt"
    before = load(last)["last_optimizer_state"]
    assert before["trigger"]["stage"] == 0 and before["param_groups"][0]["shows_average"]
    # At a rate of zero the weights stay.
    options = f"--finetune-from-model {last} --lr 0 --weight-decay 0 --max-epoch 1"
    output = run_here(training(folders / "like", tmp_path, options))
    assert "optimizer, lr scheduler, meters, dataloader will be reset" in output
    after = load(tmp_path / "checkpoint_best.pt")
    expected = load(last)["model"]
    assert all(torch.equal(after["model"][name], x) for name, x in expected.items())
    state = after["last_optimizer_state"]
    assert len(state["trigger"]["losses"]) <= 1 and state["trigger"]["stage"] == -1
    assert not state["param_groups"][0]["averaging"]
    lm = ["eval-lm", folders / "like", "--path", last, "--gen-subset", "valid", "--cpu"]
    assert result_of(*lm, "--batch-size", "4")["perplexity"] > 1
    error = fail_here(training(folders / "more", tmp_path / "refused", options))
    assert "a different dictionary: expected" in error


def test_more_words_begin_with_the_embeddings(corpus, folders, trained, tmp_path):
    best, vectors = trained.folder / "checkpoint_best.pt", tmp_path / "vectors.txt"
    words = [corpus.data, "--path", best, "--output", vectors]
    result = result_of("embeddings", *words)
    first, more = (load_dictionary(f / "dict.txt") for f in (corpus.data, folders / "more"))
    matrix = load(best)["model"]["decoder.embedding"]
    assert result == {"words": len(first), "width": matrix.size(1), "output": str(vectors)}
    assert "exists" in refused("embeddings", *words)
    assert doc("embeddings", *words, "--overwrite")[0].endswith(f"wrote {vectors}\n")
    options = f"--decoder-embed-path {vectors} --lr 0 --weight-decay 0 --max-epoch 1"
    run_here(training(folders / "more", tmp_path / "run", options))
    found = load(tmp_path / "run" / "checkpoint_best.pt")["model"]
    assert "zebra" in more.indices and "zebra" not in first.indices
    for word, row in first.indices.items():
        assert torch.equal(found["decoder.embedding"][more.index(word)], matrix[row])
    assert len(found["decoder.embedding"]) == len(more)
    vectors.unlink()  # a trained model is used without it
    checkpoint = tmp_path / "run" / "checkpoint_best.pt"
    assert doc("eval-lm", folders / "more", "--path", checkpoint, "--cpu")[0]


def test_a_mixture_grows_out_of_a_softmax(corpus, tmp_path):
    one = "--doc-components 0,0,0,1 --layer-dims 24,24,16 --plain-output --max-epoch 1"
    run_here(training(corpus.data, tmp_path / "one", one))
    softmax = tmp_path / "one" / "checkpoint_best.pt"
    four = f"--doc-components 0,0,1,3 --layer-dims 24,24,16 --grow-from {softmax} --grow-noise 0"
    assert "give --doc-activation linear" in fail_here(training(corpus.data, tmp_path / "x", four))
    four += " --doc-activation linear"
    assert "set --doc-weight-bias" in fail_here(training(corpus.data, tmp_path / "x", four))
    four += " --doc-weight-bias --grow-lower-weight 1e-6 --lr 1e-9 --max-epoch"
    run_here(training(corpus.data, tmp_path / "four", f"{four} 1"))
    grown = tmp_path / "four" / "checkpoint_best.pt"
    words = [corpus.data, "--gen-subset", "valid", "--cpu", "--batch-size", "4", "--path"]
    found = [result_of("eval-lm", *words, path)["perplexity"] for path in (softmax, grown)]
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    run_here(training(corpus.data, tmp_path / "four", f"{four} 2 --lr 10"))
    softmax.unlink()  # a trained model is used without it
    assert result_of("eval-lm", *words, grown)["perplexity"] < found[0]


@pytest.mark.parametrize(
    "options, problem",
    [
        ("--side target", "expected a checkpoint of the task translation"),
        ("--output-matrix", "--output-matrix is tied to the embedding"),
    ],
)
def test_what_cannot_be_written(corpus, trained, tmp_path, monkeypatch, options, problem):
    monkeypatch.chdir(tmp_path)
    words = ["--path", trained.folder / "checkpoint_best.pt", "--output", "v.txt", *options.split()]
    assert problem in refused("embeddings", corpus.data, *words)
    assert list(tmp_path.iterdir()) == []
