"""examples/natural_stories."""

import importlib
import sys

import numpy as np
import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "examples/natural_stories"))
stories, regression = map(importlib.import_module, ("stories", "regression"))
SENTENCES = ["Who's there?'", "He asked: 'Why not!'", "'I am Dr. No,' said he.", "'Oh?' she said."]


@pytest.fixture
def corpus(tmp_path):
    """``corpus(texts)``: stories in the form of Natural Stories, with times that depend on a surprisal
    of each word; the surprisals are written too."""

    def write(texts, slope=3.0, before=1.5):
        rng = np.random.default_rng(1)
        words, times = ["word\tzone\titem"], ["word\tzone\titem\tnItem\tmeanItemRT"]
        (tmp_path / "scored").mkdir()
        for item, text in enumerate(texts, start=1):
            bits = rng.uniform(1, 12, len(text.split()))
            ms = 250 + slope * bits + before * np.roll(bits, 1) + rng.normal(0, 5, len(bits))
            rows = ["line\tposition\tword\tsurprisal\tentropy\tunknown\ttokens"]
            for zone, word in enumerate(text.split(), start=1):
                words.append(f"{word}\t{zone}\t{item}")
                times.insert(1, f"{word}\t{zone}\t{item}\t80\t{ms[zone - 1] + 2 * len(word)}")
                unscored = zone == 1 or word == "<unk>"
                shown = ("NA" if zone == 1 else bits[zone - 1], int(word == "<unk>"))
                rows.append(f"1\t{zone}\t{word}\t{shown[0]}\t1\t{int(unscored and zone > 1)}\t1")
            rows.append("1\t99\t</s>\t1\t1\t0\t1")
            (tmp_path / f"scored/{item}.tsv").write_text("\n".join(rows) + "\n")
        (tmp_path / "all_stories.tok").write_text("\n".join(words) + "\n")
        (tmp_path / "processed_wordinfo.tsv").write_text("\n".join(times) + "\n")
        return tmp_path

    return write


def test_a_story_is_written_in_sentences(corpus, tmp_path):
    stories.main(corpus([" ".join(SENTENCES), "One."]), tmp_path / "texts")
    assert (tmp_path / "texts/1.txt").read_text().split("\n") == [*SENTENCES, ""]
    assert (tmp_path / "texts/2.txt").read_text() == "One.\n"


def test_the_regression_finds_what_the_times_depend_on(corpus):
    rng = np.random.default_rng(2)
    texts = [" ".join(rng.choice(["The", "a", "big,", "dogs", "<unk>"], 200)) for _ in range(4)]
    folder = corpus(texts)
    (folder / "text").write_text("the a a big dogs dogs dogs\n")
    systems = {"one": folder / "scored", "two": folder / "scored"}
    head, _, one, two, difference = regression.main(folder, folder / "text", systems)
    usable = [word != "<unk>" for text in texts for word in text.split()]
    scored = (i for i in range(1, 800) if i % 200 > 1)  # the first has no score
    both = sum(all(usable[i - 1 : i + 1]) for i in scored)
    assert head.startswith(f"{both} of 800 words") and one.split()[1:] == two.split()[1:]
    assert difference == "two minus one, held out: 0.00000 +- 0.00000"
    _, _, slope, before, gain, held_out, *_ = one.split()
    assert float(slope) == pytest.approx(3, abs=0.15)
    assert float(before) == pytest.approx(1.5, abs=0.15)
    # Both terms explain (3^2 + 1.5^2) 121/12 ms^2 beside the noise of 5 ms.
    expected = np.log(1 + (3**2 + 1.5**2) * 121 / 12 / 25) / 2
    assert float(gain) == pytest.approx(expected, rel=0.1)
    assert float(held_out) == pytest.approx(float(gain), rel=0.1)


def test_other_words_are_refused(corpus):
    folder = corpus(["The dog.", "A cat."])
    (folder / "text").write_text("the\n")
    (folder / "scored/2.tsv").write_text((folder / "scored/1.tsv").read_text())
    with pytest.raises(SystemExit, match="expected the 2 words of the story"):
        list(regression.main(folder, folder / "text", {"x": folder / "scored"}))
    times = folder / "processed_wordinfo.tsv"
    times.write_text(times.read_text().replace("dog.", "x"))
    with pytest.raises(SystemExit, match="expected the time of dog."):
        regression.read_stories(folder, folder / "text")
