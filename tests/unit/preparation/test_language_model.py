import gzip
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from fairseq.data import Dictionary, data_utils
from hypothesis import assume, given
from hypothesis import strategies as st

from fairseq_doc.files import text_lines
from fairseq_doc.preparation.corpora import PUBLISHED, LanguageModelText, PublishedCounts
from fairseq_doc.preparation.language_model import bytes_of_splits, prepare, write_text
from fairseq_doc.preparation.pipeline import ONE_SIDE, SPLITS, Pipeline
from fairseq_doc.preparation.text_form import NAMES, WORDS, form_of
from fairseq_doc.preparation.tokenization import untokenised

from .conftest import (
    binarised,
    contents,
    lines_of,
    made,
    refusal_leaving,
    spoil,
    write,
    write_splits,
)

TEXT = {"train": ["a b  a\tc", "", "a <unk>", "b a"], "valid": ["a d"], "test": ["b", "c a"]}
DATA = {
    "dict.txt",
    "prepare.log",
    "raw_counts.json",
    "SHA256SUMS",
    *(f"{split}.{end}" for split in SPLITS for end in ("bin", "idx")),
}


@pytest.fixture
def text(tmp_path):
    return write_splits(tmp_path / "text", TEXT)


def prepared(text, destination, corpus="text", workers=1, **settings):
    """(what was reported, the files) of a preparation."""
    return made(prepare, LanguageModelText(corpus, text, **settings), destination, workers=workers)


def test_what_was_read_is_what_was_binarised(text, tmp_path):
    said, files = prepared(text, tmp_path / "x" / "bin")
    assert set(files) == DATA
    for split in SPLITS:
        seen = binarised(tmp_path / "x" / "bin" / split, tmp_path / "x" / "bin" / "dict.txt")
        assert [line.split() for line in seen] == [
            line.replace("d", "<unk>").split() for line in TEXT[split]
        ]
    assert said[:3] == [
        "dictionary: 7 types",  # a, b, c and fairseq's own four
        "train: 4 lines and 12 tokens binarised, 1 of them <unk>",
        "valid: 1 lines and 3 tokens binarised, 1 of them <unk>",
    ]
    assert prepared(text, tmp_path / "two", workers=2) == (said, files)
    assert lines_of(tmp_path / "two" / "dict.txt") == ["a 4", "b 2", "c 1"]
    prepared(text, tmp_path / "rare", threshold=2)
    assert lines_of(tmp_path / "rare" / "dict.txt") == ["a 4", "b 2"]


# With <unk> and the end mark
COUNTS = PublishedCounts({"train": 12, "valid": 3, "test": 5}, types=5)
OTHER_TEST = PublishedCounts({**COUNTS.tokens, "test": 6}, 5)


@pytest.mark.parametrize(
    "counts, settings, facts",
    [
        (OTHER_TEST, {}, ["test.txt", "expected 6 tokens", "got 5"]),
        (OTHER_TEST, {"unit": "byte"}, ["test.txt", "expected 6 tokens", "got 5"]),
        (PublishedCounts(COUNTS.tokens, 6), {}, ["expected 6 word types", "got 5"]),
    ],
)
def test_published_counts_are_checked(text, tmp_path, monkeypatch, counts, settings, facts):
    monkeypatch.setitem(PUBLISHED, "ptb", counts)
    message = refusal_leaving(tmp_path, prepared, text, tmp_path / "bin", "ptb", **settings)
    assert all(fact in message for fact in facts)


def test_published_types_of_a_text_without_unknown_words(text, tmp_path, monkeypatch):
    (text / "train.txt").write_text("a b\nb\n")
    tokens = {split: sum(len(line.split()) + 1 for line in TEXT[split]) for split in SPLITS}
    monkeypatch.setitem(PUBLISHED, "ptb", PublishedCounts({**tokens, "train": 5}, 3))
    prepared(text, tmp_path / "bin", "ptb")  # a, b and the end mark


