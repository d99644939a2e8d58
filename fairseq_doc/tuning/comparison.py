"""Several systems trained in the same way, each with several seeds, and their results.

DIR/data.SHA256SUMS               checksums of the data folder that all trainings read
DIR/NAME-seedN/                   a training, see training.py
DIR/NAME-seedN/evaluation.json    results of its best checkpoint; its checksum is in SHA256SUMS
"""

import contextlib
import json
import math
import os
import re
import statistics
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairseq.data.data_utils import load_indexed_dataset
from fairseq.utils import split_paths

import fairseq_doc
from fairseq_doc import checksums
from fairseq_doc.analysis.learning_curves import MAX_LINE, LearningCurve, read_log
from fairseq_doc.errors import FairseqDocError, check_count
from fairseq_doc.evaluation.ensemble import load_ensemble
from fairseq_doc.evaluation.perplexity import evaluate
from fairseq_doc.evaluation.translation import TRANSLATION
from fairseq_doc.files import (
    check_input,
    read_text,
    refuse_links,
    text_lines,
    whole_file,
    write_lines,
)
from fairseq_doc.json_text import as_json
from fairseq_doc.preparation.data_folder import read_settings
from fairseq_doc.scoring.hypotheses import ReadOptions, read_references, read_system
from fairseq_doc.scoring.metrics import bleu_of
from fairseq_doc.scoring.systems import score_bleu
from fairseq_doc.tuning.command import Command
from fairseq_doc.tuning.systems import SYSTEMS
from fairseq_doc.tuning.training import CHECKPOINTS, LOG, best_value, seed_folder, train_seeds

SPLITS = ("valid", "test")
FACTS = ("parameters", "tokens_per_second", "ceiling")
DATA = ("dict*.txt", "*.idx", "*.bin")  # what a data folder holds
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
_SPEED = re.compile(r"\| train \| .*\| wps ([\d.]+) \|")


