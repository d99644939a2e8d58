"""The corpus as one stream: columns, windows of random length, (source, target) batches.

A stream of n tokens is cut into C equal columns, what is left over is dropped, and each column is
read in windows: input w_s .. w_{s+len-1}, target w_{s+1} .. w_{s+len}. Every position of a column
except its first is a target once, C (n // C - 1) targets in all. With partial shuffling
(Press, 2019) each column is rotated by a random offset first; its seam is one wrong context.

Endless columns (Melis et al., 2018) start at lines of their own; each reads the whole stream round
and round.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset, data_utils
from fairseq.data.indexed_dataset import MMapIndexedDataset

from fairseq_doc.errors import FairseqDocError

TASK = "bptt_language_modeling"  # the task that reads a stream in this way
HALVING_PROBABILITY = 0.05
LENGTH_DEVIATION = 5
SHORTEST_DRAW = 5
PARTIAL_SHUFFLE = 1  # keeps its random numbers apart from the lengths', which (seed, epoch) give
LARGEST_SHIFT = 100  # lines by which the start of an endless column is moved at most


class TokenStream(FairseqDataset):
    """One split of a corpus, (n,) word indices; its length is in tokens."""

    def __init__(self, tokens: torch.Tensor, split: str) -> None:
        self.tokens = tokens
        self.split = split

    @functools.cache  # noqa: B019  # asked for every epoch; a stream lasts as long as its task
    def line_starts(self, end_mark: int) -> np.ndarray:
        """The sorted positions after every ``end_mark``; the one after the last token is 0."""
        return np.sort((np.flatnonzero(self.tokens.numpy() == end_mark) + 1) % len(self.tokens))

    def __len__(self) -> int:
        return len(self.tokens)


def load_stream(
    path: str, split: str, dictionary: Dictionary, combine: bool = False
) -> TokenStream:
    """Read a binarised split (``fairseq-preprocess --only-source``); ``FairseqDocError`` for a
    missing or damaged one, or words outside ``dictionary``, and for an empty one, which
    ``fairseq_patches/binarised_data.py`` refuses."""
    dataset: Any = data_utils.load_indexed_dataset(path, dictionary, combine=combine)
    if dataset is None:
        raise FairseqDocError(
            f"no binarised split {split!r} at {path}: expected {path}.bin and .idx; make them with "
            "fairseq-preprocess --only-source"
        )
    tokens = _tokens_of(dataset)
    if len(tokens) < 2:  # an input and its target
        raise FairseqDocError(
            f"split {split!r} at {path} is empty: expected at least 2 tokens, got {len(tokens)}"
        )
    if tokens.min() < 0 or tokens.max() >= len(dictionary):  # of a form that is not mapped
        raise FairseqDocError(
            f"split {split!r} at {path} was binarised with another dictionary, or is damaged: it "
            f"holds words from {tokens.min()} to {tokens.max()}, and the dictionary has "
            f"{len(dictionary)}"
        )
    if (tokens == dictionary.pad()).any():
        raise FairseqDocError(
            f"split {split!r} at {path} holds the padding symbol {dictionary.pad_word!r} as a "
            "word, which fairseq would leave unscored: rename it in the text"
        )
    return TokenStream(torch.from_numpy(tokens), split)


def _tokens_of(dataset: Any) -> np.ndarray:
    """(n,) int64, the words of all lines, one line after another."""
    if isinstance(dataset, MMapIndexedDataset):
        # The file holds nothing else, as was checked on opening. Line by line, a corpus of bytes
        # would take 4 times its memory and many times as long.
        return np.frombuffer(dataset._bin_buffer, dataset._index.dtype).astype(np.int64)
    if dataset.supports_prefetch:  # fairseq-preprocess --dataset-impl cached
        dataset.prefetch(range(len(dataset)))
    lines = [dataset[i].numpy() for i in range(len(dataset))]
    return np.concatenate([np.empty(0, dtype=np.int64), *lines])


def draw_lengths(steps: int, bptt: int, max_delta: int, seed: int, epoch: int) -> list[int]:
    """Lengths of random windows that cover ``steps``; the last window may be cut shorter.

    A length is max(5, int(normal(base, 5))), at most ``bptt + max_delta``, with base = ``bptt``,
    halved with probability .05. The random numbers depend on (seed, epoch) alone.
    """
    rng = np.random.default_rng((seed, epoch))
    lengths: list[int] = []
    covered = 0
    while covered < steps:
        base = bptt / 2 if rng.random() < HALVING_PROBABILITY else bptt
        length = max(SHORTEST_DRAW, int(rng.normal(base, LENGTH_DEVIATION)))
        lengths.append(min(length, bptt + max_delta))
        covered += lengths[-1]
    return lengths


def fixed_lengths(steps: int, length: int) -> list[int]:
    """Lengths of equal windows that cover ``steps``; the last window may be cut shorter."""
    return [length] * math.ceil(steps / length)


def columns_of(stream: TokenStream, n_columns: int) -> torch.Tensor:
    """(n,) tokens -> (C, n // C), one stream a row. ``FairseqDocError`` if a column has fewer than
    two tokens, which leaves no target."""
    _check_columns(stream, n_columns, 2)
    length = len(stream) // n_columns
    return stream.tokens[: length * n_columns].view(n_columns, length)


def _check_columns(stream, n_columns, tokens_each):
    most = len(stream) // tokens_each
    if not 1 <= n_columns <= most:
        raise FairseqDocError(
            f"{n_columns} columns over the {len(stream)} tokens of split {stream.split!r}: expected "
            f"1 to {most}, with at least {tokens_each} a column; give another batch_size (or "
            "batch_size_valid)",
            "batch_size",
            "batch_size_valid",
        )


def column_offsets(n_columns: int, length: int, seed: int, epoch: int) -> torch.Tensor:
    """By how many tokens each column is rotated to the left in an epoch: (C,) uniform integers
    below ``length``, equal for all workers."""
    rng = np.random.default_rng((seed, epoch, PARTIAL_SHUFFLE))
    return torch.from_numpy(rng.integers(length, size=n_columns))


def endless_columns(
    stream: TokenStream, n_columns: int, first_step: int, steps: int, seed: int, end_mark: int
) -> torch.Tensor:
    """Tokens ``first_step`` .. ``first_step + steps`` of C = ``n_columns`` endless columns,
    (C, steps + 1), one more than targets. ``FairseqDocError`` if there are more columns than
    tokens.

    The columns start at equally distant lines, counted from a random line, each moved by up to 100
    lines, fewer if it would pass its neighbour (deepmind/lamb). With fewer lines than columns,
    tokens take the place of lines. The random numbers depend on ``seed`` alone, so a column keeps
    its start; lamb draws new ones for every pass.
    """
    _check_columns(stream, n_columns, 1)
    tokens, starts = stream.tokens, stream.line_starts(end_mark)
    if len(starts) < n_columns:
        starts = np.arange(len(tokens))
    rng = np.random.default_rng(seed)
    first = rng.integers(len(starts))
    largest = min(LARGEST_SHIFT, (len(starts) // n_columns - 1) // 2)
    shifts = rng.integers(-largest, largest + 1, n_columns)
    lines = (first + np.arange(n_columns) * len(starts) // n_columns + shifts) % len(starts)
    positions = starts[lines][:, None] + np.arange(first_step, first_step + steps + 1)
    return tokens[torch.from_numpy(positions % len(tokens))]


@dataclass(eq=False)
class BpttWindows(torch.utils.data.Dataset):
    """Windows over some columns; item i is window i as a whole fairseq batch."""

    columns: torch.Tensor  # (B, L) tokens, this worker's columns
    lengths: list[int]  # of the windows; their sum is at least L - 1
    first_column: int = 0  # index of the first of these columns among all workers'
    first_window: int = 0  # number of window 0; above 0 if columns go on from the last epoch
    offsets: torch.Tensor | None = None  # (B,), see ``column_offsets``; None: no rotation

    def __post_init__(self) -> None:
        self.starts = np.cumsum([0] + self.lengths[:-1])

    def share(self, workers: int, worker: int) -> "BpttWindows":
        """The same windows over one worker's columns: equal shares, side by side."""
        size = len(self.columns) // workers
        mine = slice(worker * size, (worker + 1) * size)
        offsets = None if self.offsets is None else self.offsets[mine]
        return BpttWindows(self.columns[mine], self.lengths, mine.start, self.first_window, offsets)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """``net_input.src_tokens`` (B, T) and ``target`` (B, T), one step later, are copies, since
        a data worker that sent a view would copy all columns into shared memory.
        ``net_input.window`` is the window's number in the epoch, or since the columns' start;
        ``drawn_length`` its length uncut."""
        batch, length = self.columns.shape
        start = int(self.starts[index])
        stop = min(start + self.lengths[index], length - 1)
        tokens = self.columns[:, start : stop + 1]
        if self.offsets is not None:
            steps = self.offsets.unsqueeze(1) + torch.arange(start, stop + 1)  # (B, T + 1)
            tokens = self.columns.gather(1, steps % length)
        columns = torch.arange(self.first_column, self.first_column + batch)
        return {
            "id": columns + index * batch,
            "nsentences": batch,
            "ntokens": batch * (stop - start),
            "net_input": {
                "src_tokens": _copy(tokens[:, :-1]),
                "src_lengths": torch.full((batch,), stop - start),
                "window": self.first_window + index,
            },
            "target": _copy(tokens[:, 1:]),
            "drawn_length": self.lengths[index],
        }


def _copy(tokens: torch.Tensor) -> torch.Tensor:
    return tokens.clone(memory_format=torch.contiguous_format)
