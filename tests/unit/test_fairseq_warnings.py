"""Warnings about fairseq's own code are not shown; every other one is."""

import warnings

import pytest

from fairseq_doc import fairseq_warnings

TORCH = "this constructor is deprecated\n (Triggered internally at /torch/tensor_new.cpp:85.)"


@pytest.mark.parametrize(
    "message, category, module, is_shown",
    [
        ("old", DeprecationWarning, "fairseq", 0),
        ("old", FutureWarning, "fairseq_cli.train", 0),
        (TORCH, UserWarning, "fairseq.distributed.utils", 0),
        ("hydra.experimental.compose() is no longer experimental.", UserWarning, "sys", 0),
        ("\nThe version_base parameter is not specified.\nPlease", UserWarning, "sys", 0),
        ("'pin_memory' argument is set as true but no", UserWarning, "sys", 0),
        ("old", FutureWarning, "fairseq_doc.models.lstm_doc_lm", 1),
        (TORCH, UserWarning, "fairseq_doc.ops.matmul", 1),
        ("old", DeprecationWarning, "my_plugin.fairseq", 1),
        ("distributed is already initialized", UserWarning, "fairseq.distributed.utils", 1),
        ("In 'run': Usage of deprecated keyword in package header", UserWarning, "hydra.core", 1),
    ],
)
def test_warnings_about_fairseqs_own_code_are_hidden_and_others_shown(
    message, category, module, is_shown
):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        # Python keeps the filters that its compiler saw for its end, where files of other tests are open.
        warnings.simplefilter("ignore", ResourceWarning)
        fairseq_warnings.apply()
        warnings.warn_explicit(message, category, "file.py", 1, module=module)
    assert [str(warning.message) for warning in shown] == [message] * is_shown
