import gzip
import os
from collections import Counter

import conftest
import numpy as np
import pytest
from fairseq.data import Dictionary, data_utils
from hypothesis import assume, given
from hypothesis import strategies as st

from fairseq_doc.files import text_lines
from fairseq_doc.preparation import language_model
from fairseq_doc.preparation.byte_tokens import NAMES
from fairseq_doc.preparation.language_model import (
    PUBLISHED,
    SPLITS,
    Counts,
    Settings,
    bytes_of_parts,
    cut_file,
    cut_text,
    prepare,
    share_lines,
    untokenised,
)

from .conftest import binarised, contents, interrupting, lines_of, refusal, write

TEXT = {"train": ["a b  a\tc", "", "a <unk>", "b a"], "valid": ["a d"], "test": ["b", "c a"]}
DATA = {
    "dict.txt",
    "prepare.log",
    "SHA256SUMS",
    *(f"{split}.{end}" for split in SPLITS for end in ("bin", "idx")),
}


@pytest.fixture
def text(tmp_path):
    """A folder of text."""
    folder = tmp_path / "text"
    folder.mkdir()
    for split, lines in TEXT.items():
        write(folder / f"{split}.txt", lines)
    return folder


def prepared(text, destination, corpus="text", threshold=0, workers=1, **settings):
    """(what was reported, the files) of a preparation."""
    said = []
    prepare(Settings(corpus, text, threshold, **settings), destination, workers, said.append)
    assert not list(destination.parent.glob("*.part"))
    return said, contents(destination)


def test_what_was_read_is_what_was_binarised(text, tmp_path):
    said, files = prepared(text, tmp_path / "bin")
    assert set(files) == DATA
    for split in SPLITS:
        seen = binarised(tmp_path / "bin" / split, tmp_path / "bin" / "dict.txt")
        assert [line.split() for line in seen] == [
            line.replace("d", "<unk>").split() for line in TEXT[split]
        ]
    assert said == files["prepare.log"].decode().splitlines()
    assert said[:3] == [f"{s}: {n} tokens with one end mark a line" for s, n in
                        (("train", 12), ("valid", 3), ("test", 5))]  # fmt: skip
    assert "dictionary: 7 types" in said  # a, b, c and fairseq's own four
    assert any("valid: 1 lines and 3 tokens" in line and "1 of them <unk>" in line for line in said)


def test_the_dictionary_is_in_order_of_frequency_without_padding(text, tmp_path):
    prepared(text, tmp_path / "bin")
    assert lines_of(tmp_path / "bin" / "dict.txt") == ["a 4", "b 2", "c 1"]
    prepared(text, tmp_path / "rare", threshold=2)
    assert lines_of(tmp_path / "rare" / "dict.txt") == ["a 4", "b 2"]


def test_the_result_is_the_same_for_any_number_of_processes(text, tmp_path):
    assert prepared(text, tmp_path / "one") == prepared(text, tmp_path / "two", workers=2)


def test_an_interrupted_preparation_goes_on_to_the_same_result(text, tmp_path, monkeypatch):
    expected = prepared(text, tmp_path / "whole")
    stage = interrupting(language_model.binarise)
    monkeypatch.setattr(language_model, "binarise", lambda text, folder, *_: stage(text, folder))
    with pytest.raises(KeyboardInterrupt):
        prepared(text, tmp_path / "bin")
    assert not (tmp_path / "bin").exists()
    monkeypatch.undo()
    said, files = prepared(text, tmp_path / "bin")
    assert said == ["text: done before", *expected[0]] and files == expected[1]


COUNTS = Counts({"train": 12, "valid": 3, "test": 5}, types=5)  # with <unk> and the end mark


@pytest.mark.parametrize(
    "counts, facts",
    [
        (COUNTS, None),
        (Counts({**COUNTS.tokens, "test": 6}, 5), ["test.txt", "expected 6 tokens", "got 5"]),
        (Counts(COUNTS.tokens, 6), ["expected 6 word types", "got 5"]),
    ],
)
def test_published_counts_are_checked(text, tmp_path, monkeypatch, counts, facts):
    monkeypatch.setitem(PUBLISHED, "toy", counts)
    if facts is None:
        assert set(prepared(text, tmp_path / "bin", "toy")[1]) == DATA
        return
    message = refusal(tmp_path, prepared, text, tmp_path / "bin", "toy")
    assert all(fact in message for fact in facts)


