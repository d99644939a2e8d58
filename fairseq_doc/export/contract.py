"""The forms of an exported language model: inputs, outputs and metadata as in sherpa-onnx.

Axes: N streams or sentences, L tokens, V tokens in the table, K layers, D the largest width.

    log-probs   x (N, L), h0, c0       ->  log_softmax (N, V), next_h0, next_c0
    sentence    x (N, L), x_lens (N,)  ->  nll (N,)

x and x_lens are int64, all others float32; h0, c0, next_h0 and next_c0 are (K, N, D).
``log_softmax`` is log P of every token after the last token of x. ``nll`` is the sum of -log P over
the tokens of a sentence, which starts from a zero state and to which the model adds the end mark in
front and at the end. Logarithms are natural.
"""

from collections.abc import Sequence

import fairseq_doc

LOG_PROBS, SENTENCE = FORMS = ("log-probs", "sentence")
STATE = ("h0", "c0")
INPUTS = {LOG_PROBS: ("x", *STATE), SENTENCE: ("x", "x_lens")}
OUTPUTS = {LOG_PROBS: ("log_softmax", "next_h0", "next_c0"), SENTENCE: ("nll",)}
FORM = "form"  # the metadata's key

Kind = tuple[str, list[str | int]]  # dtype and shape; a name stands for any length


def kinds(names: Sequence[str], tokens: int, layers: int, width: int) -> dict[str, Kind]:
    """Dtypes and shapes of inputs or outputs, for V tokens, K layers and width D."""
    state: list[str | int] = [layers, "N", width]
    shapes: dict[str, list[str | int]] = {
        "x": ["N", "L"],
        "x_lens": ["N"],
        "log_softmax": ["N", tokens],
        "nll": ["N"],
    }
    integers = ("x", "x_lens")
    dtypes = {name: "int64" if name in integers else "float32" for name in names}
    return {name: (dtypes[name], shapes.get(name, state)) for name in names}


def metadata(
    form: str, tokens: int, layers: int, width: int, embed_dim: int, end: int
) -> dict[str, str]:
    """The metadata of a form: V, K, D, D_0 and the number of the end mark."""
    values = {
        "model_type": "rnnlm",
        "version": 1,  # of sherpa-onnx's contract
        "num_layers": layers,
        "hidden_size": width,
        "embedding_dim": embed_dim,
        "vocab_size": tokens,
        "sos_id": end,
        "eos_id": end,
        FORM: form,
        "fairseq_doc": fairseq_doc.__version__,
    }
    return {key: str(value) for key, value in values.items()}
