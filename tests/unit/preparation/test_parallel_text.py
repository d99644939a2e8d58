import io
import itertools
import sys
from pathlib import Path

import pytest
from fairseq.data import Dictionary, data_utils
from fairseq.data.data_utils import post_process
from fairseq.tokenizer import tokenize_line
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.scoring.hypotheses import moses

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import parallel_text  # noqa: E402
from parallel_text import Settings, clean  # noqa: E402
from prepare_parallel import main, make_parser, prepare  # noqa: E402

WORDS = {
    "en": ["A", "dog", "runs", "at", "Tom's", "well-known", "beach", "3,500", "(again)", "&"],
    "de": [
        "Ein",
        "Hund",
        "läuft",
        "am",
        "größten",
        "U-Bahn-Hof",
        "entlang",
        "3,5",
        "(wieder)",
        "&",
    ],
}


def sentence(number, side="de"):
    """A few words, others for every number."""
    words = [WORDS[side][(number * step + step) % 10] for step in range(1, 3 + number % 5)]
    return " ".join(words) + "."


@pytest.fixture
def raw(tmp_path):
    """A folder of 40 training pairs and 5 each of valid and test, en-de."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for split, start, count in (("train", 0, 40), ("valid", 50, 5), ("test", 60, 5)):
        for side in ("en", "de"):
            lines = [sentence(n, side) for n in range(start, start + count)]
            write(folder / f"{split}.{side}", lines)
    return folder


def write(path, lines):
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


def lines_of(path):
    return path.read_bytes().decode().split("\n")[:-1]


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def prepared(raw, destination, workers=1, **changes):
    """(what was told, the files) of a preparation."""
    said = []
    with_defaults = {"merges": 20, **changes}
    prepare(Settings("en", "de", str(raw), **with_defaults), destination, workers, said.append)
    return said, contents(destination)


def binarised(folder, split, side, pair="en-de"):
    """The lines of a binarised split, as units."""
    dictionary = Dictionary.load(str(folder / f"dict.{side}.txt"))
    data = data_utils.load_indexed_dataset(str(folder / f"{split}.{pair}.{side}"), dictionary)
    return [dictionary.string(item) for item in data]


def refused(raw, destination, **changes):
    with pytest.raises(FairseqDocError) as caught:
        prepared(raw, destination, **changes)
    assert "\n" not in str(caught.value)
    assert not list(destination.parent.glob(f"{destination.name}*"))
    return str(caught.value)


@pytest.mark.parametrize(
    "line, expected",
    [
        ("a b", "a b"),
        ("  a \t b\r", "a b"),
        ("a\u2028b\u2029c\x85d\x0be", "a b c d e"),
        ("a\u00a0b\u3000c", "a b c"),
        ("a\x00b\x1bc\x7fd\x9fe", "a b c d e"),
        ("\ufeffa", "a"),
        ("a\u200b\u00adb \u2581 é e\u0301 \ufb01 Ⅳ", "a\u200b\u00adb \u2581 é e\u0301 \ufb01 Ⅳ"),
        (" \u2028\x00", ""),
    ],
)
def test_clean(line, expected):
    assert clean(line) == expected


@given(st.text())
def test_cleaning_changes_blanks_alone_and_nothing_twice(text):
    once = clean(text)
    assert clean(once) == once.removeprefix("\ufeff")
    assert once.split() == once.split(" ") or not once
    assert not parallel_text.CONTROL.search(once)
    kept = [c for c in text.removeprefix("\ufeff") if not c.isspace() and c > "\x1f"]
    kept = "".join(c for c in kept if not "\x7f" <= c <= "\x9f")
    assert once.replace(" ", "") == kept


@settings(max_examples=200)
@given(st.lists(st.text(st.sampled_from("ab@</wé "), max_size=12), min_size=1, max_size=6))
def test_merges_are_undone(tmp_path_factory, texts):
    lines = [line for line in map(clean, texts) if line]
    usable = [x for x in lines if not parallel_text.ambiguous(x, "subword_nmt")]
    codes = io.StringIO()
    pairs_of_letters = [*usable, "abab ab@ @b"] * 2
    parallel_text.learn_bpe(pairs_of_letters, codes, 8)
    segmenter = parallel_text.BPE(codes)
    for line in usable:
        assert post_process(segmenter.process_line(line), "subword_nmt") == line


def test_what_cannot_be_undone_is_seen():
    for line in ("a@@ b", "a @@", "@@@"):
        assert parallel_text.ambiguous(line, "subword_nmt")
        assert not parallel_text.ambiguous(line, "sentencepiece")
    for line in ("a@@b", "@@b", "a@ b", "@"):
        assert not parallel_text.ambiguous(line, "subword_nmt")
    assert parallel_text.ambiguous("a\u2581b", "sentencepiece")
    assert not parallel_text.ambiguous("a\u2581b @@", "none")


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A sentencepiece model."""
    folder = tmp_path_factory.mktemp("pieces")
    text = [sentence(n) for n in range(60)] + ["x\u200by fi \ufb01 </s> <unk> ½ ²"] * 3
    write(folder / "text", text)
    parallel_text._learn_sentencepiece([folder / "text"], folder / "m", 70)
    return parallel_text.make_segmenter("sentencepiece", folder / "m")


