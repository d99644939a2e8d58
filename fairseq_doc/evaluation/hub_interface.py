"""Trained models in Python.

lm = LSTMDocLanguageModel.from_pretrained("checkpoints/ptb", "checkpoint_best.pt", data)
lm.score(["the company said it will"])[0].log_prob

mt = LSTMLuongDoc.from_pretrained("checkpoints/en-de", "checkpoint_best.pt", data)
mt.translate(["Two men sit on a bench."])
"""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from fairseq_doc.evaluation.ensemble import Ensemble, LoadedModels, load_ensemble
from fairseq_doc.evaluation.perplexity import Evaluation, evaluate
from fairseq_doc.evaluation.sampling import sample_text
from fairseq_doc.evaluation.scoring import MAX_TOKENS, check_sentences, score_text
from fairseq_doc.evaluation.surprisals import score_spans, spans_of
from fairseq_doc.evaluation.translation import load_translator
from fairseq_doc.models.language_model import MixtureLanguageModel
from fairseq_doc.models.lstm_luong_doc import LSTMLuongDoc


class PretrainedLanguageModel(Ensemble):
    """What ``from_pretrained`` returns for a language model. fairseq expects its attributes
    ``models`` and ``task``."""

    def score(
        self,
        sentences: str | Sequence[str],
        state: str = "fresh",
        empty_sentences: bool = False,
        max_tokens: int = MAX_TOKENS,
    ) -> Any:
        """The :class:`SentenceScore` of a sentence, or a list of them for a list: words separated
        by blanks, or any text if the model reads bytes. An empty sentence is refused, unless
        ``empty_sentences``: then its end mark is scored. ``state`` and ``max_tokens``: see
        :mod:`fairseq_doc.evaluation.scoring`."""
        lines = _listed(sentences)
        tokenized = check_sentences(lines, state, empty_sentences, max_words=None, form=self.form)
        scores = score_text(self, tokenized, state, max_tokens)
        return scores[0] if isinstance(sentences, str) else scores

    def surprisals(
        self,
        sentences: str | Sequence[str],
        state: str = "fresh",
        empty_sentences: bool = False,
        max_tokens: int = MAX_TOKENS,
        units: bool = False,
    ) -> Any:
        """The :class:`SpanScore` of each word as written (with ``units``, of each token) and of the
        end mark, which ``fairseq-doc score --tsv`` writes: a list for a sentence, a list of lists
        for a list. Other arguments as of :meth:`score`."""
        lines = _listed(sentences)
        tokenized = check_sentences(lines, state, empty_sentences, max_words=None, form=self.form)
        scores = score_text(self, tokenized, state, max_tokens, entropies=True)
        spans = spans_of(None if units else self.form, lines, tokenized)
        pairs = zip(spans, scores, strict=True)
        rows = [list(score_spans(*pair, self.dictionary)) for pair in pairs]
        return rows[0] if isinstance(sentences, str) else rows

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


def _listed(sentences: str | Sequence[str]) -> Sequence[str]:
    return [sentences] if isinstance(sentences, str) else sentences


def _load(
    load: Callable[..., LoadedModels],
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
    return load(paths, data, precision=precision)


_load_language_model = partial(load_ensemble, kind=PretrainedLanguageModel)
MixtureLanguageModel.load_pretrained = staticmethod(partial(_load, _load_language_model))
LSTMLuongDoc.load_pretrained = staticmethod(partial(_load, load_translator))