@pytest.mark.parametrize(
    "content, facts",
    [
        (None, ["expected train.txt, valid.txt, test.txt in", "; got no test.txt"]),
        (b"", ["test.txt", "got an empty file"]),
        (gzip.compress(b"", mtime=0), ["test.txt", "got an empty file"]),
        (gzip.compress(b"a\n", mtime=0)[:-1], ["test.txt", "is damaged"]),
        (bytes(range(256)), ["test.txt: line 2 is not UTF-8: byte 0x80 at 118"]),
        ("a\n".encode("utf-16"), ["test.txt is UTF-16", "iconv"]),
        (b"a\n\xff b\n", ["test.txt", "line 2 is not UTF-8"]),
        ("a\n3\u00a0500 b\n".encode(), ["test.txt", "line 2", "3 tokens", "binarised 4", "ASCII"]),
        ("a\u2028b\n".encode(), ["line 1", "2 tokens", "binarised 3"]),
        (b"a b\rc\n", ["line 1", "4 tokens", "binarised 3", "carriage return"]),
        (b"\na\r\n\r\r\nb", ["carriage return"]),
    ],
)
def test_text_that_cannot_be_used_is_refused_and_nothing_is_left(text, tmp_path, content, facts):
    (text / "test.txt").unlink()
    if content is not None:
        (text / "test.txt").write_bytes(content)
    message = refusal(tmp_path, prepared, text, tmp_path / "bin")
    assert all(fact in message for fact in facts)


def test_windows_line_ends_and_a_missing_last_one_change_nothing(text, tmp_path):
    (text / "test.txt").write_bytes(b"b\r\nc a")
    assert "test: 5 tokens with one end mark a line" in prepared(text, tmp_path / "bin")[0]


def test_settings_that_cannot_be_used_are_refused(text, tmp_path):
    assert "got -1" in refusal(tmp_path, prepared, text, tmp_path / "bin", threshold=-1)
    assert "got 0" in refusal(tmp_path, prepared, text, tmp_path / "bin", workers=0)
    assert "text exists" in refusal(tmp_path, prepared, text, text)
    assert "without a comma" in refusal(tmp_path, prepared, text, tmp_path / "a,b")
    (text / "test.txt").unlink()
    os.mkfifo(text / "test.txt")
    assert "read more than once; got a pipe" in conftest.refusal(prepared, text, tmp_path / "bin")


OTHER_NAMES = ("ptb.{}.txt", "wiki.{}.tokens")


def renamed(text, form, splits=SPLITS):
    """The folder of text, with other names for these splits."""
    for split in splits:
        (text / f"{split}.txt").rename(text / form.format(split))


@pytest.mark.parametrize("unit", ["word", "byte"])
@pytest.mark.parametrize("form", OTHER_NAMES)
def test_the_names_of_the_published_files_change_nothing(text, tmp_path, form, unit):
    expected = prepared(text, tmp_path / "own", unit=unit)
    renamed(text, form)
    assert prepared(text, tmp_path / "other", unit=unit) == expected


def test_of_two_sets_of_names_the_first_whole_one_is_taken(text, tmp_path):
    expected = prepared(text, tmp_path / "own")
    for form in OTHER_NAMES:
        for split in SPLITS:
            write(text / form.format(split), ["x"])
    assert prepared(text, tmp_path / "first") == expected
    (text / "train.txt").unlink()
    assert prepared(text, tmp_path / "second")[0][0] == "train: 2 tokens with one end mark a line"


