"""Normalisation of packed tokens. ``[T, d]`` has no padding, so no norm needs a mask.

Norms declare in ``couples_batch`` that they compute statistics over the batch, so that in training the
output of a token depends on other sequences; in ``removes_batch_mean`` that they subtract the mean of the
batch; and in ``removes_token_mean`` that they subtract the mean of the features of a token
(`heedful.nn.declarations`).
"""

from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


class LayerNorm(nn.LayerNorm):
    """Normalise each token over its features.

    y = γ (x - μ) / √(σ² + ε) + β, where μ and σ² are the mean and the (biased) variance of the d features
    of a token; γ and β are in R^d, initialised to 1 and 0.

    Lecture S3 says "unit mean" (the mean becomes zero), has γ in R, and divides by σ without ε, which is
    undefined for a token with equal features.

    Source: Ba et al. 2016, section 3, equations 3 and 4.

    Args:
        d: width.
        eps: ε.
        bias: whether to add β.
    """

    couples_batch: ClassVar[bool] = False
    removes_token_mean: ClassVar[bool] = True

    def __init__(self, d: int, eps: float = 1e-5, bias: bool = True) -> None:
        super().__init__(d, eps=eps, bias=bias)

    def forward(self, input: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
        """Normalise the last axis."""
        return super().forward(input)


class RMSNorm(nn.Module):
    """Divide each token by the root mean square of its features; no mean is subtracted.

    y = γ x / √(q + ε), where q is the mean of the squared features of a token; γ is in R^d, initialised to
    1. The paper has no ε, which makes a zero token undefined.

    Squares, their mean and the product with γ are computed at least in fp32.

    Source: Zhang & Sennrich 2019, equation 4.

    Args:
        d: width.
        eps: ε.
    """

    couples_batch: ClassVar[bool] = False

    def __init__(self, d: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
        """Normalise the last axis."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * inverse * self.weight).to(x.dtype)

    def extra_repr(self) -> str:
        """Return width and setting for ``repr``."""
        return f"{self.weight.shape[0]}, eps={self.eps}"


class BatchNorm(nn.Module):
    """Normalise each feature over all tokens of the batch.

    In training, y = γ (x - μ) / √(σ² + ε) + β with μ and σ² (biased) taken over the T tokens of the
    batch, and running ← (1 - momentum) running + momentum · batch, the variance unbiased (T - 1).
    In evaluation, μ and σ² are the running statistics.

    In training, a single token has σ² = 0, hence y = β for any x, and x gets no gradient; its unbiased
    variance is undefined, so the running statistics are not updated. Without tokens they are not updated
    either.

    Statistics are per process and forward pass: accumulated micro-batches differ from one large batch.

    Source: Ioffe & Szegedy 2015, algorithms 1 and 2.

    Args:
        d: width.
        eps: ε.
        momentum: weight of the new batch in the running statistics.
    """

    couples_batch: ClassVar[bool] = True
    removes_batch_mean: ClassVar[bool] = True

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, d: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        if not 0.0 < momentum <= 1.0:
            raise ValueError(f"momentum must be in (0, 1], got {momentum}")
        self.eps = eps
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(d))
        self.bias = nn.Parameter(torch.zeros(d))
        self.register_buffer("running_mean", torch.zeros(d))
        self.register_buffer("running_variance", torch.ones(d))

    def forward(self, x: Float[Tensor, "T d"]) -> Float[Tensor, "T d"]:
        """Normalise over the tokens (training) or by the running statistics (evaluation)."""
        if self.training and x.shape[0] < 2:
            return ((x - x) * self.weight + self.bias).to(x.dtype)
        # Use at least the dtype of the statistics: the kernel needs all arguments in one dtype.
        wide = torch.promote_types(x.dtype, self.running_mean.dtype)
        y = functional.batch_norm(
            x.to(wide),
            self.running_mean,
            self.running_variance,
            self.weight.to(wide),
            self.bias.to(wide),
            training=self.training,
            momentum=self.momentum,
            eps=self.eps,
        )
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        """Return width and settings for ``repr``."""
        return f"{self.weight.shape[0]}, eps={self.eps}, momentum={self.momentum}"


class GroupScaling(nn.Module):
    """Divide each group of adjacent features of a token by its root mean square.

    y = x / √(mean over the group of x² + ε). There are no parameters.

    Source: Shen et al. 2020 apply it before power normalisation in their released code.

    Args:
        d: width.
        n_groups: number of groups, a divisor of d.
        eps: ε.
    """

    couples_batch: ClassVar[bool] = False

    def __init__(self, d: int, n_groups: int = 1, eps: float = 1e-5) -> None:
        super().__init__()
        if n_groups < 1 or d % n_groups:
            raise ValueError(
                f"n_groups must be positive and divide the number of features {d}, got {n_groups}"
            )
        self.n_groups = n_groups
        self.eps = eps

    def forward(self, x: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
        """Scale every group of the last axis."""
        groups = x.unflatten(-1, (self.n_groups, -1))
        scaled = groups * torch.rsqrt(groups.square().mean(-1, keepdim=True) + self.eps)
        return scaled.flatten(-2)


class _DivideByPower(torch.autograd.Function):
    """z = x / divisor, with the gradients of Shen et al., algorithms 1 (warm-up) and 2 (after it)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, divisor: Tensor, nu: Tensor, in_warmup: Bool[Tensor, ""], rate: float
    ) -> Tensor:
        z = x / divisor
        ctx.save_for_backward(z, divisor, in_warmup)
        # Not in save_for_backward: backward needs the current value of nu.
        ctx.nu = nu
        ctx.rate = rate
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        z, divisor, in_warmup = ctx.saved_tensors
        (grad,) = grads
        exact = (grad * z).mean(0)  # the paper's Λ
        power = z.square().mean(0)  # the paper's Γ
        grad_x = (grad - torch.where(in_warmup, exact, ctx.nu) * z) / divisor
        ctx.nu += ctx.rate * (exact - power * ctx.nu)
        return grad_x, None, None, None, None


class PowerNorm(nn.Module):
    """Divide each feature by a running quadratic mean; no mean is subtracted.

    With ψ_B² the mean of x² over the tokens of the batch, and t the batch index:

    | | forward | gradient of x, from g = γ ∂L/∂y |
    |---|---|---|
    | first ``warmup`` batches | z = x / √(ψ_B² + ε) | (g - Λ z) / √(ψ_B² + ε): exact |
    | after them | z = x / √(ψ²_{t-1} + ε) | (g - ν_{t-1} z) / √(ψ²_{t-1} + ε): approximate |
    | evaluation | z = x / √(ψ² + ε) | exact: ψ is constant |

    y = γ z + β. In every training batch, the forward pass sets ψ²_t = α_fwd ψ²_{t-1} + (1 - α_fwd) ψ_B²
    and the backward pass ν_t = ν_{t-1} + (1 - α_bkw) (Λ - Γ ν_{t-1}), where Γ and Λ are the means over
    the tokens of z² and of g z. ψ² is initialised to 1 and ν to 0.

    The warm-up must be shorter than the run: with the 10,000 batches of the released code, a small run uses
    batch statistics throughout. The released code differs from the paper's algorithm 2 in two points, where
    this class follows the paper: it divides the gradient by the batch's quadratic mean instead of the
    running one, and it uses ν also in the warm-up, where the exact gradient is available.

    The backward pass also updates state. Statistics are per process and forward pass: accumulated
    micro-batches differ from one large batch. A batch without tokens changes nothing.

    Source: Shen et al. 2020 (PowerNorm), algorithms 1 and 2; group scaling from the released code.

    Args:
        d: width.
        warmup: number of training batches (micro-batches) that use their own quadratic mean.
        n_groups: number of groups of a preceding `GroupScaling`; None: no scaling.
        alpha_fwd: α_fwd, decay of ψ².
        alpha_bkw: α_bkw, decay of ν.
        eps: ε.
    """

    couples_batch: ClassVar[bool] = True

    running_quadratic_mean: Tensor
    running_correction: Tensor
    n_batches: Tensor

    def __init__(
        self,
        d: int,
        warmup: int,
        n_groups: int | None = None,
        alpha_fwd: float = 0.9,
        alpha_bkw: float = 0.9,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        if warmup < 0:
            raise ValueError(f"warmup must be at least 0, got {warmup}")
        for name, alpha in (("alpha_fwd", alpha_fwd), ("alpha_bkw", alpha_bkw)):
            if not 0.0 <= alpha < 1.0:
                raise ValueError(f"{name} must be in [0, 1), got {alpha}")
        self.warmup = warmup
        self.alpha_fwd = alpha_fwd
        self.alpha_bkw = alpha_bkw
        self.eps = eps
        self.scaling = nn.Identity() if n_groups is None else GroupScaling(d, n_groups, eps)
        self.weight = nn.Parameter(torch.ones(d))
        self.bias = nn.Parameter(torch.zeros(d))
        self.register_buffer("running_quadratic_mean", torch.ones(d))
        self.register_buffer("running_correction", torch.zeros(d))
        self.register_buffer("n_batches", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Float[Tensor, "T d"]) -> Float[Tensor, "T d"]:
        """Normalise by the quadratic mean of the batch (warm-up) or the running one."""
        # Squares need at least the range and precision of the buffers.
        wide = self.scaling(x.to(torch.promote_types(x.dtype, self.running_quadratic_mean.dtype)))
        if self.training and x.shape[0] > 0:
            z = self._divide_in_training(wide)
        else:
            z = wide / self._root(self.running_quadratic_mean)
        return (self.weight * z + self.bias).to(x.dtype)

    def _divide_in_training(self, x: Tensor) -> Tensor:
        quadratic_mean = x.detach().square().mean(0)
        in_warmup = self.n_batches < self.warmup
        divisor = self._root(torch.where(in_warmup, quadratic_mean, self.running_quadratic_mean))
        z: Tensor = _DivideByPower.apply(x, divisor, self.running_correction, in_warmup, 1 - self.alpha_bkw)
        self.running_quadratic_mean.lerp_(
            quadratic_mean.to(self.running_quadratic_mean.dtype), 1 - self.alpha_fwd
        )
        self.n_batches += 1
        return z

    def _root(self, quadratic_mean: Tensor) -> Tensor:
        return torch.sqrt(quadratic_mean + self.eps)

    def extra_repr(self) -> str:
        """Return width and settings for ``repr``."""
        return (
            f"{self.weight.shape[0]}, warmup={self.warmup}, "
            f"alpha_fwd={self.alpha_fwd}, alpha_bkw={self.alpha_bkw}, eps={self.eps}"
        )
