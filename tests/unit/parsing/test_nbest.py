import math

import pytest
from conftest import refusal
from generated_text import write

from fairseq_doc.parsing.nbest import Candidate, is_nbest, parse_lists, read_nbest
from fairseq_doc.preparation.trees import EMPTY, bracketed

A, B, C = "(S (NN a))", "(X (NN a))", "(S1 (S (NN c)))"
TAB, BARS = f"-1\t{A}", f"0 ||| -1 ||| {A}"


@pytest.mark.parametrize(
    "lines, expected",
    [
        # one line a candidate
        (("2 0", f"-1.5\t{A}", f"-2e1\t {B} ", "1\t1", f"3\t{C}"), [(2, 3), (5,)]),
        # the Charniak parser's
        (("", "2 1", "-1.5", A, "-20", B, "", "", "1 2", "3", C, ""), [(4, 6), (11,)]),
        # samples of RNNG, which have no order
        ((f"0 ||| -1.5 ||| {A}", f"0 ||| -20 |||  {B}", f"1 ||| 3 ||| {C}"), [(1, 2), (3,)]),
        ((f"0 ||| -20 ||| {B}", f"0 ||| -1.5 |||  {A}", f"1 ||| 3 ||| {C}"), [(2, 1), (3,)]),
        # this package's scored lists
        (("2 0", f"-1.5\t-9\t1e-05\t{A}", f"-20\t-7\t-8\t{B}", "1 1", f"3\t{C}"), [(2, 3), (5,)]),
    ],
)
def test_the_forms_of_a_list(tmp_path, lines, expected):
    path = write(tmp_path / "n", lines)
    (a, b), (c,) = expected
    first, second = [Candidate(-1.5, A, a), Candidate(-20.0, B, b)], [Candidate(3.0, C, c)]
    assert is_nbest(path) and read_nbest(path) == [first, second]


def test_a_failed_parse_is_the_last_of_the_samples(tmp_path):
    path = write(tmp_path / "n", ["0 ||| 0 ||| (())", f"0 ||| -9 ||| {A}", f"0 ||| -8 ||| {B}"])
    assert [one.text for one in read_nbest(path)[0]] == [B, A, "(())"]


def test_trees_are_no_lists(tmp_path):
    for lines in (["", A], ["(())"], []):
        assert not is_nbest(write(tmp_path / "t", lines))


@pytest.mark.parametrize(
    "lines, line, problem",
    [
        ((A,), 1, "expected 'N INDEX'"),
        (("", "1 0 0", TAB), 2, "expected 'N INDEX'"),
        (("1 2", TAB), 1, "expected sentence 0"),
        (("1 1", TAB, "1 1", TAB), 3, "expected sentence 2"),
        (("2 0", TAB), 1, "expected 2 candidates; got 1, then ''"),
        (("1 0", TAB, "2 1", TAB, "1 2", TAB), 3, "expected 2 candidates; got 1, then '1 2"),
        (("", "3 0", "-1", A, "-1", A, "", "1 1", "-1", A), 2, "expected 3 candidates"),
        (("1 0", "-1", A, "-1", A), 4, "expected 'N INDEX'"),
        (("1 0", "nan", "", A), 4, "expected a score, a number; got 'nan'"),
        ((BARS, f"2 ||| -1 ||| {A}"), 2, "expected sentence 1"),
        ((BARS, f"1 ||| {A}"), 2, "expected 'N INDEX'"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(tmp_path, lines, line, problem):
    path = write(tmp_path / "n", lines)
    assert refusal(read_nbest, path).startswith(f"{path}: line {line}: {problem}")


def test_an_empty_file(tmp_path):
    path = write(tmp_path / "n", ["", " "])
    assert f"{path}: expected n-best lists" in refusal(read_nbest, path)


@pytest.mark.parametrize(
    "lines, line",
    [
        (("1 0", TAB, "1 1", "-5\t(())"), 4),
        (("1 0", TAB, "1 1", "\t()"), 4),
        (("1 0", TAB, "1 1", "-inf\t-inf\t-5\t(())"), 4),
        (("1 0", TAB, "0 1"), 3),
        ((BARS, "1 ||| nan ||| (())"), 2),
    ],
)
def test_a_failed_parse_may_have_any_score(tmp_path, lines, line):
    path = write(tmp_path / "n", lines)
    (first,), (failed,) = parse_lists(path, read_nbest(path))
    assert bracketed(first[1]) == A
    assert failed[1] == EMPTY and failed[0].line == line and math.isfinite(failed[0].score)
