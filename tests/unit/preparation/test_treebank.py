import gzip
import json
import math
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import toy_trees
from fairseq.data import Dictionary, data_utils
from fairseq.tasks.translation import load_langpair_dataset

from fairseq_doc.parsing.bracketing import Parameters
from fairseq_doc.parsing.nbest import read_nbest
from fairseq_doc.parsing.reranking import read_sentences
from fairseq_doc.preparation.symbols import WordSymbols, shape, symbols_of
from fairseq_doc.preparation.trees import parse_tree, read_trees

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import collect_parses  # noqa: E402
import parallel_text  # noqa: E402
import prepare_parsing  # noqa: E402

pytestmark = pytest.mark.usefixtures("logging_of_its_own")

SPLITS = ("train", "valid", "test")
TRAIN = [
    "(TOP (S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (DT the) (NNP Rex)))))",
    "(TOP (S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (CD 3,500) (NNS Cats))))\n  )",
    "((S (NP (-LRB- -LRB-) (NN dog)) (VP (VBD left))))",
]
DEV = ["(S (NP (DT THE) (NN cat)) (VP (VBD running)))"]
TEST = ["(TOP (FRAG (NP (DT the) (NN dog)) (VP (VBD Saw))))"] * 2


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    """What scripts/prepare_lm.sh leaves behind, without its processes; tests/integration runs it."""

    def run(command, **_):
        script, kind, text, data = map(str, command)
        assert script.endswith("/scripts/prepare_lm.sh") and kind == "text"
        arguments = [f"--{split}pref={text}/{split}.txt" for split in SPLITS]
        arguments += ["--only-source", "--padding-factor", "1", "--destdir", data]
        parallel_text._preprocess(arguments)
        (Path(data) / "prepare.log").write_text(f"prepare_lm: wrote {data}\n")
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(prepare_parsing, "subprocess", SimpleNamespace(run=run))


@pytest.fixture
def trees(tmp_path):
    """A folder of a few trees by hand."""
    folder = tmp_path / "trees"
    folder.mkdir()
    for name, rows in (("train", TRAIN), ("dev", DEV), ("test", TEST)):
        toy_trees.write_trees(folder / f"{name}.mrg", rows)
    return folder


def prepared(trees, destination, options, capsys):
    """(what was told, the folder)."""
    assert prepare_parsing.main([str(trees), str(destination), *options.split()]) == 0
    printed, told = capsys.readouterr()
    lines = printed.splitlines()
    assert told == "" and lines[-1] == f"prepare_parsing: wrote {destination}"
    assert not list(destination.parent.glob("*.part"))
    return [line.removeprefix("prepare_parsing: ") for line in lines[:-1]], destination


