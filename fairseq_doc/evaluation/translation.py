"""Plain text -> its translations, by fairseq's beam search, which no other file calls.

Axes: B sentences, S source time, T output time, both with their end mark.
"""

import os
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from fairseq.utils import apply_to_sample, resolve_max_positions

from fairseq_doc.errors import FairseqDocError, require
from fairseq_doc.evaluation.ensemble import LoadedModels, Paths, load_models
from fairseq_doc.evaluation.progress import track
from fairseq_doc.evaluation.scoring import MAX_TOKENS, batches_by_length
from fairseq_doc.options import check_ranges, option
from fairseq_doc.preparation.text_form import TextForm, form_of_side
from fairseq_doc.preparation.tokenization import why_unusable

TRANSLATION = "translation"
MAX_LENPEN = 10  # 200^10 still fits into float32


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The search for outputs, with fairseq-generate's names and defaults."""

    beam: int = option("hypotheses kept at every step", 5, least=1, without=("tune-input",))
    lenpen: float = option(
        "length penalty L: the best hypothesis has the largest log P / length^L, the end mark "
        "counted; a larger L favours longer outputs",
        1.0,
        without=("tune-input",),
    )
    nbest: int = option(
        "hypotheses of a sentence, the best first; at most the beam",
        1,
        least=1,
        without=("tune-input",),
    )
    unkpen: float = option("subtracted from the log-probability of <unk>", 0.0)
    max_len_b: int = option(
        "maximum number of units in an output, without its end mark", 200, least=1
    )

    def __post_init__(self) -> None:
        check_ranges(SearchOptions, self)
        in_range = abs(self.lenpen) <= MAX_LENPEN
        require(in_range, "lenpen", f"between {-MAX_LENPEN} and {MAX_LENPEN}", self.lenpen)
        require(self.nbest <= self.beam, "nbest", f"at most the beam, {self.beam}", self.nbest)


USUAL = SearchOptions()


@dataclass(frozen=True)
class Hypothesis:
    """An output; logarithms are natural."""

    text: str  # plain
    tokens: int  # T
    log_prob: float  # of the units and the end mark, less the penalty of each <unk>
    score: float  # log_prob / T^L, by which hypotheses are ranked


@dataclass(frozen=True)
class Found:
    """The k hypotheses of a sentence that ended first. A length penalty ranks them without changing
    the search: fairseq keeps a beam by log P, until as many hypotheses have ended."""

    texts: list[str]
    lengths: list[int]  # T of each
    log_probs: torch.Tensor  # (k,)

    def order(self, lenpen: float) -> tuple[list[float], list[int]]:
        """The scores as fairseq computes them, the best first, and the indices of their hypotheses;
        of equal scores that of the likelier hypothesis comes first."""
        norms = torch.tensor([length**lenpen for length in self.lengths])
        scores, places = (self.log_probs / norms).sort(descending=True, stable=True)
        return scores.tolist(), places.tolist()

    def ranked(self, lenpen: float) -> list[Hypothesis]:
        """The best first."""
        return [
            Hypothesis(self.texts[i], self.lengths[i], self.log_probs[i].item(), score)
            for score, i in zip(*self.order(lenpen), strict=True)
        ]


EMPTY = Found([""], [1], torch.zeros(1))  # an empty line stays empty


@dataclass(frozen=True)
class Source:
    """A line as the models read it."""

    indices: torch.Tensor  # (S,) of its units, the last </s>
    unknown: list[str]  # units outside the dictionary, read as <unk>
    dropped: int = 0  # units beyond the models' limit


