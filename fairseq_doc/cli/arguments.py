"""Options that several commands share, and the objects they name."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from fairseq.logging.progress_bar import progress_bar

from fairseq_doc.adaptation.cache import CacheSettings
from fairseq_doc.adaptation.dynamic import DynamicSettings
from fairseq_doc.adaptation.gradient_statistics import statistics_of
from fairseq_doc.cli.outputs import first_ten
from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.evaluation.ensemble import Ensemble, load_ensemble
from fairseq_doc.evaluation.perplexity import Evaluation, as_written, perplexity_text
from fairseq_doc.evaluation.progress import Progress, no_progress
from fairseq_doc.evaluation.scorer import ScorerSettings
from fairseq_doc.evaluation.scoring import MAX_TOKENS, MAX_WORDS, STATES, check_sentences
from fairseq_doc.files import text_lines
from fairseq_doc.ops.matmul import PRECISIONS
from fairseq_doc.options import REQUIRED, group, option, positive
from fairseq_doc.preparation.byte_tokens import BYTE
from fairseq_doc.preparation.raw_counts import RawCounts, count, with_line_ends
from fairseq_doc.preparation.text_form import TextForm, form_of


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """The models and their data."""

    data: str = option(
        "folder of fairseq-preprocess, for its dictionaries and splits",
        REQUIRED,
        positional=True,
        reads=True,
    )
    path: str = option(
        "checkpoint; a.pt:b.pt:... averages the models' probabilities", REQUIRED, reads=True
    )


@dataclass(frozen=True, kw_only=True)
class ModelOptions(CheckpointOptions):
    """How they are run."""

    cpu: bool = option("do not use a GPU", False)
    matmul_precision: str | None = option(
        "precision of the large matrix products (default: as trained); bfloat16 is faster on "
        "processors with AVX512_BF16 or AMX and on GPUs; others stay in float32, with a warning",
        choices=PRECISIONS,
    )

    @property
    def device(self) -> str:
        return "cuda" if torch.cuda.is_available() and not self.cpu else "cpu"


@dataclass(frozen=True, kw_only=True)
class ProgressOptions:
    """How progress is shown."""

    no_progress_bar: bool = option("show no progress", False)
    log_interval: int = option(
        "batches between lines of progress, where it goes into a file", 100, type=positive
    )


@dataclass(frozen=True, kw_only=True)
class AdaptationOptions(ProgressOptions, ModelOptions):
    """What evaluation may add to the models."""

    cache: CacheSettings | None = group("cache", switch="window")
    dynamic: DynamicSettings | None = group(
        "dynamic",
        switch="dynamic",
        help="dynamic evaluation: the model learns from each segment after it was scored; in "
        "float32",
    )

    def __post_init__(self) -> None:
        _ = self.scorer  # which checks itself
        if self.dynamic is not None:
            if self.matmul_precision not in (None, "float32"):
                raise FairseqDocError(
                    "--dynamic computes in float32: expected no --matmul-precision; got "
                    f"{self.matmul_precision}"
                )
            self.dynamic.statistics_paths(self.path)

    @property
    def scorer(self) -> ScorerSettings:
        return ScorerSettings(cache=self.cache, dynamic=self.dynamic)

    def scorer_of(self, ensemble: Ensemble) -> ScorerSettings:
        """:attr:`scorer` with each model's gradient statistics, gathered where no file has them."""
        dynamic, progress = self.dynamic, progress_of(self)
        if dynamic is None:
            return self.scorer
        paths = dynamic.statistics_paths(self.path)
        statistics = [
            statistics_of(
                Ensemble([model], ensemble.task),
                path,
                columns=dynamic.columns,
                segment=dynamic.segment,
                batches=dynamic.batches,
                progress=progress,
            )
            for model, path in zip(ensemble.models, paths, strict=True)
        ]
        return replace(self.scorer, statistics=statistics)


@dataclass(frozen=True, kw_only=True)
class SingleModelOptions(ProgressOptions, ModelOptions):
    """A single model."""

    path: str = option("checkpoint", REQUIRED, reads=True)


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """What is read."""

    gen_subset: str = option("split to read", "test")
    eval_window: int | None = option(
        "tokens evaluated at once; memory and speed, not results (default: as trained)",
        type=positive,
    )


@dataclass(frozen=True, kw_only=True)
class PictureOptions:
    """Where to draw."""

    picture: str | None = option("also draw the result into this file, such as NAME.png")
    overwrite: bool = option("replace existing outputs", False)


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Plain text, one sentence a line."""

    input: str = option("file to read (default: standard input)", "-", reads=True)
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


def ensemble_of(
    settings: ModelOptions, eval_window: int | None = None, dropout_scale: float = 1.0
) -> Ensemble:
    """The models on their device, by :func:`fairseq_doc.evaluation.ensemble.load_ensemble`."""
    dynamic = getattr(settings, "dynamic", None)
    precision = settings.matmul_precision if dynamic is None else "float32"
    ensemble = load_ensemble(settings.path, settings.data, eval_window, precision, dropout_scale)
    return ensemble.to(settings.device)


def progress_of(settings: ProgressOptions) -> Progress:
    """(iterable with a length, name) -> the same, with fairseq's progress bar on standard error."""
    if settings.no_progress_bar:
        return no_progress
    for name in ("fairseq.logging.progress_bar", "fairseq_doc.analysis"):
        logging.getLogger(name).setLevel(logging.INFO)

    def bar(iterable: Any, name: str) -> Iterable[Any]:
        shown = progress_bar(iterable, log_interval=settings.log_interval, prefix=name)
        for item in shown:
            yield item
            shown.log({})

    return bar


def figures_of_lines(
    lines: Sequence[str], tokenized: Sequence[Sequence[str]], form: TextForm, scored: Evaluation
) -> dict[str, Any]:
    """:func:`written_figures` of lines that were read and the tokens of each."""
    tokens = sum(len(words) + 1 for words in tokenized)
    return written_figures(scored, count(with_line_ends(lines, form.unit), tokens))


def written_figures(scored: Evaluation, counts: RawCounts) -> dict[str, Any]:
    """Entries of a result: the figures of :func:`as_written`, and ``raw_counts``."""
    return {**as_written(scored.nll / scored.tokens, counts), "raw_counts": asdict(counts)}


def written_text(result: dict[str, Any]) -> str:
    """These figures in words."""
    return (
        "perplexity {} a word, {bits_per_character:.4f} bits a character, {bits_per_byte:.4f} bits "
        "a byte".format(perplexity_text(result["word_perplexity"]), **result)
    )


def unknown_words(unknown: Counter[str], unit: str, done: str = "scored") -> str:
    """A line about words outside the dictionary, the most frequent first, and what was done to
    them."""
    words = (word if len(word) < 80 else shown(word) for word, _ in unknown.most_common())
    return (
        f"{unit}s outside the dictionary, {done} as <unk>: {unknown.total():,}, of "
        f"{len(unknown):,} types: {first_ten(words)}"
    )
