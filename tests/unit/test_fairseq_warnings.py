"""Warnings about fairseq's own code are not shown; every other one is."""

import warnings

import pytest

from fairseq_doc import fairseq_warnings

TORCH = "this constructor is deprecated\n (Triggered internally at /torch/tensor_new.cpp:85.)"
HYDRA = [
    "hydra.experimental.compose() is no longer experimental. Use hydra.compose()",
    "\nThe version_base parameter is not specified.\nPlease specify a compatability version",
]


@pytest.fixture
def shown():
    """The warnings that are shown."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        # Python keeps the filters that its compiler saw for its end, where files of other tests are open.
        warnings.simplefilter("ignore", ResourceWarning)
        fairseq_warnings.apply()
        yield found


HIDDEN = [
    ("old", DeprecationWarning, "fairseq"),
    ("old", FutureWarning, "fairseq_cli.train"),
    (TORCH, UserWarning, "fairseq.distributed.utils"),
    *((message, UserWarning, "sys") for message in HYDRA),
    ("'pin_memory' argument is set as true but no", UserWarning, "sys"),
]
SHOWN = [
    ("old", FutureWarning, "fairseq_doc.models.lstm_doc_lm"),
    (TORCH, UserWarning, "fairseq_doc.ops.matmul"),
    ("old", DeprecationWarning, "my_plugin.fairseq"),
    ("distributed is already initialized", UserWarning, "fairseq.distributed.utils"),
    ("In 'run': Usage of deprecated keyword in package header", UserWarning, "hydra.core"),
]


@pytest.mark.parametrize("warning, is_shown", [*((w, 0) for w in HIDDEN), *((w, 1) for w in SHOWN)])
def test_warnings_about_fairseqs_own_code_are_hidden_and_others_shown(shown, warning, is_shown):
    message, category, module = warning
    warnings.warn_explicit(message, category, "file.py", 1, module=module)
    assert [str(warning.message) for warning in shown] == [message] * is_shown
