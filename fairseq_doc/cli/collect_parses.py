"""parse: n-best parse trees from the symbols that an encoder-decoder generated."""

from dataclasses import dataclass
from typing import Any

from fairseq_doc.cli.tree_arguments import trees_of
from fairseq_doc.files import write_lines
from fairseq_doc.options import REQUIRED, option
from fairseq_doc.parsing.nbest import nbest_lines
from fairseq_doc.parsing.outputs import KINDS, candidate_lists
from fairseq_doc.scoring.generated import read_generated

EXAMPLE = "fairseq-doc collect-parses test.out --sentences trees/test.mrg --output test.nbest"


@dataclass(frozen=True, kw_only=True)
class Options:
    generated: str = option(
        "output of fairseq-generate, with or without --nbest",
        REQUIRED,
        positional=True,
        metavar="OUT",
        reads=True,
    )
    sentences: str = option(
        "trees of the same sentences, whose words and tags are used",
        REQUIRED,
        metavar="TREES",
        reads=True,
    )
    output: str = option("n-best file to write", REQUIRED, metavar="NBEST", writes=True)
    overwrite: bool = option("replace an existing output", False)


def run(settings: Options) -> dict[str, Any]:
    """Result: the numbers of ``sentences`` and ``outputs``; of outputs that are ``well_formed``,
    ``repaired`` (brackets or words) and ``dropped`` (another number of words); ``first_...``, the
    same for the first output of each sentence; ``flat_trees``, sentences without another tree; and
    ``output``, the file."""
    sentences, outputs = trees_of(settings.sentences), read_generated(settings.generated)
    lists, counts = candidate_lists(outputs, sentences, settings.generated)
    write_lines(settings.output, nbest_lines(lists), settings.overwrite)
    return {"sentences": len(lists), "outputs": sum(counts[k] for k in KINDS), **counts}


def as_text(result: dict[str, Any]) -> str:
    """The counts in one line."""
    every = _shares(result, "", result["outputs"])
    firsts = _shares(result, "first_", result["sentences"])
    return (
        f"{result['sentences']:,} sentences, {result['outputs']:,} outputs: {every}; first "
        f"outputs: {firsts}; {result['flat_trees']:,} sentences have only a flat tree"
    )


def _shares(result: dict[str, Any], prefix: str, total: int) -> str:
    counts = [(result[prefix + kind], kind.replace("_", "-")) for kind in KINDS]
    return ", ".join(f"{count:,} {kind} ({count / total:.1%})" for count, kind in counts)