def refused(trees, destination, options, capsys):
    """The one line of a refusal, which leaves everything as it was."""
    before = contents(destination.parent)
    assert prepare_parsing.main([str(trees), str(destination), *options.split()]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and told.startswith("prepare_parsing: error: ")
    assert contents(destination.parent) == before
    return told


def contents(folder):
    return {
        str(path.relative_to(folder)): path.is_file() and path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def lines_of(path):
    return path.read_text("utf-8").split("\n")[:-1]  # splitlines would cut at separators too


def binarised(path, dictionary):
    """The sentences of a binarised file, as lines without their end marks."""
    sentences = list(data_utils.load_indexed_dataset(str(path), dictionary))
    assert all(sentence[-1] == dictionary.eos() for sentence in sentences)
    return [dictionary.string(sentence) for sentence in sentences]


# prepare_parsing


def test_symbols_are_of_every_tree_with_rare_words_unknown(trees, tmp_path, capsys):
    _, data = prepared(trees, tmp_path / "bin", "--threshold 2", capsys)
    assert lines_of(data / "text" / "train.txt") == [
        "(S (NP the dog )NP (VP saw (NP the <unk> )NP )VP )S",
        "(S (NP the dog )NP (VP saw (NP <unk> <unk> )NP )VP )S",
        "(S (NP <unk> dog )NP (VP <unk> )VP )S",
    ]
    assert lines_of(data / "text" / "valid.txt") == ["(S (NP the <unk> )NP (VP <unk> )VP )S"]
    assert lines_of(data / "text" / "test.txt") == ["(FRAG (NP the dog )NP (VP saw )VP )FRAG"] * 2


def test_what_was_read_and_made_is_counted(trees, tmp_path, capsys):
    said, data = prepared(trees, tmp_path / "bin", "--threshold 2", capsys)
    assert said == [
        "train: 3 trees, 13 words",
        "valid: 1 trees, 3 words",
        "test: 2 trees, 6 words",
        "3 of 8 words occur 2 times or more",
        "train: 35 symbols, 5 of them of rare words",
        "valid: 9 symbols, 2 of them of rare words",
        "test: 18 symbols, 0 of them of rare words",
        "dictionary: 13 types",  # 6 brackets, 3 words, fairseq's 4
    ]
    assert lines_of(data / "prepare.log") == said


def test_the_folder_holds_the_data_the_text_and_the_trees(trees, tmp_path, capsys):
    _, data = prepared(trees, tmp_path / "bin", "--threshold 2", capsys)
    assert {path.name for path in data.iterdir()} == {
        "dict.txt", "prepare.log", "text", "trees", *(f"{s}.{e}" for s in SPLITS for e in ("bin", "idx"))
    }  # fmt: skip
    dictionary = Dictionary.load(str(data / "dict.txt"))
    for split, rows in zip(SPLITS, (TRAIN, DEV, TEST), strict=True):
        text = lines_of(data / "text" / f"{split}.txt")
        outside = {word for line in text for word in line.split() if word not in dictionary}
        assert outside == ({"(FRAG", ")FRAG"} if split == "test" else set())
        seen = [" ".join("<unk>" if w in outside else w for w in line.split()) for line in text]
        assert binarised(data / split, dictionary) == seen
        written = [tree for _, tree in read_trees(data / "trees" / f"{split}.mrg")]
        assert written == [parse_tree(row, "") for row in rows]
    assert len(lines_of(data / "trees" / "train.mrg")) == 3  # a tree a line


def test_the_dictionary_counts_the_symbols_of_the_training_trees(trees, tmp_path, capsys):
    _, data = prepared(trees, tmp_path / "bin", "--threshold 3", capsys)
    words = Counter(" ".join(lines_of(data / "text" / "train.txt")).split())
    counts = dict(line.rsplit(" ", 1) for line in lines_of(data / "dict.txt"))
    assert {w: int(n) for w, n in counts.items()} == {
        w: n for w, n in words.items() if w != "<unk>"
    }


@pytest.mark.parametrize(
    "threshold, known",
    [
        (1, {"the", "dog", "saw", "rex", "3,500", "cats", "-lrb-", "left"}),
        (2, {"the", "dog", "saw"}),
    ]
    + [(3, {"the", "dog"}), (4, set())],
)
def test_words_are_counted_in_lower_case_and_in_the_training_trees_alone(
    trees, tmp_path, threshold, known, capsys
):
    _, data = prepared(trees, tmp_path / "bin", f"--threshold {threshold}", capsys)
    symbols = Dictionary.load(str(data / "dict.txt")).symbols[4:]
    assert {symbol for symbol in symbols if symbol[0] not in "()"} == known


def test_the_threshold_is_ten_where_nothing_is_told(trees, tmp_path, capsys):
    words = ["nine"] * 9 + ["ten"] * 5 + ["Ten"] * 5
    rows = [f"(S (NN {word}) (VB x))" for word in words]
    toy_trees.write_trees(trees / "train.mrg", rows)
    said, data = prepared(trees, tmp_path / "bin", "", capsys)
    assert "2 of 3 words occur 10 times or more" in said
    text = lines_of(data / "text" / "train.txt")
    assert text == ["(S <unk> x )S"] * 9 + ["(S ten x )S"] * 10


def test_rare_words_are_symbols_by_their_shape_where_asked(trees, tmp_path, capsys):
    _, data = prepared(trees, tmp_path / "bin", "--threshold 2 --unknown shape", capsys)
    assert lines_of(data / "text" / "train.txt") == [
        f"(S (NP the dog )NP (VP saw (NP the {shape('Rex')} )NP )VP )S",
        f"(S (NP the dog )NP (VP saw (NP {shape('3,500')} {shape('Cats')} )NP )VP )S",
        f"(S (NP {shape('-LRB-')} dog )NP (VP {shape('left')} )VP )S",
    ]
    assert "<unk-capital-s>" in Dictionary.load(str(data / "dict.txt"))
    assert lines_of(data / "text" / "valid.txt")[0].split()[3] == "<unk>"
    assert lines_of(data / "text" / "valid.txt")[0].split()[6] == "<unk-ing>"


def test_a_dictionarys_own_words_are_never_words_of_the_text(trees, tmp_path, capsys):
    rows = [f"(S (NN {word}) (VB x))" for word in ("<s>", "<pad>", "</s>", "<unk>", "</S>")]
    toy_trees.write_trees(trees / "train.mrg", rows)
    said, data = prepared(trees, tmp_path / "bin", "--threshold 1 --pairs", capsys)
    assert "1 of 5 words occur 1 times or more" in said  # </s> and </S> are one
    assert "train: 20 symbols, 5 of them of rare words" in said
    assert lines_of(data / "text" / "train.txt") == ["(S <unk> x )S"] * 5
    assert {s for s in Dictionary.load(str(data / "dict.txt")).symbols[4:]} == {"(S", ")S", "x"}


@pytest.mark.parametrize("blank", ["\u00a0", "\x1c", "\u2028"])
def test_a_word_with_a_blank_within_is_rare_however_often_it_occurs(blank, trees, tmp_path, capsys):
    """fairseq would cut it there."""
    rows = [f"(S (CD 3{blank}500) (NN dog))"] * 3
    toy_trees.write_trees(trees / "train.mrg", rows)
    said, data = prepared(trees, tmp_path / "bin", "--threshold 1 --pairs", capsys)
    assert lines_of(data / "text" / "train.txt") == ["(S <unk> dog )S"] * 3
    assert lines_of(data / "trees" / "train.mrg") == rows
    assert "train: 12 symbols, 3 of them of rare words" in said
    assert "pairs: train.words: 0 lines cleaned, 6 words, 3 of them <unk> in the text" in said


RAW = [
    "( (S (NP-SBJ-1 (DT the) (NN dog)) (VP (VBD left) (S (NP (-NONE- *-1)) (VP=2 (VB run))))) )",
    "(S (NP (-NONE- *T*)) (VP (VBP stay)))",
]


def test_traces_and_function_tags_are_kept_and_told_unless_cleaned(trees, tmp_path, capsys):
    toy_trees.write_trees(trees / "train.mrg", RAW)
    said, data = prepared(trees, tmp_path / "kept", "--threshold 1", capsys)
    found = "2 traces and 2 function tags"
    assert said[0] == f"train: 2 trees, 7 words, {found} kept; --clean removes them"
    assert lines_of(data / "text" / "train.txt")[0] == (
        "(S (NP-SBJ-1 the dog )NP-SBJ-1 (VP left (S (NP *-1 )NP (VP=2 run )VP=2 )S )VP )S"
    )
    said, data = prepared(trees, tmp_path / "clean", "--threshold 1 --clean", capsys)
    assert said[0] == f"train: 2 trees, 5 words, {found} removed"
    assert said[1] == "valid: 1 trees, 3 words"
    assert lines_of(data / "text" / "train.txt") == [
        "(S (NP the dog )NP (VP left (S (VP run )VP )S )VP )S",
        "(S (VP stay )VP )S",
    ]
    assert lines_of(data / "trees" / "train.mrg")[1] == "(S (VP (VBP stay)))"


def test_a_tree_of_nothing_but_traces_is_named(trees, tmp_path, capsys):
    toy_trees.write_trees(trees / "dev.mrg", [DEV[0], "(S (NP (-NONE- *)))"])
    told = refused(trees, tmp_path / "bin", "--clean", capsys)
    assert "dev.mrg: line 2: a tree of nothing but traces" in told
    prepared(trees, tmp_path / "bin", "", capsys)


def sections(folder, *names):
    """A treebank in folders; every tree tells its file."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = f"(S (NN {name.split('/')[-1]}))\n".encode()
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)


def test_files_are_found_by_patterns_in_their_order_and_of_their_names(tmp_path, capsys):
    folder = tmp_path / "wsj"
    sections(folder, *(f"02/{name}.mrg" for name in "hbgcaf"))
    sections(folder, "03/a.mrg", "21/d.mrg", "22/e.mrg", "23/f.mrg.gz")
    (folder / "02" / "z.mrg").mkdir()
    patterns = "--train 21/*,0[2-9]/*.mrg --valid 22/*.mrg --test 23/f.mrg.gz --threshold 1"
    said, data = prepared(folder, tmp_path / "bin", patterns, capsys)
    words = [[tree.words[0] for _, tree in read_trees(data / "trees" / f"{s}.mrg")] for s in SPLITS]
    assert words == [[f"{name}.mrg" for name in "dabcfgha"], ["e.mrg"], ["f.mrg.gz"]]
    assert said[0] == "train: 8 trees, 8 words"


@pytest.mark.parametrize("unknown", ["single", "shape"])
def test_pairs_are_sentences_with_their_symbols(trees, tmp_path, unknown, capsys):
    options = f"--threshold 2 --pairs --unknown {unknown}"
    said, data = prepared(trees, tmp_path / "bin", options, capsys)
    sides = [Dictionary.load(str(data / "pairs" / f"dict.{s}.txt")) for s in ("words", "symbols")]
    for split, rows in zip(SPLITS, (TRAIN, DEV, TEST), strict=True):
        path = data / "pairs" / f"{split}.words-symbols"
        sources, targets = (
            binarised(f"{path}.{side}", dictionary)
            for side, dictionary in zip(("words", "symbols"), sides, strict=True)
        )
        known = {"the", "dog", "saw"}
        word_symbol = WordSymbols(known, unknown == "shape")
        trees_ = [parse_tree(row, "") for row in rows]
        own = [[word_symbol(word) for word in tree.words] for tree in trees_]
        symbols = [symbols_of(tree, word_symbol) for tree in trees_]
        for found, expected, dictionary in ((sources, own, sides[0]), (targets, symbols, sides[1])):
            assert [line.split() for line in found] == [
                [word if word in dictionary else "<unk>" for word in row] for row in expected
            ]
        read = load_langpair_dataset(
            str(data / "pairs"), split, "words", sides[0], "symbols", sides[1], combine=False,
            dataset_impl=None, upsample_primary=1, left_pad_source=True, left_pad_target=False,
            max_source_positions=1000, max_target_positions=1000,
        )  # fmt: skip
        assert len(read) == len(rows)
    assert "pairs: train: 3 pairs read from train, 3 kept" in said
    assert not (data / "sentences").exists()


def test_without_pairs_there_are_none_and_the_rest_is_the_same(trees, tmp_path, capsys):
    _, without = prepared(trees, tmp_path / "without", "--threshold 2", capsys)
    _, with_pairs = prepared(trees, tmp_path / "with", "--threshold 2 --pairs", capsys)
    found = contents(with_pairs)
    for name, data in contents(without).items():
        assert name == "prepare.log" or found[name] == data
    assert not (without / "pairs").exists()


def test_long_sentences_are_in_the_pairs_too(trees, tmp_path, capsys):
    words = " ".join("(NN dog)" for _ in range(400))
    toy_trees.write_trees(trees / "train.mrg", [*TRAIN, f"(S {words})"])
    said, data = prepared(trees, tmp_path / "bin", "--threshold 2 --pairs", capsys)
    assert "pairs: train: 4 pairs read from train, 4 kept" in said


@pytest.mark.parametrize("options", ["--pairs", "--unknown shape --clean"])
def test_the_same_trees_give_the_same_files(trees, tmp_path, options, capsys):
    toy_trees.write_trees(trees / "train.mrg", [*TRAIN, *toy_trees.sample_trees(20)])
    said, first = prepared(trees, tmp_path / "one", options, capsys)
    again, second = prepared(trees, tmp_path / "two", options, capsys)
    assert said == again and contents(first) == contents(second)


def test_an_unfinished_preparation_is_begun_again(trees, tmp_path, capsys):
    _, expected = prepared(trees, tmp_path / "whole", "--pairs", capsys)
    (tmp_path / "bin.part" / "text").mkdir(parents=True)
    (tmp_path / "bin.part" / "text" / "train.txt").write_text("half")
    _, data = prepared(trees, tmp_path / "bin", "--pairs", capsys)
    assert contents(data) == contents(expected)


def test_without_a_destination_it_is_in_data_bin(trees, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(prepare_parsing, "ROOT", tmp_path)
    monkeypatch.chdir(trees)
    assert prepare_parsing.main(["."]) == 0
    assert capsys.readouterr().out.endswith(f"wrote {tmp_path / 'data-bin' / 'trees'}\n")
    assert (tmp_path / "data-bin" / "trees" / "dict.txt").is_file()


def test_a_destination_that_exists_stays_as_it_is(trees, tmp_path, capsys):
    for make in (Path.mkdir, lambda path: path.write_text("mine")):
        make(tmp_path / "bin")
        told = refused(trees, tmp_path / "bin", "", capsys)
        assert "bin exists; remove it, or name another folder" in told
        shutil.rmtree(tmp_path / "bin", ignore_errors=True)


@pytest.mark.parametrize(
    "damage, options, told",
    [
        ({}, "--threshold 0", "--threshold must be at least 1; got 0"),
        ({}, "--train none.mrg", "expected files none.mrg, for --train; got none"),
        ({}, "--valid dev.mrg,none*.mrg", "expected files none*.mrg, for --valid; got none"),
        ({}, "--test *.mrg,test.mrg", "--test *.mrg,test.mrg: a file fits two of the patterns"),
        (
            {},
            "--test t*.mrg",
            "train.mrg: expected other files for every split; got it for --train",
        ),
        ({"dev": None}, "", "expected files dev.mrg, for --valid; got none"),
        ({"dev": ""}, "", "dev.mrg: expected trees in brackets; got an empty file"),
        (
            {"test": "(S (NN a))\n(S (NN b)"},
            "",
            "test.mrg: line 2: the tree that begins here is not",
        ),
        ({"test": "(S (NN a))\n(S (NN))"}, "", "test.mrg: line 2: "),
        ({"test": "(S (NN a))\n(S b)\n(S (VP (NN b) c))"}, "", "test.mrg: line 3: "),
        ({"test": "(())\n"}, "", "test.mrg: line 1: "),
        ({"test": "S (NN a)\n"}, "", "test.mrg: line 1: "),
        ({"train": "(S (NN a)))\n"}, "--pairs", "train.mrg: line 1: "),
    ],
)
def test_bad_input_is_refused_and_nothing_is_left(trees, tmp_path, damage, options, told, capsys):
    for name, text in damage.items():
        (trees / f"{name}.mrg").unlink()
        if text is not None:
            (trees / f"{name}.mrg").write_text(text)
    assert told in refused(trees, tmp_path / "bin", options, capsys)


def test_a_missing_folder_is_named(tmp_path, capsys):
    told = refused(tmp_path / "none", tmp_path / "bin", "", capsys)
    assert f"{tmp_path / 'none'}: expected files train.mrg" in told


def test_what_prepare_lm_refuses_is_told_and_nothing_is_left(trees, tmp_path, monkeypatch, capsys):
    failed = SimpleNamespace(returncode=1, stderr="prepare_lm: fairseq-preprocess failed\n")
    monkeypatch.setattr(prepare_parsing.subprocess, "run", lambda *_, **__: failed)
    told = refused(trees, tmp_path / "bin", "--pairs", capsys)
    assert told == "prepare_parsing: error: prepare_lm: fairseq-preprocess failed\n"


def test_an_interrupt_has_its_own_status_and_leaves_nothing(trees, tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    before = contents(tmp_path)
    monkeypatch.setattr(prepare_parsing.subprocess, "run", interrupted)
    assert prepare_parsing.main([str(trees), str(tmp_path / "bin")]) == 130
    assert contents(tmp_path) == before


def test_every_option_has_a_help():
    for parser in (prepare_parsing.make_parser(), collect_parses.make_parser()):
        assert all(action.help for action in parser._actions)


# collect_parses

SENTENCES = [
    "(TOP (S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (NNP Rex)))))",
    "(TOP (S (NP (NNS Cats)) (VP (VBP run))))",
    "(TOP (FRAG (NP (NN end))))",
]
SOURCES = ["the dog saw <unk>", "cats run", "end"]
OUTPUTS = [
    [
        (-1.75, "(S (NP the dog )NP (VP saw (NP <unk> )NP )VP )S"),  # as it should be
        (-2.0, "(S (NP the dog )NP (VP saw (NP <unk> )NP )VP"),  # open
        (-3.0, "(S (NP the dog )NP (VP saw )VP )S"),  # a word too few
    ],
    [
        (-2.5, "(S (NP run )NP (VP cats )VP )S"),  # other words
        (-4.0, "(S (NP cats )VP (VP run )VP )S"),  # closed by another label
        (-5.0, "(S (NP cats run )NP )S"),
    ],
    [(-0.125, "(S )S"), (-9.0, "(S end end )S"), (-10.0, "")],  # no word, too many, nothing
]
EXPECTED = [
    [(-1.75, SENTENCES[0]), (-2.0, SENTENCES[0])],
    [
        (-2.5, SENTENCES[1]),
        (-4.0, SENTENCES[1]),
        (-5.0, "(TOP (S (NP (NNS Cats) (VBP run))))"),
    ],
    [(0.0, "(TOP (S (NN end)))")],
]
COUNTS = {
    "sentences": 3,
    "outputs": 9,
    "flat_trees": 1,
    "well_formed": 2,
    "repaired": 3,
    "dropped": 4,
    "first_well_formed": 1,
    "first_repaired": 1,
    "first_dropped": 1,
}


def generated(outputs=OUTPUTS, sources=SOURCES):
    """fairseq-generate's output of log P in base 2, the last sentence first, as batches by length have
    it; H- and D- lines tell a mean."""
    lines = ["2024-05-01 10:00:10 | INFO | fairseq_cli.generate | loading model(s)"]
    for number in reversed(range(len(sources))):
        lines += [f"S-{number}\t{sources[number]}", f"T-{number}\tx y"]
        for score, symbols in outputs[number]:
            length = len(symbols.split()) + 1
            parts = [score / 4, score * 3 / 4, *[0.0] * length] if length > 1 else [score]
            lines += [f"{kind}-{number}\t{score / length}\t{symbols}" for kind in "HD"]
            lines.append(f"P-{number}\t{' '.join(f'{part:.4f}' for part in parts[:length])}")
    lines.append("Generate test with beam=3: BLEU4 = 0.00, 0/0/0/0")
    return "".join(f"{line}\n" for line in lines)


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A folder to work in, with a generator's output and the trees of its sentences."""
    (tmp_path / "out").write_text(generated())
    toy_trees.write_trees(tmp_path / "gold", SENTENCES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def collect(*options):
    return collect_parses.main(["out", "--sentences", "gold", "--output", "nbest", *options])


def test_outputs_become_lists_of_trees_over_the_sentences_words_and_tags(work, capsys):
    assert collect("--json") == 0
    assert json.loads(capsys.readouterr().out) == COUNTS
    found = [[(c.score, c.text) for c in row] for row in read_nbest("nbest")]
    assert found == [
        [(pytest.approx(score * math.log(2)), text) for score, text in row] for row in EXPECTED
    ]
    assert not list(work.glob("*.part"))


def test_the_text_tells_what_became_of_the_outputs(work, capsys):
    assert collect() == 0
    assert capsys.readouterr() == (
        "3 sentences, 9 outputs: 2 well-formed (22.2%), 3 repaired (33.3%), 4 dropped (44.4%); "
        "first outputs: 1 well-formed (33.3%), 1 repaired (33.3%), 1 dropped (33.3%); 1 sentences have "
        "nothing but a flat tree\n",
        "",
    )


def test_a_parser_that_makes_no_error_gives_the_trees_themselves(work, capsys):
    rows = toy_trees.sample_trees(30, seed=5)
    trees = [parse_tree(row, "") for row in rows]
    word_symbol = WordSymbols({"the", "dog", "saw", "with", "of"})
    sources = [" ".join(map(word_symbol, tree.words)) for tree in trees]
    outputs = [[(-1.0, " ".join(symbols_of(tree, word_symbol)))] for tree in trees]
    (work / "out").write_text(generated(outputs, sources))
    toy_trees.write_trees(work / "gold", rows)
    assert collect("--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["well_formed"], told["repaired"], told["dropped"]) == (30, 0, 0)
    assert [c.text for (c,) in read_nbest("nbest")] == rows


def test_the_lists_can_be_reranked(work, trees, tmp_path, capsys):
    assert collect() == 0
    capsys.readouterr()
    _, data = prepared(trees, tmp_path / "bin", "--threshold 2", capsys)
    gold = [parse_tree(row, "") for row in SENTENCES]
    sentences = read_sentences(
        "nbest", Dictionary.load(str(data / "dict.txt")), gold=gold, parameters=Parameters()
    )
    assert [s.candidates for s in sentences] == [2, 3, 1]
    assert [len(s.lines) for s in sentences] == [1, 2, 1]  # equal trees are one
    assert [s.counts[0].tolist() for s in sentences] == [[4, 4, 4], [3, 3, 3], [0, 2, 1]]


def test_a_collection_that_exists_is_replaced_only_where_asked(work, capsys):
    (work / "nbest").write_text("precious")
    assert collect() == 1
    assert (
        "nbest exists; remove it, name another file, or give --overwrite" in capsys.readouterr().err
    )
    assert (work / "nbest").read_text() == "precious"
    assert collect("--overwrite") == 0
    assert len(list(read_nbest("nbest"))) == 3


def without(text, *starts):
    return "".join(f"{line}\n" for line in text.splitlines() if not line.startswith(starts))


LACKING = "out: expected fairseq-generate's output, with S-, H- and P- lines"
DAMAGED = "out: line {} is damaged; generate again"


@pytest.mark.parametrize(
    "change, problem",
    [
        (lambda text: "", LACKING),
        (lambda text: "S", LACKING),
        (lambda text: without(text, "S-1"), LACKING),
        (lambda text: without(text, "S-2", "T-2"), LACKING),
        (lambda text: without(text, "H-0", "P-0"), LACKING),
        (lambda text: without(text, "P-"), DAMAGED.format(6)),
        (lambda text: without(text, "H-2"), DAMAGED.format(5)),
        (lambda text: text.replace("P-2\t-0.0312", "P-2\tx"), DAMAGED.format(6)),
        (lambda text: text.replace("P-2\t-0.0312", "P-2\t-inf"), DAMAGED.format(6)),
        (lambda text: text.replace("P-2\t-0.0312 ", "P-2\t"), DAMAGED.format(6)),
        (lambda text: text.replace("P-2\t-0.0312", "P-1\t-0.0312"), DAMAGED.format(6)),
        (lambda text: text[: text.rindex("P-0")], "out is cut off"),
        (lambda text: text + text, "is there twice; expected the output of one run"),
        (lambda text: text.replace("S-1\tcats", "S-1\tsome cats"), "expected 2 words, as its tree has"),
        (lambda text: re.sub(r"(?m)^.-2\t.*\n", "", text), "out: expected outputs of 3 sentences; got 2"),
        (None, "cannot read out: No such file"),
    ],
)  # fmt: skip
def test_outputs_that_cannot_be_used_are_refused_and_nothing_is_left(work, change, problem, capsys):
    if change is None:
        (work / "out").unlink()
    else:
        (work / "out").write_text(change(generated()))
    before = contents(work)
    assert collect("--json") == 1
    printed, told = capsys.readouterr()
    assert printed == "" and told.startswith("collect_parses: error: ") and told.count("\n") == 1
    assert problem in told
    assert contents(work) == before


@pytest.mark.parametrize(
    "trees, problem",
    [
        (None, "cannot read gold: No such file"),
        ("", "gold: expected trees in brackets; got an empty file"),
        ("(S (NN a)\n", "gold: line 1: the tree that begins here is not closed"),
        (f"{SENTENCES[0]}\n", "out: expected outputs of 1 sentences; got 3"),
        ("\n".join([*SENTENCES, SENTENCES[0]]), "out: expected outputs of 4 sentences; got 3"),
        ("\n".join(SENTENCES[::-1]), "out: sentence 0: expected 1 words, as its tree has; got 4"),
    ],
)
def test_sentences_that_cannot_be_used_are_refused_and_nothing_is_left(
    work, trees, problem, capsys
):
    (work / "gold").unlink()
    if trees is not None:
        (work / "gold").write_text(trees)
    before = contents(work)
    assert collect() == 1
    printed, told = capsys.readouterr()
    assert printed == "" and told.startswith("collect_parses: error: ") and told.count("\n") == 1
    assert problem in told
    assert contents(work) == before
