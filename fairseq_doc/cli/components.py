"""analyse: weight, posterior and most probable words of each mixture component, word by word."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_doc.analysis.components import (
    SentenceComponents,
    TextComponents,
    by_frequency,
    summarise,
    text_components,
)
from fairseq_doc.analysis.plotting import MAX_HEAT_MAP_TOKENS, plot_components
from fairseq_doc.cli.arguments import (
    PictureOptions,
    SingleModelOptions,
    TextOptions,
    ensemble_of,
    figures_of_lines,
    unknown_words,
    written_text,
)
from fairseq_doc.cli.outputs import remark, table
from fairseq_doc.errors import require
from fairseq_doc.evaluation.perplexity import Evaluation
from fairseq_doc.files import write_lines
from fairseq_doc.options import option

EXAMPLE = (
    'echo "the company said it will" | fairseq-doc components data-bin/ptb --path a.pt '
    "--picture components.png"
)
SHARES = ("weight", "posterior", "log_prob")
COLUMNS = ("line", "position", "word", "layer", "component", *SHARES, "words")


@dataclass(frozen=True, kw_only=True)
class Options(PictureOptions, TextOptions, SingleModelOptions):
    top_words: int = option(
        "number of words listed per component or layer, for each word and in the summary",
        5,
        least=1,
    )
    min_count: int = option("minimum number of occurrences of a word in the summary", 10, least=1)
    summary: bool = option("print only the summary, for a long text", False)
    tsv: str | None = option(
        "also write a row for each word and component into this file", metavar="FILE", writes=True
    )
    line: int = option("line of the input that --picture plots", 1, least=1, needs="picture")


def run(settings: Options) -> dict[str, Any]:
    """Result: ``tokens``; ``log_prob``, natural logarithm, and ``perplexity``;
    ``word_perplexity``, ``bits_per_character``, ``bits_per_byte`` and ``raw_counts`` of the text as
    written; ``unknown``, counts of words outside the dictionary; ``sentences``, without --summary;
    ``layers``, ``components``, ``kinds`` and ``min_count`` over all sentences; the files ``tsv`` and
    ``picture``.

    A sentence has its ``text`` and ``tokens``, each with ``position`` (1 for the first word in the
    line), ``word``, ``log_prob``, ``layers`` and ``components``. A layer or component has
    ``layer``, ``component``, ``weight``, ``posterior``, ``log_prob`` (its own log P of the word) and
    ``words``, the most probable first. Over all sentences, these are means, and ``words`` are those
    with the largest posteriors, each with ``word``, ``count``, ``weight`` and ``posterior``.
    ``kinds`` has the mean weights and posteriors of the ``layers`` for end marks, unknown words,
    and the other words by the rank of their frequency in training.
    """
    lines, form = settings.read(settings.data)
    tokenized = settings.sentences(lines, form)
    if settings.picture:
        _check_drawn(settings, tokenized)
    ensemble = ensemble_of(settings)
    listed = settings.top_words if settings.tsv or not settings.summary else 0
    text = text_components(ensemble, tokenized, settings.state, listed, settings.max_tokens)
    unknown = Counter(w for words in tokenized for w in words if w not in text.dictionary)
    if unknown:
        remark("components", unknown_words(unknown, form.unit))
    if settings.tsv:
        write_lines(settings.tsv, _rows(text))
    if settings.picture:
        drawn = text.sentences[settings.line - 1]
        plot_components(drawn, text.component_layers, settings.picture)
    total = Evaluation(-text.log_prob, len(text.tokens))
    sentences = [
        {"text": form.text(words), "tokens": list(_tokens(text, sentence))}
        for words, sentence in zip(tokenized, text.sentences, strict=True)
        if not settings.summary
    ]
    summaries = summarise(text, settings.min_count, settings.top_words)
    parts = [{**n, **s} for n, s in zip(_numbers(text), summaries, strict=True)]
    count = len(text.component_layers)
    return {
        "tokens": total.tokens,
        "log_prob": -total.nll,
        "perplexity": total.perplexity,
        **figures_of_lines(lines, tokenized, form, total),
        "unknown": dict(unknown.most_common()),
        **({} if settings.summary else {"sentences": sentences}),
        "layers": parts[count:],
        "components": parts[:count],
        "min_count": settings.min_count,
        "kinds": by_frequency(text),
    }


def _check_drawn(settings: Options, tokenized: Sequence[Sequence[str]]) -> None:
    line, count = settings.line, len(tokenized)
    require(line <= count, "line", f"at most {count}, the lines of the input", line)
    words, expected = len(tokenized[line - 1]), f"a line of at most {MAX_HEAT_MAP_TOKENS} words"
    require(words <= MAX_HEAT_MAP_TOKENS, "line", expected, f"line {line} with {words:,}")


def _numbers(text: TextComponents) -> list[dict[str, int]]:
    """The numbers that identify each component, then each layer."""
    components = enumerate(text.component_layers, start=1)
    return [
        *({"component": number, "layer": layer} for number, layer in components),
        *({"layer": layer} for layer in text.layer_numbers),
    ]


def _tokens(text: TextComponents, sentence: SentenceComponents) -> Iterator[dict[str, Any]]:
    numbers, count = _numbers(text), len(text.component_layers)
    log_probs = sentence.parts[:, :count].log_prob.tolist()
    tables = (tensor.tolist() for tensor in sentence.parts.tensors)
    rows = zip(sentence.words, log_probs, *tables, strict=True)
    for position, (word, log_prob, *values) in enumerate(rows, start=sentence.first):
        parts = []
        for number, *shares, indices in zip(numbers, *values, strict=True):
            words = {"words": [text.dictionary[index] for index in indices]}
            parts.append(number | dict(zip(SHARES, shares, strict=True)) | words)
        token = {"position": position, "word": word, "log_prob": log_prob}
        yield token | {"layers": parts[count:], "components": parts[:count]}


def _rows(text: TextComponents) -> Iterator[str]:
    yield "\t".join(COLUMNS)
    for line, sentence in enumerate(text.sentences, start=1):
        for token in _tokens(text, sentence):
            for part in token["components"]:
                row = {**token, **part, "line": line, "words": " ".join(part["words"])}
                values = (row[name] for name in COLUMNS)
                yield "\t".join(f"{x:.6g}" if isinstance(x, float) else str(x) for x in values)


# ---- as text ----


def as_text(result: dict[str, Any]) -> str:
    """A table for each sentence by layer, or by component if there is only one layer; the summary."""
    shown = "layers" if len(result["layers"]) > 1 else "components"
    lines = []
    for number, sentence in enumerate(result.get("sentences", []), start=1):
        lines += [f"line {number}: {sentence['text']}", *_sentence_table(sentence, shown), ""]
    totals = "{tokens:,} tokens, log-probability {log_prob:.4f}, perplexity {perplexity:.2f}"
    lines += [totals.format(**result), f"as written: {written_text(result)}"]
    lines += ["", *_parts_table(result["components"], component="component", layer="from layer")]
    if shown == "layers":
        lines += ["", *_parts_table(result["layers"], layer="layer")]
        lines += ["", *_kinds_table(result["kinds"])]
    lines += ["", *_words_table(result[shown], shown[:-1], result["min_count"])]
    return "\n".join(lines)


def _sentence_table(sentence: dict[str, Any], shown: str) -> list[str]:
    name = shown[:-1]
    rows = [["word", "log P", name, "weight", "posterior", "own log P", "most probable words"]]
    for token in sentence["tokens"]:
        before = [token["word"], f"{token['log_prob']:.2f}"]
        for part in token[shown]:
            rows.append([*before, str(part[name]), *_means(part), " ".join(part["words"])])
            before = ["", ""]
    return table(rows, "<>>>>><")


def _parts_table(parts: Sequence[dict[str, Any]], **numbers: str) -> list[str]:
    """Means over all words; ``numbers``: {key of a number that identifies a part: its column}."""
    rows = [[*numbers.values(), "weight", "posterior", "own log P"]]
    rows += [[*(str(part[key]) for key in numbers), *_means(part)] for part in parts]
    return table(rows, ">" * len(rows[0]))


def _kinds_table(kinds: Sequence[dict[str, Any]]) -> list[str]:
    layers = [part["layer"] for part in kinds[0]["layers"]]
    titles = [f"{name} of layer {n}" for n in layers for name in SHARES[:2]]
    rows = [["by frequency in training", "tokens", *titles]]
    for kind in kinds:
        shares = [share for part in kind["layers"] for share in _means(part)]
        rows.append([kind["kind"], f"{kind['tokens']:,}", *shares])
    return table(rows, "<" + ">" * (1 + len(titles)))


def _words_table(parts: Sequence[dict[str, Any]], name: str, min_count: int) -> list[str]:
    """The words with the largest posteriors of each part."""
    title = f"largest posteriors, of words that occur at least {min_count} times"
    rows = [
        [str(part[name]), word["word"], f"{word['count']:,}", *_means(word)]
        for part in parts
        for word in part["words"]
    ]
    if not rows:
        return [f"{title}: none"]
    return [f"{title}:", *table([[name, "word", "count", *SHARES[:2]], *rows], "><>>>")]


def _means(part: dict[str, Any]) -> list[str]:
    """Weight, posterior and, where it has one, its own log P."""
    own = [f"{part['log_prob']:.2f}"] if "log_prob" in part else []
    return [f"{part['weight']:.3f}", f"{part['posterior']:.3f}", *own]
