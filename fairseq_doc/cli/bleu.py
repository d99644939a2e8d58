"""evaluate: BLEU and chrF of fairseq-generate's output against raw references, by sacrebleu."""

from dataclasses import dataclass
from typing import Any

from fairseq_doc.cli.scoring_arguments import ScoringOptions, read_texts, report
from fairseq_doc.options import REQUIRED, option
from fairseq_doc.scoring.systems import score_bleu

EXAMPLE = "fairseq-doc bleu plain.txt doc.txt --reference test.de --lang de"


@dataclass(frozen=True, kw_only=True)
class Options(ScoringOptions):
    lang: str = option("language of the references, such as de", REQUIRED)
    lowercase: bool = option("ignore case", False)


def run(settings: Options) -> dict[str, Any]:
    """Result: ``read``, lines on what was read and undone; ``outputs``; ``scores``: for each metric
    its ``signature`` and ``systems``, each with ``score``, ``mean`` and ``interval`` (of the
    bootstrap: the mean and half the width of its 95 % interval), ``p``, the p-value of the
    difference from the first output, and ``ceiling``, the score of the targets after undoing BPE
    and tokenisation."""
    references, systems, read = read_texts(settings)
    scores = score_bleu(systems, references, settings.lang, settings.lowercase, settings.bootstrap)
    return {"read": read, "outputs": settings.outputs, "scores": scores}


def as_text(result: dict[str, Any]) -> str:
    """Lines on what was read, a line of scores for each output, then the signatures."""
    rows = {metric: scores["systems"] for metric, scores in result["scores"].items()}
    signatures = [f"{metric}|{of['signature']}" for metric, of in result["scores"].items()]
    form = "{score:.2f} ({mean:.2f} \u00b1 {interval:.2f})"
    return "\n".join([*report(result, {"": rows}, form), *signatures])
