import argparse
from dataclasses import fields

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

from fairseq_doc.models import lstm_doc_lm, lstm_luong_doc, lstm_melis_lm

MODULES = (lstm_doc_lm, lstm_luong_doc, lstm_melis_lm)
ALL = [(module, preset) for module in MODULES for preset in module.PRESETS]
every_preset = pytest.mark.parametrize("module, preset", ALL, ids=[preset for _, preset in ALL])


@every_preset
def test_every_preset_differs_as_its_table_says_and_in_nothing_else(module, preset):
    first, differences = next(iter(module.PRESETS)), module.PRESETS[preset]
    model, config = MODEL_REGISTRY[first].__base__, MODEL_DATACLASS_REGISTRY[first].__base__
    base, own = config(), MODEL_DATACLASS_REGISTRY[preset]()
    registered = MODEL_REGISTRY[preset]
    assert issubclass(registered, model) and ARCH_MODEL_REGISTRY[preset] is registered
    assert registered.__module__ == model.__module__
    for option in (f.name for f in fields(config) if f.name != "_name"):
        expected = differences.get(option, getattr(base, option))
        assert getattr(own, option) == expected, option
        assert type(own).__dataclass_fields__[option].metadata["help"], option
    assert all(getattr(base, option) != value for option, value in differences.items())
    assert [f.name for f in fields(own)] == [f.name for f in fields(config)]


@every_preset
def test_a_flag_that_a_preset_turns_on_stays_on_if_it_is_given(module, preset):
    parser = argparse.ArgumentParser()
    MODEL_REGISTRY[preset].add_args(parser)
    flags = [action for action in parser._actions if isinstance(action.const, bool)]
    given = vars(parser.parse_args([action.option_strings[0] for action in flags]))
    assert len(flags) >= 2 and all(given[flag.dest] is True for flag in flags)
