"""Trained language models in Python.

lm = LSTMDocLanguageModel.from_pretrained("checkpoints/ptb", "checkpoint_best.pt", data)
lm.score(["the company said it will"])[0].log_prob
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any, overload

from fairseq_doc.evaluation.ensemble import Ensemble, load_ensemble
from fairseq_doc.evaluation.perplexity import Evaluation, evaluate
from fairseq_doc.evaluation.sampling import sample_text
from fairseq_doc.evaluation.scoring import MAX_TOKENS, SentenceScore, check_sentences, score_text
from fairseq_doc.evaluation.written_words import PartScore, parts_of, score_parts
from fairseq_doc.models.language_model import MixtureLanguageModel


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
        bytes; of an empty one, with ``empty_sentences``, the end mark; else it is refused. ``state``
        and ``max_tokens``: see :mod:`fairseq_doc.evaluation.scoring`."""
        lines = [sentences] if isinstance(sentences, str) else sentences
        tokenized = check_sentences(lines, state, empty_sentences, max_words=None, form=self.form)
        scores = score_text(self, tokenized, state, max_tokens).sentences
        return scores[0] if isinstance(sentences, str) else scores

    def surprisals(
        self,
        sentences: str | Sequence[str],
        state: str = "fresh",
        empty_sentences: bool = False,
        max_tokens: int = MAX_TOKENS,
        units: bool = False,
    ) -> list[PartScore] | list[list[PartScore]]:
        """Surprisal and entropy, in bits, of each word as written and of the end mark, or with
        ``units`` of each token; of a sentence or a list, as ``fairseq-doc score --tsv``. Other
        arguments as of :meth:`score`."""
        lines = [sentences] if isinstance(sentences, str) else sentences
        tokenized = check_sentences(lines, state, empty_sentences, max_words=None, form=self.form)
        if units:
            parts = [[(word, 1) for word in words] for words in tokenized]
        else:
            parts = parts_of(self.form, lines, tokenized)
        scores = score_text(self, tokenized, state, max_tokens, entropies=True).sentences
        rows = [
            list(score_parts(own, score, self.dictionary))
            for own, score in zip(parts, scores, strict=True)
        ]
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


def load_pretrained(
    folder: str, checkpoint_file: str, data: str | os.PathLike, precision: str | None = None
) -> PretrainedLanguageModel:
    """See :meth:`fairseq_doc.models.language_model.MixtureLanguageModel.from_pretrained`."""
    data = os.fspath(data)
    if data.startswith("."):
        data = os.path.join(folder, data)
    paths = [os.path.join(folder, name) for name in checkpoint_file.split(os.pathsep)]
    ensemble = load_ensemble(paths, data, precision=precision)
    return PretrainedLanguageModel(ensemble.models, ensemble.task)


MixtureLanguageModel.load_pretrained = staticmethod(load_pretrained)
