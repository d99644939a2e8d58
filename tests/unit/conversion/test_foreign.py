"""Models of other codes, made here of torch's own layers, have the same probabilities as ours."""

import re

import pytest
import torch
from conftest import doc, files_up_to, refused, result_of
from torch import nn

from fairseq_doc.evaluation.ensemble import load_ensemble

WORDS = ["the", "<eos>", "dog", "<unk>", "barks", "cat", "sees"]
OF_FASTAI = ["xxunk", "xxpad", "xxbos", "the", "dog", "barks", "cat", "xxfake", "xxfake"]
LINES = ["the dog barks", "the cat", "dog dog the the cat barks"]


class Foreign(nn.Module):
    """Their forward pass in evaluation: an embedding, LSTM layers, and one softmax or several."""

    def __init__(self, words, widths, mixture=0, tied=True):
        super().__init__()
        dim = 5 if mixture and not tied else widths[0] if mixture or tied else widths[-1]
        self.encoder = nn.Embedding(words, widths[0])
        self.rnns = nn.ModuleList(map(nn.LSTM, widths[:-1], widths[1:]))
        self.decoder = nn.Linear(dim, words)
        if tied:
            self.decoder.weight = self.encoder.weight
        if mixture:
            self.prior = nn.Linear(widths[-1], mixture, bias=False)
            self.latent = nn.Sequential(nn.Linear(widths[-1], mixture * dim), nn.Tanh())
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    @torch.no_grad()
    def log_probs(self, tokens):
        """Of every word after each of the tokens (T,), (T, V), in float64."""
        model = self.double()
        h = model.encoder(tokens)
        for layer in model.rnns:
            h, _ = layer(h)
        if not hasattr(model, "prior"):
            return model.decoder(h).log_softmax(-1)
        pi = model.prior(h).log_softmax(-1)  # (T, J)
        vectors = model.latent(h).view(len(h), pi.size(1), -1)  # (T, J, d)
        return (pi.unsqueeze(-1) + model.decoder(vectors).log_softmax(-1)).logsumexp(1)


def awd_lstm_lm(model):
    """Its tensors: DropConnect renames the recurrent matrices."""
    state = {}
    for name, tensor in model.state_dict().items():
        if name.startswith("rnns"):
            _, number, part = name.split(".")
            name = f"rnns.{number}.module.{part}"
            name += "_raw" if part == "weight_hh_l0" else ""
        state[name] = tensor.float()
    return state


def fastai(model):
    """Its tensors: two modules, and copies of two matrices."""
    state = {"0.encoder_dp.emb.weight": model.encoder.weight.detach().float()}
    for name, tensor in awd_lstm_lm(model).items():
        if name.endswith("_raw"):
            state[f"0.{name.removesuffix('_raw')}"] = tensor * 2  # after DropConnect
            name = name.replace("module.", "")
        state[f"{'1' if name.startswith('decoder') else '0'}.{name}"] = tensor
    return state


CASES = {
    "awd": (WORDS, {"widths": [4, 6, 4]}, awd_lstm_lm),
    "awd_untied": (WORDS, {"widths": [4, 6, 5], "tied": False}, awd_lstm_lm),
    "mos": (WORDS, {"widths": [4, 6, 3], "mixture": 3}, awd_lstm_lm),
    "mos_untied": (WORDS, {"widths": [4, 3], "mixture": 2, "tied": False}, awd_lstm_lm),
    "fastai": (OF_FASTAI, {"widths": [4, 6, 6, 4]}, fastai),
}


IMPORT = ["import-checkpoint", "tensors.pt", "imported", "--words", "words.txt"]
SCORE = ["score", "imported", "--path", "imported/model.pt"]


@pytest.fixture
def foreign(request, tmp_path, monkeypatch):
    """A model of theirs, its words and its tensors; files of both in the working folder."""
    monkeypatch.chdir(tmp_path)
    words, settings, tensors_of = CASES[getattr(request, "param", "mos")]
    torch.manual_seed(1)
    model = Foreign(len(words), **settings)
    tensors = tensors_of(model)
    torch.save(tensors, "tensors.pt")
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    return model, words, tensors


