"""Minimal pairs: two sentences, of which a language model should find the first likelier."""

import contextlib
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.scoring import MAX_TOKENS, score_text
from fairseq_doc.files import table_lines

GOOD, BAD = "sentence_good", "sentence_bad"  # BLiMP's keys (Warstadt et al., 2020)
HEADER = {GOOD: GOOD, BAD: BAD, "good": GOOD, "bad": BAD}
KIND, PHENOMENON = "UID", "linguistics_term"
# Two sums of float32 log-probabilities that differ by less, relatively, are equal: a batch of
# another size (--max-tokens) rounds its matrix products differently.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Pair:
    """A pair of sentences, with the kind and the phenomenon that it belongs to."""

    good: str
    bad: str
    kind: str
    phenomenon: str


def read_pairs(path: str) -> list[Pair]:
    """Read BLiMP's JSON lines, or lines of two sentences with a tab between them. There the good
    one comes first, unless the first line is a header: ``sentence_good`` and ``sentence_bad``, or
    ``good`` and ``bad``, in the order of the columns. The kind is by default the file's name, the
    phenomenon the kind. Raises ``FairseqDocError`` for a line that is not a pair, with its number,
    and for a file without pairs."""
    name, columns, pairs = Path(path).stem, [GOOD, BAD], []
    for number, line in enumerate(table_lines(path), start=1):
        titles = [HEADER.get(cell.strip().lower(), "") for cell in line.split("\t")]
        if number == 1 and sorted(titles) == sorted(columns):
            columns = titles
            continue
        found: dict[str, Any] = {}
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                found = json.loads(line)
        elif line.count("\t") == 1:
            found = dict(zip(columns, line.split("\t"), strict=True))
        texts = found.get(GOOD), found.get(BAD)
        if not all(isinstance(text, str) and text.strip() and _is_text(text) for text in texts):
            raise FairseqDocError(
                f"{path}: line {number}: expected {GOOD} and {BAD} in a JSON object, or two "
                f"sentences with a tab between; got {shown(line)}"
            )
        kind = str(found.get(KIND) or name)
        pairs.append(Pair(found[GOOD], found[BAD], kind, str(found.get(PHENOMENON) or kind)))
    if not pairs:
        raise FairseqDocError(f"{path}: expected pairs of sentences, one per line; got none")
    return pairs


def _is_text(text: str) -> bool:
    """Whether a string has no lone surrogate, which JSON can spell."""
    return text.encode(errors="ignore").decode() == text


def judge(
    ensemble: Ensemble,
    pairs: Sequence[Pair],
    max_tokens: int = MAX_TOKENS,
) -> dict[str, Any]:
    """Score both sentences of each pair, each with its end mark and from a state of zeros. A pair
    is right if the good sentence has the larger probability; a tie, scores equal up to
    ``ROUNDING``, is wrong. Returns the :func:`accuracy` on ``all`` pairs; {name: accuracy} for the
    ``phenomena`` and for the ``kinds``; and the number of ``ties``."""
    dictionary = ensemble.dictionary
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad)))
    tokenized = [ensemble.form.sentence(text) for text in texts]
    scored = score_text(ensemble, tokenized, max_tokens=max_tokens)
    log_prob = {text: one.log_prob for text, one in zip(texts, scored, strict=True)}
    read = zip(texts, tokenized, strict=True)
    unknown = {text for text, words in read if dictionary.unk() in map(dictionary.index, words)}
    rows, ties = [], 0
    for pair in pairs:
        good, bad = log_prob[pair.good], log_prob[pair.bad]
        is_tie = math.isclose(good, bad, rel_tol=ROUNDING)
        ties += is_tie
        rows.append((good > bad and not is_tie, pair.good in unknown or pair.bad in unknown))
    return {
        "all": accuracy(rows),
        "phenomena": _by_name([pair.phenomenon for pair in pairs], rows),
        "kinds": _by_name([pair.kind for pair in pairs], rows),
        "ties": ties,
    }


def _by_name(names: Sequence[str], rows: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    groups = defaultdict(list)
    for name, row in zip(names, rows, strict=True):
        groups[name].append(row)
    return {name: accuracy(own) for name, own in sorted(groups.items())}


def accuracy(rows: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    """From one row per pair, whether it is right and whether it has an unknown word: the number of
    ``pairs``, ``accuracy`` in percent, and ``low`` and ``high``, its 95 % interval (Wilson, 1927);
    the same for the pairs without unknown words, ``known``, and with them, ``unknown``, each None
    if there are none."""
    known = [right for right, is_unknown in rows if not is_unknown]
    unknown = [right for right, is_unknown in rows if is_unknown]
    return {**(_share(known + unknown) or {}), "known": _share(known), "unknown": _share(unknown)}


def _share(right: Sequence[bool]) -> dict[str, Any] | None:
    if not right:
        return None
    low, high = binomtest(sum(right), len(right)).proportion_ci(method="wilson")
    share = 100 * sum(right) / len(right)
    return {"pairs": len(right), "accuracy": share, "low": 100 * low, "high": 100 * high}
