"""scripts/benchmark_tools.py."""

import pytest
from conftest import ROOT

from fairseq_doc.ops import matmul

CPUINFO = """processor\t: 0
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
flags\t\t: fpu avx2 avx512f avx512_bf16

processor\t: 1
model name\t: another
"""


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import benchmark_tools

    return benchmark_tools


@pytest.mark.parametrize(
    "cpuinfo, named",
    [
        (CPUINFO, "AMD EPYC (cpu family 25, model 17, AVX-512, bfloat16)"),
        (CPUINFO.replace("avx512f avx512_bf16", ""), "AMD EPYC (cpu family 25, model 17, AVX2)"),
        ("model name : Some Core\n", "Some Core"),
    ],
)
def test_the_processor_is_named_with_what_it_can_do(tools, monkeypatch, cpuinfo, named):
    monkeypatch.setattr(tools.Path, "read_text", lambda path: cpuinfo)
    assert tools.processor() == named


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
