"""``fairseq-doc attention``."""

from argparse import Namespace
from pathlib import Path

import torch
from fairseq.data import encoders

from fairseq_doc.cli.arguments import (
    add_model_arguments,
    add_picture_arguments,
    positive,
    read_lines,
)
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.attention import load_translator
from fairseq_doc.evaluation.plotting import check_plot_path, plot_attention
from fairseq_doc.scoring.hypotheses import moses

NAME = "attention"
HELP = "heat map of a translation's attention, source words against output words"
EXAMPLE = (
    'echo "two men sit" | fairseq-doc attention data-bin/en-de --path a.pt --picture attention.png'
)


def add_arguments(parser):
    """Add this subcommand's own."""
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
        help="then split its words (default: not)",
    )
    parser.add_argument("--bpe-codes", help="merges of --bpe subword_nmt")
    parser.add_argument("--sentencepiece-model", help="model of --bpe sentencepiece")
    add_picture_arguments(parser)


def run(args):
    """``source`` and ``output``, symbols with their end marks; ``weights``, a row for each output
    symbol; ``log_prob`` of the output, natural logarithm."""
    if args.picture:
        check_plot_path(args.picture, args.overwrite)
    for bpe, option in (("subword_nmt", "bpe_codes"), ("sentencepiece", "sentencepiece_model")):
        if (args.bpe == bpe) != bool(getattr(args, option)):
            flag = "--" + option.replace("_", "-")
            raise FairseqDocError(
                f"--bpe {bpe} and {flag} belong together; got one without the other"
            )
        if args.bpe == bpe and not Path(getattr(args, option)).is_file():
            raise FairseqDocError(f"{flag}: expected a file; got none at {getattr(args, option)}")
    lines = read_lines(args.input)
    if len(lines) < args.line or not lines[args.line - 1].strip():
        raise FairseqDocError(
            f"expected a sentence in line {args.line} of the input; got "
            f"{'an empty line' if len(lines) >= args.line else f'{len(lines)} lines'}"
        )
    device = "cuda" if torch.cuda.is_available() and not args.cpu else "cpu"
    translator = load_translator(args.path, args.data, args.beam, device)
    text = segmented(lines[args.line - 1], args, translator.task.cfg.source_lang)
    attention = translator.attend(text)
    if args.picture:
        plot_attention(attention, args.picture)
    return {
        "source": attention.source,
        "output": attention.output,
        "weights": attention.weights.tolist(),
        "log_prob": attention.log_prob,
    }


def segmented(text, args, language):
    """The sentence in the symbols of the model, by fairseq's own tokenisers."""
    if args.tokenizer:
        text = moses(language).encode(text)
    if args.bpe:
        bpe = encoders.build_bpe(
            Namespace(
                bpe=args.bpe,
                bpe_codes=args.bpe_codes,
                bpe_separator="@@",
                sentencepiece_model=args.sentencepiece_model,
                sentencepiece_enable_sampling=False,
                sentencepiece_alpha=None,
            )
        )
        text = bpe.encode(text)
    return text


def as_text(result):
    """Each output word with the source word it attended to most."""
    width = max(len(word) for word in ["output", *result["output"]])
    lines = [f"{'output':{width}}  weight  source"]
    for word, weights in zip(result["output"], result["weights"], strict=True):
        most = max(range(len(weights)), key=weights.__getitem__)
        lines.append(f"{word:{width}}  {weights[most]:6.3f}  {result['source'][most]}")
    return "\n".join(lines) + f"\nlog-probability {result['log_prob']:.4f}"