def compare(
    systems: dict[str, Command],
    seeds: int,
    workers: int,
    folder: Path,
    reference: str | None,
    remark: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """Train each system by :func:`train_seeds` and evaluate it. Finished work is not repeated.
    ``reference``: file of the raw test references of a translation; None for language models.

    Returns:
        {system: ``command``; ``seeds``, those that did not diverge; ``parameters``;
        ``tokens_per_second``; ``ceiling``, of a translation's BLEU; ``valid`` and ``test``:
        ``values`` and their :func:`summary`}. A system is left out if all its trainings
        diverged.

    Raises:
        FairseqDocError: a training failed, all diverged, a folder holds a training with other
            options or on other data, or another process trains there.
    """
    for system in systems.values():
        _check(system.args, reference)
    refuse_links(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _check_data(next(iter(systems.values())).args.data, folder)
    values = train_seeds(systems, seeds, workers, folder, remark)
    rows: dict[str, dict[str, Any]] = {}
    for name, system in systems.items():
        finite = [seed for seed, value in values[name].items() if math.isfinite(value)]
        kept: dict[int, dict[str, Any]] = {}  # {seed: its evaluation}
        for seed in finite:
            own = _evaluation(system, seed_folder(folder, name, seed), reference)
            if None in (own["valid"], own["test"]):
                remark(f"{name}, seed {seed}: counts as diverged, since its score is infinite")
            else:
                kept[seed] = own
        if not kept:
            remark(f"{name} is left out: all its trainings diverged")
            continue
        facts = {fact: next(iter(kept.values())).get(fact) for fact in FACTS}
        of_splits = {split: {"values": [own[split] for own in kept.values()]} for split in SPLITS}
        rows[name] = {"command": system.line({}), "seeds": list(kept), **facts, **of_splits}
    if not rows:
        raise FairseqDocError("all trainings diverged, so there is nothing to compare")
    baseline = next(iter(rows.values()))
    for row in rows.values():
        for split in SPLITS:
            row[split] |= summary(row[split]["values"], baseline[split]["values"])
    return rows


def _check(args: Namespace, reference: str | None) -> None:
    """Raise ``FairseqDocError`` if the evaluation after the training would fail."""
    if args.task not in SYSTEMS:
        raise FairseqDocError(f"--task: expected one of {', '.join(SYSTEMS)}; got {args.task}")
    if (args.task == TRANSLATION) != (reference is not None):
        raise FairseqDocError("--reference is needed for a translation, and only then")
    names = [f"{split}.idx" for split in SPLITS]
    if args.task == TRANSLATION:
        if args.source_lang is None or args.target_lang is None:
            raise FairseqDocError("expected --source-lang and --target-lang for a translation")
        names = [f"dict.{args.target_lang}.txt"]
        bleu_of(args.target_lang)
    for name in names:
        check_input(Path(split_paths(args.data)[0]) / name)
    if reference is not None:
        check_input(reference, again=True)
        references = read_references(reference, _read_options(args))
        pair = f"{args.source_lang}-{args.target_lang}"
        split = f"{split_paths(args.data)[0]}/test.{pair}.{args.target_lang}"
        check_input(f"{split}.idx")
        test = load_indexed_dataset(split, None, "mmap")
        check_count(reference, references, "the split test", test)


def _read_options(args: Namespace) -> ReadOptions:
    """How outputs and references of a translation are read, by the settings of the data folder."""
    data = Path(split_paths(args.data)[0])
    settings = read_settings(data)
    is_tokenized = settings is not None and settings["tokenizer"] == "none"
    return ReadOptions(
        lang=args.target_lang,
        data=None if settings is None else data,
        tokenized_reference=is_tokenized,
        allow_unknown=True,
    )


def _check_data(data: str, folder: Path) -> None:
    """Raise ``FairseqDocError`` if the data has changed since the trainings of a folder."""
    source, kept = Path(split_paths(data)[0]), folder / f"data.{checksums.NAME}"
    if (source / checksums.NAME).exists():
        lines = list(text_lines(source / checksums.NAME))
    else:  # written by fairseq-preprocess
        names = (path.name for pattern in DATA for path in source.glob(pattern))
        lines = checksums.lines_of(source, names)
    if kept.exists() and list(text_lines(kept)) != lines:
        raise FairseqDocError(
            f"{folder} holds trainings on other data than {data} has now: remove the folder, or "
            "give another --dir"
        )
    write_lines(kept, lines)


def _evaluation(system: Command, folder: Path, reference: str | None) -> dict[str, Any]:
    """``valid`` and ``test`` of a finished training (perplexities, or the best validation score and
    BLEU; None if infinite), and ``FACTS``. They are kept in the folder, with what they were
    computed from: the data folder and the checksums of checkpoint and reference."""
    checkpoint = folder / CHECKPOINTS / "checkpoint_best.pt"
    data, path = system.args.data, folder / "evaluation.json"
    source = {"checkpoint": checksums.sha256_of(checkpoint), "data": data}
    source["reference"] = None if reference is None else checksums.sha256_of(reference)
    with contextlib.suppress(FairseqDocError):  # missing or damaged
        checksums.check(path)
        kept = json.loads(read_text(path))
        if kept.get("of") == source:
            return kept
    found: dict[str, Any]
    if reference is None:
        ensemble = load_ensemble([str(checkpoint)], data)
        found = {split: evaluate(ensemble, split).perplexity for split in SPLITS}
    else:
        best = best_value(folder / CHECKPOINTS, system.maximize)
        found = {"valid": best, **_bleu(system.args, folder, checkpoint, reference)}
    facts = dict.fromkeys(FACTS) | _facts(folder / LOG)
    text = as_json({**facts, **found, "of": source})  # with null for infinity
    write_lines(path, [text])
    checksums.write(folder, [path.name])
    return json.loads(text)


def _bleu(
    args: Namespace, folder: Path, checkpoint: Path, reference: str
) -> dict[str, float | None]:
    """``test``: BLEU of the test split, translated with beam 5; ``ceiling``: see
    :func:`score_bleu`."""
    out = folder / "generate-test.txt"
    words = [args.data, "--path", str(checkpoint)]
    words += ["--user-dir", args.user_dir or os.path.dirname(fairseq_doc.__file__)]
    words += ["--cpu"] if args.cpu else []
    words += ["--task", args.task, "-s", args.source_lang, "-t", args.target_lang]
    words += ["--gen-subset", "test", "--beam", "5", "--batch-size", "64", "--num-workers", "0"]
    with whole_file(out) as file:
        program = [sys.executable, "-m", "fairseq_cli.generate"]
        run = subprocess.run([*program, *words], stdout=file, stderr=subprocess.PIPE, text=True)
        if run.returncode:
            reason = run.stderr.strip().rpartition("\n")[2]
            raise FairseqDocError(f"{folder}: fairseq-generate failed: {reason}")
    read = _read_options(args)
    references = read_references(reference, read)
    system = read_system(str(out), references, read)
    (scores,) = score_bleu([system], references, args.target_lang)["BLEU"]["systems"]
    return {"test": scores["score"], "ceiling": scores["ceiling"]}


def _facts(log: Path) -> dict[str, Any]:
    """Number of parameters and median speed over the epochs of a training; None where the log has
    no value."""
    text = "\n".join(text_lines(log, MAX_LINE, errors="replace"))
    parameters, speeds = _PARAMETERS.search(text), [float(s) for s in _SPEED.findall(text)]
    return {
        "parameters": int(parameters[1].replace(",", "")) if parameters else None,
        "tokens_per_second": statistics.median(speeds) if speeds else None,
    }


def summary(values: Sequence[float], baseline: Sequence[float]) -> dict[str, float | None]:
    """``mean``; standard ``deviation`` (n - 1); ``distance``, the mean minus the baseline's mean,
    with its sign; ``distance_in_deviations``, the same divided by the pooled standard deviation
    (the root of the mean of both variances). None where more seeds are needed."""
    distance = statistics.mean(values) - statistics.mean(baseline)
    deviations = [statistics.stdev(own) for own in (values, baseline) if len(own) > 1]
    pooled = math.hypot(*deviations) / math.sqrt(2) if len(deviations) == 2 else 0.0
    return {
        "mean": statistics.mean(values),
        "deviation": deviations[0] if len(values) > 1 else None,
        "distance": distance,
        "distance_in_deviations": distance / pooled if pooled else None,
    }


def curves_of(rows: dict[str, dict[str, Any]], folder: Path) -> dict[str, list[LearningCurve]]:
    """{system: the learning curve of each seed}."""
    return {
        name: [read_log(seed_folder(folder, name, seed) / LOG) for seed in row["seeds"]]
        for name, row in rows.items()
    }