@pytest.mark.parametrize("foreign", CASES, indirect=True)
def test_log_probabilities_are_those_of_torchs_layers(foreign):
    model, words, _ = foreign
    doc(*IMPORT)
    end = words.index("xxbos" if "xxbos" in words else "<eos>")
    scored = result_of(*SCORE, stdin="\n".join(LINES).encode())
    for line, found in zip(LINES, scored["sentences"], strict=True):
        tokens = torch.tensor([end, *map(words.index, line.split()), end])
        expected = model.log_probs(tokens[:-1]).gather(1, tokens[1:, None]).sum().item()
        assert found["log_prob"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("foreign", ["awd", "mos"], indirect=True)
def test_words_that_it_lacks_have_no_probability(foreign, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text(words.read_text().replace("<unk>", "unk"))
    doc(*IMPORT)
    ensemble = load_ensemble("imported/model.pt", "imported")
    dictionary = ensemble.dictionary
    tokens = torch.tensor([[dictionary.index(word) for word in ("</s>", "dog", "<pad>")]])
    log_probs = ensemble.single.get_normalized_probs(ensemble.single(tokens), log_probs=True)
    lacking = [dictionary.bos(), dictionary.pad(), dictionary.unk()]
    assert log_probs.isfinite().all() and (log_probs[..., lacking].double().exp() == 0).all()
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(1, 3))


def test_a_file_of_an_old_torch_or_under_model_is_read(foreign):
    *_, tensors = foreign
    expected = result_of(*IMPORT)
    for number, saved in enumerate(({"model": tensors}, tensors)):
        torch.save(saved, "tensors.pt", _use_new_zipfile_serialization=number == 0)
        again = result_of(*IMPORT[:2], f"again{number}", *IMPORT[3:])
        assert again["parameters"] == expected["parameters"]


def test_on_a_full_disk_nothing_is_left(foreign, tmp_path):
    with files_up_to(2_000):
        message = refused(*IMPORT)
    assert re.search("cannot write imported/.*: File too large", message)
    assert not (tmp_path / "imported").exists()


def without(name):
    return lambda tensors: {key: tensors[key] for key in tensors if key != name}


def with_ones(name, *shape):
    return lambda tensors: {**tensors, name: torch.ones(shape)}


@pytest.mark.parametrize(
    "change, problem",
    [
        (lambda tensors: nn.LSTM(2, 2), "expected tensors by name"),
        (without("prior.weight"), "missing tensors: prior.weight"),
        (with_ones("rnns.0.layers.0.linear.weight", 1), "unknown: rnns.0.layers.0.linear"),
        (with_ones("decoder.weight", 9, 4), "numbers of words"),
        (with_ones("rnns.1.module.bias_ih_l0", 9), "bias_ih_l0"),
    ],
)
def test_other_tensors_are_refused(foreign, tmp_path, change, problem):
    torch.save(change(foreign[2]), "tensors.pt")
    assert problem in refused(*IMPORT)
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    "words, options, problem",
    [
        (WORDS[:-1], [], "expected 7 words"),
        ([*WORDS[:-1], "a b"], [], "line 7"),
        ([*WORDS[:-1], "dog"], [], "line 7"),
        (["x", *"abcdef"], [], "expected </s> or <eos> or xxbos in the list of words"),
        (WORDS, ["--unknown", "oov"], "oov"),
        (["<eos>", "</s>", *"abcde"], ["--end-mark", "<eos>"], "expected no word </s>"),
    ],
)
def test_other_words_are_refused(foreign, tmp_path, words, options, problem):
    (tmp_path / "words.txt").write_text("\n".join(words))
    assert problem in refused(*IMPORT, *options)


def test_other_words_for_the_end_and_for_unknown_ones(foreign, tmp_path):
    expected = result_of(*IMPORT) and result_of(*SCORE, stdin=b"the bird\n")["sentences"]
    renamed = {"<eos>": "END", "<unk>": "OOV"}
    (tmp_path / "words.txt").write_text("\n".join(renamed.get(word, word) for word in WORDS))
    marks = ["--end-mark", "END", "--unknown", "OOV"]
    doc(*IMPORT[:2], "again", *IMPORT[3:], *marks)
    scored = result_of("score", "again", "--path", "again/model.pt", stdin=b"the bird\n")
    assert scored["sentences"] == expected
