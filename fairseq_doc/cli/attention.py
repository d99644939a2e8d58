"""analyse: attention of a translation, as a heat map of source words against output words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_doc.analysis.plotting import MAX_HEAT_MAP_TOKENS, plot_attention
from fairseq_doc.cli.arguments import ModelOptions, PictureOptions, unknown_words
from fairseq_doc.cli.outputs import remark, table
from fairseq_doc.errors import FairseqDocError, require
from fairseq_doc.evaluation.translation import SearchOptions, Translator, load_translator
from fairseq_doc.files import text_lines
from fairseq_doc.options import option
from fairseq_doc.preparation.text_form import WORD, TextForm, form_of_side
from fairseq_doc.preparation.tokenization import BPE_KINDS, TOKENIZERS, why_unusable

EXAMPLE = (
    'echo "two men sit" | fairseq-doc attention data-bin/en-de --path a.pt --picture attention.png'
)


@dataclass(frozen=True, kw_only=True)
class Options(PictureOptions, ModelOptions):
    input: str = option("file with the sentence (default: standard input)", "-", reads=True)
    line: int = option("number of the line to read from the input", 1, least=1)
    beam: int = option("hypotheses kept at every step", 5, least=1)
    tokenizer: str | None = option(
        "tokenise the sentence first (default: as in the settings.json of the data folder)",
        choices=TOKENIZERS,
    )
    bpe: str | None = option(
        "split the words into units; with this option or --tokenizer, both settings of the folder are "
        "ignored (default: as in the folder)",
        choices=BPE_KINDS,
    )
    bpe_codes: str | None = option("file of merges, for --bpe subword_nmt", reads=True)
    sentencepiece_model: str | None = option(
        "file of the model, for --bpe sentencepiece", reads=True
    )

    def __post_init__(self) -> None:
        for bpe, name, path in (
            ("subword_nmt", "--bpe-codes", self.bpe_codes),
            ("sentencepiece", "--sentencepiece-model", self.sentencepiece_model),
        ):
            if (self.bpe == bpe) != bool(path):
                raise FairseqDocError(
                    f"--bpe {bpe} and {name} need each other; got only one of them"
                )

    def form(self, language: str) -> TextForm:
        """The conversion of a sentence to symbols of the model, by the options or the data folder."""
        if self.tokenizer is None and self.bpe is None:
            return form_of_side(self.data, language)
        model = self.bpe_codes or self.sentencepiece_model
        tokenizer, bpe = self.tokenizer or "none", self.bpe or "none"
        units = Path(model) if model else None
        return TextForm(WORD, tokenizer, language, bpe, units, marks_unknown=False)


def run(settings: Options) -> dict[str, Any]:
    """Result: that of :func:`attend`, and the file ``picture``."""
    lines = list(text_lines(settings.input))
    sentence = "".join(lines[settings.line - 1 : settings.line]).strip()
    if not sentence:
        got = f"{len(lines)} lines" if settings.line > len(lines) else "an empty line"
        raise FairseqDocError(
            f"expected a sentence in line {settings.line} of the input; got {got}"
        )
    translator = load_translator(
        settings.path, settings.data, settings.device, settings.matmul_precision
    )
    form = settings.form(translator.task.cfg.source_lang)
    if reason := why_unusable(form.words(sentence), form.bpe):
        raise FairseqDocError(
            f"line {settings.line} of the input {reason}; expected plain text: for a sentence that "
            "is already split into units give --tokenizer none --bpe none"
        )
    symbols = form.tokens(sentence)
    unknown = Counter(word for word in symbols if word not in translator.task.source_dictionary)
    if unknown:
        remark("attention", unknown_words(unknown, "unit", "read"))
    if settings.picture:
        most = f"for a line of at most {MAX_HEAT_MAP_TOKENS} units"
        got = f"one of {len(symbols):,}"
        require(len(symbols) <= MAX_HEAT_MAP_TOKENS, "picture", most, got)
    result = attend(translator, symbols, settings.beam)
    if settings.picture:
        plot_attention(result, settings.picture)
    return result


def attend(translator: Translator, symbols: Sequence[str], beam: int = 5) -> dict[str, Any]:
    """Translate one sentence, given by its symbols without an end mark.

    Returns ``source``, S symbols as the models read them, <unk> among them; ``output``, T symbols;
    ``weights``, (T, S), whose rows sum to one, of an ensemble the mean; and ``log_prob`` of the
    output, natural logarithm. The last symbol of both sides is </s>.
    """
    source = translator.source(symbols)
    generator = translator.generator(SearchOptions(beam=beam))
    best = translator.generate([source], generator)[0][0]
    if best["attention"] is None or not best["attention"].numel():
        raise FairseqDocError("expected models with attention; got one without")
    reading, writing = translator.task.source_dictionary, translator.task.target_dictionary
    return {
        "source": [reading[index] for index in source.indices.tolist()],
        "output": [writing[index] for index in best["tokens"].tolist()],
        "weights": best["attention"].t().float().tolist(),
        "log_prob": best["positional_scores"].sum().item(),
    }


def as_text(result: dict[str, Any]) -> str:
    """Each output word with the source word to which it attended most."""
    rows = [["output", "weight", "source"]]
    for word, weights in zip(result["output"], result["weights"], strict=True):
        most = max(range(len(weights)), key=weights.__getitem__)
        rows.append([word, f"{weights[most]:.3f}", result["source"][most]])
    return "\n".join([*table(rows, "<><"), f"log-probability {result['log_prob']:.4f}"])
