"""The command line to be tuned, checked by fairseq's own parser before any work."""

import contextlib
import io
import os
import re
import shlex
import sys
from argparse import Action, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import fairseq
from fairseq import options

import fairseq_doc
from fairseq_doc import registration  # noqa: F401  # the parser knows our options
from fairseq_doc.errors import FairseqDocError, first_usage_error, shown
from fairseq_doc.tuning.settings import Settings, grouped, option_words

PROGRAM = "fairseq-train"
# The tuner sets them, or reads a trial's value from checkpoints that would lack it.
_REFUSED = ("save_dir", "restore_file", "no_save", "disable_validation")

# A stored command, which may be a stranger's, may have options that are flags, numbers or choices,
# except for these two flags, which use other programs.
_OTHER_PROGRAMS = ("azureml_logging", "use_plasma_view")
# Of options whose value is a text it may have these; others could name a file to write, or code.
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


def parsed(words: Sequence[str], added: Sequence[str] = ()) -> tuple[dict[str, Action], Namespace]:
    """Parse a command line followed by the words ``added``. Returns ({option: its action in
    fairseq's parser}, the settings). The options of the model, the task and other parts that the
    command line chooses are included."""
    if not words or os.path.basename(words[0]) != PROGRAM:
        raise FairseqDocError(
            f"expected the training to tune, -- {PROGRAM} DATA ..., after the other arguments; got "
            f"{shown(words[0]) if words else 'none'}"
        )
    line, printed = [*words[1:], *added], io.StringIO()
    argv, sys.argv = sys.argv, [PROGRAM, *line]  # fairseq looks for --user-dir here
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            parser = options.get_training_parser()
            args = options.parse_args_and_arch(parser, input_args=line)
        return dict(parser._option_string_actions), args
    except (Exception, SystemExit) as error:  # in fairseq's parser, or in a --user-dir
        if usage_error := first_usage_error(error):
            raise usage_error from None
        reason = printed.getvalue().partition("error: ")[2].strip() or repr(error)
        if reason == "RuntimeError()":  # fairseq raises it without a model
            reason = "--arch, the model, is missing"
        what = f"the command with {shlex.join(added)}" if added else "the command after --"
        raise FairseqDocError(f"{what} is not accepted by {PROGRAM}: {reason[:500]}") from None
    finally:
        sys.argv = argv


def kinds_of_numbers(words: Sequence[str]) -> dict[str, type]:
    """{option without its dashes: int or float} of those that are numbers, or lists of numbers."""
    kinds = {}
    for name, action in parsed(words)[0].items():
        with contextlib.suppress(Exception):  # the option does not take a number
            value = action.type("1") if callable(action.type) else ""
            kinds[name.lstrip("-")] = type(value[0] if isinstance(value, list) else value)
    return {name: kind for name, kind in kinds.items() if kind in (int, float)}


def read_command(words: Sequence[str], space: Mapping[str, Any]) -> Command:
    """Check a command line with fairseq's parser, also at both ends of every range. An option must
    not be both here and in the space, and must not be one that the tuner sets."""
    known, args = parsed(words)
    given = {known[name].dest for name in map(_name, words) if name in known}
    tuned = {known[f"--{option}"].dest for option in space if f"--{option}" in known}
    for name in _REFUSED:
        if name in given | tuned:
            raise FairseqDocError(
                f"--{name.replace('_', '-')} cannot be given, since every training has its own "
                "checkpoints and is rated by its best validation score; --finetune-from-model is "
                "allowed"
            )
    if both := sorted(given & tuned):
        option = f"--{both[0].replace('_', '-')}"
        raise FairseqDocError(
            f"{option} is both in the space and in the command after --; leave one out"
        )
    ends = {
        option: getattr(values, "choices", ()) or (values.low, values.high)
        for option, values in space.items()
    }
    for turn in range(max(map(len, ends.values()), default=0)):
        tried = {option: values[turn % len(values)] for option, values in ends.items()}
        parsed(words, option_words(tried))
    metric, maximize = args.best_checkpoint_metric, bool(args.maximize_best_checkpoint_metric)
    return Command(tuple(words), metric, maximize, args)


def with_options(command: Command, settings: Settings, words: Sequence[str]) -> Command:
    """A trial's training with the further options ``words``, which replace those of the study's
    command. Since the study may be a stranger's, an option that could write or run something
    elsewhere must be repeated in ``words`` as a sign of trust."""
    if words and not words[0].startswith("-"):
        raise FairseqDocError(
            f"expected options for the study's training after --; got {shown(words[0])}"
        )
    refuse_seed(words)
    tried = option_words(settings)
    given = {_name(word) for word in words if word.startswith("-")}
    for name in given.intersection(map(_name, tried)):
        raise FairseqDocError(f"{name} cannot be given, since the trial sets it; leave it out")
    stored = [option for option in grouped(command.words) if _name(option[0]) not in given]
    untrusted = [*stored[1:], *grouped(tried)[1:]]
    _refuse([option for option in untrusted if not _has_harmless_values(option)])
    result = read_command([*chain.from_iterable(stored), *tried, *words], {})
    known = parsed(result.words)[0]
    _refuse([option for option in untrusted if not _is_harmless(known.get(_name(option[0])))])
    return result


def _has_harmless_values(option: Sequence[str]) -> bool:
    """Whether fairseq's parser may read an option: it imports --user-dir."""
    values = [option[0].partition("=")[2], *option[1:]]
    if _name(option[0]) != "--user-dir":
        return all(map(_VALUE.fullmatch, values))
    folder, home = "".join(values), Path(fairseq.__file__).parent
    places = (Path(folder), home / folder, home.parent / folder)  # the first one counts
    found = next((place for place in places if place.exists()), None)
    return found is not None and found.samefile(Path(fairseq_doc.__file__).parent)


def _is_harmless(action: Action | None) -> bool:
    """Whether an option cannot write or run anything outside the training's folder."""
    if action is None or action.dest in _OTHER_PROGRAMS:
        return False
    of_kind = action.nargs == 0 or action.choices or action.type in (int, float)
    return bool(of_kind or action.dest in (*_TEXTS, "user_dir"))


def _refuse(options: Sequence[Sequence[str]]) -> None:
    if options:
        raise FairseqDocError(
            f"the study's command has {shown(shlex.join(options[0]), 500)}, which could write or "
            "run something outside the training's folder; if you trust it, repeat it after --"
        )


def refuse_seed(words: Sequence[str]) -> None:
    """Refuse --seed, which differs between the trainings of one command."""
    if "--seed" in map(_name, words):
        raise FairseqDocError("--seed cannot be given, since every training gets its own seed")


def _name(word: str) -> str:
    return word.partition("=")[0]


def program_for(words: Sequence[str]) -> list[str]:
    """The program named by its path in the command, or this Python's fairseq-train."""
    return [words[0]] if os.sep in words[0] else [sys.executable, "-m", "fairseq_cli.train"]
