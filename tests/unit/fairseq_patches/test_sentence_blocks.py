import torch
from fairseq.data.token_block_dataset import TokenBlockDataset

from fairseq_doc import registration  # noqa: F401

from ..conftest import assert_close


def test_blocks_are_sentences():
    sentences = [torch.tensor([5, 6, 2]), torch.tensor([7, 2])]
    blocks = TokenBlockDataset(sentences, [3, 2], None, pad=1, eos=2, break_mode="eos")
    assert_close([blocks[0], blocks[1]], sentences)
