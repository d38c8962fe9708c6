"""Heads against plain loops over the lectures' matrices, and against each other."""

import math

import pytest
import torch
from torch import nn

from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.heads import init_slices, merge_heads, split_heads
from heedful.nn.attention.relative import Alibi, Rotary
from heedful.nn.attention.scores import AdditiveScore, BilinearScore, CosineScore, DotScore, ScaledDotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.declarations import declared, without_gradient
from heedful.nn.layout import Layout
from heedful.nn.state import KeyValueCache
from heedful.nn.taps import intervene, recording
from heedful.nn.visibility import Blocks, Dilated, Fixed, GlobalTokens, Mask, Strided, Tree, Window

D, D_S = 13, 17
LENGTHS, SOURCES = [3, 5, 1], [7, 2, 4]
SCORES = {
    "scaled dot": ScaledDotScore,
    "dot": DotScore,
    "bilinear": lambda: BilinearScore(5, 5),
    "additive": lambda: AdditiveScore(5, 5, 11),
    "additive, a vector each": lambda: AdditiveScore(5, 5, 11, n_heads=3),
    "cosine": lambda: CosineScore(2.5),
}
every_score = pytest.mark.parametrize("score", SCORES)


def score_of(name, score, q, k, head):
    """One query and one key of a head, as plain numbers."""
    dot = sum(float(a) * float(b) for a, b in zip(q, k))
    if name == "scaled dot":
        return dot / math.sqrt(len(q))
    if name == "dot":
        return dot
    if name == "bilinear":
        return float(q @ score.key.weight @ k)
    if name.startswith("additive"):
        hidden = torch.tanh(score.query.weight @ q + score.key.weight @ k)
        return float(score.vector.weight[0 if name == "additive" else head] @ hidden)
    norms = math.sqrt(float(q @ q)) * math.sqrt(float(k @ k))
    return float(score.key_strength) * dot / norms


def loop(queries, sources, w_q, w_k, w_v, part, score):
    """``Concat(head_1 ... head_h) W_O`` of one sequence, one head, query and key at a time.

    ``sources[i]`` is what query i sees. W_Q, W_K, W_V are ``[h, d, d_k or d_v]``, one for each head.
    """
    rows = []
    for x, seen in zip(queries, sources):
        heads = []
        for h, (q_of, k_of, v_of) in enumerate(zip(w_q, w_k, w_v, strict=True)):
            e = [math.exp(score_of(score, part.score, x @ q_of, y @ k_of, h)) for y in seen]
            heads.append(sum(weight / sum(e) * (y @ v_of) for weight, y in zip(e, seen)))
        rows.append(torch.cat(heads) @ part.out.weight.T)
    return torch.stack(rows)


def tokens(lengths, d=D, seed=1):
    return torch.randn(sum(lengths), d, generator=torch.Generator().manual_seed(seed))


def self_attention(seed=2, **options):
    torch.manual_seed(seed)
    return SelfAttention(D, 3, **{"d_k": 5, "d_v": 7, **options}).eval()


# Against loops --------------------------------------------------------------------------------------------


@every_score
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_self_attention_equals_a_loop_over_heads_queries_and_keys(score, causal):
    part = self_attention(score=SCORES[score](), causal=causal)
    x = tokens(LENGTHS)
    mixed = part(x, Layout.of(LENGTHS)).split(LENGTHS)
    for own, wanted in zip(x.split(LENGTHS), mixed):
        seen = [own[: i + 1] if causal else own for i in range(len(own))]
        heads = (part.q_heads, part.k_heads, part.v_heads)
        torch.testing.assert_close(wanted, loop(own, seen, *heads, part, score))


@every_score
@torch.no_grad()
def test_cross_attention_equals_a_loop_over_heads_queries_and_keys(score):
    torch.manual_seed(3)
    part = CrossAttention(D, 3, d_memory=D_S, d_k=5, d_v=7, score=SCORES[score]())
    x, y = tokens(LENGTHS), tokens(SOURCES, D_S)
    mixed = part(x, Layout.of(LENGTHS), part.make_memory(y, Layout.of(SOURCES))).split(LENGTHS)
    w_q = [part.q.weight[5 * h : 5 * h + 5].T for h in range(3)]
    w_k = [part.kv.weight[5 * h : 5 * h + 5].T for h in range(3)]
    w_v = [part.kv.weight[15 + 7 * h : 22 + 7 * h].T for h in range(3)]
    for own, source, wanted in zip(x.split(LENGTHS), y.split(SOURCES), mixed):
        torch.testing.assert_close(wanted, loop(own, [source] * len(own), w_q, w_k, w_v, part, score))


