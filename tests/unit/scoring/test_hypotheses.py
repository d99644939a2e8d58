import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation import hypotheses
from fairseq_doc.scoring.hypotheses import (
    Undoing,
    bare,
    find_undoing,
    looks_tokenized,
    moses,
    read_generated,
    read_references,
    read_system,
    text_lines,
)

RAW = {
    "en": ["Tom's dog, a well-known one, sleeps.", 'He said: "No & no".', "It costs $3,500 (new)."],
    "de": [
        "Der Hund, ein U-Bahn-Hund, schläft.",
        "Er sagte: „Nein“.",
        "Es kostet 3,50 Euro (neu).",
    ],
    "fr": [
        "L'eau est-elle froide ?",
        "Oui ! Un chien, un chat ; c'est tout.",
        "Il dort : « oui ».",
    ],
}


def block(number, text, target=None, score=-0.5, *, d_text=None, source="x"):
    """What fairseq-generate prints of one sentence."""
    lines = [f"S-{number}\t{source}"] + ([] if target is None else [f"T-{number}\t{target}"])
    lines += [f"H-{number}\t{score}\t{text}"]
    lines += [f"D-{number}\t{score}\t{text if d_text is None else d_text}"]
    return [*lines, f"P-{number}\t-0.5 -0.5"]


def write(path, lines):
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def generated(folder, texts, targets=None):
    blocks = [block(n, text, targets and targets[n]) for n, text in enumerate(texts)]
    return write(folder / "out.txt", [line for lines in blocks for line in lines])


