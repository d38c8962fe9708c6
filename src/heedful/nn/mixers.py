"""Position mixers other than attention and recurrence: transforms, networks and filters along positions.

| class | output of a token is a sum over | parameters | padding |
|---|---|---|---|
| `FourierMixer` | all tokens and features, with fixed weights | none | none |
| `PositionMLP` | all tokens, with learned weights | 2 n d_tokens + n + d_tokens | zeros |
| `DepthwiseSeparableConvolution` | k neighbours, then all features | k d + d² + d | zeros |
| `Convolution` | k neighbours with all their features | k d² + d | zeros |
| `ParallelConvolutions` | the same, for several k in parallel | about (mean of k) d² + d | zeros |

All are called as ``mixer(x [T, d], layout, cache) -> [T, d]`` and process each sequence separately. Mixers
that are not causal cannot continue a sequence and reject a cache.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from heedful.errors import RequestError
from heedful.nn.attention.kernels import replace_non_finite
from heedful.nn.dropout import Dropout
from heedful.nn.layout import Layout
from heedful.nn.state import Cache


def _reject_cache(module: nn.Module, cache: Cache | None) -> None:
    if cache is not None:
        raise ValueError(f"{type(module).__name__} is not causal and does not support a cache")


class FourierMixer(nn.Module):
    """``y = Re(F_seq(F_hidden(x)))``: two discrete Fourier transforms, without parameters.

    y[j, l] = Re Σ_k Σ_m x[k, m] exp(-2πi (j k / n + l m / d)) for a sequence of n tokens of width d.

    Each sequence is transformed at its own length n, without padding; in the released code, padding counts
    as zero tokens, so that the output of a sequence depends on the longest one in the batch. Sequences of
    equal length are transformed together.

    Computed at least in fp32, because every output is a sum over all n d inputs. There are about
    5 n d log2(n d) operations, which torch's FLOP counter does not include.

    Source: Lee-Thorp et al. 2021 (FNet), section 3.2, equation 3.
    """

    non_causal = True  # see `heedful.nn.declarations`
    features_that_shift = (0,)
    """Feature 0 has infinite wavelength: it adds one number to all features (`heedful.nn.declarations`)."""

    not_compilable = True
    """One transform call per length: compiling would trace a new graph for every batch
    (`heedful.nn.declarations`)."""

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: Cache | None = None
    ) -> Float[Tensor, "T d"]:
        """Mix the tokens and the features of each sequence."""
        _reject_cache(self, cache)
        order, inverse, lengths = layout.memo("by length", lambda: _by_length(layout))
        rows = x.to(torch.promote_types(x.dtype, torch.float32)).index_select(0, order)
        groups = rows.split([n * times for n, times in lengths])
        mixed = [
            torch.fft.fft2(group.unflatten(0, (times, n))).real.flatten(0, 1)
            for group, (n, times) in zip(groups, lengths, strict=True)
        ]
        return torch.cat([*mixed, rows[:0]]).index_select(0, inverse).to(x.dtype)


def _by_length(layout: Layout) -> tuple[Tensor, Tensor, list[tuple[int, int]]]:
    """Return the token order that groups sequences of equal length, its inverse, and the lengths.

    Lengths are sorted, each with its number of sequences.
    """
    lengths = sorted({n for n in layout.lengths if n})
    order = torch.sort(layout.length_tensor[layout.sequence], stable=True).indices
    return order, order.argsort(), [(n, layout.lengths.count(n)) for n in lengths]


class PositionMLP(nn.Module):
    """MLP along positions, shared by all features: ``Y = (f(Xᵀ W_1 + b_1) W_2 + b_2)ᵀ``.

    | paper | here | shape |
    |---|---|---|
    | W_1, b_1 | ``up`` | n_positions x d_tokens (the paper's D_S) |
    | W_2, b_2 | ``down`` | d_tokens x n_positions |
    | σ | ``activation`` | GELU |

    Shorter sequences are treated as padded with zeros to n_positions (only the needed rows of W_1 and columns
    of W_2 are computed). Longer sequences raise an error, because each position has its own weights.

    Source: Tolstikhin et al. 2021 (MLP-Mixer), section 2, equation 1, first line; for images of one size.

    Args:
        d_model: model dimension. No parameter depends on it.
        n_positions: maximum number of tokens of a sequence.
        d_tokens: number of hidden units.
        activation: f; GELU by default.
        dropout: dropout rate of the hidden units.
    """

    non_causal = True  # see `heedful.nn.declarations`

    def __init__(
        self,
        d_model: int,
        n_positions: int,
        d_tokens: int,
        *,
        activation: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.d_model, self.n_positions = d_model, n_positions
        self.up = nn.Linear(n_positions, d_tokens)
        self.activation = nn.GELU() if activation is None else activation
        self.dropout = Dropout(dropout)
        self.down = nn.Linear(d_tokens, n_positions)
        for layer in (self.up, self.down):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    @property
    def shifts_features(self) -> dict[str, range]:
        """b_2 adds one number to all features of a position (`heedful.nn.declarations`)."""
        return {"down.bias": range(self.n_positions)}

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: Cache | None = None
    ) -> Float[Tensor, "T d"]:
        """Mix the tokens of each sequence.

        Raises:
            RequestError: a sequence is longer than ``n_positions``.
        """
        _reject_cache(self, cache)
        if not layout.is_new:
            raise ValueError("PositionMLP requires whole sequences that start at position 0")
        n = layout.max_length
        if n > self.n_positions:
            raise RequestError(
                f"sequences must have at most {self.n_positions} tokens (n_positions of the model), got {n}; "
                f"shorten the input, or train with n_positions of at least {n}"
            )
        hidden = functional.linear(layout.pad(x).mT, self.up.weight[:, :n], self.up.bias)
        hidden = self.dropout(self.activation(hidden))
        return layout.unpad(functional.linear(hidden, self.down.weight[:n], self.down.bias[:n]).mT)


@dataclass
class ConvolutionCache:
    """The last k - 1 inputs of each hypothesis, padded with zeros; None before the first token."""

    inputs: Float[Tensor, "N reach d"] | None = None

    def select(self, rows: Int[Tensor, " M"]) -> "ConvolutionCache":
        """Return the cache of the hypotheses ``rows``."""
        return ConvolutionCache(None if self.inputs is None else self.inputs.index_select(0, rows))


class _Filter(nn.Module):
    """Base class of convolutions: kernel width, direction and padding."""

    def __init__(self, kernel: int, causal: bool) -> None:
        super().__init__()
        if kernel < 1:
            raise ValueError(f"kernel must be at least 1, got {kernel}")
        self.kernel, self.causal = kernel, causal

    @property
    def non_causal(self) -> bool:
        """Whether a token sees later tokens (`heedful.nn.declarations`)."""
        return not self.causal

    def new_cache(self) -> ConvolutionCache:
        """Return an empty cache."""
        return ConvolutionCache()

    def _padded(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: ConvolutionCache | None
    ) -> Float[Tensor, "B d columns"]:
        """Pad sequences with k - 1 columns: half on each side (an odd one after the end), or all before the
        first token if causal.

        The padding is zero or comes from the cache. NaN and infinity are replaced by zero: otherwise unused
        outputs would propagate them, through the gradient of the activation, to tokens out of their reach.
        """
        rows, reach = layout.pad(replace_non_finite(x)), self.kernel - 1
        if not self.causal:
            _reject_cache(self, cache)
            return functional.pad(rows, (0, 0, reach // 2, reach - reach // 2)).mT
        previous = None if cache is None else cache.inputs
        if previous is None:
            previous = rows.new_zeros(rows.shape[0], reach, rows.shape[2])
        rows = torch.cat((previous, rows), dim=1)
        if cache is not None:
            # A sequence of n new tokens ends at column reach + n; padding follows it.
            last_columns = layout.length_tensor[:, None] + torch.arange(reach, device=x.device)
            cache.inputs = rows.take_along_dim(last_columns[..., None], dim=1)
        return rows.mT


def _check_kernel(kernel: int, causal: bool) -> int:
    if not causal and kernel % 2 == 0:
        raise ValueError(f"kernel must be odd unless causal=True, got {kernel}")
    return kernel


class DepthwiseSeparableConvolution(_Filter):
    """Depthwise convolution, then a pointwise linear layer: ``y_i = W Σ_t w_t * x_{i+t} + b``.

    t ranges over -(k-1)/2 … (k-1)/2, or, if causal, over -(k-1) … 0; w_t is in R^d, and ``*`` is
    elementwise. Positions and features are mixed separately: k d + d² parameters (and the bias), where a
    full convolution has k d².

    Sequences are padded with zeros; a token never sees another sequence.

    Source: Sifre 2014; Chollet 2017 (Xception), section 1; lecture S1.

    Args:
        d_model: model dimension.
        kernel: kernel width, k; odd unless causal.
        causal: a token sees itself and the k - 1 tokens before it.
        bias: whether to add b.
    """

    def __init__(self, d_model: int, kernel: int, *, causal: bool = False, bias: bool = True) -> None:
        super().__init__(_check_kernel(kernel, causal), causal)
        self.depthwise = nn.Conv1d(d_model, d_model, kernel, groups=d_model, bias=False)
        self.pointwise = nn.Linear(d_model, d_model, bias=bias)
        # Variance 1/k: the sum over k neighbours keeps the variance of its inputs.
        bound = math.sqrt(3 / kernel)
        nn.init.uniform_(self.depthwise.weight, -bound, bound)
        nn.init.xavier_uniform_(self.pointwise.weight)
        if bias:
            nn.init.zeros_(self.pointwise.bias)

    @property
    def adds_constant(self) -> dict[str, range]:
        """b is added to every token (`heedful.nn.declarations`)."""
        bias = self.pointwise.bias
        return {} if bias is None else {"pointwise.bias": range(len(bias))}

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: ConvolutionCache | None = None
    ) -> Float[Tensor, "T d"]:
        """Mix neighbours; with a cache (if causal), the tokens continue the cached sequences."""
        if layout.n_tokens == 0:
            return x
        filtered = self.depthwise(self._padded(x, layout, cache))
        return self.pointwise(layout.unpad(filtered.mT))


class Convolution(_Filter):
    """Convolution along positions with activation: ``y_i = f(Σ_t W_t x_{i+t} + b)``.

    t ranges over -(k-1)/2 … (k-1)/2, or, if causal, over -(k-1) … 0; W_t is d x d. Sequences are padded with
    zeros; a token never sees another sequence.

    Source: Kim 2014, section 2, equation 2 (with padding, so that the length is kept).

    Args:
        d_model: model dimension.
        kernel: kernel width, k; odd unless causal.
        activation: f; ReLU by default.
        causal: a token sees itself and the k - 1 tokens before it.
        bias: whether to add b.
    """

    def __init__(
        self,
        d_model: int,
        kernel: int,
        *,
        activation: nn.Module | None = None,
        causal: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__(_check_kernel(kernel, causal), causal)
        self.convolution = nn.Conv1d(d_model, d_model, kernel, bias=bias)
        self.activation = nn.ReLU() if activation is None else activation
        nn.init.xavier_uniform_(self.convolution.weight)
        if self.convolution.bias is not None:
            nn.init.zeros_(self.convolution.bias)

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: ConvolutionCache | None = None
    ) -> Float[Tensor, "T d"]:
        """Mix neighbours; with a cache (if causal), the tokens continue the cached sequences."""
        if layout.n_tokens == 0:
            return x
        return self.activation(layout.unpad(self.convolution(self._padded(x, layout, cache)).mT))


class ParallelConvolutions(_Filter):
    """Parallel convolutions of several widths: ``y_i = f(y_i^1 ; … ; y_i^m)``, y^j with kernel width k_j.

    ``y_i^j = Σ_t W_t^j x_{i+t} + b^j`` has d / m features; if m does not divide d, the first widths have one
    more. t ranges over -floor((k-1)/2) … floor(k/2), so that windows of even width contain one more token
    after than before; or, if causal, over -(k-1) … 0. Sequences are padded with zeros; a token never sees
    another sequence.

    Source: Kim 2014, section 2, with widths 3, 4 and 5 and 100 features each (section 3.1). There only
    windows inside the sentence have features, which are max-pooled (`heedful.nn.pooling.MaxPooling`); here
    the length is kept.

    Args:
        d_model: model dimension, at least m.
        widths: kernel widths k_1 … k_m.
        activation: f; ReLU by default.
        causal: a token sees only itself and earlier tokens.
    """

    def __init__(
        self,
        d_model: int,
        widths: Sequence[int],
        *,
        activation: nn.Module | None = None,
        causal: bool = False,
    ) -> None:
        super().__init__(max(widths), causal)
        m = len(widths)
        if d_model < m:
            raise ValueError(f"d_model must be at least the number of widths {m}, got {d_model}")
        shares = [d_model // m + (j < d_model % m) for j in range(m)]
        parts = [nn.Conv1d(d_model, share, width) for share, width in zip(shares, widths, strict=True)]
        self.widths, self.convolutions = tuple(widths), nn.ModuleList(parts)
        self.activation = nn.ReLU() if activation is None else activation
        for module in parts:
            assert module.bias is not None
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: ConvolutionCache | None = None
    ) -> Float[Tensor, "T d"]:
        """Mix neighbours; with a cache (if causal), the tokens continue the cached sequences."""
        if layout.n_tokens == 0:
            return x
        rows = self._padded(x, layout, cache)
        layers = zip(self.widths, self.convolutions, strict=True)
        features = [module(self._for_width(rows, width)) for width, module in layers]
        return self.activation(layout.unpad(torch.cat(features, dim=1).mT))

    def _for_width(self, rows: Float[Tensor, "B d columns"], width: int) -> Float[Tensor, "B d fewer"]:
        """Return the columns that filters of this width read; the widest filters read all."""
        unused = self.kernel - width
        n_before = unused if self.causal else (self.kernel - 1) // 2 - (width - 1) // 2
        return rows[:, :, n_before : rows.shape[2] - (unused - n_before)]
