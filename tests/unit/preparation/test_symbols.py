import pytest

from fairseq_doc.preparation.symbols import WordSymbols, shape, symbols_of

from ..parsing.conftest import read
from .conftest import dictionary_of

DOG = "(TOP (S (NP-SBJ (DT The) (NN Dog)) (VP (VBZ barks)) (-RRB- -RRB-)))"


@pytest.mark.parametrize("root", ["TOP", "S1", "ROOT", ""])
def test_symbols_are_brackets_with_labels_and_words_in_lower_case(root):
    known = WordSymbols({"the", "dog", "-rrb-"})
    symbols = symbols_of(read(DOG.replace("TOP", root)), known)
    assert symbols == "(S (NP-SBJ the dog )NP-SBJ (VP <unk> )VP -rrb- )S".split()


def test_a_root_that_is_another_is_written():
    assert symbols_of(read("(S (TOP (NN a)))"), str) == ["(S", "(TOP", "a", ")TOP", ")S"]
    assert symbols_of(read("(NN a)"), str) == ["a"]


SHAPES = {
    "": "dog iPhone sun alas!",
    "-capital": "Dog Émile",
    "-digit": "1990 b2b",
    "-hyphen": "co-op",
    "-dot": "a.k.a",
    "-ing": "going",
    "-ed": "asked unnoticed",  # an ending comes before the beginning
    "-ly": "likely",
    "-s": "dogs",
    "-est": "best",
    "-er": "taker",
    "-ion": "nation",
    "-ory": "memory",
    "-un": "undo",
    "-capital-un": "Unequal",  # and that before -al
    "-al": "legal",
    "-capital-digit-hyphen-dot": "Mr.A-3",
    "-capital-digit-hyphen-dot-s": "Non-U.S.-3s",
    "-capital-digit-hyphen-dot-ing": "X-1.ING",
}


@pytest.mark.parametrize(
    "word, symbol",
    [(word, f"<unk{end}>") for end, words in SHAPES.items() for word in words.split()],
)
def test_a_rare_word_is_known_by_its_shape(word, symbol):
    assert shape(word) == symbol
    assert WordSymbols(set(), shapes=True)(word) == symbol
    assert WordSymbols(set())(word) == "<unk>"
    assert WordSymbols({word.lower()}, shapes=True)(word) == word.lower()


@pytest.mark.parametrize("word", ["<s>", "<pad>", "</s>", "<unk>"])
def test_a_dictionarys_own_symbols_are_no_words(word):
    known = dictionary_of("dog")
    assert word in known and WordSymbols(known)(word.upper()) == "<unk>"
    assert WordSymbols(known, shapes=True)(word) == shape(word)


def test_a_dictionary_tells_how_its_text_was_made():
    plain = WordSymbols.of_dictionary(dictionary_of("(NP", ")NP", "dog", "<unknown>"))
    shaped = WordSymbols.of_dictionary(dictionary_of("(NP", ")NP", "dog", "<unk-ing>"))
    assert [plain(word) for word in ("DOG", "Cats", "(NP")] == ["dog", "<unk>", "<unk>"]
    assert [shaped(word) for word in ("DOG", "Cats")] == ["dog", "<unk-capital-s>"]
