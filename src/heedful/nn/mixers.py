"""Position mixers other than attention and recurrence: transforms, networks and filters along positions.

| part | a token becomes a sum over | parameters | beyond a sequence's ends |
|---|---|---|---|
| `FourierMixer` | all tokens and features, with fixed weights | none | is nothing |
| `PositionMLP` | all tokens, with learned weights | 2 n d_tokens + n + d_tokens | are zeros |
| `DepthwiseSeparableConvolution` | k neighbours, then all features | k d + d² + d | are zeros |
| `Convolution` | k neighbours with all their features | k d² + d | are zeros |
| `ParallelConvolutions` | the same, but of several k side by side | about (mean of k) d² + d | are zeros |

All are called as ``mixer(x [T, d], layout, cache) -> [T, d]`` and see every sequence by itself. Those that
read ahead cannot continue a sequence, and refuse a cache.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from heedful.errors import RequestError
from heedful.nn.attention.kernels import finite
from heedful.nn.dropout import Dropout
from heedful.nn.layout import Layout


def _refuse_cache(part: nn.Module, cache: Any) -> None:
    if cache is not None:
        raise ValueError(f"{type(part).__name__} reads ahead: it cannot continue from a cache")


class FourierMixer(nn.Module):
    """``y = Re(F_seq(F_hidden(x)))``: two discrete Fourier transforms, and nothing to learn.

    y[j, l] = Re Σ_k Σ_m x[k, m] exp(-2πi (j k / n + l m / d)) for a sequence of n tokens of width d.

    Each sequence is transformed at its own length n: padding does not exist here, while in the released
    code it counts as tokens of zeros, so that there what a sequence becomes depends on the longest one
    beside it. Sequences of one length go together, in one transform for each length.

    It is computed in fp32 where x has fewer bits: every number of the result is a sum of all n d of x.
    There are about 5 n d log2(n d) operations, of which torch's count knows nothing.

    Source: Lee-Thorp et al. 2021 (FNet), section 3.2, equation 3.
    """

    reads_ahead = True
    lifts_from = (0,)
    """Feature 0 has wavelength infinity: it adds one number to all features (`heedful.nn.declarations`)."""

    eager = True
    """The transform of every length is a call of its own: a compiled graph would serve one batch alone."""

    def forward(self, x: Float[Tensor, "T d"], layout: Layout, cache: Any = None) -> Float[Tensor, "T d"]:
        """Mix the tokens of each sequence, and their features."""
        _refuse_cache(self, cache)
        order, back, lengths = layout._memo("by length", lambda: _by_length(layout))
        rows = x.to(torch.promote_types(x.dtype, torch.float32)).index_select(0, order)
        parts = rows.split([n * times for n, times in lengths])
        mixed = [
            torch.fft.fft2(part.unflatten(0, (times, n))).real.flatten(0, 1)
            for part, (n, times) in zip(parts, lengths, strict=True)
        ]
        return torch.cat([*mixed, rows[:0]]).index_select(0, back).to(x.dtype)


def _by_length(layout: Layout) -> tuple[Tensor, Tensor, list[tuple[int, int]]]:
    """The order of tokens in which equally long sequences are neighbours, and its inverse.

    And each length, the shortest first, with how many sequences have it.
    """
    lengths = sorted({n for n in layout.lengths if n})
    order = torch.sort(layout.length_tensor[layout.sequence], stable=True).indices
    return order, order.argsort(), [(n, layout.lengths.count(n)) for n in lengths]


class PositionMLP(nn.Module):
    """A network along positions, the same for every feature: ``Y = (f(Xᵀ W_1 + b_1) W_2 + b_2)ᵀ``.

    | paper | here | shape |
    |---|---|---|
    | W_1, b_1 | ``up`` | n_positions x d_tokens (the paper's D_S) |
    | W_2, b_2 | ``down`` | d_tokens x n_positions |
    | σ | ``activation`` | GELU |

    A shorter sequence is read as if zeros followed it, up to n_positions, and nothing is written there.
    (So its rows of W_1 and columns of W_2 are all that is computed.) A longer one is refused: position by
    position, the weights are its places'.

    Source: Tolstikhin et al. 2021 (MLP-Mixer), section 2, equation 1, first line; for pictures of one size.

    Args:
        d_model: width of the tokens. No parameter depends on it.
        n_positions: most tokens of a sequence.
        d_tokens: hidden units.
        activation: f; GELU by default.
        dropout: on the hidden units.
    """

    reads_ahead = True

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
    def lifts_tokens(self) -> dict[str, range]:
        """b_2 adds one number to all features of a position (`heedful.nn.declarations`)."""
        return {"down.bias": range(self.n_positions)}

    def forward(self, x: Float[Tensor, "T d"], layout: Layout, cache: Any = None) -> Float[Tensor, "T d"]:
        """Mix the tokens of each sequence.

        Raises:
            RequestError: a sequence is longer than ``n_positions``.
        """
        _refuse_cache(self, cache)
        if not layout.is_new:
            raise ValueError("PositionMLP reads whole sequences, from position 0")
        n = layout.max_length
        if n > self.n_positions:
            raise RequestError(
                f"a sequence of {n} tokens is longer than the {self.n_positions} positions that this model "
                f"mixes: shorten the input, or train with n_positions of at least {n}"
            )
        inner = functional.linear(layout.pad(x).mT, self.up.weight[:, :n], self.up.bias)
        inner = self.dropout(self.activation(inner))
        return layout.unpad(functional.linear(inner, self.down.weight[:n], self.down.bias[:n]).mT)


@dataclass
class ConvolutionCache:
    """The last k - 1 inputs of each hypothesis, zeros where there were fewer; None before the first."""

    inputs: Float[Tensor, "N reach d"] | None = None

    def select(self, rows: Int[Tensor, " M"]) -> "ConvolutionCache":
        """The inputs of the hypotheses ``rows``."""
        return ConvolutionCache(None if self.inputs is None else self.inputs.index_select(0, rows))


class _Filter(nn.Module):
    """What convolutions share: kernel width, direction, and what surrounds a sequence."""

    def __init__(self, kernel: int, causal: bool) -> None:
        super().__init__()
        if kernel < 1:
            raise ValueError(f"a kernel is at least 1 wide, not {kernel}")
        self.kernel, self.causal = kernel, causal

    @property
    def reads_ahead(self) -> bool:
        """Whether a token sees later ones (`heedful.nn.declarations`)."""
        return not self.causal

    def new_cache(self) -> ConvolutionCache:
        """What it remembers of sequences of which nothing is written yet."""
        return ConvolutionCache()

    def _surrounded(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: ConvolutionCache | None
    ) -> Float[Tensor, "B d columns"]:
        """Sequences as rows, with k - 1 more columns: half of them on each side (of an odd number one more
        behind), or all before the first.

        They are zero, or what the cache holds. Numbers that are not finite are read as zero: an output that
        nobody asks for would else carry them, by its activation's gradient, to tokens out of their reach.
        """
        rows, reach = layout.pad(finite(x)), self.kernel - 1
        if not self.causal:
            _refuse_cache(self, cache)
            return functional.pad(rows, (0, 0, reach // 2, reach - reach // 2)).mT
        held = None if cache is None else cache.inputs
        if held is None:
            held = rows.new_zeros(rows.shape[0], reach, rows.shape[2])
        rows = torch.cat((held, rows), dim=1)
        if cache is not None:
            # A sequence of n new tokens ends reach + n columns from the left, and pads follow it.
            last = layout.length_tensor[:, None] + torch.arange(reach, device=x.device)
            cache.inputs = rows.take_along_dim(last[..., None], dim=1)
        return rows.mT


def _with_middle(kernel: int, causal: bool) -> int:
    if not causal and kernel % 2 == 0:
        raise ValueError(f"a kernel of width {kernel} has no middle: take an odd width, or causal=True")
    return kernel


class DepthwiseSeparableConvolution(_Filter):
    """A filter for each feature, then a matrix across features: ``y_i = W Σ_t w_t * x_{i+t} + b``.

    t runs over -(k-1)/2 … (k-1)/2, or, causal, over -(k-1) … 0; w_t is in R^d, and ``*`` element by
    element. So positions are mixed feature by feature, and features position by position: k d + d²
    parameters (and the bias) where a full convolution has k d².

    What lies beyond the ends of a token's sequence is read as zeros: padding, or another sequence, never.

    Source: Sifre 2014; Chollet 2017 (Xception), section 1; lecture S1.

    Args:
        d_model: width of the tokens.
        kernel: k; odd unless causal.
        causal: a token sees itself and the k - 1 before it.
        bias: whether b is there.
    """

    def __init__(self, d_model: int, kernel: int, *, causal: bool = False, bias: bool = True) -> None:
        super().__init__(_with_middle(kernel, causal), causal)
        self.depthwise = nn.Conv1d(d_model, d_model, kernel, groups=d_model, bias=False)
        self.pointwise = nn.Linear(d_model, d_model, bias=bias)
        # Variance 1/k: a sum over k neighbours keeps the size of what it sums.
        bound = math.sqrt(3 / kernel)
        nn.init.uniform_(self.depthwise.weight, -bound, bound)
        nn.init.xavier_uniform_(self.pointwise.weight)
        if bias:
            nn.init.zeros_(self.pointwise.bias)

    @property
    def adds_constant(self) -> dict[str, range]:
        """b is added to every token alike (`heedful.nn.declarations`)."""
        bias = self.pointwise.bias
        return {} if bias is None else {"pointwise.bias": range(len(bias))}

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: ConvolutionCache | None = None
    ) -> Float[Tensor, "T d"]:
        """Mix neighbours; with a cache (if causal), the tokens continue the sequences held there."""
        if layout.n_tokens == 0:
            return x
        filtered = self.depthwise(self._surrounded(x, layout, cache))
        return self.pointwise(layout.unpad(filtered.mT))


class Convolution(_Filter):
    """``y_i = f(Σ_t W_t x_{i+t} + b)``: a window of tokens, read by one layer of a network.

    t runs over -(k-1)/2 … (k-1)/2, or, causal, over -(k-1) … 0; W_t is d x d. What lies beyond the ends of
    a token's sequence is read as zeros: padding, or another sequence, never.

    Source: Kim 2014, section 2, equation 2 (with padding, so that every token keeps its place).

    Args:
        d_model: width of the tokens.
        kernel: k; odd unless causal.
        activation: f; ReLU by default.
        causal: a token sees itself and the k - 1 before it.
        bias: whether b is there.
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
        super().__init__(_with_middle(kernel, causal), causal)
        self.convolution = nn.Conv1d(d_model, d_model, kernel, bias=bias)
        self.activation = nn.ReLU() if activation is None else activation
        nn.init.xavier_uniform_(self.convolution.weight)
        if self.convolution.bias is not None:
            nn.init.zeros_(self.convolution.bias)

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: ConvolutionCache | None = None
    ) -> Float[Tensor, "T d"]:
        """Mix neighbours; with a cache (if causal), the tokens continue the sequences held there."""
        if layout.n_tokens == 0:
            return x
        return self.activation(layout.unpad(self.convolution(self._surrounded(x, layout, cache)).mT))


