import gzip

import pytest
import toy_trees
from fairseq.data import Dictionary

from fairseq_doc.preparation.pipeline import SPLITS
from fairseq_doc.preparation.symbols import WordSymbols, shape, symbols_of
from fairseq_doc.preparation.treebank import Treebank, prepare
from fairseq_doc.preparation.trees import parse_tree, read_trees

from .conftest import binarised, contents, lines_of, made, refusal_leaving, spoil

TRAIN = [
    "(TOP (S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (DT the) (NNP Rex)))))",
    "(TOP (S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (CD 3,500) (NNS Cats))))\n  )",
    "((S (NP (-LRB- -LRB-) (NN dog)) (VP (VBD left))))",
]
DEV = ["(S (NP (DT THE) (NN cat)) (VP (VBD running)))"]
TEST = ["(TOP (FRAG (NP (DT the) (NN dog)) (VP (VBD Saw))))"] * 2
KNOWN = {"the", "dog", "saw"}  # what occurs twice in training


@pytest.fixture
def trees(tmp_path):
    """A folder of a few trees by hand."""
    folder = tmp_path / "trees"
    folder.mkdir()
    for name, rows in (("train", TRAIN), ("dev", DEV), ("test", TEST)):
        toy_trees.write_trees(folder / f"{name}.mrg", rows)
    return folder


def prepared(trees, destination, threshold=2, **changes):
    """(what was reported, the folder)."""
    said, _ = made(prepare, Treebank(trees, threshold=threshold, **changes), destination)
    return said, destination


def text_of(data, split="train"):
    return lines_of(data / "text" / f"{split}.txt")


def words_of(data):
    """The dictionary's words, without brackets and fairseq's own four."""
    symbols = Dictionary.load(str(data / "dict.txt")).symbols[4:]
    return {symbol for symbol in symbols if symbol[0] not in "()"}


def test_what_was_read_and_made_is_counted(trees, tmp_path):
    said, data = prepared(trees, tmp_path / "bin")
    assert text_of(data) == [
        "(S (NP the dog )NP (VP saw (NP the <unk> )NP )VP )S",
        "(S (NP the dog )NP (VP saw (NP <unk> <unk> )NP )VP )S",
        "(S (NP <unk> dog )NP (VP <unk> )VP )S",
    ]
    assert text_of(data, "valid") == ["(S (NP the <unk> )NP (VP <unk> )VP )S"]
    assert text_of(data, "test") == ["(FRAG (NP the dog )NP (VP saw )VP )FRAG"] * 2
    assert said[::4] == [
        "train: 3 trees, 13 words",
        "train: 35 symbols, 5 of them of rare words",
        "train: 3 lines and 38 tokens binarised, 5 of them <unk>",
    ]
    assert said[3] == "3 of 8 words occur 2 times or more" and len(said) == 11
    assert said[7] == "dictionary: 13 types"  # 6 brackets, 3 words, fairseq's 4


def test_the_folder_holds_the_data_the_text_and_the_trees(trees, tmp_path):
    _, data = prepared(trees, tmp_path / "bin")
    assert {path.name for path in data.iterdir()} == {
        "dict.txt", "prepare.log", "SHA256SUMS", "text", "trees",
        *(f"{split}.{end}" for split in SPLITS for end in ("bin", "idx")),
    }  # fmt: skip
    dictionary = Dictionary.load(str(data / "dict.txt"))
    for split, rows in zip(SPLITS, (TRAIN, DEV, TEST), strict=True):
        text = text_of(data, split)
        outside = {word for line in text for word in line.split() if word not in dictionary}
        assert outside == ({"(FRAG", ")FRAG"} if split == "test" else set())
        seen = [" ".join("<unk>" if w in outside else w for w in line.split()) for line in text]
        assert binarised(data / split, data / "dict.txt") == seen
        written = [tree for _, tree in read_trees(data / "trees" / f"{split}.mrg")]
        assert written == [parse_tree(row, "") for row in rows]
    assert len(lines_of(data / "trees" / "train.mrg")) == 3  # a tree a line


