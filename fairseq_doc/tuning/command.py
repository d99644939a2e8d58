"""The command line that is tuned, read by fairseq's own parser before any work."""

import contextlib
import difflib
import io
import os
import shlex
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import fairseq
from fairseq import options

import fairseq_doc
from fairseq_doc import registration  # noqa: F401  # the parser knows our options
from fairseq_doc.errors import FairseqDocError, first_usage_error, shown
from fairseq_doc.tuning.settings import option_words
from fairseq_doc.tuning.space import Space, ends

PROGRAM = "fairseq-train"
PACKAGE = Path(fairseq_doc.__file__).parent
# Options that the tuner sets, or without which there is no value: (name in fairseq's settings: why).
_REFUSED = {
    "save_dir": "--save-dir: expected none, since every trial gets its own; leave it out",
    "restore_file": "--restore-file: expected none, since its best validation would count as every "
    "trial's; --finetune-from-model starts from a model",
    "no_save": "--no-save: expected checkpoints, from which a trial's value is read; leave it out",
    "disable_validation": "--disable-validation: expected validations, whose best is a trial's value; "
    "leave it out",
}


@dataclass(frozen=True)
class Command:
    """A command line of fairseq-train without what is tuned.

    Attributes:
        words: from ``fairseq-train`` on.
        metric: what the best checkpoint is chosen by.
        maximize: whether more of it is better.
    """

    words: tuple[str, ...]
    metric: str
    maximize: bool


def read_command(words: Sequence[str], space: Space) -> Command:
    """Check a command line, and that it takes the values at both ends of every range.

    Raises:
        FairseqDocError: no fairseq-train, what it would refuse itself, an option of the space that it
            does not know or that the command line gives, or one that the tuner sets.
    """
    if not words:
        raise FairseqDocError(
            f"expected -- {PROGRAM} DATA ... after the other arguments: the training to tune; got none"
        )
    if os.path.basename(words[0]) != PROGRAM:
        raise FairseqDocError(
            f"expected a command that begins with {PROGRAM} after --; got {shown(words[0])}"
        )
    parser, args = _parsed(words[1:], "the command after --")
    given = _destinations(parser, words[1:])
    for name, problem in _REFUSED.items():
        if name in given:
            raise FairseqDocError(problem)
    known = parser._option_string_actions
    for option in space:
        action = known.get(f"--{option}")
        if action is None:
            names = [name.lstrip("-") for name in known]
            near = difflib.get_close_matches(option, names, n=1)
            hint = f"; did you mean --{near[0]}?" if near else ""
            raise FairseqDocError(
                f"the space has --{option}: expected an option of this training; {PROGRAM} has no such "
                f"option with these settings{hint}"
            )
        if action.dest in given:
            raise FairseqDocError(
                f"--{option}: expected in the space or in the command after --; got both; leave one out"
            )
        if action.dest in (*_REFUSED, "user_dir"):
            raise FairseqDocError(f"the space has --{option}, which must be the same in all trials")
    tried = {option: ends(values) for option, values in space.items()}
    for turn in range(max(map(len, tried.values()))):
        added = option_words({option: end[turn % len(end)] for option, end in tried.items()})
        _parsed([*words[1:], *added], f"the command with {shlex.join(added)}")
    return Command(
        tuple(words), args.best_checkpoint_metric, bool(args.maximize_best_checkpoint_metric)
    )


def with_options(command: Command, words: Sequence[str], space: Space) -> Command:
    """A study's command with further options, which replace its own.

    Raises:
        FairseqDocError: as :func:`read_command`; words that are no options; a seed; or a --user-dir,
            which is code to be run, that is the study's alone.
    """
    if words and not words[0].startswith("-"):
        raise FairseqDocError(
            f"expected options after --, which the study's training gets too; got {shown(words[0])}"
        )
    if any(word.partition("=")[0] == "--seed" for word in words):
        raise FairseqDocError("--seed: expected none after --, since every training gets its own")
    folder = _user_dir(command.words)
    if folder is not None and _user_dir(words) is None and not _is_this_package(folder):
        raise FairseqDocError(
            f"the study's command runs the code in --user-dir {shown(folder, 500)}: expected this package, "
            f"{PACKAGE}, or a folder that you name; if you trust its code, add -- --user-dir "
            f"{shlex.quote(folder)}"
        )
    return read_command([*command.words, *words], space)


def _user_dir(words: Sequence[str]) -> str | None:
    """The folder that fairseq takes from a command line, whose first word is of no use here."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--user-dir")
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return parser.parse_known_args(list(words))[0].user_dir
    except SystemExit:
        raise FairseqDocError("--user-dir: expected a folder; got none") from None


def _is_this_package(folder: str) -> bool:
    """Whether fairseq takes a --user-dir for this package. Its own folder and the one above go after
    the working directory."""
    home = os.path.dirname(fairseq.__file__)
    places = (folder, os.path.join(home, folder), os.path.join(home, "..", folder))
    found = next((place for place in places if os.path.exists(place)), None)
    return found is not None and os.path.samefile(found, PACKAGE)


def program_for(words: Sequence[str]) -> list[str]:
    """The words that start the training: the file that is named, the script beside this Python's, the
    one on the path, or the module."""
    if os.sep in words[0]:
        return [words[0]]
    beside = Path(sys.executable).parent / PROGRAM
    if beside.exists():
        return [str(beside)]
    found = shutil.which(PROGRAM)
    return [found] if found else [sys.executable, "-m", "fairseq_cli.train"]


def _destinations(parser: ArgumentParser, words: Sequence[str]) -> set[str]:
    """The settings that a command line gives, by fairseq's names."""
    known = parser._option_string_actions
    names = [word.partition("=")[0] for word in words]
    return {known[name].dest for name in names if name in known}


def _parsed(words: Sequence[str], what: str) -> tuple[ArgumentParser, Namespace]:
    """fairseq's parser, which knows more options after it has read the words, and the settings."""
    printed = io.StringIO()
    try:
        with _as_its_process(words), contextlib.redirect_stderr(printed):
            with contextlib.redirect_stdout(printed):
                parser = options.get_training_parser()
                return parser, options.parse_args_and_arch(parser, input_args=list(words))
    except SystemExit:
        lines = [line for line in printed.getvalue().splitlines() if line.strip()]
        reason = lines[-1].partition("error: ")[2] if lines else ""
    except Exception as error:  # of fairseq's reading, or of a --user-dir
        usage_error = first_usage_error(error)
        if usage_error is not None:
            raise usage_error from None
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        if reason == "RuntimeError:":  # of fairseq, for a model that it does not know
            reason = "no --arch, the model, is given"
    reason = reason or "it asks for help or ends at once"
    raise FairseqDocError(f"{what}: expected what {PROGRAM} takes; it says: {reason[:500]}")


@contextlib.contextmanager
def _as_its_process(words: Sequence[str]) -> Iterator[None]:
    """fairseq looks for --user-dir in sys.argv."""
    before = sys.argv
    sys.argv = [PROGRAM, *words]
    try:
        yield
    finally:
        sys.argv = before
