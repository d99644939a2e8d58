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

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import table_lines

LINE = re.compile(r"([STHDP])-(\d+)\t(.*)")  # lines that are read
_REPEATED = "HDP"  # kinds of lines that --nbest repeats
_Lines = dict[str, list[str]]  # {kind: texts}


@dataclass(frozen=True)
class GeneratedSentence:
    """n >= 1 hypotheses, the best first: ``words`` and ``texts`` from the H- and D- lines (equal if
    the file has only one of them) and ``log2_probs`` from the P- lines, empty without them. Source
    and target as binarised, or None if the file has no S- or T- lines."""

    words: list[str]  # (n,)
    texts: list[str]  # (n,)
    log2_probs: list[list[float]]  # (n,)
    source: str | None = None
    target: str | None = None

    @property
    def log_probs(self) -> list[float]:
        """ln P of each hypothesis, (n,)."""
        return [math.log(2) * sum(own) for own in self.log2_probs]


def read_generated(path: str) -> list[GeneratedSentence]:
    """Read the output of fairseq-generate in the order of sentence ids. Raises ``FairseqDocError``
    for a missing, repeated or damaged sentence."""
    sentences = _read_lines(path)
    complete = {number for number, own in sentences.items() if "H" in own or "D" in own}
    if not complete:
        raise FairseqDocError(
            f"{path}: expected the output of fairseq-generate, with H- and D- lines; got none "
            "(--quiet leaves them out)"
        )
    count = max(sentences) + 1
    if len(complete) < count:
        first = next(number for number in range(count) if number not in complete)
        raise FairseqDocError(
            f"{path}: {count - len(complete):,} of {count:,} sentences are missing, the first is "
            f"{first}; generate again with --required-batch-size-multiple 1 (fairseq's default, 8, "
            "can leave out the last sentences) and, instead of --skip-invalid-size-inputs-valid-test,"
            " with --max-source-positions for the longest sentence"
        )
    kinds = set().union(*sentences.values())
    return [_sentence(f"{path}: sentence {n}", sentences[n], kinds) for n in range(count)]


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
        own.append(text)
        latest[kind] = sentence
    return sentences


def _sentence(where: str, own: _Lines, kinds: Collection[str]) -> GeneratedSentence:
    words, texts = own.get("H") or own["D"], own.get("D") or own["H"]
    numbers = [list(map(float, text.split())) for text in own.get("P", [""] * len(words))]
    if own.keys() != kinds or not len(words) == len(texts) == len(numbers):
        got = ", ".join(f"{len(own.get(kind, ()))} {kind}-" for kind in sorted(kinds))
        raise FairseqDocError(
            f"{where} is cut off: expected the same lines as for other sentences; got {got}; generate "
            "again"
        )
    source, target = (own[kind][0] if kind in own else None for kind in "ST")
    sentence = GeneratedSentence(words, texts, numbers, source, target)
    if not all(log_prob < math.inf for log_prob in sentence.log_probs):  # false for NaN, too
        raise FairseqDocError(f"{where}: expected P- lines with finite numbers; generate again")
    return sentence
