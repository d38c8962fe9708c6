"""How the parts of Transformers are counted: attention, feed-forward, norms, embeddings, positions."""

from dataclasses import dataclass, replace
from functools import singledispatch

from torch import nn

from heedful.nn.attention.compressed import Compression, MemoryCompressedAttention
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.heads import MultiHead
from heedful.nn.attention.scores import AdditiveScore, BilinearScore, CosineScore, Score
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import DecoderBlock, EncoderBlock
from heedful.nn.embeddings import SegmentedEmbedding, TokenEmbedding
from heedful.nn.experts import Gate, MixtureOfExperts
from heedful.nn.feedforward import FeedForward, GatedFeedForward
from heedful.nn.mixers import Convolution, DepthwiseSeparableConvolution, PositionMLP
from heedful.nn.norms import BatchNorm, LayerNorm, PowerNorm, RMSNorm
from heedful.nn.positions import LearnedPositions
from heedful.nn.residual import PostNorm, PreNorm
from heedful.runs.ledger.lines import MASK, Line, Walk, entries, formula, grouped, inside, linear, own


@dataclass(frozen=True)
class Compared:
    """What a score compares, for a pair of sentences.

    Args:
        heads, kv_heads: of queries; of keys and values.
        queries: how many there are.
        keys: how many each is compared with.
        d_q, d_k: their widths.
        others: keys that there are besides, of which others see theirs.
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
        """All keys that there are."""
        return self.keys + self.others

    @property
    def pairs(self) -> int:
        """Scores that are formed, visible or not."""
        return self.heads * self.queries * self.keys


@singledispatch
def score_entries(score: Score, compared: Compared, walk: Walk) -> list[Line]:
    """A score without matrices: one product for each pair."""
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
        linear("v of the score", score.vector, walk.over(compared.pairs), ("d_a", "1")),
    ]


@score_entries.register
def _cosine(score: CosineScore, compared: Compared, walk: Walk) -> list[Line]:
    """It keeps queries and keys as they were and as they are divided; with a strength, the cosines."""
    heads, kv_heads = compared.heads * compared.queries, compared.kv_heads * compared.held
    kept = 2 * (heads * compared.d_q + kv_heads * compared.d_k)
    strength = own(score, walk)
    product = _product(compared, compared.d_k)
    return [*strength, replace(product, own_kept=kept + compared.pairs * bool(strength))]


def weighted_sum(compared: Compared, d_v: int) -> Line:
    """The sum of the values with their weights."""
    sizes = formula("keys * n_heads * d_v", keys=compared.keys, n_heads=compared.heads, d_v=d_v)
    return Line("weighted sum", f"2 FLOPs * {sizes}", own_flops=2 * compared.pairs * d_v)


def _kept(module: MultiHead, compared: Compared) -> float:
    """Queries, keys, values and weights; in products, shared keys and values once more; dropped weights.

    Turned queries and keys are kept beside the projections, which stay as long as the values in them.
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
    if module.block is not None and module.block < n:
        # Every block is attended to by itself, with its own copy of those before it; the last is filled up.
        n = -(-n // module.block) * module.block
        reach, again = (module.earlier_blocks + 1) * module.block, module.earlier_blocks * n
    compared = Compared(module.n_heads, module.n_kv_heads, n, reach, module.d_k, module.d_k, n - reach)
    lines = _fused(module, walk)
    title = "causal self-attention" if module.causal else "self-attention"
    note = "all computed; causality hides about half" if module.causal else ""
    if module.block is not None:
        title = f"local {title}"
    if module.block is not None and module.block < walk.rows:
        blocks = f"{module.earlier_blocks + 1} blocks" if module.earlier_blocks else "its block"
        note = f"each token with {blocks} of {module.block} alone" + (f"; {note}" if note else "")
    copies = again * module.n_heads * (module.d_k + module.d_v)
    kept = walk.rows * module.qkv.in_features + _kept(module, compared) + copies
    return _attention(title, module, lines, compared, walk, kept, note)


@entries.register
def _compressed(module: MemoryCompressedAttention, name: str, walk: Walk) -> list[Line]:
    """Keys and values are convolved, and their number shrinks to a third."""
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
    """The convolution of one head."""
    heads, _, width = module.weight.shape
    weight, bias = walk.first(module.weight), walk.first(module.bias)
    text = " + ".join([f"factor * {d} * {d}"] * weight + [d] * bias)
    how = formula(text or "0", **{"factor": module.factor, d: width})
    flops = 2 * slots * module.factor * width * width
    return Line(name, str(how) if text else "shared", own=how.value, own_flops=flops, times=heads)


def _fused(module: SelfAttention | MemoryCompressedAttention, walk: Walk) -> list[Line]:
    """The projections of all heads, which lie in one matrix."""
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
    # The encoder's top is kept once, by the norm that made it or by the first layer that reads it.
    kept = walk.rows * module.q.in_features + _kept(module, compared)
    return _attention("cross-attention", module, lines, compared, walk, kept)


def _projections(module: MultiHead) -> list[tuple[str, int, int]]:
    return [
        ("W_Q", module.d_k, module.n_heads),
        ("W_K", module.d_k, module.n_kv_heads),
        ("W_V", module.d_v, module.n_kv_heads),
    ]


def _matrix(symbol: str, shape: tuple[int, int], times: int, rows: int, *, weight: bool, bias: bool) -> Line:
    """A projection of one head, ``times`` over."""
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
    """Lines of all attentions: projections, score, weighted sum, W_O; the note is of what is compared."""
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


@entries.register
def _position_mlp(module: PositionMLP, name: str, walk: Walk) -> list[Line]:
    """Once for each feature, on the positions there are; it keeps its input and both sides of f."""
    there, d_tokens = min(walk.rows, module.n_positions), module.up.out_features
    sizes = ("n_positions", "d_tokens")
    lines = [
        linear("W_1 and b_1", module.up, walk, sizes, keeps=False),
        linear("W_2 and b_2", module.down, walk, sizes[::-1], keeps=False),
    ]
    flops = 2 * module.d_model * there * d_tokens
    (whole,) = grouped("mixing of positions", [replace(line, own_flops=flops) for line in lines])
    kept = module.d_model * (there + (2 + (1 + MASK) * (module.dropout.p > 0)) * d_tokens)
    return [replace(whole, own_kept=kept, own_layers=2)]


@entries.register
def _separable(module: DepthwiseSeparableConvolution, name: str, walk: Walk) -> list[Line]:
    """Each half keeps what it reads."""
    filters = _filter("depthwise", module.depthwise, "kernel * d_model", walk)
    pointwise = linear("pointwise", module.pointwise, walk, ("d_model", "d_model"))
    (whole,) = grouped("separable convolution", [filters, pointwise])
    return [replace(whole, own_layers=1)]


@entries.register
def _convolution(module: Convolution, name: str, walk: Walk) -> list[Line]:
    """It keeps what it reads, and one side of the activation."""
    line = _filter("convolution", module.convolution, "kernel * d_model * d_model", walk)
    return [replace(line, own_kept=2 * line.own_kept, own_layers=1)]


def _filter(name: str, module: nn.Conv1d, product: str, walk: Walk) -> Line:
    """A filter over neighbouring tokens: ``product`` weights, all of them used for every token."""
    terms = [product] * walk.first(module.weight) + ["d_model"] * walk.first(module.bias)
    how = formula(" + ".join(terms) or "0", kernel=module.kernel_size[0], d_model=module.in_channels)
    return Line(
        name,
        str(how) if terms else "shared",
        own=how.value,
        own_flops=2 * walk.rows * module.weight.numel(),
        own_kept=walk.rows * module.in_channels,
    )


@entries.register
def _feed_forward(module: FeedForward, name: str, walk: Walk) -> list[Line]:
    up = linear("W_1 and b_1", module.up, walk, ("d_model", "d_ff"))
    down = linear("W_2 and b_2", module.down, walk, ("d_ff", "d_model"))
    (whole,) = grouped("feed-forward", [up, down])
    # ReLU keeps its result, which is the input of W_2; others also keep what they are given.
    copies = (not isinstance(module.activation, nn.ReLU)) + (1 + MASK) * (module.dropout.p > 0)
    return [replace(whole, own_kept=copies * walk.rows * module.up.out_features, own_layers=2)]


@entries.register
def _gated_feed_forward(module: GatedFeedForward, name: str, walk: Walk) -> list[Line]:
    """It keeps both halves, what the activation made of one, and the products; dropped, a mask too."""
    d_model, d_ff = module.gate_up.in_features, module.down.in_features
    weight, bias = walk.first(module.gate_up.weight), walk.first(module.gate_up.bias)
    text = " + ".join(["d_model * d_ff"] * weight + ["d_ff"] * bias)
    how = formula(text or "0", d_model=d_model, d_ff=d_ff)
    halves = [
        Line(symbol, str(how) if text else "shared", own=how.value, own_flops=2 * walk.rows * d_model * d_ff)
        for symbol in ("W_gate", "W_up")
    ]
    down = linear("W_down", module.down, walk, ("d_ff", "d_model"))
    (whole,) = grouped("gated feed-forward", [*halves, down])
    kept = d_model + (3 + MASK * (module.dropout.p > 0)) * d_ff
    return [replace(whole, own_kept=walk.rows * kept, own_layers=2)]


@entries.register
def _mixture(module: MixtureOfExperts, name: str, walk: Walk) -> list[Line]:
    """All experts hold parameters; k of them work for a token, as one would that read every token k times."""
    k = module.gate.k
    rows = walk.over(k * walk.rows)
    found = [line for expert in module.experts for line in entries(expert, "expert", rows)]
    experts = [_weights(replace(line, name="expert")) for line in found]
    work = replace(_work(found[0]), name=f"work of the {k} experts of each token")
    (whole,) = grouped("mixture of experts", [*entries(module.gate, "gate", walk), *experts, work])
    # What the experts say is kept until it is weighted.
    return [replace(whole, own_kept=k * walk.rows * module.gate.weight.shape[1])]


def _weights(line: Line) -> Line:
    """The line with its parameters alone."""
    parts = tuple(map(_weights, line.parts))
    return replace(line, own_flops=0, own_kept=0, own_layers=0, parts=parts)


def _work(line: Line) -> Line:
    """The line without its parameters."""
    return replace(line, own=0, how="" if line.own else line.how, parts=tuple(map(_work, line.parts)))


@entries.register
def _gate(module: Gate, name: str, walk: Walk) -> list[Line]:
    """One matrix, or two with noise; it keeps what is done to the scores."""
    rows, d = module.weight.shape
    first = walk.first(module.weight)
    noisy = rows > module.n_experts
    how = formula("2 * n * d_model" if noisy else "n * d_model", n=module.n_experts, d_model=d)
    kept = walk.rows * (module.n_experts * (3 if noisy else 0) + 3 * module.k)
    return [
        Line(
            "W_g and W_noise" if noisy else "W_g",
            str(how) if first else "shared",
            own=how.value * first,
            own_flops=2 * walk.rows * rows * d,
            own_kept=kept,
        )
    ]


@entries.register(PostNorm)
@entries.register(PreNorm)
def _residual(module: PostNorm | PreNorm, name: str, walk: Walk) -> list[Line]:
    """The part, and its norm beside it; the mask of the dropout between them is counted with the norm."""
    norms = entries(module.norm, "norm", walk)
    if norms and module.dropout.p > 0:
        weight = getattr(module.norm, "weight", None)
        width = weight.numel() if isinstance(weight, nn.Parameter) else 0
        norms[0] = replace(norms[0], own_kept=norms[0].own_kept + MASK * walk.rows * width)
    return [*entries(module.part, name, walk), *norms]


@entries.register(LayerNorm)
@entries.register(BatchNorm)
@entries.register(PowerNorm)
def _norm(module: LayerNorm | BatchNorm | PowerNorm, name: str, walk: Walk) -> list[Line]:
    parameters = [p for p in (module.weight, module.bias) if walk.first(p)]
    how = formula(f"{len(parameters)} * d_model", d_model=module.weight.numel())
    return [Line("norm", str(how), own=how.value, own_kept=walk.rows * module.weight.numel())]


@entries.register
def _rms_norm(module: RMSNorm, name: str, walk: Walk) -> list[Line]:
    """A gain alone; what was normalised is kept beside the input."""
    d_model = module.weight.numel()
    first = walk.first(module.weight)
    how = str(formula("d_model", d_model=d_model)) if first else "shared"
    return [Line("norm", how, own=d_model * first, own_kept=2 * walk.rows * d_model)]


@entries.register
def _embedding(module: TokenEmbedding, name: str, walk: Walk) -> list[Line]:
    """The table; its ids (8 bytes each) and the mask are kept, its rows by whoever reads them."""
    how = formula("V * d_model", V=module.weight.shape[0], d_model=module.weight.shape[1])
    first = walk.first(module.weight)
    kept = walk.rows * (2 + MASK * module.weight.shape[1] * (module.dropout.p > 0))
    table = Line(
        name,
        str(how) if first else "tied to a matrix above",
        own=how.value if first else 0,
        own_kept=kept,
    )
    inner = inside(module, walk, skip={"dropout"})
    positions = [replace(line, name=f"positions of the {name}") for line in inner if line.parameters]
    return [table, *positions]


@entries.register
def _segmented_embedding(module: SegmentedEmbedding, name: str, walk: Walk) -> list[Line]:
    """The table of the tokens, then those of positions and segments, then the norm."""
    d_model = module.weight.shape[1]
    tokens = formula("V * d_model", V=module.weight.shape[0], d_model=d_model)
    # Ids of tokens and segments (8 bytes each), and the mask; the norm keeps the sum.
    kept = walk.rows * (2 + 2 * (module.segments is not None) + MASK * d_model * (module.dropout.p > 0))
    lines = [Line("tokens", str(tokens), own=tokens.value * walk.first(module.weight), own_kept=kept)]
    if module.segments is not None:
        how = formula("n_segments * d_model", n_segments=len(module.segments), d_model=d_model)
        lines.append(Line("segments", str(how), own=how.value * walk.first(module.segments)))
    return grouped(name, [*lines, *inside(module, walk, skip={"dropout"})])


@entries.register
def _positions(module: LearnedPositions, name: str, walk: Walk) -> list[Line]:
    first = walk.first(module.weight)
    how = formula("max_length * d", max_length=module.max_length, d=module.d)
    kept = 2 * walk.rows
    return [Line("positions", str(how) if first else "shared", own=how.value * first, own_kept=kept)]


@entries.register
def _encoder_block(module: EncoderBlock, name: str, walk: Walk) -> list[Line]:
    """A stack without a source is made of the same blocks, of causal mixers."""
    return grouped(_layer(module.mixing.part), inside(module, walk))


def _layer(mixer: nn.Module) -> str:
    """What a layer is called, for its mixer."""
    if isinstance(mixer, MemoryCompressedAttention):
        return "memory-compressed layer"
    if not getattr(mixer, "causal", False):
        return "encoder layer"
    return "causal layer" if getattr(mixer, "block", None) is None else "local layer"


@entries.register
def _decoder_block(module: DecoderBlock, name: str, walk: Walk) -> list[Line]:
    return grouped("decoder layer", inside(module, walk))
