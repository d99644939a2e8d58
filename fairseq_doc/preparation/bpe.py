"""Models of units, learned on lines of words: subword-nmt's merges or sentencepiece's model."""

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import MAX_LINE, text_lines

MADE_LINE = MAX_LINE << 6  # bytes; bound on a raw line after tokenisation and segmentation
SENTENCEPIECE_LINE = 1 << 24  # bytes; sentencepiece skips longer lines in training


def made_lines(path: Path) -> Iterator[str]:
    """The lines of a file that a stage made."""
    return text_lines(path, MADE_LINE)


def learn_model(bpe: str, lines: Iterator[str], model: Path, merges: int) -> str:
    """Write a model of so many merges or pieces; gives a report."""
    if bpe == "sentencepiece":
        return f"{learn_sentencepiece(lines, model, merges):,} pieces learned"
    learned = learn_merges(lines, model, merges)
    fewer = "" if learned == merges else "; no other pair occurs twice"
    return f"{learned:,} of {merges:,} merges learned{fewer}"


def learn_merges(lines: Iterator[str], model: Path, merges: int) -> int:
    """Write subword-nmt's codes; gives their number."""
    from subword_nmt.learn_bpe import learn_bpe

    codes = io.StringIO()
    progress = sys.stderr if sys.stderr.isatty() else io.StringIO()
    with contextlib.redirect_stderr(progress):
        try:
            learn_bpe(lines, codes, merges)
        except ValueError:  # no pair to count
            raise FairseqDocError(
                "expected words of two or more characters in training; got none, so there is "
                "nothing to merge: give --bpe none"
            ) from None
    model.write_text(codes.getvalue(), encoding="utf-8")
    return codes.getvalue().count("\n") - 1  # the first line is the version


def learn_sentencepiece(lines: Iterator[str], model: Path, size: int) -> int:
    """Write sentencepiece's model; gives the number of its pieces."""
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
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue()).get_piece_size()
