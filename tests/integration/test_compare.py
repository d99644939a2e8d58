"""``fairseq-doc compare`` with real trainings: done ones are not repeated, seeds are added, BLEU."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import toy_translation
from conftest import (
    PACKAGE,
    SMALL_MODEL,
    SMALL_TRAINING,
    SMALL_TRANSLATION,
    doc,
    refused,
    result_of,
    shim,
)

from fairseq_doc.tuning import comparison

TRAINING = SMALL_TRAINING.replace("--seed 3 ", "")
SYSTEMS = [
    f"doc={SMALL_MODEL}",
    f"one={SMALL_MODEL} --plain-output --doc-components 0,0,0,1 --layer-dims 24,24,16",
]


@pytest.fixture(scope="module")
def shared(server):
    """``shared(data, training)``: the end of a command line. The trainings are forks."""

    def words(data, training=TRAINING):
        line = f"-- {server.programs}/fairseq-train {data} --user-dir {PACKAGE} {training}"
        return [*line.split(), "--max-epoch", "1"]

    return words


@pytest.fixture(scope="module")
def compared(corpus, shared, tmp_path_factory):
    """The words of a comparison of two systems; its results with one seed, and then with two."""
    folder = tmp_path_factory.mktemp("compare")
    doc_system, one = SYSTEMS
    systems = [doc_system, f"{one} --log-file {folder}/log-{{seed}}"]
    words = ["compare", "--dir", str(folder / "runs"), *systems]
    words += ["--workers", "2", "--json", "--no-progress-bar"]
    training = shared(corpus.data)
    first, _ = doc(*words, "--seeds", "1", *training)
    second, err = doc(*words, "--seeds", "2", *training)
    return words, training, json.loads(first), json.loads(second), err


def test_systems_with_seeds(compared, corpus):
    words, _, _, result, err = compared
    assert result["metric"] == "perplexity" and list(result["systems"]) == ["doc", "one"]
    for name, row in result["systems"].items():
        assert row["seeds"] == [1, 2] and len(set(row["test"]["values"])) == 2
        assert row["test"]["deviation"] > 0 and row["parameters"] > 0
        assert row["tokens_per_second"] > 0
        assert f"{name}, seed 2: loss " in err
    logs = [path.name for path in Path(words[2]).parent.glob("log-*")]
    assert sorted(logs) == ["log-1", "log-2"]
    doc_row, one = result["systems"].values()
    assert doc_row["parameters"] > one["parameters"]
    assert one["test"]["distance"] == one["test"]["mean"] - doc_row["test"]["mean"]
    checkpoint = f"{words[2]}/one-seed2/checkpoints/checkpoint_best.pt"
    evaluated = result_of("eval-lm", corpus.data, "--path", checkpoint)
    assert evaluated["perplexity"] == one["test"]["values"][1]
    perplexities = one["test"]["mean"], one["valid"]["mean"]  # of a text of plain words
    assert [one[split]["word_perplexity"] for split in ("test", "valid")] == pytest.approx(
        perplexities
    )


def test_a_second_start_adds_a_seed_and_repeats_nothing(compared):
    words, training, first, second, err = compared
    assert err.count("seed 2: loss") == 2
    for name, row in first["systems"].items():
        assert row["test"]["values"] == second["systems"][name]["test"]["values"][:1]
    text, _ = doc(*(word for word in words if word != "--json"), "--seeds", "1", *training)
    assert text.splitlines()[0].startswith("| system | parameters | tokens/s | seeds |")
    folder = words[2]
    with open(f"{folder}/comparison.md") as file:
        assert file.read().splitlines() == text.splitlines()[:4]
    with open(f"{folder}/comparison.png", "rb") as file:
        assert file.read(4) == b"\x89PNG"


def test_more_epochs_continue_what_was_finished(compared, tmp_path):
    words, training, first, *_ = compared
    folder = shutil.copytree(words[2], tmp_path / "runs")
    words = ["compare", "--dir", folder, *words[3:], "--seeds", "1", *training[:-1]]
    longer, err = doc(*words, "2")
    assert err.count("seed 1: loss") == 2
    rows = json.loads(longer)["systems"]
    for name, row in rows.items():
        assert row["test"]["mean"] < first["systems"][name]["test"]["mean"]
        log = (folder / f"{name}-seed1" / "log.txt").read_text()
        assert log.count("| valid | epoch 001 |") == log.count("| valid | epoch 002 |") == 1
    assert "a limit cannot be lowered" in refused(*words, "1")


def test_what_is_refused(compared, corpus, shared, tmp_path):
    words, training, *_ = compared
    start = ["compare", "--dir", tmp_path / "new"]
    for added, problem in (
        (training, "expected a system, by --systems or NAME='OPTIONS'; got none"),
        ([SYSTEMS[0], SYSTEMS[0], *training], "a system with a new name"),
        ([*SYSTEMS], "-- fairseq-train DATA ..., at the end"),
        (
            ["--systems", "softmax,rnn", *training],
            "expected different names among softmax, mos, doc; got rnn",
        ),
        (["--reference", "x", *SYSTEMS, *training], "--reference is needed for a translation"),
        ([*SYSTEMS, *shared(tmp_path / "none")], "cannot read"),
    ):
        assert problem in refused(*start, *added)
    remade = shutil.copytree(corpus.data, tmp_path / "remade") / "SHA256SUMS"
    remade.write_text(remade.read_text().replace("valid.bin", "other"))
    assert "holds trainings on" in refused(*words[:5], *shared(remade.parent))
    assert "training with" in refused(*words[:5], *training, "--clip-norm", "3")
    broken = [f"bad={SMALL_MODEL} --doc-components 0,0,1,1,1", f"doc={SMALL_MODEL}"]
    _, err = doc(*start, *broken, "--seeds", "1", *training, status=1)
    assert "bad-seed1/log.txt: fairseq_doc: error: --doc-components 0,0,1,1,1: " in err
    assert not (tmp_path / "new" / "comparison.md").exists()


def test_translations_by_bleu(server, shared, tmp_path, monkeypatch):
    toy_translation.write_corpus(tmp_path / "text", "copy", train=300, valid=20, test=20)
    data, python = tmp_path / "bin", tmp_path / "python"
    doc("prepare-mt", "src", "tgt", tmp_path / "text", data, "--merges", "5")
    lines = '[ "$1 $2" = "-m fairseq_cli.generate" ] && shift 2'
    shim(tmp_path, "python", f'{lines} && exec {server.programs}/fairseq-generate "$@"')
    monkeypatch.setattr(comparison, "sys", SimpleNamespace(executable=python))
    reference = ["--reference", tmp_path / "text" / "test.tgt", "--seeds", "1"]
    systems = ["doc=", "mos=--doc-components 0,0,0,2"]
    training = shared(data, SMALL_TRANSLATION.replace("--seed 3", ""))
    (tmp_path / "short").write_text("w1 w2\n")
    start = ["compare", "--dir", tmp_path / "runs", *systems]
    for wrong, problem in (("missing", "cannot read"), ("short", "expected 20 sentences, as in")):
        refusal = refused(*start, "--reference", tmp_path / wrong, *training)
        assert problem in refusal and not (tmp_path / "runs").exists()
    result = result_of(*start, *reference, *training)
    assert result["metric"] == "BLEU"
    for row in result["systems"].values():
        assert 0 <= row["test"]["mean"] <= 100 and row["valid"]["mean"] > 0