@pytest.mark.parametrize(
    "form, present, expected",
    [
        ("{}.txt", (), "expected train.txt, valid.txt, test.txt in {}; got no train.txt, no valid.txt, "
         "no test.txt"),
        ("{}.txt", ("valid",), "expected train.txt, valid.txt, test.txt in {}; got no train.txt, no "
         "test.txt"),
        ("ptb.{}.txt", ("train", "test"), "expected ptb.train.txt, ptb.valid.txt, ptb.test.txt in {}; "
         "got no ptb.valid.txt"),
        ("wiki.{}.tokens", ("train",), "expected wiki.train.tokens, wiki.valid.tokens, "
         "wiki.test.tokens in {}; got no wiki.valid.tokens, no wiki.test.tokens"),
    ],
)  # fmt: skip
def test_all_missing_files_are_named_at_once(text, tmp_path, form, present, expected):
    renamed(text, form)
    for split in set(SPLITS) - set(present):
        (text / form.format(split)).unlink()
    assert refusal(tmp_path, prepared, text, tmp_path / "bin") == expected.format(text)


def test_a_folder_is_expected(text, tmp_path):
    expected = "{}: expected a folder of train.txt, valid.txt, test.txt; got {}"
    for path, got in ((tmp_path / "no", "nothing of this name"), (text / "test.txt", "a file")):
        message = refusal(tmp_path, prepared, path, tmp_path / "bin", "ptb")
        assert message == expected.format(path, got)


def test_compressed_text_and_a_byte_order_mark_change_nothing(text, tmp_path):
    """fairseq would take the mark for a part of the first word, which is then unknown."""
    expected = prepared(text, tmp_path / "plain")
    for split in SPLITS:
        content = (text / f"{split}.txt").read_bytes()
        (text / f"{split}.txt").write_bytes(b"\xef\xbb\xbf" + content)
    assert prepared(text, tmp_path / "marked") == expected
    (text / "valid.txt").write_bytes(gzip.compress((text / "valid.txt").read_bytes()))
    folder = text.rename(tmp_path / "a,b")  # a comma separates fairseq's own prefixes
    assert prepared(folder, tmp_path / "packed") == expected


def test_pydoc_text_is_kept_beside_its_data(tmp_path):
    said, files = prepared(None, tmp_path / "bin", "pydoc", threshold=2)
    texts = {split: lines_of(tmp_path / "bin" / "text" / f"{split}.txt") for split in SPLITS}
    assert set(files) == {*DATA, "text", *(f"text/{split}.txt" for split in SPLITS)}
    lines = [line for split in SPLITS for line in texts[split]]
    assert len(lines) == len(set(lines)) > 1000
    assert all(line.replace("N", "n").islower() for line in lines)
    dictionary = Dictionary.load(str(tmp_path / "bin" / "dict.txt"))
    words = Counter(word for line in texts["train"] for word in line.split())
    known = {word for word, count in words.items() if count >= 2}
    assert known == set(dictionary.symbols[dictionary.nspecial :])
    assert said == files["prepare.log"].decode().splitlines()


def test_the_destination_may_be_in_a_folder_that_does_not_exist(text, tmp_path):
    assert set(prepared(text, tmp_path / "x" / "bin")[1]) == DATA


# Warnings


def warnings_of(said):
    return [line for line in said if line.startswith("warning: ")]


@pytest.mark.parametrize(
    "train, threshold, advised",
    [
        (["a b", "c a"], 0, 2),
        (["a a b", "a b c c"], 0, 3),  # 2 would change nothing
        (["a b c", "a b c", "x"], 2, None),
        (["a a b", "a b c c"], 2, 3),
        (["a <unk> c"], 0, None),
        (["a b c d e"], 0, None),  # nothing is unknown
    ],
)
def test_unknown_words_that_are_never_trained_are_a_warning(
    text, tmp_path, train, threshold, advised
):
    write(text / "train.txt", train)
    write(text / "test.txt", ["e d", "a"])
    said, files = prepared(text, tmp_path / "bin", threshold=threshold)
    if advised is None:
        assert warnings_of(said) == []
        return
    unknown = [line.split()[-4] for line in said[-3:-1]]
    assert warnings_of(said) == [said[-1]]
    assert (
        f"<unk> occurs {unknown[0]} times in valid and {unknown[1]} in test, but never" in said[-1]
    )
    assert f"; --threshold {advised} replaces words" in said[-1]
    assert said == files["prepare.log"].decode().splitlines()
    assert warnings_of(prepared(text, tmp_path / "better", threshold=advised)[0]) == []


