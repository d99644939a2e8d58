"""Draw README's picture: the learning curves of the quick start.

    python scripts/make_curves.py                                   docs/curves.tsv -> docs/curves.svg
    python scripts/make_curves.py --logs NAME=LOG ... --note TEXT   logs -> docs/curves.tsv, then the same
    python scripts/make_curves.py --check                           exit status 1 when the picture is stale

The picture holds text as text, in the reader's own font, and follows a dark colour scheme.
"""

import argparse
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from fairseq_doc.evaluation.learning_curves import LearningCurve, read_log

DOCS = Path(__file__).resolve().parent.parent / "docs"
NUMBERS, PICTURE = DOCS / "curves.tsv", DOCS / "curves.svg"
COLUMNS = "run\tepoch\tperplexity\tevent"
AVERAGING = "averaging starts"

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 62, 630, 66, 326  # of the axes
LABEL_HEIGHT = 42  # least distance between two labels at the right, of two lines each
LINE_HEIGHT = 17
TICKS = [base * 10**power for power in range(5) for base in (1, 1.5, 2, 3, 4, 5, 7)]
STYLE = """
text { font: 300 14px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #59636e }
.title { font-size: 17px; fill: #1f2328 }
.name { font-weight: 500 }
.card { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #d1d9e0; stroke-width: .7 }
.curve { fill: none; stroke-width: 2.4; stroke-linejoin: round; stroke-linecap: round }
.mark { fill: #ffffff; stroke-width: 2 }
.s0 { stroke: #8c7b6b } .n0 { fill: #7a6a5b }
.s1 { stroke: #0a7ea4 } .n1 { fill: #0a7ea4 }
@media (prefers-color-scheme: dark) {
text { fill: #9198a1 } .title { fill: #f0f6fc }
.card { fill: #0d1117; stroke: #3d444d } .grid { stroke: #3d444d } .mark { fill: #0d1117 }
.s0 { stroke: #b8a48f } .n0 { fill: #b8a48f }
.s1 { stroke: #4cc2e6 } .n1 { fill: #4cc2e6 }
}
"""


def read_numbers(text: str) -> tuple[str, dict[str, LearningCurve]]:
    """The note and the curves of ``docs/curves.tsv``."""
    lines = text.splitlines()
    note = " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    curves: dict[str, LearningCurve] = {}
    rows = [line.split("\t") for line in lines if not line.startswith("#") and line != COLUMNS]
    for name, epoch, perplexity, event in rows:
        curve = curves.setdefault(name, LearningCurve({}, None, {}))
        curve.perplexities[int(epoch)] = float(perplexity)
        if event == AVERAGING:
            curves[name] = replace(curve, averaging_after=int(epoch))
    return note, curves


def numbers_text(note: str, curves: dict[str, LearningCurve]) -> str:
    """The text that :func:`read_numbers` reads."""
    lines = [f"# {note}", COLUMNS]
    for name, curve in curves.items():
        for epoch, perplexity in curve.perplexities.items():
            event = AVERAGING if epoch == curve.averaging_after else "-"
            lines.append(f"{name}\t{epoch}\t{perplexity:g}\t{event}")
    return "\n".join(lines) + "\n"


