"""Write docs/options.md, which lists every option of the package, from the code that defines them.

python scripts/make_options.py            write the page
python scripts/make_options.py --check    exit with status 1 if the page is stale
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from omegaconf import MISSING as REQUIRED

from fairseq_doc.cli.main import make_parser
from fairseq_doc.criterions.doc_cross_entropy import DocCrossEntropyConfig
from fairseq_doc.models import lstm_doc_lm, lstm_luong_doc, lstm_melis_lm
from fairseq_doc.optim.averaged_weights import AveragedAdamConfig
from fairseq_doc.optim.nt_asgd import NTASGDConfig
from fairseq_doc.optim.plateau import PlateauScheduleConfig
from fairseq_doc.tasks.bptt_language_modeling import BpttLanguageModelingConfig

PAGE = Path(__file__).resolve().parent.parent / "docs" / "options.md"

INTRODUCTION = """# Options

This page lists the options that this package adds to fairseq's commands, and those of `fairseq-doc`. It is generated from
the code by `scripts/make_options.py`; a test fails if it is stale. fairseq prints all options of a training with
`fairseq-train --user-dir fairseq_doc --arch lstm_doc_lm --task bptt_language_modeling --help`. `fairseq-hydra-train` takes
the same names in a YAML file, with `_` for `-`: `model: {_name: lstm_doc_lm_ptb, doc_components: "0,0,5,15"}`.
"""
LANGUAGE_MODEL_NOTES = """`--doc-components 0,0,0,15` is a mixture of softmaxes (MoS). `0,0,0,1` is a single softmax of
tanh(W_1 h^3); with `--plain-output` it is a plain AWD-LSTM. The presets `lstm_doc_lm_ptb`, `lstm_doc_lm_wt2`,
`lstm_mos_lm_ptb` and `lstm_awd_lm_ptb` have the published sizes (22.8M, 36.6M, 21.5M and 24.2M parameters); those that end
in `_small` are meant for two cores.
"""
MELIS_NOTES = """[melis.md](melis.md) describes these models. The presets have the published sizes (`_ptb_10m`: 9,997,549
parameters with 10,001 words) and the dropout rates of deepmind/lamb's scripts. Embedding ratios above 1 count as 1.
"""
ENCODER_DECODER_NOTES = """`--doc-components 0,0,0,1` with `--plain-output` is the base system, a single softmax. The presets
`lstm_luong_doc_iwslt16` (width 500) and `lstm_luong_doc_gigaword` (400) have the published widths;
`lstm_luong_doc_small` (256) is meant for two cores.
"""
TASK_NOTES = """Options of fairseq that have a special meaning in this task:

| option | meaning |
|---|---|
| `--batch-size` | number of columns: of each worker in training, of all in `fairseq-eval-lm` (default there: 1) |
| `--batch-size-valid` | number of columns of all workers in validation during training |
| `--update-freq` k | k consecutive windows make one update; their total length / (k bptt) scales its learning rate |

Options of fairseq's task `language_modeling` that this task refuses:

| option | instead |
|---|---|
| `--max-tokens`, in training | `--batch-size` columns, `--bptt` steps |
| `--skip-remainder-batch` | all tokens of a column are read |
| `--tokens-per-sample`, `--context-window` | `--bptt` in training, `--eval-window` in evaluation |
| `--sample-break-mode`, `--shorten-method` | the text is one stream; `fairseq-doc score` scores each sentence from a zero state |
| `--add-bos-token` | each line follows the end mark of the previous line |
"""
CRITERION_NOTES = """Label smoothing is exact for a mixture in both architectures. The published lambda, 0.001, was tuned
for `--doc-balance published`; `paper` is Eq. 13, which is about J - 1 times weaker.
"""
COMMANDS_NOTES = """Every command has `--json`, which prints the result as one JSON object, and `--help`. Results are written
to standard output, progress and remarks to standard error. The exit status is 1 for an error that you can
correct, 70 for any other, 2 for a command line that cannot be parsed, 130 after Ctrl-C and 143 after SIGTERM.
"""


def code(text: object) -> str:
    """Text as Markdown code inside a table."""
    return f"`{text}`".replace("|", "\\|")


def prose(text: str) -> str:
    """A help text as Markdown inside a table, with options as code."""
    words = re.sub(r"([*<|\\])", r"\\\1", " ".join(text.split()))
    return re.sub(r"(?<![\w-])(--[a-z][a-z-]*)", r"`\1`", words)


def value(text: str) -> str:
    """A default value: a single word as code, several words as prose."""
    return prose(text) if " " in text or not text else code(text)


def table(rows: Iterable[tuple[str, str, str]]) -> str:
    """A Markdown table of option, default and meaning."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    lines += [f"| {option} | {default} | {meaning} |" for option, default, meaning in rows]
    return "\n".join(lines) + "\n"


