"""evaluate: ROUGE of fairseq-generate's output against references, by rouge-score."""

from typing import Any

from fairseq_doc.cli.scoring_arguments import ScoringOptions, read_texts, report
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
    tables = {
        f"  {stemming:9}": {ROUGES[kind]: rows for kind, rows in kinds.items()}
        for stemming, kinds in result["scores"].items()
    }
    lost = (
        "{words_with_lost_characters:,} of {reference_words:,} words in the references have letters "
        "outside a-z, or # for a digit, which rouge-score ignores".format(**result)
    )
    more = [lost] if result["words_with_lost_characters"] else []
    return "\n".join(report(result, tables, "{f1:.2f} [{low:.2f}, {high:.2f}]", more))
