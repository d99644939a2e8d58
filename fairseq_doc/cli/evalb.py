"""``fairseq-doc evalb``."""

import os
import sys
from dataclasses import asdict, replace
from itertools import chain, repeat

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import text_lines
from fairseq_doc.parsing.bracketing import (
    ERROR,
    SKIPPED,
    Parameters,
    compare,
    f1,
    read_parameters,
    summarize,
)
from fairseq_doc.parsing.nbest import is_nbest, read_nbest
from fairseq_doc.preparation.trees import ROOTS, parse_tree, read_trees, tree_texts

NAME = "evalb"
HELP = "bracketing F1 of parse trees, as EVALB with COLLINS.prm gives it"
EXAMPLE = "fairseq-doc evalb test.mrg test.best"
SHOWN = 10  # sentences with an error that are named on standard error


def add_arguments(parser):
    """Add this subcommand's own."""
    parser.add_argument("gold", help="gold trees in brackets")
    parser.add_argument(
        "test", help="trees of a parser, one for each gold tree, or an n-best file of them"
    )
    add_parameter_arguments(parser)
    parser.add_argument("--per-sentence", action="store_true", help="a line for each sentence too")


def add_parameter_arguments(parser):
    """How brackets are compared."""
    parser.add_argument(
        "--prm",
        help="EVALB's parameter file (default: as COLLINS.prm, and a quote that only one side deletes is "
        "kept)",
    )
    parser.add_argument(
        "--strip-root",
        action="store_true",
        help="do not count brackets S1, ROOT or without a label, as TOP",
    )
    parser.add_argument(
        "--sentences",
        metavar="TREES",
        help="trees, one a sentence, of which the words and tags are taken, for a parser that writes none "
        "of its own (RNNG): a bracket around a single word is a tag where it is XX or the sentence's own",
    )


def parameters_of(args):
    """EVALB's parameters as told."""
    parameters = read_parameters(args.prm) if args.prm else Parameters()
    if args.strip_root:
        parameters = replace(parameters, delete_label=(*parameters.delete_label, *ROOTS))
    return parameters


def trees_of(path):
    """The trees of a file as a list; None of None."""
    return None if path is None else [tree for _, tree in read_trees(path)]


def check_readable_again(path):
    """Raise ``FairseqDocError`` for no file, and for no plain file, since lists are read more than once."""
    if path == "-" or (os.path.exists(path) and not os.path.isfile(path)):
        raise FairseqDocError(f"{path}: expected a plain file, since it is read more than once")
    next(text_lines(path), None)  # whether it can be read


def run(args):
    """The summaries ``all`` and, up to the cutoff length ``cutoff_len``, ``short``; of all also at the top
    ``f1``, ``precision``, ``recall``, ``sentences`` and ``errors``; ``oracle_f1`` of an n-best file, whose
    first candidates the rest describes (None without); where asked for ``per_sentence``."""
    check_readable_again(args.test)
    parameters = parameters_of(args)
    gold, sentences = trees_of(args.gold), trees_of(args.sentences)
    if sentences is not None and len(sentences) != len(gold):
        raise FairseqDocError(
            f"{args.sentences}: expected {len(gold):,} trees, as in {args.gold}; got {len(sentences):,}"
        )
    results, best, roots = [], [], {tree.root for tree in gold}
    for number, candidates in enumerate(_parses(args.test, sentences)):
        if number < len(gold):
            first = next(candidates)
            roots.add(first.root)
            results.append(compare(gold[number], first, parameters))
            others = (compare(gold[number], tree, parameters) for tree in candidates)
            best.append(max((results[-1], *others), key=lambda r: f1(r.matched, r.gold, r.test)))
        else:
            results.append(None)
    if len(results) != len(gold):
        raise FairseqDocError(
            f"expected a parse for each of {len(gold):,} trees in {args.gold}; got {len(results):,} in "
            f"{args.test} (where a parser fails, (()) stands for no parse)"
        )
    whole = summarize(results)
    _report(results)
    tell_roots(roots, parameters, NAME)
    result = {
        "f1": whole.f1,
        "precision": whole.precision,
        "recall": whole.recall,
        "oracle_f1": summarize(best).f1 if is_nbest(args.test) else None,
        "sentences": whole.sentences,
        "errors": whole.errors,
        "cutoff_len": parameters.cutoff_len,
        "all": asdict(whole),
        "short": asdict(summarize([r for r in results if r.length <= parameters.cutoff_len])),
    }
    if args.per_sentence:
        result["per_sentence"] = [
            asdict(r) | {"recall": r.recall, "precision": r.precision} for r in results
        ]
    return result


def _parses(path, sentences):
    """For each sentence its trees, one after another."""
    given = repeat(None) if sentences is None else chain(sentences, repeat(None))
    if is_nbest(path):
        for candidates, sentence in zip(read_nbest(path), given, strict=False):
            yield (parse_tree(c.text, f"{path}: line {c.line}", True, sentence) for c in candidates)
    else:
        for (line, text), sentence in zip(tree_texts(path), given, strict=False):
            yield iter((parse_tree(text, f"{path}: line {line}", True, sentence),))


def _report(results):
    """What the totals leave out, on standard error."""
    for status, why in ((ERROR, "their words differ"), (SKIPPED, "their parse is empty")):
        numbers = [n for n, result in enumerate(results, start=1) if result.status == status]
        tell_left_out(numbers, len(results), why, NAME)


def tell_left_out(numbers, sentences, why, command):
    """Which sentences are in no total, on standard error."""
    if numbers:
        named = ", ".join(map(str, numbers[:SHOWN])) + ", ..." * (len(numbers) > SHOWN)
        print(
            f"fairseq-doc {command}: WARNING: {len(numbers):,} of {sentences:,} sentences are in no "
            f"total, since {why}: sentence {named}",
            file=sys.stderr,
        )


def tell_roots(labels, parameters, command):
    """Which roots count as brackets, on standard error; ``labels`` of trees' roots, or None."""
    counted = {*labels} - {None, *parameters.delete_label}
    if counted:
        print(
            f"fairseq-doc {command}: the root {', '.join(map(repr, sorted(counted)))} counts as a "
            "bracket, as EVALB has it; --strip-root leaves it out",
            file=sys.stderr,
        )


def as_text(result):
    """EVALB's summaries, and its table where asked for."""
    lines = []
    if "per_sentence" in result:
        lines.append(
            "sentence length status recall precision matched gold test crossing words tags"
        )
        for number, r in enumerate(result["per_sentence"], start=1):
            lines.append(
                f"{number:8} {r['length']:6} {r['status']:>7} {r['recall']:6.2f} {r['precision']:6.2f} "
                f"{r['matched']:5} {r['gold']:5} {r['test']:5} {r['crossing']:5} {r['words']:5} "
                f"{r['correct_tags']:5}"
            )
    for key, title in (("all", "all"), ("short", f"at most {result['cutoff_len']} words")):
        lines.append(f"-- {title}")
        for name, value in result[key].items():
            shown = f"{value:.2f}" if isinstance(value, float) else f"{value:,}"
            lines.append(f"{name.replace('_', ' '):21} {shown}")
    if result["oracle_f1"] is not None:
        lines += ["-- best candidate of each list", f"{'f1':21} {result['oracle_f1']:.2f}"]
    return "\n".join(lines)
