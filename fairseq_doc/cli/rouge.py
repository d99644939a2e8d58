"""evaluate: ROUGE of fairseq-generate's output against references, by rouge-score."""

from typing import Any

from fairseq_doc.cli.scoring_arguments import ScoringOptions, ceiling_lines, p_text, read_texts
from fairseq_doc.scoring.metrics import ROUGES
from fairseq_doc.scoring.systems import count_lost, score_rouge

EXAMPLE = "fairseq-doc rouge plain.txt doc.txt --reference test.tgt"
Options = ScoringOptions


def run(settings: Options) -> dict[str, Any]:
    """Result: ``read``, lines on what was read and undone; ``outputs``; ``scores``: for ``unstemmed``
    and ``stemmed`` text and each type, a list of ``f1``, ``low`` and ``high`` (95 % interval),
    ``p``, the p-value of the difference from the first output, and ``ceiling``, the score of the
    targets after undoing BPE and tokenisation; ``reference_words``;
    ``words_with_lost_characters``."""
    references, systems, read = read_texts(settings)
    words, lost = count_lost(references)
    return {
        "read": read,
        "outputs": settings.outputs,
        "scores": score_rouge(systems, references, settings.bootstrap),
        "reference_words": words,
        "words_with_lost_characters": lost,
    }


def as_text(result: dict[str, Any]) -> str:
    """What was read and what rouge-score ignores, then two lines of scores for each output."""
    unstemmed = {ROUGES[kind]: rows for kind, rows in result["scores"]["unstemmed"].items()}
    lines = [*result["read"], *ceiling_lines(result["outputs"], unstemmed)]
    if result["words_with_lost_characters"]:
        lines.append(
            "{words_with_lost_characters:,} of {reference_words:,} words in the references have "
            "letters outside a-z, or # for a digit, which rouge-score ignores".format(**result)
        )
    width = max(map(len, result["outputs"]))
    for number, name in enumerate(result["outputs"]):
        for stemming, kinds in result["scores"].items():
            line = f"{name:{width}}  {stemming:9}"
            for kind, title in ROUGES.items():
                own = kinds[kind][number]
                score = "{f1:.2f} [{low:.2f}, {high:.2f}]".format(**own)
                line += f"  {title} {score}{p_text(own['p'])}"
            lines.append(line)
    return "\n".join(lines)
