"""Systems that are trained alike, each with several seeds, and what they reach.

DIR/data.SHA256SUMS               of the data folder that all read
DIR/NAME-seedN/                   a training, see training.py
DIR/NAME-seedN/evaluation.json    what its best checkpoint reaches; its checksum is in SHA256SUMS
"""

import contextlib
import json
import math
import re
import shlex
import statistics
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairseq.data.data_utils import load_indexed_dataset
from fairseq.utils import split_paths

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.evaluation.ensemble import TASK, load_ensemble
from fairseq_doc.evaluation.learning_curves import MAX_LINE, LearningCurve, read_log
from fairseq_doc.evaluation.perplexity import evaluate
from fairseq_doc.evaluation.progress import Progress
from fairseq_doc.evaluation.translation import TRANSLATION
from fairseq_doc.files import check_input, lock, read_text, text_lines, whole_file, write_lines
from fairseq_doc.preparation.stages import read_settings
from fairseq_doc.scoring.bleu import score_bleu
from fairseq_doc.scoring.hypotheses import ReadOptions, read_references, read_system
from fairseq_doc.tuning.command import Command, read_command, refuse_seed, value_of
from fairseq_doc.tuning.training import CHECKPOINTS, LOG, best_value, folder_of, train_seeds

SPLITS = ("valid", "test")
MAX_JSON = 1 << 20  # bytes of the files of this folder
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
_SPEED = re.compile(r"\| train \| .*\| wps ([\d.]+) \|")

# ---- the usual systems, and what they need ----

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
# A text below the first number of tokens gets the quick start's size and little dropout, one below
# the second the small size, a longer one that of Penn Treebank.
_TINY, _SMALL = 300_000, 3_000_000
_DROPOUTS = " ".join(f"--{name}-dropout 0.1" for name in ("input", "hidden", "output", "weight"))
_TINY_WORDS = {
    "widths": f"--decoder-embed-dim 64 --layer-dims 128,128,64 {_DROPOUTS}",
    "mos": "--doc-components 0,0,0,4 --component-dropout 0.1",
    "doc": "--doc-components 0,0,2,2 --component-dropout 0.1",
}
# Options of a language model's training where the command has none; those of the optimizer and of
# the criterion only if it names no other.
_USUAL = (
    "--user-dir fairseq_doc",
    f"--task {TASK}",
    "--clip-norm 0.25",
    "--batch-size 12",
    "--batch-size-valid 10",
    "--num-workers 0",
    "--distributed-world-size 1",
    "--log-format simple",
)
_CRITERION = ("--criterion doc_cross_entropy", "--ar-alpha 2", "--tar-beta 1")
_OPTIMIZER = ("--optimizer nt_asgd", "--lr-scheduler nt_asgd", "--weight-decay 1.2e-6")


