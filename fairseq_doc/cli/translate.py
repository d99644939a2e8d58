"""evaluate: translate plain text line by line, and find the best beam and length penalty."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fairseq_doc.cli.arguments import ModelOptions, ProgressOptions, unknown_words
from fairseq_doc.cli.outputs import first_ten, remark
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.scoring import MAX_TOKENS
from fairseq_doc.evaluation.translation import (
    SearchOptions,
    Source,
    Translator,
    load_translator,
)
from fairseq_doc.files import text_lines
from fairseq_doc.options import group, option
from fairseq_doc.scoring.decoding import DecodingOptions, table, tune_decoding

EXAMPLE = 'echo "Two men sit." | fairseq-doc translate data-bin/en-de --path a.pt:b.pt'


@dataclass(frozen=True, kw_only=True)
class Options(SearchOptions, ProgressOptions, ModelOptions):
    input: str = option("file to read (default: standard input)", "-", reads="once")
    truncate_source: bool = option(
        "translate only the first units of a line that is too long for the models (default: an "
        "error)",
        False,
    )
    max_tokens: int = option(
        "source units translated at once; changes memory and speed, not results",
        MAX_TOKENS,
        least=1,
    )
    tune: DecodingOptions | None = group("tune", switch="input")


def run(settings: Options) -> dict[str, Any]:
    """Result: ``lines``, each with ``source`` and ``hypotheses``, which have ``text``, ``tokens``
    (with the end mark), ``log_prob`` and ``score``, natural logarithms; ``nbest``, ``beam`` and
    ``lenpen``; ``unknown``, counts of units outside the dictionary; ``seconds`` without loading;
    with --tune-input also ``tuning``: ``metric``, ``value`` of the best pair, and ``tried``, each
    ``beam`` and ``lenpen`` with its ``value``."""
    tuning = settings.tune
    tuning_lines, references = tuning.read() if tuning else ([], [])
    lines = list(text_lines(settings.input))
    if not lines:
        raise FairseqDocError("expected at least one line in the input; got none")
    translator = load_translator(
        settings.path, settings.data, settings.device, settings.matmul_precision
    )
    sources = _sources(translator, lines, settings, settings.input)
    search: SearchOptions = settings
    limit, tuned = settings.max_tokens, {}
    if tuning:
        tuning_sources = _sources(translator, tuning_lines, settings, str(tuning.input))
        search, best = tune_decoding(translator, tuning_sources, references, tuning, search, limit)
        tuned = {"tuning": best}
        rows = table(best["tried"], search)
        remark("translate", "\n".join([f"{best['metric']} of {tuning.input}", *rows]))
    start = time.perf_counter()
    hypotheses = translator.hypotheses(sources, search, limit)
    seconds = time.perf_counter() - start
    remark(
        "translate",
        f"{len(hypotheses):,} lines, beam {search.beam}, length penalty {search.lenpen:g}; "
        f"{seconds:.1f} s",
    )
    longest = search.max_len_b
    if cut := [n for n, own in enumerate(hypotheses, start=1) if own[0].tokens > longest]:
        cut_off = f"cut off by --max-len-b {longest}"
        remark("translate", f"{cut_off}: translation of line {first_ten(cut)}")
    unknown = Counter(unit for source in sources for unit in source.unknown)
    if unknown:
        remark("translate", unknown_words(unknown, "unit", "read"))
    return {
        "lines": [
            {"source": line, "hypotheses": list(map(asdict, own))}
            for line, own in zip(lines, hypotheses, strict=True)
        ],
        "nbest": search.nbest,
        "beam": search.beam,
        "lenpen": search.lenpen,
        "unknown": dict(unknown.most_common()),
        "seconds": seconds,
        **tuned,
    }


def _sources(
    translator: Translator, lines: Sequence[str], settings: Options, path: str
) -> list[Source]:
    name = "standard input" if path == "-" else path
    sources = translator.sources(lines, settings.truncate_source, name)
    if cut := [number for number, source in enumerate(sources, start=1) if source.dropped]:
        most = translator.longest_source - 1
        remark("translate", f"{name}: cut after {most:,} units: line {first_ten(cut)}")
    return sources


def as_text(result: dict[str, Any]) -> str:
    """One translation per line; with --nbest one hypothesis per line: the number of the source line,
    the score and the text, separated by tabs."""
    lines = [line["hypotheses"] for line in result["lines"]]
    if result["nbest"] == 1:
        return "\n".join(best["text"] for best, *_ in lines)
    return "\n".join(
        f"{number}\t{one['score']:.4f}\t{one['text']}"
        for number, hypotheses in enumerate(lines, start=1)
        for one in hypotheses
    )
