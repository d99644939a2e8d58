import math
from types import SimpleNamespace

import pytest
import torch
from conftest import assert_refused
from fairseq.logging import metrics
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.criterions.doc_cross_entropy import (
    DocCrossEntropyConfig,
    DocCrossEntropyCriterion,
    balance,
)

from ..conftest import (
    assert_close,
    config_of,
    gradients,
    random_tokens,
    small_dictionary,
    small_model,
    small_translation_model,
)

B, T = 3, 5
PAD = small_dictionary().pad()
FACTORS = {"doc_lambda": 0.7, "ar_alpha": 2.0, "tar_beta": 3.0}


def criterion(doc_balance="paper", sentence_avg=False, **factors):
    task = SimpleNamespace(target_dictionary=small_dictionary())
    settings = {"doc_balance": doc_balance, "sentence_avg": sentence_avg, **factors}
    return DocCrossEntropyCriterion(task, config_of(DocCrossEntropyConfig, **settings))


def sample(batch=B, time=T):
    return {
        "net_input": {"src_tokens": random_tokens(batch, time), "window": 0},
        "target": random_tokens(batch, time, seed=1),
        "ntokens": batch * time,
    }


def random_log_weights(b, t, j, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(b, t, j, generator=rng, dtype=torch.float64).log_softmax(-1)


# beta


@given(st.integers(1, 4), st.integers(1, 5), st.integers(2, 6), st.integers(0, 99))
def test_both_betas_are_their_definitions(b, t, j, seed):
    log_weights = random_log_weights(b, t, j, seed)
    pi = log_weights.exp()
    total, by_stream = pi.sum((0, 1)), pi.sum(1)
    paper = (total.std(correction=0) / total.mean()) ** 2
    published = (j - 1) * by_stream.flatten().var(correction=1) / by_stream.mean() ** 2
    assert_close(balance(log_weights), (paper, published))


def test_gradients_of_both_betas_are_those_of_finite_differences():
    log_weights = random_log_weights(2, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(balance, [log_weights])


@pytest.mark.parametrize("shape", [(B, T, 1), (1, 1, 1), (B, T, 2), (1, 1, 2), (B, T, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_weights_have_no_imbalance_and_finite_gradients(shape, dtype):
    scores = torch.zeros(shape, dtype=dtype, requires_grad=True)
    for form in range(2):
        beta = balance(scores.log_softmax(-1))[form]
        assert_close(beta.item(), 0.0, atol=1e-12)
        assert_close(gradients(beta, [scores])[0], torch.zeros(shape), atol=1e-12)


# The loss


@pytest.mark.parametrize("doc_balance", ["paper", "published"])
@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize("missing", [None, *FACTORS])
def test_loss_is_its_terms_times_the_sample_size(doc_balance, sentence_avg, missing):
    factors = {name: x for name, x in FACTORS.items() if name != missing}
    model = small_model(output_dropout=0.5, component_dropout=0.5)
    batch = sample()
    torch.manual_seed(3)
    loss, sample_size, log = criterion(doc_balance, sentence_avg, **factors)(model, batch)

    torch.manual_seed(3)
    output = model(**batch["net_input"])
    probs = model.get_normalized_probs(output, log_probs=False)
    nll = -probs.gather(-1, batch["target"].unsqueeze(-1)).log().sum()
    paper, published = balance(output[1]["log_weights"])
    h, dropped = output[1]["undropped"], output[1]["dropped"]
    ar = (dropped**2).sum() / dropped.numel()
    tar = sum(((h[t] - h[t - 1]) ** 2).sum() for t in range(1, T)) / ((T - 1) * B * 5)
    beta = paper if doc_balance == "paper" else published
    terms = {"doc_lambda": beta, "ar_alpha": ar, "tar_beta": tar}
    expected_size = B if sentence_avg else B * T
    assert not torch.equal(h, dropped)
    assert sample_size == expected_size
    sizes = {"doc_lambda": B * T, "ar_alpha": expected_size, "tar_beta": expected_size}
    penalties = sum(sizes[name] * x * terms[name] for name, x in factors.items())
    assert_close(loss, nll + penalties)
    assert_close(log["loss"], loss.detach())
    assert_close(log["nll_loss"], nll.detach())
    logged = [log["balance"], log["ar"], log["tar"]]
    expected = [(expected_size * x).detach() for x in (paper, ar, tar)]
    assert_close(logged, expected, rtol=1e-6)
    assert (log["ntokens"], log["nsentences"], log["sample_size"]) == (B * T, B, expected_size)


@pytest.mark.parametrize("sentence_avg", [False, True])
def test_penalties_of_weights(sentence_avg):
    """Half the squares of all parameters, biases too, a tied matrix once, a frozen one not; and how
    far the norms of the output matrix's rows are from their target."""
    model, batch = small_model(), sample()
    output = model.decoder.output
    output.mixture_weights.weight.requires_grad_(False)
    trained = {id(p): p for p in model.parameters() if p.requires_grad}.values()
    squares = sum((p.detach() ** 2).sum() for p in trained)
    rows, bias = output.weight.detach(), output.bias.detach()
    deviations = rows.norm(dim=1) - 1.5
    pull = 2 * deviations[:, None] * rows / rows.norm(dim=1, keepdim=True) / len(rows)
    plain, size, _ = criterion(sentence_avg=sentence_avg)(model, batch)
    before = gradients(plain, [output.bias, output.weight])
    for name, target, value, of, gradient in (
        ("l2", None, squares / 2, 0, bias),
        ("weight_norm", 1.5, deviations.square().mean(), 1, pull),
    ):
        factors = {name: 0.3, "weight_norm_target": target}
        loss, _, log = criterion(sentence_avg=sentence_avg, **factors)(model, batch)
        assert_close(loss - plain, size * 0.3 * value)
        assert_close(log[name], size * value)
        after = gradients(loss, [output.bias, output.weight])
        assert_close(after[of] - before[of], size * 0.3 * gradient)


def test_evaluation_is_the_nll_alone():
    model, batch = small_model().eval(), sample()
    factors = {**FACTORS, "label_smoothing": 0.3, "l2": 5.0, "weight_norm": 1.0}
    loss, size, log = criterion(**factors)(model, batch)
    nll = model.token_nll(model(batch["net_input"]["src_tokens"]), batch["target"], -100)
    assert_close((loss, log["nll_loss"]), (nll, nll.detach()))
    assert log["balance"] > 0 and log["ar"] > 0 and log["tar"] > 0  # logged, not added


def test_a_score_that_is_not_finite_is_an_error_in_evaluation():
    model, batch = small_model(), sample()
    with torch.no_grad():
        model.decoder.output.bias[7] = math.nan
    assert torch.isnan(criterion()(model, batch)[0])  # fairseq handles it in training
    assert_refused("not finite", criterion(), model.eval(), batch)


def test_a_window_of_one_step_has_no_tar():
    loss, _, log = criterion(**FACTORS)(small_model(), sample(time=1))
    assert log["tar"] == 0 and torch.isfinite(loss)


def test_smoothed_labels_have_exact_gradients_and_say_so(caplog):
    criterion(label_smoothing=0.1, gradient_sampling=0.9)
    assert "does not support --label-smoothing" in caplog.text


def test_metrics_are_means_over_the_workers():
    names = ("loss", "nll_loss", "balance", "ar", "tar", "attn_entropy", "ntokens", "sample_size")
    rows = [(30.0, 20.0, 4.0, 1.0, 2.0, 5.0, 10, 2), (90.0, 70.0, 32.0, 2.0, 4.0, 9.0, 30, 6)]
    logs = [dict(zip(names, row, strict=True)) for row in rows]
    with metrics.aggregate() as aggregator:
        DocCrossEntropyCriterion.reduce_metrics(logs)
    values = aggregator.get_smoothed_values()
    expected = {
        "loss": 120 / 8 / math.log(2),
        "nll_loss": 90 / 40 / math.log(2),
        "ppl": math.exp(90 / 40),
        "balance": 36 / 8,
        "balance_cv": math.sqrt(36 / 8),
        "ar": 3 / 8,
        "tar": 6 / 8,
        "attn_entropy": 14 / 40 / math.log(2),
    }
    assert_close({k: float(values[k]) for k in expected}, expected, rtol=0, atol=6e-3)
    assert DocCrossEntropyCriterion.logging_outputs_can_be_summed()


# Smoothed labels


def translation_sample():
    """Ragged on both sides."""
    source, target = random_tokens(B, 4, seed=2), random_tokens(B, T, seed=1)
    before = torch.cat([torch.full((B, 1), 2), target[:, :-1]], dim=1)
    source[0, :2] = target[1, 3:] = before[1, 3:] = PAD
    return {
        "net_input": {"src_tokens": source, "src_lengths": None, "prev_output_tokens": before},
        "target": target,
        "ntokens": B * T - 2,
    }


@pytest.fixture(params=["lstm_doc_lm", "lstm_luong_doc"])
def model_and_batch(request):
    if request.param == "lstm_doc_lm":
        return small_model(), sample()
    return small_translation_model(), translation_sample()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("sentence_avg", [False, True])
def test_labels_are_smoothed_in_training(model_and_batch, smoothing, sentence_avg):
    """The labels 1 - smoothing for the target, smoothing / (V - 1) for each other word. The NLL is
    logged too, and beta is added."""
    model, batch = model_and_batch
    factors = {"doc_lambda": 0.7, "label_smoothing": smoothing}
    loss, size, log = criterion("published", sentence_avg, **factors)(model, batch)
    output, target = model(**batch["net_input"]), batch["target"]
    log_probs = model.get_normalized_probs(output, log_probs=True)[target != PAD]  # (N, V)
    own = log_probs.gather(1, target[target != PAD].unsqueeze(1)).squeeze(1)  # (N,)
    share = smoothing / (log_probs.size(1) - 1)
    expected = (-(1 - smoothing) * own - share * (log_probs.sum(1) - own)).sum()
    beta = balance(output[1]["log_weights"], target != PAD)[1]
    assert size == (B if sentence_avg else batch["ntokens"])
    expected = expected + 0.7 * batch["ntokens"] * beta
    assert_close(loss, expected)
    assert_close((log["loss"], log["nll_loss"]), (loss.detach(), -own.sum().detach()))
    parameters = list(model.parameters())
    grads = (gradients(x, parameters) for x in (loss, expected))
    assert_close(*grads, rtol=1e-8)


@pytest.mark.cpu_only("sampled gradients")
@pytest.mark.parametrize("training", [True, False])
def test_gradients_are_sampled_in_training_alone(model_and_batch, training):
    model, batch = model_and_batch
    model.train(training)
    parameters = [model.decoder.output.weight, model.decoder.output.bias]

    def found(**options):
        torch.manual_seed(5)
        loss, _, _ = criterion(**options)(model, batch)
        return loss, gradients(loss, parameters)

    exact_loss, exact = found()
    loss, sampled = found(gradient_sampling=0.9)
    assert torch.equal(loss, exact_loss)
    equal = [torch.equal(x, y) for x, y in zip(exact, sampled, strict=True)]
    assert equal == [not training] * 2


# Models without a last LSTM layer to penalise


@pytest.mark.parametrize("factor", ["ar_alpha", "tar_beta"])
def test_ar_and_tar_of_an_encoder_decoder_are_refused(factor):
    it = criterion(**{factor: 1.0})
    problem = "--ar-alpha and --tar-beta .* got"
    assert_refused(problem, it, small_translation_model(), translation_sample())


@pytest.mark.parametrize(
    "settings, problem",
    [
        ({"gradient_sampling": math.nan}, "gradient_sampling must be at least 0; got nan"),
        ({"label_smoothing": 1.0}, r"smoothing must be in \[0, 1\)"),
        ({"weight_norm_target": 1.5}, "needs --weight-norm"),
        ({"find_unused_parameters": True}, "--find-unused-parameters cannot be given"),
    ],
)
def test_options_that_cannot_be_used(monkeypatch, settings, problem):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    criterion()
    assert_refused(problem, criterion, **settings)


def test_an_encoder_decoder_logs_its_attention_over_real_tokens():
    model, batch = small_translation_model(), translation_sample()
    _, _, log = criterion()(model.eval(), batch)
    (weights,) = model(**batch["net_input"])[1]["attn"]
    each = -(weights.clamp_min(1e-30).log() * weights).sum(-1)
    expected = each[batch["target"] != PAD].sum()
    assert_close(float(log["attn_entropy"]), float(expected), rtol=1e-6, atol=1e-6)
    assert not {"ar", "tar"} & set(log) and log["balance"] > 0
    with metrics.aggregate() as aggregator:
        DocCrossEntropyCriterion.reduce_metrics([log, log])
    assert not {"ar", "tar"} & set(aggregator.get_smoothed_values())


@pytest.mark.parametrize("doc_balance", ["paper", "published"])
def test_balance_ignores_padding(doc_balance):
    """Of a sentence padded to twice its length, loss and gradients are those of it alone."""
    model, batch = small_translation_model(), translation_sample()
    padding, it = torch.full((B, T), PAD), criterion(doc_balance, doc_lambda=0.7)
    wide = {**batch, "target": torch.cat([batch["target"], padding], 1)}
    before = torch.cat([batch["net_input"]["prev_output_tokens"], padding], 1)
    wide["net_input"] = {**batch["net_input"], "prev_output_tokens": before}
    found, expected = it(model, wide), it(model, batch)
    assert_close(found[0], expected[0])
    assert_close(float(found[2]["balance"]), float(expected[2]["balance"]))
    parameters = list(model.parameters())
    assert_close(*(gradients(loss, parameters) for loss, _, _ in (found, expected)))


def test_a_split_without_targets_is_refused():
    assert_refused("no target", criterion(), None, {"target": None, "net_input": {}})
