"""Multi-head attention: several attentions in parallel, each on its own slice of the projections.

    head_i = Attention(Q W_Q^i, K W_K^i, V W_V^i),   Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V
    MultiHead(Q, K, V) = Concat(head_1 ... head_h) W_O

| lectures | here | shape |
|---|---|---|
| W_Q^i | ``q_heads[i]`` of a `SelfAttention` | d_model x d_k |
| W_K^i, W_V^i | ``k_heads[i]``, ``v_heads[i]`` | d_model x d_k, d_model x d_v |
| W_O | ``out.weight`` transposed | (n_heads · d_v) x d_model |
| h | ``n_heads`` | |

`heedful.nn.attention` names the axes of the shapes below.

Split heads have d_k = d_v = d_model / n_heads (Vaswani et al. 2017, section 3.2.2): parameters and
products do not depend on the number of heads; scores and weights, H x Q x K numbers, do. Full-width heads
(d_k = d_v = d_model, as in the Keras code beside S1's figure) cost n_heads times as much. Both use the same
code with different widths.

Errors in the lectures. S0 prints 64 x 512 = 32,178 three times: it is 32,768. S1 gives head matrices
as N x d/H (they are d x d/H) and says that the original paper has d = 768 and H = 10 (512 and 8; ten
does not divide 768, and 768 with 12 heads is BERT's). S2 writes one W_O for each head: there is one,
of n_heads d_v x d_model.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar, TypedDict

from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.attention.kernels import attend
from heedful.nn.attention.scores import ScaledDotScore, ScoreFunction
from heedful.nn.dropout import Dropout
from heedful.nn.taps import Tap
from heedful.nn.visibility import Visibility


def split_heads(x: Float[Tensor, "B S hd"], n_heads: int) -> Float[Tensor, "B h S d"]:
    """Split the last axis into heads, as a view."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(x: Float[Tensor, "B h S d"]) -> Float[Tensor, "B S hd"]:
    """Concatenate the heads: the inverse of `split_heads`."""
    return x.transpose(1, 2).flatten(2)


def init_slices(weight: Float[Tensor, "rows d"], sizes: list[int]) -> None:
    """Initialise each slice of a fused matrix as a separate Xavier-uniform matrix."""
    for part in weight.data.split(sizes):
        nn.init.xavier_uniform_(part)


def init_layer(layer: nn.Linear, sizes: list[int]) -> None:
    """Apply `init_slices` to the weight of a layer and set its bias, if any, to 0."""
    init_slices(layer.weight, sizes)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _head_width(d_model: int, n_heads: int, width: int | None) -> int:
    if width is not None:
        return width
    if d_model % n_heads:
        raise ValueError(f"d_model={d_model} must be divisible by n_heads={n_heads}; or set d_k and d_v")
    return d_model // n_heads


class HeadOptions(TypedDict, total=False):
    """Keyword options of every multi-head attention.

    | option | default | |
    |---|---|---|
    | ``d_k``, ``d_v`` | d_model / n_heads | widths of queries and keys, and of values |
    | ``n_kv_heads`` | n_heads | heads of keys and values, each shared by n_heads / n_kv_heads query heads |
    | ``score`` | scaled dot product | score function of queries and keys |
    | ``qkv_bias``, ``out_bias`` | False | whether the projections have a bias (the paper's have none) |
    | ``dropout`` | 0 | dropout rate of the attention weights |

    Source of shared heads (grouped-query attention): Ainslie et al. 2023.
    """

    d_k: int | None
    d_v: int | None
    n_kv_heads: int | None
    score: ScoreFunction | None
    qkv_bias: bool
    out_bias: bool
    dropout: float