@given(st.text() | st.text(st.sampled_from("x </s>pad\ufb01½²e\u0301\u200b")))
def test_pieces_are_undone(pieces, text):
    line = clean(text)
    if line and parallel_text.why_unusable(line, "sentencepiece") is None:
        units = pieces(line)
        assert post_process(units, "sentencepiece") == line
        assert not parallel_text.RESERVED.intersection(units.split())
        assert units.split() == units.split(" ")


def test_reserved_words_are_seen_where_they_would_become_units():
    for bpe, seen in (("sentencepiece", True), ("subword_nmt", False), ("none", False)):
        assert (parallel_text.why_unusable("a <s>b", bpe) is not None) == seen
        assert parallel_text.why_unusable("a <s> b", bpe).startswith("holds a word of fairseq's")
        assert parallel_text.why_unusable("a s b <unk>", bpe) is None


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("bpe", ["subword_nmt", "sentencepiece", "none"])
@pytest.mark.parametrize("tokenizer", ["moses", "none"])
def test_what_was_read_is_what_was_binarised(raw, tmp_path, bpe, joint, tokenizer):
    _, files = prepared(raw, tmp_path / "bin", bpe=bpe, joint=joint, tokenizer=tokenizer, merges=60)
    models = {"subword_nmt": "bpe.codes{}", "sentencepiece": "sentencepiece{}.model", "none": "{}"}
    endings = [""] if joint else [".de", ".en"]
    expected = {models[bpe].format(ending) for ending in endings} if bpe != "none" else set()
    assert expected == {name for name in files if "bpe" in name or "piece" in name}
    assert (files["dict.en.txt"] == files["dict.de.txt"]) == joint
    for split, side in itertools.product(("train", "valid", "test"), ("en", "de")):
        units = binarised(tmp_path / "bin", split, side)
        words = [post_process(line, bpe) for line in units]
        plain = [moses(side).decode(line) for line in words] if tokenizer == "moses" else words
        assert plain == lines_of(raw / f"{split}.{side}")
    assert not list(tmp_path.glob("*.part"))


def test_text_is_read_as_fairseq_reads_what_is_typed(raw, tmp_path):
    """``--tokenizer moses --bpe subword_nmt`` of a line gives the units that were binarised."""
    from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig
    from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE, SubwordNMTBPEConfig

    prepared(raw, tmp_path / "bin", merges=60)
    codes = str(tmp_path / "bin" / "bpe.codes.en")
    bpe = SubwordNMTBPE(SubwordNMTBPEConfig(bpe_codes=codes))
    typed = [bpe.encode(moses("en").encode(line)) for line in lines_of(raw / "train.en")]
    assert typed == binarised(tmp_path / "bin", "train", "en")

    prepared(raw, tmp_path / "pieces", bpe="sentencepiece", tokenizer="none", merges=60)
    model = str(tmp_path / "pieces" / "sentencepiece.en.model")
    bpe = SentencepieceBPE(SentencepieceConfig(sentencepiece_model=model))
    typed = [bpe.encode(line) for line in lines_of(raw / "train.en")]
    assert typed == binarised(tmp_path / "pieces", "train", "en")


TYPED = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from(" \u00a0\u2028.,'\"-@&ab")
)


@pytest.fixture(scope="module")
def merges():
    """subword-nmt's segmenter."""
    codes = io.StringIO()
    parallel_text.learn_bpe([sentence(n) for n in range(60)], codes, 60)
    return parallel_text.BPE(codes)