@pytest.mark.parametrize(
    "content, settings, facts",
    [
        (b"", {}, ["test.txt", "got an empty file"]),
        (b"a\nb\xff", {}, ["test.txt: line 2 is not UTF-8"]),
        (b"a\n\n<s> b </s>\n", {}, ["{text}/test.txt: line 3 holds", "<s>"]),
        (b"a\tb@@ c\n", {"bpe": "subword_nmt"}, ["{text}/test.txt: line 1 holds", "@@"]),
        (b"a\n", {"bpe": "none", "merges": 9}, ["--merges 9", "--bpe none"]),
        (gzip.compress(b"a\n", mtime=0), {"unit": "byte"}, ["test.txt is compressed"]),
        (b"a\n", {"threshold": -1}, ["threshold", "got -1"]),
        (b"a\n", {"threshold": 99}, ["expected words that occur at least 99 times in training; got none"]),
        (b"a\n", {"split": "90,5,5"}, ["--split: expected the corpus text and a file"]),
        (b"a\n", {"corpus": "enwik8", "unit": "word"}, ["byte for enwik8"]),
        (b"a\n", {"corpus": "ptb", "tokenizer": "moses"}, ["--tokenizer and --bpe: expected words"]),
        (b"a\n", {"unit": "byte", "bpe": "subword_nmt"}, ["--tokenizer and --bpe: expected words"]),
    ],
)  # fmt: skip
def test_text_that_cannot_be_used_is_refused(text, tmp_path, content, settings, facts):
    spoil(text, {"test.txt": content})
    message = refusal_leaving(tmp_path, prepared, text, tmp_path / "bin", **settings)
    assert all(fact.format(text=text) in message for fact in facts)


def test_places_that_cannot_be_used_are_refused(text, tmp_path):
    for path, got in ((tmp_path / "no", "no such file or folder"), (text / "test.txt", "a file")):
        message = refusal_leaving(tmp_path, prepared, path, tmp_path / "bin", "ptb")
        assert message == f"{path}: expected a folder of train.txt, valid.txt, test.txt; got {got}"


def test_how_text_is_stored_changes_nothing(text, tmp_path):
    """fairseq would take a byte order mark for a part of the first word, which is then unknown."""
    expected = prepared(text, tmp_path / "plain")
    for split in SPLITS:
        content = (text / f"{split}.txt").read_bytes()
        (text / f"{split}.txt").write_bytes(b"\xef\xbb\xbf" + content)
    assert prepared(text, tmp_path / "marked") == expected
    (text / "valid.txt").write_bytes(gzip.compress((text / "valid.txt").read_bytes()))
    (text / "test.txt").write_bytes(b"b\r\nc a")  # Windows line ends, and none at the end
    folder = text.rename(tmp_path / "a,b")  # a comma separates fairseq's own prefixes
    assert prepared(folder, tmp_path / "packed") == expected


@pytest.mark.parametrize("form", ["ptb.{}.txt", "wiki.{}.tokens"])
def test_the_names_of_the_published_files_change_nothing(text, tmp_path, form):
    expected = prepared(text, tmp_path / "own")
    for split in SPLITS:
        (text / f"{split}.txt").rename(text / form.format(split))
    write(text / "train.txt", ["not", "complete"])
    assert prepared(text, tmp_path / "other") == expected


@pytest.mark.parametrize(
    "present, form, missing",
    [
        ([], "{}.txt", "no train.txt, no valid.txt, no test.txt"),
        (["train.txt", "ptb.train.txt", "ptb.test.txt"], "ptb.{}.txt", "no ptb.valid.txt"),
    ],
)
def test_all_missing_files_are_named_at_once(text, tmp_path, present, form, missing):
    for split in SPLITS:
        (text / f"{split}.txt").unlink()
    for name in present:
        write(text / name, ["x"])
    message = refusal_leaving(tmp_path, prepared, text, tmp_path / "bin")
    expected = ", ".join(map(form.format, SPLITS))
    assert message == f"expected {expected} in {text}; got {missing}"


def test_pydoc_text_is_kept_with_its_data(tmp_path):
    _, files = prepared(None, tmp_path / "bin", "pydoc")
    texts = {split: lines_of(tmp_path / "bin" / "text" / f"{split}.txt") for split in SPLITS}
    assert set(files) == {*DATA, "text", *(f"text/{split}.txt" for split in SPLITS)}
    lines = [line for split in SPLITS for line in texts[split]]
    assert len(lines) == len(set(lines)) > 1000
    assert all(line.replace("N", "n").islower() for line in lines)
    dictionary = Dictionary.load(str(tmp_path / "bin" / "dict.txt"))
    words = Counter(word for line in texts["train"] for word in line.split())
    known = {word for word, count in words.items() if count >= 2}
    assert known == set(dictionary.symbols[dictionary.nspecial :])
    data = tmp_path / "moses"
    prepared(None, data, "pydoc", tokenizer="moses", threshold=0)
    form = form_of(data)
    tokens = [" ".join(form.tokens(line)) for line in texts["train"]]
    assert binarised(data / "train", data / "dict.txt") == tokens


