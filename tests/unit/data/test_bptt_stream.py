import numpy as np
import pytest
import torch
from conftest import assert_refused
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc import registration  # noqa: F401
from fairseq_doc.data.bptt_stream import (
    BpttWindows,
    TokenStream,
    column_offsets,
    columns_of,
    draw_lengths,
    endless_columns,
    fixed_lengths,
    load_stream,
)

from ..conftest import small_dictionary, write_split


def numbered(n):
    """A stream whose every token is its own position."""
    return TokenStream(torch.arange(n), "train")


@given(st.integers(2, 500), st.integers(0, 40))
def test_columns_are_equal_consecutive_parts(n, n_columns):
    if 2 * n_columns > n or n_columns == 0:
        problem = f"{n} tokens: expected 1 to {n // 2} columns of at least 2 .* got {n_columns}"
        assert_refused(problem, columns_of, numbered(n), n_columns)
    else:
        length = n // n_columns
        expected = [list(range(c * length, (c + 1) * length)) for c in range(n_columns)]
        assert columns_of(numbered(n), n_columns).tolist() == expected


@given(
    st.integers(1, 3000),
    st.integers(1, 120),
    st.integers(0, 40),
    st.integers(0, 99),
    st.integers(1, 9),
)
def test_drawn_lengths_follow_from_seed_and_epoch(steps, bptt, delta, seed, epoch):
    lengths = draw_lengths(steps, bptt, delta, seed, epoch)
    assert sum(lengths) >= steps > sum(lengths[:-1])
    assert all(min(5, bptt + delta) <= length <= bptt + delta for length in lengths)
    np.random.seed(seed + 1)
    torch.manual_seed(epoch + 1)
    assert draw_lengths(2 * steps, bptt, delta, seed, epoch)[: len(lengths)] == lengths


def test_distribution_of_drawn_lengths():
    """Base 70, or 35 with probability 0.05; int(normal(base, 5)) is half a step below on average."""
    lengths = np.array(draw_lengths(70 * 20_000, 70, 40, 1, 1))
    short = lengths < 52.5  # 3.5 deviations from either base
    n = len(lengths)
    assert abs(short.sum() - 0.05 * n) < 5 * (n * 0.05 * 0.95) ** 0.5
    for part, base in ((lengths[short], 35), (lengths[~short], 70)):
        assert abs(part.mean() - (base - 0.5)) < 5 * 5 / len(part) ** 0.5
        assert abs(part.std() - 5) < 0.3


