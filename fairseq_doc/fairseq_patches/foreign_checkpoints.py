"""Detects other programs' checkpoints by the names in them, without unpickling."""

import os

from fairseq_doc.errors import FairseqDocError

HEAD = 1 << 20  # bytes; torch writes the names of classes and tensors before the tensors
# {program: names of which its files have at least one}
_NAMES = {
    "fastai's AWD_LSTM": (b"0.rnns.0.", b"0.encoder.weight", b"fastai.text."),
    "awd-lstm-lm or mos": (b"rnns.0.", b"RNNModel", b"SplitCrossEntropyLoss"),
}


def foreign_error(path: str | os.PathLike) -> FairseqDocError | None:
    """The error for a checkpoint of one of these programs, else None."""
    with open(path, "rb") as file:
        head = file.read(HEAD)
    for program, names in _NAMES.items():
        if any(name in head for name in names):
            return FairseqDocError(
                f"{path} is a checkpoint of {program}: expected one of fairseq-train; fairseq-doc "
                "import-checkpoint converts its state_dict, a file of named tensors"
            )
    return None
