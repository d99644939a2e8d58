"""The file of kept scores, and runs that continue from it."""

import fcntl
import json
from types import SimpleNamespace

import pytest
import torch
from conftest import refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.parsing import reranking
from fairseq_doc.parsing.kept_scores import KeptScores
from fairseq_doc.parsing.reranking import read_sentences, score_candidates

from ..evaluation.conftest import peaked_model
from .lists import DICTIONARY, LISTS, of_trees, tree_dictionary, write_nbest

STAMP = {"sha256": ["a", "b"], "max_candidates": 4}
AT_ONCE, CHUNKS = 3, 6  # the third and the seventh sentence, of one candidate, go with the next


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lists")


@pytest.fixture(scope="module")
def whole(folder):
    """An uninterrupted run in single precision, where a score's last bits depend on its chunk."""
    models = [peaked_model(seed=seed, dictionary=DICTIONARY) for seed in (0, 1)]
    ensemble = of_trees(*models).to(torch.float32)
    path = write_nbest(folder / "many.nbest", LISTS * 2)
    sentences = read_sentences(path, DICTIONARY)

    def run_with(file, stamp=STAMP):
        with KeptScores(file, stamp) as kept:
            found = score_candidates(ensemble, path, sentences, AT_ONCE, kept)
        return [row.tolist() for row in found]

    scores = [row.tolist() for row in score_candidates(ensemble, path, sentences, AT_ONCE)]
    assert run_with(folder / "whole.scores") == scores
    content = (folder / "whole.scores").read_bytes()
    return SimpleNamespace(run_with=run_with, scores=scores, content=content)


def test_the_file_says_what_the_scores_depend_on_and_holds_a_sentence_a_line(whole):
    head, *rows = map(json.loads, whole.content.decode().splitlines())
    assert head == STAMP
    assert rows == whole.scores


def test_with_every_score_kept_the_model_is_not_asked(whole, tmp_path, calls):
    (tmp_path / "kept").write_bytes(whole.content)
    assert whole.run_with(tmp_path / "kept") == whole.scores
    assert calls == []
    assert (tmp_path / "kept").read_bytes() == whole.content


@pytest.mark.parametrize("done", range(CHUNKS))
def test_a_run_interrupted_between_chunks_continues_to_the_same_result(
    whole, tmp_path, monkeypatch, done
):
    file, calls = tmp_path / "kept", []
    original = reranking.score_prefix_tree

    def interrupted(*args):
        calls.append(args)
        if len(calls) == done + 1:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(reranking, "score_prefix_tree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        whole.run_with(file)
    assert whole.content.startswith(file.read_bytes())  # only added to
    assert whole.run_with(file) == whole.scores
    assert len(calls) == CHUNKS + 1  # only the chunk that was interrupted began twice
    assert file.read_bytes() == whole.content
    assert not list(tmp_path.glob("*.part"))


@settings(max_examples=6)
@given(st.integers(0, 10**6))
def test_a_run_cut_off_anywhere_continues_to_the_same_result(whole, folder, cut):
    """In the middle of a line, of a number, or of a chunk."""
    file, head = folder / "cut.scores", whole.content.index(b"\n") + 1
    file.write_bytes(whole.content[: head + cut % (len(whole.content) - head)])
    assert whole.run_with(file) == whole.scores
    assert file.read_bytes() == whole.content


def test_the_candidates_whose_scores_were_kept_are_counted(whole, tmp_path):
    nbest = write_nbest(tmp_path / "n", LISTS)
    sentences = read_sentences(nbest, DICTIONARY)  # of 3, 4, 1 and 3 candidates
    lines = whole.content.decode().splitlines(keepends=True)
    for rows, taken in ((0, 0), (1, 3), (2, 7), (3, 7), (4, 11)):
        (tmp_path / "kept").write_text("".join(lines[: 1 + rows]))
        with KeptScores(tmp_path / "kept", STAMP) as kept:
            score_candidates(of_trees(), nbest, sentences, AT_ONCE, kept)
        assert kept.taken == taken


def test_scores_after_a_sentence_of_another_size_are_computed_again(whole, tmp_path, calls):
    lines = whole.content.decode().splitlines(keepends=True)
    lines[3] = "[-1.0, -2.0]\n"
    (tmp_path / "kept").write_text("".join(lines))
    assert whole.run_with(tmp_path / "kept") == whole.scores
    assert len(calls) == CHUNKS - 2
    assert (tmp_path / "kept").read_bytes() == whole.content


@pytest.mark.parametrize(
    "content",
    [b"", b"3 0\n-1\t(S (DT a))\n", b"[1.0]\n", b"\xff\xfe\n", b"{}\n", json.dumps(STAMP).encode()],
)  # fmt: skip
def test_a_file_of_something_else_is_refused_and_unchanged(tmp_path, content):
    file = tmp_path / "kept"
    file.write_bytes(content)
    assert "kept: expected scores of these models on this list" in refusal(KeptScores, file, STAMP)
    assert file.read_bytes() == content


@pytest.mark.parametrize(
    "other", [{"sha256": ["a", "c"]}, {"max_candidates": 5}, {"sha256": ["a"]}]
)
def test_scores_of_other_models_or_of_another_list_are_refused(whole, tmp_path, other):
    file = tmp_path / "kept"
    file.write_bytes(whole.content)
    assert "expected scores of these models" in refusal(KeptScores, file, STAMP | other)
    assert file.read_bytes() == whole.content
    reordered = dict(reversed(STAMP.items()))
    assert whole.run_with(file, reordered) == whole.scores


@pytest.mark.parametrize("line", ["[1.0, ", '{"a": 1}', '["x"]', "[NaN]"])
def test_a_damaged_line_is_named(whole, tmp_path, line):
    lines = whole.content.decode().splitlines()
    lines[2] = line
    (tmp_path / "kept").write_text("\n".join([*lines, ""]))
    assert "kept: line 3 is damaged" in refusal(KeptScores, tmp_path / "kept", STAMP)


def test_scores_that_another_run_is_writing_are_refused(whole, tmp_path):
    (tmp_path / "kept").write_bytes(whole.content)
    with open(tmp_path / "kept") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "another run is writing" in refusal(KeptScores, tmp_path / "kept", STAMP)


def test_a_model_without_finite_scores_keeps_those_before(tmp_path):
    bad = peaked_model(dictionary=tree_dictionary())
    bad.decoder.output.bias.data[DICTIONARY.index("with")] = -torch.inf
    nbest = write_nbest(tmp_path / "n", LISTS)
    sentences = read_sentences(nbest, DICTIONARY)
    with KeptScores(tmp_path / "k", STAMP) as kept, pytest.raises(FairseqDocError):
        score_candidates(of_trees(bad), nbest, sentences, 1, kept)
    assert len((tmp_path / "k").read_text().splitlines()) == 2  # the head and the first sentence