# Warnings


def warnings_of(said):
    return [line for line in said if line.startswith("warning: ")]


@pytest.mark.parametrize(
    "train, threshold, advised",
    [
        (["a b", "c a"], 0, "; --threshold 2 replaces words"),
        (["a a b", "a b c c"], 0, "; --threshold 3 replaces words"),  # 2 would change nothing
        (["a b c", "a b c", "x"], 2, None),
        (["a a b", "a b c c"], 2, "; --threshold 3 replaces words"),
        (["a <unk> c"], 0, None),
    ],
)
def test_unknown_words_never_trained_are_a_warning(text, tmp_path, train, threshold, advised):
    write(text / "train.txt", train)
    write(text / "test.txt", ["e d", "a"])
    said, _ = prepared(text, tmp_path / "bin", threshold=threshold)
    if advised is None:
        assert warnings_of(said) == []
        return
    unknown = [line.split()[-4] for line in said if line.endswith(" of them <unk>")]
    (warning,) = warnings_of(said)
    assert advised in warning
    assert f"occurs {unknown[1]} times in valid and {unknown[2]} in test, but never" in warning
    better = int(advised.split()[2])
    assert warnings_of(prepared(text, tmp_path / "better", threshold=better)[0]) == []


@pytest.mark.parametrize(
    "lines, counts",
    [
        (["Well, it is.", "Yes, and no ,"], "2 commas are attached to words, 1 separate"),
        (["well , it is .", "mr. smith , of corp. , 3,000 a.d."], None),
        (["a, b ,"], None),
        ([""], None),
    ],
)
def test_a_text_with_commas_at_words_looks_untokenised(lines, counts):
    warning = untokenised(lines)
    assert counts in warning if counts else warning is None


def test_untokenised_text_is_a_warning_and_its_remedy_works(text, tmp_path):
    write(text / "train.txt", ["Well, a.", "", "(b, c), d <unk>"])
    (warning,) = warnings_of(prepared(text, tmp_path / "raw")[0])
    assert warning.startswith("warning: train looks untokenised: 3 commas are attached to words")
    assert "--tokenizer moses separates them" in warning
    counts = PublishedCounts({"train": 9, "valid": 3, "test": 5}, types=7)
    for settings in ({"corpus": "ptb", "counts": counts}, {"unit": "byte"}):  # not looked at
        said, _ = prepared(text, tmp_path / str(len(settings)), **settings)
        assert "untokenised" not in "".join(said)
    said, _ = prepared(text, tmp_path / "bin", tokenizer="moses")
    assert "untokenised" not in "".join(said)
    words = binarised(tmp_path / "bin" / "train", tmp_path / "bin" / "dict.txt")
    assert words == ["Well , a .", "", "( b , c ) , d <unk>"]


# Bytes


def tokens(data, split):
    """The tokens of a split, line by line."""
    dictionary = Dictionary.load(str(data / "dict.txt"))
    lines = data_utils.load_indexed_dataset(str(data / split), dictionary)
    return [[dictionary[token] for token in line.tolist()] for line in lines]


def test_every_byte_is_a_token(tmp_path):
    for split, data in zip(SPLITS, (b"aab\n\na\xff", b"\xef\xbb\xbfa\r\n", b"b"), strict=True):
        (tmp_path / f"{split}.txt").write_bytes(data)
    said, files = prepared(tmp_path, tmp_path / "bin", unit="byte")
    assert set(files) == DATA
    assert lines_of(tmp_path / "bin" / "dict.txt") == ["<0x61> 3", "<0x62> 1", "<0xFF> 1"]
    a, b, end, unknown = "<0x61>", "<0x62>", "</s>", "<unk>"
    assert tokens(tmp_path / "bin", "train") == [[a, a, b, end], [end], [a, "<0xFF>"]]
    assert tokens(tmp_path / "bin", "valid") == [[unknown, unknown, unknown, a, unknown, end]]
    assert tokens(tmp_path / "bin", "test") == [[b]]
    assert said[:2] == ["8 distinct bytes", "dictionary: 7 types"] and len(said) == 8
    assert "valid: 1 lines and 6 bytes binarised, 4 of them <unk>" in said
    assert "valid: 1 lines, 1 words, 4 characters and 6 bytes as written" in said
    prepared(tmp_path, tmp_path / "rare", unit="byte", threshold=2)
    assert lines_of(tmp_path / "rare" / "dict.txt") == ["<0x61> 3"]


