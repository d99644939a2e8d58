"""evaluate: BLEU and chrF of fairseq-generate's output against raw references, by sacrebleu."""

from dataclasses import dataclass
from typing import Any

from fairseq_doc.cli.scoring_arguments import ScoringOptions, ceiling_lines, p_text, read_texts
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
    ceilings = {name: scores["systems"] for name, scores in result["scores"].items()}
    lines = [*result["read"], *ceiling_lines(result["outputs"], ceilings)]
    width = max(map(len, result["outputs"]))
    for number, name in enumerate(result["outputs"]):
        line = f"{name:{width}}"
        for metric, scores in result["scores"].items():
            own = scores["systems"][number]
            score = "{score:.2f} ({mean:.2f} \u00b1 {interval:.2f})".format(**own)
            line += f"  {metric} {score}{p_text(own['p'])}"
        lines.append(line)
    lines += [f"{metric}|{scores['signature']}" for metric, scores in result["scores"].items()]
    return "\n".join(lines)
