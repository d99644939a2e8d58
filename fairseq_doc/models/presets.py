"""Named settings of a model."""

from dataclasses import dataclass, field

from fairseq.models import register_model


def register_presets(model, config, presets):
    """Register one subclass of ``model`` for each preset, so that ``--arch NAME`` and
    ``fairseq-hydra-train`` read the same defaults.

    Args:
        model: the class to register.
        config: its dataclass.
        presets: {name: {field: value}}, what differs from the defaults of ``config``.
    """
    for name, differences in presets.items():
        fields = config.__dataclass_fields__
        body = {
            key: field(default=value, metadata=fields[key].metadata)
            for key, value in differences.items()
        }
        annotations = {key: config.__annotations__[key] for key in differences}
        place = {"__module__": model.__module__}
        own = type(f"{name}_config", (config,), {**place, **body, "__annotations__": annotations})
        of_preset = type(name, (model,), {**place, "__doc__": f"``{name}``."})
        register_model(name, dataclass=dataclass(own))(of_preset)
