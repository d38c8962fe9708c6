"""Count attention: projections per head, scores, weighted sums, and values kept for the backward pass."""

from dataclasses import dataclass, replace
from functools import singledispatch

from heedful.ledger.lines import MASK, Line, Walk, entries, formula, grouped, inside, linear, own
from heedful.nn.attention.compressed import Compression, MemoryCompressedAttention
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.heads import MultiHead
from heedful.nn.attention.scores import AdditiveScore, BilinearScore, CosineScore, Score
from heedful.nn.attention.self_attention import SelfAttention


@dataclass(frozen=True)
class Compared:
    """Sizes of a score, for a pair of sentences.

    Args:
        heads, kv_heads: heads of queries; heads of keys and values.
        queries: number of queries.
        keys: number of keys that each query is compared with.
        d_q, d_k: widths of queries and keys.
        others: number of further keys, which only other queries are compared with.
    """

    heads: int
    kv_heads: int
    queries: int
    keys: int
    d_q: int
    d_k: int
    others: int = 0

    @property
    def held(self) -> int:
        """Number of all keys."""
        return self.keys + self.others

    @property
    def pairs(self) -> int:
        """Number of scores that are computed, visible or not."""
        return self.heads * self.queries * self.keys


@singledispatch
def score_entries(score: Score, compared: Compared, walk: Walk) -> list[Line]:
    """Return the lines of a score; by default, a score without matrices: one product per pair."""
    return [*own(score, walk), *inside(score, walk), _product(compared, compared.d_k)]


def _product(compared: Compared, d: int) -> Line:
    sizes = formula("keys * n_heads * d_k", keys=compared.keys, n_heads=compared.heads, d_k=d)
    return Line("scores", f"2 FLOPs * {sizes}", own_flops=2 * compared.pairs * d)


@score_entries.register
def _bilinear(score: BilinearScore, compared: Compared, walk: Walk) -> list[Line]:
    keys = walk.over(compared.held * compared.kv_heads)
    return [linear("W of the score", score.key, keys, ("d_k", "d_q")), _product(compared, compared.d_q)]


@score_entries.register
def _additive(score: AdditiveScore, compared: Compared, walk: Walk) -> list[Line]:
    queries = walk.over(compared.queries * compared.heads)
    keys = walk.over(compared.held * compared.kv_heads)
    return [
        linear("W_q of the score", score.query, queries, ("d_q", "d_a"), keeps=False),
        linear("W_k of the score", score.key, keys, ("d_k", "d_a"), keeps=compared.heads == 1),
        _vectors(score, compared, walk),
    ]


def _vectors(score: AdditiveScore, compared: Compared, walk: Walk) -> Line:
    """Return the line of v: one for all heads, or one per head, multiplied by the pairs of that head."""
    if score.n_heads == 1:
        return linear("v of the score", score.vector, walk.over(compared.pairs), ("d_a", "1"))
    d_a, first = score.vector.in_features, walk.first(score.vector.weight)
    how = formula("n_heads * d_a", n_heads=score.n_heads, d_a=d_a)
    units = compared.pairs * d_a
    return Line(
        "v of the score",
        str(how) if first else "shared",
        own=how.value * first,
        own_flops=2 * units,
        own_kept=units,
    )


@score_entries.register
def _cosine(score: CosineScore, compared: Compared, walk: Walk) -> list[Line]:
    """Queries and keys are kept before and after normalisation; with a learned strength, also the cosines."""
    heads, kv_heads = compared.heads * compared.queries, compared.kv_heads * compared.held
    kept = 2 * (heads * compared.d_q + kv_heads * compared.d_k)
    strength = own(score, walk)
    product = _product(compared, compared.d_k)
    return [*strength, replace(product, own_kept=kept + compared.pairs * bool(strength))]


def weighted_sum(compared: Compared, d_v: int) -> Line:
    """Return the line of the weighted sum of the values."""
    sizes = formula("keys * n_heads * d_v", keys=compared.keys, n_heads=compared.heads, d_v=d_v)
    return Line("weighted sum", f"2 FLOPs * {sizes}", own_flops=2 * compared.pairs * d_v)


def _kept(module: MultiHead, compared: Compared) -> float:
    """Count queries, keys, values, weights; for products, shared keys and values again; dropped weights.

    Rotated queries and keys are kept in addition to the projections, which exist as long as the values in
    them.
    """
    each_key = module.d_k + module.d_v
    heads = compared.heads * (compared.queries * module.d_k + compared.held * each_key)
    repeats = compared.kv_heads < compared.heads and module.score.product_scale(module.d_k) is not None
    if getattr(module, "rotary", None) is None:
        again = compared.held * each_key * compared.kv_heads * repeats
    else:
        turned = compared.heads * compared.queries + compared.kv_heads * compared.held
        again = turned * module.d_k * (not repeats)
    return heads + again + compared.pairs * (1 + (1 + MASK) * (module.dropout.p > 0))


