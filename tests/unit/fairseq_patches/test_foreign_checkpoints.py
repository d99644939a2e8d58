import pytest
import torch
from conftest import refusal
from fairseq import checkpoint_utils

from fairseq_doc import registration  # noqa: F401


class RNNModel(torch.nn.Module):
    """As awd-lstm-lm and mos name theirs."""


MERITY = {"encoder.weight": torch.zeros(3, 2), "rnns.0.module.weight_hh_l0_raw": torch.zeros(8, 2)}
FASTAI = {"0.encoder.weight": torch.zeros(3, 2), "0.rnns.0.weight_hh_l0_raw": torch.zeros(8, 2)}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    "content, program",
    [
        (MERITY, "awd-lstm-lm"),
        ([MERITY, {}], "awd-lstm-lm"),
        ([RNNModel(), None], "awd-lstm-lm"),
        (FASTAI, "fastai"),
        ({"model": FASTAI, "opt": {}}, "fastai"),
    ],
)
def test_a_checkpoint_of_another_program(tmp_path, content, program, zipped):
    path = tmp_path / "model.pt"
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    message = refusal(checkpoint_utils.load_checkpoint_to_cpu, str(path))
    assert str(path) in message and program in message
    assert "fairseq-doc import-checkpoint" in message
