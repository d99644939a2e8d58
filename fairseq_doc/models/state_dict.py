"""Whether the state dict of a checkpoint fits a model."""

import zlib

import torch

from fairseq_doc.errors import FairseqDocError

# Ends the name of the buffer that holds :func:`dictionary_checksum`, beside ``embedding`` and, in a
# decoder, ``output.weight``.
CHECKSUM = "dictionary_checksum"


def dictionary_checksum(dictionary):
    """A checksum of the words and their order."""
    return zlib.crc32("\n".join(dictionary.symbols).encode())


def check_state_dict(expected, state_dict):
    """Raise ``FairseqDocError`` where ``state_dict`` is not of the model that has ``expected``."""
    missing, unknown = sorted(expected.keys() - state_dict), sorted(state_dict.keys() - expected)
    if missing or unknown:
        some = [", ".join(names[:3]) or "none" for names in (missing, unknown)]
        raise FairseqDocError(
            f"the checkpoint is of another architecture: expected {len(expected)} tensors, got "
            f"{len(state_dict)}; missing: {some[0]}; unknown: {some[1]}"
        )
    sides = [name.removesuffix(CHECKSUM) for name in expected if name.endswith(CHECKSUM)]
    which = {"encoder.": "source dictionary", "decoder.": "target dictionary"}
    if len(sides) == 1:  # a language model's
        which = {sides[0]: "dictionary"}
    for side in sides:
        words = [tensors[side + "embedding"].size(0) for tensors in (expected, state_dict)]
        if words[0] != words[1]:
            raise FairseqDocError(
                f"the checkpoint is of another {which[side]}: expected {words[0]} words, as the data "
                f"has, got {words[1]}"
            )
    for name, tensor in expected.items():
        if tensor.shape != state_dict[name].shape:
            raise FairseqDocError(
                f"the checkpoint is of another size: expected {name} {tuple(tensor.shape)}, got "
                f"{tuple(state_dict[name].shape)}"
            )
    first = {}
    for name, tensor in expected.items():
        other = first.setdefault(tensor.data_ptr(), name)
        both = state_dict[other], state_dict[name]
        if other != name and not torch.allclose(*both, rtol=0, atol=0, equal_nan=True):
            raise FairseqDocError(
                f"the checkpoint is of another architecture: expected {name} tied to {other}, got "
                "two matrices; give the options of its training (--untie-output; --share-...)"
            )
    for side in sides:
        sums = [int(tensors[side + CHECKSUM]) for tensors in (expected, state_dict)]
        if sums[0] != sums[1]:
            raise FairseqDocError(
                f"the checkpoint is of another {which[side]}: it has as many words as the data's, "
                f"{expected[side + 'embedding'].size(0)}, but others or in another order (checksum "
                f"expected {sums[0]}, got {sums[1]})"
            )
