"""``doc_cross_entropy``: the NLL (with smoothed labels the cross entropy), plus lambda_beta beta,
AR, TAR, L2 and a penalty on weight norms, each logged separately.

Axes: B streams, T time, J components. fairseq divides gradients by the sample size of all workers
(tokens, or sentences with ``--sentence-avg``). So every penalty is multiplied by this worker's
sample size, except lambda_beta beta, which is multiplied by its number of tokens, so that its
strength per token is always the same.
"""

import logging
import math
from dataclasses import dataclass
from typing import Optional

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from omegaconf import II
from torch.distributed.nn.functional import all_reduce

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.modules.mixture import check_finite
from fairseq_doc.ops.mixture import sum_dtype
from fairseq_doc.options import check_needs, check_ranges, option, rate

logger = logging.getLogger(__name__)

BALANCES = ("paper", "published")
USUAL_NORM = 2.0  # default of --weight-norm-target


def _over_workers(x: torch.Tensor) -> torch.Tensor:
    """The sum of a tensor over all workers. Every worker's loss depends on every summand, so the
    gradient of a summand is the sum of all workers' gradients."""
    if not torch.distributed.is_initialized():
        return x
    return all_reduce(x, group=distributed_utils.get_data_parallel_group())


def balance(
    log_weights: torch.Tensor, real: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both forms (paper, published) of beta, the squared coefficient of variation of the mixture
    weights pi (Eq. 12-13), from log pi (B, T, J); ``real`` (B, T) is true except at padding.

    - paper: (std(Pi) / mean(Pi))^2, population std; Pi (J,) is the sum of pi over the real tokens
      of the batch, of all workers.
    - published: what the published runs computed, (J - 1) var(Pi_b) / mean(Pi_b)^2, where Pi_b is
      the sum over time within stream b, with the unbiased variance over all B J numbers.

    Neither form takes a square root, whose gradient is NaN at a variance of zero.
    """
    pi = log_weights.double().exp()  # (B, T, J): small sums of squares keep their digits
    if real is not None:
        pi = pi * real.unsqueeze(-1)
    by_stream = pi.sum(1)  # (B, J)
    streams, j = by_stream.shape
    if j == 1:
        zero = pi.sum() * 0.0  # part of the graph
        return zero, zero
    parts = [by_stream.sum(0), by_stream.square().sum()[None], pi.new_full((1,), streams)]
    sums = _over_workers(torch.cat(parts))
    total, squares, count = sums[:j], sums[j], sums[j + 1] * j  # (J,), scalar, B J
    paper = total.var(correction=0) / total.mean().square()
    mean = total.sum() / count
    variance = (squares - count * mean.square()) / (count - 1)
    return paper, (j - 1) * variance / mean.square()


def activation_penalties(
    dropped: torch.Tensor, undropped: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """AR and TAR without their factors (Merity et al., 2017): the mean square of h^N after dropout,
    (T, B, D_N), and that of the differences in time of h^N before dropout."""
    ar = dropped.square().mean()
    if len(undropped) < 2:
        return ar, ar.new_zeros(())
    return ar, (undropped[1:] - undropped[:-1]).square().mean()


def half_square_norm(model: torch.nn.Module) -> torch.Tensor:
    """L2 without its factor: half the sum of squares of all parameters (Melis et al., 2018)."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return 0.5 * torch.stack([p.to(sum_dtype(p.dtype)).square().sum() for p in trained]).sum()


def norm_deviation(weight: torch.Tensor, norm: float) -> torch.Tensor:
    """Weight-norm regularisation without its factor (after Herold et al., 2018): the mean over words
    v of (|w_v| - norm)^2, where w_v is a row of the output matrix ``weight`` (V, d)."""
    norms = torch.linalg.vector_norm(weight.to(sum_dtype(weight.dtype)), dim=1)  # (V,)
    return (norms - norm).square().mean()


def attention_entropy(weights: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Sum of the entropies (nats) of attention weights (B, T, S) over the tokens at which ``real``
    (B, T) is true; no gradient."""
    return (torch.special.entr(weights.detach().float()).sum(-1) * real).sum()


@dataclass
class DocCrossEntropyConfig(FairseqDataclass):
    """Options; a penalty with the factor zero is left out of the loss."""

    doc_balance: ChoiceEnum(list(BALANCES)) = option(  # type: ignore[valid-type]
        "form of beta: Eq. 13 (paper), or what the published runs computed (published), about "
        "J - 1 times as large, for which lambda 0.001 was tuned",
        "paper",
    )
    doc_lambda: float = option(
        "factor of beta, which is added to the loss per token, even with --sentence-avg", 0.0
    )
    ar_alpha: float = option(
        "factor of activation regularisation (AR): the mean square of the last layer's output", 0.0
    )
    tar_beta: float = option(
        "factor of temporal activation regularisation (TAR): the mean square of the differences "
        "between the last layer's outputs at successive steps",
        0.0,
    )
    l2: float = option(
        "factor of half the sum of squares of all parameters, which is added to the loss per token "
        "(per column with --sentence-avg) before gradients are clipped",
        0.0,
        least=0,
    )
    weight_norm: float = option(
        "factor of the mean over all words of (|w| - --weight-norm-target)^2, where w is a row of "
        "the output matrix (after Herold et al., 2018)",
        0.0,
        least=0,
    )
    weight_norm_target: Optional[float] = option(
        "norm of the rows towards which --weight-norm pulls (default: 2)", least=0
    )
    label_smoothing: float = rate(
        "label smoothing: probability taken from the target and shared equally by all other words",
        0.0,
    )
    gradient_sampling: float = option(
        "threshold for sampled gradients on a CPU, such as 0.05: a component with a smaller "
        "posterior r takes part in the output layer's gradients only with probability r / threshold, "
        "then with the threshold as its factor: unbiased and faster (0: exact gradients)",
        0.0,
        least=0,
    )
    sentence_avg: bool = II("optimization.sentence_avg")
    find_unused_parameters: bool = II("distributed_training.find_unused_parameters")


@register_criterion("doc_cross_entropy", dataclass=DocCrossEntropyConfig)
class DocCrossEntropyCriterion(FairseqCriterion):
    """The training objective; in evaluation only the NLL."""

    def __init__(self, task, cfg):
        super().__init__(task)
        _check(cfg)
        self.cfg = cfg
        self.balance_form = BALANCES.index(str(cfg.doc_balance))
        target = cfg.weight_norm_target
        self.weight_norm_target = USUAL_NORM if target is None else target

    def forward(self, model, sample, reduce=True):
        """Return the summed loss; the sample size by which fairseq divides it; and values to log.
        Raises ``FairseqDocError`` in evaluation if the NLL is not finite."""
        target = sample["target"]
        if target is None:
            raise FairseqDocError("a split has no target: prepare the data of both languages again")
        if not hasattr(model, "token_nll"):
            raise FairseqDocError(
                "--criterion doc_cross_entropy needs a model of this package; got "
                f"{type(model).__name__}: give --criterion cross_entropy"
            )
        net_output = model(**sample["net_input"])
        loss, nll = self._cross_entropy(model, net_output, target)
        ntokens, nsentences = sample["ntokens"], target.size(0)
        sample_size = nsentences if self.cfg.sentence_avg else ntokens
        real = target.ne(self.padding_idx)
        betas = balance(net_output[1]["log_weights"], real)
        factor = self.cfg.doc_lambda * ntokens / sample_size
        penalties = {"balance": (factor, betas[self.balance_form])}
        penalties.update(self._penalties(model, net_output[1]))
        logged = {name: value.detach() * sample_size for name, (_, value) in penalties.items()}
        # The paper's form is logged, whichever is trained.
        logged["balance"] = betas[0].detach().float() * sample_size
        if model.training:
            for factor, value in penalties.values():
                if factor:
                    loss = loss + sample_size * factor * value.to(nll.dtype)
        logged.update(nll_loss=nll.detach(), loss=loss.detach())
        if "attn" in net_output[1]:
            logged["attn_entropy"] = attention_entropy(net_output[1]["attn"][0], real)
        logged.update(ntokens=ntokens, nsentences=nsentences, sample_size=sample_size)
        return loss, sample_size, logged

    def _cross_entropy(self, model, net_output, target):
        """The loss without penalties, and the NLL, both summed."""
        if not model.training:
            nll = model.token_nll(net_output, target, self.padding_idx)
            check_finite(nll.detach())
            return nll, nll
        cfg = self.cfg
        if cfg.label_smoothing:
            output = model.decoder.output
            return output.smoothed_nll(net_output[0], target, cfg.label_smoothing, self.padding_idx)
        nll = model.token_nll(
            net_output, target, self.padding_idx, gradient_sampling=cfg.gradient_sampling
        )
        return nll, nll

    def _penalties(self, model, extra):
        """{name: (factor, value)} of all terms except beta."""
        cfg, penalties = self.cfg, {}
        if "dropped" in extra:
            ar, tar = activation_penalties(extra["dropped"], extra["undropped"])
            penalties = {"ar": (cfg.ar_alpha, ar), "tar": (cfg.tar_beta, tar)}
        elif cfg.ar_alpha or cfg.tar_beta:
            raise FairseqDocError(
                "--ar-alpha and --tar-beta apply only to language models; got "
                f"{cfg.ar_alpha} and {cfg.tar_beta}"
            )
        if cfg.l2 and model.training:
            penalties["l2"] = cfg.l2, half_square_norm(model)
        if cfg.weight_norm and model.training:
            deviation = norm_deviation(model.decoder.output.weight, self.weight_norm_target)
            penalties["weight_norm"] = cfg.weight_norm, deviation
        return penalties

    @staticmethod
    def reduce_metrics(logging_outputs):
        """Log losses and entropies in base 2, as fairseq does; ``balance_cv`` is sqrt(beta), the
        coefficient of variation in the paper's Table 4."""
        total = {key: sum(log[key] for log in logging_outputs) for key in logging_outputs[0]}
        size, tokens = total["sample_size"], total["ntokens"]
        metrics.log_scalar("loss", total["loss"] / size / math.log(2), size, round=5)
        metrics.log_scalar("nll_loss", total["nll_loss"] / tokens / math.log(2), tokens, round=5)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        metrics.log_scalar("balance", total["balance"] / size, size, round=6)
        metrics.log_derived("balance_cv", lambda m: round(float(m["balance"].avg) ** 0.5, 4))
        if "attn_entropy" in total:
            entropy = total["attn_entropy"] / tokens / math.log(2)
            metrics.log_scalar("attn_entropy", entropy, tokens, round=3)
        for name in ("ar", "tar", "l2", "weight_norm"):
            if name in total:
                metrics.log_scalar(name, total[name] / size, size, round=5)

    @staticmethod
    def logging_outputs_can_be_summed():
        return True


def _check(cfg):
    check_ranges(DocCrossEntropyConfig, cfg)
    if cfg.label_smoothing and cfg.gradient_sampling:
        logger.warning(
            "--gradient-sampling does not support --label-smoothing: gradients are exact; leave "
            "one of them out"
        )
    target_given = cfg.weight_norm_target is not None
    check_needs("--weight-norm-target", {"--weight-norm": bool(cfg.weight_norm)}, target_given)
    if cfg.find_unused_parameters and torch.distributed.is_initialized():
        raise FairseqDocError(
            "--find-unused-parameters cannot be given: the output layer, which only the loss reads, "
            "would count as unused"
        )
