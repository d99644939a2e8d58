"""``fairseq-doc tune``."""

import argparse
import contextlib
import importlib.util
import math
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fairseq_doc.errors import FairseqDocError, pip_install, shown
from fairseq_doc.tuning.settings import ready_spaces, short

EXAMPLE = (
    "fairseq-doc tune space.yaml --study ptb --storage sqlite:///tune.db --trials 60 --workers 2 "
    "-- fairseq-train data-bin/ptb --user-dir fairseq_doc --arch lstm_doc_lm --max-epoch 5\n"
    "  fairseq-doc tune --study ptb --storage sqlite:///tune.db --report report\n"
    "  fairseq-doc tune --study ptb --storage sqlite:///tune.db --rerun best --seeds 5"
)
SAMPLERS = ("gp", "tpe", "qmc", "random")
LEARNING = SAMPLERS[:2]
OF_TUNING: tuple[str, ...] = ("trials", "sampler", "startup_trials", "enqueue", "keep", "seed")
TRIALS = 60
SEEDS = 5
MAX_NAME = 200  # bytes of a study's name, which is a folder's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.usage = (
        "fairseq-doc tune [-h] [SPACE] --study NAME --storage URL [options] [-- fairseq-train ...]"
    )
    parser.add_argument(
        "space",
        nargs="?",
        help="YAML file of options and their ranges, or one of the ready spaces: "
        + ", ".join(ready_spaces()),
    )
    parser.add_argument("--study", required=True, metavar="NAME", help="begun, joined or continued")
    parser.add_argument(
        "--storage",
        required=True,
        metavar="URL",
        help="sqlite:///FILE, for one machine; FILE.journal, postgresql://... or mysql://..., for "
        "several",
    )
    parser.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help=f"complete ones at the end, of all processes together (default: {TRIALS})",
    )
    parser.add_argument("--workers", type=int, metavar="K", help="trainings at once (default: 1)")
    parser.add_argument(
        "--sampler",
        choices=SAMPLERS,
        help="Gaussian process, tree of Parzen estimators, Sobol points, or random (default: gp)",
    )
    parser.add_argument(
        "--startup-trials",
        type=int,
        metavar="N",
        help="random trials before gp and tpe learn from them (default: 10)",
    )
    parser.add_argument(
        "--enqueue",
        action="append",
        metavar="STUDY",
        help="try the best settings of this other study of the same storage, what they lack drawn; may be "
        "repeated",
    )
    parser.add_argument("--seed", type=int, help="of the sampler (default: 1)")
    parser.add_argument("--dir", help="folder of the trials (default: tune/NAME)")
    parser.add_argument(
        "--keep",
        choices=("best", "all"),
        help="whose checkpoints stay (default: best)",
    )
    parser.add_argument(
        "--report", metavar="FOLDER", help="write the best command, a table and plots there"
    )
    parser.add_argument(
        "--rerun",
        metavar="TRIAL",
        help="train a trial, best or a number, again with the seeds 1 to --seeds; options after -- are added "
        "to the study's training, or replace its own",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help=f"of --rerun (default: {SEEDS})")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing report")
    parser.add_argument("--no-progress-bar", action="store_true", help="show no progress")
    parser.set_defaults(training=None)
    parse = parser.parse_known_args

    def parse_before_the_training(words: Any = None, namespace: Any = None) -> Any:
        """argparse gives an optional argument and the words after -- to the wrong places."""
        words = list(words or ())
        end = words.index("--") if "--" in words else len(words)
        args, unknown = parse(words[:end], namespace)
        if end < len(words):
            args.training = words[end + 1 :]
        return args, unknown

    setattr(parser, "parse_known_args", parse_before_the_training)  # noqa: B010


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``study``, ``metric``, and one of: ``complete``, ``diverged``, ``failed`` and ``best``, with its
    ``trial``, ``value``, ``settings``, ``command`` and ``folder``; with ``--report`` the ``files``,
    the ``best`` and ``best_of_half``; with ``--rerun`` the ``trial``, ``runs``, ``diverged``, ``mean``,
    ``deviation``, ``low`` and ``high``."""
    _check(args)
    if importlib.util.find_spec("optuna") is None:
        raise FairseqDocError(f"expected Optuna; got none: {pip_install('tune', 'optuna')}")
    from fairseq_doc.tuning.storage import silence

    silence()
    with _ended_by_sigterm():
        if args.report is not None:
            return _report(args)
        return _tune(args) if args.rerun is None else _rerun(args)


def _check(args: argparse.Namespace) -> None:
    """Raise ``FairseqDocError`` where the arguments do not fit together."""
    if args.report is not None and args.rerun is not None:
        raise FairseqDocError("expected --report or --rerun; got both")
    other = "--report" if args.report is not None else "--rerun" if args.rerun is not None else ""
    if other and args.space is not None:
        raise FairseqDocError(f"{other} reads a study: expected no space; got {shown(args.space)}")
    if args.report is not None and args.training is not None:
        raise FairseqDocError("--report reads a study: expected nothing after --; got a command")
    unused = OF_TUNING if other else ()
    for name in (*unused, "workers") if other == "--report" else unused:
        if getattr(args, name) is not None:
            raise FairseqDocError(
                f"{other} reads a study: expected no {_option(name)}; got {getattr(args, name)}"
            )
    if not other and args.space is None:
        raise FairseqDocError(
            f"expected a space, a YAML file or one of {', '.join(ready_spaces())}; got none"
        )
    if args.rerun is None and args.seeds is not None:
        raise FairseqDocError("--seeds is for --rerun; --seed is the sampler's")
    for name in ("trials", "workers", "seeds", "startup_trials"):
        number = getattr(args, name)
        if number is not None and number < 1:
            raise FairseqDocError(f"{_option(name)}: expected at least 1; got {number}")
    if args.startup_trials is not None and args.sampler not in (None, *LEARNING):
        raise FairseqDocError(
            f"--startup-trials: expected --sampler {' or '.join(LEARNING)}, which learn after them; "
            f"got --sampler {args.sampler}"
        )
    if args.seed is not None and not 0 <= args.seed < 2**32:
        raise FairseqDocError(f"--seed: expected a number from 0 to 4294967295; got {args.seed}")
    too_long = not other and len(os.fsencode(args.study)) > MAX_NAME
    wrong = os.sep in args.study or args.study in (".", "..") or not args.study.isprintable()
    if wrong or too_long or not args.study.strip():
        raise FairseqDocError(
            f"--study: expected a name without / and control characters, of at most {MAX_NAME} bytes; got "
            f"{shown(args.study)}"
        )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _tune(args: argparse.Namespace) -> dict[str, Any]:
    from fairseq_doc.tuning.command import read_command
    from fairseq_doc.tuning.report import best_command, describe
    from fairseq_doc.tuning.samplers import STARTUP
    from fairseq_doc.tuning.slots import best_slot, slots_of
    from fairseq_doc.tuning.space import read_space
    from fairseq_doc.tuning.storage import claim_folder, open_storage, open_study, trials_of
    from fairseq_doc.tuning.tuner import Plan, Tuner, folder_of

    space = read_space(args.space)
    command = read_command(args.training or [], space)
    storage = open_storage(args.storage, create=True)
    enqueued = [_best_of(storage, name, args.study, space) for name in args.enqueue or ()]
    study, stamp = open_study(storage, args.study, space, command)
    folder, trials = _folder(args), args.trials or TRIALS
    claim_folder(folder, stamp)
    slots = slots_of(trials_of(study, space))
    complete = sum(slot.complete for slot in slots)
    new = [other for other in enqueued if not other.tried_in(slots)]
    if complete + len(new) > trials:
        raise FairseqDocError(
            f"--enqueue: expected --trials {complete + len(new)} or more, {complete} that are complete and "
            f"{len(new)} to try; got {trials}"
        )
    plan = Plan(
        trials=trials,
        workers=args.workers or 1,
        folder=folder,
        sampler=args.sampler or SAMPLERS[0],
        seed=1 if args.seed is None else args.seed,
        startup=args.startup_trials or STARTUP,
        keep_all=args.keep == "all",
        enqueued=enqueued,
    )
    with contextlib.closing(_progress(args, trials, complete)) as show:
        Tuner(study, stamp, plan, show).run()
    slots = slots_of(trials_of(study, space))
    states = [slot.state for slot in slots]
    best = best_slot(slots, command.maximize)
    return {
        "study": args.study,
        "metric": command.metric,
        "complete": states.count("complete") + states.count("diverged"),
        "diverged": states.count("diverged"),
        "failed": states.count("failed"),
        "best": best
        and describe(best)
        | {
            "command": best_command(stamp, best.settings),
            "folder": str(folder_of(folder, best.number)),
        },
    }


def _best_of(storage: Any, name: str, own: str, space: Any) -> Any:
    """The best settings of the study ``name`` as far as the space has them."""
    from fairseq_doc.tuning.slots import best_slot
    from fairseq_doc.tuning.space import is_inside
    from fairseq_doc.tuning.tuner import Enqueued

    if name == own:
        raise FairseqDocError(f"--enqueue: expected another study than {shown(name)} itself")
    _, stamp, slots = _read(storage, name)
    best = best_slot(slots, stamp.command.maximize)
    if best is None:
        raise FairseqDocError(
            f"--enqueue {shown(name)}: expected a study with a complete trial; got none"
        )
    settings = {option: best.settings[option] for option in space if option in best.settings}
    if not settings:
        raise FairseqDocError(
            f"--enqueue {shown(name)}: expected a study that tunes one of --{', --'.join(space)}; got "
            f"--{', --'.join(best.settings)}"
        )
    for option, value in settings.items():
        if not is_inside(value, space[option]):
            raise FairseqDocError(
                f"--enqueue {shown(name)}: expected settings within the space; its best has "
                f"--{option} {value}"
            )
    return Enqueued(f"{name}, trial {best.number} ({stamp.study_id})", settings)


def _read(storage: Any, name: str) -> tuple[Any, Any, list[Any]]:
    """A study, its stamp and its slots."""
    from fairseq_doc.tuning.slots import slots_of
    from fairseq_doc.tuning.storage import load_study, trials_of

    study, stamp = load_study(storage, name)
    return study, stamp, slots_of(trials_of(study, stamp.space))


def _report(args: argparse.Namespace) -> dict[str, Any]:
    from fairseq_doc.tuning.report import FILES, check_report, write_report
    from fairseq_doc.tuning.storage import open_storage

    study, stamp, slots = _read(open_storage(args.storage, create=False), args.study)
    folder = Path(args.report)
    check_report(folder, args.overwrite)
    written = write_report(study, stamp, slots, folder)
    kept = {key: written[key] for key in ("study", "metric", "best", "best_of_half")}
    return kept | {"files": [str(folder / name) for name in FILES]}


def _rerun(args: argparse.Namespace) -> dict[str, Any]:
    from fairseq_doc.tuning.command import with_options
    from fairseq_doc.tuning.rerun import folder_of, rerun, spread
    from fairseq_doc.tuning.slots import best_slot
    from fairseq_doc.tuning.storage import claim_folder, open_storage

    _, stamp, slots = _read(open_storage(args.storage, create=False), args.study)
    slot = best_slot(slots, stamp.command.maximize)
    if args.rerun != "best":
        slot = next((slot for slot in slots if str(slot.number) == args.rerun), None)
    if slot is None or slot.settings.keys() != stamp.space.keys():
        numbers = ", ".join(str(slot.number) for slot in slots[:20]) or "none"
        raise FairseqDocError(
            f"--rerun: expected best, where a trial is complete, or one of the trials {numbers}; got "
            f"{shown(args.rerun)}"
        )
    command = with_options(stamp.command, args.training or [], stamp.space)
    folder = _folder(args)
    claim_folder(folder, stamp)
    with contextlib.closing(_progress(args)) as show:
        seeds, workers = args.seeds or SEEDS, args.workers or 1
        values = rerun(command, slot, seeds, workers, folder, show=show)
    return {
        "study": args.study,
        "metric": command.metric,
        "trial": slot.number,
        "settings": slot.settings,
        "runs": [
            {"seed": seed, "value": value, "folder": str(folder_of(folder, slot, seed))}
            for seed, value in values.items()
        ],
        "diverged": sum(math.isinf(value) for value in values.values()),
        **spread(list(values.values())),
    }


def _folder(args: argparse.Namespace) -> Path:
    return Path(args.dir or Path("tune") / args.study)


def _progress(args: argparse.Namespace, wanted: int | None = None, complete: int = 0) -> Any:
    from fairseq_doc.tuning.progress import Progress

    return Progress(wanted, complete, quiet=args.no_progress_bar or args.json)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM, as cluster schedulers send it, is Ctrl-C: the trainings are stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def as_text(result: dict[str, Any]) -> str:
    """A line a fact."""
    if "runs" in result:
        return "\n".join(_rerun_lines(result))
    best = result["best"]
    lines = []
    if "files" not in result:
        lines.append(
            f"study {result['study']}: {result['complete']} trials complete, "
            f"{result['diverged']} of them diverged; {result['failed']} failed"
        )
    if best is not None:
        lines.append(f"best: trial {best['trial']}, {result['metric']} {best['value']:.4f}")
        lines.append(f"settings: {short(best['settings'])}")
    if best is not None and "folder" in best:
        lines.append(f"folder: {best['folder']}")
    if half := result.get("best_of_half"):
        lines.append(
            f"best of a random half, {half['trials']} trials: mean {half['mean']:.4f}, standard deviation "
            f"{half['deviation']:.4f}; one in twenty is {half['worst']:.4f} or worse"
        )
    lines += [f"wrote {name}" for name in result.get("files", ())]
    return "\n".join(lines)


def _rerun_lines(result: dict[str, Any]) -> Sequence[str]:
    lines = [f"trial {result['trial']}: {short(result['settings'])}"]
    for run in result["runs"]:
        value = "diverged" if math.isinf(run["value"]) else f"{run['value']:.4f}"
        lines.append(f"seed {run['seed']}: {result['metric']} {value}")
    if result["mean"] is not None:
        deviation = result["deviation"]
        spread = "of one value" if deviation is None else f"{deviation:.4f}"
        ends = f"min {result['low']:.4f}, max {result['high']:.4f}"
        lines.append(f"mean {result['mean']:.4f}, standard deviation {spread}, {ends}")
    if result["diverged"]:
        lines.append(f"left out: {result['diverged']} of {len(result['runs'])}, which diverged")
    return lines
