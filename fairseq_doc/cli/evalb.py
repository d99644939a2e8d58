"""``fairseq-doc evalb``."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain, repeat
from typing import Any

from fairseq_doc.cli.tree_arguments import (
    add_tree_arguments,
    check_readable_again,
    parameters_of,
    report_roots,
    trees_of,
    warn_excluded,
)
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.parsing.bracketing import (
    ERROR,
    SKIPPED,
    Parameters,
    SentenceResult,
    compare,
    f1,
    summarize,
)
from fairseq_doc.parsing.nbest import is_nbest, read_nbest
from fairseq_doc.preparation.trees import Tree, parse_tree, tree_texts

NAME = "evalb"
EXAMPLE = "fairseq-doc evalb test.mrg test.best"
EXCLUDED = ((ERROR, "their words differ"), (SKIPPED, "their parse is empty"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's own."""
    parser.add_argument("gold", help="gold trees in brackets")
    parser.add_argument(
        "test", help="trees of a parser, one for each gold tree, or an n-best file of them"
    )
    add_tree_arguments(parser)
    parser.add_argument("--per-sentence", action="store_true", help="a line for each sentence too")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The summaries ``all`` and, up to the cutoff length ``cutoff_len``, ``short``; at the top also
    the first's ``f1``, ``precision``, ``recall``, ``sentences`` and ``errors``; ``oracle_f1`` of an
    n-best file, whose first candidates all else describes (None for trees); with ``--per-sentence``
    also ``per_sentence``."""
    check_readable_again(args.test)
    parameters = parameters_of(args)
    gold = trees_of(args.gold)
    word_trees = trees_of(args.sentences) if args.sentences else None
    if word_trees is not None and len(word_trees) != len(gold):
        raise FairseqDocError(
            f"{args.sentences}: expected {len(gold):,} trees, as in {args.gold}; got "
            f"{len(word_trees):,}"
        )
    firsts, best, roots = _compare_all(args, gold, word_trees, parameters)
    for status, why in EXCLUDED:
        numbers = [n for n, result in enumerate(firsts, start=1) if result.status == status]
        warn_excluded(numbers, len(firsts), why, NAME)
    report_roots(roots, parameters.delete_label, NAME)
    whole = summarize(firsts)
    result: dict[str, Any] = {
        "f1": whole.f1,
        "precision": whole.precision,
        "recall": whole.recall,
        "oracle_f1": summarize(best).f1 if is_nbest(args.test) else None,
        "sentences": whole.sentences,
        "errors": whole.errors,
        "cutoff_len": parameters.cutoff_len,
        "all": asdict(whole),
        "short": asdict(summarize([r for r in firsts if r.length <= parameters.cutoff_len])),
    }
    if args.per_sentence:
        result["per_sentence"] = [
            asdict(r) | {"recall": r.recall, "precision": r.precision} for r in firsts
        ]
    return result


def _compare_all(
    args: argparse.Namespace,
    gold: Sequence[Tree],
    word_trees: Sequence[Tree] | None,
    parameters: Parameters,
) -> tuple[list[SentenceResult], list[SentenceResult], set[str | None]]:
    """(results of the first candidates, of the best candidates, labels of the roots)."""
    firsts: list[SentenceResult] = []
    best: list[SentenceResult] = []
    roots = {tree.root for tree in gold}
    count = 0
    for trees in _parses(args.test, word_trees):
        count += 1
        if count > len(gold):
            continue  # only counted
        expected = gold[count - 1]
        first = next(trees)
        roots.add(first.root)
        result = compare(expected, first, parameters)
        others = (compare(expected, tree, parameters) for tree in trees)
        firsts.append(result)
        best.append(max((result, *others), key=lambda r: f1(r.matched, r.gold, r.test)))
    if count != len(gold):
        raise FairseqDocError(
            f"expected a parse for each of {len(gold):,} trees in {args.gold}; got {count:,} in "
            f"{args.test} (write (()) where the parser failed)"
        )
    return firsts, best, roots


def _parses(path: str, word_trees: Sequence[Tree] | None) -> Iterator[Iterator[Tree]]:
    """For each sentence its trees, one after another."""

    def parsed(rows: Sequence[tuple[int, str]], word_tree: Tree | None) -> Iterator[Tree]:
        for line, text in rows:
            where = f"{path}: line {line}"
            yield parse_tree(text, where, allow_empty=True, sentence=word_tree)

    every_word_tree = chain(word_trees or (), repeat(None))
    lists: Iterator[list[tuple[int, str]]]
    if is_nbest(path):
        lists = ([(c.line, c.text) for c in candidates] for candidates in read_nbest(path))
    else:
        lists = ([row] for row in tree_texts(path))
    for rows, word_tree in zip(lists, every_word_tree, strict=False):
        yield parsed(rows, word_tree)


def as_text(result: dict[str, Any]) -> str:
    """EVALB's summaries, after its table where asked for."""
    lines = []
    if "per_sentence" in result:
        lines.append(
            "sentence length status recall precision matched gold test crossing words tags"
        )
        for number, r in enumerate(result["per_sentence"], start=1):
            lines.append(
                f"{number:8} {r['length']:6} {r['status']:>7} {r['recall']:6.2f} "
                f"{r['precision']:6.2f} {r['matched']:5} {r['gold']:5} {r['test']:5} "
                f"{r['crossing']:5} {r['words']:5} {r['correct_tags']:5}"
            )
    for key, title in (("all", "all"), ("short", f"at most {result['cutoff_len']} words")):
        lines.append(f"-- {title}")
        for name, value in result[key].items():
            shown = f"{value:.2f}" if isinstance(value, float) else f"{value:,}"
            lines.append(f"{name.replace('_', ' '):21} {shown}")
    if result["oracle_f1"] is not None:
        lines += ["-- best candidate of each list", f"{'f1':21} {result['oracle_f1']:.2f}"]
    return "\n".join(lines)
