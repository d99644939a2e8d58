"""Translation tasks with one right answer: the source's words copied, or in reverse."""

import random

WORDS = [f"w{number}" for number in range(12)]
TASKS = {"copy": list, "reverse": lambda words: words[::-1]}


def write_corpus(folder, task, train=4_000, valid=200, test=200, longest=5, seed=0):
    """Write SPLIT.src and SPLIT.tgt, lines of 2 to ``longest`` words, each at most once in a line."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("valid", valid), ("test", test)):
        sources = [rng.sample(WORDS, rng.randint(2, longest)) for _ in range(count)]
        targets = [TASKS[task](words) for words in sources]
        for side, lines in (("src", sources), ("tgt", targets)):
            text = "".join(" ".join(words) + "\n" for words in lines)
            (folder / f"{split}.{side}").write_text(text)
