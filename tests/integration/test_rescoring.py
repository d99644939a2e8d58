"""``fairseq-doc rescore`` on lists of a recogniser that hears words wrongly, and of a translator."""

import random
from types import SimpleNamespace

import pytest
from conftest import doc, refused, result_of
from generated_text import block, write

RATE = 0.3  # of the words that are heard as noise
COST = 1.0  # of the first pass for each word that is not what was heard
WORDS = ["w1", "w2", "w3", "w4"]


def heard(sentences, rng):
    """Lines of the list, costs of the first pass, references. What was heard, with noise, is the
    first candidate; others have words in its place, of which half are right."""
    lists, costs, references = [], [], []
    for number, said in enumerate(sentences):
        name = f"speaker-{number}"
        noisy = ["noise" if rng.random() < RATE else word for word in said]
        candidates = [noisy]
        for _ in range(5):
            guessed = [word if rng.random() < 0.5 else rng.choice(WORDS) for word in said]
            pairs = zip(noisy, guessed, strict=True)
            candidates.append([other if own == "noise" else own for own, other in pairs])
        for k, one in enumerate(candidates, start=1):
            lists.append(f"{name}-{k} {' '.join(one)}")
            differences = sum(a != b for a, b in zip(one, noisy, strict=True))
            costs.append(f"{name}-{k} {COST * differences}")
        references.append(f"{name} {' '.join(said)}")
    return lists, costs, references[::-1]


@pytest.fixture(scope="module")
def lists(corpus, trained, tmp_path_factory):
    """Lists of two sets, and the words of a command on one."""
    folder, rng = tmp_path_factory.mktemp("lists"), random.Random(1)
    lines = [line.split() for line in (corpus.text / "test.txt").read_text().splitlines()]
    lines = [line for line in lines if 3 <= len(line) <= 12]
    for name, own in (("dev", lines[:60]), ("eval", lines[60:120])):
        for kind, found in zip(("nbest", "costs", "ref"), heard(own, rng), strict=True):
            write(folder / f"{name}.{kind}", found)

    def words(name, *more, scored=True):
        first = ("--first-pass", folder / f"{name}.costs", "--costs") if scored else ()
        model = ("--path", trained.folder / "checkpoint_best.pt", "--cpu", "--no-progress-bar")
        return ["rescore", corpus.data, folder / f"{name}.nbest", *model, *first, *more]

    def wer(name):
        return "--metric", "wer", "--reference", folder / f"{name}.ref"

    return SimpleNamespace(folder=folder, words=words, wer=wer)


def test_tuned_weights_hear_better(lists, tmp_path):
    dev, grid = lists.wer("dev"), ("--tune", "--weights", "0:2:0.25")
    tuned = result_of(*lists.words("dev", *dev, *grid))
    weights = ("--weight", tuned["weight"], f"--bonus={tuned['bonus']}")
    assert tuned["weight"] > 0 and tuned["gain"] > 0 and tuned["value"] < 0.8 * tuned["first"]
    again = result_of(*lists.words("dev", *dev, *weights))
    assert again["value"] == tuned["value"] and again["first"] == tuned["first"]
    best = ("--output", tmp_path / "best")
    other = result_of(*lists.words("eval", *lists.wer("eval"), *weights, *best))
    assert other["value"] < 0.85 * other["first"]
    found = dict(line.split(" ", 1) for line in (tmp_path / "best").read_text().splitlines())
    said = dict(line.split(" ", 1) for line in (lists.folder / "eval.ref").read_text().splitlines())
    assert list(found) == list(reversed(said))
    # No candidate is longer or shorter, and few are better aligned than word by word.
    pairs = [(found[name].split(), said[name].split()) for name in said]
    errors = sum(a != b for pair in pairs for a, b in zip(*pair, strict=True))
    words = sum(len(reference) for _, reference in pairs)
    assert 100 * errors / words == pytest.approx(other["value"], rel=0.1)


def test_kaldis_scores(lists, corpus, trained, tmp_path):
    """They are those of ``score``, in the order of the list, whose keys are no words."""
    words = lists.words("dev", "--scores", tmp_path / "nll", scored=False)
    printed, _ = doc(*words)
    assert "60 utterances" in printed and f"wrote {tmp_path}/nll" in printed
    nbest = [line.split() for line in (lists.folder / "dev.nbest").read_text().splitlines()]
    scores = [line.split() for line in (tmp_path / "nll").read_text().splitlines()]
    assert [own[0] for own in scores] == [own[0] for own in nbest]
    assert [len(own) for own in scores] == [len(own) + 1 for own in nbest]  # and the end mark
    text = "".join(f"{' '.join(own[1:])}\n" for own in nbest).encode()
    path = trained.folder / "checkpoint_best.pt"
    single = result_of("score", corpus.data, "--path", path, "--cpu", stdin=text)
    expected = [-sentence["log_prob"] for sentence in single["sentences"]]
    assert [sum(map(float, own[1:])) for own in scores] == pytest.approx(expected, abs=2e-3)
    doc(*words, "--totals", "--overwrite")
    totals = [line.split() for line in (tmp_path / "nll").read_text().splitlines()]
    assert [float(own[1]) for own in totals] == pytest.approx(expected, abs=1e-4)
    doc(*words, "--totals", "--overwrite", "--carry")
    carried = [line.split() for line in (tmp_path / "nll").read_text().splitlines()]
    assert (carried[0], len(carried)) == (totals[0], len(totals)) and carried != totals


def test_translations(lists, tmp_path):
    """The first of each list has three words too many; the language model knows."""
    right = [line.split(" ", 1)[1] for line in (lists.folder / "eval.ref").read_text().splitlines()]
    reference = write(tmp_path / "ref", right)
    sentences = [
        line for n, text in enumerate(right)
        for line in block(n, (f"{text} w4 w4 w4", "-1"), (text, "-1"), target=text)
    ]  # fmt: skip
    output = write(tmp_path / "out", sentences)
    words = lists.words("dev", "--format", "fairseq-generate", scored=False)
    words[2] = output
    bleu = ("--metric", "bleu", "--reference", reference, "--tune", "--output", tmp_path / "best")
    printed, _ = doc(*words, *bleu)
    assert "BLEU" in printed and "100.00 at weight" in printed
    assert (tmp_path / "best").read_text().splitlines() == right


@pytest.mark.parametrize(
    "more, problem",
    [
        (("--scores", "{}/new", "--first-pass", "{}/none"), "cannot read"),
        (("--output", "{}/new", "--weight", 1, "--bonus", 0, "--scores", "/dev/full"), "cannot write /dev/full"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_anything_is_written(lists, more, problem):
    more = [str(word).format(lists.folder) for word in more]
    assert problem in refused(*lists.words("dev", *more, scored=False))
    assert not (lists.folder / "new").exists()
