"""Print the settings of a recipe's command line as YAML for fairseq-hydra-train.

    python scripts/as_yaml.py examples/penn_treebank/train.sh [OPTIONS] >train.yaml
    fairseq-hydra-train --config-dir . --config-name train

OPTIONS override those of the recipe. fairseq reads the settings of its own SGD only from the command line.
"""

import argparse
import os
import subprocess
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

import fairseq_doc

# In fairseq-train's place: it keeps its words and ends the recipe.
KEEPS_ITS_WORDS = '#!/bin/sh\nprintf "%s\\n" "$@" >"$0.words"\nexit 1\n'


def words_of(recipe: list[str]) -> list[str]:
    """The arguments that a recipe (a script and its arguments) passes to ``fairseq-train``."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "fairseq-train")
        program.write_text(KEEPS_ITS_WORDS)
        program.chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        subprocess.run([Path(recipe[0]).absolute(), *recipe[1:]], env=environment, check=False)
        words = Path(f"{program}.words")
        if not words.exists():
            raise SystemExit(
                f"as_yaml: expected a recipe that calls fairseq-train; got {recipe[0]}"
            )
        return words.read_text().splitlines()


def configuration(words: list[str]) -> Any:
    """All settings of a command line of ``fairseq-train``, {group: settings}."""
    fairseq_doc.register()
    args = options.parse_args_and_arch(options.get_training_parser(), input_args=words)
    cfg = convert_namespace_to_omegaconf(args)
    return OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)


def as_yaml(words: list[str]) -> str:
    """The settings given in a command line, as YAML that yields the same configuration."""
    typed = {word[2:].partition("=")[0].replace("-", "_") for word in words if word[:2] == "--"}
    typed.add("data")
    groups: dict[str, dict] = {}
    for group, settings in configuration(words).items():
        if not settings or group == "scoring":  # not used in training
            continue
        if isinstance(settings, Namespace):
            raise SystemExit(f"as_yaml: expected a {group} with a dataclass; got fairseq's SGD")
        found = {"_name": settings["_name"]} if settings.get("_name") else {}
        found |= {name: value for name, value in settings.items() if name in typed}
        typed -= found.keys()  # later groups interpolate this setting
        if found:
            groups[group] = found
    folder = groups["checkpoint"]["save_dir"]
    groups["hydra"] = {"run": {"dir": folder}, "job": {"chdir": False}}
    return OmegaConf.to_yaml(OmegaConf.create(groups))


def main() -> None:
    """Print the recipe of the command line as YAML."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", help="script that calls fairseq-train")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="arguments of the script")
    args = parser.parse_args()
    print(as_yaml(words_of([args.recipe, *args.options])), end="")


if __name__ == "__main__":
    main()
