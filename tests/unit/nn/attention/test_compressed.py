"""Memory-compressed attention against plain loops over heads, queries and slots, and piece by piece."""

import math

import pytest
import torch
from torch import nn

from heedful.nn.attention.compressed import (
    CompressedCache,
    Compression,
    MemoryCompressedAttention,
    memory_layout,
)
from heedful.nn.attention.scores import AdditiveScore, DotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.declarations import declared, without_gradient
from heedful.nn.layout import Layout
from heedful.nn.taps import recording

D = 13
LENGTHS = [7, 0, 11, 1, 3]


def attention(seed=1, **options):
    torch.manual_seed(seed)
    part = MemoryCompressedAttention(D, 3, **{"d_k": 5, "d_v": 7, "qkv_bias": True, **options}).eval()
    with torch.no_grad():
        for parameter in part.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return part


def tokens(lengths, seed=2):
    return torch.randn(sum(lengths), D, generator=torch.Generator().manual_seed(seed))


def convolved(compression, head, vectors):
    """C_1 v_1 + ... + C_c v_c + b, for one block."""
    width = len(vectors[0])
    total = torch.zeros(width) if compression.bias is None else compression.bias.split(width)[head].clone()
    for place, vector in enumerate(vectors):
        total = total + vector @ compression.weight[head, place * width : (place + 1) * width]
    return total


def loop(part, x, score):
    """One sequence: a head, a query and a slot at a time."""
    q_all, k_all, v_all = (x @ part.qkv.weight.T + (0 if part.qkv.bias is None else part.qkv.bias)).split(
        part.sizes, dim=-1
    )
    c, rows = part.factor, []
    for i in range(len(x)):
        heads = []
        for h in range(part.n_heads):
            g = h * part.n_kv_heads // part.n_heads
            q = q_all[i, 5 * h : 5 * h + 5]
            k, v = k_all[:, 5 * g : 5 * g + 5], v_all[:, 7 * g : 7 * g + 7]
            keys, values, j = [k[0]], [v[0]], 1
            while c * j <= i:
                keys.append(convolved(part.compress_keys, g, k[c * j - c : c * j]))
                values.append(convolved(part.compress_values, g, v[c * j - c : c * j]))
                j += 1
            e = [math.exp(score(q, key)) for key in keys]
            heads.append(sum(weight / sum(e) * value for weight, value in zip(e, values)))
        out = torch.cat(heads) @ part.out.weight.T
        rows.append(out if part.out.bias is None else out + part.out.bias)
    return torch.stack(rows) if rows else x.new_zeros(0, D)


def scaled(q, k):
    return float(q @ k) / math.sqrt(len(q))


@pytest.mark.parametrize(
    "options",
    [{}, {"factor": 2}, {"factor": 4, "n_kv_heads": 1}, {"qkv_bias": False, "out_bias": True}],
    ids=str,
)
@torch.no_grad()
def test_equals_a_loop_over_heads_queries_and_slots(options):
    part, x = attention(**options), tokens(LENGTHS)
    together = part(x, Layout.of(LENGTHS)).split(LENGTHS)
    for own, mixed in zip(x.split(LENGTHS), together, strict=True):
        torch.testing.assert_close(mixed, loop(part, own, scaled))


@torch.no_grad()
def test_any_score_compares_queries_with_slots():
    score = AdditiveScore(5, 5, 11)
    part, x = attention(score=score), tokens([8])

    def additive(q, k):
        return float(score.vector.weight[0] @ torch.tanh(score.query.weight @ q + score.key.weight @ k))

    torch.testing.assert_close(part(x, Layout.of([8])), loop(part, x, additive))


@torch.no_grad()
def test_a_compression_is_torchs_convolution_of_every_head_by_itself():
    torch.manual_seed(3)
    compression = Compression(2, 5, 3, bias=True)
    compression.bias.normal_()
    theirs = nn.Conv1d(10, 10, 3, stride=3, groups=2)
    for head in range(2):
        # [3 5, 5] to [out, in, place]
        filters = compression.weight[head].unflatten(0, (3, 5)).permute(2, 1, 0)
        theirs.weight[5 * head : 5 * head + 5] = filters
    theirs.bias.copy_(compression.bias)
    x = torch.randn(4, 2, 11, 5)
    wanted = theirs(x.transpose(2, 3).flatten(1, 2)).unflatten(1, (2, 5)).transpose(2, 3)
    torch.testing.assert_close(compression(x), wanted)
    assert wanted.shape[2] == 3


def test_the_memory_is_a_third_as_long_and_one_more():
    assert memory_layout(Layout.of([0, 1, 2, 3, 5, 6, 300]), 3).lengths == (0, 1, 1, 2, 2, 3, 101)
    part = attention()
    with recording(part, ["weights"]) as seen:
        part(tokens([11]), Layout.of([11]))
    (weights,) = seen["weights"]
    assert weights.shape == (1, 3, 11, 4)


