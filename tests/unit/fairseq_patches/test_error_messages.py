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


def test_a_usage_error_is_one_line_also_where_another_wraps_it(hook, capsys):
    error = RuntimeError("Cannot load model parameters")
    error.__cause__ = FairseqDocError("--lr: expected 20; got x")
    hook(type(error), error, None)
    assert capsys.readouterr() == ("", "fairseq_doc: error: --lr: expected 20; got x\n")
    assert hook.passed == []


@pytest.mark.parametrize(
    "error, facts",
    [
        (
            AssertionError("Must specify batch size either with --max-tokens"),
            ["expected --batch-size", "got none"],
        ),
        (
            ValueError("optimizer is required!"),
            ["expected --optimizer; got none", "--optimizer nt_asgd --lr-scheduler nt_asgd"],
        ),
        (
            Exception("Could not infer language pair, please provide it explicitly"),
            ["--source-lang and --target-lang", "give --task bptt_language_modeling"],
        ),
        (
            Exception(
                "Size of sample #3 is invalid (=(np.int64(1201), 0)) since max_positions=(1024, "
                "1024), skip this example with --skip-invalid-size-inputs-valid-test"
            ),
            ["sentence 3", "at most (1024, 1024)", "got (1201, 0)", "--max-source-positions"],
        ),
    ],
)
def test_an_error_of_fairseq_that_the_user_can_correct_is_one_line(hook, capsys, error, facts):
    hook(type(error), error, None)
    printed, message = capsys.readouterr()
    assert printed == "" and message.count("\n") == 1
    assert message.startswith("fairseq_doc: error: ") and all(fact in message for fact in facts)


@pytest.mark.parametrize(
    "text, facts",
    [
        (b"a: [", ["line 1 is not valid YAML", "expected the node content"]),
        (b"a: 1\n\tb: 2\n", ["line 2 is not valid YAML", "cannot start any token"]),
        (b"a: \x00", ["settings in YAML: ", "special characters are not allowed"]),
        (b"a: ${nothing}", ["settings in YAML: ", "'nothing' not found"]),
        (b"\xff", ["expected text in UTF-8; got b'\\xff'"]),
        (b"5", ["settings in YAML: ", "int"]),
    ],
)
def test_broken_yaml_is_one_line(hook, capsys, tmp_path, monkeypatch, text, facts):
    monkeypatch.setattr(sys, "argv", ["/env/bin/fairseq-hydra-train"])
    (tmp_path / "run.yaml").write_bytes(text)
    with pytest.raises((yaml.YAMLError, OmegaConfBaseException, ValueError, OSError)) as caught:
        OmegaConf.to_container(OmegaConf.load(tmp_path / "run.yaml"), resolve=True)
    hook(caught.type, caught.value, None)
    printed, message = capsys.readouterr()
    assert printed == "" and message.count("\n") == 1 and hook.passed == []
    assert all(fact in message for fact in facts), message


def test_an_error_of_settings_in_another_program_keeps_its_traceback(hook, capsys, monkeypatch):
    """It is one of the code: nothing was read from YAML."""
    monkeypatch.setattr(sys, "argv", ["/env/bin/fairseq-train"])
    error = OmegaConfBaseException("Key 'foo' is not in struct")
    hook(type(error), error, None)
    assert capsys.readouterr() == ("", "") and len(hook.passed) == 1


def test_every_other_error_keeps_its_traceback(hook, capsys):
    error = ValueError("no model")
    hook(ValueError, error, None)
    assert capsys.readouterr() == ("", "")
    assert hook.passed == [(ValueError, error, None)]


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


def test_a_name_that_no_registry_knows_is_one_line(hook, capsys):
    try:
        criterions.build_criterion(SimpleNamespace(criterion="cross_entropie"), None)
    except KeyError as error:
        hook(KeyError, error, error.__traceback__)
    message = capsys.readouterr().err
    assert "expected a name that is registered with fairseq; got 'cross_entropie'" in message
    error = KeyError("weight")  # of other code
    hook(KeyError, error, None)
    assert hook.passed == [(KeyError, error, None)]


def test_a_missing_yaml_file_is_refused(tmp_path):
    (tmp_path / "run.yaml").touch()
    command = ["fairseq-hydra-train", "--config-dir", str(tmp_path), "--config-name"]
    for name in ("run", "run.yaml", "config"):  # the last is fairseq's own
        error_messages.check_settings_file([*command, name])
    error_messages.check_settings_file(["fairseq-hydra-train", "task.data=bin"])
    assert f"{tmp_path}/other.yaml: expected a file of settings" in refusal(
        error_messages.check_settings_file, [*command, "other"]
    )
