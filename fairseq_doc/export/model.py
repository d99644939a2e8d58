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
from onnx import TensorProto, helper

import fairseq_doc
from fairseq_doc.export.graph import Graph
from fairseq_doc.export.layers import add_layers, add_log_probs, layer_widths
from fairseq_doc.export.tokens import LOG_PROBS, SENTENCE, TokenTable
from fairseq_doc.models.language_model import RecurrentDecoder

INPUTS = {LOG_PROBS: ("x", "h0", "c0"), SENTENCE: ("x", "x_lens")}
OUTPUTS = {LOG_PROBS: ("log_softmax", "next_h0", "next_c0"), SENTENCE: ("nll",)}


def onnx_model(
    decoder: RecurrentDecoder, form: str, table: TokenTable, more: dict[str, str]
) -> onnx.ModelProto:
    """The model in one of ``FORMS``; ``more`` is added to its metadata. Raises ``FairseqDocError``
    for layers that cannot be exported."""
    graph = Graph()
    values = (_log_probs if form == LOG_PROBS else _sentence)(graph, decoder, table)
    for name, value in zip(OUTPUTS[form], values, strict=True):
        graph.output(name, value)
    widths = layer_widths(decoder)
    metadata = {
        "model_type": "rnnlm",
        "version": "1",  # of sherpa-onnx's contract
        "num_layers": str(len(widths)),
        "hidden_size": str(max(widths)),
        "embedding_dim": str(decoder.embedding.size(1)),
        "vocab_size": str(len(table.words)),
        "sos_id": str(table.end),
        "eos_id": str(table.end),
        "form": form,
        "fairseq_doc": fairseq_doc.__version__,
    }
    shapes = {"x": ["N", "L"], "log_softmax": ["N", len(table.words)]}
    shapes |= dict.fromkeys(("x_lens", "nll"), ["N"])
    inputs, outputs = (
        [
            helper.make_tensor_value_info(
                name,
                TensorProto.INT64 if name in ("x", "x_lens") else TensorProto.FLOAT,
                shapes.get(name, [len(widths), "N", max(widths)]),
            )
            for name in names[form]
        ]
        for names in (INPUTS, OUTPUTS)
    )
    return graph.model(inputs, outputs, metadata | more)


def _log_probs(graph: Graph, decoder: RecurrentDecoder, table: TokenTable) -> list[str]:
    outputs, after = add_layers(graph, decoder, _words(graph, table), ["h0", "c0"])
    last = [graph("Gather", h, -1, axis=0) for h in outputs]  # each (N, D_n)
    log_probs = add_log_probs(graph, decoder.output, last)
    if not table.is_dictionary:
        log_probs = graph("Gather", log_probs, table.words, axis=1)
    return [log_probs, *after]


def _sentence(graph: Graph, decoder: RecurrentDecoder, table: TokenTable) -> list[str]:
    words = _words(graph, table)
    end = [[table.words[table.end]]]
    batch, length = graph.several("Split", 2, graph("Shape", words), axis=0)  # each (1,): N, L
    column = graph("Expand", end, graph("Concat", batch, [1], axis=0))  # (N, 1)
    source = graph("Concat", column, words, axis=1)  # (N, L + 1)
    count = graph("Add", graph("Squeeze", length, [0]), 1)
    places = graph("Range", 0, count, 1)  # (L + 1,)
    followed = graph("Concat", words, column, axis=1)
    at_end = graph("Equal", places, graph("Unsqueeze", "x_lens", [1]))
    target = graph("Where", at_end, end, followed)  # (N, L + 1)
    widths = layer_widths(decoder)
    shape_of_state = graph("Concat", [len(widths)], batch, [max(widths)], axis=0)
    zeros = graph("Expand", 0.0, shape_of_state)
    outputs, _ = add_layers(graph, decoder, source, [zeros, zeros])
    rows = [graph("Flatten", h, axis=2) for h in outputs]  # each ((L + 1) N, D_n)
    by_time = graph("Transpose", target, perm=[1, 0])  # (L + 1, N)
    log_probs = add_log_probs(graph, decoder.output, rows, graph("Reshape", by_time, [-1]))
    nll = graph("Reshape", graph("Neg", log_probs), graph("Shape", by_time))  # (L + 1, N)
    counted = graph("LessOrEqual", graph("Unsqueeze", places, [1]), "x_lens")
    scored = graph("Where", counted, nll, 0.0)
    return [graph("ReduceSum", scored, [0], keepdims=0)]


def _words(graph: Graph, table: TokenTable) -> str:
    """The dictionary's words for the tokens x."""
    return "x" if table.is_dictionary else graph("Gather", table.words, "x")
