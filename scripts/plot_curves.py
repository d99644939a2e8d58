"""Learning curves of several runs in one picture, from fairseq's logs (``--log-format simple``).

python scripts/plot_curves.py PICTURE.png NAME=LOG [NAME=LOG ...]
"""

import argparse
import re
import sys
from pathlib import Path

VALID = re.compile(r"\| valid \| epoch (\d+) .*?\| ppl ([\d.e+]+)")
SWITCH = re.compile(r"averaging starts after epoch (\d+)")


def read_log(path):
    """({epoch: validation perplexity}, the epoch after which averaging started, or None)."""
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    switch = SWITCH.search(text)
    curve = {int(epoch): float(ppl) for epoch, ppl in VALID.findall(text)}
    return curve, int(switch.group(1)) if switch else None


def main():
    """Read the arguments, do the work, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("runs", nargs="+", metavar="NAME=LOG")
    args = parser.parse_args()
    curves = {}
    for run in args.runs:
        name, equals, path = run.partition("=")
        if not equals or not Path(path).is_file():
            sys.exit(f"plot_curves: expected NAME=LOG with an existing log; got {run}")
        curves[name] = read_log(path)
        if not curves[name][0]:
            sys.exit(f"plot_curves: {path} has no validation line: expected a log of fairseq-train")

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name, (curve, switch) in curves.items():
        (line,) = axes.plot(list(curve), list(curve.values()), marker=".", label=name)
        if switch in curve:
            axes.plot(switch, curve[switch], "o", color=line.get_color(), markerfacecolor="none",
                      markersize=10, label=f"{name}: averaging starts")  # fmt: skip
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
    axes.yaxis.set_minor_formatter(matplotlib.ticker.ScalarFormatter())
    axes.set_xlabel("epoch")
    axes.set_ylabel("validation perplexity")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    args.picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.picture, dpi=130)
    print(f"plot_curves: wrote {args.picture}")


if __name__ == "__main__":
    main()
