"""A checkpoint with a call in it, given to every command that loads one: the call does not run."""

import os

import pytest
import torch
from harm.damage import saved
from harm.endings import check_ending
from harm.inputs import GENERATE, TRAIN_LM, TRAIN_MT, USER_DIR
from harm.test_damaged_inputs import LM_TASK, RERANK

HUB = """from fairseq_doc.models.lstm_doc_lm import LSTMDocLanguageModel
LSTMDocLanguageModel.from_pretrained(".", "a.pt", "data").score("w1 w2")"""
MT_HUB = """from fairseq_doc.models.lstm_luong_doc import LSTMLuongDoc
LSTMLuongDoc.from_pretrained(".", "mt.pt", "data")"""
COMMANDS = {  # group: its checkpoint, the commands
    "lm": (
        "a.pt",
        [
            f"fairseq-train data {TRAIN_LM} --restore-file a.pt --max-epoch 3",
            f"fairseq-train data {TRAIN_LM} --finetune-from-model a.pt --max-epoch 1",
            f"fairseq-eval-lm data {LM_TASK}",
            f"fairseq-validate data {LM_TASK} --batch-size 2",
            "fairseq-doc eval-lm data --path b.pt:a.pt --cpu",
            "fairseq-doc score data --path a.pt --cpu --input lines.txt",
            "fairseq-doc rank data --path a.pt --cpu",
            "fairseq-doc embeddings data --path a.pt --output new",
            ["python", "-c", HUB],
        ],
    ),
    "trees": ("lm.pt", [f"{RERANK} --output new"]),
    "translation": (
        "mt.pt",
        [
            f"fairseq-train data {TRAIN_MT} --restore-file mt.pt --max-epoch 2",
            GENERATE,
            f"fairseq-generate data {USER_DIR} -s en -t de --path other.pt --lm-path mt.pt --cpu",
            "fairseq-doc attention data --path mt.pt --cpu --input lines.txt",
            "fairseq-doc translate data --path mt.pt --cpu --input lines.txt",
            ["python", "-c", MT_HUB],
        ],
    ),
}


class Call:
    """Unpickled, it makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def in_the_model(state, marker):
    state["model"]["decoder.harmless"] = Call(marker)


def in_the_position(state, marker):
    state["extra_state"]["train_iterator"]["harmless"] = Call(marker)


def in_the_settings(state, marker):
    state["cfg"]["task"]["harmless"] = [{"deeper": Call(marker)}]


def user_folder(state, marker):
    """Python to import, which the settings name."""
    folder = marker.parent / "user_folder"
    folder.mkdir()
    (folder / "__init__.py").write_text(f"import os; os.mkdir({str(marker)!r})\n")
    state["cfg"]["common"]["user_dir"] = str(folder)


def evaluated_setting(state, marker):
    """The settings of Adam are Python, which fairseq evaluates."""
    code = f"__import__('os').mkdir({str(marker)!r})"
    state["cfg"]["optimizer"] = {"_name": "adam", "adam_betas": code}
    state["cfg"]["generation"]["print_alignment"] = code


KINDS = [in_the_model, in_the_position, in_the_settings, user_folder, evaluated_setting]
CASES = [
    pytest.param(group, name, command, KINDS[place % len(KINDS)], id=f"{group}, {place}")
    for group, (name, commands) in COMMANDS.items()
    for place, command in enumerate(commands)
]


@pytest.mark.parametrize("group, name, command, kind", CASES)
def test_a_call_in_a_checkpoint_does_not_run(group, name, command, kind, server, case_of):
    case = case_of(group)
    state = torch.load(case / name)
    (case / "other.pt").write_bytes((case / name).read_bytes())
    kind(state, case / "ran")
    (case / name).write_bytes(saved(state))
    result = server.run(command, case)
    assert not (case / "ran").exists()
    if kind not in (user_folder, evaluated_setting):  # the rest of such a checkpoint may be used
        assert result.status != 0
    if command[0] != "python":
        check_ending(result)


def test_the_calls_would_run(inputs, tmp_path):
    """Where a checkpoint is read as a pickle; otherwise the tests above would show nothing."""
    for kind in (in_the_model, in_the_position, in_the_settings):
        state = torch.load(inputs("lm") / "a.pt")
        kind(state, tmp_path / kind.__name__)
        (tmp_path / "evil.pt").write_bytes(saved(state))
        torch.load(tmp_path / "evil.pt", weights_only=False)
        assert (tmp_path / kind.__name__).exists()
