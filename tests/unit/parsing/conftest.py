"""What the tests of parsing share: random trees, written and read without the package's own code."""

from hypothesis import strategies as st

from fairseq_doc.preparation.trees import ROOTS, TRACE, Tree, parse_tree

LABELS = ("S", "NP", "VP", "PRT", "ADVP-TMP", "NP-SBJ-1", "NP=2", "WHPP-3=4", "X|Y")
TAGS = ("NN", "VB", "PRP$", "POS", "-LRB-", "#", ".", ",", "''")
CHARACTERS = st.characters(codec="utf-8", exclude_characters="()", exclude_categories=("C", "Z"))
WORDS = st.sampled_from(("The", "dog", "-LRB-", "-RRB-", "'", "1\\/2", "A.B.-C")) | st.text(
    CHARACTERS, min_size=1, max_size=4
)
LEAVES = st.tuples(st.sampled_from(TAGS), WORDS)
TRACES = st.tuples(st.just(TRACE), st.sampled_from(("*", "0", "*T*-1")))


@st.composite
def nodes(draw, leaves=None):
    """(label, children) with leaves (tag, word), of random leaves or over those given: brackets round
    one to four neighbours again and again, so with unary chains, then one round everything."""
    parts = list(leaves or draw(st.lists(LEAVES | LEAVES | TRACES, min_size=1, max_size=7)))
    brackets = st.tuples(st.sampled_from(LABELS), st.integers(0, 6), st.integers(1, 4))
    for label, at, width in draw(st.lists(brackets, max_size=12)):
        at %= len(parts)
        parts[at : at + width] = [(label, parts[at : at + width])]
    return draw(st.sampled_from((*ROOTS, *LABELS))), parts


def text_of(node, blank=" "):
    """The node in brackets, with ``blank`` where the package writes one."""
    label, inside = node
    if isinstance(inside, str):
        return f"({label}{blank}{inside})"
    return f"({label}{''.join(blank + text_of(child, blank) for child in inside)})"


def tree_of_node(node):
    """The node as the package holds it."""
    leaves, brackets = [], []

    def visit(label, inside):
        if isinstance(inside, str):
            leaves.append((label, inside))
            return
        start, place = len(leaves), len(brackets)
        brackets.append(None)
        for child in inside:
            visit(*child)
        brackets[place] = (label, start, len(leaves))

    visit(*node)
    tags, words = zip(*leaves, strict=True)
    return Tree(words, tags, tuple(brackets))


def trees(leaves=None):
    """Random trees; see :func:`nodes`."""
    return nodes(leaves).map(tree_of_node)


def read(text):
    """The tree of a text."""
    return parse_tree(text, "here")