class ParallelConvolutions(_Filter):
    """Windows of several widths side by side: ``y_i = f(y_i^1 ; … ; y_i^m)``, y^j by filters of width k_j.

    ``y_i^j = Σ_t W_t^j x_{i+t} + b^j`` makes d / m features, of the first widths one more where m does not
    divide d. t runs over -floor((k-1)/2) … floor(k/2), so that a window of even width has one token more
    after its own than before it; or, causal, over -(k-1) … 0. What lies beyond the ends of a token's sequence
    is read as zeros: padding, or another sequence, never.

    Source: Kim 2014, section 2, with widths of 3, 4 and 5 and 100 features of each (section 3.1). There only
    windows inside the sentence have features, of which `heedful.nn.pooling.MaxPooling` takes the greatest;
    here every token keeps its place.

    Args:
        d_model: width of the tokens, at least m.
        widths: k_1 … k_m.
        activation: f; ReLU by default.
        causal: a token sees itself and what is before it.
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
            raise ValueError(f"{m} widths need {m} features at least, not d_model={d_model}")
        shares = [d_model // m + (j < d_model % m) for j in range(m)]
        parts = [nn.Conv1d(d_model, share, width) for share, width in zip(shares, widths, strict=True)]
        self.widths, self.convolutions = tuple(widths), nn.ModuleList(parts)
        self.activation = nn.ReLU() if activation is None else activation
        for part in parts:
            assert part.bias is not None
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: ConvolutionCache | None = None
    ) -> Float[Tensor, "T d"]:
        """Mix neighbours; with a cache (if causal), the tokens continue the sequences held there."""
        if layout.n_tokens == 0:
            return x
        rows = self._surrounded(x, layout, cache)
        parts = zip(self.widths, self.convolutions, strict=True)
        features = [part(self._for_width(rows, width)) for width, part in parts]
        return self.activation(layout.unpad(torch.cat(features, dim=1).mT))

    def _for_width(self, rows: Float[Tensor, "B d columns"], width: int) -> Float[Tensor, "B d fewer"]:
        """The columns that filters of this width read: the widest ones read all."""
        spare = self.kernel - width
        before = spare if self.causal else (self.kernel - 1) // 2 - (width - 1) // 2
        return rows[:, :, before : rows.shape[2] - (spare - before)]
