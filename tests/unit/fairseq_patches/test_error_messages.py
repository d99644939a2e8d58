import sys
from types import SimpleNamespace

import pytest
import yaml
from conftest import refusal
from fairseq import criterions
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.fairseq_patches import error_messages


@pytest.fixture
def hook(monkeypatch):
    """The installed hook; the errors that it passes on are listed in ``hook.passed``."""
    passed = []
    monkeypatch.setattr(sys, "excepthook", lambda *args: passed.append(args))
    error_messages.print_usage_errors_in_one_line()
    installed = sys.excepthook
    installed.passed = passed
    return installed


@pytest.fixture
def line(hook, capsys):
    """``line(error)``: the one line that is printed for an error, without its beginning."""

    def printed(error):
        hook(type(error), error, error.__traceback__)
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and hook.passed == []
        assert err.startswith("fairseq_doc: error: ")
        return err.removeprefix("fairseq_doc: error: ").removesuffix("\n")

    return printed


def during(first, second):
    second.__context__ = first
    return second


LOST = [
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:9",
    "[/pytorch/gloo/transport/tcp/pair.cc:580] Read error [127.0.0.1]:9: Connection reset by peer",
]
CORRECTED = [
    (
        during(FairseqDocError("--lr: got x"), RuntimeError("Cannot load model parameters")),
        ["--lr: got x"],
    ),
    (AssertionError("Must specify batch size either with --max-tokens"), ["needs --batch-size"]),
    (
        ValueError("optimizer is required!"),
        ["required! give --optimizer nt_asgd --lr-scheduler nt_asgd"],
    ),
    (
        Exception("Could not infer language pair, please provide it explicitly"),
        ["give --task bptt_language_modeling"],
    ),
    (
        Exception("Size of sample #3 is invalid (=1201) since max_positions=(1024, 1024)"),
        ["Size of sample #3 is invalid", "or give --max-source-positions"],
    ),
    *((RuntimeError(text), ["another worker ended, or did not start in time"]) for text in LOST),
    (
        during(RuntimeError(LOST[0]), Exception("Cannot load model parameters from checkpoint")),
        ["another worker ended", "Connection closed by peer"],
    ),
]


@pytest.mark.parametrize("error, facts", CORRECTED)
def test_an_error_that_the_user_can_correct_is_one_line(line, error, facts):
    message = line(error)
    assert all(fact in message for fact in facts)


@pytest.mark.parametrize(
    "text, facts",
    [
        (b"a: [", ["settings in YAML: ", 'run.yaml", line 1', "expected the node content"]),
        (b"a: 1\n\tb: 2\n", ["settings in YAML: ", 'run.yaml", line 2', "cannot start any token"]),
        (b"a: \x00", ["settings in YAML: ", "special characters are not allowed"]),
        (b"a: ${nothing}", ["settings in YAML: ", "'nothing' not found"]),
        (b"\xff", ["settings in YAML: ", "can't decode byte 0xff"]),
        (b"5", ["int", "in YAML"]),
    ],
)
def test_broken_yaml_is_one_line(line, tmp_path, monkeypatch, text, facts):
    monkeypatch.setattr(sys, "argv", ["/env/bin/fairseq-hydra-train"])
    (tmp_path / "run.yaml").write_bytes(text)
    with pytest.raises((yaml.YAMLError, OmegaConfBaseException, ValueError, OSError)) as caught:
        OmegaConf.to_container(OmegaConf.load(tmp_path / "run.yaml"), resolve=True)
    message = line(caught.value)
    assert all(fact in message for fact in facts), message


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no model"),
        RuntimeError("CUDA out of memory"),
        ConnectionResetError("Connection reset by peer"),
        OmegaConfBaseException("Key 'foo' is not in struct"),  # nothing was read from YAML
        KeyError("weight"),  # of no registry
    ],
)
def test_every_other_error_keeps_its_traceback(hook, capsys, error):
    hook(type(error), error, None)
    assert capsys.readouterr() == ("", "")
    assert hook.passed == [(type(error), error, None)]


def test_a_name_that_no_registry_knows_is_one_line(line):
    with pytest.raises(KeyError) as caught:
        criterions.build_criterion(SimpleNamespace(criterion="cross_entropie"), None)
    assert line(caught.value).endswith("registered with fairseq; got 'cross_entropie'")


@pytest.mark.parametrize(
    "program, message",
    [
        ("fairseq-train", "fairseq_doc: interrupted; the same command continues from the last"),
        ("fairseq-generate", "fairseq_doc: interrupted\n"),
    ],
)
def test_ctrl_c_is_one_line(hook, monkeypatch, capsys, program, message):
    monkeypatch.setattr(sys, "argv", [program])
    hook(KeyboardInterrupt, KeyboardInterrupt(), None)
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(message) and err.count("\n") == 1


@pytest.mark.parametrize(
    "ended, status, line",
    [(KeyboardInterrupt(), 130, "fairseq_doc: interrupted\n"), (SystemExit(143), 143, "")],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_an_error_during_an_interruption_does_not_hide_it(
    hook, monkeypatch, capsys, ended, status, line
):
    monkeypatch.setattr(sys, "argv", ["fairseq-generate"])
    error = AttributeError("half made")
    error.__context__ = ended
    with pytest.raises(SystemExit) as caught:
        hook(AttributeError, error, None)
    assert caught.value.code == status and capsys.readouterr() == ("", line)


@pytest.mark.parametrize(
    "program, is_command",
    [
        ("/env/bin/fairseq-train", True),
        ("/env/lib/site-packages/fairseq_cli/train.py", True),
        ("/programs/train.py", False),
        ("-c", False),
        ("", False),
    ],
)
def test_the_hook_is_installed_in_fairseqs_commands_alone(monkeypatch, program, is_command):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    before = sys.excepthook
    error_messages.apply()
    assert (sys.excepthook is not before) == is_command


def test_a_missing_yaml_file_is_refused(tmp_path):
    (tmp_path / "run.yaml").touch()
    command = ["fairseq-hydra-train", "--config-dir", str(tmp_path), "--config-name"]
    for name in ("run", "run.yaml", "config"):  # the last is fairseq's own
        error_messages.check_settings_file([*command, name])
    error_messages.check_settings_file(["fairseq-hydra-train", "task.data=bin"])
    assert f"{tmp_path}/other.yaml: expected a file of settings" in refusal(
        error_messages.check_settings_file, [*command, "other"]
    )