@entries.register
def _self_attention(module: SelfAttention, name: str, walk: Walk) -> list[Line]:
    n, reach, again = walk.rows, walk.rows, 0
    block, earlier = module.blocks_for(n) or (n, 0)
    if block < n:
        # Each block is computed alone, with its own copy of the earlier blocks; the last one is padded.
        n = -(-n // block) * block
        reach, again = (earlier + 1) * block, earlier * n
    compared = Compared(module.n_heads, module.n_kv_heads, n, reach, module.d_k, module.d_k, n - reach)
    lines = _fused(module, walk)
    title = "causal self-attention" if module.causal else "self-attention"
    if module.block is not None:
        title = f"local {title}"
    if module.window is not None:
        title = f"{title} in windows of {module.window}"
    notes = []
    if block < walk.rows:
        blocks = f"{earlier + 1} blocks" if earlier else "its block"
        notes.append(f"each token with {blocks} of {block} alone")
    if hides := _hides(module, walk.rows):
        notes.append(f"all computed; {hides}")
    note = "; ".join(notes)
    copies = again * module.n_heads * (module.d_k + module.d_v)
    kept = walk.rows * module.qkv.in_features + _kept(module, compared) + copies
    return _attention(title, module, lines, compared, walk, kept, note)


def _hides(module: SelfAttention, rows: int) -> str:
    """Return a note on hidden keys that are computed too, for tokens away from a sequence's ends."""
    if module.window is not None and module.window < rows:
        seen = module.window if module.causal else 2 * module.window - 1
        return f"a window leaves {min(seen, rows)}"
    return "causality hides about half" if module.causal else ""


@entries.register
def _compressed(module: MemoryCompressedAttention, name: str, walk: Walk) -> list[Line]:
    """Keys and values are convolved, which reduces their number to a third."""
    n = walk.rows // module.factor
    compared = Compared(module.n_heads, module.n_kv_heads, walk.rows, 1 + n, module.d_k, module.d_k)
    lines = [
        *_fused(module, walk),
        _filters("C of the keys", "d_k", module.compress_keys, n, walk),
        _filters("C of the values", "d_v", module.compress_values, n, walk),
    ]
    shortened = module.n_kv_heads * n * module.factor * (module.d_k + module.d_v)
    kept = walk.rows * module.qkv.in_features + shortened + _kept(module, compared)
    note = f"{compared.keys} slots stand for {walk.rows} tokens"
    return _attention("memory-compressed attention", module, lines, compared, walk, kept, note)


def _filters(name: str, d: str, module: Compression, slots: int, walk: Walk) -> Line:
    """Return the line of the convolution of one head."""
    heads, _, width = module.weight.shape
    weight, bias = walk.first(module.weight), walk.first(module.bias)
    text = " + ".join([f"factor * {d} * {d}"] * weight + [d] * bias)
    how = formula(text or "0", **{"factor": module.factor, d: width})
    flops = 2 * slots * module.factor * width * width
    return Line(name, str(how) if text else "shared", own=how.value, own_flops=flops, times=heads)


def _fused(module: SelfAttention | MemoryCompressedAttention, walk: Walk) -> list[Line]:
    """Return the lines of the projections of all heads, which are stored in one matrix."""
    weight, bias = walk.first(module.qkv.weight), walk.first(module.qkv.bias)
    d_model = module.qkv.in_features
    return [
        _matrix(symbol, (d_model, width), times, walk.rows, weight=weight, bias=bias)
        for symbol, width, times in _projections(module)
    ]


@entries.register
def _cross_attention(module: CrossAttention, name: str, walk: Walk) -> list[Line]:
    compared = Compared(module.n_heads, module.n_kv_heads, walk.rows, walk.source, module.d_k, module.d_k)
    lines = []
    for symbol, width, times in _projections(module):
        part, rows = (module.q, walk.rows) if symbol == "W_Q" else (module.kv, walk.source)
        first = symbol != "W_V"  # W_K and W_V are halves of one matrix
        if first:
            weight, bias = walk.first(part.weight), walk.first(part.bias)
        lines.append(_matrix(symbol, (part.in_features, width), times, rows, weight=weight, bias=bias))
    # The encoder's output is kept once, by the norm that computed it or by the first layer that reads it.
    kept = walk.rows * module.q.in_features + _kept(module, compared)
    return _attention("cross-attention", module, lines, compared, walk, kept)


def _projections(module: MultiHead) -> list[tuple[str, int, int]]:
    return [
        ("W_Q", module.d_k, module.n_heads),
        ("W_K", module.d_k, module.n_kv_heads),
        ("W_V", module.d_v, module.n_kv_heads),
    ]


def _matrix(symbol: str, shape: tuple[int, int], times: int, rows: int, *, weight: bool, bias: bool) -> Line:
    """Return the line of a projection of one head, ``times`` times."""
    d = "d_v" if symbol == "W_V" else "d_k"
    text = " + ".join([f"d_model * {d}"] * weight + [d] * bias)
    how = formula(text or "0", **{"d_model": shape[0], d: shape[1]})
    flops = 2 * rows * shape[0] * shape[1]
    return Line(symbol, str(how) if text else "shared", own=how.value, own_flops=flops, times=times)


def _attention(
    title: str,
    module: MultiHead,
    projections: list[Line],
    compared: Compared,
    walk: Walk,
    kept: float,
    note: str = "",
) -> list[Line]:
    """Return the lines of an attention: projections, score, weighted sum, W_O; scores get the note."""
    lines = [
        *projections,
        *score_entries(module.score, compared, walk),
        weighted_sum(compared, module.d_v),
        _output(module, walk),
    ]
    lines = [replace(line, note=note) if line.name in {"scores", "weighted sum"} else line for line in lines]
    (whole,) = grouped(title, lines)
    return [replace(whole, own_kept=kept, own_layers=1)]


def _output(module: MultiHead, walk: Walk) -> Line:
    out = module.out
    weight, bias = walk.first(out.weight), walk.first(out.bias)
    text = " + ".join(["n_heads * d_v * d_model"] * weight + ["d_model"] * bias)
    how = formula(text or "0", n_heads=module.n_heads, d_v=module.d_v, d_model=out.out_features)
    return Line(
        "W_O",
        str(how) if text else "shared",
        own=how.value,
        own_flops=2 * walk.rows * out.in_features * out.out_features,
        own_kept=walk.rows * out.in_features,
    )
