import errno
import sys

import pytest
from conftest import refusal
from torch.multiprocessing import ProcessRaisedException

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches import error_messages


@pytest.fixture
def ended(monkeypatch, capsys):
    """``ended(error)``: what the hook prints; None for an error that it passes on."""
    passed = []
    monkeypatch.setattr(sys, "excepthook", lambda *args: passed.append(args))
    error_messages.print_usage_errors_in_one_line()

    def printed(error, traceback=None):
        sys.excepthook(type(error), error, traceback)
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == (not passed)
        assert passed in ([], [(type(error), error, traceback)])
        return None if passed else err

    return printed


def during(first, second):
    second.__context__ = first
    return second


LOST = "[/pytorch/gloo/transport/tcp/pair.cc:580] Read error [127.0.0.1]:9: Connection reset"
UNLOADABLE = "Cannot load model parameters from checkpoint"
SPAWNED = """

-- Process 0 terminated with the following error:
Traceback (most recent call last):
  File "spawn.py", line 90, in _wrap
    fn(i, *args)
fairseq_doc.errors.FairseqDocError: --lr: got x

The above exception was the direct cause of the following exception:

Exception: Cannot load model parameters
"""
CORRECTED = [  # more are met in tests/integration
    (during(FairseqDocError("--lr: got x"), RuntimeError(UNLOADABLE)), ["error: --lr: got x"]),
    (AssertionError("Optimizer does not match; please reset"), ["another training"]),
    (ValueError("Interpolation key 'task.max' not found"), ["such as lstm_doc_lm"]),
    (OSError(errno.EROFS, "Read-only file system", "ro/ck"), ["cannot open ro/ck: Read-only"]),
    (during(SystemExit(2), FairseqDocError("bad codes")), ["error: bad codes"]),
    (ProcessRaisedException(SPAWNED, 0, 1), ["error: --lr: got x"]),  # one of several GPUs'
    (
        ProcessRaisedException("-- Process 0\nAssertionError: Must specify batch size", 0, 1),
        ["need --batch-size"],
    ),
    (RuntimeError(LOST), ["another worker ended"]),
    (during(RuntimeError(LOST), Exception(UNLOADABLE)), ["another worker ended", "reset"]),
]


@pytest.mark.parametrize("error, facts", CORRECTED)
def test_an_error_that_the_user_can_correct_is_one_line(ended, error, facts):
    line = ended(error)
    assert line.startswith("fairseq_doc: error: ") and all(fact in line for fact in facts)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA out of memory"),
        KeyError("weight"),
        ProcessRaisedException("-- Process 0\nKeyError: 'weight'", 0, 1),
    ],
)
def test_every_other_error_keeps_its_traceback(ended, error):
    assert ended(error) is None


def test_ctrl_c_is_one_line(ended, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fairseq-train"])
    line = ended(KeyboardInterrupt())
    assert line.startswith("fairseq_doc: interrupted; the same command continues from the last")


@pytest.mark.parametrize(
    "first, status, line",
    [(KeyboardInterrupt(), 130, "fairseq_doc: interrupted\n"), (SystemExit(143), 143, "")],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_an_error_during_an_interruption_does_not_hide_it(
    ended, monkeypatch, capsys, first, status, line
):
    monkeypatch.setattr(sys, "argv", ["fairseq-generate"])
    with pytest.raises(SystemExit) as caught:
        ended(during(first, AttributeError("half made")))
    assert caught.value.code == status and capsys.readouterr() == ("", line)


@pytest.mark.parametrize("program, is_command", [("/env/bin/fairseq-train", True), ("-c", False)])
def test_the_hook_is_installed_in_fairseqs_commands_alone(monkeypatch, program, is_command):
    before = sys.excepthook
    monkeypatch.setattr(sys, "excepthook", before)
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    error_messages.apply()
    assert (sys.excepthook is not before) == is_command


def test_a_missing_yaml_file_is_refused(tmp_path):
    (tmp_path / "run.yaml").touch()
    command = ["fairseq-hydra-train", "--config-dir", str(tmp_path), "--config-name"]
    for name in ("run", "run.yaml", "config"):  # the last is fairseq's own
        error_messages.check_settings_file([*command, name])
    error_messages.check_settings_file(["fairseq-hydra-train", "task.data=bin"])
    problem = refusal(error_messages.check_settings_file, [*command, "other"])
    assert f"{tmp_path}/other.yaml does not exist" in problem
