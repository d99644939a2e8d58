import math

import pytest
from conftest import refusal
from generated_text import block, write

from fairseq_doc.scoring.generated import GeneratedSentence, read_generated

LOGGING = "2024-05-01 | INFO | fairseq_cli.generate | {'a': 'D-0\t-1\tno'}"


def test_sentences_in_the_order_of_ids_with_all_hypotheses(tmp_path):
    lines = [LOGGING, *block(1, ("b@@ c", "-1.5 -0.25 0"), source="B", target="C", text="bc")]
    lines += ["  12 | INFO | S-0 of nothing", "E-0_0\tx", "A-1\t0-0", "I-1\t3", "D-x\t1\tno"]
    lines += block(0, ("a", "-1 0"), ("", "-7"), source="A", target="")
    lines += ["Generate test with beam=2: BLEU4 = 1.00", " D-0\t-1\tno", "", "P-0 1"]
    sentences = read_generated(write(tmp_path / "o", lines))
    assert sentences == [
        GeneratedSentence(["a", ""], ["a", ""], [[-1, 0], [-7]], "A", ""),
        GeneratedSentence(["b@@ c"], ["bc"], [[-1.5, -0.25, 0]], "B", "C"),
    ]
    assert sentences[0].log_probs == pytest.approx([-math.log(2), -7 * math.log(2)])


@pytest.mark.parametrize(
    "kinds, expected",
    [
        ("H", GeneratedSentence(["a@@ b"], ["a@@ b"], [[]])),  # by a version without D-
        ("D", GeneratedSentence(["ab"], ["ab"], [[]])),
        ("PHD", GeneratedSentence(["a@@ b"], ["ab"], [[-0.5, -0.5, -0.5]])),
    ],
)
def test_kinds_of_lines_that_the_whole_file_lacks(tmp_path, kinds, expected):
    """As grep leaves them; sorted; with CR LF."""
    lines = [line for line in block(0, "a@@ b", text="ab") if line[0] in kinds]
    for own in (lines, sorted(lines), [f"{line}\r" for line in lines]):
        assert read_generated(write(tmp_path / "o", own)) == [expected]


ONE, TWO = block(0, "a", target="A"), block(1, "b", "c", target="B")


@pytest.mark.parametrize(
    "lines, problem",
    [
        (["S-0\ta", "P-0\t-1 0"], "expected the output of fairseq-generate"),
        (ONE + block(3, "b", target=""), "2 of 4 sentences are missing, the first is 1"),
        (ONE + ["S-1\tb", "T-1\tB"], "1 of 2 sentences are missing, the first is 1"),
        (ONE + ONE, "line 6 repeats sentence 0"),
        (ONE + TWO + ONE[2:3], "line 14 repeats sentence 0"),
        (ONE + TWO[1:], "sentence 1 is cut off"),
        (ONE + TWO[:-1], "sentence 1 is cut off"),
        (["H-0\t-1\ta", "P-0\t-1 0", "P-0\t-1 0"], "got 1 H-, 2 P-"),
        (["S-0\ta", "H-0\t-0.3"], "line 2 is cut off"),
        (["D-0\t-0.3\tEin 10%|# | 1/3\r 20%|## | 2/3 Hund"], "line 1 is cut off, or mixed"),
        *((block(0, ("a", f"-1 {n}")), "sentence 0: expected P- lines") for n in ("nan", "inf")),
    ],
)  # fmt: skip
def test_damaged_output_is_refused(tmp_path, lines, problem):
    path = write(tmp_path / "o", lines)
    message = refusal(read_generated, path)
    assert message.startswith(str(path)) and problem in message