@given(
    n=st.integers(2, 1500),
    n_columns=st.integers(1, 12),
    bptt=st.integers(1, 80),
    seed=st.integers(0, 99),
    drawn=st.booleans(),
    rotated=st.booleans(),
)
def test_windows_read_every_token_of_their_columns_once_in_order(
    n, n_columns, bptt, seed, drawn, rotated
):
    """From the first on, or rotated: then the seam of a column is the only changed context."""
    n_columns = min(n_columns, n // 2)
    columns = columns_of(numbered(n), n_columns)
    steps = columns.size(1) - 1
    lengths = draw_lengths(steps, bptt, 10, seed, 1) if drawn else fixed_lengths(steps, bptt)
    assert sum(lengths) >= steps > sum(lengths[:-1]) and (drawn or set(lengths) == {bptt})
    offsets = column_offsets(n_columns, steps + 1, seed, epoch=1) if rotated else None
    windows = BpttWindows(columns, lengths, offsets=offsets)
    samples = [windows[i] for i in range(len(windows))]
    sources = torch.cat([s["net_input"]["src_tokens"] for s in samples], dim=1)
    read = torch.cat([sources[:, :1], *(s["target"] for s in samples)], dim=1)  # (C, L)
    assert torch.equal(sources, read[:, :-1])
    assert sum(s["ntokens"] for s in samples) == n_columns * steps
    starts = offsets.tolist() if rotated else [0] * n_columns
    for found, column, start in zip(read, columns, starts, strict=True):
        assert 0 <= start <= steps
        assert found.tolist() == [*column[start:].tolist(), *column[:start].tolist()]


def test_offsets_are_uniform_independent_and_follow_from_seed_and_epoch():
    one = column_offsets(40_000, 8, seed=1, epoch=1)
    counts = torch.bincount(one, minlength=8).double()
    assert (counts / 5000 - 1).abs().max() < 0.06  # 4 standard deviations of a uniform count
    assert torch.equal(one, column_offsets(40_000, 8, seed=1, epoch=1))
    for seed, epoch in ((2, 1), (1, 2)):
        equal = (one == column_offsets(40_000, 8, seed=seed, epoch=epoch)).double().mean()
        assert abs(equal - 1 / 8) < 0.01


def test_a_window_is_a_whole_fairseq_batch():
    windows = BpttWindows(torch.arange(22).view(2, 11), [4, 4, 4], first_column=6)
    sample = windows[1]
    assert sample["net_input"]["src_tokens"].tolist() == [[4, 5, 6, 7], [15, 16, 17, 18]]
    assert sample["target"].tolist() == [[5, 6, 7, 8], [16, 17, 18, 19]]
    assert sample["net_input"]["src_lengths"].tolist() == [4, 4]
    assert sample["net_input"]["window"] == 1
    assert (sample["ntokens"], sample["nsentences"], sample["drawn_length"]) == (8, 2, 4)
    assert sample["id"].tolist() == [8, 9]


@pytest.mark.parametrize("n_columns", [1, 3])
def test_a_window_holds_no_more_memory_than_its_tokens(n_columns):
    """A data worker copies the whole storage of each tensor into shared memory."""
    windows = BpttWindows(torch.arange(3000).view(n_columns, -1), fixed_lengths(3000, 10))
    sample = windows[1]
    for tokens in (sample["net_input"]["src_tokens"], sample["target"]):
        assert tokens.untyped_storage().nbytes() == 8 * 10 * n_columns


def lines_of(*lengths):
    """A stream whose lines have these lengths; each token is its position + 4, the end marks are 2."""
    tokens = 4 + torch.arange(sum(lengths))
    tokens[torch.tensor(lengths).cumsum(0) - 1] = 2
    return TokenStream(tokens, "train")


@given(
    n_columns=st.integers(1, 9),
    first=st.integers(0, 500),
    steps=st.integers(1, 400),
    seed=st.integers(0, 99),
    n_lines=st.integers(1, 40),
)
def test_endless_columns_read_the_stream_round_and_round(n_columns, first, steps, seed, n_lines):
    stream = lines_of(*([3, 5, 2, 7] * 10)[:n_lines], 6)
    n_columns, n = min(n_columns, len(stream)), len(stream)
    columns = endless_columns(stream, n_columns, 0, first + steps, seed, 2)
    assert columns.shape == (n_columns, first + steps + 1)
    part = endless_columns(stream, n_columns, first, steps, seed, 2)
    assert torch.equal(part, columns[:, first:])
    positions = {int(token): n for n, token in enumerate(stream.tokens) if token != 2}
    for column in columns.tolist():
        at = next(positions[token] - k for k, token in enumerate(column) if token != 2)
        assert column == [int(stream.tokens[(at + k) % n]) for k in range(len(column))]
        if n_lines + 1 >= n_columns:
            assert stream.tokens[(at - 1) % n] == 2  # it starts at a line


def test_endless_columns_start_far_from_one_another():
    """1,000 lines of 10: 4 columns start 250 lines apart, each moved by up to 100."""
    stream = lines_of(*[10] * 1000)
    seen = set()
    for seed in range(20):
        starts = (endless_columns(stream, 4, 0, 1, seed, 2)[:, 0] - 4) // 10
        gaps = (starts.roll(-1) - starts) % 1000
        assert gaps.sum() == 1000 and gaps.min() >= 50 and gaps.max() <= 450
        seen |= set(starts.tolist())
    assert len(seen) > 60


def test_lines_of_one_file_or_of_several_are_one_stream(tmp_path):
    path = write_split(tmp_path, "train", [[5, 6, 2], [7, 2]])
    write_split(tmp_path, "train1", [[8, 9, 9, 2]])
    stream = load_stream(path, "train", small_dictionary())
    assert stream.tokens.tolist() == [5, 6, 2, 7, 2] and stream.tokens.dtype == torch.int64
    assert (len(stream), stream.split, stream.tokens[3]) == (5, "train", 7)
    both = load_stream(path, "train", small_dictionary(), combine=True)
    assert both.tokens.tolist() == [5, 6, 2, 7, 2, 8, 9, 9, 2]


@pytest.mark.parametrize(
    "lines, problem",
    [
        (None, "no binarised split 'valid'.*fairseq-preprocess"),
        ([], r"valid\.bin is empty"),
        ([[2]], "is empty: expected at least 2 tokens, got 1"),
        ([[5, 1, 2]], "has the padding symbol '<pad>'"),
    ],
)
def test_streams_that_cannot_be_scored(tmp_path, lines, problem):
    if lines is not None:
        write_split(tmp_path, "valid", lines, n_words=30)
    assert_refused(problem, load_stream, f"{tmp_path}/valid", "valid", small_dictionary(20))
