from types import SimpleNamespace

import pytest
import toy_language
import toy_translation
from conftest import doc, preprocessing, run_here, training

from fairseq_doc.ops.matmul import BFLOAT16_VARIABLE, bfloat16_is_faster

SAVES = "--save-interval-updates 25 --keep-interval-updates 99"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A small text and its data folder."""
    folder = tmp_path_factory.mktemp("toy")
    toy_language.write_corpus(folder / "text")
    doc("prepare-lm", "text", folder / "text", folder / "bin")
    return SimpleNamespace(text=folder / "text", data=folder / "bin")


@pytest.fixture(scope="session")
def trained(corpus, tmp_path_factory):
    """An uninterrupted run through SGD and averaging, with every checkpoint kept."""
    folder = tmp_path_factory.mktemp("trained")
    # At this rate the validation loss rises within a few epochs, and the run switches to averaging.
    options = f"--lr 60 --max-epoch 6 --nonmono 0 {SAVES}"
    output = run_here(training(corpus.data, folder, options))
    return SimpleNamespace(folder=folder, options=options, output=output)


@pytest.fixture(scope="session")
def parallel(tmp_path_factory):
    """A small parallel text and its data folder."""
    folder = tmp_path_factory.mktemp("parallel")
    toy_translation.write_corpus(folder / "text", "reverse", 600, 60, 60)
    run_here(preprocessing(folder / "text", folder / "bin"))
    return SimpleNamespace(text=folder / "text", data=folder / "bin")


@pytest.fixture
def processor(monkeypatch):
    """A function that makes the processor one with (``yes``) or without bfloat16 instructions."""

    def has_bfloat16(answer):
        monkeypatch.setenv(BFLOAT16_VARIABLE, answer)
        bfloat16_is_faster.cache_clear()

    yield has_bfloat16
    bfloat16_is_faster.cache_clear()
