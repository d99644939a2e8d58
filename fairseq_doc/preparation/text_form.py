"""Plain text <-> a model's tokens, by the settings with which the data folder was prepared.

Tokens are words, units of words (subwords), or bytes. A byte is named as in sentencepiece, such as
``<0x61>``; the line feed is the end mark ``</s>``.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fairseq.data import Dictionary
from fairseq.data.data_utils import post_process
from fairseq.tokenizer import tokenize_line
from fairseq.utils import split_paths

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.preparation.binarisation import load_dictionary
from fairseq_doc.preparation.data_folder import SETTINGS, read_settings
from fairseq_doc.preparation.tokenization import (
    CONTROL,
    RESERVED,
    UNKNOWN,
    clean,
    make_segmenter,
    make_tokenizer,
    model_name,
    moses,
)

WORD, BYTE = UNITS = ("word", "byte")
END = "</s>"
LINE_FEED = 0x0A
NAMES = [END if byte == LINE_FEED else f"<0x{byte:02X}>" for byte in range(256)]
_BYTE_OF = {name: bytes([byte]) for byte, name in enumerate(NAMES)}
_REPLACEMENT = "\ufffd".encode()
_BYTE_WORDS = re.compile(r"\s*\S+\s*|\s+")
_UNKNOWN = re.compile(rf"(?:^|(?<=\s)){UNKNOWN}(?=\s|$)")


def unit_of(dictionary: Dictionary) -> str:
    """``byte`` if every symbol but fairseq's own names a byte, else ``word``."""
    own = dictionary.symbols[dictionary.nspecial :]
    return BYTE if own and all(symbol in _BYTE_OF for symbol in own) else WORD


def tokens_of(text: str, unit: str) -> list[str]:
    """The tokens of plain text: its words, split at whitespace, or its bytes in UTF-8, where a lone
    surrogate is any other byte (``surrogateescape``). ``unit``: one of ``UNITS``."""
    if unit == BYTE:
        return [NAMES[byte] for byte in text.encode("utf-8", "surrogateescape")]
    return tokenize_line(text)


def text_of(tokens: Iterable[str], unit: str) -> str:
    """The plain text of tokens; an end mark is a line feed. Bytes that are not UTF-8, and tokens
    that name no byte, become U+FFFD."""
    if unit == BYTE:
        data = b"".join(_BYTE_OF.get(token, _REPLACEMENT) for token in tokens)
        return data.decode("utf-8", "replace")
    return re.sub(" ?\n ?", "\n", " ".join("\n" if token == END else token for token in tokens))