def split_default(text: str) -> tuple[str, str]:
    """A help text without a final ``(default: X)``, and X or ``""``."""
    match = re.fullmatch(r"(.*?\S)\s*\(default: (.*?)\)", " ".join(text.split()))
    return (match[1], match[2]) if match else (text, "")


def config_rows(config: type) -> Iterator[tuple[str, str, str]]:
    """The options of a fairseq dataclass. Fields without help interpolate other options."""
    for entry in fields(config):
        if text := entry.metadata.get("help"):
            meaning, default = split_default(text)
            option = "DATA" if entry.name == "data" else _typed(entry.name)
            kind: Any = entry.type
            is_enum = isinstance(kind, type) and issubclass(kind, Enum)
            choices = _one_of(choice.value for choice in kind) if is_enum else ""
            yield code(option), value(default) or _default_of(entry), prose(meaning) + choices


def _typed(name: str) -> str:
    return "--" + name.replace("_", "-")


def _one_of(choices: Iterable[str]) -> str:
    return f"; one of {', '.join(map(code, choices))}"


def _default_of(entry: Field) -> str:
    default = entry.default
    if default is MISSING or default is None:
        return ""
    if isinstance(default, bool):
        return "on" if default else "off"
    return "required" if default == REQUIRED else code(default)


def preset_table(presets: dict[str, dict]) -> str:
    """The table of what each preset changes."""
    lines = ["| preset | differences from the defaults |", "|---|---|"]
    for name, differences in presets.items():
        options = []
        for field, value in differences.items():
            option = _typed(field)
            options.append(code(option if value is True else f"{option} {value}"))
        lines.append(f"| {code('--arch ' + name)} | {', '.join(options) or 'nothing'} |")
    return "\n".join(lines) + "\n"


def command_rows(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, str]]:
    """The arguments of one command, without those that every command has."""
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or {"--help", "--json"} & set(action.option_strings):
            continue
        text = (action.help or "") % {**vars(action), "prog": parser.prog}
        meaning, default = split_default(text)
        meaning = prose(meaning)
        if action.choices and not action.metavar:
            meaning += _one_of(action.choices)
        flag = ("on" if action.default else "off") if action.nargs == 0 else ""
        known = "required" if action.required else flag  # if the help has no default
        yield code(_written(action)), value(default) or known, meaning


def _written(action: argparse.Action) -> str:
    """An argument as typed, with the name of its value if the parser has one."""
    name = action.metavar or ("" if action.option_strings else action.dest.upper())
    name = name if isinstance(name, str) else " ".join(name)
    name += " ..." if action.nargs in ("+", "*") else ""
    return " ".join(filter(None, [", ".join(action.option_strings), name]))


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command of ``fairseq-doc`` and its parser, in the order of its help."""
    for action in make_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def page() -> str:
    """The whole page."""
    sections: tuple[tuple[str, type, str, dict | None], ...] = (
        ("### Language model: `--arch lstm_doc_lm`", lstm_doc_lm.LSTMDocLanguageModelConfig,
         LANGUAGE_MODEL_NOTES, lstm_doc_lm.PRESETS),
        ("### Language model: `--arch lstm_melis_lm`", lstm_melis_lm.LSTMMelisLanguageModelConfig,
         MELIS_NOTES, lstm_melis_lm.PRESETS),
        ("### Encoder-decoder: `--arch lstm_luong_doc`", lstm_luong_doc.LSTMLuongDocConfig,
         ENCODER_DECODER_NOTES, lstm_luong_doc.PRESETS),
        ("## Task: `--task bptt_language_modeling`", BpttLanguageModelingConfig, TASK_NOTES, None),
        ("## Criterion: `--criterion doc_cross_entropy`", DocCrossEntropyConfig, CRITERION_NOTES, None),
        ("## Optimizer: `--optimizer nt_asgd --lr-scheduler nt_asgd`", NTASGDConfig, "", None),
        ("## Optimizer: `--optimizer averaged_adam --lr-scheduler plateau`", AveragedAdamConfig, "", None),
        ("## Scheduler: `--lr-scheduler plateau`", PlateauScheduleConfig, "", None),
    )  # fmt: skip
    parts = [INTRODUCTION, "## Models\n"]
    for title, config, notes, presets in sections:
        parts += [f"{title}\n", table(config_rows(config)), *filter(None, [notes])]
        parts += [preset_table(presets)] if presets else []
    parts += ["## Commands\n", COMMANDS_NOTES]
    for name, parser in commands():
        parts += [f"### `fairseq-doc {name}`\n", prose(parser.description or "") + "\n"]
        parts.append(table(command_rows(parser)))
    return "\n".join(parts)


def main(arguments: list[str] | None = None) -> int:
    """Write the page; with ``--check``, return 1 if the page is stale."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit with status 1 if the page is stale",
    )
    args = parser.parse_args(arguments)
    text = page()
    if not args.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE} is stale: run python scripts/make_options.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