@torch.no_grad()
def test_full_width_heads_equal_a_loop():
    """As Keras reads S1's figure: every head keeps the width d, so W_O is (h d) x d."""
    part = self_attention(d_k=D, d_v=D)
    x = tokens([5])
    assert part.q_heads.shape == part.k_heads.shape == part.v_heads.shape == (3, D, D)
    assert part.out.weight.T.shape == (3 * D, D)
    heads = (part.q_heads, part.k_heads, part.v_heads)
    torch.testing.assert_close(part(x, Layout.of([5])), loop(x, [x] * 5, *heads, part, "scaled dot"))


@pytest.mark.parametrize("earlier", [0, 1, 2])
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_local_attention_equals_a_loop_over_what_lies_in_the_blocks(causal, earlier):
    part = self_attention(causal=causal, pattern=Blocks(3, earlier))
    lengths = [8, 3, 1, 7]
    x = tokens(lengths)
    mixed = part(x, Layout.of(lengths)).split(lengths)
    with recording(part, ["weights"]) as seen:
        whole = part(x, Layout.of(lengths))
    torch.testing.assert_close(torch.cat(mixed), whole)
    assert seen["weights"][0].shape == (4, 3, 8, 8)
    heads = (part.q_heads, part.k_heads, part.v_heads)
    for own, wanted in zip(x.split(lengths), mixed):
        ends = [min(3 * (i // 3 + 1 + (0 if causal else earlier)), len(own)) for i in range(len(own))]
        near = [range(3 * max(0, i // 3 - earlier), ends[i]) for i in range(len(own))]
        seen = [own[[k for k in keys if k <= i or not causal]] for i, keys in enumerate(near)]
        torch.testing.assert_close(wanted, loop(own, seen, *heads, part, "scaled dot"))


def goes_on_from_any_place(part):
    """What a cache continues, token by token, is what one pass makes of the whole."""
    x = tokens([10])
    whole = part(x, Layout.of([10]))
    for cut in range(1, 10):
        cache = part.new_cache()
        first = part(x[:cut], Layout.of([cut]), cache)
        steps = [part(x[i : i + 1], Layout.of([1], [i]), cache) for i in range(cut, 10)]
        torch.testing.assert_close(torch.cat([first, *steps]), whole)


@pytest.mark.parametrize("earlier", [0, 1])
@torch.no_grad()
def test_local_attention_goes_on_from_any_place_in_a_block(earlier):
    part = self_attention(causal=True, pattern=Blocks(3, earlier))
    goes_on_from_any_place(part)


# Sequences that lie in a window, that are longer, and that are cut into blocks.
@pytest.mark.parametrize("lengths", [[3, 0, 2], [5, 3, 1], [11, 3, 0, 7]])
@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_windows_equal_a_loop_over_what_lies_in_them(causal, window, lengths):
    part = self_attention(causal=causal, pattern=Window(window))
    x = tokens(lengths)
    mixed = part(x, Layout.of(lengths)).split(lengths)
    with recording(part, ["weights"]) as seen:
        whole = part(x, Layout.of(lengths))
    torch.testing.assert_close(torch.cat(mixed), whole)
    assert seen["weights"][0].shape == (len(lengths), 3, max(lengths), max(lengths))
    heads = (part.q_heads, part.k_heads, part.v_heads)
    for own, wanted in zip(x.split(lengths), mixed):
        if len(own):
            near = [range(max(0, i - window + 1), i + window) for i in range(len(own))]
            seen = [
                own[[k for k in keys if k <= (i if causal else len(own) - 1)]] for i, keys in enumerate(near)
            ]
            torch.testing.assert_close(wanted, loop(own, seen, *heads, part, "scaled dot"))


@pytest.mark.parametrize("options", [{}, {"rotary": True}, {"score_bias": True}])
@torch.no_grad()
def test_windows_go_on_from_any_place(options):
    inside = {"rotary": Rotary(4), "score_bias": Alibi(3)}
    part = self_attention(causal=True, pattern=Window(3), d_k=4, **{name: inside[name] for name in options})
    goes_on_from_any_place(part)


@pytest.mark.parametrize("options", [{"pattern": Blocks(4)}, {"pattern": Window(2)}])
def test_blocks_are_attended_to_one_by_one(options):
    """Work and memory grow with the block: no tensor of all pairs of tokens is kept."""
    part = self_attention(causal=True, **options)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        part(tokens([400]), Layout.of([400]))
    assert max(saved) <= 400 * max(D, sum(part.sizes))
    assert without_gradient(part) == {}


BAND = Mask.of(torch.ones(9, 9).triu(-2) > 0)
PATTERNS = [Dilated(2, 3), Strided(3), Fixed(3), GlobalTokens(1, 2), Tree(2), BAND]


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_any_pattern_equals_a_loop_over_what_is_visible(pattern, causal):
    part, lengths = self_attention(causal=causal, pattern=pattern), [9, 2, 7]
    x = tokens(lengths)
    heads = (part.q_heads, part.k_heads, part.v_heads)
    for own, result in zip(x.split(lengths), part(x, Layout.of(lengths)).split(lengths)):
        n = len(own)
        visible = pattern.sees(torch.arange(n)[:, None], torch.arange(n))
        keys = [[k for k in range(n) if visible[i, k] and (k <= i or not causal)] for i in range(n)]
        torch.testing.assert_close(result, loop(own, [own[k] for k in keys], *heads, part, "scaled dot"))


@pytest.mark.parametrize("pattern", PATTERNS[:-1], ids=str)
@torch.no_grad()
def test_any_pattern_goes_on_from_any_place(pattern):
    goes_on_from_any_place(self_attention(causal=True, pattern=pattern))


@pytest.mark.parametrize("pattern", [Window(2), Strided(3), GlobalTokens(1, 2), BAND], ids=str)
@torch.no_grad()
def test_a_pattern_in_cross_attention_goes_by_the_positions_of_both(pattern):
    """Two hypotheses for each of two sources, as a decoder has them: all tokens, then one more of each."""
    torch.manual_seed(0)
    part = CrossAttention(D, 3, d_k=5, d_v=7, pattern=pattern)
    plain = CrossAttention(D, 3, d_k=5, d_v=7)
    plain.load_state_dict(part.state_dict())
    sources, lengths = [5, 8], [4, 2, 6, 3]
    memory = part.make_memory(tokens(sources), Layout.of(sources))
    x = tokens(lengths)
    whole = part(x, Layout.of(lengths), memory).split(lengths)
    encoded = tokens(sources).split(sources)
    for row, (own, result) in enumerate(zip(x.split(lengths), whole)):
        source = encoded[row // 2]
        visible = pattern.sees(torch.arange(len(own))[:, None], torch.arange(len(source)))
        for i, keys in enumerate(visible):
            alone = plain.make_memory(source[keys], Layout.of([int(keys.sum())]))
            torch.testing.assert_close(result[i : i + 1], plain(own[i : i + 1], Layout.of([1]), alone))
    last = part(
        torch.cat([part_x[-1:] for part_x in x.split(lengths)]),
        Layout.of([1] * 4, [n - 1 for n in lengths]),
        memory,
    )
    torch.testing.assert_close(last, torch.stack([result[-1] for result in whole]))


@torch.no_grad()
def test_keys_and_values_may_come_from_different_inputs():
    """As torch's MultiheadAttention(query, key, value) has them, with the same weights."""
    torch.manual_seed(0)
    part = CrossAttention(12, 3, qkv_bias=True, out_bias=True)
    peer = nn.MultiheadAttention(12, 3, batch_first=True)
    peer.in_proj_weight.copy_(torch.cat([part.q.weight, part.kv.weight]))
    peer.in_proj_bias.copy_(torch.cat([part.q.bias.normal_(), part.kv.bias.normal_()]))
    peer.out_proj.load_state_dict(part.out.state_dict())
    queries, keys, values = torch.randn(5, 12), torch.randn(7, 12), torch.randn(7, 12)
    expected, _ = peer(queries[None], keys[None], values[None])
    memory = part.make_memory(keys, Layout.of([7]), values)
    torch.testing.assert_close(part(queries, Layout.of([5]), memory), expected[0])


# Views, sizes, initialisation -----------------------------------------------------------------------------


def test_views_of_heads_are_slices_of_the_fused_matrix():
    part = SelfAttention(D, 6, d_k=5, d_v=7, n_kv_heads=2)
    assert part.sizes == [30, 10, 14]
    assert part.q_heads.shape == (6, D, 5)
    assert part.k_heads.shape == (2, D, 5)
    assert part.v_heads.shape == (2, D, 7)
    fused = part.qkv.weight
    for h in range(6):
        assert torch.equal(part.q_heads[h], fused[5 * h : 5 * h + 5].T)
    for g in range(2):
        assert torch.equal(part.k_heads[g], fused[30 + 5 * g : 35 + 5 * g].T)
        assert torch.equal(part.v_heads[g], fused[40 + 7 * g : 47 + 7 * g].T)
    with torch.no_grad():
        part.v_heads[1, 2, 3] = 42.0
    assert fused[40 + 7 + 3, 2] == 42.0


def test_split_and_merge_are_inverses_and_keep_each_heads_columns():
    x = torch.randn(2, 3, 35)
    split = split_heads(x, 5)
    assert split.shape == (2, 5, 3, 7)
    assert torch.equal(split[:, 2], x[..., 14:21])
    assert split.data_ptr() == x.data_ptr()
    assert torch.equal(merge_heads(split), x)


def size(part):
    return sum(p.numel() for p in part.parameters())


def test_split_heads_have_the_parameters_of_one_head():
    """Lectures S1 to S3: heads are free. At d = 512, 4 d^2 = 1,048,576 for any number of heads."""
    assert [size(SelfAttention(512, h)) for h in (1, 2, 8, 16)] == [1_048_576] * 4
    assert size(CrossAttention(512, 8)) == 1_048_576
    assert SelfAttention(512, 8).q_heads[0].numel() == 32_768  # 64 x 512; S0 prints 32,178
    biased = SelfAttention(512, 8, qkv_bias=True, out_bias=True)
    assert size(biased) == 1_048_576 + 4 * 512


def test_full_width_heads_have_n_heads_times_the_parameters():
    for h in (1, 3, 8):
        assert size(SelfAttention(32, h, d_k=32, d_v=32)) == 4 * h * 32**2 == h * size(SelfAttention(32, 1))


def test_every_slice_of_a_fused_matrix_is_initialised_as_the_matrix_it_is():
    """Xavier-uniform: each slice has its own bound sqrt(6 / (rows + columns)), and fills it."""
    torch.manual_seed(4)
    part = SelfAttention(101, 7, d_k=53, d_v=11, qkv_bias=True, out_bias=True)
    cross = CrossAttention(101, 7, d_memory=67, d_k=53, d_v=11, qkv_bias=True)
    slices = [*part.qkv.weight.split(part.sizes), part.out.weight, cross.q.weight]
    for matrix in (*slices, *cross.kv.weight.split(cross.sizes[1:]), cross.out.weight):
        bound = math.sqrt(6 / sum(matrix.shape))
        assert 0.99 * bound < matrix.abs().max() <= bound
        torch.testing.assert_close(matrix.std(), torch.tensor(bound / math.sqrt(3)), rtol=0.03, atol=0)
    for bias in (part.qkv.bias, part.out.bias, cross.q.bias, cross.kv.bias):
        assert not bias.any()


def test_slices_are_drawn_one_by_one():
    torch.manual_seed(5)
    fused = torch.empty(9, 5)
    init_slices(fused, [2, 7])
    torch.manual_seed(5)
    apart = [nn.init.xavier_uniform_(torch.empty(n, 5)) for n in (2, 7)]
    assert torch.equal(fused, torch.cat(apart))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n_heads": 3}, "d_model=13 must be divisible by n_heads=3"),
        ({"n_heads": 3, "d_k": 5}, "or set d_k and d_v"),
        ({"n_heads": 6, "n_kv_heads": 4, "d_k": 5, "d_v": 5}, "n_heads=6 must be divisible by n_kv_heads=4"),
    ],
)
@pytest.mark.parametrize("kind", [SelfAttention, CrossAttention])
def test_heads_that_do_not_fit_are_refused(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(D, **options)


# Grouped heads --------------------------------------------------------------------------------------------


@torch.no_grad()
def test_grouped_heads_equal_heads_whose_keys_and_values_are_repeated():
    grouped = SelfAttention(D, 6, d_k=5, d_v=7, n_kv_heads=2, causal=True, qkv_bias=True)
    full = SelfAttention(D, 6, d_k=5, d_v=7, causal=True, qkv_bias=True)
    grouped.qkv.bias.normal_()
    for ours, theirs in ((full.qkv.weight, grouped.qkv.weight), (full.qkv.bias, grouped.qkv.bias)):
        q, k, v = theirs.split(grouped.sizes)
        repeated = [part.unflatten(0, (2, -1)).repeat_interleave(3, 0).flatten(0, 1) for part in (k, v)]
        ours.copy_(torch.cat([q, *repeated]))
    full.out.load_state_dict(grouped.out.state_dict())
    x, layout = tokens(LENGTHS), Layout.of(LENGTHS)
    torch.testing.assert_close(grouped(x, layout), full(x, layout))


def test_a_cache_holds_the_heads_of_keys_only():
    part, cache = self_attention(n_kv_heads=1, causal=True), KeyValueCache()
    part(tokens(LENGTHS), Layout.of(LENGTHS), cache)
    assert cache.keys.shape[:2] == cache.values.shape[:2] == (3, 1)
    assert (cache.keys.shape[3], cache.values.shape[3]) == (5, 7)


# Cross-attention's memory ---------------------------------------------------------------------------------


@torch.no_grad()
def test_a_memory_of_some_sentences_equals_remembering_them_alone():
    part = CrossAttention(D, 3, d_memory=D_S, d_k=5, d_v=7, score=AdditiveScore(5, 5, 11))
    y = tokens(SOURCES, D_S)
    some = part.make_memory(y, Layout.of(SOURCES)).select(torch.tensor([2, 1]))
    parts = y.split(SOURCES)
    alone = part.make_memory(torch.cat([parts[2], parts[1]]), Layout.of([4, 2]))
    assert some.layout.lengths == alone.layout.lengths
    torch.testing.assert_close(some.keys, alone.keys)
    torch.testing.assert_close(some.values, alone.values)
    assert some.keys.shape == (2, 3, 4, 11)  # additive keys are prepared, as wide as the sum


def test_taps_see_scores_and_weights_and_may_replace_them():
    part, layout = self_attention(causal=True), Layout.of([4])
    x = tokens([4])
    with recording(part, ["scores", "weights"]) as seen:
        part(x, layout)
    (scores,), (weights,) = seen["scores"], seen["weights"]
    causal = scores.masked_fill(torch.ones(4, 4).triu(1).bool(), -math.inf)
    torch.testing.assert_close(weights, causal.softmax(-1))
    with intervene(part, {"weights": torch.zeros_like}):
        assert not part(x, layout).any()


@torch.no_grad()
def test_dropout_falls_on_the_weights():
    torch.manual_seed(6)
    part, layout = SelfAttention(15, 3, dropout=0.5), Layout.of([4])
    part.out.weight.copy_(torch.eye(15))
    x = tokens([4], 15)
    values = (x @ part.qkv.weight[30:].T).unflatten(-1, (3, 5))
    with recording(part, ["weights"]) as seen:
        mixed = part(x, layout).unflatten(-1, (3, 5))
    factors = []
    for h in range(3):
        # What was mixed is a sum of values; the weights in it are those that the tap saw, times 0 or 2.
        used = torch.linalg.lstsq(values[:, h].T, mixed[:, h].T).solution.T
        factors += (used / seen["weights"][0][0, h]).flatten().tolist()
    near = {n: [f for f in factors if abs(f - n) < 1e-2] for n in (0, 2)}
    assert near[0]
    assert near[2]
    assert len(near[0]) + len(near[2]) == len(factors)


# Declarations ---------------------------------------------------------------------------------------------


def test_attention_that_is_not_causal_reads_ahead():
    assert declared(self_attention()) == {"non_causal"}
    assert declared(self_attention(causal=True)) == set()
    assert declared(CrossAttention(D, 1)) == set()


def test_the_key_bias_is_declared_to_be_without_gradient_where_scores_are_products():
    options = {"n_kv_heads": 1, "qkv_bias": True}
    assert without_gradient(self_attention(**options)) == {"qkv.bias": set(range(15, 20))}
    cross = CrossAttention(D, 3, d_k=5, d_v=7, n_kv_heads=1, qkv_bias=True, score=BilinearScore(5, 5))
    assert without_gradient(cross) == {"kv.bias": set(range(5))}
    assert without_gradient(self_attention()) == {}
    assert without_gradient(self_attention(qkv_bias=True, score=CosineScore())) == {}


def test_attention_that_reads_ahead_refuses_a_cache():
    layout = Layout.of([2])
    with pytest.raises(ValueError, match="causal=True"):
        SelfAttention(6, 2)(torch.randn(2, 6), layout, KeyValueCache())


@pytest.mark.parametrize("score", [BilinearScore(5, 7), BilinearScore(7, 5), AdditiveScore(7, 5, 11)])
@pytest.mark.parametrize("attention", [SelfAttention, CrossAttention])
def test_a_score_of_other_widths_is_refused(attention, score):
    wrong = "d_q" if score.widths[0] == 7 else "d_k"
    with pytest.raises(ValueError, match=f"{type(score).__name__}: expected {wrong}=5, got {wrong}=7"):
        attention(D, 3, d_k=5, d_v=7, score=score)
