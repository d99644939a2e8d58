"""The command line to be tuned, checked by fairseq's own parser before any work."""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import fairseq
from fairseq import options

import fairseq_doc
from fairseq_doc import registration  # noqa: F401  # the parser knows our options
from fairseq_doc.errors import FairseqDocError, first_usage_error, shown
from fairseq_doc.tuning.settings import Settings, grouped, option_words

if TYPE_CHECKING:  # it needs Optuna
    from fairseq_doc.tuning.space import Space

PROGRAM = "fairseq-train"
PACKAGE = Path(fairseq_doc.__file__).parent
# Refused options: {name in fairseq's settings: why}
_REFUSED = {
    "save_dir": "every trial has its own",
    "restore_file": "its best validation would count for every trial; to start from a model, use "
    "--finetune-from-model",
    "no_save": "a trial's value is read from its checkpoints",
    "disable_validation": "a trial's value is its best validation",
}


# A stored command may have flags, numbers and choices, except these two,
_OTHER_PROGRAMS = ("azureml_logging", "use_plasma_view")
# and these texts. Other texts can name a file to write or code to run.
_TEXTS = """adafactor_eps adam_betas adamax_betas adaptive_softmax_cutoff batch_size_valid
    best_checkpoint_metric decoder_attention decoder_output_dim doc_components eval_bleu_detok
    gen_subset layer_dims lr max_tokens_valid phase_ratio source_lang stop_above target_lang
    total_num_update train_subset update_freq valid_subset""".split()
# Their values must be words or tuples of numbers: fairseq passes some of them to Python's eval.
_VALUE = re.compile(r"[\w.,+-]*|[\d.,eE+\-\[\]() ]*", re.ASCII)


@dataclass(frozen=True)
class Command:
    """A command line of fairseq-train without the tuned options, and how it rates checkpoints.
    ``args`` are the parsed settings, if this process has parsed it."""

    words: tuple[str, ...]
    metric: str
    maximize: bool
    args: Namespace = field(default_factory=Namespace, compare=False, repr=False)

    def line(self, settings: Settings) -> str:
        return shlex.join([*self.words, *option_words(settings)])


def options_of(words: Sequence[str]) -> tuple[dict[str, Action], Namespace]:
    """({option: its action in fairseq's parser}, settings) of a command line."""
    if not words or os.path.basename(words[0]) != PROGRAM:
        got = shown(words[0]) if words else "none"
        raise FairseqDocError(
            f"expected the training to tune, -- {PROGRAM} DATA ..., after the other arguments; got "
            f"{got}"
        )
    return parsed(words[1:], "the command after --")


def kinds_of_numbers(words: Sequence[str]) -> dict[str, type]:
    """{option without its dashes: int or float} of those that are numbers, or lists of numbers."""
    kinds = {}
    for name, action in options_of(words)[0].items():
        with contextlib.suppress(Exception):  # the option does not take a number
            value = action.type("1") if callable(action.type) else ""
            kinds[name.lstrip("-")] = type(value[0] if isinstance(value, list) else value)
    return {name: kind for name, kind in kinds.items() if kind in (int, float)}


def read_command(words: Sequence[str], space: "Space") -> Command:
    """Check a command line with fairseq's parser, also at both ends of every range. An option must
    not be both here and in the space, and must not be one that the tuner sets."""
    known, args = options_of(words)
    names = [word.partition("=")[0] for word in words]
    given = {known[name].dest for name in names if name in known}
    for name, reason in _REFUSED.items():
        if name in given:
            option = f"--{name.replace('_', '-')}"
            raise FairseqDocError(f"{option} cannot be given, since {reason}; leave it out")
    tried: dict[str, tuple] = {}
    for option, values in space.items():
        if f"--{option}" not in known:
            raise FairseqDocError(
                f"the space has --{option}, which is not an option of {PROGRAM} with these settings"
            )
        name = known[f"--{option}"].dest
        if name in given:
            raise FairseqDocError(
                f"--{option} is both in the space and in the command after --; leave one out"
            )
        if name in (*_REFUSED, "user_dir"):
            raise FairseqDocError(f"the space has --{option}, which must be equal in all trials")
        choices = getattr(values, "choices", None)
        tried[option] = choices or (getattr(values, "low"), getattr(values, "high"))  # noqa: B009
    for turn in range(max(map(len, tried.values()), default=0)):
        added = option_words({option: ends[turn % len(ends)] for option, ends in tried.items()})
        parsed([*words[1:], *added], f"the command with {shlex.join(added)}")
    metric, maximize = args.best_checkpoint_metric, bool(args.maximize_best_checkpoint_metric)
    return Command(tuple(words), metric, maximize, args)


