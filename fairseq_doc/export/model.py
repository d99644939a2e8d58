"""Builds an ONNX model of a language model in one of the forms of :mod:`fairseq_doc.export.contract`.

Axes: N streams or sentences, L tokens, V tokens in the table, D_n width of layer n.
"""

from collections.abc import Sequence

import onnx

from fairseq_doc.export import contract
from fairseq_doc.export.contract import LOG_PROBS, SENTENCE, STATE, kinds
from fairseq_doc.export.graph import Graph
from fairseq_doc.export.layers import add_layers, add_log_probs, layer_widths
from fairseq_doc.export.tokens import TokenTable
from fairseq_doc.models.language_model import RecurrentDecoder


def onnx_model(
    decoder: RecurrentDecoder, form: str, table: TokenTable, more: dict[str, str]
) -> onnx.ModelProto:
    """The model in one of ``FORMS``; ``more`` is added to its metadata. Raises ``FairseqDocError``
    for layers that cannot be exported."""
    builder = _Builder(decoder, table)
    add = {LOG_PROBS: builder.log_probs, SENTENCE: builder.sentence}
    inputs, outputs = contract.INPUTS[form], contract.OUTPUTS[form]
    for name, value in zip(outputs, add[form](), strict=True):
        builder.graph.output(name, value)
    widths = layer_widths(decoder)
    sizes = len(table.words), len(widths), max(widths)
    about = contract.metadata(form, *sizes, decoder.embedding.size(1), table.end)
    return builder.graph.model(kinds(inputs, *sizes), kinds(outputs, *sizes), about | more)


class _Builder:
    """Each public method adds the nodes of a form and returns its outputs in order."""

    def __init__(self, decoder: RecurrentDecoder, table: TokenTable) -> None:
        self.decoder, self.table, self.graph = decoder, table, Graph()

    def log_probs(self) -> list[str]:
        graph, output = self.graph, self.decoder.output
        outputs, after = add_layers(graph, self.decoder, self._words(), STATE)
        last = [graph("Gather", h, -1, axis=0) for h in outputs]  # each (N, D_n)
        log_probs = add_log_probs(graph, output, last)
        if not self.table.is_dictionary:
            log_probs = graph("Gather", log_probs, self.table.words, axis=1)
        return [log_probs, *after]

    def sentence(self) -> list[str]:
        graph = self.graph
        words = self._words()
        end = [[self.table.words[self.table.end]]]
        batch, length = graph.several("Split", 2, graph("Shape", words), axis=0)  # each (1,): N, L
        column = graph("Expand", end, graph("Concat", batch, [1], axis=0))  # (N, 1)
        source = graph("Concat", column, words, axis=1)  # (N, L + 1)
        count = graph("Add", graph("Squeeze", length, [0]), 1)
        places = graph("Range", 0, count, 1)  # (L + 1,)
        followed = graph("Concat", words, column, axis=1)
        at_end = graph("Equal", places, graph("Unsqueeze", "x_lens", [1]))
        target = graph("Where", at_end, end, followed)  # (N, L + 1)
        widths = layer_widths(self.decoder)
        shape_of_state = graph("Concat", [len(widths)], batch, [max(widths)], axis=0)
        zeros = graph("Expand", 0.0, shape_of_state)
        nll = self._of_targets(source, target, [zeros, zeros])  # (L + 1, N)
        counted = graph("LessOrEqual", graph("Unsqueeze", places, [1]), "x_lens")
        scored = graph("Where", counted, nll, 0.0)
        return [graph("ReduceSum", scored, [0], keepdims=0)]

    def _words(self) -> str:
        """The dictionary's words for the tokens x."""
        known = self.table.is_dictionary
        return "x" if known else self.graph("Gather", self.table.words, "x")

    def _of_targets(self, source: str, target: str, before: Sequence[str]) -> str:
        """-log P of targets (N, L), transposed to (L, N)."""
        graph, output = self.graph, self.decoder.output
        outputs, _ = add_layers(graph, self.decoder, source, before)
        rows = [graph("Flatten", h, axis=2) for h in outputs]  # each (L N, D_n)
        by_time = graph("Transpose", target, perm=[1, 0])  # (L, N)
        flat = graph("Reshape", by_time, [-1])
        log_probs = add_log_probs(graph, output, rows, flat)
        return graph("Reshape", graph("Neg", log_probs), graph("Shape", by_time))
