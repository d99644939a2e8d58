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
    missing, unknown = (
        ", ".join(sorted(names)[:3]) or "none"
        for names in (expected.keys() - state_dict, state_dict.keys() - expected)
    )
    if expected.keys() != state_dict.keys():
        raise FairseqDocError(
            f"the checkpoint has another architecture: expected {len(expected)} tensors, got "
            f"{len(state_dict)}; missing: {missing}; unknown: {unknown}"
        )
    sides = [name.removesuffix(CHECKSUM) for name in expected if name.endswith(CHECKSUM)]
    dictionaries = {"encoder.": "source dictionary", "decoder.": "target dictionary"}
    if len(sides) == 1:  # a language model
        dictionaries = {sides[0]: "dictionary"}
    for side in sides:
        words, got = (len(tensors[side + "embedding"]) for tensors in (expected, state_dict))
        if words != got:
            raise FairseqDocError(
                f"the checkpoint has another {dictionaries[side]}: expected {words} words, as in "
                f"the data, got {got}"
            )
    for name, tensor in expected.items():
        if tensor.shape != state_dict[name].shape:
            raise FairseqDocError(
                f"the checkpoint has another size: expected {name} {tuple(tensor.shape)}, got "
                f"{tuple(state_dict[name].shape)}"
            )
    _check_ties(expected, state_dict)
    for side in sides:
        checksum, got = (int(tensors[side + CHECKSUM]) for tensors in (expected, state_dict))
        if checksum != got:
            raise FairseqDocError(
                f"the checkpoint has another {dictionaries[side]}: its "
                f"{len(expected[side + 'embedding'])} words, as many as in the data, are other "
                f"words or in another order (checksum expected {checksum}, got {got})"
            )


def _check_ties(expected, state_dict):
    first_names: dict[int, str] = {}  # {address in memory: name}
    for name, tensor in expected.items():
        first = first_names.setdefault(tensor.data_ptr(), name)
        tied = first == name or torch.allclose(
            state_dict[first], state_dict[name], rtol=0, atol=0, equal_nan=True
        )
        if not tied:
            raise FairseqDocError(
                f"the checkpoint has another architecture: expected {name} tied to {first}, got "
                "two matrices; give the options of its training (--untie-output, --share-...)"
            )
