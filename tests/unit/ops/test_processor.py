import pytest

from fairseq_doc.ops import processor

CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
flags\t\t: fpu avx2 avx512f avx512_bf16

processor\t: 1
vendor_id\t: GenuineIntel
model name\t: another
"""


@pytest.fixture
def cpuinfo(monkeypatch, tmp_path):
    """A function that writes what Linux says of the processor."""
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    return (tmp_path / "cpuinfo").write_text


@pytest.mark.parametrize(
    "text, described",
    [
        (CPUINFO, "AMD EPYC (cpu family 25, model 17, AVX-512, bfloat16)"),
        (CPUINFO.replace("avx512f avx512_bf16", ""), "AMD EPYC (cpu family 25, model 17, AVX2)"),
        ("model name : Some Core\n", "Some Core"),
    ],
)
def test_the_processor_is_described_with_what_it_can_do(cpuinfo, text, described):
    cpuinfo(text)
    assert processor.description() == described


@pytest.mark.parametrize("vendor, intel", [("AuthenticAMD", False), ("GenuineIntel", True)])
def test_its_maker(cpuinfo, vendor, intel):
    cpuinfo(CPUINFO.replace("AuthenticAMD", vendor))
    assert processor.is_intel() is intel


@pytest.mark.parametrize(
    "flags, able",
    [("", False), ("avx512f avx512bw", False), ("avx512_bf16", True), ("amx_tile amx_bf16", True)],
)
def test_instructions_for_bfloat16(cpuinfo, flags, able):
    cpuinfo(CPUINFO.replace("avx512f avx512_bf16", flags))
    assert processor.has_bfloat16() is able


def test_without_the_file_nothing_is_known(cpuinfo):
    assert not processor.is_intel() and not processor.has_bfloat16()
    assert processor.description()