def test_which_slots_each_query_weighs():
    part = attention()
    with recording(part, ["weights"]) as seen:
        part(tokens([9]), Layout.of([9]))
    visible = (seen["weights"][0][0, 1] > 0).long().tolist()
    first, second, third = [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]
    assert visible == [first] * 3 + [second] * 3 + [third] * 3


def pieces(part, x, lengths, cuts, cache):
    """Every sequence written in the pieces between its cuts."""
    parts = [[] for _ in lengths]
    for spans in zip(*(zip([0, *cut], [*cut, n]) for cut, n in zip(cuts, lengths))):
        layout = Layout.of([end - begin for begin, end in spans], [begin for begin, _ in spans])
        out = part(torch.cat([own[b:e] for own, (b, e) in zip(x, spans)]), layout, cache)
        for kept, piece in zip(parts, out.split(layout.lengths)):
            kept.append(piece)
    return [torch.cat(part) for part in parts]


@pytest.mark.parametrize("options", [{}, {"factor": 2, "n_kv_heads": 1}, {"score": DotScore()}], ids=str)
@pytest.mark.parametrize(
    "cuts",
    [
        [[1, 2, 3, 4, 5, 6], [0] * 6, [1, 2, 3, 4, 5, 6], [1] * 6, [0, 1, 1, 2, 3, 3]],
        [[3, 6], [0, 0], [2, 9], [0, 1], [3, 3]],
        [[5], [0], [4], [1], [2]],
        [[0], [0], [0], [0], [0]],
    ],
    ids=["steps", "at edges", "within blocks", "at once"],
)
@torch.no_grad()
def test_piece_by_piece_equals_at_once(options, cuts):
    part, x = attention(**options), tokens(LENGTHS)
    whole = part(x, Layout.of(LENGTHS)).split(LENGTHS)
    written = pieces(part, x.split(LENGTHS), LENGTHS, cuts, CompressedCache())
    for ours, theirs in zip(written, whole, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_under_autocast_slots_have_the_type_of_the_first_token(bias):
    """Which is not that of the filters' bias; so they can stand beside it."""
    part, x, cache = attention(qkv_bias=bias), tokens(LENGTHS), CompressedCache()
    with torch.autocast("cpu", torch.bfloat16):
        at_once = part(x, Layout.of(LENGTHS))
        steps = [[*range(1, 7)], [0] * 6, [*range(1, 7)], [1] * 6, [0, 1, 1, 2, 3, 3]]
        written = pieces(part, x.split(LENGTHS), LENGTHS, steps, cache)
    assert {cache.memory.keys.dtype, cache.memory.values.dtype, at_once.dtype} == {torch.bfloat16}
    wanted = part(x, Layout.of(LENGTHS))
    for found in (at_once, torch.cat(written)):
        torch.testing.assert_close(found.float(), wanted, rtol=0.05, atol=0.05)


@torch.no_grad()
def test_hypotheses_that_are_copied_go_on_by_themselves():
    part, x = attention(), tokens([8, 7]).split([8, 7])
    cache = CompressedCache()
    part(torch.cat([x[0][:4], x[1][:5]]), Layout.of([4, 5]), cache)
    cache = cache.select(torch.tensor([1, 0, 1]))
    ends = tokens([3, 4, 3], seed=5).split([3, 4, 3])
    out = part(torch.cat(ends), Layout.of([3, 4, 3], [5, 4, 5]), cache).split([3, 4, 3])
    for begun, end, mixed in zip((x[1][:5], x[0][:4], x[1][:5]), ends, out, strict=True):
        whole = part(torch.cat([begun, end]), Layout.of([len(begun) + len(end)]))
        torch.testing.assert_close(mixed, whole[len(begun) :])
    assert CompressedCache().select(torch.tensor([0])).tail_keys is None


@torch.no_grad()
def test_a_cache_holds_the_slots_and_less_than_a_block():
    part, cache = attention(), CompressedCache()
    part(tokens([50]), Layout.of([50]), cache)
    # 17 slots; room was made for 16 and doubled.
    assert cache.memory.keys.shape == (1, 3, 32, 5)
    assert cache.memory.values.shape == (1, 3, 32, 7)
    assert cache.tail_keys.shape == (1, 3, 2, 5)
    assert cache.tail_values.shape == (1, 3, 2, 7)


def test_it_costs_the_filters_besides():
    size = lambda part: sum(p.numel() for p in part.parameters())  # noqa: E731
    plain, compressed = SelfAttention(512, 8), MemoryCompressedAttention(512, 8)
    assert size(compressed) - size(plain) == 8 * 3 * (64 * 64 + 64 * 64)
    biased = MemoryCompressedAttention(12, 4, qkv_bias=True, out_bias=True, n_kv_heads=2)
    assert biased.compress_keys.bias.shape == (2 * 3,)


def test_what_it_declares():
    part = attention(out_bias=True)
    assert declared(part) == set()
    assert without_gradient(part) == {}
    assert part.adds_constant == {"out.bias": range(D)}
    assert attention().adds_constant == {}


def test_a_factor_of_one_is_refused():
    with pytest.raises(ValueError, match="factor must be at least 2, got"):
        MemoryCompressedAttention(12, 4, factor=1)
