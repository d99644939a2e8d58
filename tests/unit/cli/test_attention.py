"""``fairseq-doc attention``: how it reads a sentence, and what the output attended to;
tests/integration/test_translation.py runs it."""

import torch

from fairseq_doc.cli.attention import Options, as_text, attend
from fairseq_doc.preparation.parallel_text import ParallelText, prepare

from ..conftest import assert_close, small_translation_model
from ..evaluation.conftest import translator
from ..preparation.conftest import sentence, write


def test_a_sentence_is_read_by_the_settings_of_the_folder_or_by_the_options(tmp_path):
    for split in ("train", "valid", "test"):
        for side in ("en", "de"):
            write(tmp_path / f"{split}.{side}", [sentence(number, side) for number in range(9)])
    settings, data = ParallelText("en", "de", tmp_path, merges=20), tmp_path / "data"
    prepare(settings, data, say=lambda line: None)
    own = Options(data=str(data), path="a.pt").form("en")
    codes = {"bpe": "subword_nmt", "bpe_codes": str(data / "bpe.codes.en")}
    given = Options(data=str(data), path="a.pt", tokenizer="moses", **codes).form("en")
    line = "A\tdog's <unk> ball."
    assert own.tokens(line) == given.tokens(line) and own.tokens(line)[-1] == "."
    as_it_is = Options(data=str(data), path="a.pt", tokenizer="none").form("en")
    assert as_it_is.tokens(line) == line.split()


def scored(model, found):
    """The attention and the log-probability of an output in one pass."""
    source = [model.encoder.dictionary.index(word) for word in found["source"]]
    output = [model.decoder.dictionary.index(word) for word in found["output"]]
    prev = torch.tensor([[model.decoder.dictionary.eos(), *output[:-1]]])
    output_params, extra = model(torch.tensor([source]), None, prev)
    log_probs = model.get_normalized_probs((output_params, extra), log_probs=True)[0]
    return extra["attn"][0][0], log_probs.gather(1, torch.tensor(output).unsqueeze(1)).sum()


def test_attention_is_that_of_the_output_in_one_pass():
    model = small_translation_model().eval()
    found = attend(translator(model), ["s1", "s4", "nowhere", "s2"], 3)
    assert found["source"] == ["s1", "s4", "<unk>", "s2", "</s>"]
    assert found["output"][-1] == "</s>"
    weights, log_prob = scored(model, found)
    assert_close(torch.tensor(found["weights"]), weights, rtol=1e-5, atol=1e-5)
    assert_close(found["log_prob"], log_prob.item(), rtol=1e-5, atol=1e-5)
    other = small_translation_model(seed=1, doc_components="0,0,0,2").eval()
    found = attend(translator(model, other), ["s1", "s4", "s2"], 3)
    both = scored(model, found)[0] + scored(other, found)[0]
    assert_close(torch.tensor(found["weights"]), both / 2, rtol=1e-5, atol=1e-5)


def test_each_output_word_is_shown_with_the_source_word_of_most_attention():
    weights = [[0.3, 0.7], [0.75, 0.25]]
    result = {"source": ["ball", "</s>"], "output": ["Ball", "</s>"], "weights": weights}
    rows = [line.split() for line in as_text(result | {"log_prob": -1.5}).splitlines()]
    assert rows[1:3] == [["Ball", "0.700", "</s>"], ["</s>", "0.750", "ball"]]
    assert rows[3:] == [["log-probability", "-1.5000"]]
