"""Named settings of a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairseq.models import register_model


def register_presets(model: Any, config: Any, presets: Mapping[str, Mapping[str, Any]]) -> None:
    """Register one subclass of ``model`` for each preset. ``--arch NAME`` and
    ``fairseq-hydra-train`` then read the same defaults.

    Args:
        model: the class to register.
        config: its dataclass.
        presets: {name: {field: value}}, the differences from the defaults of ``config``.
    """
    for name, differences in presets.items():
        fields = config.__dataclass_fields__
        body = {
            key: field(default=value, metadata=fields[key].metadata)
            for key, value in differences.items()
        }
        annotations = {key: config.__annotations__[key] for key in differences}
        module = {"__module__": model.__module__}
        preset_config = type(
            f"{name}_config", (config,), {**module, **body, "__annotations__": annotations}
        )
        preset_model = type(name, (model,), {**module, "__doc__": f"``{name}``."})
        register_model(name, dataclass=dataclass(preset_config))(preset_model)