def test_a_text_without_rare_words_gets_no_threshold(text, tmp_path):
    write(text / "train.txt", ["a b"] * 5)
    said, _ = prepared(text, tmp_path / "bin")
    (warning,) = warnings_of(said)
    assert "every word of train occurs 5 times or more" in warning


@pytest.mark.parametrize(
    "lines, counts",
    [
        (["Well, it is.", "Yes, and no ,"], "2 commas are attached to words, 1 separate"),
        (["Va ! Qui ?", "Oui, oui"], "1 commas are attached to words, 0 separate"),
        (["well , it is .", "mr. smith , of corp. , 3,000 a.d."], None),
        (["a, b ,"], None),
        (["mr. <unk> is chairman of <unk> n.v."], None),
        ([""], None),
        ([], None),
    ],
)
def test_a_text_with_commas_at_words_looks_untokenised(lines, counts):
    warning = untokenised(lines)
    assert (warning is None) == (counts is None)
    assert counts is None or counts in warning


def test_untokenised_text_is_a_warning_and_its_remedy_works(text, tmp_path):
    raw, tokenised = text / "train.txt", text / "tokenised"
    write(raw, ["Well, a.", "", "(b, c), d <unk>"])
    (warning,) = warnings_of(prepared(text, tmp_path / "raw")[0])
    assert warning.startswith(
        "warning: train looks untokenised: 3 commas are attached to words, 0 separate;"
    )
    command = warning.split(": ")[-1]
    command = command.replace("RAW", str(raw)).replace("TOKENISED", str(tokenised))
    conftest.run(["sh", "-c", command])
    assert lines_of(tokenised)[:2] == ["Well , a .", ""]
    tokenised.rename(raw)
    assert "untokenised" not in "".join(prepared(text, tmp_path / "bin")[0])


def test_only_words_of_other_text_are_looked_at(text, tmp_path):
    write(text / "train.txt", ["a, b, c,"])
    counts = Counts({"train": 4, "valid": 3, "test": 5}, types=5)
    assert "untokenised" not in "".join(prepared(text, tmp_path / "1", "ptb", counts=counts)[0])
    assert warnings_of(prepared(text, tmp_path / "2", unit="byte")[0]) == []


# Bytes


def of_bytes(text, destination, corpus="text", **settings):
    """(what was reported, the files) of a preparation by bytes."""
    said = []
    prepare(Settings(corpus, text, unit="byte", **settings), destination, say=said.append)
    return said, contents(destination)


def tokens(data, split):
    """The tokens of a split, line by line."""
    dictionary = Dictionary.load(str(data / "dict.txt"))
    lines = data_utils.load_indexed_dataset(str(data / split), dictionary)
    return [[dictionary[token] for token in line.tolist()] for line in lines]


@pytest.fixture
def bytes_folder(tmp_path):
    """A folder of bytes, some of them not UTF-8."""
    folder = tmp_path / "bytes"
    folder.mkdir()
    (folder / "train.txt").write_bytes(b"aab\n\na\xff")
    (folder / "valid.txt").write_bytes(b"\xef\xbb\xbfa\r\n")
    (folder / "test.txt").write_bytes(b"b")
    return folder


def test_every_byte_is_a_token(bytes_folder, tmp_path):
    said, files = of_bytes(bytes_folder, tmp_path / "bin")
    assert set(files) == DATA and said == files["prepare.log"].decode().splitlines()
    assert lines_of(tmp_path / "bin" / "dict.txt") == ["<0x61> 3", "<0x62> 1", "<0xFF> 1"]
    a, b, end, unknown = "<0x61>", "<0x62>", "</s>", "<unk>"
    assert tokens(tmp_path / "bin", "train") == [[a, a, b, end], [end], [a, "<0xFF>"]]
    assert tokens(tmp_path / "bin", "valid") == [[unknown, unknown, unknown, a, unknown, end]]
    assert tokens(tmp_path / "bin", "test") == [[b]]
    assert said == [
        "train: 7 bytes",
        "valid: 6 bytes",
        "test: 1 bytes",
        "dictionary: 7 types",
        "train: 3 lines and 7 bytes binarised, 0 of them <unk>",
        "valid: 1 lines and 6 bytes binarised, 4 of them <unk>",
        "test: 1 lines and 1 bytes binarised, 0 of them <unk>",
    ]
    of_bytes(bytes_folder, tmp_path / "rare", threshold=2)
    assert lines_of(tmp_path / "rare" / "dict.txt") == ["<0x61> 3"]


