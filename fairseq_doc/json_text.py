"""Results as JSON."""

import json
import math
from typing import Any


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON text, with null for infinite numbers and NaN, which JSON does not have."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
