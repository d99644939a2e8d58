import math
import re

import pytest
import toy_trees
from conftest import doc
from generated_text import block, write

from fairseq_doc.parsing.nbest import read_nbest

from .conftest import refused_without_a_trace, result_of

SENTENCES = [
    "(TOP (S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (NNP Rex)))))",
    "(TOP (S (NP (NNS Cats)) (VP (VBP run))))",
    "(TOP (FRAG (NP (NN end))))",
]
SOURCES = ["the dog saw <unk>", "cats run", "end"]
OUTPUTS = [
    [
        (-1.75, "(S (NP the dog )NP (VP saw (NP <unk> )NP )VP )S"),  # as it should be
        (-2.0, "(S (NP the dog )NP (VP saw (NP <unk> )NP )VP"),  # open
        (-3.0, "(S (NP the dog )NP (VP saw )VP )S"),  # a word too few
    ],
    [
        (-2.5, "(S (NP run )NP (VP cats )VP )S"),  # other words
        (-4.0, "(S (NP cats )VP (VP run )VP )S"),  # closed by another label
        (-5.0, "(S (NP cats run )NP )S"),
    ],
    [(-0.125, "(S )S"), (-9.0, "(S end end )S"), (-10.0, "")],  # no word, too many, nothing
]
EXPECTED = [
    [(-1.75, SENTENCES[0]), (-2.0, SENTENCES[0])],
    [(-2.5, SENTENCES[1]), (-4.0, SENTENCES[1]), (-5.0, "(TOP (S (NP (NNS Cats) (VBP run))))")],
    [(0.0, "(TOP (S (NN end)))")],
]
COUNTS = {
    "sentences": 3, "outputs": 9, "flat_trees": 1, "well_formed": 2, "repaired": 3, "dropped": 4,
    "first_well_formed": 1, "first_repaired": 1, "first_dropped": 1,
}  # fmt: skip
LINE = "collect-parses out --sentences gold --output nbest"


def generated():
    """fairseq-generate's lines for log2 P of the outputs, the last sentence first."""
    lines = ["2024-05-01 10:00:10 | INFO | fairseq_cli.generate | loading model(s)"]
    for number, source in reversed(list(enumerate(SOURCES))):
        rows = []
        for score, symbols in OUTPUTS[number]:
            length = len(symbols.split()) + 1
            parts = [score / 4, score * 3 / 4, *[0.0] * length] if length > 1 else [score]
            rows.append((symbols, " ".join(f"{part:.4f}" for part in parts[:length])))
        lines += block(number, *rows, source=source, target="x y")
    return [*lines, "Generate test with beam=3: BLEU4 = 0.00, 0/0/0/0"]


@pytest.fixture
def work(folder):
    """The working folder, with a generator's output and the trees of its sentences."""
    write(folder / "out", generated())
    toy_trees.write_trees(folder / "gold", SENTENCES)
    return folder


def test_outputs_become_lists_of_trees_over_the_sentences_words_and_tags(work):
    assert result_of(LINE) == (COUNTS | {"output": "nbest"}, "")
    found = [[(c.score, c.text) for c in row] for row in read_nbest("nbest")]
    assert found == [
        [(pytest.approx(score * math.log(2)), text) for score, text in row] for row in EXPECTED
    ]
    counts, written = doc(*LINE.split(), "--overwrite")[0].splitlines()
    assert "3 sentences, 9 outputs" in counts and written == "wrote nbest"


def without(text, *starts):
    return "".join(f"{line}\n" for line in text.splitlines() if not line.startswith(starts))


@pytest.mark.parametrize(
    "change, problem",
    [
        (lambda text: without(text, "S-"), "sentence 0: expected an S- line of 4 words"),
        (lambda text: without(text, "P-"), "sentence 0: expected P- lines"),
        (lambda text: text.replace("P-1\t", "P-1\t0 "), "sentence 1: expected P- lines"),
        (lambda text: text.replace("S-1\tcats", "S-1\tsome cats"), "S- line of 2 words"),
        (lambda text: re.sub(r"(?m)^.-2\t.*\n", "", text), "out: expected 3 sentences"),
    ],
)
def test_unusable_output_is_refused_and_nothing_is_left(work, change, problem):
    (work / "out").write_text(change((work / "out").read_text()))
    assert problem in refused_without_a_trace(LINE, work)
