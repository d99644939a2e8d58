"""examples/transformers_head: the head on models of transformers, and the training that compares heads.

Everything runs in this process: importing torch and transformers takes longer than the trainings.
"""

import importlib
import itertools
import math
import re
import runpy
import sys
from unittest import mock

import pytest
import torch
from conftest import ROOT, refusal
from torch.nn import functional as F

EXAMPLE = ROOT / "examples" / "transformers_head"
V, D, LAYERS = 30, 16, 3


@pytest.fixture(scope="module")
def training():
    """train.py, which imports mixture_head.py."""
    with mock.patch.object(sys, "path", [str(EXAMPLE), *sys.path]):
        return importlib.import_module("train")


@pytest.fixture(scope="module")
def head(training):
    return sys.modules["mixture_head"]


@pytest.fixture(scope="module")
def transformers(head):
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


@pytest.fixture
def configs(transformers):
    """A model whose output matrix is its embedding, and one whose output matrix is its own; no dropout."""
    words = {"vocab_size": V, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    none = dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop"), 0)
    sizes = {"hidden_size": D, "intermediate_size": 2 * D, "num_hidden_layers": LAYERS}
    gpt2 = {"n_positions": 20, "n_embd": D, "n_layer": LAYERS, "n_head": 2}
    return {
        "gpt2": transformers.GPT2Config(**gpt2, **none, **words),
        "llama": transformers.LlamaConfig(num_attention_heads=2, **sizes, **words),
    }


both = pytest.mark.parametrize("name", ["gpt2", "llama"])


def make_model(head, config, components=(1, 0, 2, 2), activation="linear"):
    """In float64, in evaluation mode, with weights large enough that components and words differ."""
    torch.manual_seed(0)
    settings = {"components": list(components), "activation": activation}
    model = head.MixtureHeadForCausalLM(head.MixtureHeadConfig(text_config=config, **settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
        model.output.bias.normal_()
        model.output.mixture_weights.weight.normal_()
    return model.double().eval()


def some_words(batch=2, time=7, seed=0):
    return torch.randint(3, V, (batch, time), generator=torch.Generator().manual_seed(seed))


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name, activation", [("gpt2", "linear"), ("llama", "tanh")])
def test_logits_are_the_mixtures_log_probabilities(head, configs, name, activation):
    """By the equations, from the hidden states: those below the last without mean and scale."""
    model, words = make_model(head, configs[name], activation=activation), some_words()
    found = model(words, output_hidden_states=True)
    output, expected, j = model.output, 0, 0
    pi = output.mixture_weights(found.hidden_states[-1]).softmax(-1)
    for n, h in enumerate(found.hidden_states):
        if n < LAYERS:
            h = F.layer_norm(h, (D,))
        for _ in range(output.components[n]):
            row = slice(D * (j - sum(output.components[:n])), None)
            projection = output.projections[str(n)]
            weight, bias = projection.weight[row][:D], projection.bias[row][:D]
            k = h @ weight.t() + bias
            k = torch.tanh(k) if activation == "tanh" else k
            expected += pi[..., j, None] * (k @ output.weight.t() + output.bias).softmax(-1)
            j += 1
    assert j == 5
    assert_close(found.logits.exp(), expected)
    assert_close(found.logits.log_softmax(-1), found.logits)
    assert (model.output.weight is model.get_input_embeddings().weight) == (name == "gpt2")
    assert model(words).hidden_states is None


@both
def test_a_new_model_starts_near_softmaxes_of_its_layers(head, configs, name):
    """Without noise it is exactly their mean."""
    torch.manual_seed(0)
    config = head.MixtureHeadConfig(text_config=configs[name], components=[0, 1, 0, 3], noise=0.0)
    model, words = head.MixtureHeadForCausalLM(config).double().eval(), some_words()
    found = model(words, output_hidden_states=True)
    layers = (F.layer_norm(found.hidden_states[1], (D,)), found.hidden_states[3])
    softmaxes = [(h @ model.output.weight.t()).softmax(-1) for h in layers]
    assert_close(found.logits.exp(), 0.25 * softmaxes[0] + 0.75 * softmaxes[1])
    assert 0.015 < model.output.weight.std() < 0.025 and not model.output.bias.any()
    noisy = head.MixtureHeadConfig(text_config=configs[name], components=[0, 1, 0, 3], noise=0.5)
    vectors = head.MixtureHeadForCausalLM(noisy).output.projections["3"].weight.view(3, D, D)
    sizes = (vectors - torch.eye(D)).pow(2).sum((1, 2)).sqrt() / D**0.5
    assert ((0.4 < sizes) & (sizes < 0.6)).all()


def test_the_loss_is_the_next_words(head, configs):
    model, words = make_model(head, configs["gpt2"]), some_words()
    labels = words.clone()
    labels[0, 3] = labels[1, 6] = -100
    found = model(words, labels=labels)
    log_probs = found.logits[:, :-1].gather(-1, words[:, 1:, None]).squeeze(-1)
    total = -log_probs[labels[:, 1:] != -100].sum()
    assert_close(found.loss, total / 10)
    assert_close(model(words, labels=labels, num_items_in_batch=4).loss, total / 4)
    assert_close(model(words, logits_to_keep=2).logits, found.logits[:, -2:])
    assert_close(model(words, labels=labels, return_dict=False)[0], found.loss)


def test_training_makes_no_logits_and_has_their_gradient(head, configs):
    model, words = make_model(head, configs["llama"]), some_words()
    expected = F.cross_entropy(model(words).logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())
    expected_gradients = torch.autograd.grad(expected, list(model.parameters()))
    found = model.train()(words, labels=words)
    assert found.logits is None and model(words).logits is not None
    assert model(words, labels=words, skip_logits=False).logits is not None
    assert_close(found.loss, expected)
    assert_close(torch.autograd.grad(found.loss, list(model.parameters())), expected_gradients)


def test_generation(head, configs):
    """Greedy, from left-padded and from plain prompts, with and without the cache, and with beams."""
    model, words = make_model(head, configs["gpt2"]), some_words(2, 5)
    settings = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    expected = words
    for _ in range(6):
        expected = torch.cat([expected, model(expected).logits[:, -1:].argmax(-1)], 1)
    assert len(set(expected[:, 5:].flatten().tolist())) > 2
    mask = torch.ones_like(words)
    for use_cache in (True, False):
        found = model.generate(words, attention_mask=mask, use_cache=use_cache, **settings)
        assert torch.equal(found, expected)
    padded = model.generate(F.pad(words, (3, 0)), attention_mask=F.pad(mask, (3, 0)), **settings)
    assert torch.equal(padded[:, 3:], expected)
    beams = model.generate(words, attention_mask=mask, num_beams=3, **settings)

    def score(sequence):
        return model(sequence).logits[:, :-1].gather(-1, sequence[:, 1:, None]).sum((1, 2))

    assert (score(beams) >= score(expected) - 1e-9).all()


@both
def test_a_saved_model_is_loaded_by_its_name(head, transformers, configs, name, tmp_path):
    model, words = make_model(head, configs[name]).float(), some_words()
    model.save_pretrained(tmp_path)
    other = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(other) is head.MixtureHeadForCausalLM
    assert other.config.components == [1, 0, 2, 2]
    torch.testing.assert_close(other(words).logits, model(words).logits)
    assert (other.output.weight is other.get_input_embeddings().weight) == (name == "gpt2")


def test_a_new_embedding_is_a_new_output_matrix(head, configs):
    model = make_model(head, configs["gpt2"]).float()
    model.resize_token_embeddings(V + 4, mean_resizing=False)
    assert model(some_words()).logits.size(-1) == V + 4
    assert model.output.weight is model.get_input_embeddings().weight
    untied = make_model(head, configs["llama"])
    assert "tie_word_embeddings" in refusal(untied.resize_token_embeddings, V + 4)
    assert "tie_word_embeddings" in refusal(untied.resize_token_embeddings, V, 2 * V)
    untied.resize_token_embeddings(V)  # as scripts do for every model
    assert untied(some_words()).logits.size(-1) == V


@both
def test_a_trained_head_is_exchanged(head, transformers, configs, name):
    """Without noise the logits' softmax is the same, in float64; with noise its components part."""
    torch.manual_seed(0)
    before = transformers.AutoModelForCausalLM.from_config(configs[name]).double().eval()
    words = some_words()
    expected = before(words).logits.log_softmax(-1)
    model = head.MixtureHeadForCausalLM.from_causal_lm(before, 3, noise=0.0)
    assert_close(model(words).logits, expected)
    assert model.config.components == [0, 0, 0, 3] and not model.training

    model = head.MixtureHeadForCausalLM.from_causal_lm(before, 3)
    loss = model(words, labels=words).loss.item()
    assert 0 < abs(loss - before(words, labels=words).loss.item()) < 0.01
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(words, labels=words).loss.backward()
        optimizer.step()
    assert model(words, labels=words).loss < loss - 0.1
    assert model.output.mixture_weights.weight.abs().max() > 0


def test_models_that_do_not_fit(head, transformers, configs):
    sizes = {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 1}
    capped = transformers.Gemma2Config(final_logit_softcapping=0.01, **sizes)
    exchange = head.MixtureHeadForCausalLM.from_causal_lm
    message = refusal(exchange, transformers.Gemma2ForCausalLM(capped), 2)
    assert "those of Gemma2ForCausalLM are another function" in message
    message = refusal(exchange, transformers.GPT2Model(configs["gpt2"]), 2)
    assert "got GPT2Model without such a head" in message
    message = refusal(make_model, head, configs["gpt2"], [0, 0, 2])
    assert "got [16, 16, 16, 16] and [0, 0, 2]" in message


def test_without_transformers_its_installation_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    message = refusal(runpy.run_path, str(EXAMPLE / "mixture_head.py"))
    assert "pip install --upgrade transformers" in message


def test_a_torchaudio_that_cannot_be_loaded_is_hidden(head, monkeypatch, tmp_path):
    (tmp_path / "torchaudio.py").write_text('raise OSError("no such library")')
    monkeypatch.delitem(sys.modules, "torchaudio", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    head.hide_broken_torchaudio()
    assert sys.modules["torchaudio"] is None


# The training

TINY = """--steps 4 --layers 2 --width 8 --heads 2 --context 8 --batch-size 4 --doc-components 0,0,2
    1,1,1""".split()


def test_every_head_is_trained_and_kept(training, transformers, tmp_path, monkeypatch, capsys):
    few = list(itertools.islice(training.pydoc_text.paragraphs(), 100))
    monkeypatch.setattr(training.pydoc_text, "paragraphs", lambda: few)
    monkeypatch.setattr(training, "measured_apart", lambda function, *args: function(*args))
    training.main([*TINY, "--save", str(tmp_path / "heads")])
    output = capsys.readouterr().out
    rows = dict(re.findall(r"^(\S.*?)  +(\d.*)$", output, re.MULTILINE))
    names = ["one softmax", "0,0,2", "1,1,1", "plain", "trained on", "exchanged"]
    starts = [f"{name}, at the start" for name in names[4:]]
    assert list(rows) == [*names[:4], starts[0], names[4], starts[1], names[5]]
    one_softmax = [float(number) for number in rows["one softmax"].split()[:2]]
    assert all(100 < number < 2000 for number in one_softmax)
    for start in starts:
        found = [float(number) for number in rows[start].split()]
        assert found == pytest.approx(one_softmax, rel=0.01)
    assert len(rows["plain"].split()) == 4  # no perplexity

    folder = tmp_path / "heads" / "1,1,1"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer("the object of zzzz", return_tensors="pt")
    assert tokenizer.decode(prompt.input_ids[0]) == "the object of <unk>"
    generated = model.generate(**prompt, max_new_tokens=3, do_sample=True)
    assert generated.shape == (1, 7)


def test_every_word_but_the_first_is_scored_once(training, head, configs):
    model, args = make_model(head, configs["gpt2"]), training.parse(TINY)
    stream = some_words(1, 21)[0]
    log_probs = 0.0
    for start in range(0, 20, args.context):
        window = stream[None, start : start + args.context + 1]
        with torch.no_grad():
            log_probs += model(window).logits[0, :-1].gather(-1, window[0, 1:, None]).sum().item()
    assert training.perplexity(model, stream, args) == pytest.approx(math.exp(-log_probs / 20))


def test_the_plain_form_is_the_same_loss(training, head, configs):
    model, words = make_model(head, configs["gpt2"]), some_words()
    params, _ = model.output([torch.randn(2, 7, D, dtype=torch.float64) for _ in range(4)])
    target = words.clone()
    target[1, 3] = -100
    plain = training.plain_nll(model.output, params, target, "mean")
    assert_close(plain, model.output.nll(params, target, reduction="mean"))


@pytest.mark.parametrize(
    "words, problem",
    [
        ("--doc-components 0,2", "--doc-components 0,2: expected 4 numbers"),
        ("--save .", r"\. exists; remove it"),
    ],
)
def test_arguments_that_cannot_be(training, words, problem):
    with pytest.raises(SystemExit, match=f"^train: error: {problem}"):
        training.main(words.split())


def test_the_pages_python_runs(head):
    """Its first block without fairseq is a test of the package's."""
    text = (ROOT / "docs" / "output_layer.md").read_text()
    _, *others = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert others
    names = {}
    for block in others:
        exec(block, names)
