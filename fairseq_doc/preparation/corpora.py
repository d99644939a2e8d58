"""The texts that a language model is prepared from: published counts, and the options."""

from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_input
from fairseq_doc.options import REQUIRED, option
from fairseq_doc.preparation.byte_tokens import BYTE, UNITS, WORD
from fairseq_doc.preparation.pipeline import PublishedCounts
from fairseq_doc.preparation.text_form import TextForm, form_of
from fairseq_doc.preparation.tokenization import BPE_KINDS, TOKENIZERS, check_merges, model_name

ENWIK8, TEXT, PYDOC = "enwik8", "text", "pydoc"
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
    """What decides the result, with the text itself. ``counts`` are checked, and give the sizes of
    enwik8's splits; by default they are the corpus's published ones."""

    corpus: str = option(
        "ptb, wikitext2 or enwik8, whose published counts are checked; text, any other; pydoc, the "
        "text that every Python carries",
        REQUIRED,
        positional=True,
        metavar="CORPUS",
        choices=(*PUBLISHED, TEXT, PYDOC),
    )
    folder: Path | None = option(
        "folder of train.txt, valid.txt and test.txt (or ptb.train.txt, or wiki.train.tokens, and "
        "so on), one sentence a line, already tokenised, since lines are split at blanks only; "
        "with --split a file; for enwik8 its file of 100 MB; pydoc takes none",
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
        "words, or bytes, that occur less often in training become <unk>; text that does not "
        "contain <unk> needs 2, so that the model learns to predict it (default: 0; words of pydoc: 2)",
        metavar="N",
        least=0,
    )
    tokenizer: str | None = option(
        "how a text of your own is tokenised (default: none, it is split at blanks)",
        choices=TOKENIZERS,
    )
    lang: str | None = option("language of the text (default: en)", needs="tokenizer")
    bpe: str | None = option("cut words into units (default: none)", choices=BPE_KINDS)
    merges: int | None = option(
        "merges to learn a model; with sentencepiece the size of its vocabulary (default: 8,000)",
        least=1,
        metavar="N",
        needs="bpe",
    )
    like: Path | None = option(
        "data folder of an earlier preparation, whose models are to be fine-tuned: take its "
        "dictionary, tokeniser and units; words that it lacks become <unk>",
        metavar="DATA",
    )
    counts: PublishedCounts | None = None

    @property
    def form(self) -> TextForm:
        """How words and units are found, without the model of units."""
        return TextForm(WORD, self.tokenizer or "none", self.lang or "en", self.bpe or "none")

    @property
    def files_of_like(self) -> dict[str, Path]:
        """``dictionary`` of ``like``, and ``units``, its model of units."""
        if self.like is None:
            return {}
        files = {"dictionary": self.like / "dict.txt"}
        if self.form.bpe != "none":
            files["units"] = self.like / model_name(self.form.bpe)
        return files

    def _form_of_like(self, folder: Path) -> TextForm:
        own = ("unit", "threshold", "tokenizer", "lang", "bpe", "merges")
        given = [f"--{name}" for name in own if getattr(self, name) is not None]
        if given or self.corpus not in (TEXT, PYDOC):
            raise FairseqDocError(
                f"--like: expected the corpus {TEXT} or {PYDOC} and none of --{', --'.join(own)}, "
                f"which are those of {folder}; got {' '.join([self.corpus, *given])}"
            )
        check_input(folder / "dict.txt", again=True)
        return form_of(folder)

    def with_defaults(self) -> "LanguageModelText":
        """The same with the defaults that depend on the corpus, or with the choices of ``like``."""
        form = self.form if self.like is None else self._form_of_like(self.like)
        formed = replace(self, tokenizer=form.tokenizer, lang=form.language, bpe=form.bpe)
        if self.like is not None:
            return replace(formed, unit=form.unit, threshold=0)
        check_merges(form.bpe, self.merges)
        unit = self.unit or (BYTE if self.corpus == ENWIK8 else WORD)
        least = 2 if (self.corpus, unit) == (PYDOC, WORD) else 0
        return replace(
            formed,
            unit=unit,
            threshold=least if self.threshold is None else self.threshold,
            counts=self.counts or PUBLISHED.get(self.corpus),
            merges=self.merges or 8_000,
        )