def spread(heights: list[float]) -> list[float]:
    """The same heights in the same order, ``LABEL_HEIGHT`` apart and above the axis."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    moved = list(heights)
    for above, below in zip(order, order[1:], strict=False):
        missing = LABEL_HEIGHT - (moved[below] - moved[above])
        if missing > 0:
            moved[above] -= missing / 2
            moved[below] += missing / 2
    outside = max(0.0, max(moved) + LINE_HEIGHT - BOTTOM)
    return [height - outside for height in moved]


@dataclass(frozen=True)
class Axes:
    """Epochs on a linear axis, perplexities on a logarithmic one, from ``low`` to ``high``."""

    last: int
    low: float
    high: float

    def x(self, epoch: int) -> float:
        """Where an epoch is."""
        return LEFT + (RIGHT - LEFT) * (epoch - 1) / max(1, self.last - 1)

    def y(self, perplexity: float) -> float:
        """Where a perplexity is."""
        share = math.log(perplexity / self.low) / math.log(self.high / self.low)
        return BOTTOM - (BOTTOM - TOP) * share


def draw(note: str, curves: dict[str, LearningCurve]) -> str:
    """The SVG of some curves: perplexity over epochs."""
    drawn = [p for curve in curves.values() for p in curve.perplexities.values()]
    last = max(max(curve.perplexities) for curve in curves.values())
    low = max(tick for tick in TICKS if tick <= min(drawn))
    axes = Axes(last, low, max(drawn))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>Learning curves of the quick start</title><desc>{escape(note)}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10"/>',
        f'<text class="title" x="{LEFT}" y="36">Validation perplexity of the quick start</text>',
        f'<text x="{(LEFT + RIGHT) / 2:g}" y="{BOTTOM + 40}" text-anchor="middle">epoch</text>',
        *draw_ticks(axes),
    ]
    ends = spread([axes.y(list(curve.perplexities.values())[-1]) for curve in curves.values()])
    for number, ((name, curve), end) in enumerate(zip(curves.items(), ends, strict=True)):
        parts += draw_curve(number, name, curve, axes, end)
    parts += draw_remark(curves.values(), axes)
    return "\n".join([*parts, "</svg>\n"])


def draw_ticks(axes: Axes) -> Iterator[str]:
    """The grid, and the numbers at both axes."""
    for tick in TICKS:
        if axes.low <= tick <= axes.high:
            y = axes.y(tick)
            yield (
                f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>'
                f'<text x="{LEFT - 10}" y="{y + 5:.1f}" text-anchor="end">{tick:g}</text>'
            )
    for epoch in [1, *range(10, axes.last + 1, 10)]:
        x, y = axes.x(epoch), BOTTOM + 20
        yield f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{epoch}</text>'


def draw_curve(
    number: int, name: str, curve: LearningCurve, axes: Axes, end: float
) -> Iterator[str]:
    """One curve, a ring where averaging starts, and its label at height ``end``."""
    points = [f"{axes.x(e):.1f} {axes.y(p):.1f}" for e, p in curve.perplexities.items()]
    yield f'<path class="curve s{number}" d="M{"L".join(points)}"/>'
    for epoch, perplexity in rings([curve]):
        x, y = axes.x(epoch), axes.y(perplexity)
        yield f'<circle class="mark s{number}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    best = min(curve.perplexities.values())
    yield (
        f'<text class="name n{number}" x="{RIGHT + 16}" y="{end:.1f}">{escape(name)}</text>'
        f'<text x="{RIGHT + 16}" y="{end + LINE_HEIGHT:.1f}">best {best:g}</text>'
    )


def rings(curves: Iterable[LearningCurve]) -> list[tuple[int, float]]:
    """(epoch, perplexity) where averaging starts."""
    started = [(curve.averaging_after, curve.perplexities) for curve in curves]
    return [(epoch, of[epoch]) for epoch, of in started if epoch is not None]


def draw_remark(curves: Iterable[LearningCurve], axes: Axes) -> Iterator[str]:
    """What the rings mean, above the highest of them."""
    for epoch, perplexity in sorted(rings(curves), key=lambda ring: -ring[1])[:1]:
        x, y = axes.x(epoch), axes.y(perplexity) - 14
        yield f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">weights averaged from here</text>'


def main(arguments: list[str] | None = None) -> int:
    """Draw, or check: the exit status is 1 for a stale picture under ``--check``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", nargs="+", metavar="NAME=LOG", help="read these runs first")
    parser.add_argument("--note", default="", help="machine and command of the --logs")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when it is stale")
    args = parser.parse_args(arguments)
    if args.logs:
        named = [run.partition("=") for run in args.logs]
        curves = {name: read_log(path) for name, _, path in named}
        NUMBERS.write_text(numbers_text(args.note, curves), encoding="utf-8")
    picture = draw(*read_numbers(NUMBERS.read_text(encoding="utf-8")))
    if not args.check:
        PICTURE.write_text(picture, encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != picture:
        print(f"{PICTURE} is stale: run python scripts/make_curves.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
