import re

import matplotlib.image
import pytest
import torch

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.attention import Attention
from fairseq_doc.evaluation.components import Parts, SentenceComponents
from fairseq_doc.evaluation.learning_curves import LearningCurve
from fairseq_doc.evaluation.plotting import (
    check_plot_path,
    plot_attention,
    plot_components,
    plot_curves,
    plot_weights,
)
from fairseq_doc.evaluation.weights import MixtureWeights

PERPLEXITIES = {1: 500.0, 2: 200.0, 3: 150.0, 4: 149.0, 5: 120.0}
PLAIN = LearningCurve(PERPLEXITIES, None, {})
SWITCHED = LearningCurve(PERPLEXITIES, 2, {1: 4, 2: 5})
ATTENTION = Attention(["a", "$x$", "</s>"], ["ein", "_b_", "</s>"], torch.eye(3), -1.0)
SHARES = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.6, 0.3]])
COMPONENTS, LAYERS = (
    Parts(shares, shares, shares.log(), torch.zeros(2, shares.size(1), 0))
    for shares in (SHARES, torch.stack([SHARES[:, 0], SHARES[:, 1:].sum(1)], 1))
)
SENTENCE = SentenceComponents(["first", "$x$", "</s>"], 1, COMPONENTS, LAYERS)
WEIGHTS = MixtureWeights([1, 2, 2], [0.5, 0.3, 0.2], 100)


def texts_of(svg):
    return set(re.findall(r"<!-- (.*?) -->", svg.read_text()))


def plot_plain(path):
    plot_curves({"one run": PLAIN}, path)


def plot_two(path):
    plot_curves({"one run": SWITCHED, "other": PLAIN}, path)


def plot_bars(path):
    plot_weights(WEIGHTS, path)


def plot_heat(path):
    plot_attention(ATTENTION, path)


def plot_mixture(path):
    plot_components(SENTENCE, [1, 3, 3], path)


@pytest.mark.parametrize("plot", [plot_plain, plot_two, plot_bars, plot_heat, plot_mixture])
def test_a_picture_is_drawn_in_the_format_of_its_ending(tmp_path, plot):
    path = tmp_path / "picture.png"
    plot(path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n") and len(content) > 5000
    pixels = matplotlib.image.imread(path)
    assert min(pixels.shape[:2]) > 300
    assert (pixels[..., :3] < 1).any(-1).mean() > 0.01  # not blank
    plot(tmp_path / "picture.PDF")
    assert (tmp_path / "picture.PDF").read_bytes().startswith(b"%PDF")


def test_curves_are_named_and_their_marks_explained_once_each(tmp_path):
    plot_two(tmp_path / "curves.svg")
    shown = texts_of(tmp_path / "curves.svg")
    assert {"one run", "one run: averaging starts", "one run: fine-tuning starts"} <= shown
    assert {"other", "epoch", "validation perplexity"} <= shown
    assert not {"other: averaging starts", "other: fine-tuning starts"} & shown
    assert (tmp_path / "curves.svg").read_text().count("<!-- one run: fine-tuning starts -->") == 1


def test_a_mark_at_an_epoch_that_was_not_validated_is_left_out(tmp_path):
    plot_curves({"run": LearningCurve(PERPLEXITIES, 9, {1: 12})}, tmp_path / "curves.svg")
    shown = texts_of(tmp_path / "curves.svg")
    assert "run" in shown
    assert not {"run: averaging starts", "run: fine-tuning starts"} & shown


def test_weights_are_named_by_layer_with_their_spread(tmp_path):
    """sqrt(((1/6)^2 + (1/30)^2 + (4/30)^2) / 3) / (1/3) = .374"""
    plot_bars(tmp_path / "weights.svg")
    shown = texts_of(tmp_path / "weights.svg")
    assert {"from layer 1: 0.500 in all", "from layer 2: 0.500 in all", "even: 0.333"} <= shown
    assert "coefficient of variation 0.374" in shown
    assert {"1", "2", "3"} <= shown


# Where a picture may be written


@pytest.mark.parametrize("name", ["curves.png", "curves.PNG", "a.b.pdf", "curves.svg"])
def test_a_new_picture_may_be_written(tmp_path, name, monkeypatch):
    check_plot_path(tmp_path / name)
    check_plot_path(str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    check_plot_path(name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["curves", "curves.pgf", "curves.txt", "png", ".png", "curves.png.log"]
)
def test_a_name_that_is_not_a_pictures_is_refused(tmp_path, name):
    for overwrite in (False, True):
        with pytest.raises(FairseqDocError, match="expected a picture's name, .* png, "):
            check_plot_path(tmp_path / name, overwrite)


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder.png").mkdir()
    for name in ("none/curves.png", "file/curves.png", "folder.png"):
        with pytest.raises(FairseqDocError, match=f"{name}: expected a file "):
            check_plot_path(tmp_path / name, overwrite=True)


def test_an_existing_picture_is_replaced_only_where_asked(tmp_path):
    path = tmp_path / "curves.png"
    path.write_text("precious")
    with pytest.raises(FairseqDocError, match="curves.png exists; .* give --overwrite"):
        check_plot_path(path)
    assert path.read_text() == "precious"
    check_plot_path(path, overwrite=True)


def test_a_full_disk_leaves_the_old_picture_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "curves.png"
    path.write_text("precious")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FairseqDocError, match="cannot write .*curves.png: No space left"):
        plot_curves({"a": LearningCurve({1: 9.0, 2: 8.0}, None, {})}, path)
    assert list(tmp_path.iterdir()) == [path] and path.read_text() == "precious"


def test_the_heat_map_shows_the_words_as_they_are(tmp_path):
    path = tmp_path / "heat.svg"
    plot_attention(ATTENTION, path)
    assert {"source", "output", "attention weight", "ein", "_b_"} <= texts_of(path)
    assert "$x$" in texts_of(path)  # no formula


def test_the_components_of_a_sentence_are_named_by_layer_and_by_scored_word(tmp_path):
    path = tmp_path / "components.svg"
    plot_mixture(path)
    shown = texts_of(path)
    # Component 1 is the only one of layer 1, whose sum it is.
    assert {"layer 1, 1", "layer 3, sum", "2", "3", "$x$", "&lt;/s&gt;"} <= shown
    assert "first" not in shown and "layer 1, sum" not in shown
    assert any(text.startswith("weight") for text in shown)
    assert any(text.startswith("posterior") for text in shown)


def test_darker_cells_have_more_weight(tmp_path):
    """The colours of the eight cells of the upper panel, row by row: the only component of layer 1,
    the sum of layer 3, its two components."""
    path = tmp_path / "components.svg"
    plot_mixture(path)
    meshes = re.findall(r'<g id="QuadMesh_\d+">(.*?)</g>', path.read_text(), flags=re.DOTALL)
    colours = [re.findall(r"fill: #(\w{6})", mesh) for mesh in meshes[:4]]
    brightness = [[sum(bytes.fromhex(colour)) for colour in row] for row in colours]
    shares = [[0.5, 0.1], [0.5, 0.9], [0.25, 0.6], [0.25, 0.3]]
    pairs = sorted(zip(sum(shares, []), sum(brightness, []), strict=True))
    assert [b for _, b in pairs] == sorted((b for _, b in pairs), reverse=True)
    assert brightness[0][0] == brightness[1][0] and brightness[2][0] == brightness[3][0]
    assert len({b for _, b in pairs}) == 6