def test_the_files_are_those_that_fairseq_writes_for_the_names_of_the_bytes(tmp_path):
    folder, named = tmp_path / "bytes", tmp_path / "named"
    for path in (folder, named, tmp_path / "fairseq"):
        path.mkdir()
    rng = np.random.default_rng(0)
    for split in SPLITS:
        data = rng.integers(0, 40, 500, dtype=np.uint8).tobytes() + b"\n"
        (folder / f"{split}.txt").write_bytes(data)
        lines = data[:-1].split(b"\n")
        write(named / f"{split}.txt", [" ".join(NAMES[byte] for byte in line) for line in lines])
    _, files = of_bytes(folder, tmp_path / "bin")
    list(language_model.binarise(named, tmp_path / "fairseq"))
    expected = contents(tmp_path / "fairseq")
    assert set(expected) == DATA - {"prepare.log"}
    assert {name: files[name] for name in expected} == expected


@pytest.fixture
def whole(tmp_path):
    """One file of 20 bytes of 5 kinds, for splits of 12, 5 and 3 bytes."""
    path = tmp_path / "whole"
    path.write_bytes(b"ab\nabc\nabcab" + b"c\nabc" + b"\xc3c\n")
    return path


SPLIT = Counts({"train": 12, "valid": 5, "test": 3}, types=5)


def test_a_file_is_cut_into_its_splits(whole, tmp_path):
    said, files = of_bytes(whole, tmp_path / "bin", "enwik8", counts=SPLIT)
    assert set(files) == DATA
    names = {"a": "<0x61>", "b": "<0x62>", "c": "<0x63>", "\n": "</s>", "?": "<unk>"}
    for split, lines in (
        ("train", ["ab\n", "abc\n", "abcab"]),
        ("valid", ["c\n", "abc"]),
        ("test", ["?c\n"]),
    ):
        assert tokens(tmp_path / "bin", split) == [[names[c] for c in line] for line in lines]
    assert said[:5] == ["train: 12 bytes", "valid: 5 bytes", "test: 3 bytes", "5 kinds of bytes",
                        "dictionary: 7 types"]  # fmt: skip
    assert said[-1] == "test: 1 lines and 3 bytes binarised, 1 of them <unk>"


def test_an_interrupted_preparation_of_bytes_goes_on_to_the_same_result(
    whole, tmp_path, monkeypatch
):
    expected = of_bytes(whole, tmp_path / "whole_bin", "enwik8", counts=SPLIT)
    stage = interrupting(language_model.binarise_text_of_bytes)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        name = "binarise_text_of_bytes"
        patch.setattr(language_model, name, lambda text, folder, _: stage(text, folder))
        of_bytes(whole, tmp_path / "bin", "enwik8", counts=SPLIT)
    assert not (tmp_path / "bin").exists()
    said, files = of_bytes(whole, tmp_path / "bin", "enwik8", counts=SPLIT)
    assert said == ["text: done before", *expected[0]] and files == expected[1]


def test_the_published_sizes_of_enwik8():
    counts = Settings("enwik8", unit="byte").expected
    assert sum(counts.tokens.values()) == 100_000_000 and counts.types == 205
    assert counts.tokens["train"] == 90_000_000


@pytest.mark.parametrize(
    "content, facts",
    [
        (
            b"ab\n",
            [
                "expected the 20 bytes of enwik8; got 3",
                "prepare-lm text FILE --split 90,5,5 --unit byte",
            ],
        ),
        (b"a" * 21, ["expected the 20 bytes", "got 21"]),
        (b"ab\nabc\nabcabc\nabcccc\n", ["expected the 20 bytes"]),
        (b"ab\nabc\nabcabc\nabccc\n", ["expected 5 kinds of bytes, as published; got 4"]),
        (gzip.compress(b"ab\n", mtime=0), ["expected the text itself; got a gzip file: unpack it"]),
        (b"PK\x03\x04", ["got a zip file: unpack it"]),
    ],
)
def test_another_file_than_the_published_one_is_refused(whole, tmp_path, content, facts):
    whole.write_bytes(content)
    message = refusal(tmp_path, of_bytes, whole, tmp_path / "bin", "enwik8", counts=SPLIT)
    assert all(fact in message for fact in facts)


