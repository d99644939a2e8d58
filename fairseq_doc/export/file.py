"""A language model -> the bytes of an ONNX file, checked before they are written."""

from dataclasses import dataclass
from typing import Any

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.export.contract import LOG_PROBS
from fairseq_doc.export.model import onnx_model
from fairseq_doc.export.running import ExportedModel, largest_difference, quantized
from fairseq_doc.export.tokens import TokenTable, table_of

LARGEST_FILE = 2**31 - 1  # bytes of what ONNX keeps in one file
TOLERANCE = 1e-4  # of a log P in float32, or of a sum of some


@dataclass(frozen=True)
class ExportedFile:
    """An ONNX file that is not written yet.

    Attributes:
        data: its bytes.
        metadata: what it says about itself.
        difference: see :func:`fairseq_doc.export.running.largest_difference`.
    """

    data: bytes
    metadata: dict[str, str]
    difference: float


def exported_file(
    ensemble: Ensemble, form: str = LOG_PROBS, table: TokenTable | None = None, int8: bool = False
) -> ExportedFile:
    """Export a model, and compare it with the file.

    Args:
        ensemble: one model, on the CPU.
        form: see :mod:`fairseq_doc.export.contract`.
        table: which word each token is; None: the dictionary's numbers.
        int8: keep the matrices in 8 bits.

    Raises:
        FairseqDocError: several models; one too large; layers of a kind that cannot be exported; a file
            that would not compute what the model computes.
    """
    model: Any = ensemble.single
    table = table or table_of(ensemble.dictionary)
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    if size > LARGEST_FILE:
        raise FairseqDocError(
            f"expected a model whose parameters take at most {LARGEST_FILE:,} bytes, which an ONNX file "
            f"can hold; got {size:,}"
        )
    more = {"architecture": type(model).__name__, "unit": ensemble.unit}
    made = onnx_model(model.decoder, form, table, more)
    data = made.SerializeToString()
    exported = ExportedModel(data)
    difference = largest_difference(exported, model, table)
    if difference > TOLERANCE:
        raise FairseqDocError(
            f"the ONNX model differs from the model by {difference:.2g} in log P, expected at most "
            f"{TOLERANCE}: this version cannot export this model; nothing was written"
        )
    if int8:
        data = quantized(made).SerializeToString()
        exported = ExportedModel(data)
        difference = largest_difference(exported, model, table)
    return ExportedFile(data, exported.metadata, difference)
