"""Exports a language model as the bytes of an ONNX file, which is run and compared with the model.

Axes: N streams, L tokens, V tokens in the table, K layers, D width of the widest layer.
"""

import logging
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.export.model import onnx_model
from fairseq_doc.export.tokens import LOG_PROBS, TokenTable, table_of

TOLERANCE = 1e-4  # for log P in float32, or a sum of log P


class ExportedModel:
    """An ONNX model in memory, which runs on one thread. ``data``: the bytes of its file;
    ``difference``: see :func:`largest_difference`."""

    def __init__(self, data: bytes) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # only errors
        self._session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
        self._inputs = [value.name for value in self._session.get_inputs()]
        self.metadata: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        self.data, self.difference = data, math.nan

    def zero_state(self, streams: int) -> list[np.ndarray]:
        """h and c before the first token, each (K, N, D)."""
        layers, width = (int(self.metadata[key]) for key in ("num_layers", "hidden_size"))
        return [np.zeros((layers, streams, width), np.float32) for _ in range(2)]

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """The outputs; see :mod:`fairseq_doc.export.model`."""
        return self._session.run(None, dict(zip(self._inputs, inputs, strict=True)))


def quantized(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with 8-bit matrices; their inputs are rounded in every call (dynamic
    quantisation)."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "int8.onnx"
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)  # onnxruntime's advice does not apply here
        try:
            quantize_dynamic(
                model,
                path,
                op_types_to_quantize=["MatMul", "Gather", "LSTM"],  # operators with matrices
                weight_type=QuantType.QInt8,
                extra_options={"EnableSubgraph": True},
            )
        finally:
            logging.disable(before)
        return onnx.load(path)


@torch.no_grad()
def largest_difference(exported: ExportedModel, model: Any, table: TokenTable) -> float:
    """The largest difference in log P, or in sums of log P, from ``model`` on the CPU in evaluation
    mode, over a few random tokens in two streams."""
    tokens = np.random.default_rng(1).integers(0, len(table.words), (2, 7))
    tokens[:, 0] = table.end
    words = torch.tensor(table.words)[torch.from_numpy(tokens)]
    truth = model.get_normalized_probs(model(words), log_probs=True)[:, :, table.words].numpy()
    source, target = tokens[:, :-1], tokens[:, 1:]
    if exported.metadata["form"] == LOG_PROBS:
        state, found = exported.zero_state(len(tokens)), []
        for column in source.T:
            log_probs, *state = exported(column[:, None], *state)
            found.append(log_probs)
        expected = truth[:, :-1].transpose(1, 0, 2)  # (6, 2, V)
    else:
        lengths = np.array([6, 3])
        found = list(-exported(target, lengths)[0])
        of_targets = np.take_along_axis(truth[:, :-1], target[:, :, None], axis=2)  # (2, 6, 1)
        expected = [
            rows[:length].sum() + ends[length, table.end]
            for rows, ends, length in zip(of_targets, truth, lengths, strict=True)
        ]
    return float(np.abs(np.array(found) - np.array(expected)).max())


def exported_file(
    ensemble: Ensemble, form: str = LOG_PROBS, table: TokenTable | None = None, int8: bool = False
) -> ExportedModel:
    """Export the only model of an ensemble on the CPU, and compare the result with it. By default
    the tokens are those of the dictionary. Raises ``FairseqDocError`` if the results differ."""
    model: Any = ensemble.single
    table = table or table_of(ensemble.dictionary)
    made = onnx_model(model, form, table, ensemble.unit)
    exported = ExportedModel(made.SerializeToString())
    exported.difference = largest_difference(exported, model, table)
    if not exported.difference <= TOLERANCE:
        raise FairseqDocError(
            f"the ONNX model differs from the original by {exported.difference:.2g} in log P; "
            f"expected at most {TOLERANCE}: the training has diverged, or its layers cannot be "
            "exported"
        )
    if int8:
        exported = ExportedModel(quantized(made).SerializeToString())
        exported.difference = largest_difference(exported, model, table)
    return exported
