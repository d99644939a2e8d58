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
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from itertools import repeat

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import table_lines

LINE = re.compile(r"([STHDP])-(\d+)\t(.*)", re.DOTALL)  # lines that are read
_REPEATED = "HDP"  # kinds of lines that --nbest repeats
_Lines = dict[str, list[tuple[int, str]]]  # {kind: [(number of the line, text)]}


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
    sentences = _read_lines(path)
    complete = [number for number, own in sentences.items() if "H" in own or "D" in own]
    if not complete:
        raise FairseqDocError(
            f"{path}: expected the output of fairseq-generate, with H- and D- lines; got none "
            "(--quiet leaves them out)"
        )
    count = max(sentences) + 1
    missing = count - len(complete)
    if missing:
        first = min(set(range(len(complete) + 1)).difference(complete))
        raise FairseqDocError(
            f"{path}: {missing:,} of {count:,} sentences are missing, the first is {first}; "
            "generate again with --required-batch-size-multiple 1 (fairseq's default, 8, can leave "
            "out the last sentences) and, instead of --skip-invalid-size-inputs-valid-test, with "
            "--max-source-positions for the longest sentence"
        )
    kinds = set().union(*sentences.values())
    return [_sentence(path, number, sentences[number], kinds) for number in range(count)]


def _read_lines(path: str) -> dict[int, _Lines]:
    """{sentence: its lines}, without the scores of H- and D- lines."""
    sentences: dict[int, _Lines] = defaultdict(dict)
    latest: dict[str, int] = {}  # {kind: sentence of the last line}
    for number, line in enumerate(table_lines(path), start=1):
        match = LINE.fullmatch(line)
        if match is None:
            continue
        kind, text, sentence = match[1], match[3], int(match[2])
        if kind in "HD":
            _, tab, text = text.partition("\t")
        if "\r" in text or (kind in "HD" and not tab):
            raise FairseqDocError(
                f"{path}: line {number} is cut off, or mixed with a progress bar: generate again "
                "with --results-path, or with another file for stderr"
            )
        own = sentences[sentence].setdefault(kind, [])
        if own and (kind not in _REPEATED or latest[kind] != sentence):
            raise FairseqDocError(
                f"{path}: line {number} repeats sentence {sentence}; expected the output of a single "
                "run"
            )
        own.append((number, text))
        latest[kind] = sentence
    return sentences


def _sentence(path: str, number: int, own: _Lines, kinds: Collection[str]) -> GeneratedSentence:
    words, texts = own.get("H") or own["D"], own.get("D") or own["H"]
    if own.keys() != kinds or len({len(own[kind]) for kind in _REPEATED if kind in own}) > 1:
        got = ", ".join(f"{len(own.get(kind, ()))} {kind}-" for kind in sorted(kinds))
        raise FairseqDocError(
            f"{path}: sentence {number} (line {words[0][0]}) is cut off: expected the same lines as "
            f"for other sentences; got {got}; generate again"
        )
    numbers = [_numbers(path, *row) for row in own["P"]] if "P" in own else repeat(None)
    hypotheses = tuple(
        Hypothesis(line, own_words, text, log2_probs)
        for (line, own_words), (_, text), log2_probs in zip(words, texts, numbers, strict=False)
    )
    source, target = (own[kind][0][1] if kind in own else None for kind in "ST")
    return GeneratedSentence(hypotheses, source, target)


def _numbers(path: str, line: int, text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(map(float, text.split()))
    except ValueError:
        numbers = (math.nan,)
    if not all(number < math.inf for number in numbers):  # false for NaN, too
        raise FairseqDocError(
            f"{path}: line {line} is damaged: expected numbers; got {shown(text)}; generate again"
        )
    return numbers
