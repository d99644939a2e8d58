"""Options shared by several commands, and the objects that they describe."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from fairseq_doc.adaptation.cache import CacheSettings
from fairseq_doc.adaptation.dynamic import DynamicSettings
from fairseq_doc.adaptation.gradient_statistics import statistics_of
from fairseq_doc.cli.outputs import PICTURES, first_ten
from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.evaluation.ensemble import Ensemble, load_ensemble
from fairseq_doc.evaluation.perplexity import Evaluation, as_written, perplexity_text
from fairseq_doc.evaluation.scorer import ScorerSettings
from fairseq_doc.evaluation.scoring import MAX_TOKENS, MAX_WORDS, STATES, check_sentences
from fairseq_doc.files import text_lines
from fairseq_doc.ops.matmul import PRECISIONS
from fairseq_doc.options import REQUIRED, group, option
from fairseq_doc.preparation.raw_counts import RawCounts, count, with_line_ends
from fairseq_doc.preparation.text_form import BYTE, TextForm, form_of


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """Checkpoints and their data."""

    data: str = option(
        "folder written by fairseq-preprocess, for its dictionaries and splits",
        REQUIRED,
        positional=True,
        reads=True,
    )
    path: str = option(
        "checkpoint; a.pt:b.pt:... averages the probabilities of an ensemble", REQUIRED, reads=True
    )


@dataclass(frozen=True, kw_only=True)
class ModelOptions(CheckpointOptions):
    """How models are run."""

    cpu: bool = option("do not use a GPU", False)
    matmul_precision: str | None = option(
        "precision of the large matrix products (default: as in training); bfloat16 is faster on "
        "processors with AMX or AMD's AVX512_BF16 and on GPUs; others use float32, with a warning",
        choices=PRECISIONS,
    )

    @property
    def device(self) -> str:
        return "cuda" if torch.cuda.is_available() and not self.cpu else "cpu"


@dataclass(frozen=True, kw_only=True)
class ProgressOptions:
    """How progress is shown."""

    no_progress_bar: bool = option("do not show progress", False)
    log_interval: int = option(
        "batches between progress lines when standard error is a file", 100, least=1
    )


@dataclass(frozen=True, kw_only=True)
class AdaptationOptions(ProgressOptions, ModelOptions):
    """Options of a cache and of dynamic evaluation."""

    cache: CacheSettings | None = group("cache", switch="window")
    dynamic: DynamicSettings | None = group(
        "dynamic",
        switch="dynamic",
        help="dynamic evaluation: the model learns from each segment after scoring it; in float32",
    )

    def __post_init__(self) -> None:
        _ = self.scorer  # its constructor checks the settings
        if self.dynamic is not None:
            if self.matmul_precision not in (None, "float32"):
                raise FairseqDocError(
                    "--dynamic computes in float32: leave out --matmul-precision; got "
                    f"{self.matmul_precision}"
                )
            self.dynamic.statistics_paths(self.path)

    @property
    def scorer(self) -> ScorerSettings:
        return ScorerSettings(cache=self.cache, dynamic=self.dynamic)

    def scorer_of(self, ensemble: Ensemble) -> ScorerSettings:
        """:attr:`scorer` with the gradient statistics of each model, which are computed if no file
        has them."""
        dynamic = self.dynamic
        if dynamic is None:
            return self.scorer
        paths = dynamic.statistics_paths(self.path)
        models = [Ensemble([model], ensemble.task) for model in ensemble.models]
        limits = (dynamic.columns, dynamic.segment, dynamic.batches)
        statistics = [
            statistics_of(model, path, *limits) for model, path in zip(models, paths, strict=True)
        ]
        return replace(self.scorer, statistics=statistics)


@dataclass(frozen=True, kw_only=True)
class SingleModelOptions(ProgressOptions, ModelOptions):
    """A single model."""

    path: str = option("checkpoint", REQUIRED, reads=True)


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """The split that is read."""

    gen_subset: str = option("split to read", "test")
    eval_window: int | None = option(
        "tokens evaluated at once; changes memory and speed, not results (default: as in training)",
        least=1,
        without=("dynamic", "samples"),  # whose windows have lengths of their own
    )


@dataclass(frozen=True, kw_only=True)
class PictureOptions:
    """The file for a plot."""

    picture: str | None = option(
        "also plot the result into this file, such as NAME.png", writes=PICTURES
    )
    overwrite: bool = option("replace existing outputs", False)


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Plain text, one sentence per line."""

    input: str = option("file to read (default: standard input)", "-", reads=True)
    state: str = option(
        "fresh: each sentence starts after </s> from a zero state; carried: the lines are one "
        "continuous text, as in eval-lm, whose first word is not scored",
        STATES[0],
        choices=STATES,
    )
    empty_lines: bool = option(
        "with --state fresh, score the end mark of empty lines; otherwise they are an error", False
    )
    max_words: int = option("maximum number of words or bytes per line", MAX_WORDS, least=1)
    max_tokens: int = option(
        "tokens scored at once; changes memory and speed, not results",
        MAX_TOKENS,
        least=1,
        without=("dynamic",),
    )

    def read(self, data: str) -> tuple[list[str], TextForm]:
        """The lines, and the form of the text in the folder ``data``."""
        form = form_of(data)
        errors = "surrogateescape" if form.unit == BYTE else "strict"
        return list(text_lines(self.input, errors=errors)), form

    def sentences(self, lines: Sequence[str], form: TextForm) -> list[list[str]]:
        """The tokens of each line."""
        at = "" if self.input == "-" else f"{self.input}: "
        return check_sentences(lines, self.state, self.empty_lines, self.max_words, at, form)


def ensemble_of(settings: ModelOptions, dropout_scale: float = 1.0) -> Ensemble:
    """The models on their device, by :func:`fairseq_doc.evaluation.ensemble.load_ensemble`."""
    eval_window = getattr(settings, "eval_window", None)
    dynamic = getattr(settings, "dynamic", None)
    precision = settings.matmul_precision if dynamic is None else "float32"
    ensemble = load_ensemble(settings.path, settings.data, eval_window, precision, dropout_scale)
    return ensemble.to(settings.device)


def figures_of_lines(
    lines: Sequence[str], tokenized: Sequence[Sequence[str]], form: TextForm, scored: Evaluation
) -> dict[str, Any]:
    """:func:`written_figures` for lines and the tokens of each."""
    tokens = sum(len(words) + 1 for words in tokenized)
    return written_figures(scored, count(with_line_ends(lines, form.unit), tokens))


def written_figures(scored: Evaluation, counts: RawCounts) -> dict[str, Any]:
    """Entries of a result that do not depend on the tokenisation: ``word_perplexity``,
    ``bits_per_character`` and ``bits_per_byte``, see :func:`as_written`, and ``raw_counts``, the
    size of the raw text."""
    return {**as_written(scored.nll / scored.tokens, counts), "raw_counts": asdict(counts)}


def written_text(result: dict[str, Any]) -> str:
    """The text for these entries of a result."""
    return (
        "perplexity {} per word, {bits_per_character:.4f} bits per character, {bits_per_byte:.4f} bits "
        "per byte".format(perplexity_text(result["word_perplexity"]), **result)
    )


def unknown_words(unknown: Counter[str], unit: str, done: str = "scored") -> str:
    """A line about words outside the dictionary, the most frequent first; ``done`` says how they
    were treated."""
    words = (word if len(word) < 80 else shown(word) for word, _ in unknown.most_common())
    return (
        f"{unit}s outside the dictionary, {done} as <unk>: {unknown.total():,}, of "
        f"{len(unknown):,} types: {first_ten(words)}"
    )
