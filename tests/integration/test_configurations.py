"""A recipe as YAML gives the configuration that its command line gives."""

import subprocess
import sys
from argparse import Namespace

import pytest
from conftest import PACKAGE, ROOT, environment
from fairseq.dataclass.initialize import add_defaults, hydra_init
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

sys.path.append(str(ROOT / "scripts"))
import as_yaml

RECIPES = sorted(ROOT.glob("examples/*/train*.sh"))

# fairseq reads its configuration with hydra's old interface.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def by_yaml(text, folder):
    (folder / "run.yaml").write_text(text)
    hydra_init("run")
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(folder), version_base="1.1"):
        configuration = compose("run")
    add_defaults(configuration)
    return OmegaConf.to_container(configuration, resolve=True, enum_to_str=True)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_both_forms_give_the_same_configuration(path, tmp_path, monkeypatch):
    """Except for fairseq's SGD, whose settings it reads from the command line only."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["fairseq-train"])  # fairseq looks for --user-dir here
    words = as_yaml.words_of([str(path)])
    expected = as_yaml.configuration(words)
    assert expected["checkpoint"]["save_dir"].startswith("checkpoints/")
    assert expected["criterion"]["_name"] == "doc_cross_entropy"
    if isinstance(expected["optimizer"], Namespace):
        with pytest.raises(SystemExit, match="SGD"):
            as_yaml.as_yaml(words)
        return
    monkeypatch.setattr(as_yaml, "configuration", lambda words: expected)  # computed once
    found = by_yaml(as_yaml.as_yaml(words), tmp_path)
    assert found.keys() == expected.keys()
    for group in found.keys() - {"scoring"}:  # of BLEU, which only the command line fills in
        assert found[group] == expected[group], group
    schedule = expected["lr_scheduler"]
    if expected["optimizer"]["_name"] == "averaged_adam":
        assert 0 < schedule["average_patience"] < schedule["average_at"] < schedule["max_checks"]
    elif schedule["_name"] == "plateau":  # the learning rate drops before training ends
        assert schedule["lr_patience"] < schedule["stop_patience"]


def test_a_recipe_trains_by_hydra(corpus, server, tmp_path):
    """Both commands as they are typed."""
    small = "--batch-size 4 --decoder-embed-dim 16 --layer-dims 24,24,20 --doc-components 0,0,1,2"
    recipe = [ROOT / "examples/penn_treebank/train.sh", "--cpu", "--max-update", "3"]
    recipe += ["--user-dir", PACKAGE, *small.split()]
    command = [sys.executable, ROOT / "scripts/as_yaml.py", *recipe]
    made = subprocess.run(command, env=environment(DATA=str(corpus.data)), stdout=subprocess.PIPE)
    (tmp_path / "small.yaml").write_bytes(made.stdout)
    result = server.run("fairseq-hydra-train --config-dir . --config-name small", tmp_path)
    assert result.status == 0, result.err[-3000:]
    assert (tmp_path / "checkpoints" / "ptb" / "checkpoint_last.pt").exists()
