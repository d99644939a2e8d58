"""``fairseq-doc components``."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_doc.cli.arguments import (
    PictureOptions,
    SingleModelOptions,
    bits_a_character,
    ensemble_of,
    progress_of,
)
from fairseq_doc.cli.outputs import named_outputs, output_lines
from fairseq_doc.cli.text_arguments import TextOptions, plain_text, unknown_words
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.components import (
    Parts,
    PartSummary,
    SentenceComponents,
    TextComponents,
    by_frequency,
    summarise,
    text_components,
)
from fairseq_doc.evaluation.perplexity import Evaluation
from fairseq_doc.evaluation.plotting import (
    MAX_HEAT_MAP_TOKENS,
    check_plot_path,
    plot_components,
)
from fairseq_doc.files import check_output, write_lines
from fairseq_doc.options import option, positive

NAME = "components"
EXAMPLE = (
    'echo "the company said it will" | fairseq-doc components data-bin/ptb --path a.pt '
    "--picture components.png"
)
OUTPUTS = ("tsv", "picture")
COLUMNS = (
    "line", "position", "word", "layer", "component", "weight", "posterior", "log_prob", "words",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options(PictureOptions, TextOptions, SingleModelOptions):
    """Of this command.

    Raises:
        FairseqDocError: options that do not belong together.
    """

    top_words: int = option(
        "words listed for a component or a layer, at each word and in the summary", 5, type=positive
    )
    min_count: int = option(
        "how often the text must have a word that the summary lists", 10, type=positive
    )
    summary: bool = option("print the summary alone, as for a long text", False)
    tsv: str | None = option(
        "also write a row for each word and component into this file", metavar="FILE"
    )
    line: int = option("which line of the input --picture draws", 1, type=positive, needs="picture")

    def check_outputs(self) -> None:
        """Raise ``FairseqDocError`` unless the files can be written."""
        if self.picture:
            check_plot_path(self.picture, self.overwrite)
        if self.tsv:
            check_output(self.tsv, self.overwrite)
        written = [os.path.realpath(path) for path in (self.picture, self.tsv) if path]
        if len(set(written)) < len(written):
            raise FairseqDocError(
                f"--picture and --tsv: expected two files; got {self.tsv} for both"
            )

    def check_drawn_line(self, tokenized: Sequence[Sequence[str]]) -> None:
        """Raise ``FairseqDocError`` unless the line to draw is there, and fits into a picture."""
        if self.line > len(tokenized):
            raise FairseqDocError(
                f"--line {self.line}: expected the number of a line of the input; it has "
                f"{len(tokenized)}"
            )
        words = tokenized[self.line - 1]
        tokens = len(words) + 1 - (self.state == "carried" and self.line == 1)
        if not 1 <= tokens <= MAX_HEAT_MAP_TOKENS:
            raise FairseqDocError(
                f"--picture: expected a line of 1 to {MAX_HEAT_MAP_TOKENS} scored words and end marks; "
                f"line {self.line} has {tokens:,}: choose another by --line"
            )


def run(settings: Options) -> dict[str, Any]:
    """``tokens``, their ``log_prob``, natural logarithm, and ``perplexity``; where a token is a byte,
    their ``bits_per_character``; ``unknown``, words outside the dictionary with their counts;
    ``sentences``, unless --summary is given; and over all of them ``layers``, ``components``, ``kinds``
    and the ``min_count`` of --min-count; and ``tsv`` and ``picture``, where they are written.

    A sentence has its ``text`` and its ``tokens``, each with ``position`` (1 is the line's first word),
    ``word``, ``log_prob``, ``layers`` and ``components``. A layer or component has ``layer``,
    ``component``, ``weight``, ``posterior``, ``log_prob`` (its own log P of the word) and ``words``, the
    most probable first. Over all sentences these are means, and ``words`` are those that are due to it
    most, each with ``word``, ``count``, ``weight`` and ``posterior``. ``kinds`` has the mean weights and
    posteriors of the ``layers`` by the frequency of the word in training."""
    settings.check_outputs()
    tokenized, unit = settings.sentences(settings.data)
    if settings.picture:
        settings.check_drawn_line(tokenized)
    ensemble = ensemble_of(settings)
    wanted = settings.top_words if settings.tsv or not settings.summary else 0
    text = text_components(
        ensemble, tokenized, settings.state, wanted, settings.max_tokens, progress_of(settings)
    )
    unknown = Counter(w for words in tokenized for w in words if w not in text.dictionary)
    if unknown:
        remark = unknown_words(Counter(dict(unknown.most_common())), unit)
        print(f"fairseq-doc {NAME}: {remark}", file=sys.stderr)
    if settings.tsv:
        write_lines(settings.tsv, _rows(text))
    if settings.picture:
        drawn = text.sentences[settings.line - 1]
        plot_components(drawn, text.component_layers, settings.picture)
    total = Evaluation(-text.components.log_prob.sum().item(), len(text.tokens))
    result: dict[str, Any] = {
        "tokens": total.tokens,
        "log_prob": -total.nll,
        "perplexity": total.perplexity,
        **bits_a_character(unit, total.bits),
        "unknown": dict(unknown.most_common()),
    }
    if not settings.summary:
        result["sentences"] = [
            {"text": plain_text(words, unit), "tokens": _tokens(text, sentence)}
            for words, sentence in zip(tokenized, text.sentences, strict=True)
        ]
    for name, parts in (("layers", text.layers), ("components", text.components)):
        summaries = summarise(text, parts, settings.min_count, settings.top_words)
        labels = _labels(text)[name]
        result[name] = [
            {**label, **_of_part(summary)} for label, summary in zip(labels, summaries, strict=True)
        ]
    result["min_count"] = settings.min_count
    result["kinds"] = [
        {
            "kind": kind.kind,
            "tokens": kind.tokens,
            "layers": [
                {"layer": layer, "weight": weight, "posterior": posterior}
                for layer, weight, posterior in zip(
                    text.layer_numbers, kind.weights, kind.posteriors, strict=True
                )
            ],
        }
        for kind in by_frequency(text, text.layers)
    ]
    return result | named_outputs(settings, *OUTPUTS)


def _labels(text: TextComponents) -> dict[str, list[dict[str, int]]]:
    """What each layer and each component is called."""
    return {
        "layers": [{"layer": layer} for layer in text.layer_numbers],
        "components": [
            {"component": number, "layer": layer}
            for number, layer in enumerate(text.component_layers, start=1)
        ],
    }


def _of_part(summary: PartSummary) -> dict[str, Any]:
    return {**vars(summary), "words": [vars(share) for share in summary.words]}


def _tokens(text: TextComponents, sentence: SentenceComponents) -> list[dict[str, Any]]:
    """The scored words of a sentence, each with its layers and components."""
    log_probs = sentence.components.log_prob.tolist()
    labels = _labels(text)
    of_layers = _at_tokens(text, sentence.layers, labels["layers"])
    of_components = _at_tokens(text, sentence.components, labels["components"])
    words = sentence.words[sentence.unscored :]
    rows = zip(words, log_probs, of_layers, of_components, strict=True)
    return [
        {
            "position": position,
            "word": word,
            "log_prob": log_prob,
            "layers": layers,
            "components": components,
        }
        for position, (word, log_prob, layers, components) in enumerate(
            rows, start=sentence.unscored + 1
        )
    ]


def _at_tokens(
    text: TextComponents, parts: Parts, labels: Sequence[dict[str, int]]
) -> Iterator[list[dict[str, Any]]]:
    """At each token, the parts of the mixture."""
    tensors = (parts.weights, parts.posteriors, parts.log_probs, parts.words)
    for values in zip(*(tensor.tolist() for tensor in tensors), strict=True):
        yield [
            {
                **label,
                "weight": weight,
                "posterior": posterior,
                "log_prob": log_prob,
                "words": [text.dictionary[index] for index in indices],
            }
            for label, weight, posterior, log_prob, indices in zip(labels, *values, strict=True)
        ]


def _rows(text: TextComponents) -> Iterator[str]:
    """The lines of the TSV file, one for each word and component."""
    yield "\t".join(COLUMNS)
    for line, sentence in enumerate(text.sentences, start=1):
        for token in _tokens(text, sentence):
            for part in token["components"]:
                fields = {**token, **part, "line": line, "words": " ".join(part["words"])}
                yield "\t".join(_field(fields[name]) for name in COLUMNS)


def _field(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# ---- as text ----


def as_text(result: dict[str, Any]) -> str:
    """A table for each sentence, with a row for each word and layer, or component where all come from
    one layer; then the summary."""
    shown = "layers" if len(result["layers"]) > 1 else "components"
    lines = []
    for number, sentence in enumerate(result.get("sentences", []), start=1):
        lines += [f"line {number}: {sentence['text']}", *_sentence_table(sentence, shown), ""]
    totals = "{tokens:,} tokens, log-probability {log_prob:.4f}, perplexity {perplexity:.2f}"
    if "bits_per_character" in result:
        totals += ", {bits_per_character:.4f} bits a character"
    lines.append(totals.format(**result))
    lines += ["", *_parts_table(result["components"], "component")]
    if shown == "layers":
        lines += ["", *_parts_table(result["layers"], "layer"), "", *_kinds_table(result["kinds"])]
    lines += ["", *_words_table(result[shown], shown[:-1], result["min_count"])]
    return "\n".join(lines + output_lines(result, *OUTPUTS))


def _sentence_table(sentence: dict[str, Any], shown: str) -> list[str]:
    header = [
        "word",
        "log P",
        shown[:-1],
        "weight",
        "posterior",
        "own log P",
        "most probable words",
    ]
    rows = [header]
    for token in sentence["tokens"]:
        before = [token["word"], f"{token['log_prob']:.2f}"]
        for part in token[shown]:
            words = " ".join(part["words"])
            rows.append([*before, *_numbers(part, shown[:-1]), words])
            before = ["", ""]
    return _table(rows, "<>>>>><")


def _parts_table(parts: Sequence[dict[str, Any]], name: str) -> list[str]:
    """Means over all words."""
    rows = [
        [name, "from layer"][: 1 + (name == "component")] + ["weight", "posterior", "own log P"]
    ]
    for part in parts:
        layer = [str(part["layer"])] if name == "component" else []
        numbers = _numbers(part, name)
        rows.append([numbers[0], *layer, *numbers[1:]])
    return _table(rows, ">" * len(rows[0]))


def _kinds_table(kinds: Sequence[dict[str, Any]]) -> list[str]:
    layers = [str(part["layer"]) for part in kinds[0]["layers"]]
    rows = [["by frequency in training", "tokens"]]
    rows[0] += [f"{name} of layer {n}" for n in layers for name in ("weight", "posterior")]
    for kind in kinds:
        shares = [
            f"{part[name]:.3f}" for part in kind["layers"] for name in ("weight", "posterior")
        ]
        rows.append([kind["kind"], f"{kind['tokens']:,}", *shares])
    return _table(rows, "<>" + ">" * (2 * len(layers)))


def _words_table(parts: Sequence[dict[str, Any]], name: str, min_count: int) -> list[str]:
    """The words that are due to each part most."""
    title = f"largest posteriors, of words that occur at least {min_count} times"
    rows = [[name, "word", "count", "weight", "posterior"]]
    for part in parts:
        for share in part["words"]:
            shares = [f"{share[key]:.3f}" for key in ("weight", "posterior")]
            rows.append([str(part[name]), share["word"], f"{share['count']:,}", *shares])
    return [f"{title}:", *_table(rows, "><>>>")] if len(rows) > 1 else [f"{title}: none"]


def _numbers(part: dict[str, Any], name: str) -> list[str]:
    shares = [f"{part[key]:.3f}" for key in ("weight", "posterior")]
    return [str(part[name]), *shares, f"{part['log_prob']:.2f}"]


def _table(rows: Sequence[Sequence[str]], alignments: str) -> list[str]:
    """Rows in columns, each aligned to the left (<) or to the right (>)."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:{align}{width}}"
            for cell, align, width in zip(row, alignments, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
