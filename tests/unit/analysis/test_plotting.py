import re

import matplotlib.image
import pytest
import torch

from fairseq_doc.analysis.components import MixtureWeights, Parts, SentenceComponents
from fairseq_doc.analysis.learning_curves import LearningCurve
from fairseq_doc.analysis.plotting import (
    plot_attention,
    plot_components,
    plot_curves,
    plot_weights,
)

PERPLEXITIES = {1: 500.0, 2: 200.0, 3: 150.0, 4: 149.0, 5: 120.0}
PLAIN = LearningCurve(PERPLEXITIES, None, {})
FASTER = LearningCurve({1: 400.0, 2: 150.0, 3: 140.0}, None, {})
SWITCHED = LearningCurve(PERPLEXITIES, 2, {1: 4, 2: 5})
ATTENTION = {
    "source": ["a", "$x$", "</s>"],
    "output": ["ein", "_b_", "</s>"],
    "weights": torch.eye(3).tolist(),
}
SHARES = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.6, 0.3]])
LAYERS = [SHARES[:, :1], SHARES[:, 1:].sum(1, keepdim=True)]  # 1 and 3
ALL = torch.cat([SHARES, *LAYERS], dim=1)
SENTENCE = SentenceComponents(["$x$", "</s>"], 2, Parts(ALL, ALL, ALL.log(), torch.zeros(2, 5, 0)))
WEIGHTS = MixtureWeights([1, 2, 2], [0.5, 0.3, 0.2], 100)


def texts_of(svg):
    return set(re.findall(r"<text [^>]*>(.*?)</text>", svg.read_text()))


PLOTS = {
    "curve": (plot_curves, {"one run": [PLAIN]}),
    "curves": (plot_curves, {"one run": [SWITCHED], r"$\x$": [PLAIN, FASTER]}),
    "weights": (plot_weights, WEIGHTS),
    "attention": (plot_attention, ATTENTION),
    "components": (plot_components, SENTENCE, [1, 3, 3]),
}


def drawn(name, path):
    plot, *arguments = PLOTS[name]
    plot(*arguments, path)
    return path


@pytest.mark.parametrize("name", PLOTS)
def test_a_picture_is_drawn_in_the_format_of_its_ending(tmp_path, name):
    pixels = matplotlib.image.imread(drawn(name, tmp_path / "picture.png"))
    assert min(pixels.shape[:2]) > 300
    assert (pixels[..., :3] < 1).any(-1).mean() > 0.01  # not blank
    assert drawn(name, tmp_path / "picture.PDF").read_bytes().startswith(b"%PDF")


MARKS = "averaging starts", "fine-tuning starts"


@pytest.mark.parametrize(
    "name, present, absent",
    [
        ("curves", [*MARKS, "one run", r"$\x$", "epoch", "validation perplexity"], []),
        ("curve", ["one run"], MARKS),
        # sqrt(((1/6)^2 + (1/30)^2 + (4/30)^2) / 3) / (1/3) = .374
        ("weights", ["from layer 1: 0.500 in all", "coefficient of variation 0.374"], []),
        ("weights", ["from layer 2: 0.500 in all", "even: 0.333", "1", "2", "3"], []),
        ("attention", ["source", "attention weight", "ein", "_b_", "$x$"], []),  # no formula
        # Component 1 is the only one of layer 1, whose sum it is.
        ("components", ["layer 1, 1", "layer 3, sum", "2", "3", "$x$"], ["layer 1, sum"]),
    ],
)
def test_what_a_picture_names(name, present, absent, tmp_path):
    path = drawn(name, tmp_path / "picture.svg")
    assert set(present) <= texts_of(path) and not set(absent) & texts_of(path)
    assert path.read_text().count(f">{MARKS[1]}<") == (name == "curves")  # once
    # The range of several seeds: PolyCollection before matplotlib 3.10.
    bands = re.findall("FillBetween|PolyCollection", path.read_text())
    assert bool(bands) == (name == "curves")


def test_a_mark_at_an_epoch_that_was_not_validated_is_left_out(tmp_path):
    plot_curves({"run": [LearningCurve(PERPLEXITIES, 9, {1: 12})]}, tmp_path / "curves.svg")
    shown = texts_of(tmp_path / "curves.svg")
    assert "run" in shown
    assert not set(MARKS) & shown


def test_darker_cells_have_more_weight(tmp_path):
    """The colours of the eight cells of the upper panel, row by row: the only component of layer 1,
    the sum of layer 3, its two components."""
    path = drawn("components", tmp_path / "components.svg")
    meshes = re.findall(r'<g id="QuadMesh_\d+">(.*?)</g>', path.read_text(), flags=re.DOTALL)
    colours = [re.findall(r"fill: #(\w{6})", mesh) for mesh in meshes[:4]]
    brightness = [[sum(bytes.fromhex(colour)) for colour in row] for row in colours]
    shares = [[0.5, 0.1], [0.5, 0.9], [0.25, 0.6], [0.25, 0.3]]
    pairs = sorted(zip(sum(shares, []), sum(brightness, []), strict=True))
    assert [b for _, b in pairs] == sorted((b for _, b in pairs), reverse=True)
    assert brightness[0][0] == brightness[1][0] and brightness[2][0] == brightness[3][0]
    assert len({b for _, b in pairs}) == 6