@dataclass(frozen=True)
class TextForm:
    """How text becomes tokens: its bytes, or words, which may be tokenised and cut into units."""

    unit: str = WORD
    tokenizer: str = "none"
    language: str = "en"
    bpe: str = "none"
    model: Path | None = None  # file of the BPE codes or of the sentencepiece model
    marks_unknown: bool = True  # <unk> stays whole; parallel text treats it as ordinary text

    @cached_property
    def words(self) -> Callable[[str], str]:
        """Line -> its words, separated by single spaces. Without a tokeniser, a language model's
        words are split as fairseq splits them, at any whitespace (also tabs and no-break spaces);
        parallel text also loses its control characters."""
        if self.tokenizer == "none" and self.marks_unknown:
            return lambda line: " ".join(tokens_of(line, WORD))
        tokenize = make_tokenizer(self.tokenizer, self.language)
        return self._keeping_unknown(lambda line: tokenize(clean(line)))

    @cached_property
    def units(self) -> Callable[[str], str]:
        """Line of words -> its units."""
        if self.model is None:
            return str
        return self._keeping_unknown(make_segmenter(self.bpe, self.model))

    def _keeping_unknown(self, function: Callable[[str], str]) -> Callable[[str], str]:
        return _around_unknown(function) if self.marks_unknown else function

    def tokens(self, line: str) -> list[str]:
        """The tokens of a line of plain text, without an end mark."""
        return tokens_of(line if self.unit == BYTE else self.units(self.words(line)), self.unit)

    def sentence(self, line: str, at: str = "") -> list[str]:
        """The tokens of a line that is a sentence, which gets its end mark later. Raises
        ``FairseqDocError``, which begins with ``at``, if the line holds such marks as words."""
        tokens = self.tokens(line)
        own = [symbol for symbol in RESERVED if symbol in tokens] if self.unit == WORD else []
        if own:
            raise FairseqDocError(
                f"{at}expected a sentence without fairseq's own symbols {', '.join(RESERVED)}; got "
                f"{own[0]} in {shown(line)}: remove it"
            )
        return tokens

    def text(self, tokens: Iterable[str]) -> str:
        """The plain text of tokens; an end mark is a line feed."""
        text = text_of(tokens, self.unit)
        if self.model is None and self.tokenizer == "none":
            return text
        detokenize = moses(self.language).decode if self.tokenizer == "moses" else str
        plain = _around_unknown(lambda units: detokenize(post_process(units, self.bpe)))
        return "\n".join(map(plain, text.split("\n")))

    def word_spans(self, line: str, tokens: Sequence[str]) -> list[tuple[str, int]]:
        """The words of a raw line, split at whitespace, each with how many of the line's ``tokens``
        it has. Where tokens are bytes, a space belongs to the word before it, which it ends, and at
        the start of a line to the first word.

        Raises:
            FairseqDocError: the tokens are not those of the words, one word after the other.
        """
        words = list(self._written(line))
        if [token for _, own in words for token in own] != list(tokens):
            raise FairseqDocError(
                "expected tokens that make up the words between spaces (give units for a row per "
                f"token); got others in {shown(line)}",
                "units",
            )
        return [(word, len(own)) for word, own in words]

    def _written(self, line: str) -> Iterator[tuple[str, list[str]]]:
        if self.unit == BYTE:
            for part in _BYTE_WORDS.findall(line):
                yield text_of(tokens_of(part.strip(), BYTE), BYTE), tokens_of(part, BYTE)
            return
        line = line.removeprefix("\ufeff")  # as clean does
        tokenized = iter(tokens_of(self.words(line), WORD))
        for word in line.split():
            own = word
            if self.tokenizer != "none":
                own = " ".join(_taken(tokenized, CONTROL.sub("", word)))
            yield word, tokens_of(self.units(own), WORD)


def _taken(tokenized: Iterator[str], written: str) -> Iterator[str]:
    """The next tokens of Moses, which make up the word ``written``; fewer if they do not."""
    while written and (word := next(tokenized, "")):
        plain = "-" if word == "@-@" else html.unescape(word)  # ' is &apos;
        if not written.startswith(plain):
            return
        written = written.removeprefix(plain)
        yield word


WORDS = TextForm()


def form_of_side(data: str | Path, side: str) -> TextForm:
    """The form of one side, such as ``en``, of a folder of ``prepare-mt`` or ``prepare-headline``;
    plain words if the folder has no settings."""
    folder = Path(split_paths(str(data))[0])
    settings = read_settings(folder)
    if settings is None:
        return WORDS
    if side not in (settings.get("source"), settings.get("target")):
        raise FairseqDocError(
            f"{folder / SETTINGS}: expected the settings of prepare-mt or prepare-headline; got no "
            f"side {side}"
        )
    bpe = settings["bpe"]
    model = None if bpe == "none" else folder / model_name(bpe, None if settings["joint"] else side)
    return TextForm(WORD, settings["tokenizer"], side, bpe, model, marks_unknown=False)


def form_of(data: str | Path, dictionary: Dictionary | None = None) -> TextForm:
    """The form of a folder of ``prepare-lm`` or of ``fairseq-preprocess --only-source``.
    ``dictionary``: that of the folder, if it is loaded already."""
    folder = Path(split_paths(str(data))[0])
    unit = unit_of(dictionary or load_dictionary(folder / "dict.txt"))
    settings = read_settings(folder)
    if settings is None or unit == BYTE:
        return TextForm(unit)
    bpe = settings["bpe"]
    model = None if bpe == "none" else folder / model_name(bpe)
    return TextForm(unit, settings["tokenizer"], settings["lang"], bpe, model)


def _around_unknown(function: Callable[[str], str]) -> Callable[[str], str]:
    """Apply a function to the text between the ``<unk>``s, which stay words of their own."""

    def apply(line: str) -> str:
        parts = (function(part.strip()) for part in _UNKNOWN.split(line))
        return " ".join(filter(None, f" {UNKNOWN} ".join(parts).split(" ")))

    return apply
