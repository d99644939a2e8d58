"""The table of ``compare`` and the figures of the text as written."""

import json

import pytest

from fairseq_doc.cli.compare import _add_figures_as_written, _table
from fairseq_doc.tuning.comparison import SPLITS, summary

RAW = {"lines": 10, "words": 90, "characters": 400, "bytes": 500, "tokens": 200}


def rows_of(values):
    """A system with these perplexities of its seeds."""
    of_splits = {split: {"values": values, **summary(values, values)} for split in SPLITS}
    return {"a": {"parameters": 1, "tokens_per_second": 2.0, "seeds": [1, 2], **of_splits}}


def test_means_of_the_text_as_written_are_columns(tmp_path):
    (tmp_path / "raw_counts.json").write_text(json.dumps(dict.fromkeys(SPLITS, RAW)))
    rows, remarks = rows_of([2.0, 8.0]), []
    _add_figures_as_written(rows, str(tmp_path), remarks.append)
    test = rows["a"]["test"]
    assert not remarks
    assert test["word_perplexity"] == pytest.approx((2.0**2 + 8.0**2) / 2)
    assert test["bits_per_character"] == pytest.approx((1 + 3) / 2 * 200 / 400)
    assert test["bits_per_byte"] == pytest.approx((1 + 3) / 2 * 200 / 500)
    head, line, row = (text.split("|")[1:-1] for text in _table(rows))
    assert len(head) == len(line) == len(row)
    assert [cell.strip() for cell in row[-2:]] == ["34.00", "1.0000"]


def test_without_counts_there_is_a_remark(tmp_path):
    rows, remarks = rows_of([2.0, 8.0]), []
    _add_figures_as_written(rows, str(tmp_path), remarks.append)
    assert len(remarks) == 1 and rows == rows_of([2.0, 8.0])
    head, line, row = (text.count("|") for text in _table(rows))
    assert head == line == row