def completed(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command line with what a language model's training needs and it lacks; the usual systems
    of its task, by name, without the options that the command line has.

    The epochs read 20 million tokens in all, but are at least 10 and at most 40. Averaging starts
    after a tenth of them without a better validation.
    """
    if words[1].startswith("-"):
        raise FairseqDocError(f"expected fairseq-train DATA, then options; got {shown(words[1])}")
    given = {word.partition("=")[0] for word in words}
    if "--arch" in given:
        raise FairseqDocError("--systems names the models: expected no --arch; leave it out")
    task = value_of("--task", words) or TASK
    if task not in SYSTEMS:
        raise FairseqDocError(f"--task: expected one of {', '.join(SYSTEMS)}; got {shown(task)}")
    added, fields = ["--no-epoch-checkpoints"], dict.fromkeys(_TINY_WORDS, "")
    size = "small"
    if task == TASK:
        tokens = _training_tokens(words[1])
        if tokens < _TINY:
            fields = _TINY_WORDS
        size = "small" if tokens < _SMALL else "ptb"
        epochs = min(40, max(10, 20_000_000 // max(1, tokens)))
        added += _USUAL
        if "--criterion" not in given:
            added += _CRITERION
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
    """The options whose names are not among these."""
    parts = re.findall(r"--\S+(?: (?!--)\S+)*", options)
    return " ".join(part for part in parts if part.split()[0] not in names)


def _training_tokens(data: str) -> int:
    check_input(f"{data}/train.idx")
    dataset = load_indexed_dataset(f"{data}/train", None, "mmap")  # whose end frees the sizes
    return int(dataset.sizes.sum())


# ---- the comparison ----


def chosen_systems(
    usual: Sequence[str], others: Sequence[str], words: Sequence[str], remark: Callable[[str], None]
) -> dict[str, Command]:
    """The systems, by name: usual ones by their names, which add to the shared command line,
    ``words``, what it lacks, and ``others``, NAME=OPTIONS. ``remark`` takes a line on what was
    added. Each is read by fairseq's parser before any training.

    Raises:
        FairseqDocError: an unknown name, one twice, fewer than two, a name that cannot be a
            folder's, a seed, or what fairseq-train refuses.
    """
    if len(words) < 2:
        raise FairseqDocError("expected -- fairseq-train DATA ... at the end; got no training")
    options = {}
    if usual:
        words, known = completed(words)
        for name in usual:
            if name in options or name not in known:
                raise FairseqDocError(f"--systems: expected some of {', '.join(known)}; got {name}")
            options[name] = known[name]
        remark(f"the training that all share: {shlex.join(words)}")
    for text in others:
        name, sign, own = text.partition("=")
        if not sign or name in options:
            raise FairseqDocError(
                f"expected a system of a new name, NAME='OPTIONS'; got {shown(text)}"
            )
        options[name] = own
    if len(options) < 2:
        got = ", ".join(options) or "none"
        raise FairseqDocError(
            f"expected two systems or more, of --systems or NAME='OPTIONS'; got {got}"
        )
    systems = {}
    for name, text in options.items():
        if not re.fullmatch(r"[\w+-][\w.+-]*", name):
            raise FairseqDocError(
                f"expected a system's name of letters and digits; got {shown(name)}"
            )
        try:
            line = [*words, *shlex.split(text)]
        except ValueError as error:
            raise FairseqDocError(f"{name}: expected options of fairseq-train: {error}") from None
        refuse_seed(line)
        systems[name] = read_command(line, {})
    return systems


def compare(
    systems: dict[str, Command],
    seeds: int,
    workers: int,
    folder: Path,
    reference: str | None,
    progress: Progress,
    remark: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """Train each system as :func:`train_seeds` and evaluate it. What is done is not repeated.
    ``reference`` is the raw test references of a translation; None for language models.

    Returns:
        {system: ``command``; ``seeds``, those that did not diverge; ``parameters``;
        ``tokens_per_second``; ``valid`` and ``test``: ``values`` and their :func:`summary`}. A
        system all of whose trainings diverged is left out.

    Raises:
        FairseqDocError: a training failed, all diverged, a folder has a training with other options
            or on other data, or another process is at work.
    """
    for system in systems.values():
        _check(system.args, reference)
    if reference is not None:
        check_input(reference, again=True)
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"another process compares systems in {folder}: wait until it has ended"
    with lock(folder / "compare.lock", busy):
        _check_data(next(iter(systems.values())).args.data, folder)
        values = train_seeds(systems, seeds, workers, folder, remark)
        rows: dict[str, dict[str, Any]] = {}
        for name, ended in _ended(values, remark).items():
            system = systems[name]
            found = [
                _evaluation(system, folder_of(folder, name, seed), reference, progress)
                for seed in ended
            ]
            rows[name] = {
                "command": system.line({}),
                "seeds": ended,
                "parameters": found[0]["parameters"],
                "tokens_per_second": found[0]["tokens_per_second"],
            }
            for split in SPLITS:
                reached = [of_seed[split] for of_seed in found]
                baseline = next(iter(rows.values())).get(split, {"values": reached})["values"]
                rows[name][split] = {"values": reached, **summary(reached, baseline)}
    return rows


def _ended(
    values: dict[str, dict[int, float]], remark: Callable[[str], None]
) -> dict[str, list[int]]:
    """{system: its seeds that did not diverge}, without the systems that have none."""
    ended = {}
    for name, own in values.items():
        ended[name] = [seed for seed, value in own.items() if math.isfinite(value)]
        if not ended[name]:
            remark(f"{name}: every training diverged: it is left out")
    if not any(ended.values()):
        raise FairseqDocError("expected a training that does not diverge; got none")
    return {name: seeds for name, seeds in ended.items() if seeds}


def _check(args: Namespace, reference: str | None) -> None:
    """Raise ``FairseqDocError`` if what follows the training would fail."""
    if args.task not in SYSTEMS:
        raise FairseqDocError(
            f"--task: expected one of {', '.join(SYSTEMS)}; got {shown(str(args.task))}"
        )
    if (args.task == TRANSLATION) != (reference is not None):
        raise FairseqDocError("--reference: expected for a translation, and for no other task")
    if args.task == TASK:
        names = [f"{split}.idx" for split in SPLITS]
    elif args.source_lang is None or args.target_lang is None:
        raise FairseqDocError("expected --source-lang and --target-lang for a translation")
    else:
        names = [f"dict.{args.target_lang}.txt"]
    for name in names:
        check_input(Path(split_paths(args.data)[0]) / name)


def _check_data(data: str, folder: Path) -> None:
    """Raise ``FairseqDocError`` if the trainings of a folder read data that was made again since."""
    sums, kept = Path(split_paths(data)[0]) / checksums.NAME, folder / f"data.{checksums.NAME}"
    if not sums.exists():  # of fairseq-preprocess
        return
    lines = list(text_lines(sums))
    if kept.exists() and list(text_lines(kept)) != lines:
        raise FairseqDocError(
            f"{folder}: expected trainings on {data} as it is; got some on other data: "
            "remove the folder, or give another --dir"
        )
    write_lines(kept, lines)


def _evaluation(
    system: Command, folder: Path, reference: str | None, progress: Progress
) -> dict[str, Any]:
    """``valid`` and ``test`` of a finished training, perplexity, or its best validation and BLEU;
    ``parameters``; ``tokens_per_second``. Kept in the folder with the checkpoint's digest."""
    checkpoint = folder / CHECKPOINTS / "checkpoint_best.pt"
    data = system.args.data
    stamp = {"checkpoint": checksums.sha256_of(checkpoint), "data": data, "reference": reference}
    kept = folder / "evaluation.json"
    with contextlib.suppress(FairseqDocError, ValueError, AttributeError):  # none, or damaged
        checksums.check(kept)
        found = json.loads(read_text(kept, MAX_JSON))
        if found.pop("of") == stamp:
            return found
    if reference is None:
        ensemble = load_ensemble(str(checkpoint), data)
        found = {split: evaluate(ensemble, split, progress=progress).perplexity for split in SPLITS}
    else:
        best = best_value(folder / CHECKPOINTS, system.maximize)
        found = {"valid": best, "test": _bleu(system.args, folder, checkpoint, reference)}
    found |= _facts(folder / LOG)
    write_lines(kept, [json.dumps({**found, "of": stamp})])
    checksums.write(folder, [kept.name])
    return found


def _bleu(args: Namespace, folder: Path, checkpoint: Path, reference: str) -> float:
    """Of the test split, translated with beam 5."""
    out = folder / "generate-test.txt"
    words = [args.data, "--path", str(checkpoint)]
    words += ["--user-dir", args.user_dir] if args.user_dir else []
    words += ["--cpu"] if args.cpu else []
    words += ["--task", args.task, "-s", args.source_lang, "-t", args.target_lang]
    words += ["--gen-subset", "test", "--beam", "5", "--batch-size", "64", "--num-workers", "0"]
    with whole_file(out) as file:
        program = [sys.executable, "-m", "fairseq_cli.generate"]
        run = subprocess.run([*program, *words], stdout=file, stderr=subprocess.PIPE, text=True)
        if run.returncode:
            reason = run.stderr.strip().rpartition("\n")[2]
            raise FairseqDocError(f"{folder}: fairseq-generate failed: {reason}")
    data = Path(split_paths(args.data)[0])
    known = data if read_settings(data) is not None else None  # how the text was made
    read = ReadOptions(lang=args.target_lang, data=known)
    references = read_references(reference, read)
    system = read_system(str(out), references, read)
    return score_bleu([system], references, args.target_lang)["BLEU"]["systems"][0]["score"]


def _facts(log: Path) -> dict[str, Any]:
    """Parameters and the median speed of a training's epochs; None where the log does not say
    them."""
    text = "\n".join(text_lines(log, MAX_LINE, errors="replace"))
    parameters, speeds = _PARAMETERS.search(text), [float(s) for s in _SPEED.findall(text)]
    return {
        "parameters": int(parameters[1].replace(",", "")) if parameters else None,
        "tokens_per_second": statistics.median(speeds) if speeds else None,
    }


def summary(values: Sequence[float], baseline: Sequence[float]) -> dict[str, float | None]:
    """``mean``; standard ``deviation`` (n - 1); ``distance`` of the mean from the baseline's;
    ``distance_in_deviations``, divided by the root of the mean of both variances. None where a
    number needs more seeds."""
    several = min(len(values), len(baseline)) > 1
    distance = statistics.mean(values) - statistics.mean(baseline)
    spread = 0.0
    if several:
        spread = math.sqrt((statistics.variance(values) + statistics.variance(baseline)) / 2)
    return {
        "mean": statistics.mean(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
        "distance": distance,
        "distance_in_deviations": distance / spread if spread else None,
    }


def curves_of(rows: dict[str, dict[str, Any]], folder: Path) -> dict[str, list[LearningCurve]]:
    """{system: the learning curve of each seed}."""
    return {
        name: [read_log(folder_of(folder, name, seed) / LOG) for seed in row["seeds"]]
        for name, row in rows.items()
    }
