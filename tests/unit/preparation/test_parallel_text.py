import itertools
import json

import pytest
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE, SubwordNMTBPEConfig

from fairseq_doc.preparation.parallel_text import ParallelText, prepare
from fairseq_doc.preparation.pipeline import SPLITS
from fairseq_doc.preparation.text_form import form_of_side
from fairseq_doc.preparation.tokenization import moses

from .conftest import binarised, lines_of, made, refusal_leaving, sentence, spoil, write

SIDES = ("en", "de")
AS_IT_IS = {"bpe": "none", "tokenizer": "none"}


@pytest.fixture
def raw(tmp_path):
    """A folder of 40 training pairs and 5 each of valid and test, en-de."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for split, numbers in zip(SPLITS, (range(40), range(50, 55), range(60, 65)), strict=True):
        for side in SIDES:
            write(folder / f"{split}.{side}", [sentence(n, side) for n in numbers])
    return folder


def prepared(raw, destination, workers=1, **changes):
    """(what was reported, the files) of a preparation."""
    if changes.get("bpe") != "none":
        changes = {"merges": 20, **changes}
    settings = ParallelText(**{"source": "en", "target": "de", "folder": raw, **changes})
    return made(prepare, settings, destination, workers=workers)


def units(folder, split, side):
    """The lines of a binarised split."""
    return binarised(folder / f"{split}.en-de.{side}", folder / f"dict.{side}.txt")


def put_lines(raw, name, lines):
    """Put lines in the place of as many others at the start."""
    write(raw / name, [*lines, *lines_of(raw / name)[len(lines) :]])


# {kind: (file of a model, merges or pieces, fairseq's reader of what is typed)}
MODELS = {
    "none": ("", {}, lambda model: str),
    "subword_nmt": (
        *("bpe.codes{}", {"merges": 100_000}),
        lambda model: SubwordNMTBPE(SubwordNMTBPEConfig(bpe_codes=str(model))).encode,
    ),
    "sentencepiece": (
        *("sentencepiece{}.model", {"merges": 80}),
        lambda model: SentencepieceBPE(SentencepieceConfig(sentencepiece_model=str(model))).encode,
    ),
}


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("bpe", MODELS)
@pytest.mark.parametrize("tokenizer", ["moses", "none"])
def test_what_was_read_is_what_was_binarised(raw, tmp_path, bpe, joint, tokenizer):
    """As fairseq's ``--tokenizer`` and ``--bpe`` read what is typed."""
    if tokenizer == "moses":  # which escapes what could not be used
        put_lines(raw, "train.en", ["a@@ b </s> <pad>"])
    (form, merges, encoder), bin = MODELS[bpe], tmp_path / "bin"
    said, files = prepared(raw, bin, bpe=bpe, joint=joint, tokenizer=tokenizer, **merges)
    assert "train: 40 pairs read from train, 40 kept" in said
    ends = dict.fromkeys(SIDES, "") if joint else {side: f".{side}" for side in SIDES}
    models = {form.format(end) for end in ends.values()} - {""}
    assert models == {name for name in files if "bpe" in name or "piece" in name}
    assert (files["dict.en.txt"] == files["dict.de.txt"]) == joint
    if bpe == "subword_nmt":
        learned = files[form.format(ends["en"])].count(b"\n") - 1
        assert any(f": {learned:,} of 100,000 merges learned; no other pair" in x for x in said)
    for split, side in itertools.product(SPLITS, SIDES):
        encode, found = encoder(bin / form.format(ends[side])), units(bin, split, side)
        words = lines_of(raw / f"{split}.{side}")
        if tokenizer == "moses":
            words = list(map(moses(side).encode, words))
        assert found == list(map(encode, words))
        read = form_of_side(bin, side)
        assert [line.split() for line in found] == list(
            map(read.tokens, lines_of(raw / f"{split}.{side}"))
        )


def test_every_pair_that_is_dropped_is_listed(raw, tmp_path):
    long = " ".join(["word"] * 1000)
    bad = [("", "leer"), ("only", " \u2028 "), (long, "kurz"), ("a@@ b", "c"), ("x", "a </s> b")]
    bad.append(("one", "zehn " * 10))
    for side, lines in zip(SIDES, zip(*bad, strict=True), strict=True):
        write(raw / f"train.{side}", [*lines, *lines_of(raw / f"train.{side}")])
    said, files = prepared(raw, tmp_path / "bin", tokenizer="none", max_ratio=9, max_words=30)
    assert "train: 46 pairs read from train, 40 kept" in said
    dropped = [line.split("\t") for line in files["dropped.tsv"].decode().splitlines()]
    assert [number for number, _ in dropped] == list("123456")
    facts = ["is empty", "is empty", "30 words", "@@", "</s>", "9 times"]
    assert all(fact in reason for fact, (_, reason) in zip(facts, dropped, strict=True))
    reasons = {reason for _, reason in dropped}
    assert {f"train: {2 if 'empty' in r else 1} dropped: {r}" for r in reasons} <= set(said)
    assert len(units(tmp_path / "bin", "train", "en")) == 40


