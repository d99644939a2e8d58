from collections import Counter
from dataclasses import replace

import pytest
from conftest import refusal
from generated_text import write
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.parsing.bracketing import (
    ERROR,
    SKIPPED,
    VALID,
    Parameters,
    SentenceResult,
    compare,
    f1,
    read_parameters,
    summarize,
)
from fairseq_doc.parsing.nbest import parse_lists, read_nbest
from fairseq_doc.preparation.trees import EMPTY, read_trees

from .conftest import WORDS, read, trees

COLLINS = Parameters()
# As the file that comes with EVALB is laid out.
COLLINS_PRM = [
    *("##--------##", "## Debug mode ##", "DEBUG 0", "MAX_ERROR 10", ""),
    *("CUTOFF_LEN 40", "", "LABELED 1                 ", "", "## Delete labels ##"),
    *(f"DELETE_LABEL {label}" for label in "TOP -NONE- , : `` '' .".split()),
    *("DELETE_LABEL_FOR_LENGTH -NONE-", "", "EQ_LABEL ADVP PRT", "# EQ_WORD  Example example"),
]


def compared(gold, test, **changes):
    return compare(read(gold), read(test), replace(COLLINS, **changes))


def counts(gold, test, **changes):
    """(matched, gold, test) brackets."""
    result = compared(gold, test, **changes)
    assert result.status == VALID
    return result.matched, result.gold, result.test


@pytest.mark.parametrize(
    "gold, test, expected",
    [
        # punctuation by the tag, each side by its own: ; and : are both deleted
        ("(S (: ;) (NP (NN a)))", "(S (NP (, ;) (NN a)))", (2, 2, 2)),
        # traces in one tree alone
        ("(S (NP (-NONE- *)) (VP (VB a)))", "(S (VP (VB a)))", (2, 2, 2)),
        # a label of DELETE_LABEL: the bracket alone is deleted, not the words
        ("(S (: (NN a)) (NN b))", "(S (NP (NN a)) (NN b))", (1, 1, 2)),
        # roots: TOP does not count, after the cut too
        ("(TOP-X (S=-Y (NN a)))", "(TOP (S (NN a)))", (1, 1, 1)),
    ],
)
def test_brackets_are_counted_as_evalb_counts_them(gold, test, expected):
    """The property below has the rest, over equal words and tags."""
    assert counts(gold, test) == expected
    assert counts(test, gold) == tuple(expected[i] for i in (0, 2, 1))


def test_labels_and_tags_are_deleted_as_named():
    gold, test = "(S1 (S (NN a)))", "( (S (NN a)))"
    assert counts(gold, test, delete_label=("S1", "")) == (1, 1, 1)
    # a label also by one that counts as equal, a word by its exact tag alone
    assert counts("(PRT (S (NN a)))", gold, delete_label=("ADVP", "S1")) == (1, 1, 1)
    assert compared("(S (PRT a) (NN b))", "(S (NN a) (NN b))", delete_label=("ADVP",)).words == 2
    assert compared("(S (.-X .) (NN a))", "(S (NN .) (NN a))").words == 2


def test_without_labels_spans_alone_count():
    gold, test = "(S (NP (X (NN a))) (NN b))", "(Y (VP (NN a)) (NN b))"
    assert counts(gold, test) == (0, 3, 2)
    assert counts(gold, test, labeled=False) == (2, 3, 2)
    assert counts("(TOP (S (NN a)))", "(S (TOP (NN a)))", labeled=False) == (1, 1, 1)


def test_pairs_are_equal_and_not_chained():
    pairs = (("A", "B"), ("B", "C"))
    for gold, test, matched in (("A", "B", 1), ("C", "B", 1), ("A", "C", 0), ("PRT", "ADVP", 0)):
        assert counts(f"({gold} (NN a))", f"({test} (NN a))", eq_label=pairs)[0] == matched
        status = VALID if matched else ERROR
        assert compared(f"(S (NN {gold}))", f"(S (NN {test}))", eq_word=pairs).status == status


@pytest.mark.parametrize(
    "test, crossing",
    [
        ("(S (X (NN a) (NN b) (NN c)) (NN d))", 1),  # begins with a bracket and cuts another
        ("(S (NN a) (X (Y (X (NN b) (NN c)))) (NN d))", 3),  # each crosses three, and is one
        ("(S (NN a) (TOP (NN b) (NN c)) (NN d))", 0),  # does not count
        ("(S (X (NN a) (, ,) (X (NN b) (NN c))) (, ,) (NN d))", 2),
        ("(S (A (NN a) (NN b)) (B (NN c) (NN d)))", 0),
    ],
)
def test_brackets_of_the_candidate_that_cross_one_of_the_gold_tree(test, crossing):
    gold = "(S (A (A (NN a) (NN b)) (, ,)) (TOP (B (NN c) (NN d))))"
    assert compared(gold, test).crossing == crossing


