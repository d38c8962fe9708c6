"""Prediction of tokens, next or masked: cross-entropy with label smoothing, fused with the output layer.

    q_t(v) = (1 - eps) [v = y_t] + eps / V
    loss   = - sum_t sum_v q_t(v) log p_t(v),     p_t = softmax(W h_t + b)

Label smoothing: Szegedy et al. 2016, section 7; eps = 0.1 in Vaswani et al. 2017, section 5.4.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from heedful.data.batch import Batch
from heedful.nn.output import BoundaryHead, MaskedHead
from heedful.objectives.terms import Term

Loss = tuple[Float[Tensor, ""], Float[Tensor, ""]]


# Number of logits that one operation reads on a CPU: 8 MiB in fp32, which fit in its cache.
BLOCK = 1 << 21
# Matrix products with fewer rows are inefficient.
FEWEST_ROWS = 64
# Tokens whose logits a CPU computes at once, and number of logits (1 GiB in fp32) that a GPU does: small
# operations leave a GPU idle.
CPU_CHUNK = 1024
GPU_CHUNK = 1 << 28
# A GPU multiplies matrices several times as fast if their rows are multiples of 16 bytes long, which rows of
# logits are by chance: there, weights are padded to a multiple of so many types.
GPU_ALIGNMENT = 64


class _LinearCrossEntropy(torch.autograd.Function):
    """Sums over tokens of the smoothed loss and of the plain negative log-likelihood.

    The result is a sum, so its gradient is known up to a factor in the forward pass: it is computed there
    from the logits x, and scaled in `backward`. With w_v the rows of the weight and m = mean_v w_v:

        - sum_v q(v) log p(v)  =  (1 - eps) (log Z - x_y) + eps (log Z - h·m),   log Z = log sum_v e^{x_v}
        gradient of x_v        =  p(v) - (1 - eps) [v = y] - eps / V

    The last part is the same for all v. It enters the gradients of h and W as the vectors eps·m and
    eps·(sum_t h_t) / V, without a pass over the logits. Rows of the weight after the first V are padding
    (`_aligned`): their logits are -inf, and their gradients are not used.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        n_types: int,
        smoothing: float,
        chunk: int,
        block: int,
        compute: torch.dtype,
        differentiated: bool,
    ) -> tuple[Tensor, Tensor]:
        # For parameters, needs_input_grad is true even under torch.no_grad.
        needs_grad = differentiated and any(ctx.needs_input_grad[:3])
        h, w = hidden.to(compute), weight.to(compute)
        n_tokens = h.shape[0]
        mean = w.sum(0, dtype=torch.float32) / n_types
        smooth = (h.float() @ mean).sum()
        if bias is not None:
            smooth += n_tokens * bias[:n_types].float().mean()
        grad_hidden = torch.empty_like(hidden) if needs_grad else None
        grad_weight = torch.zeros_like(w, dtype=torch.float32) if needs_grad else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if needs_grad and bias is not None else None
        log_z, correct = smooth.new_zeros(()), smooth.new_zeros(())
        logits = h.new_empty(min(chunk, n_tokens) if needs_grad else 0, len(w))
        # In fp32, the softmax and then the gradient overwrite the logits in place.
        in_place = needs_grad and logits.dtype == torch.float32
        for rows in _even_slices(n_tokens, chunk):
            if in_place:
                torch.mm(h[rows], w.T, out=logits[: rows.stop - rows.start])
            for part in _even_slices(rows, block):
                y = targets[part, None]
                buffer = logits[part.start - rows.start : part.stop - rows.start]
                x = buffer if in_place else (h[part] @ w.T).float()
                if bias is not None:
                    x += bias
                top, target_logits = x.amax(-1), x.gather(1, y)
                p = torch.softmax(x, -1, out=buffer if in_place else None)
                # p at the largest logit is at least 1 / V, so its logarithm is exact.
                log_z += (top - p.amax(-1).log()).sum()
                correct += target_logits.sum()
                if not needs_grad:
                    continue
                p.scatter_add_(1, y, p.new_full(y.shape, smoothing - 1.0))
                if not in_place:
                    buffer.copy_(p)
                if grad_bias is not None:
                    grad_bias += p.sum(0)
            if grad_hidden is None or grad_weight is None:
                continue
            g = logits[: rows.stop - rows.start]
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
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # The negative log-likelihood is for reporting; `linear_cross_entropy` detaches it.
        pairs = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        scaled = [None if g is None else (g * grads[0]).to(dtype) for g, dtype in pairs]
        return (*scaled, None, None, None, None, None, None, None)


def _aligned(
    weight: Float[Tensor, "V d"], bias: Float[Tensor, " V"] | None, multiple: int
) -> tuple[Float[Tensor, "P d"], Float[Tensor, " P"] | None]:
    """Pad the types to a multiple, with zeros and a bias of -inf: types that have probability 0."""
    padding = -len(weight) % multiple
    if not padding:
        return weight, bias
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    return functional.pad(weight, (0, 0, 0, padding)), functional.pad(bias, (0, padding), value=-torch.inf)


