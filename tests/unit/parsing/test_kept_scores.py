"""The file of kept scores, and runs that continue from it."""

import fcntl
import json
import os
import zlib
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
    head, *rows = whole.content.decode().splitlines()
    assert json.loads(head) == {"checksums": "crc32", "scores of": STAMP}
    assert [json.loads(row[9:]) for row in rows] == whole.scores
    for number in range(len(rows)):  # a checksum is that of all lines so far
        text = head + "".join(row[9:] for row in rows[: number + 1])
        assert rows[number][:9] == f"{zlib.crc32(text.encode()):08x} "


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
@example(-1)  # the last line, but not its end
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
    rows = [json.loads(line[9:]) for line in whole.content.decode().splitlines()[1:]]
    rows[2] = [-1.0, -2.0]
    write_kept(tmp_path / "kept", map(json.dumps, rows))
    assert whole.run_with(tmp_path / "kept") == whole.scores
    assert len(calls) == CHUNKS - 2
    assert (tmp_path / "kept").read_bytes() == whole.content


@pytest.mark.parametrize(
    "content",
    [b"3 0\n-1\t(S (DT a))\n", b"[1.0]\n", b"\xff\xfe\n", b"{}\n", b"[" * 100_000],
)  # fmt: skip
def test_a_file_of_something_else_is_refused_and_unchanged(tmp_path, content):
    file = tmp_path / "kept"
    file.write_bytes(content)
    assert "kept: expected scores of these models on this list" in refusal(KeptScores, file, STAMP)
    assert file.read_bytes() == content


@pytest.mark.parametrize("length", [0, 10, -1])
def test_a_first_line_that_is_cut_off_keeps_nothing(tmp_path, length):
    """As a full disk leaves it."""
    file = tmp_path / "kept"
    with KeptScores(file, STAMP) as kept:
        assert kept.take(0, [1]) is None
        kept.append([np.array([-1.0])])
    head = file.read_bytes().split(b"\n")[0] + b"\n"
    file.write_bytes(head[:length])
    with KeptScores(file, STAMP) as kept:
        assert kept.take(0, [1]) is None
        kept.append([np.array([-2.0])])
    with KeptScores(file, STAMP) as kept:
        assert kept.take(0, [1])[0].tolist() == [-2.0]


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


def write_kept(path, texts):
    """A file of kept scores with checksums that fit."""
    head = json.dumps({"checksums": "crc32", "scores of": STAMP}, sort_keys=True)
    lines, found = [head], zlib.crc32(head.encode())
    for text in texts:
        found = zlib.crc32(text.encode(), found)
        lines.append(f"{found:08x} {text}")
    path.write_text("\n".join([*lines, ""]))


@pytest.mark.parametrize(
    "line",
    ["[-1.0, ", '{"a": 1}', '["x"]', '["-1.0"]', "[-1]", "[[-1.0]]", "[NaN]", "[-Infinity]", "[0.1]",
     "[" * 100_000, f"[-{'9' * 5000}]", "-1.0", "true"],
)  # fmt: skip
def test_a_line_that_holds_no_log_probabilities_is_named(tmp_path, line):
    write_kept(tmp_path / "kept", ["[-1.0]", line, "[-1.0]"])
    message = refusal(KeptScores, tmp_path / "kept", STAMP)
    assert "kept: line 3 is damaged: expected its checksum and a list of log-prob" in message


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(0, 9))
def test_a_changed_digit_is_noticed(whole, folder, place, digit):
    """Or, in the last line, which may be cut off, makes no difference."""
    file, content = folder / "changed.scores", bytearray(whole.content)
    head = content.index(b"\n") + 1
    digits = [at for at in range(head, len(content)) if chr(content[at]).isdecimal()]
    at = digits[place % len(digits)]
    if content[at] == ord(str(digit)):
        return
    content[at] = ord(str(digit))
    file.write_bytes(content)
    if content.count(b"\n", 0, at) < content.count(b"\n") - 1:
        number = content.count(b"\n", 0, at) + 1
        assert f"line {number} is damaged" in refusal(KeptScores, file, STAMP)
    else:
        assert whole.run_with(file) == whole.scores


def test_a_line_that_was_removed_is_noticed(whole, tmp_path):
    lines = whole.content.splitlines(keepends=True)
    (tmp_path / "kept").write_bytes(b"".join(lines[:2] + lines[3:]))
    assert "line 3 is damaged" in refusal(KeptScores, tmp_path / "kept", STAMP)


def test_scores_of_a_version_without_checksums_are_named(tmp_path):
    (tmp_path / "kept").write_text(f"{json.dumps(STAMP, sort_keys=True)}\n[-1.0]\n")
    message = refusal(KeptScores, tmp_path / "kept", STAMP)
    assert "or one of a version without checksums; remove it" in message


def test_a_place_that_cannot_be_written_is_refused(whole, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert "read more than once; got a pipe" in refusal(KeptScores, tmp_path / "fifo", STAMP)
    with KeptScores(tmp_path / "kept", STAMP) as kept:
        (tmp_path / "kept").write_text("another's")
        assert "another run is writing" in refusal(kept.take, 0, [1])
    assert (tmp_path / "kept").read_text() == "another's"


def test_a_full_disk_is_told_and_what_was_kept_continues(whole, tmp_path):
    kept = KeptScores(tmp_path / "other", STAMP)
    assert kept.take(0, [1]) is None
    kept._file = open("/dev/full", "w")
    message = refusal(kept.append, [np.array([-1.0])])
    assert "other: No space left on device; the same command continues" in message
    with KeptScores(tmp_path / "other", STAMP) as kept:
        assert kept.take(0, [1]) is None


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
