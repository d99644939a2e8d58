"""Print a recipe as YAML for fairseq-hydra-train: the settings that its command line names.

    python scripts/as_yaml.py examples/penn_treebank/train.sh [OPTIONS] >train.yaml
    fairseq-hydra-train --config-dir . --config-name train

OPTIONS override the recipe's own. fairseq reads the settings of its own SGD from the command line alone.
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

PRINTS_ITS_WORDS = '#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n'


def words_of(recipe: list[str]) -> list[str]:
    """The words that a recipe, a script and its arguments, gives to ``fairseq-train``."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "fairseq-train")
        program.write_text(PRINTS_ITS_WORDS)
        program.chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        printed = subprocess.run(recipe, env=environment, check=True, stdout=subprocess.PIPE)
    return printed.stdout.decode().splitlines()


def configuration(words: list[str]) -> Any:
    """{group: settings} of a command line of ``fairseq-train``, all of them."""
    fairseq_doc.register()
    args = options.parse_args_and_arch(options.get_training_parser(), input_args=words)
    cfg = convert_namespace_to_omegaconf(args)
    return OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)


def as_yaml(words: list[str]) -> str:
    """The settings that a command line names, as the YAML that gives the same configuration."""
    typed = {word[2:].partition("=")[0].replace("-", "_") for word in words if word[:2] == "--"}
    typed.add("data")
    groups: dict[str, dict] = {}
    for group, settings in configuration(words).items():
        if not settings or group == "scoring":  # which no training reads
            continue
        if isinstance(settings, Namespace):
            raise SystemExit(f"as_yaml: expected a {group} with a dataclass; got fairseq's SGD")
        found = {"_name": settings["_name"]} if settings.get("_name") else {}
        found |= {name: value for name, value in settings.items() if name in typed}
        typed -= found.keys()  # in a later group it is an interpolation of this one's
        if found:
            groups[group] = found
    folder = groups["checkpoint"]["save_dir"]
    groups["hydra"] = {"run": {"dir": folder}, "job": {"chdir": False}}
    return OmegaConf.to_yaml(OmegaConf.create(groups))


def main() -> None:
    """Run the script with the words of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", help="script that calls fairseq-train")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="the script's own arguments")
    args = parser.parse_args()
    print(as_yaml(words_of([args.recipe, *args.options])), end="")


if __name__ == "__main__":
    main()
