"""Mixture of experts: a channel mixer of n networks, of which each token uses k.

    y = sum_{i in the top k} G(x)_i E_i(x),      G(x) = softmax(KeepTopK(H(x), k))

Parameters grow with n, computation only with k. Without counter-measures, a gate tends to send all tokens to
the experts that learned first; two loss terms prevent this (`heedful.objectives.balance`). They read two
taps, of all gates and of noisy gates:

| tap | value, ``[T, n]`` | in Shazeer et al. 2017 |
|---|---|---|
| ``gates`` | G(x), 0 for experts that are not selected | equation 3 |
| ``chances`` | probability that new noise would select the expert | P(x, i), equation 9 |

Replacing G(x) at its tap changes the weights of the selected experts, not the selection.

Source: Shazeer et al. 2017, "Outrageously large neural networks: the sparsely-gated mixture-of-experts
layer", section 2.1. The load of expert i is the number of tokens with G(x)_i > 0.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.taps import Tap


class Choice(NamedTuple):
    """Experts selected for each token, and their weights."""

    experts: Int[Tensor, "T k"]
    weights: Float[Tensor, "T k"]
    """Sum to 1 for each token."""


class Gate(nn.Module):
    """Base class of gates: select the k experts of a token and their weights from scores H(x).

    Subclasses define ``forward``: compute scores, then call `choose`. ``KeepTopK(v, k)_i`` is v_i if it is
    among the k largest, else minus infinity (equation 5). k must be at least 2: with k = 1 every weight
    would be 1 and W_g would get no gradient.

    W_g is initialised near zero, so that all experts initially have similar scores. (The paper initialises
    it to zero, which without noise gives ties.) Scores are computed in fp32 to avoid ties in bf16.

    Args:
        d_model: model dimension.
        n_experts: number of experts, n.
        k: number of experts per token, 2 <= k < n.
        importance: w_importance, the weight of the loss term of equation 7.
    """

    balances_batch = True

    def __init__(self, d_model: int, n_experts: int, k: int, *, importance: float = 0.1) -> None:
        super().__init__()
        if not 2 <= k < n_experts:
            raise ValueError(f"k must be at least 2 and smaller than n_experts={n_experts}, got {k}")
        self.n_experts, self.k, self.importance = n_experts, k, importance
        self.weight = nn.Parameter(torch.randn(n_experts, d_model) * (0.1 / math.sqrt(d_model)))
        self.gates = Tap("weights of the experts; 0 for those that are not selected")

    def choose(self, scores: Float[Tensor, "T n"]) -> Choice:
        """Select the top-k experts and compute their weights (equations 3 and 5)."""
        top_scores, experts = scores.topk(self.k, dim=-1)
        weights = torch.softmax(top_scores, dim=-1)
        if self.gates.attached:
            all_weights = self.gates(torch.zeros_like(scores).scatter(1, experts, weights))
            # With observers only, keep the weights of the softmax and their autograd graph.
            weights = all_weights.gather(1, experts) if self.gates.has_hooks else weights
        return Choice(experts, weights)


class TopKGate(Gate):
    """``H(x) = x W_g``: the k experts with the highest scores, without noise."""

    def forward(self, x: Float[Tensor, "T d"]) -> Choice:
        """Select the experts of every token."""
        return self.choose(_in_fp32(x, self.weight))


class NoisyTopKGate(Gate):
    """``H(x)_i = (x W_g)_i + z_i softplus((x W_noise)_i)``, with z standard normal in training, else 0.

    (Equation 4.) The noise helps to balance the load: it randomizes the selection, and the probability
    P(x, i) of selecting expert i has a gradient, which the selection itself has not:

        P(x, i) = Phi(((x W_g)_i - kth_excluding(H(x), k, i)) / softplus((x W_noise)_i))

    with Phi the cumulative distribution of z, and kth_excluding(v, k, i) the k-th largest of v without v_i.

    W_noise is initialised to zero and stored below W_g in ``weight``.

    Args:
        d_model, n_experts, k, importance: as in `Gate`.
        load: w_load, the weight of the loss term of equation 11.
    """

    draws_noise = True

    def __init__(
        self, d_model: int, n_experts: int, k: int, *, importance: float = 0.1, load: float = 0.1
    ) -> None:
        super().__init__(d_model, n_experts, k, importance=importance)
        self.load = load
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), torch.zeros(n_experts, d_model)]))
        self.chances = Tap("probability that new noise would select each expert", read_only=True)

    def forward(self, x: Float[Tensor, "T d"]) -> Choice:
        """Select the experts of every token."""
        # Multiply by W_g alone, so that observers of the probabilities do not change the result bitwise.
        clean = _in_fp32(x, self.weight[: self.n_experts])
        if not (self.training or self.chances.attached):
            return self.choose(clean)
        noise_scale = functional.softplus(_in_fp32(x, self.weight[self.n_experts :]))
        scores = clean + self.draw(clean) * noise_scale if self.training else clean
        if self.chances.attached:
            self.chances(self._chances(clean, scores, noise_scale))
        return self.choose(scores)

    def draw(self, like: Float[Tensor, "T n"]) -> Float[Tensor, "T n"]:
        """Draw z from the global generator of the device."""
        return torch.randn_like(like)

    def _chances(
        self, clean: Float[Tensor, "T n"], scores: Float[Tensor, "T n"], noise_scale: Float[Tensor, "T n"]
    ) -> Float[Tensor, "T n"]:
        # Without expert i, the k-th largest is the (k+1)-th if i is in the top k, else the k-th.
        largest = scores.topk(self.k + 1, dim=-1).values
        kth, next_largest = largest[:, self.k - 1, None], largest[:, self.k, None]
        bounds = torch.where(scores >= kth, next_largest, kth)
        return torch.special.ndtr((clean - bounds) / noise_scale)


def _in_fp32(x: Tensor, weight: Tensor) -> Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    with torch.autocast("cpu" if x.is_meta else x.device.type, enabled=False):  # meta has no autocast
        return functional.linear(x.to(wide), weight.to(wide))


class MixtureOfExperts(nn.Module):
    """Apply the selected experts to every token; no token is dropped.

    Tokens are sorted by expert, and each expert is called once on its rows, even if it has none. The output
    of a token does not depend on the other tokens.

    Args:
        gate: selects the experts.
        experts: channel mixers, ``[T, d] -> [T, d]``.

    Parameters: those of all experts, and n d_model of the gate, twice that with noise.
    """

    not_compilable = True  # the number of tokens of an expert differs; see `heedful.nn.declarations`
    may_idle = True

    def __init__(self, gate: Gate, experts: Sequence[nn.Module]) -> None:
        super().__init__()
        if len(experts) != gate.n_experts:
            raise ValueError(f"number of experts must be {gate.n_experts} as in the gate, got {len(experts)}")
        self.gate, self.experts = gate, nn.ModuleList(experts)

    def forward(self, x: Float[Tensor, "T d"]) -> Float[Tensor, "T d"]:
        """Apply the experts to every token."""
        expert_ids, weights = self.gate(x)
        k = self.gate.k
        flat_ids = expert_ids.flatten()
        order = flat_ids.argsort(stable=True)
        loads = flat_ids.bincount(minlength=len(self.experts)).tolist()
        rows = x.repeat_interleave(k, dim=0)[order].split(loads)
        # Experts without tokens are called too, so that their gradient is zero instead of None on every rank.
        mixed = torch.cat([expert(routed) for expert, routed in zip(self.experts, rows, strict=True)])
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(len(order), device=order.device)
        routed_outputs = mixed[inverse].unflatten(0, (len(x), k))
        return (routed_outputs * weights[..., None].to(routed_outputs.dtype)).sum(1)
