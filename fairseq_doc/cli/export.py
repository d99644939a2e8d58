"""export: a language model as an ONNX file, for speech recognisers and other programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_doc.cli.arguments import CheckpointOptions
from fairseq_doc.cli.outputs import check_outputs, first_ten
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import load_ensemble
from fairseq_doc.export.tokens import FORMS, match_tokens, read_tokens, table_of
from fairseq_doc.files import whole_file, write_lines
from fairseq_doc.options import REQUIRED, check_ending, option

EXAMPLE = "fairseq-doc export data-bin/ptb --path a.pt --onnx model.onnx"
TABLE_SUFFIX = ".tokens.txt"


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    path: str = option("checkpoint", REQUIRED, reads=True)
    onnx: str = option(
        f"file to write; without --tokens, the token numbers are written to NAME{TABLE_SUFFIX}",
        REQUIRED,
        metavar="NAME.onnx",
    )
    form: str = option(
        "log-probs: log P of every possible next token, given a token and a state; sentence: -log P "
        "of whole sentences",
        FORMS[0],
        choices=FORMS,
    )
    tokens: str | None = option(
        "table of a recogniser's tokens, one token and its number per line; the model uses these "
        "numbers (default: those of the dictionary)",
        metavar="FILE",
        reads=True,
    )
    int8: bool = option("store the matrices in 8 bits, not in float32", False)
    overwrite: bool = option("replace existing files", False)


def run(settings: Options) -> dict[str, Any]:
    """Result: ``files``; ``bytes`` of the model; ``int8``; ``difference``, the largest difference in
    log P from the original model over a few tokens; ``unknown``, the tokens of ``--tokens`` outside
    the dictionary; ``metadata`` of the model."""
    check_ending(settings.onnx, (".onnx",))
    outputs = [Path(settings.onnx)]
    if not settings.tokens:
        outputs.append(outputs[0].with_suffix(TABLE_SUFFIX))
    check_outputs(settings, *outputs)
    try:
        from fairseq_doc.export.file import exported_file
    except ImportError as error:
        raise FairseqDocError(f"{error}: pip install --upgrade onnx onnxruntime") from None
    tokens = read_tokens(settings.tokens) if settings.tokens else None
    ensemble = load_ensemble(settings.path, settings.data, precision="float32")
    dictionary = ensemble.dictionary
    table = table_of(dictionary)
    if tokens is not None:
        table = match_tokens(tokens, dictionary, str(settings.tokens))
    exported = exported_file(ensemble, settings.form, table, settings.int8)
    with whole_file(outputs[0], settings.overwrite, binary=True) as file:
        file.write(exported.data)
        for table_path in outputs[1:]:
            lines = (f"{symbol} {number}" for number, symbol in enumerate(dictionary.symbols))
            write_lines(table_path, lines, settings.overwrite)
    return {
        "files": list(map(str, outputs)),
        "bytes": len(exported.data),
        "int8": settings.int8,
        "difference": exported.difference,
        "unknown": table.unknown,
        "metadata": exported.metadata,
    }


def as_text(result: dict[str, Any]) -> str:
    """A line of facts, and one for tokens outside the dictionary."""
    kind = "int8" if result["int8"] else "float32"
    size = "form {form}, {vocab_size} tokens, state ({num_layers}, N, {hidden_size})"
    lines = [
        f"{result['bytes']:,} bytes, {kind}; {size.format(**result['metadata'])}; largest difference "
        f"in log P from the model, over a few random tokens: {result['difference']:.1e}"
    ]
    if unknown := result["unknown"]:
        scored = f"scored as <unk>: {first_ten(unknown)}"
        lines.append(f"{len(unknown)} tokens are not in the dictionary, {scored}")
    return "\n".join(lines)
