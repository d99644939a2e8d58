"""evaluate: sample text from a model or an ensemble."""

import sys
from dataclasses import dataclass
from typing import Any

from fairseq_doc.cli.arguments import ModelOptions, ProgressOptions, ensemble_of, progress_of
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.sampling import sample_text
from fairseq_doc.options import option

EXAMPLE = 'fairseq-doc generate data-bin/ptb --path a.pt --prompt "the company" --sampling-topk 20'


@dataclass(frozen=True, kw_only=True)
class Options(ProgressOptions, ModelOptions):
    """Options of this command."""

    prompt: str = option("text to continue (default: none)", "")
    length: int = option("number of words, or bytes, to draw", 100)
    samples: int = option("number of texts", 1)
    temperature: float = option("T: draw from P^(1/T)", 1.0)
    sampling_topk: int | None = option(
        "draw from the k most probable words, or bytes (default: all)"
    )
    seed: int = option("equal seeds give equal texts", 1)


def run(settings: Options) -> dict[str, Any]:
    """``prompt``, its words or bytes; ``samples``, those drawn for each, with ``</s>``; ``end``,
    the end mark; ``texts``, the prompt and each sample as plain text."""
    check_utf8(settings.prompt)
    ensemble = ensemble_of(settings)
    dictionary, unit = ensemble.dictionary, ensemble.unit
    form = ensemble.form
    prompt = form.tokens(settings.prompt)
    unknown = [word for word in prompt if word not in dictionary]
    if unknown:
        print(
            f"fairseq-doc generate: {unit}s outside the dictionary, read as <unk>: "
            f"{', '.join(unknown)}",
            file=sys.stderr,
        )
    samples = sample_text(
        ensemble,
        prompt,
        settings.length,
        settings.samples,
        settings.temperature,
        settings.sampling_topk,
        settings.seed,
        progress_of(settings),
    )
    texts = [form.text(prompt + sample) for sample in samples]
    return {"prompt": prompt, "samples": samples, "end": dictionary.eos_word, "texts": texts}


def check_utf8(prompt: str) -> None:
    """Refuse bytes that are not UTF-8, which Python passes on as lone surrogates."""
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FairseqDocError(
            f"--prompt is not UTF-8: expected text, got {ascii(prompt[error.start])} at "
            f"{error.start + 1}"
        ) from None


def as_text(result: dict[str, Any]) -> str:
    """The texts without line ends at their ends, an empty line between them."""
    return "\n\n".join(text.rstrip("\n") for text in result["texts"])