def test_the_files_are_those_that_fairseq_writes_for_the_names_of_the_bytes(tmp_path):
    rng, texts, named = np.random.default_rng(0), {}, {}
    for split in SPLITS:
        lines = rng.integers(0, 40, 500, dtype=np.uint8).tobytes().split(b"\n")
        texts[split] = [line.decode() for line in lines]
        named[split] = [" ".join(NAMES[byte] for byte in line) for line in lines]
    folder = write_splits(tmp_path / "bytes", texts)
    _, files = prepared(folder, tmp_path / "bin", unit="byte")
    (tmp_path / "fairseq").mkdir()
    named = write_splits(tmp_path / "named", named)
    Pipeline({ONE_SIDE: WORDS}).run(named, tmp_path / "fairseq", str)
    expected = contents(tmp_path / "fairseq")
    assert set(expected) == DATA - {"prepare.log", "raw_counts.json", "SHA256SUMS"}
    assert {name: files[name] for name in expected} == expected


@pytest.fixture
def whole(tmp_path):
    """One file of 20 bytes of 5 kinds, for splits of 12, 5 and 3 bytes."""
    path = tmp_path / "whole"
    path.write_bytes(b"ab\nabc\nabcab" + b"c\nabc" + b"\xc3c\n")
    return path


SPLIT = PublishedCounts({"train": 12, "valid": 5, "test": 3}, types=5)


def test_a_file_is_cut_into_its_splits(whole, tmp_path):
    said, files = prepared(whole, tmp_path / "bin", "enwik8", counts=SPLIT)
    assert set(files) == DATA and said[0] == "5 distinct bytes"
    names = {"a": "<0x61>", "b": "<0x62>", "c": "<0x63>", "\n": "</s>", "?": "<unk>"}
    for split, lines in (
        ("train", ["ab\n", "abc\n", "abcab"]),
        ("valid", ["c\n", "abc"]),
        ("test", ["?c\n"]),
    ):
        assert tokens(tmp_path / "bin", split) == [[names[c] for c in line] for line in lines]


@pytest.mark.parametrize(
    "content, facts",
    [
        (b"ab\n", ["the 20 bytes of enwik8; got 3", "text FILE --split 90,5,5 --unit byte"]),
        (b"ab\nabc\nabcabc\nabccc\n", ["expected 5 distinct bytes, as published; got 4"]),
    ],
)
def test_another_file_than_the_published_one_is_refused(whole, tmp_path, content, facts):
    whole.write_bytes(content)
    message = refusal_leaving(tmp_path, prepared, whole, tmp_path / "bin", "enwik8", counts=SPLIT)
    assert all(fact in message for fact in facts)


# One file, cut in three


@given(
    lines=st.lists(st.sampled_from(["", "a", "\u00e9 b", "c\r"]), min_size=3),
    first_two=st.tuples(st.integers(1, 49), st.integers(1, 49)),
    last_line_end=st.booleans(),
)
def test_the_parts_are_the_file_as_cut(tmp_path_factory, lines, first_two, last_line_end):
    split = (*map(float, first_two), 100.0 - sum(first_two))
    ends = [0, *(int(len(lines) * sum(split[:n]) / 100) for n in (1, 2)), len(lines)]
    assume(min(end - start for start, end in pairwise(ends)) > 0)
    folder = tmp_path_factory.mktemp("parts")
    path = folder / "all"
    lines[-1] = lines[-1] or "a"  # an empty line without a line feed is none
    path.write_bytes("\n".join([*lines, ""] if last_line_end else lines).encode())
    settings = LanguageModelText("ptb", path, split=",".join(map(str, split)))
    write_text(settings, {"ptb": path}, folder, pytest.fail)
    words = [list(text_lines(folder / f"{name}.txt")) for name in SPLITS]
    assert sum(words, []) == [line.removesuffix("\r") for line in lines]
    for part, share in zip(words, split, strict=True):
        assert abs(len(part) - len(lines) * share / 100) < 1
    of_bytes = [text.tobytes() for text in bytes_of_splits(settings, {"ptb": path}).values()]
    assert b"".join(of_bytes) == path.read_bytes()
    for part, kept in zip(words, of_bytes, strict=True):
        assert part == kept.decode().removesuffix("\n").replace("\r", "").split("\n")


