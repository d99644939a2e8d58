"""Lines of text -> words (Moses) -> units (BPE); which lines are unusable."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import check_input, text_lines

if TYPE_CHECKING:
    from fairseq.data.encoders.moses_tokenizer import MosesTokenizer

BPE_KINDS = ("subword_nmt", "sentencepiece", "none")
TOKENIZERS = ("moses", "none")
# A dictionary's special symbols; no text may hold them as words.
RESERVED = ("<s>", "<pad>", "</s>")
UNKNOWN = "<unk>"  # special too, but text may hold it
BPE_MARKS = {
    "sentencepiece": re.compile("\u2581"),  # begins every word
    "subword_nmt": re.compile("@@(?= |$)"),  # ends every unit except a word's last
}
MODELS = {
    "subword_nmt": "bpe.codes",
    "sentencepiece": "sentencepiece.model",
}  # a data folder's files
MAX_WORD = 5_000  # characters
CODES_VERSION = re.compile("#version: [0-9]{1,3}[.][0-9]{1,3}")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def clean(line: str) -> str:
    """Replace white space and control characters, line separators among them, by single blanks.
    Remove blanks at both ends and a byte order mark at the start."""
    return " ".join(CONTROL.sub(" ", line.removeprefix("\ufeff")).split())


def moses(language: str) -> "MosesTokenizer":
    """fairseq's ``--tokenizer moses``."""
    from fairseq.data.encoders.moses_tokenizer import MosesTokenizer, MosesTokenizerConfig

    return MosesTokenizer(MosesTokenizerConfig(source_lang=language, target_lang=language))


def moses_remark(language: str) -> str | None:
    """A remark if Moses has no list of abbreviations for a language; else None."""
    from sacremoses.corpus import NonbreakingPrefixes

    if language in NonbreakingPrefixes().available_langs:
        return None
    return f"moses has no abbreviations for {language!r} and uses the English ones"


def make_tokenizer(name: str, language: str) -> Callable[[str], str]:
    """A function from a clean line to its words with single blanks between them."""
    if name == "none":
        return str
    encode = moses(language).encode

    def tokenize(line: str) -> str:
        if holds_long_word(line):  # a million dots would take Moses hours
            return line
        return " ".join(encode(line).split())  # Moses writes two blanks before a final .'

    return tokenize


def make_segmenter(bpe: str, model: str | Path) -> Callable[[str], str]:
    """A function from a line of words to its units. ``model`` is a file of subword-nmt's codes or
    sentencepiece's model; raises ``FairseqDocError`` for an unusable one."""
    if bpe == "subword_nmt":
        from subword_nmt.apply_bpe import BPE

        return BPE(_read_codes(model)).process_line
    import sentencepiece

    check_input(model)
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (RuntimeError, OSError) as error:
        raise FairseqDocError(
            f"{model}: expected a model of sentencepiece; got another or a damaged file "
            f"({shown(str(error))})"
        ) from None

    def segment(line: str) -> str:
        return " ".join(processor.encode(line, out_type=str))

    return segment


def _read_codes(path: str | Path) -> io.StringIO:
    """subword-nmt's codes, checked, since it ends the process at a damaged line."""
    text = "\n".join(text_lines(path)).rstrip("\n")
    version, *merges = text.split("\n")
    if not version.startswith("#version:"):  # of an early subword-nmt
        merges.insert(0, version)
    elif not CODES_VERSION.fullmatch(version.rstrip()):
        raise FairseqDocError(f"{path}: expected a version of subword-nmt; got {shown(version)}")
    if not any(merges):
        raise FairseqDocError(f"{path}: expected merges of subword-nmt; got none")
    for merge in merges:
        if len(merge.strip("\r ").split(" ")) != 2:
            raise FairseqDocError(
                f"{path}: expected merges of subword-nmt, two units with a blank between in every "
                f"line; got {shown(merge)}"
            )
    return io.StringIO(text)


def without_bpe(line: str, bpe: str) -> str:
    """A line of units as words."""
    if bpe == "sentencepiece":
        return line.replace(" ", "").replace("\u2581", " ").strip()
    return f"{line} ".replace("@@ ", "").rstrip() if bpe == "subword_nmt" else line


def holds_bpe_mark(line: str, bpe: str) -> bool:
    """Whether a line of words holds a mark of ``bpe``: undoing it would change the line."""
    return bpe in BPE_MARKS and bool(BPE_MARKS[bpe].search(line))


def holds_long_word(line: str) -> bool:
    """Whether a word is so long that Moses or subword-nmt would take very long."""
    return len(line) > MAX_WORD and any(len(word) > MAX_WORD for word in line.split())


def why_unusable(line: str, bpe: str) -> str | None:
    """Why no split may hold this line of words; None for a usable line."""
    if not line:
        return "is empty"
    if bpe == "subword_nmt" and holds_long_word(line):
        return f"holds a word of more than {MAX_WORD:,} characters"
    # sentencepiece joins unknown characters into one unit, also within a word.
    units = line if bpe == "sentencepiece" else line.split()
    if any(symbol in units for symbol in RESERVED):
        return f"holds one of fairseq's own symbols, {', '.join(RESERVED)}"
    if holds_bpe_mark(line, bpe):
        mark = "a word that ends in @@" if bpe == "subword_nmt" else "\u2581"
        return f"holds {mark}, the mark of --bpe {bpe}"
    return None