def _even_slices(rows: int | slice, max_length: int) -> list[slice]:
    """Split rows into slices of nearly equal length, at most ``max_length`` each."""
    rows = slice(0, rows) if isinstance(rows, int) else rows
    length = rows.stop - rows.start
    n = -(-length // max_length)
    return [slice(rows.start + i * length // n, rows.start + (i + 1) * length // n) for i in range(n)]


def linear_cross_entropy(
    hidden: Float[Tensor, "T d"],
    weight: Float[Tensor, "V d"],
    bias: Float[Tensor, " V"] | None,
    targets: Int[Tensor, " T"],
    smoothing: float = 0.0,
    chunk: int | None = None,
) -> Loss:
    """Return ``(loss, nll)``: summed smoothed cross-entropy, and the summed -log p(y) without gradient.

    Peak memory is chunk x V instead of T x V; without a chunk, `CPU_CHUNK` or `GPU_CHUNK` decides. Under
    autocast, products use its dtype; the softmax and the sums are always fp32.
    """
    device, n_types = hidden.device.type, weight.shape[0]
    if chunk is None:
        chunk = max(GPU_CHUNK // n_types, 1) if device == "cuda" else CPU_CHUNK
    block = chunk if device == "cuda" else max(FEWEST_ROWS, BLOCK // n_types)
    weight, bias = _aligned(weight, bias, GPU_ALIGNMENT if device == "cuda" else 1)
    autocast = torch.is_autocast_enabled(device)
    compute = torch.get_autocast_dtype(device) if autocast else weight.dtype
    with torch.autocast(device, enabled=False):
        loss, nll = _LinearCrossEntropy.apply(
            hidden, weight, bias, targets, n_types, smoothing, chunk, block, compute, torch.is_grad_enabled()
        )
    return loss, nll.detach()


@dataclass(frozen=True)
class NextToken:
    """Next-token prediction at every position, or at the positions that the batch selects.

    Terms: ``token`` (the loss, smoothed) and ``nll`` (reported only; exp(nll / count) is the perplexity).

    Args:
        smoothing: label smoothing, eps.
        chunk: number of tokens whose logits are computed at once; None: chosen by device.
    """

    smoothing: float = 0.0
    chunk: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing must be in [0, 1), got {self.smoothing}")

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the counts of both terms: the number of target tokens."""
        return dict.fromkeys(("token", "nll"), len(batch.targets))

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Batch) -> list[Term]:
        """Apply ``heads["token"]``, a linear layer, and compute the terms."""
        return _token_terms(batch.picked(hidden), heads["token"], batch, self.smoothing, self.chunk)


@dataclass(frozen=True)
class MaskedToken:
    """Predict each masked token from its own hidden state (Devlin et al. 2019, section 3.1).

    Terms: ``token`` (the loss) and ``nll`` (reported only; the same value without smoothing).

    Args:
        chunk: number of tokens whose logits are computed at once; None: chosen by device.
    """

    chunk: int | None = None

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the counts of both terms: the number of masked tokens."""
        return dict.fromkeys(("token", "nll"), len(batch.targets))

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Batch) -> list[Term]:
        """Apply ``heads["token"]`` to the masked rows and compute the terms."""
        head = heads["token"]
        assert isinstance(head, MaskedHead)
        return _token_terms(head.transform(batch.picked(hidden)), head.out, batch, 0.0, self.chunk)


@dataclass(frozen=True)
class SpanBoundary:
    """Predict the tokens of a masked span from the tokens next to it (Joshi et al. 2020, section 3.2).

    Term: ``boundary``.

    Args:
        chunk: number of tokens whose logits are computed at once; None: chosen by device.
    """

    chunk: int | None = None

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the count of the term: the number of masked tokens."""
        return {"boundary": len(batch.targets)}

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Batch) -> list[Term]:
        """Apply ``heads["boundary"]`` to the rows next to each span and compute the term."""
        head, spans = heads["boundary"], batch.spans
        assert isinstance(head, BoundaryHead)
        assert spans is not None
        x = head.transform(hidden[spans.before], hidden[spans.after], spans.within)
        loss, _ = linear_cross_entropy(x, head.out.weight, head.out.bias, batch.targets, chunk=self.chunk)
        return [Term("boundary", loss, len(batch.targets))]


def _token_terms(
    x: Float[Tensor, "R d"], out: nn.Module, batch: Batch, smoothing: float, chunk: int | None
) -> list[Term]:
    assert isinstance(out, nn.Linear)
    loss, nll = linear_cross_entropy(x, out.weight, out.bias, batch.targets, smoothing, chunk)
    n = len(batch.targets)
    return [Term("token", loss, n), Term("nll", nll, n, weight=0.0)]
