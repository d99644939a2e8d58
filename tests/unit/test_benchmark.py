"""scripts/benchmark.py, on the CPU."""

import importlib
import json
import sys

import pytest
import torch
from conftest import ROOT

from fairseq_doc.ops import matmul

sys.path.insert(0, str(ROOT / "scripts"))
benchmark = importlib.import_module("benchmark")
gpu, lstm, tools = (importlib.import_module(f"benchmarks.{x}") for x in ("gpu", "lstm", "tools"))
sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(autouse=True)
def backend(monkeypatch):
    """The backend is chosen again at the end."""
    monkeypatch.setenv(matmul.BACKEND_VARIABLE, "")
    yield
    matmul.backend.cache_clear()


def test_every_subcommand_has_options():
    for name in benchmark.SUBCOMMANDS:
        required = {"onnx": ["x", "y"], "rerank": ["x", "y", "--path", "z"], "seq2seq": ["x"]}
        words = [name, *required.get(name, ()), "--backend", "torch", "--json"]
        args = benchmark.make_parser(words).parse_args(words)
        assert args.module.__doc__ and benchmark.read_options(args.module.Options, vars(args))


def test_an_argument_forces_the_backend(monkeypatch, capfd):
    monkeypatch.setattr(lstm, "SIZES", ((3, 4),))
    benchmark.main("lstm --repeats 1 --backend torch --json".split())
    out, err = capfd.readouterr()
    (found,) = json.loads(out).values()
    own, baseline = "own, float32", "torch, float32"
    assert found[own] / found[baseline] == pytest.approx(found[f"{own} / {baseline}"])
    assert "matmul backend: torch\n" in err and tools.machine().endswith("torch")


def test_forms_take_turns_and_the_fastest_run_counts(monkeypatch):
    seconds = iter([9.0, 9.0, 3.0, 5.0, 4.0, 2.0])
    ran = []
    monkeypatch.setattr(tools, "timed", lambda work: (work(), next(seconds))[1])
    forms = {name: lambda name=name: ran.append(name) for name in "ab"}
    assert tools.fastest_in_turns(forms, 2) == {"a": 3, "b": 2}
    assert ran == ["a", "b"] * 3


def test_the_output_part_measures_every_form_in_every_precision(capfd):
    benchmark.main("gpu --device cpu --tiny --parts output --repeats 1 --json".split())
    figures = json.loads(capfd.readouterr().out)
    assert figures["gpu"] == "no GPU"
    for shape in ("ptb", "wikitext2"):
        of_shape = figures["output"][shape]
        for precision in gpu.PRECISIONS:
            assert set(of_shape[precision]) == set(gpu.output_layer.rows()[:-4])
            assert all(found["ms"] > 0 for found in of_shape[precision].values())
        for form, limit in (("ours", 1e-5), ("ours, bfloat16", 0.05)):
            assert 0 < max(of_shape["errors"][form].values()) < limit
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_training_part_trains_in_its_precision(server, monkeypatch, capfd):
    monkeypatch.setattr(gpu.train_step, "BIN", server.programs)
    monkeypatch.setattr(gpu, "TRAINED", {"ptb": gpu.TRAINED["ptb"]})
    monkeypatch.setattr(gpu, "PRECISIONS", ("bfloat16",))
    benchmark.main("gpu --device cpu --tiny --parts train --updates 20 --json".split())
    out, err = capfd.readouterr()
    assert json.loads(out)["train"]["ptb"]["bfloat16"] > 0
    assert "epoch of Penn Treebank" in err


@pytest.mark.parametrize(
    "words, problem",
    [
        ("gpu", "benchmark gpu: error: expected a GPU .*; got none"),
        ("train-step --updates 3", "--updates must be at least 20; got 3"),
        ("seq2seq .", "expected a folder of prepare-mt, got ."),
    ],
)
def test_what_cannot_be_measured_is_an_error(words, problem, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=problem):
        benchmark.main(words.split())