class Translator(LoadedModels):
    """M >= 1 encoder-decoders: P(y) = mean_m P_m(y) at every unit. ``task`` is the ``translation``
    task with their dictionaries. ``LSTMLuongDoc.from_pretrained`` returns one."""

    @cached_property
    def source_form(self) -> TextForm:
        """How a line becomes units, by the task's data folder."""
        return form_of_side(self.task.cfg.data, self.task.cfg.source_lang)

    @cached_property
    def target_form(self) -> TextForm:
        """How units become a line."""
        return form_of_side(self.task.cfg.data, self.task.cfg.target_lang)

    @property
    def longest_source(self) -> int:
        """Most units of a source with its end mark."""
        of_models = [model.max_positions() for model in self.models]
        return resolve_max_positions(self.task.max_positions(), *of_models)[0]

    def source(self, units: Sequence[str], truncate: bool = False, at: str = "") -> Source:
        """Encode a sentence given by its units, without an end mark. With ``truncate`` extra units are
        dropped; otherwise a sentence that is too long raises a ``FairseqDocError`` that begins with
        ``at``."""
        dictionary, most = self.task.source_dictionary, self.longest_source - 1
        if len(units) > most and not truncate:
            raise FairseqDocError(
                f"{at}expected at most {most:,} units, as in training (max_source_positions); got "
                f"{len(units):,}: split the line, or let translate truncate it (truncate_source)",
                "max_source_positions",
                "truncate_source",
            )
        read = units[:most]
        indices = torch.tensor([*map(dictionary.index, read), dictionary.eos()])
        unknown = [unit for unit in read if unit not in dictionary]
        return Source(indices, unknown, len(units) - len(read))

    def sources(self, lines: Sequence[str], truncate: bool = False, name: str = "") -> list[Source]:
        """Encode lines of plain text, which may be empty. Raises ``FairseqDocError`` for a line
        that is too long, or that :func:`why_unusable` refuses; ``name`` is their file's, for
        errors."""
        form, sources = self.source_form, []
        for number, line in enumerate(lines, start=1):
            at = f"{name}: line {number}" if name else f"line {number}"
            words = form.words(line)
            if words and (reason := why_unusable(words, form.bpe)):
                raise FairseqDocError(f"{at} {reason}; expected plain text")
            sources.append(self.source(form.units(words).split(), truncate, f"{at}: "))
        return sources

    def generator(self, settings: SearchOptions) -> Any:
        """fairseq's generator of these models."""
        return self.task.build_generator(self.models, Namespace(**vars(settings)))

    def generate(self, sources: Sequence[Source], generator: Any) -> list[list[dict[str, Any]]]:
        """fairseq's hypotheses of each source of a batch, the best first."""
        indices = [source.indices for source in sources]
        dataset = self.task.build_dataset_for_inference(indices, list(map(len, indices)))
        sample = dataset.collater([dataset[number] for number in range(len(indices))])
        sample = apply_to_sample(lambda x: x.to(self.device), sample)
        found = self.task.inference_step(generator, self.models, sample)
        return [found[row] for row in sample["id"].argsort().tolist()]  # the collater sorts them

    def search(
        self,
        sources: Sequence[Source],
        settings: SearchOptions = USUAL,
        max_tokens: int = MAX_TOKENS,
    ) -> list[Found]:
        """What the search finds for each source, whatever the length penalty; nothing is searched
        for an empty one. ``max_tokens``: units of sources translated at once, with padding; they
        change memory and speed, not results beyond rounding."""
        generator = self.generator(replace(settings, lenpen=0.0))
        found = [EMPTY] * len(sources)
        places = [place for place, source in enumerate(sources) if len(source.indices) > 1]
        batches = batches_by_length([len(sources[place].indices) for place in places], max_tokens)
        for batch in track(batches, "translate"):
            chosen = [places[number] for number in batch]
            finished = self.generate([sources[place] for place in chosen], generator)
            for place, hypotheses in zip(chosen, finished, strict=True):
                found[place] = self._found(hypotheses)
        return found

    def _found(self, hypotheses: list[dict[str, Any]]) -> Found:
        dictionary = self.task.target_dictionary
        hidden = dictionary.bos(), dictionary.eos()  # fairseq does not show them
        tokens = [one["tokens"].tolist() for one in hypotheses]
        units = ([dictionary[i] for i in own if i not in hidden] for own in tokens)
        scores = torch.stack([one["score"] for one in hypotheses]).cpu()
        return Found(list(map(self.target_form.text, units)), list(map(len, tokens)), scores)

    def hypotheses(
        self,
        sources: Sequence[Source],
        settings: SearchOptions = USUAL,
        max_tokens: int = MAX_TOKENS,
    ) -> list[list[Hypothesis]]:
        """The best ``nbest`` hypotheses of each source; arguments as of :meth:`search`."""
        found = self.search(sources, settings, max_tokens)
        return [one.ranked(settings.lenpen)[: settings.nbest] for one in found]

    def nbest(
        self, sentences: Sequence[str], truncate_source: bool = False, **settings: Any
    ) -> list[list[Hypothesis]]:
        """The ``nbest`` hypotheses of each sentence of plain text, the best first. ``settings``:
        fields of :class:`SearchOptions`."""
        sources = self.sources(sentences, truncate_source)
        return self.hypotheses(sources, SearchOptions(**settings))

    def translate(
        self, sentences: str | Sequence[str], truncate_source: bool = False, **settings: Any
    ) -> Any:
        """Translate a sentence or a list, plain text into plain text; an empty one stays empty.
        Arguments as of :meth:`nbest`."""
        if isinstance(sentences, str):
            return self.translate([sentences], truncate_source, **settings)[0]
        return [best.text for best, *_ in self.nbest(sentences, truncate_source, **settings)]


def load_translator(
    paths: Paths, data: str | os.PathLike, device: str = "cpu", precision: str | None = None
) -> Translator:
    """Load a :class:`Translator`; ``data`` is a folder of ``fairseq-preprocess``, other arguments
    and errors as of :func:`fairseq_doc.evaluation.ensemble.load_models`."""
    if not any(Path(data).glob("dict.*.txt")):
        raise FairseqDocError(
            f"expected a folder of fairseq-preprocess, with a dictionary for each side; got {data}"
        )
    models, task = load_models(paths, TRANSLATION, {"data": os.fspath(data)}, precision)
    return Translator(models, task).to(device)
