"""What tests of evaluation, adaptation and analysis share: models whose probabilities differ, their
task, their truth."""

import torch
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.translation import Translator
from fairseq_doc.tasks.bptt_language_modeling import (
    BpttLanguageModelingConfig,
    BpttLanguageModelingTask,
)

from ..conftest import config_of, small_dictionary, small_model


def peaked_model(seed=0, **settings):
    """A small model in evaluation whose probabilities are far from even."""
    model = small_model(seed=seed, **settings).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
        for matrix in {model.decoder.embedding, model.decoder.output.weight}:
            matrix.mul_(6)
        model.decoder.output.bias.normal_()
    return model


EOS, UNK = 2, 3
KNOWN = {f"w{i}": 4 + i for i in range(16)} | {"</s>": EOS, "<unk>": UNK}


def index(word):
    """A word's index in the small dictionary."""
    return KNOWN.get(word, UNK)


def encoded(words):
    """The indices of a sentence with its end mark."""
    return [*map(index, words), EOS]


def with_bias(model, word, value):
    """The model, with this bias of the output for one word."""
    with torch.no_grad():
        model.decoder.output.bias[word] = value
    return model


def nlls_by_hand(model, columns, length):
    """The NLL (B, t) of each segment of columns (B, T), with a carried state, from the model's
    parts. The model may be changed between two segments."""
    lstm, output, state = model.decoder.lstm, model.decoder.output, None
    for start in range(0, columns.size(1) - 1, length):
        tokens = columns[:, start : start + length + 1]
        x = model.decoder.embedded(tokens[:, :-1].t())
        outputs, _, state = lstm(x, state or lstm.zero_state(len(columns), x))
        state = [tuple(part.detach() for part in layer) for layer in state]
        params, _ = output([h.transpose(0, 1) for h in [x, *outputs]])
        yield -output.log_probs(params).gather(2, tokens[:, 1:, None]).squeeze(2)


class ProgressSpy:
    """A ``track`` that notes (name, length) of what it is given."""

    def __init__(self):
        self.seen = []

    def __call__(self, iterable, name):
        self.seen.append((name, len(iterable)))
        return iterable


def ensemble(*models, folder="none", dictionary=None, **changes):
    """An ensemble, over the small dictionary by default; its task reads splits of ``folder``."""
    settings = {"data": str(folder), "bptt": 7, "max_length_delta": 3, "eval_window": 12}
    settings["tokens_per_sample"] = 7
    cfg = config_of(BpttLanguageModelingConfig, **{**settings, **changes})
    return Ensemble(models, BpttLanguageModelingTask(cfg, dictionary or small_dictionary()))


def translator(*models, longest=12, folder="none"):
    """Translation models over the small dictionaries; a source has at most ``longest`` symbols."""
    cfg = TranslationConfig(data=str(folder), source_lang="s", target_lang="t")
    cfg.max_source_positions = cfg.max_target_positions = longest
    dictionaries = models[0].encoder.dictionary, models[0].decoder.dictionary
    return Translator(models, TranslationTask(cfg, *dictionaries))


@torch.no_grad()
def probs_by_hand(models, source, temperature=1.0):
    """mean_m of P_m^(1/T), renormalised, (B, T, V), from zeros and in one window."""
    total = 0
    for model in models:
        powers = model.get_normalized_probs(model(source), log_probs=False) ** (1 / temperature)
        total = total + powers / powers.sum(-1, keepdim=True)
    return total / len(models)


def log_probs_by_hand(models, tokens):
    """[log P of each of ``tokens`` but the first], a list of indices, in one window."""
    tokens = torch.tensor(tokens)
    if len(tokens) == 1:
        return torch.zeros(0)
    probs = probs_by_hand(models, tokens[None, :-1])[0]
    return probs.gather(1, tokens[1:, None]).squeeze(1).log()