def with_options(command: Command, settings: Settings, words: Sequence[str]) -> Command:
    """A trial's training with further options, which replace its own. Since the study may be a
    stranger's, an option that could write or run something elsewhere must be repeated in ``words``
    as a sign of trust."""
    if words and not words[0].startswith("-"):
        raise FairseqDocError(
            f"expected options for the study's training after --; got {shown(words[0])}"
        )
    refuse_seed(words)
    program, *options = grouped(command.words)
    tried = grouped(option_words(settings))[1:]
    trusted = {_name(group) for group in grouped(words)[1:]}
    for name in trusted.intersection(map(_name, tried)):
        raise FairseqDocError(f"{name} cannot be given, since the trial sets it; leave it out")
    stored = [group for group in [*options, *tried] if _name(group) not in trusted]
    for group in stored:
        values = [group[0].partition("=")[2], *group[1:]]
        if _name(group) == "--user-dir":
            harmless = _is_this_package("".join(values))
        else:
            harmless = all(map(_VALUE.fullmatch, values))
        if not harmless:
            raise _untrusted(group)
    result = read_command([*program, *chain.from_iterable(stored), *words], {})
    known = options_of(result.words)[0]
    for group in stored:
        if _name(group) != "--user-dir" and not _is_harmless(known.get(_name(group))):
            raise _untrusted(group)
    return result


def _name(group: Sequence[str]) -> str:
    return group[0].partition("=")[0]


def _is_harmless(action: Action | None) -> bool:
    """Whether an option cannot write or run anything outside the training's folder."""
    if action is None or action.dest in _OTHER_PROGRAMS:
        return False
    of_kind = action.nargs == 0 or action.choices or action.type in (int, float)
    return bool(of_kind) or action.dest in _TEXTS


def _untrusted(option: Sequence[str]) -> FairseqDocError:
    return FairseqDocError(
        f"the study's command has {shown(shlex.join(option), 500)}, which could write or run "
        "something outside the training's folder; if you trust it, repeat it after --"
    )


def refuse_seed(words: Sequence[str]) -> None:
    """Refuse --seed where each training gets its own."""
    if any(word.partition("=")[0] == "--seed" for word in words):
        raise FairseqDocError("--seed cannot be given, since every training gets its own seed")


def value_of(option: str, words: Sequence[str]) -> str | None:
    """The value of an option in a command line, as fairseq's parser reads it; None if absent."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(option, dest="value")
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return parser.parse_known_args(list(words))[0].value
    except SystemExit:
        raise FairseqDocError(f"{option}: expected a value; got none") from None


def _is_this_package(folder: str) -> bool:
    """Whether a --user-dir, wherever fairseq finds it first, is this package."""
    home = os.path.dirname(fairseq.__file__)
    places = (folder, os.path.join(home, folder), os.path.join(home, "..", folder))
    found = next((place for place in places if os.path.exists(place)), None)
    return found is not None and os.path.samefile(found, PACKAGE)


def program_for(words: Sequence[str]) -> list[str]:
    """The file named in the command, the script next to this Python or on the path, or the module."""
    if os.sep in words[0]:
        return [words[0]]
    own = Path(sys.executable).parent / PROGRAM
    found = str(own) if own.exists() else shutil.which(PROGRAM)
    return [found] if found else [sys.executable, "-m", "fairseq_cli.train"]


def parsed(words: Sequence[str], what: str) -> tuple[dict[str, Action], Namespace]:
    """({option: its action in the parser}, settings), including options added while parsing."""
    printed = io.StringIO()
    argv, sys.argv = sys.argv, [PROGRAM, *words]  # fairseq looks for --user-dir here
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            parser = options.get_training_parser()
            args = options.parse_args_and_arch(parser, input_args=list(words))
        return dict(parser._option_string_actions), args
    except SystemExit:
        lines = [line for line in printed.getvalue().splitlines() if line.strip()]
        reason = lines[-1].partition("error: ")[2] if lines else ""
    except Exception as error:  # in fairseq's parser, or in a --user-dir
        usage_error = first_usage_error(error)
        if usage_error is not None:
            raise usage_error from None
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        if reason == "RuntimeError:":  # fairseq raises it without a model
            reason = "--arch, the model, is missing"
    finally:
        sys.argv = argv
    reason = reason or "only prints help or a version"
    raise FairseqDocError(f"{what} is not accepted by {PROGRAM}: {reason[:500]}")
