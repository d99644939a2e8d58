"""Trained models in Python.

lm = LSTMDocLanguageModel.from_pretrained("checkpoints/ptb", "checkpoint_best.pt", data)
lm.score(["the company said it will"])[0].log_prob

mt = LSTMLuongDoc.from_pretrained("checkpoints/en-de", "checkpoint_best.pt", data)
mt.translate(["Two men sit on a bench."])
"""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, overload

from fairseq_doc.evaluation.ensemble import Ensemble, LoadedModels, load_ensemble
from fairseq_doc.evaluation.perplexity import Evaluation, evaluate
from fairseq_doc.evaluation.sampling import sample_text
from fairseq_doc.evaluation.scoring import MAX_TOKENS, SentenceScore, check_sentences, score_text
from fairseq_doc.evaluation.surprisals import SpanScore, score_spans, spans_of
from fairseq_doc.evaluation.translation import (
    Hypothesis,
    SearchOptions,
    Translator,
    load_translator,
)
from fairseq_doc.models.language_model import MixtureLanguageModel
from fairseq_doc.models.lstm_luong_doc import LSTMLuongDoc


class PretrainedLanguageModel(Ensemble):
    """An :class:`Ensemble` with methods for its uses. fairseq expects the attributes ``models`` and
    ``task`` of what ``from_pretrained`` returns."""

    @overload
    def score(self, sentences: str, *args: Any, **settings: Any) -> SentenceScore: ...

    @overload
    def score(self, sentences: list[str], *args: Any, **settings: Any) -> list[SentenceScore]: ...

    def score(
        self,
        sentences: str | Sequence[str],
        state: str = "fresh",
        empty_sentences: bool = False,
        max_tokens: int = MAX_TOKENS,
    ) -> SentenceScore | list[SentenceScore]:
        """Score a sentence or a list: words separated by blanks, or any text where the model reads
        bytes. An empty one is refused, or with ``empty_sentences`` its end mark scored. ``state``
        and ``max_tokens``: see :mod:`fairseq_doc.evaluation.scoring`."""
        _, scores = self._scored(sentences, state, empty_sentences, max_tokens)
        return scores[0] if isinstance(sentences, str) else scores

    def surprisals(
        self,
        sentences: str | Sequence[str],
        state: str = "fresh",
        empty_sentences: bool = False,
        max_tokens: int = MAX_TOKENS,
        units: bool = False,
    ) -> list[SpanScore] | list[list[SpanScore]]:
        """Surprisal and entropy, in bits, of each word as written and of the end mark, or with
        ``units`` of each token; of a sentence or a list, as ``fairseq-doc score --tsv``. Other
        arguments as of :meth:`score`."""
        lines, scores = self._scored(sentences, state, empty_sentences, max_tokens, entropies=True)
        tokenized = [score.words[:-1] for score in scores]
        spans = [[(word, 1) for word in words] for words in tokenized]
        if not units:
            spans = spans_of(self.form, lines, tokenized)
        pairs = zip(spans, scores, strict=True)
        rows = [list(score_spans(*pair, self.dictionary)) for pair in pairs]
        return rows[0] if isinstance(sentences, str) else rows

    def _scored(
        self,
        sentences: str | Sequence[str],
        state: str,
        empty_sentences: bool,
        max_tokens: int,
        entropies: bool = False,
    ) -> tuple[Sequence[str], list[SentenceScore]]:
        lines = [sentences] if isinstance(sentences, str) else sentences
        tokenized = check_sentences(lines, state, empty_sentences, max_words=None, form=self.form)
        scored = score_text(self, tokenized, state, max_tokens, entropies=entropies)
        return lines, scored.sentences

    def perplexity(self, split: str, columns: int = 1) -> Evaluation:
        """Evaluate a split of the data folder."""
        return evaluate(self, split, columns)

    def sample(self, prompt: str = "", length: int = 100, **settings: Any) -> list[list[str]]:
        """Continue a prompt: the tokens of each sample, see
        :func:`fairseq_doc.evaluation.sampling.sample_text`; :meth:`text` joins them."""
        return sample_text(self, self.form.tokens(prompt), length, **settings)

    def text(self, tokens: Iterable[str]) -> str:
        """The plain text of tokens, such as those of a sample."""
        return self.form.text(tokens)


class PretrainedTranslator(Translator):
    """A :class:`Translator` with methods for its uses."""

    @overload
    def translate(self, sentences: str, *args: Any, **settings: Any) -> str: ...

    @overload
    def translate(self, sentences: Sequence[str], *args: Any, **settings: Any) -> list[str]: ...

    def translate(
        self, sentences: str | Sequence[str], truncate_source: bool = False, **settings: Any
    ) -> str | list[str]:
        """Translate a sentence or a list, plain text into plain text; an empty one stays empty.
        ``settings``: fields of :class:`fairseq_doc.evaluation.translation.SearchOptions`."""
        if isinstance(sentences, str):
            return self.translate([sentences], truncate_source, **settings)[0]
        return [best.text for best, *_ in self.nbest(sentences, truncate_source, **settings)]

    def nbest(
        self, sentences: Sequence[str], truncate_source: bool = False, **settings: Any
    ) -> list[list[Hypothesis]]:
        """The ``nbest`` hypotheses of each sentence, the best first; arguments as of
        :meth:`translate`."""
        sources = self.sources(sentences, truncate_source)
        return self.hypotheses(sources, SearchOptions(**settings))


def _pretrained(
    load: Callable[..., LoadedModels],
    kind: Callable[..., Any],
    folder: str,
    checkpoint_file: str,
    data: str | os.PathLike,
    precision: str | None = None,
) -> Any:
    """See :meth:`fairseq_doc.models.mixture_model.MixtureModel.from_pretrained`."""
    data = os.fspath(data)
    if data.startswith("."):
        data = os.path.join(folder, data)
    paths = [os.path.join(folder, name) for name in checkpoint_file.split(os.pathsep)]
    loaded = load(paths, data, precision=precision)
    return kind(loaded.models, loaded.task)


MixtureLanguageModel.load_pretrained = staticmethod(
    partial(_pretrained, load_ensemble, PretrainedLanguageModel)
)
LSTMLuongDoc.load_pretrained = staticmethod(
    partial(_pretrained, load_translator, PretrainedTranslator)
)
