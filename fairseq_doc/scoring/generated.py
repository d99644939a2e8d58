"""Reads the output of fairseq-generate into one record per sentence.

::

    S-3<TAB>words                 the source
    T-3<TAB>words                 the target, if the split has one
    H-3<TAB>score<TAB>words       a hypothesis, after --remove-bpe
    D-3<TAB>score<TAB>text        the same after --bpe and --tokenizer; not in older versions
    P-3<TAB>number number ...     log2 P of each of its tokens and of the end of sentence

H, D and P lines are repeated for each hypothesis of ``--nbest``, the best first. Sentences may be in
any order. Other lines, such as logging, are ignored.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import table_lines

LINE = re.compile(r"([STHDP])-(\d+)\t(.*)", re.DOTALL)  # lines that are read
_REPEATED = "HDP"  # kinds of lines that --nbest repeats
_Rows = dict[str, dict[int, list[tuple[int, str]]]]  # kind: {sentence: [(line, text)]}


@dataclass(frozen=True)
class Hypothesis:
    """``words`` and ``text`` from the H- and D- lines (equal if the file has only one of them), the
    number of the H- line, and ``log2_probs`` from the P- line (None without P- lines)."""

    line: int
    words: str
    text: str
    log2_probs: tuple[float, ...] | None = None


@dataclass(frozen=True)
class GeneratedSentence:
    """At least one hypothesis, the best first; source and target as binarised, or None if the file
    has no S- or T- lines."""

    hypotheses: tuple[Hypothesis, ...]
    source: str | None = None
    target: str | None = None


def read_generated(path: str) -> list[GeneratedSentence]:
    """Read the output of fairseq-generate in the order of sentence ids. Raises ``FairseqDocError``
    for a missing, repeated or damaged sentence."""
    rows = _read_lines(path)
    count = _check_complete(rows, path)
    return [_sentence(rows, number, path) for number in range(count)]


def _read_lines(path: str) -> _Rows:
    """The lines by kind and sentence, without the scores of H- and D- lines."""
    rows: _Rows = {kind: {} for kind in "STHDP"}
    latest: dict[str, int] = {}  # {kind: sentence of the last line}
    for number, line in enumerate(table_lines(path), start=1):
        match = LINE.fullmatch(line)
        if match is None:
            continue
        kind, digits, text = match.groups()
        if "\r" in text:
            problem = (
                "is mixed with a progress bar: give --results-path, or another file for stderr"
            )
            raise _damaged(path, number, problem)
        if kind in "HD":
            _, tab, text = text.partition("\t")
            if not tab:
                raise _damaged(path, number, "is cut off")
        sentence = int(digits)
        own = rows[kind].setdefault(sentence, [])
        if own and (kind not in _REPEATED or latest[kind] != sentence):
            raise FairseqDocError(
                f"{path}: line {number} repeats sentence {sentence}; expected the output of a single "
                "run"
            )
        own.append((number, text))
        latest[kind] = sentence
    return rows


def _damaged(path: str, line: int, problem: str) -> FairseqDocError:
    return FairseqDocError(
        f"{path}: line {line} {problem}; expected fairseq-generate's output: generate again"
    )


def _check_complete(rows: _Rows, path: str) -> int:
    """Check that every sentence has the same kinds of lines; returns the number of sentences."""
    hypotheses = rows["H"] or rows["D"]
    if not hypotheses:
        raise FairseqDocError(
            f"{path}: expected the output of fairseq-generate, with H- and D- lines; got none "
            "(--quiet leaves them out)"
        )
    count = max(number for by_sentence in rows.values() for number in by_sentence) + 1
    missing = count - len(hypotheses)
    if missing:
        first = next(number for number in range(count) if number not in hypotheses)
        raise FairseqDocError(
            f"{path}: {missing:,} of {count:,} sentences are missing, the first is {first}; "
            "generate again with --required-batch-size-multiple 1 (fairseq's default, 8, can leave "
            "out the last sentences) and, instead of --skip-invalid-size-inputs-valid-test, with "
            "--max-source-positions for the longest sentence"
        )
    for number in range(count):
        counts = {kind: len(own.get(number, ())) for kind, own in rows.items() if own}
        of_hypotheses = [counts[kind] for kind in _REPEATED if kind in counts]
        if 0 in counts.values() or len(set(of_hypotheses)) > 1:
            line = hypotheses[number][0][0]
            got = ", ".join(f"{n} {kind}-" for kind, n in counts.items())
            raise FairseqDocError(
                f"{path}: sentence {number} (line {line}) is cut off: expected the same lines as "
                f"for other sentences; got {got}; generate again"
            )
    return count


def _sentence(rows: _Rows, number: int, path: str) -> GeneratedSentence:
    words, texts = (rows["H"] or rows["D"])[number], (rows["D"] or rows["H"])[number]
    numbers: list[Any] = [None] * len(words)
    if rows["P"]:
        numbers = [_numbers(path, *row) for row in rows["P"][number]]
    hypotheses = tuple(
        Hypothesis(line, own_words, text, log2_probs)
        for (line, own_words), (_, text), log2_probs in zip(words, texts, numbers, strict=True)
    )
    source, target = (rows[kind][number][0][1] if rows[kind] else None for kind in "ST")
    return GeneratedSentence(hypotheses, source, target)


def _numbers(path: str, line: int, text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(map(float, text.split()))
        if all(number < math.inf for number in numbers):  # false for NaN, too
            return numbers
        raise ValueError
    except ValueError:
        raise _damaged(path, line, f"is damaged: expected numbers; got {shown(text)}") from None
