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


# Rows whose logits are worked on at once hold so many of them: 8 MiB in fp32, which stays in the cache.
BLOCK = 1 << 21
# Fewer rows than this make poor matrix products.
FEWEST_ROWS = 64


class _LinearCrossEntropy(torch.autograd.Function):
    """Sums over tokens of the smoothed loss and of the plain negative log-likelihood.

    As the result is a sum, its gradient is known up to a factor while the logits x are at hand: it is
    formed there, and scaled in `backward`. With w_v the rows of the weight and m = mean_v w_v:

        - sum_v q(v) log p(v)  =  (1 - eps) (log Z - x_y) + eps (log Z - h·m),   log Z = log sum_v e^{x_v}
        gradient of x_v        =  p(v) - (1 - eps) [v = y] - eps / V

    The last part is the same for all v. It enters the gradients of h and W as vectors, eps·m and
    eps·(sum_t h_t) / V, and costs no pass over the logits.
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
        h, w = hidden.to(compute), weight.to(compute)
        n_tokens, n_types = h.shape[0], w.shape[0]
        mean = w.mean(0, dtype=torch.float32)
        smooth = (h.float() @ mean).sum() + (0.0 if bias is None else n_tokens * bias.float().mean())
        grad_hidden = torch.empty_like(hidden) if wanted else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if wanted else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if wanted and bias is not None else None
        log_z, correct = smooth.new_zeros(()), smooth.new_zeros(())
        kept = h.new_empty(min(chunk, n_tokens) if wanted else 0, n_types)
        # Where products take fp32, logits are formed where the softmax, and then its gradient, replaces them.
        in_place = wanted and kept.dtype == torch.float32
        for rows in _even(n_tokens, chunk):
            if in_place:
                torch.mm(h[rows], w.T, out=kept[: rows.stop - rows.start])
            for block in _even(rows, max(FEWEST_ROWS, BLOCK // n_types)):
                y = targets[block, None]
                place = kept[block.start - rows.start : block.stop - rows.start]
                x = place if in_place else (h[block] @ w.T).float()
                if bias is not None:
                    x += bias
                top, picked = x.amax(-1), x.gather(1, y)
                p = torch.softmax(x, -1, out=place if in_place else None)
                # p at the largest logit is at least 1 / V, so its logarithm is exact.
                log_z += (top - p.amax(-1).log()).sum()
                correct += picked.sum()
                if not wanted:
                    continue
                p.scatter_add_(1, y, p.new_full(y.shape, smoothing - 1.0))
                if not in_place:
                    place.copy_(p)
                if grad_bias is not None:
                    grad_bias += p.sum(0)
            if grad_hidden is None or grad_weight is None:
                continue
            g = kept[: rows.stop - rows.start]
            grad_hidden[rows] = torch.sub(g @ w, mean, alpha=smoothing)
            if in_place:
                grad_weight.addmm_(g.T, h[rows])
            else:
                grad_weight += g.T @ h[rows]
        if grad_weight is not None and smoothing:
            grad_weight -= h.sum(0, dtype=torch.float32) * (smoothing / n_types)
        if grad_bias is not None:
            grad_bias -= smoothing * n_tokens / n_types
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.dtypes = [None if x is None else x.dtype for x in (hidden, weight, bias)]
        return log_z - (1 - smoothing) * correct - smoothing * smooth, log_z - correct

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        # The negative log-likelihood is for reporting; `linear_cross_entropy` detaches it.
        held = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        scaled = [None if g is None else (g * grads[0]).to(dtype) for g, dtype in held]
        return (*scaled, None, None, None, None, None)


def _even(rows: int | slice, most: int) -> list[slice]:
    """Cut rows into slices of nearly equal length, none above ``most``."""
    rows = slice(0, rows) if isinstance(rows, int) else rows
    length = rows.stop - rows.start
    n = -(-length // most)
    return [slice(rows.start + i * length // n, rows.start + (i + 1) * length // n) for i in range(n)]


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
    """Every position predicts the token that follows it, or those of which the batch wants it.

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
        return dict.fromkeys(("token", "nll"), len(batch.targets))

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """Apply ``heads["token"]``, a linear layer, and compare with the targets."""
        head: Any = heads["token"]
        loss, nll = linear_cross_entropy(
            batch.picked(hidden), head.weight, head.bias, batch.targets, self.smoothing, self.chunk
        )
        n = len(batch.targets)
        return [Term("token", loss, n), Term("nll", nll, n, weight=0.0)]