@given(TYPED)
def test_any_text_is_read_as_fairseq_reads_what_is_typed(merges, text):
    words = parallel_text.make_tokenizer("moses", "en")(clean(text))
    assert words.split(" ") == tokenize_line(words) or not words
    typed = merges.process_line(moses("en").encode(text.strip()))
    assert tokenize_line(merges.process_line(words)) == tokenize_line(typed)
    assert post_process(merges.process_line(words), "subword_nmt") == words


def test_blanks_that_moses_doubles_are_single(raw, tmp_path):
    write(raw / "test.en", ["He said 'stop.'", *lines_of(raw / "test.en")[1:]])
    prepared(raw, tmp_path / "bin", bpe="none")
    assert len(binarised(tmp_path / "bin", "test", "en")[0].split(" ")) == 6


def test_every_pair_that_is_dropped_is_told(raw, tmp_path):
    long = " ".join(["word"] * 1000)
    bad = [("", "leer"), ("only", " \u2028 "), (long, "kurz"), ("a@@ b", "c"), ("x", "a </s> b")]
    bad += [("one", " ".join("zehn" for _ in range(10)))]
    good = lines_of(raw / "train.en"), lines_of(raw / "train.de")
    for i, side in enumerate(("en", "de")):
        write(raw / f"train.{side}", [pair[i] for pair in bad] + good[i])
    said, files = prepared(raw, tmp_path / "bin", tokenizer="none", max_ratio=9, max_words=30)
    assert "train: 46 pairs read from train, 40 kept" in said
    reasons = {
        1: "a side is empty",
        2: "a side is empty",
        3: "more than 30 words on a side",
        4: "a side holds a word that ends in @@, the mark of --bpe subword_nmt",
        5: "a side holds a word of fairseq's own, <s>, <pad> or </s>",
        6: "a side more than 9 times as long as the other",
    }
    dropped = files["dropped.tsv"].decode().splitlines()
    assert dropped == [f"{number}\t{reason}" for number, reason in reasons.items()]
    assert "train: 2 dropped: a side is empty" in said
    for reason in list(reasons.values())[2:]:
        assert f"train: 1 dropped: {reason}" in said
    assert len(binarised(tmp_path / "bin", "train", "en")) == 40
    assert files["prepare.log"].decode().splitlines() == said


def test_lines_that_moses_mends_are_kept(raw, tmp_path):
    write(raw / "train.en", ["a@@ b </s> <pad>", *lines_of(raw / "train.en")[1:]])
    said, _ = prepared(raw, tmp_path / "bin")
    assert "train: 40 pairs read from train, 40 kept" in said


def test_a_long_line_outside_training_is_kept_and_told(raw, tmp_path):
    long = " ".join(["word"] * 1000)
    write(raw / "test.en", [*lines_of(raw / "test.en")[:4], long])
    said, _ = prepared(raw, tmp_path / "bin")
    assert "test: 1 of more than 250 words on a side, kept whole: line 5" in said
    assert len(binarised(tmp_path / "bin", "test", "en")[4].split()) >= 1000


def test_line_separators_move_no_line(raw, tmp_path):
    lines = lines_of(raw / "test.en")
    write(raw / "test.en", [f"a\u2028b\x85c\x0cd {line}\r" for line in lines])
    said, _ = prepared(raw, tmp_path / "bin", bpe="none", tokenizer="none")
    words = [f"a b c d {line}" for line in lines]
    written = binarised(tmp_path / "bin", "test", "en")
    lengths = [len(line.split()) for line in words]
    assert [len(line.split()) for line in written] == lengths
    assert f"test.en: 5 lines cleaned, {sum(lengths)} words" in said


def test_unknown_units_are_counted(raw, tmp_path):
    write(raw / "test.de", ["Ω Ω Ω", *lines_of(raw / "test.de")[1:]])
    write(raw / "valid.de", ["<unk> Hund", *lines_of(raw / "valid.de")[1:]])
    said, _ = prepared(raw, tmp_path / "bin", bpe="none", tokenizer="none")
    unknown = {line.split(":")[0]: line.split(", ")[-1] for line in said if "binarised" in line}
    assert unknown["train.de"] == "0 of them <unk>"
    unseen = set(" ".join(lines_of(raw / "test.de")).split())
    unseen -= set(" ".join(lines_of(raw / "train.de")).split())
    assert unseen >= {"Ω"} and unknown["test.de"] == "3 of them <unk>"
    assert any(line.endswith("1 of them <unk> in the text") for line in said)
    said, _ = prepared(raw, tmp_path / "rare", bpe="none", tokenizer="none", threshold=1000)
    assert [line for line in said if line.startswith("dictionary")] == [
        "dictionary en: 8 types",  # fairseq's four, and its padding to a multiple of eight
        "dictionary de: 8 types",
    ]


