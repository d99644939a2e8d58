"""Trained language models from Python.

lm = LSTMDocLanguageModel.from_pretrained("checkpoints/ptb", "checkpoint_best.pt", data)
lm.score(["the company said it will"])[0].log_prob
"""

import os

from fairseq_doc.evaluation.ensemble import Ensemble, load_ensemble
from fairseq_doc.evaluation.perplexity import evaluate
from fairseq_doc.evaluation.sampling import sample_text
from fairseq_doc.evaluation.scoring import MAX_TOKENS, check_sentences, score_text


class PretrainedLanguageModel(Ensemble):
    """One model or an ensemble with what is done with them; ``models`` and ``task`` are fairseq's."""

    def score(self, sentences, state="fresh", empty_sentences=False, max_tokens=MAX_TOKENS):
        """Score sentences, strings of words apart by blanks.

        Args:
            sentences: a string, or a list of them.
            state, max_tokens: see :mod:`fairseq_doc.evaluation.scoring`.
            empty_sentences: score their end mark, instead of an error.

        Returns:
            :class:`fairseq_doc.evaluation.scoring.SentenceScore`, or a list of them.

        Raises:
            FairseqDocError: an empty sentence.
        """
        if isinstance(sentences, str):
            return self.score([sentences], state, empty_sentences, max_tokens)[0]
        tokenized = check_sentences(sentences, state, empty_sentences, max_words=None)
        return score_text(self, tokenized, state, max_tokens).sentences

    def perplexity(self, split, columns=1):
        """:class:`fairseq_doc.evaluation.perplexity.Evaluation` of a split of the data folder."""
        return evaluate(self, split, columns)

    def sample(self, prompt="", length=100, **settings):
        """Continue a prompt; the drawn words of each sample, see
        :func:`fairseq_doc.evaluation.sampling.sample_text`."""
        return sample_text(self, prompt.split(), length, **settings)


def from_pretrained(folder, checkpoint_file, data):
    """See :meth:`fairseq_doc.models.lstm_doc_lm.LSTMDocLanguageModel.from_pretrained`."""
    data = os.fspath(data)
    if data.startswith("."):
        data = os.path.join(folder, data)
    paths = [os.path.join(folder, name) for name in checkpoint_file.split(os.pathsep)]
    ensemble = load_ensemble(paths, data)
    return PretrainedLanguageModel(ensemble.models, ensemble.task)
