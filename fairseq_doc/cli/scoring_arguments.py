"""What score_bleu.py and score_rouge.py share: their arguments, what they read, how they print."""

import json
import logging
import sys
from pathlib import Path

from sacremoses.corpus import NonbreakingPrefixes

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.scoring.hypotheses import (
    AUTO,
    BPE_KINDS,
    TOKENIZERS,
    UNKNOWN,
    read_references,
    read_system,
)

MIN_BOOTSTRAP = 100  # resamples, so that some lie beyond each bound of an interval


def run(parser, arguments, score, as_text):
    """Do what a command is for.

    Args:
        parser: the command's, with ``--lang`` and what it has of its own.
        arguments: of the command line; None for the process's.
        score: (systems, references, args) -> what JSON can hold.
        as_text: (what it gave, systems) -> lines.

    Returns:
        The exit status: 0; 1 for what the user can mend, told in one line.
    """
    _add_arguments(parser)
    args = parser.parse_args(arguments)
    sys.stdout.reconfigure(encoding="utf-8")  # as what is read, whatever the locale
    logging.basicConfig(level=logging.WARNING, force=True)  # of fairseq and of the scorers
    try:
        references, systems = _read_all(args)
    except (FairseqDocError, OSError) as error:
        print(f"{parser.prog.removesuffix('.py')}: error: {error}", file=sys.stderr)
        return 1
    told = _what_was_read(args, references, systems)
    scores = score(systems, references, args)
    if args.json:
        print(json.dumps({"read": told, "outputs": args.outputs, **scores}))
    else:
        print("\n".join([*told, *as_text(scores, systems)]))
    return 0


def _add_arguments(parser):
    """The outputs, the references, and what is to be undone."""
    add = parser.add_argument
    add(
        "outputs",
        nargs="+",
        metavar="OUTPUT",
        help="file of fairseq-generate's; first the baseline",
    )
    add("--reference", required=True, metavar="RAW", help="raw references, one a line")
    found = "found by default, and printed"
    add(
        "--bpe",
        choices=(AUTO, *BPE_KINDS),
        default=AUTO,
        help=f"segmentation to undo; {found}",
    )
    add(
        "--tokenizer",
        choices=(AUTO, *TOKENIZERS),
        default=AUTO,
        help=f"tokenisation to undo; {found}, from the T- lines",
    )
    add(
        "--tokenized-reference",
        action="store_true",
        help="the references exist tokenised only: compare tokenised text with tokenised text",
    )
    add(
        "--allow-unknown",
        action="store_true",
        help="score hypotheses with <unk> or \u2047 as they are, and say how many",
    )
    add(
        "--bootstrap",
        type=int,
        default=1000,
        metavar="N",
        help="resamples of the sentences for intervals and significance (default: 1000)",
    )
    add("--json", action="store_true", help="print one JSON object")


def _read_all(args):
    """(references, [:class:`hypotheses.System`]) of the arguments, all checked."""
    if args.bootstrap < MIN_BOOTSTRAP:
        raise FairseqDocError(
            f"--bootstrap: expected at least {MIN_BOOTSTRAP} resamples; got {args.bootstrap}"
        )
    resolved = [Path(path).resolve() for path in args.outputs]
    if len(set(resolved)) < len(resolved):
        raise FairseqDocError(f"expected other outputs; got {', '.join(args.outputs)}")
    references = read_references(args.reference, args.tokenized_reference)
    unknown = sum(any(mark in line for mark in UNKNOWN) for line in references)
    if unknown and not args.allow_unknown:
        raise FairseqDocError(
            f"{args.reference}: {unknown:,} references hold <unk> or \u2047; expected raw text, or "
            "--allow-unknown to score them as they are"
        )
    systems = [
        read_system(
            path,
            references,
            args.bpe,
            args.tokenizer,
            args.lang,
            args.tokenized_reference,
            args.allow_unknown,
        )
        for path in args.outputs
    ]
    return references, systems


def _what_was_read(args, references, systems):
    """What a reader of the scores must know about the texts, in lines."""
    known = NonbreakingPrefixes().available_langs
    kind = "tokenised, as told" if args.tokenized_reference else "raw"
    lines = [f"references {args.reference}: {len(references):,} lines, {kind}"]
    for system in systems:
        line = f"{system.name}: undone here: {system.undoing}"
        if system.agreeing is not None:
            line += f"; {system.agreeing:,} of {len(references):,} targets are the reference"
        if system.unknown:
            line += f"; {system.unknown:,} hypotheses with an unknown unit, scored as they are"
        lines.append(line)
        if system.undoing.tokenizer == "moses" and args.lang not in known:
            lines.append(f"moses has no abbreviations of {args.lang!r}, English ones stand in")
    return lines
