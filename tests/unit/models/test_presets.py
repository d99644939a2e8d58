import argparse
from dataclasses import dataclass, field, fields

import fairseq.models
import pytest
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import (
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
    BaseFairseqModel,
)

from fairseq_doc.models import lstm_doc_lm, lstm_luong_doc
from fairseq_doc.models.presets import register_presets

MODELS = {
    "lstm_doc_lm": (
        lstm_doc_lm.LSTMDocLanguageModel,
        lstm_doc_lm.LSTMDocLanguageModelConfig,
        lstm_doc_lm.PRESETS,
    ),
    "lstm_luong_doc": (
        lstm_luong_doc.LSTMLuongDoc,
        lstm_luong_doc.LSTMLuongDocConfig,
        lstm_luong_doc.PRESETS,
    ),
}
ALL = [(name, preset) for name, (_, _, presets) in MODELS.items() for preset in presets]


@dataclass
class SmallConfig(FairseqDataclass):
    width: int = field(default=3, metadata={"help": "how wide"})
    depth: int = field(default=2, metadata={"help": "how deep"})


class SmallModel(BaseFairseqModel):
    """Of no parameters."""

    @classmethod
    def build_model(cls, cfg, task):
        return cls()


@pytest.fixture
def registered():
    """Two presets of a small model, taken out of fairseq's registries afterwards."""
    registries = [x for name, x in vars(fairseq.models).items() if name.endswith("_REGISTRY")]
    before = [dict(registry) for registry in registries]
    presets = {"small_preset": {}, "small_preset_wide": {"width": 9}}
    register_presets(SmallModel, SmallConfig, presets)
    yield presets
    for registry, content in zip(registries, before, strict=True):
        registry.clear()
        registry.update(content)


def test_a_preset_is_the_configuration_with_its_differences(registered):
    plain, wide = (MODEL_DATACLASS_REGISTRY[name] for name in registered)
    assert (plain().width, plain().depth) == (3, 2)
    assert (wide().width, wide().depth) == (9, 2)
    assert wide(width=5).width == 5
    assert SmallConfig().width == 3
    assert wide.__dataclass_fields__["width"].metadata["help"] == "how wide"
    assert [f.name for f in fields(wide)] == [f.name for f in fields(SmallConfig)]
    assert issubclass(wide, SmallConfig)


def test_a_preset_is_a_model_of_its_own(registered):
    plain, wide = (MODEL_REGISTRY[name] for name in registered)
    assert plain is not wide
    for name, model in zip(registered, (plain, wide), strict=True):
        assert issubclass(model, SmallModel) and model.__module__ == SmallModel.__module__
        assert ARCH_MODEL_REGISTRY[name] is model
        assert isinstance(model.build_model(None, None), model)


def test_a_field_that_the_configuration_has_not_is_an_error():
    with pytest.raises(KeyError, match="hight"):
        register_presets(SmallModel, SmallConfig, {"small_preset_high": {"hight": 1}})
    assert "small_preset_high" not in MODEL_REGISTRY


@pytest.mark.parametrize("name, preset", ALL)
def test_every_preset_differs_as_its_table_says_and_in_nothing_else(name, preset):
    model, config, presets = MODELS[name]
    base, own = config(), MODEL_DATACLASS_REGISTRY[preset]()
    assert issubclass(MODEL_REGISTRY[preset], model)
    for option in (f.name for f in fields(config) if f.name != "_name"):
        expected = presets[preset].get(option, getattr(base, option))
        assert getattr(own, option) == expected, option
        assert type(own).__dataclass_fields__[option].metadata["help"], option


@pytest.mark.parametrize("name, preset", ALL)
def test_the_command_line_reads_the_same_defaults(name, preset):
    """``--arch`` goes through argparse, whose namespace fairseq fills with what it was not given."""
    config = MODEL_DATACLASS_REGISTRY[preset]()
    parser = argparse.ArgumentParser()
    gen_parser_from_dataclass(parser, config)
    given = vars(parser.parse_args([]))
    for option, value in given.items():
        assert value == getattr(config, option), option
    assert set(given) == {f.name for f in fields(config) if f.name != "_name"}
