"""Draw docs/architecture.svg, the figure of README: which layer's output goes where (section 4 of the paper).

    python scripts/draw_architecture.py

Text and lines follow the reader's theme: dark on light or light on dark.
"""

from pathlib import Path

OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "architecture.svg"
WIDTH, HEIGHT = 800, 375
STYLE = """
text { font: 15px sans-serif; text-anchor: middle; fill: #1f2328 }
.small { font-size: 13px; fill: #59636e }
rect { fill: #eef2f7; stroke: #59636e }
.mixture { fill: #fdebd3; stroke: #b8741a }
path { stroke: #59636e; fill: none }
#head path { fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 }
  rect { fill: #21262d; stroke: #9198a1 } .mixture { fill: #4a3312; stroke: #d29922 }
  path { stroke: #9198a1 } #head path { fill: #9198a1 }
}"""
LAYERS = ("embedding", "LSTM 1", "LSTM 2", "LSTM 3")
SUPERSCRIPTS = "⁰¹²³"
COMPONENTS = {2: 5, 3: 15}  # i_n of the paper's best language model


def box(x: int, y: int, width: int, height: int, *lines: str, kind: str = "") -> str:
    """A box with lines of text, all but the first in small type."""
    parts = [f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>']
    first = y + height // 2 + 5 - 9 * (len(lines) - 1)
    for number, line in enumerate(lines):
        small = ' class="small"' if number else ""
        parts.append(f'<text{small} x="{x + width // 2}" y="{first + 19 * number}">{line}</text>')
    return "\n".join(parts)


def arrow(*points: tuple[int, int]) -> str:
    """A line through points (x, y) with an arrowhead at its end."""
    line = " L ".join(f"{x} {y}" for x, y in points)
    return f'<path d="M {line}" marker-end="url(#head)"/>'


def drawing() -> list[str]:
    """The figure's elements."""
    parts = []
    for n, name in enumerate(LAYERS):
        y = 275 - 75 * n
        parts += [
            box(20, y, 130, 45, f"{name}: h{SUPERSCRIPTS[n]}"),
            arrow((85, y + 75), (85, y + 47)),
        ]
        count = COMPONENTS.get(n)
        if count:
            vectors = f"{count} component vectors"
            formula = f"kⱼ = tanh(Wⱼ h{SUPERSCRIPTS[n]} + bⱼ)"
            parts += [
                arrow((150, y + 22), (218, y + 22)),
                box(220, y - 6, 200, 57, vectors, formula, kind="mixture"),
                arrow((420, y + 22), (478, y + 22)),
                box(480, y - 6, 130, 57, f"{count} softmaxes", "of W kⱼ + b", kind="mixture"),
            ]
    parts += [
        '<text class="small" x="85" y="370">words, one at a time</text>',
        '<text class="small" x="545" y="220">one matrix W for all,</text>',
        '<text class="small" x="545" y="237">tied to the embedding</text>',
        arrow((85, 50), (85, 28), (710, 28), (710, 63)),
        '<text class="small" x="400" y="20">mixture weights π = softmax(Wπ h³)</text>',
        box(640, 65, 140, 90, "P(next word)", "= Σ πⱼ softmaxⱼ", kind="mixture"),
        arrow((610, 72), (638, 85)),
        arrow((610, 147), (638, 135)),
    ]
    return parts


def main() -> None:
    """Write the figure."""
    head = (
        '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="6" refY="3" '
        'orient="auto"><path d="M 0 0 L 6 3 L 0 6 z"/></marker></defs>'
    )
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n'
        "<title>Direct Output Connection: components from several layers in one mixture</title>"
    )
    lines = [opening, f"<style>{STYLE}\n</style>", head, *drawing(), "</svg>"]
    OUTPUT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