class MultiHead(nn.Module):
    """Base class of multi-head attention: head sizes, score, dropout, taps and output projection.

    Args:
        d_model: model dimension.
        n_heads: number of heads, h.
        d_k, d_v, n_kv_heads, score, qkv_bias, out_bias, dropout: see `HeadOptions`.

    Raises:
        ValueError: the numbers of heads do not divide each other or d_model, or the score takes other widths.

    `heedful.nn.attention` names the axes.

    | tap | shape | |
    |---|---|---|
    | ``queries`` | ``[B, H, Q, d_k]`` | after rotary positions, if any |
    | ``keys`` | ``[B, G, K, d_p]`` | prepared for the score, after rotary positions |
    | ``values`` | ``[B, G, K, d_v]`` | |
    | ``scores`` | ``[B, H, Q, K]`` | before bias and mask |
    | ``weights`` | ``[B, H, Q, K]`` | before dropout |
    | ``mixed`` | ``[B, H, Q, d_v]`` | outputs of the heads, before W_O |

    Taps see the tensors that attention uses: with a cache, keys and values of all tokens so far; if several
    sequences share a memory, their queries in one row. Padding rows hold unspecified finite values. Replaced
    keys or values are used but not cached.
    """

    fused_name: ClassVar[str]
    """Name of the projection that contains the keys and values: ``qkv`` (with the queries) or ``kv``."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        n_kv_heads: int | None = None,
        score: ScoreFunction | None = None,
        qkv_bias: bool = False,
        out_bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.qkv_bias = qkv_bias
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads or n_heads
        if n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads={n_heads} must be divisible by n_kv_heads={self.n_kv_heads}")
        self.d_k = _head_width(d_model, n_heads, d_k)
        self.d_v = _head_width(d_model, n_heads, d_v)
        self.score = ScaledDotScore() if score is None else score
        self.score.check_widths(self.d_k, self.d_k)
        self.dropout = Dropout(dropout)
        self.queries = Tap("queries of each head, as used by the scores")
        self.keys = Tap("keys of each head, as used by the scores")
        self.values = Tap("values of each head")
        self.scores = Tap("scores of all query-key pairs, before bias and mask")
        self.weights = Tap("attention weights, before dropout")
        self.mixed = Tap("weighted sums of the values of each head, before W_O")
        self.out = nn.Linear(n_heads * self.d_v, d_model, bias=out_bias)
        init_layer(self.out, [d_model])

    @property
    def sizes(self) -> list[int]:
        """Widths of the fused projections of queries, keys and values."""
        kv = self.n_kv_heads
        return [self.n_heads * self.d_k, kv * self.d_k, kv * self.d_v]

    @property
    def slices(self) -> dict[str, list[int]]:
        """Row counts of the matrices that share one parameter."""
        return {f"{self.fused_name}.weight": self.sizes if self.fused_name == "qkv" else self.sizes[1:]}

    @property
    def without_gradient(self) -> dict[str, Iterable[int]]:
        """Parameter rows whose gradient is always zero: those of the key bias b.

        The bias adds the same q.b to all scores of a query, and softmax ignores it; this holds if scores are
        products and keys are not rotated. (See `heedful.nn.declarations`.)
        """
        is_product = self.score.product_scale(self.d_k) is not None
        rows = self._unrotated_keys if self.qkv_bias and is_product else ()
        return {f"{self.fused_name}.bias": rows} if rows else {}

    @property
    def adds_constant(self) -> dict[str, range]:
        """The output bias, and the rows of the value bias: without dropout, weights sum to 1.

        (See `heedful.nn.declarations`.)
        """
        first_value = self._first_key + self.sizes[1]
        values = {f"{self.fused_name}.bias": range(first_value, first_value + self.sizes[2])}
        out = {} if self.out.bias is None else {"out.bias": range(len(self.out.bias))}
        return out | (values if self.qkv_bias and self.dropout.p == 0 else {})

    @property
    def _unrotated_keys(self) -> Sequence[int]:
        """Rows of the keys in the fused projection that are not rotated by positions."""
        return range(self._first_key, self._first_key + self.sizes[1])

    @property
    def _first_key(self) -> int:
        """First row of the keys in the fused projection."""
        return self.sizes[0] if self.fused_name == "qkv" else 0

    @property
    def _taps(self) -> list[Tap]:
        """All taps, in the order of the computation."""
        return [self.queries, self.keys, self.values, self.scores, self.weights, self.mixed]

    def _keys_and_values(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return (
            self.score.prepare(split_heads(keys, self.n_kv_heads)),
            split_heads(values, self.n_kv_heads),
        )

    def _attend(
        self,
        queries: Float[Tensor, "B H Q d_k"],
        keys: Float[Tensor, "B G K d_p"],
        values: Float[Tensor, "B G K d_v"],
        visibility: Visibility,
        bias: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "B Q hd"]:
        """Compute attention with its taps and concatenate the heads."""
        mixed = attend(
            self.queries(queries),
            self.keys(keys),
            self.values(values),
            visibility,
            self.score,
            dropout=self.dropout,
            scores_tap=self.scores,
            weights_tap=self.weights,
            bias=bias,
        )
        return merge_heads(self.mixed(mixed))
