"""The processor according to Linux's ``/proc/cpuinfo``; without that file it is unknown."""

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

# Flags of /proc/cpuinfo that matter to matrix products, with their names, the widest first.
VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2"}
BFLOAT16 = {"amx_bf16": "AMX", "avx512_bf16": "bfloat16"}


def _fields() -> dict[str, str]:
    """The lines on the first processor, {name: value}."""
    try:
        text = CPUINFO.read_text().partition("\n\n")[0]
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _flags() -> list[str]:
    return _fields().get("flags", "").split()


def is_intel() -> bool:
    """Whether Intel made the processor."""
    return _fields().get("vendor_id") == "GenuineIntel"


def has_fast_bfloat16() -> bool:
    """Whether products are faster in bfloat16 than in float32: with AMX, or AVX512_BF16 on a processor
    not made by Intel, whose AVX512_BF16 is slower than float32."""
    flags = _flags()
    return "amx_bf16" in flags or ("avx512_bf16" in flags and not is_intel())


def description() -> str:
    """Name, family, model (a virtual machine's name is often vague) and instruction sets."""
    fields, flags = _fields(), _flags()
    name = fields.get("model name") or platform.processor() or platform.machine()
    details = [f"{part} {fields[part]}" for part in ("cpu family", "model") if part in fields]
    details += [VECTORS[flag] for flag in VECTORS if flag in flags][:1]
    details += [BFLOAT16[flag] for flag in BFLOAT16 if flag in flags]
    return f"{name} ({', '.join(details)})" if details else name