def test_merges_that_the_text_has_not_are_told(raw, tmp_path):
    said, files = prepared(raw, tmp_path / "bin", merges=100_000)
    learned = files["bpe.codes.en"].count(b"\n") - 1
    assert f"bpe en: {learned:,} of 100,000 merges learned; no other pair occurs twice" in said


def test_several_tests_and_other_names(raw, tmp_path):
    for split, name in (("train", "x.train"), ("valid", "dev"), ("test", "t1")):
        for side in ("en", "de"):
            (raw / f"{split}.{side}").rename(raw / f"{name}.{side}")
            write(raw / f"t2.{side}", ["läuft & dog"])
    said, files = prepared(
        raw, tmp_path / "bin", train="x.train", valid=("dev",), test=("t1", "t2")
    )
    assert "test1: 1 pairs read from t2, 1 kept" in said
    assert "test1.en-de.de.bin" in files
    assert binarised(tmp_path / "bin", "test1", "de")[0].startswith("läuft ")


@pytest.mark.parametrize("bpe", ["subword_nmt", "sentencepiece"])
def test_the_result_is_the_same_for_any_number_of_processes(raw, tmp_path, bpe):
    one = prepared(raw, tmp_path / "one", bpe=bpe, merges=60)
    assert prepared(raw, tmp_path / "two", bpe=bpe, merges=60, workers=2) == one


STAGES = ("write_text", "learn", "segment", "binarise")


@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupted_preparation_goes_on_to_the_same_result(raw, tmp_path, monkeypatch, stage):
    expected = prepared(raw, tmp_path / "whole")
    original = getattr(parallel_text, stage)

    def interrupted(*arguments):
        lines = original(*arguments)
        yield next(lines)
        (arguments[-1] / "half").write_text("written")
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel_text, stage, interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepared(raw, tmp_path / "bin")
    assert not (tmp_path / "bin").exists()
    monkeypatch.undo()
    for earlier in STAGES[: STAGES.index(stage)]:  # what is done is not done again
        monkeypatch.setattr(parallel_text, earlier, None)
    said, files = prepared(raw, tmp_path / "bin")
    done = [f"{name}: done before" for name in ("text", "bpe", "segmented")]
    assert [line for line in said if "done before" in line] == done[: STAGES.index(stage)]
    assert [line for line in said if "done before" not in line] == expected[0]
    assert files == expected[1]
    assert not list(tmp_path.glob("*.part"))


