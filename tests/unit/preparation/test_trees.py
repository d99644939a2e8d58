import pytest
from conftest import refusal
from generated_text import write
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.preparation.trees import (
    EMPTY,
    TRACE,
    Tree,
    bracketed,
    parse_tree,
    read_trees,
    tree_texts,
    walk,
    without_function_tags,
    without_traces,
)

from ..parsing.conftest import nodes, read, text_of, tree_of_node, trees

DOG = "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))"
BLANKS = st.sampled_from((" ", "  ", "\t", "\n", "\r\n  ", "\n\n"))


def test_a_tree_is_its_words_tags_and_brackets():
    brackets = (("S", 0, 3), ("NP", 0, 2), ("VP", 2, 3))
    assert read(DOG) == Tree(("the", "dog", "barks"), ("DT", "NN", "VBZ"), brackets)
    walked = [("(", "S"), ("(", "NP"), ("word", 0), ("word", 1), (")", "NP")]
    assert list(walk(read(DOG))) == [*walked, ("(", "VP"), ("word", 2), (")", "VP"), (")", "S")]
    assert read("( S(NP( DT  the )(NN dog) )(VP (VBZ\nbarks)) )") == read(DOG)
    assert read("(NN dog)") == Tree(("dog",), ("NN",), ())


@given(nodes(), BLANKS)
def test_every_text_is_read_and_written_as_it_is(node, blank):
    tree = read(text_of(node, blank))
    assert tree == tree_of_node(node)
    assert bracketed(tree) == text_of(node)


def test_roots():
    for label in ("TOP", "S1", "ROOT", ""):
        assert read(f"({label} (NN dog))").root == label
    for label in ("S", "ROOTS", "top", "TOP-1"):
        assert read(f"({label} (NN dog))").root is None
    assert read("(NN dog)").root is read("(S (TOP (NN dog)))").root is None


@given(st.lists(st.tuples(nodes(), BLANKS), min_size=1, max_size=4))
def test_every_tree_of_a_file_is_found_with_its_line(tmp_path_factory, drawn):
    text, found = "", []
    for number, (node, blank) in enumerate(drawn):
        text += ("", "\n", " ", "\n\n")[number]
        found.append((text.count("\n") + 1, tree_of_node(node)))
        text += text_of(node, blank)
    path = tmp_path_factory.mktemp("trees") / "t"
    path.write_text(text, encoding="utf-8")
    assert list(read_trees(path)) == found


@pytest.mark.parametrize(
    "text, problem",
    [
        ("(S (NN a)", "the tree is not closed: expected 1 more closing brackets"),
        ("(S (NN a)))", "expected one tree; got ')' outside it"),
        ("(S (NN a)) (S (NN b))", "expected one tree; got '(S' outside it"),
        ("(NN a) (NN b)", "expected one tree; got '(NN b)' outside it"),
        (")", "expected one tree; got ')' outside it"),
        ("a", "expected every word with its tag, (TAG word); got 'a' alone"),
        ("(S (NN a) b)", "expected every word with its tag, (TAG word); got 'b' alone"),
        ("(S (NN a (NN b)))", "expected every word with its tag, (TAG word); got 'a' alone"),
        ("(S (NN a) (NP ))", "the bracket 'NP' holds no word"),
        ("(S)", "expected a tree; got one without words"),
        ("(S ((NN a)))", "a bracket below the root has no label"),
        (" ", "expected a tree; got one without words"),
    ],
)
def test_a_malformed_tree_is_refused(text, problem):
    assert refusal(parse_tree, text, "dev.mrg: line 3") == f"dev.mrg: line 3: {problem}"


@pytest.mark.parametrize(
    "lines, before, problem",
    [
        ((), 0, "expected trees in brackets; got an empty file"),
        ((DOG, "", "(S", DOG), 1, "line 3: the tree that begins here is not closed: expected 1"),
        ((DOG, "", DOG + ")"), 2, "line 3: expected a tree in brackets; got ')' outside one"),
        ((DOG, "-1\t(S)"), 1, "line 2: expected a tree in brackets; got '-1' outside one"),
        (("(S", "(NN a))" + DOG + "b"), 2, "line 2: expected a tree in brackets; got 'b' outside"),
        ((DOG, "", "(S", "(NN a)", "(NP))"), 1, "line 3: the bracket 'NP' holds no word"),
    ],
)
def test_what_is_no_tree_is_named_by_file_and_line(tmp_path, lines, before, problem):
    path, found = write(tmp_path / "dev.mrg", lines), []
    message = refusal(lambda: found.extend(tree for _, tree in read_trees(path)))
    assert message.startswith(f"{path}: {problem}")
    assert len(found) == before


def test_a_parsers_failure_is_a_tree_only_where_asked_for(tmp_path):
    lines = ["(())", DOG, "()", "(TOP)", "(S (NP ) (VP))", "(S () (NN a) (NP))"]
    path = write(tmp_path / "t", lines)
    trees = [parse_tree(text, "here", allow_empty=True) for _, text in tree_texts(path)]
    assert trees == [EMPTY, read(DOG), EMPTY, EMPTY, EMPTY, read("(S (NN a))")]
    assert "line 1: expected a tree; got one without words" in refusal(list, read_trees(path))
    assert "is not closed" in refusal(parse_tree, "((", "here", allow_empty=True)


@given(nodes())
def test_no_trace_is_left_and_nothing_else_is_lost(node):
    def pruned(label, inside):
        """The node without traces, None where nothing is left."""
        if isinstance(inside, str):
            return None if label == TRACE else (label, inside)
        kept = [child for child in (pruned(*child) for child in inside) if child]
        return (label, kept) if kept else None

    tree, left = without_traces(tree_of_node(node)), pruned(*node)
    assert tree == (tree_of_node(left) if left else EMPTY)


@given(trees())
def test_function_tags_are_cut_and_nothing_else(tree):
    cut = without_function_tags(tree)
    assert (cut.words, cut.tags) == (tree.words, tree.tags)
    assert [bracket[1:] for bracket in cut.brackets] == [bracket[1:] for bracket in tree.brackets]
    for (after, *_), (before, *_) in zip(cut.brackets, tree.brackets, strict=True):
        assert after == before.split("-")[0].split("=")[0]
    tree = read("(TOP (-LRB- (NP=2-SBJ (-LRB- -LRB-) (NN-X a-b))))")  # a leading hyphen stays
    assert bracketed(without_function_tags(tree)) == "(TOP (-LRB (NP (-LRB- -LRB-) (NN-X a-b))))"


SENTENCE = read("(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))")


@pytest.mark.parametrize(
    "text",
    [
        "(S (NP The dog) (VP barks) .)",  # as nt-parser prints samples
        "(S (NP UNK dog) (VP UNK-s) .)",
        "(S (NP (XX The) (XX dog)) (VP (XX barks)) (XX .))",
        "(S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))",
    ],
)
def test_words_and_tags_are_taken_from_the_sentence(text):
    tree = parse_tree(text, "here", sentence=SENTENCE)
    assert bracketed(tree) == bracketed(SENTENCE)[5:-1]


def test_a_sentence_of_another_length_is_refused():
    for text in ("(S (NP The dog) barks)", "(S (NP The dog) (VP barks) . .)"):
        message = refusal(parse_tree, text, "here", sentence=SENTENCE)
        assert message.startswith("here: expected 4 words")
