"""Lines of text -> words (Moses) -> units (BPE, and how its models are learned); which lines are
unusable."""

import contextlib
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import check_input, text_lines

BPE_KINDS = ("subword_nmt", "sentencepiece", "none")
TOKENIZERS = ("moses", "none")
# A dictionary's special symbols; no text may hold them as words.
RESERVED = ("<s>", "<pad>", "</s>")
UNKNOWN = "<unk>"  # special too, but text may hold it
BPE_MARKS = {
    "sentencepiece": re.compile("\u2581"),  # begins every word
    "subword_nmt": re.compile("@@(?= |$)"),  # ends every unit except a word's last
}
_MODELS = {"subword_nmt": "bpe.codes{}", "sentencepiece": "sentencepiece{}.model"}
MAX_WORD = 5_000  # characters
SENTENCEPIECE_LINE = 1 << 24  # bytes; sentencepiece skips longer lines in training
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def model_name(bpe: str, side: str | None = None) -> str:
    """The file in a data folder of the BPE model of all its text, or of one side's."""
    return _MODELS[bpe].format("" if side is None else f".{side}")


def clean(line: str) -> str:
    """Replace whitespace and control characters, line separators among them, by single spaces.
    Remove spaces at both ends and a byte order mark at the start."""
    return " ".join(CONTROL.sub(" ", line.removeprefix("\ufeff")).split())


def moses(language: str) -> Any:
    """fairseq's ``--tokenizer moses``, with ``encode`` and ``decode``."""
    from fairseq.data.encoders.moses_tokenizer import MosesTokenizer, MosesTokenizerConfig

    return MosesTokenizer(MosesTokenizerConfig(source_lang=language, target_lang=language))


def moses_remark(language: str) -> str | None:
    """A remark if Moses has no list of abbreviations for a language; else None."""
    from sacremoses.corpus import NonbreakingPrefixes

    if language in NonbreakingPrefixes().available_langs:
        return None
    return f"moses has no abbreviations for {language!r} and uses the English ones"


def make_tokenizer(name: str, language: str) -> Callable[[str], str]:
    """A function from a clean line to its words with single spaces between them."""
    if name == "none":
        return str
    encode = moses(language).encode

    def tokenize(line: str) -> str:
        if holds_long_word(line):  # a million dots would take Moses hours
            return line
        return " ".join(encode(line).split())  # Moses writes two spaces before a final .'

    return tokenize


def make_segmenter(bpe: str, model: str | Path) -> Callable[[str], str]:
    """A function from a line of words to its subword units. ``model`` is a file of subword-nmt's
    codes or sentencepiece's model; raises ``FairseqDocError`` for an unusable one."""
    checksums.check(model)
    check_input(model, again=True)
    if bpe == "subword_nmt":
        from subword_nmt.apply_bpe import BPE

        codes = io.StringIO("\n".join(text_lines(model)))
        with contextlib.redirect_stderr(io.StringIO()) as problem:
            try:
                return BPE(codes).process_line
            except (SystemExit, ValueError) as error:  # it exits at a damaged line
                raise FairseqDocError(
                    f"{model}: expected subword-nmt's codes; got "
                    f"{shown(problem.getvalue() or str(error))}"
                ) from None
    import sentencepiece

    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (RuntimeError, OSError) as error:
        raise FairseqDocError(
            f"{model}: expected a model of sentencepiece; got {shown(str(error))}"
        ) from None
    return lambda line: " ".join(processor.encode(line, out_type=str))


def check_merges(bpe: str, merges: int | None) -> None:
    """Refuse a number of merges (None: not given) where there is no BPE."""
    if bpe == "none" and merges is not None:
        raise FairseqDocError(f"--merges {merges}: expected none with --bpe none")


def learn_merges(lines: Iterator[str], model: Path, merges: int) -> str:
    """Learn subword-nmt's codes and write them to ``model``; returns a report."""
    from subword_nmt.learn_bpe import learn_bpe

    codes = io.StringIO()
    progress = sys.stderr if sys.stderr.isatty() else io.StringIO()
    with contextlib.redirect_stderr(progress):
        try:
            learn_bpe(lines, codes, merges)
        except ValueError:  # no pair to count
            codes.truncate(0)
    learned = codes.getvalue().count("\n") - 1  # the first line is the version
    if learned <= 0:
        raise FairseqDocError(
            "expected words of two or more characters, and a pair of them that occurs twice, in "
            "training; got none, so there is nothing to merge: give --bpe none"
        )
    model.write_text(codes.getvalue(), encoding="utf-8")
    fewer = "" if learned == merges else "; no other pair occurs twice"
    return f"{learned:,} of {merges:,} merges learned{fewer}"


def learn_sentencepiece(lines: Iterator[str], model: Path, size: int) -> str:
    """Learn sentencepiece's model and write it to ``model``; returns a report."""
    import sentencepiece

    out = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            model_writer=out,
            model_type="bpe",
            vocab_size=size,
            character_coverage=1.0,
            normalization_rule_name="identity",  # decoding cannot undo others
            max_sentence_length=SENTENCEPIECE_LINE,
            num_threads=1,  # the same model on every machine
            minloglevel=2,
        )
    except RuntimeError as error:
        raise FairseqDocError(
            f"sentencepiece cannot learn a vocabulary of {size:,} from this text; give another "
            f"--merges ({' '.join(str(error).split())})"
        ) from None
    model.write_bytes(out.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue()).get_piece_size()
    return f"{pieces:,} pieces learned"


LEARN = {"subword_nmt": learn_merges, "sentencepiece": learn_sentencepiece}


def untokenised(lines: Iterable[str], name: str = "train") -> str | None:
    """A warning if more commas are attached to words than separate. Other marks do not show it:
    abbreviations keep their full stop, and French sets ? ! : ; apart."""
    separate = attached = 0
    for line in lines:
        for word in line.split():
            separate += word == ","
            attached += word != "," and word.endswith(",")
    if attached <= separate:
        return None
    return (
        f"warning: {name} looks untokenised: {attached} commas are attached to words, "
        f"{separate} separate; text is split only at whitespace, so 'word,' and 'word' are "
        "different words; --tokenizer moses separates them"
    )


def holds_long_word(line: str) -> bool:
    """Whether a word is so long that Moses or subword-nmt would take far too long."""
    return len(line) > MAX_WORD and any(len(word) > MAX_WORD for word in line.split())


def why_unusable(line: str, bpe: str) -> str | None:
    """Why this line of words may be in no split; None for a usable line."""
    if not line:
        return "is empty"
    if bpe == "subword_nmt" and holds_long_word(line):
        return f"holds a word of more than {MAX_WORD:,} characters"
    # sentencepiece joins unknown characters into one unit, also within a word.
    units = line if bpe == "sentencepiece" else line.split()
    if any(symbol in units for symbol in RESERVED):
        return f"holds one of fairseq's reserved symbols, {', '.join(RESERVED)}"
    if bpe in BPE_MARKS and BPE_MARKS[bpe].search(line):  # undoing it would change the line
        mark = "a word that ends in @@" if bpe == "subword_nmt" else "\u2581"
        return f"holds {mark}, the mark of --bpe {bpe}"
    return None
