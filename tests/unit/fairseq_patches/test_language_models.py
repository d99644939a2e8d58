import sys
from types import SimpleNamespace

import pytest
from conftest import refusal

from fairseq_doc.data.bptt_stream import TASK
from fairseq_doc.fairseq_patches.language_models import load_for_its_task

from ..conftest import small_model, small_translation_model

LM, TRANSLATION = "language_modeling", "translation"


def loaded(model, saved, given):
    """What a command gets of a checkpoint of the task ``saved`` that it loads for ``given``."""
    name = SimpleNamespace(_name=saved)
    cfg = SimpleNamespace(model=SimpleNamespace(_name="lstm_doc_lm"), task=name)
    # fairseq's task for language models keeps its settings as args.
    task = given and SimpleNamespace(cfg=None, args=SimpleNamespace(_name=given))
    result = [model], cfg, task

    def load(filenames, arg_overrides, task):
        return result

    return load_for_its_task(load, ["a.pt"], None, task) is not None


@pytest.mark.parametrize(
    "command, model, saved, given, problem",
    [
        ("eval-lm", small_model, TASK, LM, f"trained with --task {TASK}"),
        ("eval-lm", small_model, TASK, TASK, None),
        ("eval-lm", small_model, LM, LM, None),
        ("generate", small_model, TASK, TASK, "fairseq-doc generate"),
        ("interactive", small_model, LM, LM, "fairseq-doc generate"),
        ("generate", small_model, TASK, None, None),  # --lm-path
        ("generate", small_translation_model, TRANSLATION, TRANSLATION, None),
    ],
)
def test_a_language_model_in_another_task(monkeypatch, command, model, saved, given, problem):
    monkeypatch.setattr(sys, "argv", [f"/env/bin/fairseq-{command}"])
    if problem is None:
        assert loaded(model(), saved, given)
    else:
        assert problem in refusal(loaded, model(), saved, given)