@pytest.mark.parametrize(
    "content, facts",
    [
        (None, ["expected train.txt, valid.txt, test.txt in", "; got no test.txt"]),
        (b"", ["test.txt", "got an empty file"]),
        (gzip.compress(b"a\n", mtime=0), ["test.txt: expected the text itself; got a gzip file"]),
    ],
)
def test_bytes_that_cannot_be_used_are_refused(bytes_folder, tmp_path, content, facts):
    (bytes_folder / "test.txt").unlink()
    if content is not None:
        (bytes_folder / "test.txt").write_bytes(content)
    message = refusal(tmp_path, of_bytes, bytes_folder, tmp_path / "bin")
    assert all(fact in message for fact in facts)


def test_units_that_cannot_be_used_are_refused(whole, tmp_path):
    for corpus, unit, fact in (("enwik8", "word", "byte for enwik8"), ("text", "bit", "got bit")):
        settings = Settings(corpus, whole, unit=unit)
        assert fact in refusal(tmp_path, prepare, settings, tmp_path / "bin")


def test_the_words_of_a_published_text_are_counted_in_bytes_too(text, tmp_path):
    said, _ = of_bytes(text, tmp_path / "bin", "ptb", counts=COUNTS)
    size = (text / "train.txt").stat().st_size
    assert said[:2] == ["train: 12 tokens with one end mark a line", f"train: {size} bytes"]
    other = Counts({**COUNTS.tokens, "test": 6}, 5)
    message = refusal(tmp_path, of_bytes, text, tmp_path / "other", "ptb", counts=other)
    assert "expected 6 tokens, as published; got 5" in message


# One file, cut in three

LINES = ["a b", "", "c", "a  d", "b", "\u00e9 a", "b c", "d", "a", "c c"]
SIXTY = (60.0, 30.0, 10.0)


@pytest.fixture
def one_file(tmp_path):
    """A file of ten lines."""
    write(tmp_path / "all.txt", LINES)
    return tmp_path / "all.txt"


@pytest.mark.parametrize("packed", [False, True])
def test_one_file_gives_what_a_folder_of_its_parts_gives(one_file, text, tmp_path, packed):
    for split, (start, end) in zip(SPLITS, [(0, 6), (6, 9), (9, 10)], strict=True):
        write(text / f"{split}.txt", LINES[start:end])
    expected = prepared(text, tmp_path / "folder")
    if packed:
        one_file.write_bytes(gzip.compress(one_file.read_bytes()))
    assert prepared(one_file, tmp_path / "file", split=SIXTY) == expected


@pytest.mark.parametrize("end", [b"\n", b"\xff"])
def test_a_file_of_bytes_is_cut_at_line_ends(tmp_path, bytes_folder, end):
    parts = {"train": b"a\xff\r\n\nbb\n", "valid": b"a\n\n", "test": b"b" + end}
    for split, part in parts.items():
        (bytes_folder / f"{split}.txt").write_bytes(part)
    (tmp_path / "all").write_bytes(b"".join(parts.values()))
    said, files = of_bytes(tmp_path / "all", tmp_path / "file", split=(50.0, 34.0, 16.0))
    expected_said, expected = of_bytes(bytes_folder, tmp_path / "folder")
    kinds = len({*b"".join(parts.values())})
    assert said == [*expected_said[:3], f"{kinds} kinds of bytes", *expected_said[3:]]
    assert {name: files[name] for name in DATA - {"prepare.log"}} == {
        name: expected[name] for name in DATA - {"prepare.log"}
    }


