"""Every recipe's YAML gives the configuration that its command line gives."""

import os
import shlex

import pytest
from conftest import ROOT, run
from fairseq import options
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

RECIPES = sorted(ROOT.glob("examples/*/train*.yaml"))

# fairseq reads its configuration with hydra's old interface.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def typed(script, folder):
    """The words that a recipe gives to fairseq-train."""
    program = folder / "fairseq-train"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    program.chmod(0o755)
    return run([script], PATH=f"{folder}:{os.environ['PATH']}").splitlines()


def optimizer_of(words):
    """The last ``--optimizer``, which counts."""
    last = len(words) - 1 - words[::-1].index("--optimizer")
    return words[last + 1]


def plain(configuration):
    """As nested dicts, without the settings of BLEU, which training never reads and only the command
    line fills in."""
    settings = OmegaConf.to_container(configuration, resolve=True, enum_to_str=True)
    return {group: values for group, values in settings.items() if group != "scoring"}


def by_command(words, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["fairseq-train", *words])  # fairseq looks for --user-dir here
    args = options.parse_args_and_arch(options.get_training_parser(), input_args=words)
    return plain(convert_namespace_to_omegaconf(args))


def by_yaml(path):
    hydra_init(path.stem)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(path.parent), version_base="1.1"):
        configuration = compose(path.stem)
    add_defaults(configuration)
    return plain(configuration)


def test_every_recipe_has_both_forms(tmp_path):
    """Except those with fairseq's SGD, whose settings it reads from the command line only."""
    scripts = sorted(ROOT.glob("examples/*/train*.sh"))
    both = [path for path in scripts if optimizer_of(typed(path, tmp_path)) != "sgd"]
    assert [path.with_suffix("") for path in both] == [p.with_suffix("") for p in RECIPES]
    assert len(RECIPES) >= 8


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_both_forms_give_the_same_configuration(path, tmp_path, monkeypatch):
    words = typed(path.with_suffix(".sh"), tmp_path)
    from_command, from_yaml = by_command(words, monkeypatch), by_yaml(path)
    assert from_command.keys() == from_yaml.keys()
    for group, values in from_command.items():
        assert values == from_yaml[group], group
    components = from_command["model"]["doc_components"]
    assert components is None or components in shlex.join(words)


def test_a_learning_rate_drops_before_training_ends():
    settings = [by_yaml(path)["lr_scheduler"] for path in RECIPES]
    plateaus = [found for found in settings if found["_name"] == "plateau"]
    assert len(plateaus) == 5
    assert all(found["lr_patience"] < found["stop_patience"] for found in plateaus)


def test_a_recipe_trains_by_hydra(corpus, tmp_path):
    small = [
        'model.doc_components="0,0,1,2"',
        "+model.decoder_embed_dim=16",
        '+model.layer_dims="24,24,20"',
        "dataset.batch_size=4",
        "optimization.max_update=3",
        "common.cpu=true",
    ]
    recipe = ["--config-dir", ROOT / "examples" / "penn_treebank", "--config-name", "train"]
    places = [f"task.data={corpus.data}", f"common.user_dir={ROOT}/fairseq_doc"]
    run(["fairseq-hydra-train", *recipe, *places, *small], cwd=tmp_path)
    assert (tmp_path / "checkpoints" / "ptb" / "checkpoint_last.pt").exists()
