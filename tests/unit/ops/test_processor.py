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
INTEL = CPUINFO.replace("AuthenticAMD", "GenuineIntel")
AMD = "AMD EPYC (cpu family 25, model 17"


@pytest.mark.parametrize(
    "text, intel, bfloat16, description",
    [
        (CPUINFO, False, True, f"{AMD}, AVX-512, bfloat16)"),
        (INTEL, True, False, f"{AMD}, AVX-512, bfloat16)"),
        (CPUINFO.replace("avx512f avx512_bf16", ""), False, False, f"{AMD}, AVX2)"),
        (INTEL.replace("bf16", "bf16 amx_bf16"), True, True, f"{AMD}, AVX-512, AMX, bfloat16)"),
        ("model name : Some Core\n", False, False, "Some Core"),
        (None, False, False, ""),  # no such file
    ],
)
def test_what_linux_says(monkeypatch, tmp_path, text, intel, bfloat16, description):
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    if text is not None:
        processor.CPUINFO.write_text(text)
    assert processor.is_intel() is intel
    assert processor.has_fast_bfloat16() is bfloat16
    assert description in processor.description() != ""
