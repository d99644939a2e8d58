"""``fairseq-doc``: prepares data from text and trees, and uses trained models.

Each command is a file in this folder. Its docstring starts with its group and purpose; it defines
``EXAMPLE``; ``Options``, a dataclass; ``run(settings)``, whose result can be written as JSON; and
``as_text(result)``. It is imported only when called, since importing fairseq and torch takes
seconds. The files that its options write are checked before it runs, and named in the result and at
the end of the text.
"""

import argparse
import importlib
import io
import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import fairseq_doc
from fairseq_doc import fairseq_warnings, installation, interruptions
from fairseq_doc.cli.outputs import check_outputs
from fairseq_doc.cli.version import VersionAction
from fairseq_doc.errors import CONTROL, LONE, escaped, first_usage_error, interruption
from fairseq_doc.evaluation import progress
from fairseq_doc.files import last_read
from fairseq_doc.json_text import as_json
from fairseq_doc.options import add_options, files_written, read_options, with_flags

GROUPS = ("prepare", "train", "evaluate", "analyse", "export", "parse")  # the order of work


def _found() -> dict[str, dict[str, str]]:
    """{group: {command: purpose}}, from the docstrings of the files."""
    commands: dict[str, dict[str, str]] = {group: {} for group in GROUPS}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        docstring = path.read_text(encoding="utf-8").removeprefix('"""').partition('"""')[0]
        group, _, summary = docstring.partition(": ")
        if group in commands:
            commands[group][path.stem.replace("_", "-")] = " ".join(summary.split()).rstrip(".")
    return commands


COMMANDS = _found()
SUBCOMMANDS = {name: text for commands in COMMANDS.values() for name, text in commands.items()}
# fairseq's own commands, listed to complete the workflow.
TRAINING = {
    "fairseq-train": "train: fairseq-train DATA --user-dir fairseq_doc ...",
    "fairseq-hydra-train": "the same with its options in a YAML file",
}
# Environment variable: 1 shows the traceback of an error that the user cannot correct.
TRACEBACK = "FAIRSEQ_DOC_TRACEBACK"


def overview() -> str:
    """The list of commands by group."""
    lines = ["commands in the order of a workflow; fairseq-doc COMMAND --help describes one:"]
    for group, commands in COMMANDS.items():
        rows = (TRAINING if group == "train" else {}) | commands
        lines += ["", f"{group}:", *(f"  {name:<20} {text}" for name, text in rows.items())]
    return "\n".join(lines)


def module_of(command: str) -> ModuleType:
    """The file of a command."""
    return importlib.import_module(f"fairseq_doc.cli.{command.replace('-', '_')}")


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands. With ``only``, just that command is imported and gets options."""
    parser = argparse.ArgumentParser(
        prog="fairseq-doc",
        usage="fairseq-doc [-h] [--version] COMMAND ...",
        description="Models with Direct Output Connection: prepare data, evaluate, analyse, parse.",
        epilog=overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action=VersionAction,
        help="print the installed versions, the processor and the matrix library",
    )
    commands = parser.add_subparsers(
        prog="fairseq-doc", metavar="COMMAND", required=True, help=argparse.SUPPRESS
    )
    for name, summary in SUBCOMMANDS.items():
        own = commands.add_parser(
            name,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if only not in (None, name):
            continue
        command = module_of(name)
        own._negative_number_matcher = re.compile(r"-\.?\d")  # also -2:4:0.5 and -1e-3 are values
        own.epilog = f"example:\n  {command.EXAMPLE}"
        add_options(own, command.Options)
        if "--json" not in own._option_string_actions:
            own.add_argument("--json", action="store_true", help="print one JSON object")
        own.set_defaults(command=command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. The exit status is 0; 1 for an error that the user can correct; 2 for
    arguments that argparse refuses; 70 for any other error, which is raised instead if the
    environment variable FAIRSEQ_DOC_TRACEBACK is 1; 130 after an interruption."""
    _set_up_logging()
    if isinstance(sys.stdout, io.TextIOWrapper):  # any locale; names of files stay unchanged
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    interruptions.apply()
    words = sys.argv[1:] if arguments is None else arguments
    called = next((word for word in words if not word.startswith("-")), "")
    try:
        return _run(called, words)
    except KeyboardInterrupt:
        return 130


def _run(called: str, words: Sequence[str]) -> int:
    try:
        args = _parser_of(called).parse_args(words)
        if "fairseq" in sys.modules:  # the command's file imports it
            fairseq_doc.register()
        result, text = outcome(args.command, settings_of(args))
        printed = as_json(result) if args.json else text
        print(escaped(printed, LONE + CONTROL * sys.stdout.isatty()), flush=True)
    except BrokenPipeError:  # the reader closed the pipe
        pass
    except Exception as error:
        if interrupted := interruption(error):
            raise interrupted from None
        usage_error = first_usage_error(error)
        correctable = usage_error is not None or isinstance(error, OSError)  # a full disk
        if not correctable and os.environ.get(TRACEBACK) == "1":
            raise
        message = str(error) if correctable else _unexpected(error)
        message = with_flags(usage_error) if usage_error else message
        line = escaped(message, CONTROL + "\n")
        print(f"fairseq-doc {called}: error: {line}", file=sys.stderr)
        return 1 if correctable else os.EX_SOFTWARE
    finally:
        _drop_output()
    return 0


def outcome(command: ModuleType, settings: Any) -> tuple[dict[str, Any], str]:
    """Run a command; its result, and the same as text, each followed by the files it has written."""
    check_outputs(settings)
    shows = not getattr(settings, "no_progress_bar", True)
    progress.interval = getattr(settings, "log_interval", None) if shows else None
    try:
        result = command.run(settings)
    finally:
        progress.interval = None
    written = files_written(settings)
    paths = [*result.get("files", ()), *written.values()]
    lines = [command.as_text(result), *(f"wrote {path}" for path in paths)]
    return result | written, "\n".join(lines)


def _unexpected(error: Exception) -> str:
    """The line for an unexpected error, whose cause may be a damaged file or a bug."""
    text = " ".join(str(error).split())[:300]
    after = f" after reading {last_read()}" if last_read() else ""
    return f"{type(error).__name__} ({text}){after}; {TRACEBACK}=1 shows the traceback"


def _parser_of(called: str) -> argparse.ArgumentParser:
    try:
        return make_parser(only=called)
    except Exception:
        installation.check()  # raises if the installation is the reason
        raise
    finally:
        _set_up_logging()  # again, since some imported packages set up their own logging


def settings_of(args: argparse.Namespace) -> Any:
    """The settings of the command that was called."""
    return read_options(args.command.Options, vars(args))


def _drop_output() -> None:
    """Discard unwritten standard output, which Python would otherwise try to write again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _set_up_logging() -> None:
    """Print warnings on standard error, except those that are irrelevant to users."""
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        level=logging.WARNING,
        stream=sys.stderr,
        force=True,
    )
    fairseq_warnings.apply()
