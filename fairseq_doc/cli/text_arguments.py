"""What the commands that read plain text share: options, reading and reports."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fairseq_doc.errors import shown
from fairseq_doc.evaluation.scoring import MAX_TOKENS, MAX_WORDS, STATES, check_sentences
from fairseq_doc.files import text_lines
from fairseq_doc.options import option, positive
from fairseq_doc.preparation.byte_tokens import BYTE
from fairseq_doc.preparation.text_form import TextForm, form_of

SHOWN = 10  # unknown words listed on standard error


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Options of all these commands."""

    input: str = option("file to read (default: standard input)", "-")
    state: str = option(
        "fresh: each sentence starts after </s> from zeros; carried: the lines are one text, as "
        "eval-lm reads it, and its first word is not scored",
        STATES[0],
        choices=STATES,
    )
    empty_lines: bool = option("score the end mark of an empty line (default: an error)", False)
    max_words: int = option("most words, or bytes, of a line", MAX_WORDS, type=positive)
    max_tokens: int = option(
        "tokens scored at once; changes memory and speed, not results", MAX_TOKENS, type=positive
    )

    def read(self, data: str) -> tuple[list[str], TextForm]:
        """The lines, and how text becomes tokens in the folder ``data``."""
        form = form_of(data)
        errors = "surrogateescape" if form.unit == BYTE else "strict"
        return list(text_lines(self.input, errors=errors)), form

    def sentences(self, lines: Sequence[str], form: TextForm) -> list[list[str]]:
        """The tokens of each line."""
        at = "" if self.input == "-" else f"{self.input}: "
        return check_sentences(lines, self.state, self.empty_lines, self.max_words, at, form)


def unknown_words(unknown: Counter[str], unit: str) -> str:
    """A line about words outside the dictionary, the most frequent first."""
    words = [word if len(word) < 80 else shown(word) for word, _ in unknown.most_common(SHOWN)]
    if len(unknown) > SHOWN:
        words.append("...")
    return (
        f"{unit}s outside the dictionary, scored as <unk>: {unknown.total():,}, of "
        f"{len(unknown):,} types: {', '.join(words)}"
    )
