"""The systems to compare: predefined ones, and those of the command line."""

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq.data.data_utils import load_indexed_dataset

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.evaluation.ensemble import TASK
from fairseq_doc.evaluation.translation import TRANSLATION
from fairseq_doc.files import check_input
from fairseq_doc.options import check_needs
from fairseq_doc.tuning.command import Command, read_command, refuse_seed

_BALANCE = "--doc-balance published --doc-lambda 0.001"
_PLAIN = "--plain-output --doc-components 0,0,0,1"
SYSTEMS = {
    TASK: {
        "softmax": "--arch lstm_awd_lm_{size} --lr 30 {widths}",
        "mos": f"--arch lstm_mos_lm_{{size}} --lr 20 {_BALANCE} {{widths}} {{mos}}",
        "doc": f"--arch lstm_doc_lm_{{size}} --lr 20 {_BALANCE} {{widths}} {{doc}}",
    },
    TRANSLATION: {
        "softmax": f"--arch lstm_luong_doc_small {_PLAIN}",
        "mos": f"--arch lstm_luong_doc_small --doc-components 0,0,0,2 {_BALANCE}",
        "doc": f"--arch lstm_luong_doc_small --doc-components 0,0,2,2 {_BALANCE}",
    },
}
# A text with fewer tokens than the first number gets the size of the quick start and little
# dropout; one with fewer than the second, the small size; a longer one the size for Penn Treebank.
_TINY, _SMALL = 300_000, 3_000_000
_DROPOUTS = " ".join(f"--{name}-dropout 0.1" for name in ("input", "hidden", "output", "weight"))
_TINY_WORDS = {
    "widths": f"--decoder-embed-dim 64 --layer-dims 128,128,64 {_DROPOUTS}",
    "mos": "--doc-components 0,0,0,4 --component-dropout 0.1",
    "doc": "--doc-components 0,0,2,2 --component-dropout 0.1",
}
# Options that are added to a command that lacks them: _PACKAGE and _CRITERION to every one, _USUAL
# to that of a language model, and _OPTIMIZER to that of a language model without --optimizer.
_PACKAGE = ("--user-dir fairseq_doc", "--no-epoch-checkpoints")
_CRITERION = "doc_cross_entropy"  # the systems use its options
_USUAL = (
    f"--task {TASK}",
    "--ar-alpha 2",
    "--tar-beta 1",
    "--clip-norm 0.25",
    "--batch-size 12",
    "--batch-size-valid 10",
    "--num-workers 0",
    "--distributed-world-size 1",
    "--log-format simple",
)
_OPTIMIZER = ("--optimizer nt_asgd", "--lr-scheduler nt_asgd", "--weight-decay 1.2e-6")


def completed(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command line, completed by what the systems and the training of a language model need;
    and the predefined systems of its task, {name: options}, without options that the command line
    has itself.

    The number of epochs is such that 20 million tokens are read in all, but at least 10 and at most
    40. Averaging starts after a tenth of them without a better validation loss.
    """
    if words[1].startswith("-"):
        raise FairseqDocError(f"expected fairseq-train DATA, then options; got {shown(words[1])}")
    given = {word.partition("=")[0].replace("--max-sentences", "--batch-size") for word in words}
    if given & {"--arch", "-a"}:
        raise FairseqDocError("--arch cannot be given, since --systems names the models")
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--task", default=TASK, choices=SYSTEMS)
    parser.add_argument("--criterion", choices=[_CRITERION])
    parser.add_argument("--optimizer", default="nt_asgd")
    args, _ = parser.parse_known_args(list(words))
    task = args.task
    added, fields = [*_PACKAGE, f"--criterion {_CRITERION}"], dict.fromkeys(_TINY_WORDS, "")
    size = "small"
    if task == TASK:
        tokens = _training_tokens(words[1])
        if tokens < _TINY:
            fields = _TINY_WORDS
        size = "small" if tokens < _SMALL else "ptb"
        epochs = min(40, max(10, 20_000_000 // max(1, tokens)))
        added += _USUAL
        # The systems' own learning rates are those of nt_asgd.
        is_other = args.optimizer != "nt_asgd"
        check_needs(f"--optimizer {args.optimizer}", {"--lr, too": "--lr" in given}, is_other)
        if "--optimizer" not in given:
            added += [*_OPTIMIZER, f"--nonmono {max(2, epochs // 10)}"]
        if not given & {"--max-epoch", "--max-update"}:
            added.append(f"--max-epoch {epochs}")
    systems = {
        name: _without(text.format(size=size, **fields), given)
        for name, text in SYSTEMS[task].items()
    }
    return [*words, *shlex.split(_without(" ".join(added), given))], systems


def _without(options: str, names: set[str]) -> str:
    """The options, without those of these names."""
    parts = re.findall(r"--\S+(?: (?!--)\S+)*", options)
    return " ".join(part for part in parts if part.split()[0] not in names)


def _training_tokens(data: str) -> int:
    if not Path(data, "train.idx").exists() and any(Path(data).glob("train.*-*.idx")):
        raise FairseqDocError(
            f"{data}: expected data of a language model; got data of a translation: add --task "
            "translation with -s and -t"
        )
    check_input(f"{data}/train.idx")
    dataset = load_indexed_dataset(f"{data}/train", None, "mmap")  # deleting it frees the sizes
    return int(dataset.sizes.sum())


def chosen_systems(
    predefined: Sequence[str],
    own: Sequence[str],
    words: Sequence[str],
    remark: Callable[[str], None],
) -> dict[str, Command]:
    """The systems, {name: command}: ``predefined`` ones, by name, and ``own`` ones, NAME=OPTIONS.
    For the predefined ones the shared command line ``words`` is completed, and ``remark`` receives
    a line on what was added. fairseq's parser checks each system before any training.

    Raises:
        FairseqDocError: an unknown or repeated name, no system, a name that cannot be
            a folder's, --seed, or options that fairseq-train refuses.
    """
    if len(words) < 2:
        raise FairseqDocError("expected a training, -- fairseq-train DATA ..., at the end")
    options = {}
    if predefined:
        words, known = completed(words)
        for name in predefined:
            if name in options or name not in known:
                raise FairseqDocError(
                    f"--systems: expected different names among {', '.join(known)}; got {name}"
                )
            options[name] = known[name]
        remark(f"shared by all systems: {shlex.join(words)}")
    for text in own:
        found = re.fullmatch(r"([\w+-][\w.+-]*)=(.*)", text, re.DOTALL)
        if found is None or found[1] in options:
            raise FairseqDocError(
                "expected a system with a new name of letters and digits, NAME='OPTIONS'; got "
                f"{shown(text)}"
            )
        options[found[1]] = found[2]
    if not options:
        raise FairseqDocError("expected a system, by --systems or NAME='OPTIONS'; got none")
    systems = {}
    for name, text in options.items():
        try:
            line = [*words, *shlex.split(text)]
        except ValueError as error:
            raise FairseqDocError(f"{name}: expected options of fairseq-train: {error}") from None
        refuse_seed(line)
        systems[name] = read_command(line, {})
    return systems
