"""Plain text <-> a language model's tokens, by what the data folder says of its preparation."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq.utils import split_paths

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.preparation.binarisation import load_dictionary
from fairseq_doc.preparation.byte_tokens import BYTE, WORD, text_of, tokens_of, unit_of
from fairseq_doc.preparation.stages import SETTINGS, read_settings
from fairseq_doc.preparation.tokenization import (
    BPE_KINDS,
    MODELS,
    TOKENIZERS,
    UNKNOWN,
    clean,
    make_segmenter,
    make_tokenizer,
    moses,
    without_bpe,
)

if TYPE_CHECKING:
    from fairseq.data import Dictionary

_UNKNOWN = re.compile(rf"(?:^|(?<=\s)){UNKNOWN}(?=\s|$)")


@dataclass(frozen=True)
class TextForm:
    """How text becomes tokens: its bytes, or words, which may be tokenised and cut into units."""

    unit: str = WORD
    tokenizer: str = "none"
    language: str = "en"
    bpe: str = "none"
    model: Path | None = None  # of the units

    @cached_property
    def words(self) -> Callable[[str], str]:
        """Line -> its words, with single blanks between them; ``<unk>`` stays."""
        if self.tokenizer == "none":
            return str
        tokenize = make_tokenizer(self.tokenizer, self.language)
        return _around_unknown(lambda line: tokenize(clean(line)))

    @cached_property
    def units(self) -> Callable[[str], str]:
        """Line of words -> its units; ``<unk>`` stays."""
        if self.model is None:
            return str
        return _around_unknown(make_segmenter(self.bpe, self.model))

    def tokens(self, line: str) -> list[str]:
        """The tokens of a line of plain text, without an end mark."""
        return tokens_of(line if self.unit == BYTE else self.units(self.words(line)), self.unit)

    def text(self, tokens: Iterable[str]) -> str:
        """The plain text of tokens; an end mark is a line feed."""
        text = text_of(tokens, self.unit)
        if self.model is None and self.tokenizer == "none":
            return text
        detokenize = moses(self.language).decode if self.tokenizer == "moses" else str
        plain = _around_unknown(lambda units: detokenize(without_bpe(units, self.bpe)))
        return "\n".join(map(plain, text.split("\n")))


WORDS = TextForm()


def form_of(data: str | Path, dictionary: "Dictionary | None" = None) -> TextForm:
    """That of a folder of ``prepare-lm`` or of ``fairseq-preprocess --only-source``."""
    folder = Path(split_paths(str(data))[0])
    unit = unit_of(dictionary or load_dictionary(folder / "dict.txt"))
    settings = read_settings(folder) or {}
    if unit == BYTE or "tokenizer" not in settings:
        return TextForm(unit)
    tokenizer, language, bpe = (settings.get(key) for key in ("tokenizer", "lang", "bpe"))
    if tokenizer not in TOKENIZERS or bpe not in BPE_KINDS or not isinstance(language, str):
        raise FairseqDocError(
            f"{folder / SETTINGS}: expected the settings of prepare-lm; got tokenizer "
            f"{tokenizer!r}, language {language!r} and BPE {bpe!r}"
        )
    model = folder / MODELS[bpe] if bpe in MODELS else None
    return TextForm(unit, tokenizer, language, bpe, model)


def _around_unknown(function: Callable[[str], str]) -> Callable[[str], str]:
    """The function on what lies between ``<unk>``s, each a word of its own."""

    def apply(line: str) -> str:
        parts = (function(part.strip()) for part in _UNKNOWN.split(line))
        return f" {UNKNOWN} ".join(parts).strip()

    return apply
