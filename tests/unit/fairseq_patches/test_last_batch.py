import numpy as np
from fairseq.data import data_utils
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc import registration  # noqa: F401


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=60),
    st.integers(1, 30),
    st.integers(1, 9),
    st.booleans(),
)
def test_every_sentence_is_in_one_batch(sizes, max_sentences, multiple, as_array):
    order = np.argsort(sizes, kind="stable")
    batches = data_utils.batch_by_size(
        order if as_array else iter(order.tolist()),
        sizes.__getitem__,
        max_sentences=max_sentences,
        required_batch_size_multiple=multiple,
    )
    assert np.concatenate(batches).tolist() == order.tolist()
    assert all(0 < len(batch) <= max(max_sentences, multiple) for batch in batches)


def test_sentences_are_cut_as_fairseq_cuts_them():
    sizes = np.arange(1, 31)
    batches, alone = (
        cut(np.arange(30), None, sizes, max_tokens=90, required_batch_size_multiple=4)
        for cut in (data_utils.batch_by_size, data_utils.batch_by_size.__wrapped__)
    )
    for ours, theirs in zip(batches, alone, strict=False):
        assert ours.tolist() == theirs.tolist()
    assert len(batches) - len(alone) in (0, 1)
    assert max(sizes[batch].max() * len(batch) for batch in batches) <= 90
