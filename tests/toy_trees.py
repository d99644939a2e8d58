"""Trees of a small grammar, and wrong candidates that have prepositional phrases elsewhere.

"of" and "from" belong to the noun before, "with" and "by" to the verb: the symbols before "(PP" and the
word after it decide what is right. The parser that makes the candidates hardly knows. Where "in"
belongs only the parser can know. So both scores together are better than each.
"""

import gzip
import itertools
import random

from generated_text import write as write_trees

NOUNS = ("dog", "Cat", "man", "house", "tree", "bird")
VERBS = ("saw", "took", "left")
NOUN, VERB = "noun", "verb"  # what a phrase can be attached to
PREPOSITIONS = {"of": (NOUN,), "from": (NOUN,), "with": (VERB,), "by": (VERB,), "in": (NOUN, VERB)}
COSTS = {"in": 3.0}  # of an error, to the parser; else:
COST = 0.3
RARE = 0.1  # share of nouns that occur once


def sample_sentence(rng):
    """(subject, verb, object, [(preposition, noun, what it belongs to)])."""

    def noun():
        return f"Name{rng.randrange(10**6)}" if rng.random() < RARE else rng.choice(NOUNS)

    phrases = []
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3))):
        preposition = rng.choice([*PREPOSITIONS])
        phrases.append((preposition, noun(), rng.choice(PREPOSITIONS[preposition])))
    return noun(), rng.choice(VERBS), noun(), phrases


def build(sentence, places, verb_tag="VBD"):
    """The tree with each phrase attached to the noun before it or to the verb, as ``places`` says."""
    subject, verb, object_, phrases = sentence

    def noun_phrase(noun):
        return ["NP", "(DT the)", f"(NN {noun})"]

    last = noun_phrase(object_)
    verb_phrase = ["VP", f"({verb_tag} {verb})", last]
    for (preposition, noun, _), place in zip(phrases, places, strict=True):
        below = last if place == NOUN else verb_phrase
        last = noun_phrase(noun)
        below.append(["PP", f"(IN {preposition})", last])
    return text(["TOP", ["S", noun_phrase(subject), verb_phrase, "(. .)"]])


def text(node):
    """A tree of lists, the label first, on one line."""
    return node if isinstance(node, str) else f"({' '.join(map(text, node))})"


def gold(sentence):
    """The right tree."""
    return build(sentence, [place for _, _, place in sentence[3]])


def candidates(sentence, rng):
    """[(score, tree)] of every way to attach the phrases, the best score first, which errors lower
    but chance too; and one of them again with another tag, last."""
    phrases, found = sentence[3], []
    for places in itertools.product((NOUN, VERB), repeat=len(phrases)):
        cost = sum(
            COSTS.get(preposition, COST)
            for (preposition, _, right), place in zip(phrases, places, strict=True)
            if place != right
        )
        found.append((round(rng.gauss(-10 - cost, 1), 6), build(sentence, places)))
    found.sort(reverse=True)
    return [*found, (found[-1][0] - 1, found[-1][1].replace("VBD", "VBN"))]


def sample_trees(count, seed=0):
    """The right trees of so many sentences."""
    rng = random.Random(seed)
    return [gold(sample_sentence(rng)) for _ in range(count)]


def sample_lists(count, seed=0):
    """(right trees, lists of candidates) of so many sentences."""
    rng = random.Random(seed)
    sentences = [sample_sentence(rng) for _ in range(count)]
    return [gold(s) for s in sentences], [candidates(s, rng) for s in sentences]


def nbest_text(lists):
    """The text of an n-best file."""
    text = ""
    for number, rows in enumerate(lists):
        text += f"{len(rows)} {number}\n" + "".join(f"{score}\t{tree}\n" for score, tree in rows)
    return text


def write_corpus(folder, train=1500, dev=60, test=60):
    """Write FOLDER/train.mrg, dev.mrg and test.mrg, dev.nbest and test.nbest.gz."""
    folder.mkdir(parents=True, exist_ok=True)
    write_trees(folder / "train.mrg", sample_trees(train, 1))
    for seed, (split, count) in enumerate((("dev", dev), ("test", test)), start=2):
        trees, lists = sample_lists(count, seed)
        write_trees(folder / f"{split}.mrg", trees)
        (folder / f"{split}.nbest").write_text(nbest_text(lists), encoding="utf-8")
    plain = folder / "test.nbest"
    (folder / "test.nbest.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