def test_tags_are_compared_of_the_words_that_are_left():
    gold = "(S (NN a) (, ,) (VB b) (ADVP c) (-NONE- *) (NN d) (. .))"
    result = compared(gold, "(S (NN a) (: ,) (NN b) (PRT c) (NN-X d) (. .))")
    assert (result.words, result.correct_tags) == (4, 2)  # a, and c since ADVP is PRT


def test_length_counts_punctuation_and_no_traces():
    gold = "(S (`` ``) (NN a) (-NONE- *) (NN b) (. .))"
    result = compared(gold, "(S (`` ``) (NN a) (NN b) (. .))")
    assert (result.length, result.words) == (4, 2)
    assert compared(gold, gold, delete_label_for_length=(".", "``")).length == 3
    assert compared(gold, "(S (NN x))").length == compare(read(gold), EMPTY, COLLINS).length == 4


@pytest.mark.parametrize(
    "gold, test, status",
    [
        ("(S (NN a))", "(S (NN A))", ERROR),
        ("(S (NN a) (NN b))", "(S (NN b) (NN a))", ERROR),
        ("(S (NN a) (NN b))", "(S (NN a))", ERROR),
        ("(S (NN a) (. .))", "(S (NN a) (NN .))", ERROR),  # kept on one side
        ("(S (NN a) (. .))", "(S (NN a) (. !))", VALID),  # deleted, so whatever it is
        ("(S (NN a) (. .))", "(S (NN a))", VALID),
        ("(S (NN a))", "(S (. a))", SKIPPED),
        ("(S (. .))", "(S (. .))", SKIPPED),
        ("(S (. .))", "(S (NN .))", ERROR),
        # quotes that one tree deletes
        ("(S (NN a) (POS '))", "(S (NN a) (-NONE- *) ('' '))", VALID),  # a trace takes no place
        ("(S (POS ') (NN a) ('' '))", "(S ('' ') (NN a) ('' '))", VALID),  # one of two differs
        ("(S (NN a) (POS ''))", "(S (NN a) ('' ''))", ERROR),  # the word is no quote
        ("(S (NN a) (POS 's))", "(S (NN a) ('' 's))", ERROR),
        ("(S (NN a) (POS ') (. .))", "(S ('' ') (NN a) (. .))", ERROR),  # other places
        ("(S (NN a) (POS '))", "(S (NN a) ('' ') (. .))", ERROR),  # other lengths
        ("(S (NN a) (NN '))", "(S (NN a) ('' '))", ERROR),  # a tag that is never confused
        ("(S (POS ') (NN a) ('' '))", "(S ('' ') (NN a) (POS '))", ERROR),  # as many are kept
    ],
)
def test_words_must_be_the_same(gold, test, status):
    result = compared(gold, test)
    assert result.status == status
    if status != VALID:
        assert result == SentenceResult(status, result.length)
    assert compare(read(gold), EMPTY, COLLINS) == SentenceResult(SKIPPED, result.length)


@pytest.mark.parametrize("quote", ["'", '"', "/"])
def test_a_quote_that_one_side_deletes_is_kept_in_both(quote):
    possessive = f"(S (NP (NN a) (POS {quote})) (NN b) (. .))"
    closing = f"(S (NN a) (X ('' {quote})) (NN b) (. .))"
    # S over a, ', b; NP over a, '; X over ' and the tags of a and b
    expected = SentenceResult(VALID, 4, 1, 2, 2, 0, 3, 2)
    assert compared(possessive, closing) == compared(closing, possessive) == expected
    assert compared(possessive, closing, quote_label=()).status == ERROR
    assert compared(possessive, closing.replace("''", "``")).status == VALID
    assert compared(possessive, closing.replace("''", ":")).status == ERROR
    assert compared(closing, closing).words == 2


def test_evalbs_own_file_holds_the_defaults(tmp_path):
    path = write(tmp_path / "COLLINS.prm", COLLINS_PRM)
    assert read_parameters(path) == replace(COLLINS, quote_label=())


def test_what_a_file_names_is_taken_and_nothing_else(tmp_path):
    lines = ["LABELED 0", "\tCUTOFF_LEN 70 ", "QUOTE_LABEL POS", "EQ_WORD The the", "EQ_WORD A a"]
    path = write(tmp_path / "p", [*lines, "#LABELED 1", "EQ_LABEL A B"])
    assert read_parameters(path) == Parameters(
        labeled=False,
        cutoff_len=70,
        delete_label=(),
        delete_label_for_length=(),
        quote_label=("POS",),
        eq_label=(("A", "B"),),
        eq_word=(("The", "the"), ("A", "a")),
    )
    assert read_parameters(write(tmp_path / "p", [])).labeled