def test_words_are_counted_in_lower_case_and_in_training_only(trees, tmp_path):
    rare = {"rex", "3,500", "cats", "-lrb-", "left"}
    for threshold, known in ((1, KNOWN | rare), (3, {"the", "dog"}), (4, set())):
        assert words_of(prepared(trees, tmp_path / f"{threshold}", threshold)[1]) == known


def test_rare_words_are_symbols_by_their_shape_where_asked(trees, tmp_path):
    _, data = prepared(trees, tmp_path / "bin", unknown="shape")
    assert text_of(data) == [
        f"(S (NP the dog )NP (VP saw (NP the {shape('Rex')} )NP )VP )S",
        f"(S (NP the dog )NP (VP saw (NP {shape('3,500')} {shape('Cats')} )NP )VP )S",
        f"(S (NP {shape('-LRB-')} dog )NP (VP {shape('left')} )VP )S",
    ]
    assert "<unk-capital-s>" in words_of(data)
    symbols = text_of(data, "valid")[0].split()
    assert (symbols[3], symbols[6]) == ("<unk>", "<unk-ing>")


def test_a_dictionarys_own_words_are_never_words_of_the_text(trees, tmp_path):
    rows = [f"(S (NN {word}) (VB x))" for word in ("<s>", "<pad>", "</s>", "<unk>", "</S>")]
    toy_trees.write_trees(trees / "train.mrg", rows)
    said, data = prepared(trees, tmp_path / "bin", 1, pairs=True)
    assert "1 of 5 words occur 1 times or more" in said  # </s> and </S> are one
    assert "train: 20 symbols, 5 of them of rare words" in said
    assert text_of(data) == ["(S <unk> x )S"] * 5
    assert words_of(data) == {"x"}


@pytest.mark.parametrize("blank", ["\u00a0", "\x1c", "\u2028"])
def test_a_word_with_a_blank_within_is_rare_however_often_it_occurs(blank, trees, tmp_path):
    """fairseq would cut it there."""
    rows = [f"(S (CD 3{blank}500) (NN dog))"] * 3
    toy_trees.write_trees(trees / "train.mrg", rows)
    said, data = prepared(trees, tmp_path / "bin", 1, pairs=True)
    assert text_of(data) == ["(S <unk> dog )S"] * 3
    assert lines_of(data / "trees" / "train.mrg") == rows
    assert "train: 12 symbols, 3 of them of rare words" in said
    assert any(line.startswith("pairs: train.words: 0 lines cleaned, 6 words, 3") for line in said)


RAW = [
    "( (S (NP-SBJ-1 (DT the) (NN dog)) (VP (VBD left) (S (NP (-NONE- *-1)) (VP=2 (VB run))))) )",
    "(S (NP (-NONE- *T*)) (VP (VBP stay)))",
]


def test_traces_and_function_tags_are_reported_and_removed_where_asked(trees, tmp_path):
    toy_trees.write_trees(trees / "train.mrg", RAW)
    said, data = prepared(trees, tmp_path / "kept", 1)
    found = "2 traces and 2 function tags"
    assert said[0].startswith(f"train: 2 trees, 7 words, {found} kept") and "--clean" in said[0]
    assert text_of(data)[0] == (
        "(S (NP-SBJ-1 the dog )NP-SBJ-1 (VP left (S (NP *-1 )NP (VP=2 run )VP=2 )S )VP )S"
    )
    said, data = prepared(trees, tmp_path / "clean", 1, clean=True)
    assert said[:2] == [f"train: 2 trees, 5 words, {found} removed", "valid: 1 trees, 3 words"]
    assert text_of(data) == [
        "(S (NP the dog )NP (VP left (S (VP run )VP )S )VP )S",
        "(S (VP stay )VP )S",
    ]
    assert lines_of(data / "trees" / "train.mrg")[1] == "(S (VP (VBP stay)))"