@given(
    lines=st.lists(st.sampled_from(["", "a", "\u00e9 b", "c\r"]), min_size=3),
    first_two=st.tuples(st.integers(1, 49), st.integers(1, 49)),
    last_line_end=st.booleans(),
)
def test_the_parts_are_the_file_and_less_than_a_line_from_the_percentages(
    tmp_path_factory, lines, first_two, last_line_end
):
    split = (*map(float, first_two), 100.0 - sum(first_two))
    shares = share_lines(len(lines), split)
    for share, part in zip(shares.values(), split, strict=True):
        assert abs(share - len(lines) * part / 100) < 1
    assume(min(shares.values()) > 0)
    folder = tmp_path_factory.mktemp("parts")
    path, parts = folder / "all", [folder / f"{name}.txt" for name in SPLITS]
    lines[-1] = lines[-1] or "a"  # an empty line without a line feed is none
    path.write_bytes("\n".join([*lines, ""] if last_line_end else lines).encode())
    list(cut_text(path, folder, split))
    words = [list(text_lines(part)) for part in parts]
    assert [len(part) for part in words] == list(shares.values()) and sum(words, []) == lines
    list(cut_file(path, folder, bytes_of_parts(path, split)))
    assert [list(text_lines(part)) for part in parts] == words
    assert b"".join(part.read_bytes() for part in parts) == path.read_bytes()


def test_another_split_starts_over(one_file, tmp_path, monkeypatch):
    expected = prepared(one_file, tmp_path / "whole", split=SIXTY)
    stage = interrupting(language_model.binarise)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(language_model, "binarise", lambda text, folder, *_: stage(text, folder))
        prepared(one_file, tmp_path / "bin", split=(50.0, 25.0, 25.0))
    said, files = prepared(one_file, tmp_path / "bin", split=SIXTY)
    assert "of other settings" in said[0]
    assert (said[1:], files) == expected


@pytest.mark.parametrize("unit", ["word", "byte"])
@pytest.mark.parametrize(
    "split, lines, none",
    [
        ((90.0, 5.0, 5.0), 10, "valid: it has 10 lines, and --split is 90,5,5"),
        ((90.0, 9.5, 0.5), 1, "train, valid: it has 1 lines, and --split is 90,9.5,0.5"),
        ((90.0, 5.0, 5.0), 0, "train, valid, test: it has 0 lines, and"),
    ],
)
def test_an_empty_part_is_refused(one_file, tmp_path, split, lines, none, unit):
    write(one_file, LINES[:lines])
    settings = Settings("text", one_file, unit=unit, split=split)
    message = refusal(tmp_path, prepare, settings, tmp_path / "bin")
    assert (
        f"{one_file}: expected lines for each of train, valid, test; got none for {none}" in message
    )


@pytest.mark.parametrize(
    "split, got",
    [
        ((90.0, 5.0), "90,5"),
        ((90.0, 5.0, 4.0), "90,5,4"),
        ((100.0, 0.0, 0.0), "100,0,0"),
        ((110.0, -5.0, -5.0), "110,-5,-5"),
        ((float("nan"), 50.0, 50.0), "nan,50,50"),
        ((float("inf"), 5.0, 5.0), "inf,5,5"),
    ],
)
def test_percentages_that_cannot_be_used_are_refused(one_file, tmp_path, split, got):
    message = refusal(tmp_path, prepared, one_file, tmp_path / "bin", split=split)
    assert message == (
        f"--split: expected three percentages above 0 that sum to 100, such as 90,5,5; got {got}"
    )


def test_a_file_that_cannot_be_cut_is_refused(one_file, text, tmp_path):
    def refused(source, **settings):
        settings = {"corpus": "text", "source": source, "split": SIXTY, **settings}
        return refusal(tmp_path, prepare, Settings(**settings), tmp_path / "bin")

    assert (
        refused(text) == f"--split: expected a file, which it cuts in three; got the folder {text}"
    )
    for corpus in ("ptb", "wikitext2", "enwik8", "pydoc"):
        source = None if corpus == "pydoc" else one_file
        unit = "byte" if corpus == "enwik8" else "word"
        message = refused(source, corpus=corpus, unit=unit)
        assert message == f"--split: expected the corpus text, of one file; got {corpus}"
    assert "No such file" in refused(tmp_path / "nothing")
    message = refused(one_file, split=None)
    assert message.endswith("got a file; --split 90,5,5 cuts it in three")
    one_file.write_bytes(gzip.compress(b"a\n" * 9))
    assert "got a gzip file: unpack it" in refused(one_file, unit="byte")
