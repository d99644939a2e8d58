"""The texts that a language model is prepared from: published counts, and the options."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import check_input
from fairseq_doc.options import REQUIRED, check_ranges, option
from fairseq_doc.preparation.byte_text import check_not_packed
from fairseq_doc.preparation.pipeline import SPLITS
from fairseq_doc.preparation.text_form import BYTE, UNITS, WORD, WORDS, TextForm, form_of
from fairseq_doc.preparation.tokenization import BPE_KINDS, TOKENIZERS, check_merges

# Names of the files: of any text, of Mikolov's Penn Treebank, and of WikiText-2.
_NAMED = [
    [form.format(split) for split in SPLITS] for form in ("{}.txt", "ptb.{}.txt", "wiki.{}.tokens")
]
ENWIK8, TEXT, PYDOC = "enwik8", "text", "pydoc"


@dataclass(frozen=True)
class PublishedCounts:
    """A published corpus: tokens of each split with one end mark per line, and types with the end
    mark; or bytes of each split, and how many of the 256 bytes occur in them."""

    tokens: dict[str, int]
    types: int


# For Penn Treebank the paper's Table 1 prints one token more for each split.
PUBLISHED = {
    "ptb": PublishedCounts({"train": 929_589, "valid": 73_760, "test": 82_430}, types=10_000),
    "wikitext2": PublishedCounts(
        {"train": 2_088_628, "valid": 217_646, "test": 245_569}, types=33_278
    ),
    ENWIK8: PublishedCounts(
        {"train": 90_000_000, "valid": 5_000_000, "test": 5_000_000}, types=205
    ),
}


@dataclass(frozen=True)
class LanguageModelText:
    """The settings that, with the text itself, determine the prepared data. ``counts`` are checked,
    and give the sizes of enwik8's splits; by default they are the corpus's published ones."""

    corpus: str = option(
        "ptb, wikitext2 or enwik8, whose published counts are checked; text: any other text; "
        "pydoc: the help topics that come with Python",
        REQUIRED,
        positional=True,
        metavar="CORPUS",
        choices=(*PUBLISHED, TEXT, PYDOC),
    )
    folder: Path | None = option(
        "folder of train.txt, valid.txt and test.txt (or ptb.train.txt, or wiki.train.tokens, and "
        "so on), one sentence per line, already tokenised, since lines are split at whitespace "
        "only; with --split a file; for enwik8 its file of 100 MB; pydoc takes none",
        positional=True,
        metavar="FOLDER",
        nargs="?",
    )
    split: str | None = option(
        "one file instead of a folder: the first N percent of its lines are training, the "
        "next validation, the last test, such as 90,5,5",
        metavar="N,N,N",
    )
    unit: str | None = option(
        "what a token is; with byte, every byte of the text, whatever its encoding (default: word; "
        "enwik8: byte)",
        choices=UNITS,
    )
    threshold: int | None = option(
        "words (or bytes) that occur fewer than N times in training become <unk>; use 2 for a text "
        "without <unk>, so that the model learns to predict it (default: 0; words of pydoc: 2)",
        metavar="N",
        least=0,
    )
    tokenizer: str | None = option(
        "how a text of your own is tokenised (default: none, it is split at whitespace)",
        choices=TOKENIZERS,
    )
    lang: str | None = option("language of the text (default: en)", needs="tokenizer")
    bpe: str | None = option("cut words into subwords (default: none)", choices=BPE_KINDS)
    merges: int | None = option(
        "number of merges to learn; with sentencepiece the size of its vocabulary (default: 8,000)",
        least=1,
        metavar="N",
        needs="bpe",
    )
    like: Path | None = option(
        "data folder of the models that are to be fine-tuned: take its dictionary, tokeniser and "
        "BPE model; words that it lacks become <unk>",
        metavar="DATA",
    )
    counts: PublishedCounts | None = None

    @property
    def form(self) -> TextForm:
        """The tokeniser and the kind of BPE, without a learned model of BPE."""
        return TextForm(WORD, self.tokenizer or "none", self.lang or "en", self.bpe or "none")

    def with_defaults(self) -> "LanguageModelText":
        """The same with defaults that depend on the corpus, or with the settings of ``like``."""
        if self.like is not None:
            form = self._form_of_like(self.like)
            chosen: dict[str, Any] = {"unit": form.unit, "threshold": 0}
        else:
            form = self.form
            check_merges(form.bpe, self.merges)
            unit = self.unit or (BYTE if self.corpus == ENWIK8 else WORD)
            least = 2 if (self.corpus, unit) == (PYDOC, WORD) else 0
            chosen = {
                "unit": unit,
                "threshold": least if self.threshold is None else self.threshold,
                "merges": self.merges or 8_000,
                "counts": self.counts or PUBLISHED.get(self.corpus),
            }
        return replace(self, tokenizer=form.tokenizer, lang=form.language, bpe=form.bpe, **chosen)

    def _form_of_like(self, folder: Path) -> TextForm:
        own = ("unit", "threshold", "tokenizer", "lang", "bpe", "merges")
        given = [f"--{name}" for name in own if getattr(self, name) is not None]
        if given or self.corpus not in (TEXT, PYDOC):
            raise FairseqDocError(
                f"--like: expected the corpus {TEXT} or {PYDOC} and none of --{', --'.join(own)}, "
                f"which are those of {folder}; got {' '.join([self.corpus, *given])}"
            )
        return form_of(folder)

    def check(self) -> None:
        """Raise ``FairseqDocError`` for unusable values, defaults filled in."""
        check_ranges(LanguageModelText, self)
        if self.corpus == ENWIK8 and self.unit != BYTE:
            raise FairseqDocError(f"--unit: expected byte for {ENWIK8}; got {self.unit}")
        if self.form != WORDS and (self.corpus not in (TEXT, PYDOC) or self.unit == BYTE):
            raise FairseqDocError(
                f"--tokenizer and --bpe: expected words of the corpus {TEXT} or {PYDOC}; got "
                f"{self.corpus}, --unit {self.unit}"
            )
        if self.split is None:
            return
        percentages_of(self.split)
        if self.corpus != TEXT or self.folder is None or self.folder.is_dir():
            raise FairseqDocError(
                f"--split: expected the corpus {TEXT} and a file, which it cuts in three; got "
                f"{self.corpus} {self.folder or ''}"
            )

    def files(self) -> dict[str, Path]:
        """{split: file} of a folder, {corpus: file} of a single file, {} for ``pydoc``; each is
        checked: it can be read and is not empty."""
        if self.folder is None:
            return {}
        if self.corpus == ENWIK8 or self.split is not None:
            files = {self.corpus: self.folder}
        else:
            files = dict(zip(SPLITS, self._files_of_folder(self.folder), strict=True))
        for path in files.values():
            check_input(path, again=True)
            if path.stat().st_size == 0:
                raise FairseqDocError(f"expected text in {path}; got an empty file")
            if self.unit == BYTE:
                check_not_packed(path)
        if self.corpus == ENWIK8 and self.counts is not None:
            expected, size = sum(self.counts.tokens.values()), self.folder.stat().st_size
            if size != expected:
                raise FairseqDocError(
                    f"{self.folder}: expected the {expected:,} bytes of {ENWIK8}; got {size:,}; any "
                    "other file is prepared by: prepare-lm text FILE --split 90,5,5 --unit byte"
                )
        return files

    def _files_of_folder(self, folder: Path) -> list[Path]:
        if not folder.is_dir():
            got = "a file" if folder.exists() else "no such file or folder"
            if folder.exists() and self.corpus == TEXT:
                got += "; --split 90,5,5 cuts it in three"
            raise FairseqDocError(
                f"{folder}: expected a folder of {', '.join(_NAMED[0])}; got {got}"
            )
        # The most complete set; max gives the first of equals.
        names = max(_NAMED, key=lambda names: sum((folder / name).exists() for name in names))
        missing = [name for name in names if not (folder / name).exists()]
        if missing:
            raise FairseqDocError(
                f"expected {', '.join(names)} in {folder}; got no {', no '.join(missing)}"
            )
        return [folder / name for name in names]


def percentages_of(split: str) -> list[float]:
    """The three numbers of ``--split``."""
    try:
        parts = [float(part) for part in split.split(",")]
    except ValueError:
        parts = []
    if len(parts) != 3 or not all(part > 0 for part in parts) or not math.isclose(sum(parts), 100):
        raise FairseqDocError(
            "--split: expected three percentages above 0 that sum to 100, such as 90,5,5; got "
            f"{shown(split)}"
        )
    return parts