LINES = list("abcdefghij")
PERCENTAGES = "--split: expected three percentages above 0 that sum to 100, such as 90,5,5; got"
NO_LINES = f"{{file}}: expected lines for each of {', '.join(SPLITS)}; got none for"


@pytest.mark.parametrize(
    "split, lines, problem",
    [
        ("60,30,10", [*LINES[:7], "<s> d", *LINES[8:]], "{file}: line 8 holds"),
        ("90,5,5", LINES, f"{NO_LINES} valid: it has 10 lines, and --split is 90,5,5"),
        (
            "90,9.5,0.5",
            ["a"],
            f"{NO_LINES} train, valid: it has 1 lines, and --split is 90,9.5,0.5",
        ),
        *(
            (split, LINES, f"{PERCENTAGES} {split!r}")
            for split in ("90,5", "90,5,4", "110,-5,-5", "nan,50,50", "90,x,5")
        ),
    ],
)
def test_what_cannot_be_cut_is_refused(tmp_path, split, lines, problem):
    file = write(tmp_path / "all.txt", lines)
    message = refusal_leaving(tmp_path, prepared, file, tmp_path / "bin", split=split)
    assert message.startswith(problem.format(file=file))


# Like an earlier folder


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"threshold": 2},
        {"unit": "byte"},
        {"tokenizer": "moses", "lang": "de"},
        {"bpe": "subword_nmt", "merges": 3},
        {"tokenizer": "moses", "bpe": "sentencepiece", "merges": 15},
    ],
    ids=str,
)
def test_like_an_earlier_folder(tmp_path, settings):
    """The same text gives the same data; another one its dictionary, form and <unk>s."""
    lines = ["abab, abba ab", "baab <unk> ba.", "abba, ab"] * 3
    text = write_splits(tmp_path / "old", dict.fromkeys(SPLITS, lines))
    first, same, other = (tmp_path / name for name in ("first", "same", "other"))
    _, files = prepared(text, first, **settings)
    said, again = prepared(text, same, like=first)
    names = [n for n in files if n.endswith((".bin", ".idx", ".txt", ".model", ".codes"))]
    assert names and all(again[name] == files[name] for name in names)
    assert form_of(same) == replace(form_of(first), model=form_of(same).model)
    folder = write_splits(tmp_path / "new", dict.fromkeys(SPLITS, ["ab zebra, ba"]))
    said, new = prepared(folder, other, like=same)
    assert new["dict.txt"] == files["dict.txt"]
    assert any("<unk>" in line for line in tokens(other, "train"))
    assert not any(line.startswith("warning: <unk>") for line in said)
    if units := [name for name in files if name.endswith((".model", ".codes"))]:
        (same / units[0]).write_bytes(b"changed")
        message = refusal_leaving(tmp_path, prepared, folder, tmp_path / "more", like=same)
        assert "damaged or was changed" in message


@pytest.mark.parametrize(
    "corpus, settings, problem",
    [
        ("ptb", {}, "--like: expected the corpus text or pydoc and none of .* got ptb"),
        ("text", {"threshold": 2, "bpe": "none"}, "got text --threshold --bpe"),
        ("text", {"like": "nowhere"}, "cannot read .*nowhere/dict.txt: No such file"),
    ],
)
def test_like_that_cannot_be(text, tmp_path, corpus, settings, problem):
    prepared(text, tmp_path / "first")
    settings = {"like": "first", **settings}
    settings["like"] = tmp_path / settings["like"]
    message = refusal_leaving(tmp_path, prepared, text, tmp_path / "bin", corpus, **settings)
    assert re.search(problem, message)
