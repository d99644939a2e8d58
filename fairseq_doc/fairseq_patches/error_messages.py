"""A command prints an error that the user can correct in one line.

fairseq prints a traceback for every exception. The hook below prints a ``FairseqDocError``, and the
errors of fairseq listed here, as one line; every other exception keeps its traceback. It is installed in
fairseq's commands only: a program that uses this package as a library keeps its own hook.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from traceback import walk_tb

import yaml
from fairseq import options, registry
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from fairseq_doc.errors import FairseqDocError, first_usage_error, shown
from fairseq_doc.interruptions import runs_a_command

# What fairseq checks before this package can: how its message begins, and ours.
_FAIRSEQ_MESSAGES = (
    (
        re.compile("Must specify batch size"),
        "expected --batch-size, the number of sentences, or of columns a worker; got none",
    ),
    (
        re.compile(r"optimizer is required!"),
        "expected --optimizer; got none: give --optimizer nt_asgd --lr-scheduler nt_asgd, as for the "
        "language models here, or another of fairseq's, such as --optimizer sgd",
    ),
    (
        re.compile(r"Could not infer language pair, please provide it explicitly"),
        "expected a data folder of two languages, or --source-lang and --target-lang; got neither: "
        "for a language model give --task bptt_language_modeling",
    ),
    (
        re.compile(r"Seed must be between 0 and"),
        "--seed: expected a number from 0 to 4294967295; got another",
    ),
    (
        re.compile(r"Optimizer does not match; .*\. (\w+) vs (\w+)"),
        "the checkpoint was trained with the optimizer {0}, and this run has {1}: give --optimizer "
        "and --amp as for that checkpoint, or start again from its weights by --reset-optimizer "
        "--reset-dataloader --reset-meters",
    ),
    (
        re.compile(r"Criterion does not match; .*\. (\w+) vs (\w+)"),
        "the checkpoint was trained with the criterion {0}, and this run has {1}: give --criterion as "
        "for that checkpoint, or start again from its weights by --reset-optimizer "
        "--reset-dataloader --reset-meters",
    ),
    (
        re.compile(r"Could not infer (task|model) type from"),
        "the {0}: expected a name that is registered with fairseq; got another (_name in YAML)",
    ),
    (
        re.compile(r"Invalid loaded object type: (.*)"),
        "settings in YAML: expected names and their values; got one value, of type {0}",
    ),
    (
        re.compile(r"Model file not found: (.*)"),
        "no checkpoint at {0}: expected a file of fairseq-train",
    ),
    (
        re.compile(r"Dataset not found: (.*) \((.*)\)"),
        "no binarised split {0} in {1}: expected its .bin and .idx files; make them with "
        "fairseq-preprocess",
    ),
    (
        re.compile(r"Size of sample #(\d+) is invalid \(=(.*)\) since max_positions=(.*), skip"),
        "sentence {0} (counted from 0) has too many units: expected at most {2} (of source and "
        "target), got {1}; nothing was done with it or the sentences after it: give "
        "--max-source-positions and --max-target-positions, or leave it out by "
        "--skip-invalid-size-inputs-valid-test",
    ),
)


def apply() -> None:
    """Install the hook where this process runs one of fairseq's commands."""
    if runs_a_command(sys.argv):
        print_usage_errors_in_one_line()
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # else hydra prints a traceback and exits


def print_usage_errors_in_one_line() -> None:
    """Install the hook. The exit status stays 1."""
    previous = sys.excepthook

    def hook(kind, error, traceback):
        usage_error = (
            first_usage_error(error)
            or our_message(error)
            or (reads_yaml(sys.argv) and _of_settings(error))
            or _of_unknown_name(error, traceback)
        )
        if not usage_error:
            previous(kind, error, traceback)
        else:
            print(f"fairseq_doc: error: {usage_error}", file=sys.stderr)

    sys.excepthook = hook


def reads_yaml(argv: list[str]) -> bool:
    """Whether a command line starts fairseq-hydra-train."""
    return bool(argv) and Path(argv[0]).stem in ("fairseq-hydra-train", "hydra_train")


def our_message(error: BaseException | str) -> str | None:
    """Our message for an error of fairseq that the user can correct; None for any other."""
    for pattern, message in _FAIRSEQ_MESSAGES:
        match = pattern.match(str(error))
        if match:
            numbers = [re.sub(r"np\.int64\((\d+)\)", r"\1", part) for part in match.groups()]
            return message.format(*numbers)
    return None


def _of_settings(error):
    """Our message for an error in the YAML that fairseq-hydra-train reads; None for any other."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{mark.name}: line {mark.line + 1} is not valid YAML: {error.problem}"
    if isinstance(error, UnicodeDecodeError):
        return f"expected text in UTF-8; got {shown(error.object[error.start :], 20)}"
    if isinstance(error, yaml.YAMLError | HydraException | OmegaConfBaseException):
        reasons = [error, error.__cause__] if error.__cause__ else [error]
        text = ": ".join(" ".join(str(reason).split()) for reason in reasons)
        return f"settings in YAML: {text[:500]}"
    return None


def _of_unknown_name(error, traceback):
    """Our message where fairseq's registries do not know a name, or there is no --arch, for which
    fairseq has no message; None for any other error."""
    if traceback is None:
        return None
    *_, (frame, _) = walk_tb(traceback)
    raised = type(error), frame.f_code.co_filename
    if raised == (KeyError, registry.__file__):
        return f"expected a name that is registered with fairseq; got {shown(str(error.args[0]))}"
    if raised == (RuntimeError, options.__file__) and not error.args:
        return "expected --arch, such as lstm_doc_lm or lstm_luong_doc; got none"
    return None


def check_settings_file(argv: Sequence[str]) -> None:
    """Raise ``FairseqDocError`` where the command line of fairseq-hydra-train names a YAML file that
    does not exist: it would use fairseq's own settings without a word."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--config-dir", "-cd")
    given = parser.parse_known_args(argv[1:])[0]
    if not given.config_name or not given.config_dir:
        return
    name = given.config_name.removesuffix(".yaml") + ".yaml"
    folders = (given.config_dir, os.path.join(os.path.dirname(registry.__file__), "config"))
    if not any(os.path.isfile(os.path.join(folder, name)) for folder in folders):
        raise FairseqDocError(
            f"{os.path.join(given.config_dir, name)}: expected a file of settings in YAML, as "
            "--config-dir and --config-name say; got none"
        )