def test_untokenised_text_is_a_warning(raw, tmp_path):
    put_lines(raw, "train.de", ["Nun, ja, a"])
    said, _ = prepared(raw, tmp_path / "raw bin", **AS_IT_IS)
    (warning,) = (line for line in said if line.startswith("warning: "))
    assert "train.de" in warning and "--tokenizer moses" in warning
    said, _ = prepared(raw, tmp_path / "bin", bpe="none")
    assert not any(line.startswith("warning: ") for line in said)


def test_a_long_line_outside_training_is_kept(raw, tmp_path):
    put_lines(raw, "test.en", [" ".join(["word"] * 251)])
    prepared(raw, tmp_path / "bin")
    assert len(units(tmp_path / "bin", "test", "en")[0].split()) >= 251


def test_line_separators_move_no_line(raw, tmp_path):
    lines = lines_of(raw / "test.en")
    write(raw / "test.en", [f"a\u2028b\x85c\x0cd {line}\r" for line in lines])
    said, _ = prepared(raw, tmp_path / "bin", **AS_IT_IS)
    lengths = [4 + len(line.split()) for line in lines]
    assert [len(line.split()) for line in units(tmp_path / "bin", "test", "en")] == lengths
    assert f"test.en: 5 lines cleaned, {sum(lengths)} words" in said


def test_unknown_units_are_counted(raw, tmp_path):
    put_lines(raw, "test.de", ["Ω Ω Ω"])
    put_lines(raw, "valid.de", ["<unk> Hund"])
    said, _ = prepared(raw, tmp_path / "bin", **AS_IT_IS)
    unknown = {line.split(":")[0]: line.split(", ")[-1] for line in said if "binarised" in line}
    assert unknown["train.de"].startswith("0 ") and unknown["test.de"].startswith("3 ")
    assert any(line.endswith("1 of them <unk> in the text") for line in said)
    said, _ = prepared(raw, tmp_path / "rare", **AS_IT_IS, threshold=1000)
    # fairseq's four, and its padding to a multiple of eight
    assert {"dictionary en: 8 types", "dictionary de: 8 types"} < set(said)


def test_several_tests_and_other_names(raw, tmp_path):
    for side in SIDES:
        for split, name in (("train", "x.train"), ("valid", "dev"), ("test", "t1")):
            (raw / f"{split}.{side}").rename(raw / f"{name}.{side}")
        write(raw / f"t2.{side}", ["läuft & dog"])
    names = {"train": "x.train", "valid": ("dev",), "test": ("t1", "t2")}
    said, files = prepared(raw, tmp_path / "bin", **names)
    assert "test1: 1 pairs read from t2, 1 kept" in said
    assert "test1.en-de.de.bin" in files
    assert units(tmp_path / "bin", "test1", "de")[0].startswith("läuft ")
    (raw / "more").mkdir()  # a file of the same name in another folder
    for side in SIDES:
        write(raw / "more" / f"dev.{side}", ["dog"])
    said, files = prepared(raw, tmp_path / "again", **names | {"test": ("t1", "more/dev")})
    assert "test1: 1 pairs read from more/dev, 1 kept" in said
    assert len(json.loads(files["settings.json"])["sha256"]) == 8


EMPTY_SPLIT = {"valid.en": b"", "valid.de": b""}


@pytest.mark.parametrize(
    "files, changes, facts",
    [
        ({"test.de": b"x\n" * 3}, {}, ["got 3 in {raw}/test.de, and more in the other"]),
        ({"test.de": "a\nb\n \u2028\n".encode()}, {}, ["{raw}/test.de: line 3 is empty"]),
        (EMPTY_SPLIT, {}, ["{raw}/valid.en and {raw}/valid.de", "got none"]),
        ({"test.de": None}, {}, ["cannot read {raw}/test.de: No such file"]),
        ({"test.de": b"a <s> b\n" * 5}, {"tokenizer": "none"}, ["{raw}/test.de: line 1", "<s>"]),
        ({"train.en": b"\n" * 40}, {}, ["expected pairs that can be kept; got none"]),
        ({}, {"bpe": "sentencepiece", "merges": 9999}, ["vocabulary of 9,999", "--merges"]),
        ({}, {"bpe": "none", "merges": 9}, ["--merges 9", "--bpe none"]),
        ({}, {"max_ratio": 0.5}, ["max_ratio", "at least 1; got 0.5"]),
        ({}, {"test": ("valid",)}, ["own file; got train, valid, valid"]),
        ({}, {"source": "de"}, ["two different languages"]),
        ({}, {"target": "zh-cn"}, ["two different languages"]),
    ],
)  # fmt: skip
def test_bad_input_is_refused_and_nothing_is_left(raw, tmp_path, files, changes, facts):
    spoil(raw, files)
    message = refusal_leaving(tmp_path, prepared, raw, tmp_path / "bin", **changes)
    assert all(fact.format(raw=raw) in message for fact in facts)
