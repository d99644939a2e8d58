"""Attention of Luong et al. (2015): query, memory, mask -> attentional vector, weights.

Axes: B sentences, Q queries of each sentence, S source time, D width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_doc.ops.input_feeding import attend, masked_softmax

SCORES = ("general", "dot", "concat")


class LuongAttention(nn.Module):
    """a = tanh(W_c [h ; context]), context = sum_s p_s m_s, p = softmax_s(score(h, m_s)), with

    - dot: score = h . m_s
    - general: score = h^T W_a m_s
    - concat: score = v . tanh(W_a [h ; m_s])

    :meth:`keys` and :meth:`values` depend only on the memory m and are computed once per sentence.
    """

    def __init__(self, width: int, score: str = "general") -> None:
        super().__init__()
        self.score = score
        self.combine = nn.Linear(2 * width, width, bias=False)  # W_c
        if score == "general":
            self.general = nn.Linear(width, width, bias=False)
        elif score == "concat":
            self.concat = nn.Linear(2 * width, width, bias=False)
            self.vector = nn.Parameter(torch.empty(width).uniform_(-0.1, 0.1))

    @property
    def by_inner_products(self) -> bool:
        """Whether a score is the inner product of the query and a key."""
        return self.score != "concat"

    @property
    def query_weight(self) -> Tensor:
        """The columns of W_c that multiply h, (D, D)."""
        return self.combine.weight.chunk(2, dim=1)[0]

    def keys(self, memory: Tensor) -> Tensor:
        """(B, S, D) -> the memory's part of the scores, (B, S, D)."""
        if self.score == "general":
            return self.general(memory)
        if self.score == "concat":
            return F.linear(memory, self.concat.weight.chunk(2, dim=1)[1])
        return memory

    def values(self, memory: Tensor) -> Tensor:
        """(B, S, D) -> the memory's part of a before the tanh, (B, S, D)."""
        return F.linear(memory, self.combine.weight.chunk(2, dim=1)[1])

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, padding_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        if self.by_inner_products:
            return attend(query, keys, values, padding_mask)
        query = F.linear(query, self.concat.weight.chunk(2, dim=1)[0])  # (B, Q, D)
        scores = torch.tanh(query.unsqueeze(2) + keys.unsqueeze(1)) @ self.vector  # (B, Q, S)
        weights = masked_softmax(scores, padding_mask.unsqueeze(1))
        return torch.bmm(weights, values), weights

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, padding_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """h (B, Q, D), :meth:`keys`, :meth:`values` and a mask (B, S), true at padding -> a
        (B, Q, D) and p (B, Q, S), zero at padding."""
        context, weights = self.attend(query, keys, values, padding_mask)
        return torch.tanh(F.linear(query, self.query_weight) + context), weights