def refusal(function, *arguments, **keywords):
    with pytest.raises(FairseqDocError) as caught:
        function(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_best_hypotheses_in_the_order_of_ids(tmp_path):
    lines = ["2024-05-01 | INFO | fairseq_cli.generate | {'a': 'D-0\t-1\tno'}", *block(2, "c", "C")]
    lines += [*block(0, "a", "A", -0.25), "H-0\t-0.75\tworse", "D-0\t-0.75\tworse", "P-0\t-1"]
    lines += ["  12 | INFO | D-1 of nothing", *block(1, "", "B"), "E-1_0\tx", "A-1\t0-0", "I-1\t3"]
    lines += ["Generate test with beam=5: BLEU4 = 1.00", "D-x\t1\tno", " D-0\t-1\tno", ""]
    result = read_generated(write(tmp_path / "o", lines))
    assert result.hypotheses == ["a", "", "c"]
    assert result.targets == ["A", "B", "C"]


def test_what_generate_itself_undid_is_taken(tmp_path):
    lines = block(0, "a@@ b .", "ab.", d_text="ab.")
    assert read_generated(write(tmp_path / "o", lines)).hypotheses == ["ab."]
    only_h = [line for line in lines if not line.startswith("D")]
    assert read_generated(write(tmp_path / "o", only_h)).hypotheses == ["a@@ b ."]


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\t", codec="utf-8"))), st.randoms())
def test_every_text_comes_back(tmp_path_factory, texts, random):
    blocks = [block(number, text, text) for number, text in enumerate(texts)]
    random.shuffle(blocks)
    path = write(tmp_path_factory.mktemp("o") / "o", [line for lines in blocks for line in lines])
    if texts:
        assert read_generated(path).hypotheses == read_generated(path).targets == texts
    else:
        assert "got none (--quiet" in refusal(read_generated, path)


@pytest.mark.parametrize(
    "lines, told",
    [
        (["nothing"], "expected fairseq-generate's output, with D- lines; got none"),
        (block(0, "a") + block(3, "b"), "2 of 4 sentences are missing, the first is 1"),
        (
            block(0, "a") + block(1, "b") + block(0, "c"),
            "sentence 0 is there twice, again in line 9",
        ),
        (block(0, "a") + block(0, "c"), "sentence 0 is there twice, again in line 5"),
        (
            block(0, "a", "b") + block(1, "a"),
            "expected a target (T-) for each of 2 hypotheses; got 1",
        ),
        (["S-0\ta", "H-0\t-0.3"], "line 2 is cut off"),
        (["D-0\t-0.3\tEin 10%|# | 1/3\r 20%|## | 2/3 Hund"], "line 1 is mixed with a progress bar"),
    ],
)
def test_damaged_output_is_refused(tmp_path, lines, told):
    assert told in refusal(read_generated, write(tmp_path / "o", lines))


def test_lines_end_with_a_line_feed_alone(tmp_path):
    (tmp_path / "t").write_bytes("a\u2028b\x85c\rd\r\ne".encode())
    assert list(text_lines(tmp_path / "t")) == ["a\u2028b\x85c\rd\r", "e"]
    (tmp_path / "t").write_bytes(b"gut\ngr\xf6\xdfer\n")
    assert "line 2 is not UTF-8: byte 0xf6 at 3" in refusal(list, text_lines(tmp_path / "t"))
    assert "cannot read" in refusal(list, text_lines(tmp_path / "none"))


@pytest.mark.parametrize("language", RAW)
def test_raw_text_passes_and_tokenised_text_is_refused(tmp_path, language):
    path = write(tmp_path / "raw", RAW[language])
    assert read_references(path) == RAW[language]
    tokens = [moses(language).encode(line) for line in RAW[language]]
    path = write(tmp_path / "tokens", tokens)
    assert "looks tokenised (line 1)" in refusal(read_references, path)
    assert read_references(path, tokenized=True) == tokens


def test_a_few_stray_blanks_are_not_tokenisation():
    assert not looks_tokenized(["A dog sleeps."] * 9 + ["A cat , too ."] * 2)
    assert looks_tokenized(["A dog sleeps."] * 9 + ["A cat , too ."] * 3)
    assert not looks_tokenized(["no punctuation at all"])


@pytest.mark.parametrize(
    "lines, told",
    [
        ([], "expected references, one a line; got an empty file"),
        (["a", " ", "b"], "line 2 is empty"),
        (["a", "un@@ do"], "line 2 holds a mark of BPE"),
        (["a", "\u2581un do"], "line 2 holds a mark of BPE"),
    ],
)
def test_references_that_cannot_be_compared_with(tmp_path, lines, told):
    assert told in refusal(read_references, write(tmp_path / "r", lines))


def segmented(line, bpe):
    """The line cut into units of two characters."""
    if bpe == "none":
        return line
    if bpe == "sentencepiece":
        line = "\u2581" + line.replace(" ", "\u2581")
        return " ".join(line[i : i + 2] for i in range(0, len(line), 2))
    words = line.split(" ")
    units = [[word[i : i + 2] for i in range(0, len(word), 2)] for word in words]
    return " ".join("@@ ".join(parts) for parts in units)


@pytest.mark.parametrize("bpe", hypotheses.BPE_KINDS)
@pytest.mark.parametrize("tokenizer", hypotheses.TOKENIZERS)
@pytest.mark.parametrize("language", RAW)
def test_what_was_done_is_found_and_undone(tmp_path, bpe, tokenizer, language):
    encode = moses(language).encode if tokenizer == "moses" else str
    lines = [segmented(encode(line), bpe) for line in RAW[language]]
    path = generated(tmp_path, lines, lines)
    system = read_system(path, RAW[language], language=language)
    assert system.undoing == Undoing(bpe, tokenizer, language)
    assert system.agreeing == 3 and system.unknown == 0
    assert system.hypotheses == Undoing(bpe, tokenizer, language)(lines)
    if language != "fr":  # Moses' rules of French put one blank less into « »
        assert system.hypotheses == RAW[language]
    told = find_undoing(read_generated(path), RAW[language], bpe, tokenizer, language)
    assert told == system.undoing


def test_without_targets_the_tokenizer_must_be_told(tmp_path):
    path = generated(tmp_path, [moses("de").encode(line) for line in RAW["de"]])
    assert "give --tokenizer moses or" in refusal(read_system, path, RAW["de"], language="de")
    system = read_system(path, RAW["de"], tokenizer="moses", language="de")
    assert system.hypotheses == RAW["de"] and system.agreeing is None
    told = refusal(read_system, path, RAW["de"], tokenizer="none", language="de")
    assert "looks tokenised after undoing nothing (sentence 0)" in told
    tokens = read_generated(path).hypotheses
    system = read_system(path, tokens, tokenizer="none", language="de", tokenized=True)
    assert system.hypotheses == tokens


def test_marks_that_are_left_are_refused(tmp_path):
    path = generated(tmp_path, ["un@@ done", "b", "c"])
    told = refusal(read_system, path, RAW["en"], bpe="none", tokenizer="none")
    assert "sentence 0 holds a mark of BPE, @@ or \u2581, after undoing nothing" in told
    path = generated(tmp_path, ["a", "\u2581un done", "c"])
    told = refusal(read_system, path, RAW["en"], bpe="subword_nmt", tokenizer="none")
    assert "sentence 1 holds a mark of BPE" in told


@pytest.mark.parametrize("mark", ["<unk>", "\u2047"])
def test_unknown_marks_are_refused_or_counted(tmp_path, mark):
    path = generated(tmp_path, ["a", f"un@@ {mark}", f"{mark} {mark}"])
    told = refusal(read_system, path, RAW["en"], tokenizer="none")
    assert "2 hypotheses hold a mark for an unknown unit" in told and "sentence 1" in told
    system = read_system(path, RAW["en"], tokenizer="none", allow_unknown=True)
    assert system.unknown == 2 and system.hypotheses[1] == f"un{mark}"


def test_counts_that_differ_are_refused(tmp_path):
    path = generated(tmp_path, ["a", "b"])
    told = refusal(read_system, path, RAW["en"], tokenizer="none")
    assert "got 3 references and 2 hypotheses" in told


def test_the_references_of_another_split_are_refused(tmp_path):
    path = generated(tmp_path, RAW["de"], RAW["de"])
    told = refusal(read_system, path, RAW["en"], language="de")
    assert "3 of 3 generated targets differ from the reference, the first in sentence 0" in told
    shifted = RAW["de"][1:] + RAW["de"][:1]
    assert "differ from the reference" in refusal(read_system, path, shifted, language="de")
    one = [RAW["de"][0].upper(), "Er sagte <<unk>>", "anders"]  # case and unknown words agree
    assert read_system(generated(tmp_path, RAW["de"], one), RAW["de"]).agreeing == 2


@given(st.lists(st.sampled_from(['"No"', "Tom's", "a-b", "[x]", "a|b", "<b>", "x,", "end."])))
def test_bare_is_the_same_for_raw_and_tokenised_text(words):
    line = " ".join(words)
    assert bare(moses("en").encode(line)) == bare(line)