def test_files_are_found_by_patterns_in_their_order_and_of_their_names(tmp_path):
    folder = tmp_path / "wsj [v1]*"  # whose own name is no pattern
    names = [f"02/{name}.mrg" for name in "hbgcaf"]
    for name in (*names, "03/a.mrg", "21/d.mrg", "22/e.mrg", "23/f.mrg.gz"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        tree = f"(S (NN {path.name}))\n".encode()  # every tree names its file
        path.write_bytes(gzip.compress(tree, mtime=0) if name.endswith("gz") else tree)
    (folder / "02" / "z.mrg").mkdir()
    patterns = {"train": "21/*,0[2-9]/*.mrg", "valid": "22/*.mrg", "test": "23/f.mrg.gz"}
    said, data = prepared(folder, tmp_path / "bin", 1, **patterns)
    words = [[tree.words[0] for _, tree in read_trees(data / "trees" / f"{s}.mrg")] for s in SPLITS]
    assert words == [[f"{name}.mrg" for name in "dabcfgha"], ["e.mrg"], ["f.mrg.gz"]]
    assert said[0] == "train: 8 trees, 8 words"


@pytest.mark.parametrize("unknown", ["single", "shape"])
def test_pairs_are_sentences_with_their_symbols(trees, tmp_path, unknown):
    said, data = prepared(trees, tmp_path / "bin", pairs=True, unknown=unknown)
    word_symbol = WordSymbols(KNOWN, unknown == "shape")
    sides = {
        s: Dictionary.load(str(data / "pairs" / f"dict.{s}.txt")) for s in ("words", "symbols")
    }
    for split, rows in zip(SPLITS, (TRAIN, DEV, TEST), strict=True):
        read = [parse_tree(row, "") for row in rows]
        expected = {
            "words": [[word_symbol(word) for word in tree.words] for tree in read],
            "symbols": [symbols_of(tree, word_symbol) for tree in read],
        }
        for side, dictionary in sides.items():
            prefix = data / "pairs" / f"{split}.words-symbols.{side}"
            lines = binarised(prefix, data / "pairs" / f"dict.{side}.txt")
            assert [line.split() for line in lines] == [
                [word if word in dictionary else "<unk>" for word in row] for row in expected[side]
            ]
    assert "pairs: train: 3 pairs read from train, 3 kept" in said


def test_the_same_trees_give_the_same_files_and_pairs_change_no_other(trees, tmp_path):
    long = f"(S {' '.join('(NN dog)' for _ in range(400))})"
    toy_trees.write_trees(trees / "train.mrg", [*TRAIN, long, *toy_trees.sample_trees(20)])
    _, without = prepared(trees, tmp_path / "without", unknown="shape", clean=True)
    said, data = prepared(trees, tmp_path / "with", unknown="shape", clean=True, pairs=True)
    assert "pairs: train: 24 pairs read from train, 24 kept" in said
    found = contents(data)
    for name, content in contents(without).items():
        assert name == "prepare.log" or found[name] == content
    assert not (without / "pairs").exists() and (data / "pairs").exists()


@pytest.mark.parametrize(
    "damage, changes, facts",
    [
        ({}, {"train": "none.mrg"}, ["{trees}: expected files none.mrg, for --train"]),
        ({}, {"valid": "dev.mrg,none*.mrg"}, ["expected files none*.mrg, for --valid"]),
        ({}, {"test": "test.mrg,te*.mrg"}, ["test.mrg is given twice, by --test"]),
        ({}, {"test": "t*.mrg"}, ["train.mrg is given twice, by --train and --test"]),
        ({"dev.mrg": b"(S (-NONE- *))"}, {"clean": True}, ["dev.mrg: line 1: ", "only traces"]),
    ],
)
def test_bad_input_is_refused_and_nothing_is_left(trees, tmp_path, damage, changes, facts):
    spoil(trees, damage)
    message = refusal_leaving(tmp_path, prepared, trees, tmp_path / "bin", **changes)
    assert all(fact.format(trees=trees) in message for fact in facts)
