"""Shared by the tests of lstm_luong_doc: sources and targets, one model for each option, and the same
model written sentence by sentence and step by step."""

import functools

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from ..conftest import small_dictionary, small_translation_model

V = 20
PAD, EOS, UNK = 1, 2, 3
# Ragged sources, each ended as fairseq does.
SOURCES = [[5, 6, 7, 8, EOS], [9, EOS], [10, 4, 11, EOS]]
TARGETS = [[EOS, 12, 13], [EOS, 5, 6, 7, 8], [EOS]]  # shifted by one
NEXT_WORDS = [[*row[1:], EOS] for row in TARGETS]
JOINT = (small_dictionary(), small_dictionary())
OPTIONS = {
    "default": {},
    "embedding only": {"doc_components": "3,0,0,0"},
    "every layer": {"doc_components": "1,2,1,1"},
    "h1 alone": {"doc_components": "0,2,0,0"},
    "mixture of softmaxes": {"doc_components": "0,0,0,3"},
    "one softmax": {"doc_components": "0,0,0,1"},
    "plain output": {"doc_components": "0,0,0,1", "plain_output": True},
    "linear": {"doc_activation": "linear"},
    "narrow components": {"component_dim": 2},
    "tied": {"share_decoder_input_output_embed": True},
    "all tied": {"share_all_embeddings": True, "encoder_embed_dim": 4, "dictionaries": JOINT},
    "forward encoder": {"unidirectional_encoder": True},
    "mixed directions": {"mix_directions": True},
    "no input feeding": {"no_input_feeding": True},
    "dot": {"attention_score": "dot"},
    "concat": {"attention_score": "concat"},
    "concat, no input feeding": {"attention_score": "concat", "no_input_feeding": True},
    "one layer": {"layers": 1, "doc_components": "1,1,2"},
    "three layers": {"layers": 3, "doc_components": "0,1,0,1,2"},
    "plain tied": {
        "doc_components": "0,0,0,1",
        "plain_output": True,
        "share_decoder_input_output_embed": True,
        "decoder_embed_dim": 5,
    },
}
every_option = pytest.mark.parametrize("option", OPTIONS)


@functools.cache
def shared_model(option="default", seed=0):
    """A model whose source embeddings are large, so that the source matters."""
    model = small_translation_model(seed=seed, **OPTIONS[option]).eval()
    with torch.no_grad():
        model.encoder.embedding.mul_(3)
    return model


def padded(rows, side="right"):
    """(B, size) tokens, padded on ``side``; "both" puts one position of padding on the left."""
    size = max(map(len, rows)) + (2 if side == "both" else 0)
    tokens = torch.full((len(rows), size), PAD)
    for row, words in zip(tokens, rows, strict=True):
        start = {"right": 0, "left": size - len(words), "both": 1}[side]
        row[start : start + len(words)] = torch.tensor(words)
    return tokens


def log_probs(model, sources, targets):
    output = model(src_tokens=sources, src_lengths=None, prev_output_tokens=targets)
    return model.get_normalized_probs(output, log_probs=True), output[1]["attn"][0]


def encode_by_hand(model, source):
    """memory (S, D), and h and c of each layer, of one sentence."""
    lstm, states = model.encoder.lstm, []
    inputs = [model.encoder.embedding[source]] * len(lstm.stacks)
    for layers in zip(*lstm.stacks, strict=True):
        runs = [layers[0](inputs[0])]
        if len(layers) == 2:
            outputs, state = layers[1](inputs[1].flip(0))
            runs.append((outputs.flip(0), state))
        states.append([sum(state[n][0] for _, state in runs) for n in (0, 1)])
        both = sum(outputs for outputs, _ in runs)
        inputs = [both if lstm.mix else outputs for outputs, _ in runs]
    return both, states


def probs_by_hand(model, source, target):
    """P of every word after each of target's (T, V), and attention (T, S): Eqs. 7, 10, 11."""
    decoder, attention, output = model.decoder, model.decoder.lstm.attention, model.decoder.output
    memory, states = encode_by_hand(model, source)
    fed, probs, attn = torch.zeros_like(memory[0]), [], []
    for word in target:
        layers = [decoder.embedding[word]]
        x = torch.cat([fed, layers[0]]) if decoder.lstm.input_feeding else layers[0]
        for n, layer in enumerate(decoder.lstm.layers):
            _, state = layer(x.unsqueeze(0), tuple(part.unsqueeze(0) for part in states[n]))
            states[n] = [part.squeeze(0) for part in state]
            x = states[n][0]
            layers.append(x)
        if attention.score == "dot":
            scores = [x @ m for m in memory]
        elif attention.score == "general":
            scores = [x @ attention.general.weight @ m for m in memory]
        else:
            weight = attention.concat.weight
            scores = [attention.vector @ torch.tanh(weight @ torch.cat([x, m])) for m in memory]
        powers = torch.stack(scores).exp()
        attn.append(powers / powers.sum())
        fed = torch.tanh(attention.combine.weight @ torch.cat([x, attn[-1] @ memory]))
        layers.append(fed)
        vectors = [fed] if not output.projections else []
        for n, projection in output.projections.items():
            k = projection.weight @ layers[int(n)] + projection.bias
            k = k if output.activation(torch.tensor(9.0)) > 1 else k.tanh()
            vectors += k.split(output.dim)
        pi = torch.ones(1)
        if output.mixture_weights is not None:
            pi = (output.mixture_weights.weight @ fed).exp()
            pi = pi / pi.sum()
        p = 0.0
        for share, k in zip(pi, vectors, strict=True):
            powers = (output.weight @ k + output.bias).exp()
            p = p + share * powers / powers.sum()
        probs.append(p)
    return torch.stack(probs), torch.stack(attn)


def generate(models, beam=4, prefix=None, **settings):
    """fairseq's hypotheses, best first, of each source; decoding ends after 12 words."""
    settings = {"beam_size": beam, "max_len_b": 12, **settings}
    generator = SequenceGenerator(list(models), models[0].decoder.dictionary, **settings)
    sample = {"net_input": {"src_tokens": padded(SOURCES, "left")}}
    with torch.no_grad():
        return generator.generate(models, sample, prefix_tokens=prefix)
