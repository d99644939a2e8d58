"""The corpus as one stream: columns, windows of random length, (source, target) batches.

A stream of n tokens is cut into C equal columns, the remainder is dropped, and each column is read
in windows: input w_s .. w_{s+len-1}, target w_{s+1} .. w_{s+len}. Every position of a column except
the first is a target once, which gives C (n // C - 1) targets. With partial shuffling (Press, 2019)
each column is first rotated by a random offset, so that in one place its end precedes its start.
To a model each column is a stream: the B streams of its axes are the columns of one worker.

Endless columns (Melis et al., 2018) start at different lines, and each reads the whole stream in a
loop.
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

TASK = "bptt_language_modeling"  # the task that reads streams
HALVING_PROBABILITY = 0.05
LENGTH_DEVIATION = 5
SHORTEST_DRAW = 5
PARTIAL_SHUFFLE = 1  # third seed of its random numbers; those of lengths depend on (seed, epoch)
LARGEST_SHIFT = 100  # maximal shift, in lines, of the start of an endless column


class TokenStream(FairseqDataset):
    """One split of a corpus, (n,) word indices; its length is the number of tokens."""

    def __init__(self, tokens: torch.Tensor, split: str) -> None:
        self.tokens = tokens
        self.split = split

    @functools.cache  # noqa: B019  # called in every epoch; a stream lives as long as its task
    def line_starts(self, end_mark: int) -> np.ndarray:
        """The sorted positions after each ``end_mark``; position 0 comes after the last token."""
        return np.sort((np.flatnonzero(self.tokens.numpy() == end_mark) + 1) % len(self.tokens))

    def __len__(self) -> int:
        return len(self.tokens)


def load_stream(
    path: str, split: str, dictionary: Dictionary, combine: bool = False
) -> TokenStream:
    """Read a binarised split (``fairseq-preprocess --only-source``). Raises ``FairseqDocError`` if
    it is missing, empty or has padding as a word; ``fairseq_patches/binarised_data.py`` checks the rest."""
    dataset: Any = data_utils.load_indexed_dataset(path, dictionary, combine=combine)
    if dataset is None:
        raise FairseqDocError(
            f"no binarised split {split!r} at {path}: expected {path}.bin and .idx; create them by "
            "fairseq-preprocess --only-source"
        )
    tokens = _tokens_of(dataset)
    if len(tokens) < 2:  # an input and its target
        raise FairseqDocError(
            f"split {split!r} at {path} is empty: expected at least 2 tokens, got {len(tokens)}"
        )
    if (tokens == dictionary.pad()).any():
        raise FairseqDocError(
            f"split {split!r} at {path} has the padding symbol {dictionary.pad_word!r} as a word, "
            "which fairseq would not score: rename it in the text"
        )
    return TokenStream(torch.from_numpy(tokens), split)


def _tokens_of(dataset: Any) -> np.ndarray:
    """The words of all lines, concatenated: (n,) int64."""
    if isinstance(dataset, MMapIndexedDataset):
        # Opening has checked that the file holds nothing else. Reading a corpus of bytes line by
        # line would take 4 times the memory and much longer.
        return np.frombuffer(dataset._bin_buffer, dataset._index.dtype).astype(np.int64)
    if dataset.supports_prefetch:  # fairseq-preprocess --dataset-impl cached
        dataset.prefetch(range(len(dataset)))
    lines = [dataset[i].numpy() for i in range(len(dataset))]
    return np.concatenate([np.empty(0, dtype=np.int64), *lines])


def draw_lengths(steps: int, bptt: int, max_delta: int, seed: int, epoch: int) -> list[int]:
    """Lengths of random windows that cover ``steps``; the last window may be shorter.

    A length is max(5, int(normal(base, 5))) and at most ``bptt + max_delta``, where base is ``bptt``
    or, with probability 0.05, half of it. The random numbers depend only on (seed, epoch).
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
    """Lengths of equal windows that cover ``steps``; the last window may be shorter."""
    return [length] * math.ceil(steps / length)


def columns_of(stream: TokenStream, n_columns: int) -> torch.Tensor:
    """(n,) tokens -> (C, n // C), one column per row. Raises ``FairseqDocError`` if a column would
    have fewer than two tokens, so no target."""
    most = len(stream) // 2
    if not 1 <= n_columns <= most:
        raise FairseqDocError(
            f"split {stream.split!r} with {len(stream)} tokens: expected 1 to {most} columns of at "
            f"least 2 tokens; got {n_columns}; give another batch_size (or batch_size_valid)",
            "batch_size",
            "batch_size_valid",
        )
    length = len(stream) // n_columns
    return stream.tokens[: length * n_columns].view(n_columns, length)


def column_offsets(n_columns: int, length: int, seed: int, epoch: int) -> torch.Tensor:
    """The number of tokens by which each column is rotated to the left in an epoch: (C,) uniform
    integers below ``length``, the same on all workers."""
    rng = np.random.default_rng((seed, epoch, PARTIAL_SHUFFLE))
    return torch.from_numpy(rng.integers(length, size=n_columns))


def endless_columns(
    stream: TokenStream, n_columns: int, first_step: int, steps: int, seed: int, end_mark: int
) -> torch.Tensor:
    """Tokens ``first_step`` .. ``first_step + steps`` of C = ``n_columns`` endless columns,
    (C, steps + 1): the inputs, and one more for the last target.

    The columns start at equally spaced lines from a random line on, each shifted at random by up to
    100 lines, but not past its neighbour (deepmind/lamb). If there are fewer lines than columns,
    tokens are used instead of lines. The random numbers depend only on ``seed``, so a column keeps
    its start; lamb draws new ones for every pass.
    """
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
    """Windows over some columns; item i is window i, which is a whole batch for fairseq."""

    columns: torch.Tensor  # (B, L) tokens, this worker's columns
    lengths: list[int]  # of the windows; their sum is at least L - 1
    first_column: int = 0  # index of the first column among those of all workers
    first_window: int = 0  # number of window 0; above 0 if columns go on from an earlier epoch
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
        """A batch: ``net_input.src_tokens`` (B, T); ``target`` (B, T), one step later;
        ``net_input.window``, the number of the window in the epoch or since the start of the
        columns; ``drawn_length``, its length before it was shortened. The tokens are copies, since
        a data worker that sent a view would copy all columns into shared memory."""
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
                "src_tokens": tokens[:, :-1].clone(),
                "src_lengths": torch.full((batch,), stop - start),
                "window": self.first_window + index,
            },
            "target": tokens[:, 1:].clone(),
            "drawn_length": self.lengths[index],
        }
