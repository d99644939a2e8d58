"""Minimal pairs: two sentences, of which a language model should find the first likelier."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.progress import Progress, no_progress
from fairseq_doc.evaluation.scoring import MAX_TOKENS, score_text
from fairseq_doc.files import text_lines

GOOD, BAD = "sentence_good", "sentence_bad"  # BLiMP's keys (Warstadt et al., 2020)
KIND, PHENOMENON = "UID", "linguistics_term"
Z = 1.959964  # of a 95 % interval


@dataclass(frozen=True)
class Pair:
    """A pair of sentences, with the kind and the phenomenon that it belongs to."""

    good: str
    bad: str
    kind: str
    phenomenon: str


def read_pairs(path: str) -> list[Pair]:
    """Read BLiMP's JSON lines, or two sentences a line with a tab between, the good one first. A
    pair without a kind has the file's name as its kind; one without a phenomenon its kind.

    Raises:
        FairseqDocError: no pair, or a line that is none, with its number.
    """
    name, pairs = Path(path).stem, []
    for number, line in enumerate(text_lines(path), start=1):
        found: Any = None
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                pass
        elif line.count("\t") == 1:
            found = dict(zip((GOOD, BAD), line.split("\t"), strict=True))
        values: list[Any] = (
            [] if not isinstance(found, dict) else [found.get(key) for key in (GOOD, BAD)]
        )
        if len(values) != 2 or not all(isinstance(text, str) and text.strip() for text in values):
            raise FairseqDocError(
                f"{path}: line {number}: expected {GOOD} and {BAD} in a JSON object, or two "
                f"sentences with a tab between; got {shown(line)}"
            )
        kind = str(found.get(KIND, name))
        pairs.append(Pair(values[0], values[1], kind, str(found.get(PHENOMENON, kind))))
    if not pairs:
        raise FairseqDocError(f"{path}: expected pairs of sentences, one a line; got none")
    return pairs


def judge(
    ensemble: Ensemble,
    pairs: Sequence[Pair],
    max_tokens: int = MAX_TOKENS,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Score both sentences of each pair, each with its end mark and from a state of zeros. A pair
    is right if the good sentence has the larger probability; equal scores are wrong.

    Returns:
        ``all``, ``phenomena`` and ``kinds``: see :func:`accuracy`.
    """
    form, dictionary = ensemble.form, ensemble.dictionary
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad)))
    tokenized = [form.tokens(text) for text in texts]
    scored = score_text(ensemble, tokenized, max_tokens=max_tokens, progress=progress).sentences
    log_prob = {text: one.log_prob for text, one in zip(texts, scored, strict=True)}
    unk = dictionary.unk()
    unknown = {
        text
        for text, words in zip(texts, tokenized, strict=True)
        if any(dictionary.index(word) == unk for word in words)
    }
    rows = [
        (pair, log_prob[pair.good] > log_prob[pair.bad], bool({pair.good, pair.bad} & unknown))
        for pair in pairs
    ]
    groups: dict[str, dict[str, list[tuple[bool, bool]]]] = {
        "phenomena": defaultdict(list),
        "kinds": defaultdict(list),
    }
    for pair, right, is_unknown in rows:
        groups["phenomena"][pair.phenomenon].append((right, is_unknown))
        groups["kinds"][pair.kind].append((right, is_unknown))
    return {
        "all": accuracy((right, is_unknown) for _, right, is_unknown in rows),
        **{
            group: {name: accuracy(own) for name, own in sorted(named.items())}
            for group, named in groups.items()
        },
    }


def accuracy(judged: Iterable[tuple[bool, bool]]) -> dict[str, Any]:
    """Of pairs, each whether it is right and whether it has an unknown word: ``pairs``,
    ``accuracy`` in percent and ``low`` and ``high``, the 95 % interval of Wilson (1927); the same
    of those ``known``, without unknown words, and of the ``unknown`` ones, None where there are
    none."""
    rows = list(judged)
    found = _share([right for right, _ in rows])
    for name, wanted in (("known", False), ("unknown", True)):
        own = [right for right, is_unknown in rows if is_unknown == wanted]
        found[name] = _share(own) if own else None
    return found


def _share(right: Sequence[bool]) -> dict[str, Any]:
    n, share = len(right), sum(right) / len(right)
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return {
        "pairs": n,
        "accuracy": 100 * share,
        "low": 100 * max(0.0, middle - half),
        "high": 100 * min(1.0, middle + half),
    }
