"""Mixture of experts: a channel mixer of many networks, of which every token uses a few.

    y = sum_{i in the k chosen} G(x)_i E_i(x),      G(x) = softmax(KeepTopK(H(x), k))

So the parameters grow with the number n of experts, and the work with k alone. Left to itself, a gate comes
to send all tokens to the experts that happened to learn first; two terms of the loss work against it
(`heedful.objectives.balance`). For them there are two taps, of all gates and of those with noise:

| tap | sees, ``[T, n]`` | in Shazeer et al. 2017 |
|---|---|---|
| ``gates`` | G(x), 0 for experts that are not chosen | equation 3 |
| ``chances`` | the probability that new noise would choose the expert | P(x, i), equation 9 |

What replaces G(x) at its tap weighs the experts that were chosen; it chooses no others.

Source: Shazeer et al. 2017, "Outrageously large neural networks: the sparsely-gated mixture-of-experts
layer", section 2.1. Of the gate's rows, expert i's load is the number of those with G(x)_i > 0.
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
    """What a gate decides for each token."""

    experts: Int[Tensor, "T k"]
    weights: Float[Tensor, "T k"]
    """They sum to 1."""


class Gate(nn.Module):
    """What all gates share: from scores H(x) to the k experts of a token and their weights.

    A new gate defines ``forward``: scores, then `choose`. ``KeepTopK(v, k)_i`` is v_i where that is among the
    k greatest, else minus infinity (equation 5). With k = 1 every weight would be 1 and W_g would learn
    nothing, so k is at least 2.

    W_g starts near zero, so that at first all experts are about equally good. (The paper starts it at zero;
    but then, without noise, one would choose between equals.) All is computed in fp32: in bf16, experts
    that differ would tie.

    Args:
        d_model: width of a token.
        n_experts: n.
        k: how many a token uses, 2 <= k < n.
        importance: w_importance, the weight in the loss of the term of equation 7.
    """

    balances_batch = True

    def __init__(self, d_model: int, n_experts: int, k: int, *, importance: float = 0.1) -> None:
        super().__init__()
        if not 2 <= k < n_experts:
            raise ValueError(f"each token must use at least 2 experts and not all: k={k} of {n_experts}")
        self.n_experts, self.k, self.importance = n_experts, k, importance
        self.weight = nn.Parameter(torch.randn(n_experts, d_model) * (0.1 / math.sqrt(d_model)))
        self.gates = Tap("the weights of the experts; 0 for those that are not chosen")

    def choose(self, scores: Float[Tensor, "T n"]) -> Choice:
        """Equations 3 and 5."""
        kept, experts = scores.topk(self.k, dim=-1)
        weights = torch.softmax(kept, dim=-1)
        if self.gates.attached:
            every = self.gates(torch.zeros_like(scores).scatter(1, experts, weights))
            # Of what is only watched, the weights stay those of the softmax, and so does their graph.
            weights = every.gather(1, experts) if self.gates.active else weights
        return Choice(experts, weights)


class TopKGate(Gate):
    """``H(x) = x W_g``: the k experts with the highest scores, without noise."""

    def forward(self, x: Float[Tensor, "T d"]) -> Choice:
        """Choose the experts of every token."""
        return self.choose(_in_fp32(x, self.weight))


class NoisyTopKGate(Gate):
    """``H(x)_i = (x W_g)_i + z_i softplus((x W_noise)_i)``, with z standard normal in training, else 0.

    (Equation 4.) The noise helps to balance the load: whom it chooses besides the best is left to chance,
    and the chance P(x, i) that it chooses expert i has a gradient where the choice itself has none:

        P(x, i) = Phi(((x W_g)_i - kth_excluding(H(x), k, i)) / softplus((x W_noise)_i))

    with Phi the distribution of z, and kth_excluding(v, k, i) the k-th greatest of v without v_i.

    W_noise, which starts at zero, lies below W_g in ``weight``.

    Args:
        d_model, n_experts, k, importance: as for `Gate`.
        load: w_load, the weight in the loss of the term of equation 11.
    """

    draws_noise = True

    def __init__(
        self, d_model: int, n_experts: int, k: int, *, importance: float = 0.1, load: float = 0.1
    ) -> None:
        super().__init__(d_model, n_experts, k, importance=importance)
        self.load = load
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), torch.zeros(n_experts, d_model)]))
        self.chances = Tap("how probably new noise would choose each expert", read_only=True)

    def forward(self, x: Float[Tensor, "T d"]) -> Choice:
        """Choose the experts of every token."""
        # W_g by itself: what is chosen has the same bits whether or not somebody looks at the chances.
        clean = _in_fp32(x, self.weight[: self.n_experts])
        if not (self.training or self.chances.attached):
            return self.choose(clean)
        spread = functional.softplus(_in_fp32(x, self.weight[self.n_experts :]))
        scores = clean + self.draw(clean) * spread if self.training else clean
        if self.chances.attached:
            self.chances(self._chances(clean, scores, spread))
        return self.choose(scores)

    def draw(self, like: Float[Tensor, "T n"]) -> Float[Tensor, "T n"]:
        """z, from torch's global generator of the device."""
        return torch.randn_like(like)

    def _chances(
        self, clean: Float[Tensor, "T n"], scores: Float[Tensor, "T n"], spread: Float[Tensor, "T n"]
    ) -> Float[Tensor, "T n"]:
        # Without expert i, the k-th greatest is the next one where i is among the k, else the k-th itself.
        greatest = scores.topk(self.k + 1, dim=-1).values
        last, after = greatest[:, self.k - 1, None], greatest[:, self.k, None]
        bounds = torch.where(scores >= last, after, last)
        return torch.special.ndtr((clean - bounds) / spread)


def _in_fp32(x: Tensor, weight: Tensor) -> Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        return functional.linear(x.to(wide), weight.to(wide))


class MixtureOfExperts(nn.Module):
    """The gate's experts on every token, none dropped.

    Tokens are sorted by expert; each expert then is one call on its rows, be they many or none. What it
    gives a token does not depend on the other tokens.

    Args:
        gate: chooses.
        experts: channel mixers, ``[T, d] -> [T, d]``.

    Parameters: those of all experts, and n d_model of the gate, twice that with noise.
    """

    eager = True
    may_idle = True

    def __init__(self, gate: Gate, experts: Sequence[nn.Module]) -> None:
        super().__init__()
        if len(experts) != gate.n_experts:
            raise ValueError(f"a gate for {gate.n_experts} experts, but {len(experts)} of them")
        self.gate, self.experts = gate, nn.ModuleList(experts)

    def forward(self, x: Float[Tensor, "T d"]) -> Float[Tensor, "T d"]:
        """Apply to every token."""
        chosen, weights = self.gate(x)
        k = self.gate.k
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        loads = flat.bincount(minlength=len(self.experts)).tolist()
        rows = x.repeat_interleave(k, dim=0)[order].split(loads)
        # One that no token reached is called too: its gradient is then zero, and not missing on one rank.
        mixed = torch.cat([expert(own) for expert, own in zip(self.experts, rows, strict=True)])
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        each = mixed[back].unflatten(0, (len(x), k))
        return (each * weights[..., None].to(each.dtype)).sum(1)
