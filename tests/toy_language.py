"""A language whose probabilities are known: a second-order Markov chain over a few words and the end mark."""

from bisect import bisect

import numpy as np

WORDS = 4
END = 0  # the end of a line; words are 1..WORDS


def transitions(seed=0):
    """P(next | last two symbols), (S, S, S) with S = WORDS + 1; no line is empty."""
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(WORDS + 1, 0.4), size=(WORDS + 1, WORDS + 1))
    table[..., END] = 0.1
    table[:, END, END] = 0.0
    words = table[..., 1:]
    words *= (1 - table[..., :1]) / words.sum(-1, keepdims=True)
    return table


def bits(lines):
    """Bits per symbol that the chain itself needs for these lines, without the first symbol."""
    symbols = [END, END]
    for line in lines:
        symbols += [*(int(word[1:]) for word in line.split()), END]
    symbols = np.array(symbols)
    return float(-np.log2(transitions()[symbols[:-2], symbols[1:-1], symbols[2:]])[1:].mean())


def sample_lines(table, tokens, seed):
    """Lines of words, about ``tokens`` symbols with the end marks."""
    rng = np.random.default_rng(seed)
    bounds = table.cumsum(-1).tolist()
    lines, line, last, count = [], [], (END, END), 0
    while count < tokens or line:
        symbol = bisect(bounds[last[0]][last[1]], rng.random(), hi=WORDS)
        count += 1
        if symbol == END:
            lines.append(" ".join(f"w{word}" for word in line))
            line = []
        else:
            line.append(symbol)
        last = (last[1], symbol)
    return lines


def write_corpus(folder, train=12_000, valid=3_000, test=3_000):
    """Write FOLDER/train.txt, valid.txt and test.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    table = transitions()
    for seed, (split, tokens) in enumerate([("train", train), ("valid", valid), ("test", test)]):
        lines = sample_lines(table, tokens, seed + 1)
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