@pytest.mark.parametrize(
    "line",
    ["delete_label TOP", "DELETE_LABEL", "EQ_LABEL ADVP", "LABELED yes", "CUTOFF_LEN -1"],
)
def test_a_line_that_is_no_parameter_is_named(tmp_path, line):
    path = write(tmp_path / "p", ["# mine", "", line])
    message = refusal(read_parameters, path)
    assert message.startswith(f"{path}: line 3: expected one of LABELED, CUTOFF_LEN, ")


def test_totals_are_over_all_brackets_and_leave_out_errors_and_skipped():
    results = [
        SentenceResult(VALID, 9, matched=3, gold=4, test=6, crossing=0, words=8, correct_tags=8),
        SentenceResult(VALID, 9, matched=5, gold=5, test=5, crossing=2, words=6, correct_tags=3),
        SentenceResult(VALID, 9, matched=0, gold=5, test=5, crossing=3, words=4, correct_tags=3),
        SentenceResult(VALID, 9, matched=4, gold=4, test=8, crossing=0, words=2, correct_tags=1),
        SentenceResult(ERROR, 9),
        SentenceResult(SKIPPED, 9),
        SentenceResult(SKIPPED, 9),
    ]
    assert summarize(results) == pytest.approx(
        {"sentences": 7, "errors": 1, "skipped": 2}
        | {"recall": 100 * 12 / 18, "precision": 100 * 12 / 24, "f1": 100 * 24 / 42}
        | {"complete_match": 25}  # the second; the last candidate has more
        | {"average_crossing": 5 / 4, "no_crossing": 50, "two_or_less_crossing": 75}
        | {"tagging_accuracy": 100 * 15 / 20}
    )
    nothing = summarize(results[4:6])
    assert (nothing["sentences"], nothing["errors"], nothing["skipped"]) == (2, 1, 1)
    assert nothing["f1"] == nothing["average_crossing"] == nothing["tagging_accuracy"] == 0.0


TAGS = st.sampled_from(("NN", ",", "POS", "-LRB-", "-NONE-"))
LEAVES = st.lists(st.tuples(TAGS, WORDS), min_size=1)


@given(LEAVES.flatmap(lambda leaves: st.tuples(trees(leaves), trees(leaves))))
def test_two_trees_over_the_same_words(pair):
    result, swapped = compare(*pair, COLLINS), compare(*pair[::-1], COLLINS)
    assert result.status == swapped.status
    assert (result.gold, result.test) == (swapped.test, swapped.gold)
    assert result.length == swapped.length and result.words == swapped.words
    assert result.crossing <= result.test
    deleted = {*pair[0].tags} <= {*COLLINS.delete_label}
    assert result.status == (SKIPPED if deleted else VALID)
    if not deleted:
        assert (result.matched, result.gold, result.test) == brackets_of(*pair)
        own = compare(pair[0], pair[0], COLLINS)  # all right
        assert own.matched == own.gold == own.test == swapped.test
        assert own.crossing == 0 and own.correct_tags == own.words == result.words


def brackets_of(*pair):
    """Brackets in both trees, and in each, by COLLINS.prm, as multisets of (label, kept words by
    their places)."""
    found = []
    for tree in pair:
        kept = [tag not in COLLINS.delete_label for tag in tree.tags]
        places = Counter()
        for label, start, end in tree.brackets:
            label = label.split("-")[0].split("=")[0].replace("PRT", "ADVP")
            words = tuple(place for place in range(start, end) if kept[place])
            places[label, words] += bool(words) and label != "TOP"
        found.append(places)
    gold, test = found
    return (gold & test).total(), gold.total(), test.total()


@pytest.mark.data
def test_the_sample_gives_evalbs_own_figures(data_sets):
    folder = data_sets / "wsj_sample"
    path = folder / "test.nbest.gz"
    gold = [tree for _, tree in read_trees(folder / "test.mrg")]
    lists = zip(gold, parse_lists(path, read_nbest(path)), strict=True)
    results = [[compare(right, tree, COLLINS) for _, tree in own] for right, own in lists]
    firsts = [own[0] for own in results]
    best = [max(own, key=lambda r: f1(r.matched, r.gold, r.test)) for own in results]
    for chosen, expected in ((firsts, 91.40), (best, 97.60)):
        summary = summarize(chosen)
        assert (summary["errors"], summary["skipped"]) == (0, 0)
        assert round(summary["f1"], 2) == expected
