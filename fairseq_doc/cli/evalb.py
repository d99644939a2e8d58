"""parse: bracketing F1 of parse trees, as in EVALB with COLLINS.prm."""

from dataclasses import asdict, dataclass
from typing import Any

from fairseq_doc.cli.tree_arguments import IF_FAILED, TreeOptions, trees_of
from fairseq_doc.errors import check_count
from fairseq_doc.files import check_input
from fairseq_doc.options import REQUIRED, option
from fairseq_doc.parsing import bracketing
from fairseq_doc.parsing.bracketing import SentenceResult, compare, f1, percent, summarize
from fairseq_doc.parsing.nbest import is_nbest, read_lists

EXAMPLE = "fairseq-doc evalb test.mrg test.best"
WHY_EXCLUDED = {bracketing.ERROR: "their words differ", bracketing.SKIPPED: "their parse is empty"}
ROW = (
    "{:8} {length:6} {status:>7} {recall:6.2f} {precision:6.2f} {matched:5} {gold:5} {test:5} "
    "{crossing:5} {words:5} {correct_tags:5}"
)


@dataclass(frozen=True, kw_only=True)
class Options(TreeOptions):
    gold: str = option("gold trees in brackets", REQUIRED, positional=True)
    test: str = option(
        "trees of a parser, one for each gold tree, or an n-best file",
        REQUIRED,
        positional=True,
    )
    per_sentence: bool = option("also print a line for each sentence", False)


def run(settings: Options) -> dict[str, Any]:
    """Result: summaries ``all`` and, for sentences up to the length ``cutoff_len``, ``short``;
    ``f1``, ``precision``, ``recall``, ``sentences`` and ``errors`` of ``all``; ``oracle_f1`` of an
    n-best file (null for trees), where the other figures are those of the first candidates; with
    the option also ``per_sentence``."""
    check_input(settings.test, again=True)
    parameters = settings.parameters
    gold, lists = trees_of(settings.gold), read_lists(settings.test)
    check_count(settings.test, lists, settings.gold, gold, IF_FAILED)
    firsts: list[SentenceResult] = []
    best: list[SentenceResult] = []
    roots = {tree.root for tree in gold}
    for expected, parses in zip(gold, settings.parsed(settings.test, lists), strict=True):
        results = [compare(expected, tree, parameters) for _, tree in parses]
        firsts.append(results[0])
        best.append(max(results, key=_goodness))
        roots.add(parses[0][1].root)
    for status, why in WHY_EXCLUDED.items():
        numbers = [n for n, result in enumerate(firsts, start=1) if result.status == status]
        settings.warn(numbers, len(firsts), f"are excluded from the totals, since {why}")
    settings.report_roots(roots)
    whole = summarize(firsts)
    result: dict[str, Any] = {
        **{name: whole[name] for name in ("f1", "precision", "recall")},
        "oracle_f1": summarize(best)["f1"] if is_nbest(settings.test) else None,
        **{name: whole[name] for name in ("sentences", "errors")},
        "cutoff_len": parameters.cutoff_len,
        "all": whole,
        "short": summarize([r for r in firsts if r.length <= parameters.cutoff_len]),
    }
    if settings.per_sentence:
        result["per_sentence"] = [
            asdict(r)
            | {"recall": percent(r.matched, r.gold), "precision": percent(r.matched, r.test)}
            for r in firsts
        ]
    return result


def _goodness(one: SentenceResult) -> tuple[bool, float, int]:
    """A key whose maximum is the best candidate: one that EVALB scores, with the largest F1, with
    the fewest brackets."""
    return one.status == bracketing.VALID, f1(one.matched, one.gold, one.test), -one.test


def as_text(result: dict[str, Any]) -> str:
    """EVALB's summaries; with ``--per-sentence`` its table before them."""
    lines = []
    if "per_sentence" in result:
        lines = ["sentence length status recall precision matched gold test crossing words tags"]
        rows = enumerate(result["per_sentence"], start=1)
        lines += [ROW.format(number, **of) for number, of in rows]
    for key, title in (("all", "all"), ("short", f"at most {result['cutoff_len']} words")):
        lines.append(f"-- {title}")
        for name, value in result[key].items():
            shown = f"{value:.2f}" if isinstance(value, float) else f"{value:,}"
            lines.append(f"{name.replace('_', ' '):21} {shown}")
    if result["oracle_f1"] is not None:
        lines += ["-- best candidate of each list", f"{'f1':21} {result['oracle_f1']:.2f}"]
    return "\n".join(lines)
