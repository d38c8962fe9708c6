"""Next-token prediction: label-smoothed cross-entropy, fused with the output layer and chunked.

    q_t(v) = (1 - eps) [v = y_t] + eps / V
    loss   = - sum_t sum_v q_t(v) log p_t(v),     p_t = softmax(W h_t + b)

Label smoothing: Szegedy et al. 2016, section 7; eps = 0.1 in Vaswani et al. 2017, section 5.4.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.objectives.terms import Supervised, Term

Loss = tuple[Float[Tensor, ""], Float[Tensor, ""]]


class _LinearCrossEntropy(torch.autograd.Function):
    """Sums over tokens of the smoothed loss and of the plain negative log-likelihood.

    Logits exist for one chunk of tokens at a time. As the result is a sum, its gradient is known up to
    a factor while the chunk's logits are at hand: it is formed there, and scaled in `backward`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        chunk: int,
        compute: torch.dtype,
        differentiated: bool,
    ) -> Any:
        # Of parameters, needs_input_grad is true under torch.no_grad too.
        wanted = differentiated and any(ctx.needs_input_grad[:3])
        w = weight.to(compute)
        grad_hidden = torch.empty_like(hidden) if wanted else None
        grad_weight = torch.zeros_like(weight) if wanted else None
        grad_bias = torch.zeros_like(bias) if wanted and bias is not None else None
        loss, nll = hidden.new_zeros((), dtype=torch.float32), hidden.new_zeros((), dtype=torch.float32)
        for start in range(0, hidden.shape[0], chunk):
            rows = slice(start, start + chunk)
            h, y = hidden[rows].to(compute), targets[rows, None]
            logits = (h @ w.T).float()
            if bias is not None:
                logits += bias
            # Log-softmax by hand: one exponential serves the sum and the gradient, nothing is copied.
            logits -= logits.amax(-1, keepdim=True)
            correct, mean = logits.gather(1, y), logits.mean(-1, keepdim=True)
            p = logits.exp_()
            z = p.sum(-1, keepdim=True)
            picked = (z.log() - correct).sum()
            # - sum_v q log p  =  (1 - eps) (log Z - x_y) + eps (log Z - mean_v x_v)
            nll += picked
            loss += (1 - smoothing) * picked + smoothing * (z.log() - mean).sum()
            if grad_hidden is None or grad_weight is None:
                continue
            # d loss / d logits = p - q
            g = p.div_(z).sub_(smoothing / p.shape[1])
            g.scatter_add_(1, y, g.new_full(y.shape, smoothing - 1.0))
            g_c = g.to(compute)
            grad_hidden[rows] = (g_c @ w).to(hidden.dtype)
            grad_weight += g_c.T @ h
            if grad_bias is not None:
                grad_bias += g.sum(0)
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        # The negative log-likelihood is for reporting; `linear_cross_entropy` detaches it.
        scaled = [None if g is None else g * grads[0] for g in ctx.saved_tensors]
        return (*scaled, None, None, None, None, None)


def linear_cross_entropy(
    hidden: Float[Tensor, "T d"],
    weight: Float[Tensor, "V d"],
    bias: Float[Tensor, " V"] | None,
    targets: Int[Tensor, " T"],
    smoothing: float = 0.0,
    chunk: int = 1024,
) -> Loss:
    """``(loss, nll)``: summed smoothed cross-entropy, and the summed -log p(y) without gradient.

    Peak memory is chunk x V, never T x V. Under autocast the products run in its type; the softmax
    and the sums are always fp32.
    """
    device = hidden.device.type
    lowered = torch.is_autocast_enabled(device)
    compute = torch.get_autocast_dtype(device) if lowered else weight.dtype
    with torch.autocast(device, enabled=False):
        loss, nll = _LinearCrossEntropy.apply(
            hidden, weight, bias, targets, smoothing, chunk, compute, torch.is_grad_enabled()
        )
    return loss, nll.detach()


class NextToken:
    """Every position predicts the token that follows it.

    Terms: ``token`` (the loss, smoothed) and ``nll`` (reported only; exp(nll / count) is perplexity).

    Args:
        smoothing: eps.
        chunk: tokens whose logits exist at one time.
    """

    def __init__(self, smoothing: float = 0.0, chunk: int = 1024) -> None:
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing must be in [0, 1), not {smoothing}")
        self.smoothing, self.chunk = smoothing, chunk

    def counts(self, batch: Supervised) -> dict[str, int]:
        """Both terms run over all target tokens."""
        n = batch.inputs.layout.n_tokens
        return {"token": n, "nll": n}

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """Apply ``heads["token"]``, a linear layer, and compare with the targets."""
        head: Any = heads["token"]
        loss, nll = linear_cross_entropy(
            hidden, head.weight, head.bias, batch.targets, self.smoothing, self.chunk
        )
        n = batch.inputs.layout.n_tokens
        return [Term("token", loss, n), Term("nll", nll, n, weight=0.0)]
