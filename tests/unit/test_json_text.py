from fairseq_doc.json_text import as_json


def test_numbers_that_json_lacks():
    assert as_json({"a": [float("inf"), (float("nan"), 1.5)]}) == '{"a": [null, [null, 1.5]]}'
