"""A language model as an ONNX model in one of two forms, whose inputs, outputs and metadata are
those that sherpa-onnx reads.

Axes: N streams or sentences, L tokens, V tokens in the table, K layers, D the largest width.

    log-probs   x (N, L), h0, c0       ->  log_softmax (N, V), next_h0, next_c0
    sentence    x (N, L), x_lens (N,)  ->  nll (N,)

x and x_lens are int64, all others float32; h0, c0, next_h0 and next_c0 are (K, N, D).
``log_softmax`` is log P of every token after the last token of x. ``nll`` is the sum of -log P over
the tokens of a sentence, which starts from a zero state and to which the model adds the end mark in
front and at the end. Logarithms are natural.
"""

import onnx
from onnx import TensorProto

import fairseq_doc
from fairseq_doc.export.graph import Graph
from fairseq_doc.export.layers import add_layers, add_log_probs, layer_widths
from fairseq_doc.export.tokens import LOG_PROBS, TokenTable
from fairseq_doc.models.language_model import MixtureLanguageModel, RecurrentDecoder


def onnx_model(
    model: MixtureLanguageModel, form: str, table: TokenTable, unit: str
) -> onnx.ModelProto:
    """The model in one of ``FORMS``; ``unit``, a word or a byte, goes into its metadata."""
    graph, decoder = Graph(), model.decoder
    graph.input("x", ["N", "L"], TensorProto.INT64)
    add_form = _add_log_probs if form == LOG_PROBS else _add_sentence
    add_form(graph, decoder, table)
    widths = layer_widths(decoder)
    metadata = {
        "model_type": "rnnlm",
        "version": 1,  # of sherpa-onnx's contract
        "num_layers": len(widths),
        "hidden_size": max(widths),
        "embedding_dim": decoder.embedding.size(1),
        "vocab_size": len(table.words),
        "sos_id": table.end,
        "eos_id": table.end,
        "form": form,
        "fairseq_doc": fairseq_doc.__version__,
        "architecture": type(model).__name__,
        "unit": unit,
    }
    return graph.model({key: str(value) for key, value in metadata.items()})


def _add_log_probs(graph: Graph, decoder: RecurrentDecoder, table: TokenTable) -> None:
    widths = layer_widths(decoder)
    shape = [len(widths), "N", max(widths)]
    before = [graph.input(name, shape) for name in ("h0", "c0")]
    outputs, after = add_layers(graph, decoder, _words(graph, table), before)
    last = [graph("Gather", h, -1, axis=0) for h in outputs]  # each (N, D_n)
    log_probs = add_log_probs(graph, decoder.output, last)
    if not table.is_dictionary:
        log_probs = graph("Gather", log_probs, table.words, axis=1)
    graph.output("log_softmax", log_probs, ["N", len(table.words)])
    for name, part in zip(("next_h0", "next_c0"), after, strict=True):
        graph.output(name, part, shape)


def _add_sentence(graph: Graph, decoder: RecurrentDecoder, table: TokenTable) -> None:
    lengths = graph.input("x_lens", ["N"], TensorProto.INT64)
    words = _words(graph, table)
    end = [[table.words[table.end]]]
    batch, length = graph.several("Split", 2, graph("Shape", words), axis=0)  # each (1,): N, L
    column = graph("Expand", end, graph("Concat", batch, [1], axis=0))  # (N, 1)
    source = graph("Concat", column, words, axis=1)  # (N, L + 1)
    count = graph("Add", graph("Squeeze", length, [0]), 1)
    places = graph("Range", 0, count, 1)  # (L + 1,)
    followed = graph("Concat", words, column, axis=1)
    at_end = graph("Equal", places, graph("Unsqueeze", lengths, [1]))
    target = graph("Where", at_end, end, followed)  # (N, L + 1)
    widths = layer_widths(decoder)
    shape_of_state = graph("Concat", [len(widths)], batch, [max(widths)], axis=0)
    zeros = graph("Expand", 0.0, shape_of_state)
    outputs, _ = add_layers(graph, decoder, source, [zeros, zeros])
    rows = [graph("Flatten", h, axis=2) for h in outputs]  # each ((L + 1) N, D_n)
    by_time = graph("Transpose", target, perm=[1, 0])  # (L + 1, N)
    log_probs = add_log_probs(graph, decoder.output, rows, graph("Reshape", by_time, [-1]))
    nll = graph("Reshape", graph("Neg", log_probs), graph("Shape", by_time))  # (L + 1, N)
    counted = graph("LessOrEqual", graph("Unsqueeze", places, [1]), lengths)
    scored = graph("Where", counted, nll, 0.0)
    graph.output("nll", graph("ReduceSum", scored, [0], keepdims=0), ["N"])


def _words(graph: Graph, table: TokenTable) -> str:
    """The dictionary's words for the tokens x."""
    return "x" if table.is_dictionary else graph("Gather", table.words, "x")
