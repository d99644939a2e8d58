"""fairseq-generate's output -> one record a sentence.

::

    S-3<TAB>words                 the source
    T-3<TAB>words                 the target, where the split has one
    H-3<TAB>score<TAB>words       a hypothesis, after --remove-bpe
    D-3<TAB>score<TAB>text        the same after --bpe and --tokenizer; not in older versions
    P-3<TAB>number number ...     its log2 P, one number a token and one for the end of sentence

H, D and P are repeated for each hypothesis of ``--nbest``, the best first. Sentences come in any
order. Every other line, such as logging, is ignored.
"""

import re
from dataclasses import dataclass

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import text_lines

_LINE = re.compile(r"([STHDP])-(\d+)\t(.*)", re.DOTALL)
MAX_DIGITS = 18  # of a sentence's number
_REPEATED = "HDP"  # kinds of lines that --nbest repeats
_Found = dict[str, dict[int, list[tuple[int, str]]]]  # kind: {sentence: [(line, text)]}


@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis.

    Attributes:
        line: number of its H- line (of its D- line in a file without H-).
        words: of its H- line (of its D- line in a file without H-).
        text: of its D- line (of its H- line in a file without D-).
        log2_probs: of its P- line; None in a file without P-.
    """

    line: int
    words: str
    text: str
    log2_probs: tuple[float, ...] | None = None


@dataclass(frozen=True)
class GeneratedSentence:
    """What fairseq-generate wrote about one sentence.

    Attributes:
        hypotheses: at least one, the best first.
        source, target: as they were binarised; None in a file without S- or T- lines.
    """

    hypotheses: tuple[Hypothesis, ...]
    source: str | None = None
    target: str | None = None


def read_generated(path: str) -> list[GeneratedSentence]:
    """Read fairseq-generate's standard output, or its file under ``--results-path``.

    Returns:
        The sentences in the order of their ids.

    Raises:
        FairseqDocError: no hypotheses, a missing or repeated sentence, a damaged line. The message
            names the file, and the line where there is one.
    """
    found = _read_lines(path)
    if not found["H"] and not found["D"]:
        raise FairseqDocError(
            f"{path}: expected fairseq-generate's output, with H- and D- lines; got none (--quiet "
            "leaves them out)"
        )
    _check_complete(found, path)
    return [_sentence(found, number, path) for number in range(len(found["H"] or found["D"]))]


def _read_lines(path: str) -> _Found:
    """The lines by kind and sentence, without the scores of H- and D-."""
    found: _Found = {kind: {} for kind in "STHDP"}
    latest: dict[str, int] = {}  # sentence of each kind's last line
    for number, line in enumerate(text_lines(path), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        if len(match[2]) > MAX_DIGITS:
            raise FairseqDocError(
                f"{path}: line {number}: expected the number of a sentence; got one of "
                f"{len(match[2]):,} digits; generate again"
            )
        kind, sentence, text = match[1], int(match[2]), match[3]
        if "\r" in text:
            raise FairseqDocError(
                f"{path}: line {number} is mixed with a progress bar; generate again with "
                "--results-path, or with standard error in another file"
            )
        if kind in "HD":
            _, tab, text = text.partition("\t")
            if not tab:
                raise FairseqDocError(f"{path}: line {number} is cut off; generate again")
        rows = found[kind].setdefault(sentence, [])
        of_nbest = kind in _REPEATED and latest.get(kind) == sentence
        if rows and not of_nbest:
            raise FairseqDocError(
                f"{path}: sentence {sentence} is there twice, again in line {number}; expected the "
                "output of one run"
            )
        rows.append((number, text))
        latest[kind] = sentence
    return found


def _check_complete(found: _Found, path: str) -> None:
    """Raise ``FairseqDocError`` unless every sentence up to the highest id has the same kinds of
    lines."""
    count = max(number for rows in found.values() for number in rows) + 1
    with_hypotheses = found["H"] or found["D"]
    missing = count - len(with_hypotheses)
    if missing:
        first = next(number for number in range(count) if number not in with_hypotheses)
        raise FairseqDocError(
            f"{path}: {missing:,} of {count:,} sentences are missing, the first is {first}; "
            "generate again, with --required-batch-size-multiple 1 (fairseq's default of 8 can "
            "leave out the last sentences) and, instead of "
            "--skip-invalid-size-inputs-valid-test, --max-source-positions for the longest"
        )
    for kind in "ST":
        if found[kind] and len(found[kind]) < count:
            raise FairseqDocError(
                f"{path}: expected a line {kind}- for each of {count:,} sentences; got "
                f"{len(found[kind]):,}"
            )
    kinds = [kind for kind in _REPEATED if found[kind]]
    for number in range(count):
        counts = [len(found[kind].get(number, ())) for kind in kinds]
        if len(set(counts)) > 1:
            line = with_hypotheses[number][0][0]
            shown = ", ".join(f"{n} {kind}-" for n, kind in zip(counts, kinds, strict=True))
            raise FairseqDocError(
                f"{path}: sentence {number} (line {line}) is cut off: expected as many lines of "
                f"each kind; got {shown}; generate again"
            )


def _sentence(found: _Found, number: int, path: str) -> GeneratedSentence:
    """The record of a sentence whose lines are complete."""
    hypotheses = []
    with_words, with_text = found["H"] or found["D"], found["D"] or found["H"]
    for place, (line, words) in enumerate(with_words[number]):
        log2_probs = None
        if found["P"]:
            log2_probs = _numbers(path, *found["P"][number][place])
        text = with_text[number][place][1]
        hypotheses.append(Hypothesis(line, words, text, log2_probs))
    source, target = (found[kind][number][0][1] if found[kind] else None for kind in ("S", "T"))
    return GeneratedSentence(tuple(hypotheses), source, target)


def _numbers(path: str, line: int, text: str) -> tuple[float, ...]:
    """The numbers of a P- line."""
    try:
        return tuple(map(float, text.split()))
    except ValueError:
        raise FairseqDocError(
            f"{path}: line {line} is damaged: expected numbers; got {shown(text)}; generate again"
        ) from None
