"""The file of kept scores, and runs that continue from it."""

import errno
import json
import os
import zlib
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import refusal
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.parsing import reranking
from fairseq_doc.parsing.kept_scores import KeptScores
from fairseq_doc.parsing.reranking import read_sentences, score_candidates

from ..evaluation.conftest import peaked_model
from .lists import DICTIONARY, LISTS, of_trees, tree_dictionary, write_nbest

STAMP = {"sha256": ["a", "b"], "max_candidates": 4}
HEAD = json.dumps({"checksums": "crc32", "scores of": STAMP}, sort_keys=True)
AT_ONCE, CHUNKS = 3, 6  # the third and the seventh sentence, of one candidate, go with the next


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run in single precision, where a score's last bits depend on its chunk."""
    folder = tmp_path_factory.mktemp("lists")
    models = [peaked_model(seed=seed, dictionary=DICTIONARY) for seed in (0, 1)]
    ensemble = of_trees(*models).to(torch.float32)
    sentences = read_sentences(write_nbest(folder / "many.nbest", LISTS * 2), DICTIONARY)

    def run_with(file, stamp=STAMP):
        with closing(KeptScores(file, stamp)) as kept:
            found = score_candidates(ensemble, sentences, AT_ONCE, kept)
        return [row.tolist() for row in found]

    scores = [row.tolist() for row in score_candidates(ensemble, sentences, AT_ONCE)]
    assert run_with(folder / "whole") == scores
    content = (folder / "whole").read_bytes()
    return SimpleNamespace(run_with=run_with, scores=scores, content=content, folder=folder)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "kept"


def write_kept(path, texts):
    """A file of kept scores with checksums that fit."""
    lines, checksum = [HEAD], zlib.crc32(HEAD.encode())
    for text in texts:
        checksum = zlib.crc32(text.encode(), checksum)
        lines.append(f"{checksum:08x} {text}")
    path.write_text("\n".join([*lines, ""]))


def test_the_file_says_what_the_scores_depend_on_and_holds_a_sentence_a_line(whole, file):
    write_kept(file, map(json.dumps, whole.scores))
    assert file.read_bytes() == whole.content


def test_with_every_score_kept_the_model_is_not_asked(whole, file, calls):
    file.write_bytes(whole.content)
    reordered = dict(reversed(STAMP.items()))
    assert whole.run_with(file, reordered) == whole.scores
    assert calls == [] and file.read_bytes() == whole.content


@pytest.mark.parametrize("done", [0, 2, CHUNKS - 1])
def test_a_run_interrupted_between_chunks_continues(whole, file, monkeypatch, done):
    calls = []
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
    assert [path.name for path in file.parent.iterdir()] == ["kept"]


@settings(max_examples=3)
@given(st.integers(0, 10**6))
@example(0)
@example(10)  # in the first line
@example(len(HEAD))
@example(-1)  # the last line, but not its end
def test_a_run_cut_off_anywhere_continues_to_the_same_result(whole, cut):
    file = whole.folder / "cut"
    file.write_bytes(whole.content[: cut % len(whole.content)])
    assert whole.run_with(file) == whole.scores
    assert file.read_bytes() == whole.content


def test_the_candidates_whose_scores_were_kept_are_counted(whole, file):
    sentences = read_sentences(write_nbest(whole.folder / "n", LISTS), DICTIONARY)
    lines = whole.content.decode().splitlines(keepends=True)
    for rows, taken in ((0, 0), (1, 3), (2, 7), (3, 7), (4, 11)):  # of 3, 4, 1 and 3 candidates
        file.write_text("".join(lines[: 1 + rows]))
        with closing(KeptScores(file, STAMP)) as kept:
            score_candidates(of_trees(), sentences, AT_ONCE, kept)
        assert kept.taken == taken


def test_scores_after_a_sentence_of_another_size_are_computed_again(whole, file, calls):
    write_kept(file, map(json.dumps, [*whole.scores[:2], [-1.0, -2.0], *whole.scores[3:]]))
    assert whole.run_with(file) == whole.scores
    assert len(calls) == CHUNKS - 2 and file.read_bytes() == whole.content


@pytest.mark.parametrize(
    "content", [b"3 0\n-1\t(S (DT a))\n", b"[1.0]\n", b"\xff\xfe\n", b"[" * 100_000, HEAD.encode()]
)
def test_another_file_or_the_scores_of_another_run_are_refused_and_unchanged(file, content):
    file.write_bytes(content)
    other = STAMP | {"sha256": ["a", "c"]}
    assert "kept: expected scores of these models on this list" in refusal(KeptScores, file, other)
    assert file.read_bytes() == content


@pytest.mark.parametrize(
    "line",
    ["[-1.0, ", '{"a": 1}', '["x"]', '["-1.0"]', "[-1]", "[[-1.0]]", "[NaN]", "[-Infinity]", "[0.1]",
     "[" * 100_000, f"[-{'9' * 5000}]", "-1.0", "true"],
)  # fmt: skip
def test_a_line_that_holds_no_log_probabilities_is_named(file, line):
    write_kept(file, ["[-1.0]", line, "[-1.0]"])
    message = refusal(KeptScores, file, STAMP)
    assert "kept: line 3 is damaged: expected its checksum and a list of log-prob" in message


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(0, 9))
def test_a_changed_digit_is_noticed(whole, place, digit):
    file, content = whole.folder / "changed", bytearray(whole.content)
    digits = [at for at in range(len(HEAD) + 1, len(content)) if chr(content[at]).isdecimal()]
    at = digits[place % len(digits)]
    if content[at] == ord(str(digit)):
        return
    content[at] = ord(str(digit))
    file.write_bytes(content)
    number = content.count(b"\n", 0, at) + 1
    assert f"line {number} is damaged" in refusal(KeptScores, file, STAMP)


def test_a_line_that_was_removed_is_noticed(whole, file):
    lines = whole.content.splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert "line 3 is damaged" in refusal(KeptScores, file, STAMP)


def test_a_pipe_and_what_another_run_writes_are_refused(whole, file, monkeypatch):
    os.mkfifo(file)
    assert "expected a regular file; got a pipe" in refusal(KeptScores, file, STAMP)
    file.unlink()
    kept = KeptScores(file, STAMP)
    file.write_text("another's")
    assert "another run is writing" in refusal(kept.begin, [[1]])
    assert file.read_text() == "another's"

    def locked(*_):
        raise OSError(errno.EAGAIN, "taken")

    file.write_bytes(whole.content[:-9])
    monkeypatch.setattr("fairseq_doc.files.fcntl.lockf", locked)
    assert "another run is writing" in refusal(KeptScores(file, STAMP).begin, [[1]] * 9)
    assert file.read_bytes() == whole.content[:-9]


def test_after_an_error_what_was_kept_stays(file, tmp_path):
    kept = KeptScores(file, STAMP)
    assert kept.begin([[1]]) == []
    kept._file = open("/dev/full", "w")
    message = refusal(kept.append, [np.array([-1.0])])
    assert "kept: No space left on device; the same command continues" in message
    assert KeptScores(file, STAMP).begin([[1]]) == []

    bad = peaked_model(dictionary=tree_dictionary())
    bad.decoder.output.bias.data[DICTIONARY.index("with")] = -torch.inf
    sentences = read_sentences(write_nbest(tmp_path / "n", LISTS), DICTIONARY)
    with closing(KeptScores(file, STAMP)) as kept, pytest.raises(FairseqDocError):
        score_candidates(of_trees(bad), sentences, 1, kept)
    assert len(file.read_text().splitlines()) == 2  # the head and the first sentence
