"""evaluate: sample text from a model or an ensemble."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from fairseq_doc.cli.arguments import ModelOptions, ProgressOptions, ensemble_of, unknown_words
from fairseq_doc.cli.outputs import remark
from fairseq_doc.evaluation.sampling import sample_text
from fairseq_doc.options import option

EXAMPLE = 'fairseq-doc generate data-bin/ptb --path a.pt --prompt "the company" --sampling-topk 20'


@dataclass(frozen=True, kw_only=True)
class Options(ProgressOptions, ModelOptions):
    prompt: str = option("text to continue, if any", "")
    length: int = option("number of words or bytes to draw", 100, least=1)
    samples: int = option("number of texts", 1, least=1)
    temperature: float = option("T: draw from P^(1/T)", 1.0)
    sampling_topk: int | None = option(
        "draw from the k most probable words or bytes (default: all)"
    )
    sampling_topp: float | None = option(
        "draw from the smallest set of most probable words whose total probability is at least P, "
        "among those kept by --sampling-topk (default: all)",
        metavar="P",
    )
    allow_unknown: bool = option("also draw <unk>, which is otherwise never drawn", False)
    seed: int = option("random seed; the same seed gives the same texts", 1, least=0)


def run(settings: Options) -> dict[str, Any]:
    """Result: ``prompt``, its words or bytes; ``samples``, the words or bytes drawn for each, with
    ``</s>``; ``end``, the end mark; ``texts``, the prompt with each sample as plain text."""
    ensemble = ensemble_of(settings)
    dictionary, unit, form = ensemble.dictionary, ensemble.unit, ensemble.form
    prompt = form.tokens(settings.prompt)
    if unknown := Counter(word for word in prompt if word not in dictionary):
        remark("generate", unknown_words(unknown, unit, "read"))
    samples = sample_text(
        ensemble,
        prompt,
        settings.length,
        samples=settings.samples,
        temperature=settings.temperature,
        top_k=settings.sampling_topk,
        top_p=settings.sampling_topp,
        allow_unknown=settings.allow_unknown,
        seed=settings.seed,
    )
    texts = [form.text(prompt + sample) for sample in samples]
    return {"prompt": prompt, "samples": samples, "end": dictionary.eos_word, "texts": texts}


def as_text(result: dict[str, Any]) -> str:
    """The texts without trailing newlines, separated by an empty line."""
    return "\n\n".join(text.rstrip("\n") for text in result["texts"])
