"""Reading times of Natural Stories, predicted with and without surprisal.

python examples/natural_stories/regression.py CORPUS TRAINING_TEXT SYSTEM=FOLDER ...

A folder holds NUMBER.tsv for each story, written by ``fairseq-doc score --state carried --tsv``.
The mean time on a word is a linear function of the length and log frequency of the word and of the
word before it, by least squares; with surprisal, also of the surprisal of both. The gain is in
log-likelihood, nats per word: with coefficients fitted to all stories, and held out, for each story
with coefficients fitted to the others.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from stories import read_table, read_words

PUNCTUATION = "'\"().,;:?!"  # stripped for a word's frequency


def bare(word: str) -> str:
    """A word as its frequency is counted."""
    return word.strip(PUNCTUATION).lower()


def read_stories(corpus: Path, training: Path) -> dict[int, list[tuple[str, float, float, float]]]:
    """{story: (word, mean time in ms, length, log2 of its relative frequency) of each word}."""
    counts = Counter(map(bare, training.read_text("utf-8").split()))
    rows = read_table(corpus / "processed_wordinfo.tsv")
    times = {(int(row["item"]), int(row["zone"])): row for row in rows}
    stories: dict[int, list] = {}
    for number, words in read_words(corpus).items():
        for zone, word in enumerate(words, start=1):
            time = times.get((number, zone))
            if time is None or time["word"] != word:
                raise SystemExit(f"expected the time of {word}; got {time}")
            frequency = np.log2((counts[bare(word)] + 1) / counts.total())
            found = (word, float(time["meanItemRT"]), len(word), frequency)
            stories.setdefault(number, []).append(found)
    return stories


def read_surprisals(path: Path, words: list[str]) -> np.ndarray:
    """The surprisals of a story's words; NaN for one that is unknown or not scored."""
    rows = [row for row in read_table(path) if row["word"] != "</s>"]
    if [row["word"] for row in rows] != words:
        raise SystemExit(f"{path}: expected the {len(words)} words of the story; got others")
    known = [row["unknown"] == "0" and row["surprisal"] != "NA" for row in rows]
    return np.array(
        [float(row["surprisal"]) if ok else np.nan for row, ok in zip(rows, known, strict=True)]
    )


def with_previous(values: np.ndarray) -> np.ndarray:
    """(n, k) of a story's words -> (n, 2 k), each row followed by that of the word before."""
    return np.hstack([values, np.vstack([np.full(values.shape[1], np.nan), values[:-1]])])


def log_likelihoods(x: np.ndarray, y: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """log p of each time under a normal distribution around the linear function fitted to the words
    ``fitted``, a mask (n,)."""
    slopes, *_ = np.linalg.lstsq(x[fitted], y[fitted], rcond=None)
    errors = y - x @ slopes
    variance = np.mean(errors[fitted] ** 2)
    return -(np.log(2 * np.pi * variance) + errors**2 / variance) / 2


def mean_and_error(of_stories: np.ndarray) -> str:
    """The mean over stories and its standard error."""
    error = of_stories.std(ddof=1) / len(of_stories) ** 0.5
    return f"{of_stories.mean():9.5f} +- {error:.5f}"


def main(corpus: Path, training: Path, systems: dict[str, Path]) -> Iterator[str]:
    """The lines of the table."""
    stories = read_stories(corpus, training)
    y = np.array([time for words in stories.values() for _, time, *_ in words])
    story = np.concatenate([[number] * len(words) for number, words in stories.items()])
    base = np.vstack([with_previous(np.array([w[2:] for w in ws])) for ws in stories.values()])
    bits = {}
    for name, folder in systems.items():
        parts = [
            read_surprisals(folder / f"{number}.tsv", [word for word, *_ in words])
            for number, words in stories.items()
        ]
        bits[name] = np.vstack([with_previous(part[:, None]) for part in parts])
    used = ~np.isnan(np.hstack([base, *bits.values()])).any(1)
    y, story, base = y[used], story[used], np.hstack([np.ones((used.sum(), 1)), base[used]])

    yield f"{len(y):,} of {len(used):,} words, times {y.mean():.1f} ms, deviation {y.std():.1f}"
    yield "system     bits/word    ms/bit    of the word before     gain  held-out gain, its error"
    held_out = {}
    for name, values in bits.items():
        full = np.hstack([base, values[used]])
        slopes = np.linalg.lstsq(full, y, rcond=None)[0][-2:]

        def gains(fitted, full=full):
            return log_likelihoods(full, y, fitted) - log_likelihoods(base, y, fitted)

        held_out[name] = np.array([gains(story != k)[story == k].mean() for k in stories])
        yield (
            f"{name:<9}{values[used, 0].mean():11.3f}{slopes[0]:10.3f}{slopes[1]:20.3f}"
            f"{gains(story > 0).mean():9.5f}{mean_and_error(held_out[name])}"
        )
    first, *others = systems
    for name in others:
        difference = mean_and_error(held_out[name] - held_out[first])
        yield f"{name} minus {first}, held out: {difference.strip()}"


if __name__ == "__main__":
    if len(sys.argv) < 4 or not all("=" in word for word in sys.argv[3:]):
        sys.exit("expected CORPUS TRAINING_TEXT SYSTEM=FOLDER ...")
    given = (word.split("=", 1) for word in sys.argv[3:])
    named = {name: Path(path) for name, path in given}
    try:
        print("\n".join(main(Path(sys.argv[1]), Path(sys.argv[2]), named)))
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
