"""Checks that the state dict of a checkpoint fits a model."""

import zlib
from collections.abc import Mapping

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_doc.errors import FairseqDocError

# The name of a buffer in the module that has ``embedding``.
CHECKSUM = "dictionary_checksum"


def dictionary_checksum(dictionary: Dictionary) -> Tensor:
    """A scalar that depends on the words and their order."""
    return torch.tensor(zlib.crc32("\n".join(dictionary.symbols).encode()))


def check_state_dict(expected: Mapping[str, Tensor], state_dict: Mapping[str, Tensor]) -> None:
    """Raise ``FairseqDocError`` unless ``state_dict`` fits the model's own, ``expected``."""
    if expected.keys() != state_dict.keys():
        missing, unknown = (
            ", ".join(sorted(names)[:3]) or "none"
            for names in (expected.keys() - state_dict, state_dict.keys() - expected)
        )
        raise FairseqDocError(
            f"the checkpoint has a different architecture: expected {len(expected)} tensors, got "
            f"{len(state_dict)}; missing: {missing}; unknown: {unknown}"
        )
    first_names: dict[int, str] = {}  # {address in memory: name}
    for name, tensor in expected.items():
        got = state_dict[name]
        if tensor.shape != got.shape:
            of_words = name.endswith(".embedding") and tensor.shape[1:] == got.shape[1:]
            raise FairseqDocError(
                f"the checkpoint has a different {'dictionary' if of_words else 'size'}: expected "
                f"{name} {tuple(tensor.shape)}, got {tuple(got.shape)}"
            )
        if name.endswith(CHECKSUM) and int(tensor) != int(got):
            raise FairseqDocError(
                "the checkpoint has a different dictionary: expected the words of the data in "
                f"their order, got as many words, but not the same ({name})"
            )
        first = first_names.setdefault(tensor.data_ptr(), name)
        tied = first == name or torch.allclose(
            state_dict[first], got, rtol=0, atol=0, equal_nan=True
        )
        if not tied:
            raise FairseqDocError(
                f"the checkpoint has a different architecture: expected {name} tied to {first}, "
                "got two matrices; give the options of its training (--untie-output, --share-...)"
            )
