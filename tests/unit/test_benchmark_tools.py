"""scripts/benchmark_tools.py."""

import json

import pytest
import torch
from conftest import ROOT

from fairseq_doc.ops import matmul


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import benchmark_tools

    return benchmark_tools


def test_the_machine_names_the_backend(tools, monkeypatch):
    monkeypatch.setattr(matmul, "backend", "torch")
    assert tools.machine().endswith("matmul backend: torch")


def test_an_argument_forces_the_backend(tools, monkeypatch):
    monkeypatch.setattr(matmul, "backend", matmul.backend)  # restored at the end
    monkeypatch.setenv(matmul.BACKEND_VARIABLE, "")
    tools.make_parser("").parse_args(["--backend", "torch"])
    assert matmul.backend == "torch"


def test_another_backend_is_refused(tools, capsys):
    with pytest.raises(SystemExit):
        tools.make_parser("").parse_args(["--backend", "blas"])
    assert "expected onednn or torch; got 'blas'" in capsys.readouterr().err


def test_forms_take_turns_and_the_fastest_run_counts(tools, monkeypatch):
    seconds = iter([9.0, 9.0, 3.0, 5.0, 4.0, 2.0])
    ran = []

    def timed(work):
        work()
        return next(seconds)

    monkeypatch.setattr(tools, "timed", timed)
    forms = {name: lambda name=name: ran.append(name) for name in "ab"}
    assert tools.fastest_in_turns(forms, 2) == {"a": 3, "b": 2}
    assert ran == ["a", "b"] * 3


# scripts/benchmark_gpu.py, on the CPU


@pytest.fixture
def gpu_script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import benchmark_gpu

    shapes = dict(benchmark_gpu.output_layer.SHAPES)
    yield benchmark_gpu
    benchmark_gpu.output_layer.SHAPES.update(shapes)


def test_the_output_part_measures_every_form_in_every_precision(gpu_script, monkeypatch, capsys):
    words = "benchmark_gpu.py --device cpu --tiny --parts output --repeats 1 --json"
    monkeypatch.setattr("sys.argv", words.split())
    gpu_script.main()
    figures = json.loads(capsys.readouterr().out)
    assert figures["gpu"] == "no GPU"
    for shape in ("ptb", "wikitext2"):
        of_shape = figures["output"][shape]
        for precision in gpu_script.PRECISIONS:
            assert set(of_shape[precision]) == set(gpu_script.output_layer.rows()[:-4])
            assert all(found["ms"] > 0 for found in of_shape[precision].values())
        for form, limit in (("ours", 1e-5), ("ours, bfloat16", 0.05)):
            assert 0 < max(of_shape["errors"][form].values()) < limit
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_training_part_trains_in_its_precision(gpu_script, monkeypatch, capsys):
    monkeypatch.setattr(gpu_script, "TRAINED", {"ptb": gpu_script.TRAINED["ptb"]})
    monkeypatch.setattr(gpu_script, "PRECISIONS", ("bfloat16",))
    words = "benchmark_gpu.py --device cpu --tiny --parts train --updates 20 --json"
    monkeypatch.setattr("sys.argv", words.split())
    gpu_script.main()
    out, err = capsys.readouterr()
    assert json.loads(out)["train"]["ptb"]["bfloat16"] > 0
    assert "s an epoch of Penn Treebank" in err


def test_without_a_gpu_it_says_what_it_needs(gpu_script, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmark_gpu.py"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="benchmark_gpu: expected a GPU .*; got none"):
        gpu_script.main()


# scripts/benchmark_train_step.py


@pytest.mark.parametrize(
    "plugin, more", [("plain_output", ""), ("spread_weights", "--gradient-sampling 0.05")]
)
def test_other_outputs_are_trained_too(gpu_script, tmp_path, plugin, more):
    step = gpu_script.train_step
    data = step.prepare(tmp_path, vocabulary=50, tokens=20_000)
    options = f"{step.OURS} --cpu {gpu_script.TINY_MODEL} {more}"
    speed, peak = step.train(data, tmp_path / plugin, options, tmp_path / "saved", 20)
    assert speed > 0 and 0.1 < peak < 10


def test_ratios_of_a_round(gpu_script):
    speeds = {
        "ours": 4.0,
        "ours, bfloat16": 6.0,
        "ours, plain output": 1.0,
        "sampled": 8.0,
        "sampled, bfloat16": 10.0,
        "one softmax": 16.0,
        "one softmax, bfloat16": 20.0,
        "fairseq lstm_lm": 2.0,
        "LSTM alone, float32": 16.0,
        "LSTM alone, bfloat16": 18.0,
    }
    found = gpu_script.train_step.ratios({row: (speed, None) for row, speed in speeds.items()})
    assert found == pytest.approx(
        {
            "over_plain_output": 4,
            "over_fairseq_lstm_lm": 2,
            "lstm_share": 1 / 4,
            "bfloat16_over_float32": 1.5,
            "bfloat16_over_fairseq_lstm_lm": 3,
            "bfloat16_lstm_share": 1 / 3,
            "over_one_softmax": 1 / 4,
            "sampled_over_fairseq_lstm_lm": 4,
            "sampled_over_one_softmax": 1 / 2,
            "bfloat16_sampled_over_fairseq_lstm_lm": 5,
            "bfloat16_sampled_over_one_softmax": 1 / 2,
        }
    )
