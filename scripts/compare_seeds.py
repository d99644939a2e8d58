"""Test and validation perplexity of language models that were trained with several seeds, and how far apart
they are:

    python scripts/compare_seeds.py DATA "NAME=FOLDERS" "NAME=FOLDERS" ...

FOLDERS is a pattern such as 'checkpoints/doc-*', or several with colons between them: one folder for each seed,
with a checkpoint_best.pt. Every token of a split is scored in one column, by fairseq-doc eval-lm. What a model gets
stays beside it, in perplexity.valid.json and perplexity.test.json, and is not computed again for the same data.
Printed as a table of Markdown: mean and standard deviation (n - 1) over the seeds, and the distance of the test
perplexity from the first NAME's, also in units of the two standard deviations' quadratic mean.
"""

import argparse
import contextlib
import glob
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import write_lines

SPLITS = ("valid", "test")
EVALUATE = [sys.executable, "-m", "fairseq_doc.cli.main", "eval-lm"]
CHECKPOINT = "checkpoint_best.pt"


def folders_of(patterns: str) -> list[Path]:
    """The folders of the patterns that have a checkpoint.

    Raises:
        FairseqDocError: there are none.
    """
    names: set[str] = set()
    for pattern in patterns.split(":"):
        names.update([pattern] if os.path.isdir(pattern) else glob.glob(pattern))
    found = [Path(name) for name in sorted(names) if os.path.exists(f"{name}/{CHECKPOINT}")]
    if not found:
        raise FairseqDocError(f"expected folders with a {CHECKPOINT} in {patterns}; got none")
    return found


def perplexity(data: str, folder: Path, split: str) -> float:
    """Of the model in a folder; from its file where that is of this data and newer than both.

    Raises:
        FairseqDocError: the evaluation failed.
    """
    model, place = folder / CHECKPOINT, os.path.realpath(data)
    file = folder / f"perplexity.{split}.json"
    made_of = [model, Path(place, f"{split}.bin")]
    if file.exists() and file.stat().st_mtime >= max(part.stat().st_mtime for part in made_of):
        with contextlib.suppress(ValueError, KeyError, TypeError):  # damaged: computed again
            kept = json.loads(file.read_text())
            if kept["data"] == place:
                return float(kept["perplexity"])
    print(f"evaluates {model} on {split}", file=sys.stderr, flush=True)
    command = [*EVALUATE, data, "--path", str(model), "--gen-subset", split, "--json"]
    made = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if made.returncode:
        raise FairseqDocError(f"{model}: the evaluation failed")
    kept = {"data": place, **json.loads(made.stdout)}
    write_lines(file, [json.dumps(kept)])
    return kept["perplexity"]


def shown(values: list[float]) -> str:
    """Mean and standard deviation."""
    mean = f"{statistics.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2f}"


def distance(values: list[float], baseline: list[float]) -> str:
    """From the baseline's mean, also in standard deviations where both have several seeds."""
    apart = statistics.mean(values) - statistics.mean(baseline)
    if min(len(values), len(baseline)) < 2:
        return f"{apart:+.2f}"
    spread = math.sqrt((statistics.variance(values) + statistics.variance(baseline)) / 2)
    return f"{apart:+.2f}" + (f" ({apart / spread:+.1f})" if spread else "")


def table(found: dict[str, dict[str, list[float]]]) -> list[str]:
    """Lines of Markdown.

    Args:
        found: the perplexities by name and split; the first is the baseline.
    """
    baseline = next(iter(found))
    lines = [
        f"| model | seeds | valid perplexity | test perplexity | test, from {baseline} (in standard deviations) |",
        "|---|---|---|---|---|",
    ]
    for name, values in found.items():
        cells = [name, str(len(values["test"])), *(shown(values[split]) for split in SPLITS)]
        cells.append("" if name == baseline else distance(values["test"], found[baseline]["test"]))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Evaluate what has no figure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="folder of fairseq-doc prepare-lm")
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDERS", help="see above")
    args = parser.parse_args()
    try:
        for split in SPLITS:
            if not os.path.exists(f"{args.data}/{split}.bin"):
                raise FairseqDocError(
                    f"expected the folder of prepare-lm; there is no {args.data}/{split}.bin"
                )
        named = [model.partition("=") for model in args.models]
        names = [name for name, _, _ in named]
        for name, sign, pattern in named:
            if not (name and sign and pattern):
                raise FairseqDocError(f"expected NAME=FOLDERS; got {name}{sign}{pattern}")
            if names.count(name) > 1:
                raise FairseqDocError(f"expected names that differ; got {name} twice")
        folders = {name: folders_of(pattern) for name, _, pattern in named}
        found = {
            name: {split: [perplexity(args.data, f, split) for f in its] for split in SPLITS}
            for name, its in folders.items()
        }
    except FairseqDocError as error:
        sys.exit(f"compare_seeds: error: {error}")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
