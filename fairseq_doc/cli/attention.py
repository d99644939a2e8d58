"""``fairseq-doc attention``."""

import argparse
from typing import Any

import torch

from fairseq_doc.cli.arguments import (
    add_model_arguments,
    add_picture_arguments,
    positive,
    read_lines,
)
from fairseq_doc.cli.outputs import named_outputs, output_lines
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.attention import load_translator
from fairseq_doc.evaluation.plotting import check_plot_path, plot_attention
from fairseq_doc.files import check_input
from fairseq_doc.preparation.tokenization import make_segmenter, make_tokenizer

EXAMPLE = (
    'echo "two men sit" | fairseq-doc attention data-bin/en-de --path a.pt --picture attention.png'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_model_arguments(parser, progress=False)
    parser.add_argument(
        "--input", default="-", help="file with the sentence (default: standard input)"
    )
    parser.add_argument(
        "--line", type=positive, default=1, help="which line of the input to read (default: 1)"
    )
    parser.add_argument(
        "--beam", type=positive, default=5, help="hypotheses kept at every step (default: 5)"
    )
    parser.add_argument(
        "--tokenizer", choices=["moses"], help="tokenise the sentence first (default: as it is)"
    )
    parser.add_argument(
        "--bpe",
        choices=["subword_nmt", "sentencepiece"],
        help="then split its words into units (default: no)",
    )
    parser.add_argument("--bpe-codes", help="file of merges, for --bpe subword_nmt")
    parser.add_argument("--sentencepiece-model", help="file of the model, for --bpe sentencepiece")
    add_picture_arguments(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """``source`` and ``output``, symbols with their end marks; ``weights``, a row for each output
    symbol; ``log_prob`` of the output, natural logarithm; ``picture``, where it is drawn."""
    if args.picture:
        check_plot_path(args.picture, args.overwrite)
    check_bpe(args)
    sentence = read_sentence(args.input, args.line)
    device = "cuda" if torch.cuda.is_available() and not args.cpu else "cpu"
    translator = load_translator(args.path, args.data, args.beam, device, args.matmul_precision)
    attention = translator.attend(segmented(sentence, args, translator.task.cfg.source_lang))
    if args.picture:
        plot_attention(attention, args.picture)
    return {
        "source": attention.source,
        "output": attention.output,
        "weights": attention.weights.tolist(),
        "log_prob": attention.log_prob,
        **named_outputs(args, "picture"),
    }


def check_bpe(args: argparse.Namespace) -> None:
    """Raise ``FairseqDocError`` unless ``--bpe`` comes with its file, and the file exists."""
    for bpe, option, path in (
        ("subword_nmt", "--bpe-codes", args.bpe_codes),
        ("sentencepiece", "--sentencepiece-model", args.sentencepiece_model),
    ):
        chosen = args.bpe == bpe
        if chosen != bool(path):
            raise FairseqDocError(
                f"--bpe {bpe} and {option} belong together; got one without the other"
            )
        if chosen:
            check_input(path)


def read_sentence(path: str, number: int) -> str:
    """The line of this number, from 1, of a file.

    Raises:
        FairseqDocError: fewer lines, or an empty one.
    """
    lines = read_lines(path)
    if len(lines) < number:
        raise FairseqDocError(
            f"expected a sentence in line {number} of the input; got {len(lines)} lines"
        )
    if not lines[number - 1].strip():
        raise FairseqDocError(
            f"expected a sentence in line {number} of the input; got an empty line"
        )
    return lines[number - 1]


def segmented(text: str, args: argparse.Namespace, language: str) -> str:
    """The sentence in the symbols of the model, as fairseq's own tokenizers split it."""
    if args.tokenizer:
        text = make_tokenizer(args.tokenizer, language)(text)
    if args.bpe:
        text = make_segmenter(args.bpe, args.bpe_codes or args.sentencepiece_model)(text)
    return text


def as_text(result: dict[str, Any]) -> str:
    """Each output word with the source word it attended to most."""
    width = max(len(word) for word in ["output", *result["output"]])
    lines = [f"{'output':{width}}  weight  source"]
    for word, weights in zip(result["output"], result["weights"], strict=True):
        most = max(range(len(weights)), key=weights.__getitem__)
        lines.append(f"{word:{width}}  {weights[most]:6.3f}  {result['source'][most]}")
    lines.append(f"log-probability {result['log_prob']:.4f}")
    return "\n".join(lines + output_lines(result, "picture"))