def test_other_settings_or_other_text_start_over(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(parallel_text, "segment", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepared(raw, tmp_path / "bin")
    with pytest.raises(ZeroDivisionError):
        prepared(raw, tmp_path / "bin", merges=10)
    monkeypatch.undo()
    write(raw / "test.en", ["Another dog.", *lines_of(raw / "test.en")[1:]])
    said, files = prepared(raw, tmp_path / "bin", merges=10)
    assert said[0].endswith("is of other settings, other text or other tools: starting over")
    assert (said[1:], files) == prepared(raw, tmp_path / "whole", merges=10)


def test_two_at_once_and_a_folder_of_other_things_are_refused(raw, tmp_path, monkeypatch):
    original = parallel_text.learn

    def meanwhile(*arguments):
        with pytest.raises(FairseqDocError, match="another preparation is at work there"):
            prepare(Settings("en", "de", str(raw), merges=20), tmp_path / "bin", say=str)
        yield from original(*arguments)

    monkeypatch.setattr(parallel_text, "learn", meanwhile)
    prepared(raw, tmp_path / "bin")
    (tmp_path / "new.part").mkdir()
    (tmp_path / "new.part" / "thesis.txt").write_text("mine")
    with pytest.raises(FairseqDocError, match="expected nothing, or an unfinished preparation"):
        prepared(raw, tmp_path / "new")
    assert contents(tmp_path / "new.part") == {"thesis.txt": b"mine"}


def damage(raw, name):
    """Make one kind of bad input."""
    test, lines = raw / "test.de", lines_of(raw / "test.de")
    if name == "shorter":
        write(test, lines[:3])
    elif name == "empty line":
        write(test, [*lines[:2], " \u2028", *lines[3:]])
    elif name == "latin-1":
        test.write_bytes(b"gut\n" + "größer\n".encode("latin-1") + b"x\n" * 3)
    elif name == "empty split":
        for side in ("en", "de"):
            write(raw / f"valid.{side}", [])
    elif name == "missing":
        test.unlink()
    elif name == "folder":
        test.unlink()
        test.mkdir()
    elif name == "reserved":
        write(test, [*lines[:4], "a <s> b"])
    elif name == "all empty":
        write(raw / "train.en", [""] * 40)
    elif name == "letters":
        write(raw / "train.de", ["a b c"] * 40)


@pytest.mark.parametrize(
    "name, changes, told",
    [
        ("shorter", {}, "expected as many lines on both sides; got 5 in {raw}/test.en and 3 in"),
        ("empty line", {}, "{raw}/test.de: line 3 is empty; mend it"),
        ("latin-1", {}, "{raw}/test.de: line 2 is not UTF-8: byte 0xf6 at 3"),
        ("empty split", {}, "expected sentences in {raw}/valid.en and {raw}/valid.de; got none"),
        ("missing", {}, "cannot read {raw}/test.de: No such file"),
        ("folder", {}, "cannot read {raw}/test.de: Is a directory"),
        ("reserved", {"tokenizer": "none"}, "{raw}/test.de: line 5 holds a word of fairseq's own"),
        ("all empty", {}, "every pair would be dropped"),
        ("letters", {"tokenizer": "none"}, "give --bpe none"),
        ("", {"bpe": "sentencepiece", "merges": 9999}, "cannot learn a vocabulary of 9,999"),
        ("", {"merges": 0}, "--merges must be at least 1; got 0"),
        ("", {"max_words": 0}, "--max-words must be at least 1; got 0"),
        ("", {"max_ratio": 0.5}, "--max-ratio must be at least 1; got 0.5"),
        ("", {"max_ratio": float("nan")}, "--max-ratio must be at least 1; got nan"),
        ("", {"threshold": -1}, "--threshold must be at least 0; got -1"),
        ("", {"test": ("valid",)}, "expected other files for every split; got train, valid, valid"),
        ("", {"test": ("",)}, "expected other files for every split"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_left(raw, tmp_path, name, changes, told):
    damage(raw, name)
    assert told.format(raw=raw) in refused(raw, tmp_path / "bin", **changes)


@pytest.mark.parametrize("sides", [("en", "en"), ("en", ""), ("zh-cn", "en"), ("en", "a.b")])
def test_names_of_sides_that_fairseq_cannot_read_are_refused(raw, tmp_path, sides):
    with pytest.raises(FairseqDocError, match="expected two sides' names without"):
        prepare(Settings(*sides, str(raw)), tmp_path / "bin")


def test_a_destination_that_exists_stays_as_it_is(raw, tmp_path):
    (tmp_path / "bin").mkdir()
    with pytest.raises(FairseqDocError, match="bin exists; remove it, or name another folder"):
        prepared(raw, tmp_path / "bin")
    assert not contents(tmp_path / "bin")
    with pytest.raises(FairseqDocError, match="without a comma"):
        prepared(raw, tmp_path / "a,b")
    with pytest.raises(FairseqDocError, match="--workers must be at least 1; got 0"):
        prepared(raw, tmp_path / "new", workers=0)


def test_the_commands_lines(raw, tmp_path, capsys):
    options = ["--merges", "20", "--joint"]
    assert main(["mt", "en", "de", str(raw), str(tmp_path / "bin"), *options]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == f"prepare_mt: wrote {tmp_path / 'bin'}"
    assert "prepare_mt: bpe en and de: 20 of 20 merges learned" in told.out
    assert main(["mt", "en", "de", str(raw), str(tmp_path / "bin")]) == 1
    told = capsys.readouterr()
    assert told.err.startswith("prepare_mt: error: ") and told.err.count("\n") == 1
    for path in raw.glob("*"):
        path.rename(path.with_suffix({".en": ".src", ".de": ".tgt"}[path.suffix]))
    assert main(["headline", str(raw), str(tmp_path / "headline"), "--no-joint"]) == 0
    assert (tmp_path / "headline" / "bpe.codes.src").exists()
    assert "train.src: 0 lines cleaned" in capsys.readouterr().out
    assert [len(line.split()) for line in lines_of(raw / "train.src")] == [
        len(post_process(line, "subword_nmt").split())
        for line in binarised(tmp_path / "headline", "train", "src", "src-tgt")
    ]


def test_every_option_has_a_help(capsys):
    for kind in ("mt", "headline"):
        parser = make_parser(kind)
        assert all(action.help for action in parser._actions)
        assert "5000" in parser.format_help() or kind == "mt"
