"""Rotary positions against complex numbers, ALiBi against the paper's numbers, and what they promise."""

import cmath
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.nn.attention.relative import Alibi, Rotary, slopes_of
from heedful.nn.attention.scores import AdditiveScore, BilinearScore, CosineScore, DotScore, ScaledDotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.layout import Layout
from heedful.nn.state import KeyValueCache
from heedful.nn.taps import recording

D = 13
LENGTHS = [5, 0, 7, 1]


def vectors(*shape, seed=1, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# Rotary ---------------------------------------------------------------------------------------------------


def turned(part, vector, position):
    """One vector at one position."""
    return part(vector[None, None, None], Layout.of([1], [position]))[0, 0, 0]


def by_complex_numbers(x, p, d_rotated, base, interleaved):
    """Each pair as a complex number, times e^(i p ω)."""
    wanted = [float(v) for v in x]
    for i in range(d_rotated // 2):
        first, second = (2 * i, 2 * i + 1) if interleaved else (i, d_rotated // 2 + i)
        angle = p * base ** (-2 * i / d_rotated)
        number = complex(float(x[first]), float(x[second])) * cmath.exp(1j * angle)
        wanted[first], wanted[second] = number.real, number.imag
    return wanted


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("d_rotated", [14, 6])
@pytest.mark.parametrize("starts", [[0, 0, 0, 0], [3, 11, 0, 1009]])
def test_rotary_equals_complex_numbers_one_by_one(interleaved, d_rotated, starts):
    """Ragged sequences, from the first position and from later ones; pads stay zero."""
    part = Rotary(14, d_rotated=d_rotated, base=500.0, interleaved=interleaved)
    layout = Layout.of(LENGTHS, starts)
    x = layout.pad(vectors(sum(LENGTHS), 3, 14, dtype=torch.float64)).transpose(1, 2)
    wanted = torch.zeros_like(x)
    for b, (n, start) in enumerate(zip(LENGTHS, starts, strict=True)):
        for h in range(3):
            for s in range(n):
                row = by_complex_numbers(x[b, h, s], start + s, d_rotated, 500.0, interleaved)
                wanted[b, h, s] = torch.tensor(row, dtype=torch.float64)
    torch.testing.assert_close(part(x, layout), wanted)


def test_rotary_by_hand():
    """Pair 0 turns by one radian for a position, the last by base^(-(d-2)/d)."""
    part = Rotary(4, base=100.0)
    x = torch.tensor([1.0, 0.0, 0.0, 1.0])
    wanted = [math.cos(3), math.sin(3), -math.sin(0.3), math.cos(0.3)]
    torch.testing.assert_close(turned(part, x, 3), torch.tensor(wanted))
    assert torch.equal(turned(part, x, 0), x)


@settings(max_examples=30, deadline=None)
@given(
    p=st.integers(0, 300),
    r=st.integers(0, 300),
    shift=st.integers(0, 100_000),
    interleaved=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_score_depends_on_the_offset_alone_and_norms_are_kept(p, r, shift, interleaved, seed):
    part = Rotary(22, interleaved=interleaved)
    q, k = vectors(2, 22, seed=seed, dtype=torch.float64)
    near = turned(part, q, p) @ turned(part, k, r)
    far = turned(part, q, p + shift) @ turned(part, k, r + shift)
    torch.testing.assert_close(far, near, rtol=0, atol=1e-8)
    torch.testing.assert_close(turned(part, q, p).norm(), q.norm(), rtol=1e-12, atol=0)


def test_a_score_does_depend_on_the_offset():
    part = Rotary(6)
    q, k = vectors(2, 6)
    scores = torch.stack([turned(part, q, p) @ turned(part, k, 0) for p in range(7)])
    assert len(scores.unique()) == 7


def test_the_two_pairings_are_one_up_to_the_order_of_components():
    x, layout = vectors(2, 3, 5, 14), Layout.of([5, 5])
    order = [c for i in range(7) for c in (i, 7 + i)]  # half-split components, pair by pair
    halves = Rotary(14, interleaved=False)(x, layout)
    torch.testing.assert_close(Rotary(14)(x[..., order], layout), halves[..., order])


def test_rotation_of_half_precision_is_computed_in_fp32_and_rounded_once():
    """At position 1009, a cosine of 8 bits would turn by another angle."""
    part, layout = Rotary(6), Layout.of([1], [1009])
    x = vectors(1, 1, 1, 6).bfloat16()
    assert torch.equal(part(x, layout), part(x.float(), layout).bfloat16())


def test_all_layers_share_the_angles_of_a_layout():
    layout = Layout.of(LENGTHS)
    x = layout.pad(vectors(sum(LENGTHS), 3, 6)).transpose(1, 2)
    for interleaved in (True, False):
        Rotary(6, interleaved=interleaved)(x, layout)
    assert len(layout._cached) == 1
    Rotary(6, base=100.0)(x, layout)
    assert len(layout._cached) == 2


SCORES = {
    "dot": DotScore,
    "scaled dot": ScaledDotScore,
    "bilinear": lambda: BilinearScore(6, 6),
    "cosine": lambda: CosineScore(2.0),
}


@pytest.mark.parametrize("score", SCORES)
@torch.no_grad()
def test_attention_with_rotary_positions_does_not_see_where_a_sequence_begins(score):
    """But with positions it sees the order, which without them it does not."""
    torch.manual_seed(2)
    part = SelfAttention(D, 3, d_k=6, d_v=5, score=SCORES[score](), rotary=Rotary(6))
    x = vectors(5, D)
    mixed = part(x, Layout.of([5]))
    torch.testing.assert_close(part(x, Layout.of([5], [31])), mixed, rtol=0, atol=1e-5)
    assert (part(x.flip(0), Layout.of([5])).flip(0) - mixed).abs().max() > 1e-3


def test_a_score_says_truly_whether_it_ignores_rotation():
    x, layout = vectors(2, 1, 3, 6), Layout.of([3, 3])
    rotate = Rotary(6)
    for score in (*(make() for make in SCORES.values()), AdditiveScore(6, 6, 6)):
        # One rotation for both: query and key of one place.
        keys = score.prepare(vectors(2, 1, 3, 6, seed=5))
        before = score(x, keys).diagonal(dim1=-2, dim2=-1)
        after = score(rotate(x, layout), rotate(keys, layout)).diagonal(dim1=-2, dim2=-1)
        assert torch.allclose(before, after, atol=1e-5) == score.is_rotation_invariant


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Rotary(5), "d_rotated must be even and between 2 and d_k=5, got 5"),
        (lambda: Rotary(6, d_rotated=8), "d_rotated must be even and between 2 and d_k=6, got 8"),
        (lambda: Rotary(6, d_rotated=0), "between 2 and d_k=6, got 0"),
        (lambda: Rotary(6, base=1.0), "base of rotary positions must be above 1, got 1.0"),
        (
            lambda: SelfAttention(D, 3, d_k=6, d_v=5, score=AdditiveScore(6, 6, 7), rotary=Rotary(6)),
            "got AdditiveScore",
        ),
    ],
)
def test_contradictions_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("score", ["dot", "scaled dot", "bilinear"])
@pytest.mark.parametrize("d_rotated", [6, 4])
def test_the_bias_of_a_key_acts_where_it_is_turned(score, d_rotated):
    """Not turned, it adds one number to all scores of a query; the declaration says which rows those are."""
    torch.manual_seed(3)
    rotary = Rotary(6, d_rotated=d_rotated)
    part = SelfAttention(
        D, 4, d_k=6, d_v=5, n_kv_heads=2, score=SCORES[score](), qkv_bias=True, rotary=rotary
    )
    part.double()
    part(vectors(16, D, dtype=torch.float64), Layout.of([5, 0, 7, 4])).square().sum().backward()
    zero = (part.qkv.bias.grad.abs() < 1e-12).nonzero().flatten().tolist()
    assert zero == list(part.without_gradient.get("qkv.bias", []))
    assert len(zero) == (4 if d_rotated == 4 and score != "bilinear" else 0)


# ALiBi ----------------------------------------------------------------------------------------------------


def test_slopes_of_eight_heads_are_the_papers():
    assert slopes_of(8) == (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256)


def test_slopes_of_sixteen_heads_lie_halfway_between_too():
    """Section 3: 1/2^0.5, 1/2^1, 1/2^1.5, …, 1/2^8."""
    assert slopes_of(16) == pytest.approx([2 ** (-h / 2) for h in range(1, 17)])


@pytest.mark.parametrize("n, below", [(3, 2), (5, 4), (6, 4), (12, 8), (25, 16)])
def test_slopes_of_other_numbers_fill_up_from_the_next_power_of_two(n, below):
    after = [2 ** (-8 * (h + 1) / (2 * below)) for h in range(0, 2 * below, 2)]
    assert slopes_of(n) == pytest.approx([*slopes_of(below), *after[: n - below]])
    assert len(slopes_of(n)) == n


def test_alibi_by_hand():
    bias = Alibi(2)(layout := Layout.of([3]), layout)
    near, far = [[0, -1, -2], [-1, 0, -1], [-2, -1, 0]], [[0, -1, -2], [-1, 0, -1], [-2, -1, 0]]
    wanted = torch.stack([torch.tensor(near) / 16, torch.tensor(far) / 256])
    torch.testing.assert_close(bias, wanted[None].float())


def loop(part, x, heads, slopes, causal):
    """softmax(q·k/√d_k - m |i - j|) v, one head, query and key at a time."""
    rows = []
    for i in range(len(x)):
        seen = range(i + 1 if causal else len(x))
        mixed = []
        for w_q, w_k, w_v, m in zip(*heads, slopes, strict=True):
            e = [
                math.exp(float((x[i] @ w_q) @ (x[j] @ w_k)) / math.sqrt(w_q.shape[1]) - m * abs(i - j))
                for j in seen
            ]
            mixed.append(sum(weight / sum(e) * (x[j] @ w_v) for j, weight in zip(seen, e, strict=True)))
        rows.append(torch.cat(mixed) @ part.out.weight.T)
    return torch.stack(rows)


def with_alibi(causal, n_heads=3):
    torch.manual_seed(4)
    return SelfAttention(D, n_heads, d_k=5, d_v=7, causal=causal, score_bias=Alibi(n_heads))


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_attention_with_alibi_equals_a_loop(causal):
    part, lengths = with_alibi(causal), [5, 0, 7]
    x = vectors(12, D)
    heads = (part.q_heads, part.k_heads, part.v_heads)
    for own, mixed in zip(x.split(lengths), part(x, Layout.of(lengths)).split(lengths), strict=True):
        if len(own):
            torch.testing.assert_close(mixed, loop(part, own, heads, slopes_of(3), causal))


@torch.no_grad()
def test_alibi_goes_by_distances_not_by_places():
    """Where a sequence begins does not matter; rows of a batch may begin at different places."""
    part, x = with_alibi(causal=True), vectors(8, D)
    torch.testing.assert_close(part(x, Layout.of([5, 3], [31, 2])), part(x, Layout.of([5, 3])))


@torch.no_grad()
def test_alibi_continues_rows_of_different_lengths():
    part, x = with_alibi(causal=True), vectors(12, D)
    whole = part(x, Layout.of([5, 7]))
    cache = KeyValueCache()
    first = part(torch.cat([x[:4], x[5:6]]), Layout.of([4, 1]), cache)
    second = part(torch.cat([x[4:5], x[6:12]]), Layout.of([1, 6], [4, 1]), cache)
    together = torch.cat([first[:4], second[:1], first[4:], second[1:]])
    torch.testing.assert_close(together, whole)


@torch.no_grad()
def test_weights_fall_with_the_distance_whatever_the_length():
    """Of equal keys, each weighs e^-m times its nearer neighbour: at 11 tokens as at 1009."""
    part = with_alibi(causal=True)
    for n in (11, 1009):
        with recording(part, ["weights"]) as seen:
            part(vectors(1, D).expand(n, D).contiguous(), Layout.of([n]))
        last = seen["weights"][0][0, :, -1, -9:]
        for h, m in enumerate(slopes_of(3)):
            torch.testing.assert_close(last[h, :-1] / last[h, 1:], torch.full((8,), math.exp(-m)))


def test_all_layers_share_what_is_added():
    layout = Layout.of(LENGTHS)
    assert Alibi(3)(layout, layout) is Alibi(3)(layout, layout)
    assert Alibi(2)(layout, layout) is not Alibi(3)(layout, layout)
    later = Layout.of([1, 2], [4, 0])
    assert Alibi(3)(later, later).shape == (2, 3, 2, 2)
    assert Alibi(3)(later, later.with_past).shape == (2, 3, 2, 5)
