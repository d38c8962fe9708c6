"""Scores against plain loops, and the contract that all of them share."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.nn.attention.scores import (
    AdditiveScore,
    BilinearScore,
    CosineScore,
    DotScore,
    ScaledDotScore,
)
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.layout import Layout

Q, K, D_Q, D_K, D_A = 3, 5, 7, 11, 13


def _loop(queries, keys, score_of_pair):
    return torch.stack([torch.stack([score_of_pair(q, k) for k in keys]) for q in queries])


def _pair(d_q, d_k, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(Q, d_q, generator=generator), torch.randn(K, d_k, generator=generator)


def _all_scores():
    torch.manual_seed(0)
    return [
        DotScore(),
        ScaledDotScore(),
        BilinearScore(D_Q, D_Q),
        AdditiveScore(D_Q, D_Q, D_A),
        AdditiveScore(D_Q, D_Q, D_A, bias=True),
        CosineScore(),
        CosineScore(key_strength=3.0),
    ]


@pytest.fixture(params=range(7), ids=lambda i: type(_all_scores()[i]).__name__ + str(i))
def score(request):
    return _all_scores()[request.param]


def test_dot_and_scaled_dot_by_hand():
    q, k = torch.tensor([[1.0, 2.0, 2.0, 4.0]]), torch.tensor([[3.0, -1.0, 0.5, 1.0], [0.0, 0.0, 0.0, 1.0]])
    assert DotScore()(q, k).tolist() == [[6.0, 4.0]]
    assert ScaledDotScore()(q, k).tolist() == [[3.0, 2.0]]


def test_scaled_dot_divides_by_the_root_of_the_width_and_not_of_the_number_of_words():
    q, k = _pair(D_Q, D_Q)
    expected = _loop(q, k, lambda a, b: torch.dot(a, b) / math.sqrt(D_Q))
    torch.testing.assert_close(ScaledDotScore()(q, k), expected)


def test_variance_of_the_dot_is_the_width_and_of_the_scaled_dot_one():
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(500, 64, generator=generator) for _ in range(2))
    assert DotScore()(q, k).var().item() == pytest.approx(64, rel=0.05)
    assert ScaledDotScore()(q, k).var().item() == pytest.approx(1, rel=0.05)


def test_bilinear_is_query_matrix_key():
    part, (q, k) = BilinearScore(D_Q, D_K), _pair(D_Q, D_K)
    W = part.key.weight
    assert W.shape == (D_Q, D_K)
    torch.testing.assert_close(part(q, part.prepare(k)), _loop(q, k, lambda a, b: a @ W @ b))


def test_bilinear_with_the_identity_is_the_dot():
    part, (q, k) = BilinearScore(D_Q, D_Q), _pair(D_Q, D_Q)
    with torch.no_grad():
        part.key.weight.copy_(torch.eye(D_Q))
    torch.testing.assert_close(part(q, part.prepare(k)), DotScore()(q, k))


@pytest.mark.parametrize("bias", [False, True])
def test_additive_is_the_concat_form_with_both_matrices_side_by_side(bias):
    part, (q, k) = AdditiveScore(D_Q, D_K, D_A, bias=bias), _pair(D_Q, D_K)
    b = torch.zeros(D_A)
    if bias:
        b = torch.linspace(-1, 1, D_A)
        with torch.no_grad():
            part.key.bias.copy_(b)
    W = torch.cat((part.query.weight, part.key.weight), dim=1)
    v = part.vector.weight[0]
    assert W.shape == (D_A, D_Q + D_K)
    expected = _loop(q, k, lambda s, h: v @ torch.tanh(W @ torch.cat((s, h)) + b))
    torch.testing.assert_close(part(q, part.prepare(k)), expected)


def test_every_head_is_compared_by_its_own_vector_and_so_is_each_that_is_asked_for():
    part = AdditiveScore(D_Q, D_K, D_A, n_heads=3)
    q, k = torch.randn(2, 3, 5, D_Q), torch.randn(2, 3, 4, D_K)
    found = part(q, part.prepare(k))
    for head in range(3):
        one = AdditiveScore(D_Q, D_K, D_A)
        state = part.state_dict()
        one.load_state_dict({**state, "vector.weight": state["vector.weight"][head : head + 1]})
        torch.testing.assert_close(found[:, head], one(q[:, head], one.prepare(k[:, head])))
    some = [2, 0]
    torch.testing.assert_close(part.for_heads(some)(q[:, some], part.prepare(k)[:, some]), found[:, some])
    assert DotScore().for_heads(some)(q[:, some], q[:, some]).shape == (2, 2, 5, 5)


def test_the_vector_of_every_head_starts_as_the_matrix_it_is():
    torch.manual_seed(1)
    weight = AdditiveScore(2, 3, 500, n_heads=9).vector.weight.detach()
    bound = math.sqrt(6 / 501)
    assert (weight.abs().amax(1) <= bound).all()
    assert (weight.abs().amax(1) > 0.95 * bound).all()


def test_parameter_counts():
    def count(part):
        return sum(p.numel() for p in part.parameters())

    assert count(DotScore()) == count(ScaledDotScore()) == count(CosineScore()) == 0
    assert count(BilinearScore(D_Q, D_K)) == D_Q * D_K
    assert count(AdditiveScore(D_Q, D_K, D_A)) == D_A * (D_Q + D_K + 1)
    assert count(AdditiveScore(D_Q, D_K, D_A, bias=True)) == D_A * (D_Q + D_K + 2)
    assert count(AdditiveScore(D_Q, D_K, D_A, n_heads=7)) == D_A * (D_Q + D_K + 7)
    assert count(CosineScore(2.0)) == 1


def test_cosine_is_the_cosine_of_the_angle():
    q, k = torch.tensor([[3.0, 0.0]]), torch.tensor([[5.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [1.0, 1.0]])
    part = CosineScore()
    torch.testing.assert_close(part(q, part.prepare(k)), torch.tensor([[1.0, 0.0, -1.0, math.sqrt(0.5)]]))


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    a=st.floats(1e-3, 1e3),
    b=st.floats(1e-3, 1e3),
)
def test_cosine_is_bounded_and_blind_to_lengths(seed, a, b):
    part, (q, k) = CosineScore(), _pair(D_Q, D_Q, seed)
    scores = part(q, part.prepare(k))
    assert scores.abs().max().item() <= 1 + 1e-6
    torch.testing.assert_close(part(a * q, part.prepare(b * k)), scores)


def test_softmax_of_cosines_is_nearly_flat():
    part, n = CosineScore(), 50
    q = torch.eye(D_Q)[:1]
    k = torch.cat((q, -q.expand(n - 1, -1)))  # the sharpest case: one key along q, all others against it
    weights = part(q, part.prepare(k)).softmax(-1)
    assert weights.max().item() == pytest.approx(math.e**2 / (math.e**2 + n - 1), rel=1e-5)


@pytest.mark.parametrize("beta", [1e-4, 0.7, 1.0, 8.0, 800.0])
def test_key_strength_starts_where_it_is_told_and_multiplies(beta):
    q, k = _pair(D_Q, D_Q)
    plain, sharp = CosineScore(), CosineScore(key_strength=beta)
    assert plain.key_strength is None
    assert sharp.key_strength.item() == pytest.approx(beta, rel=1e-5)
    torch.testing.assert_close(sharp(q, sharp.prepare(k)), beta * plain(q, plain.prepare(k)))


@pytest.mark.parametrize("beta", [0.0, -1.0, math.inf, math.nan])
def test_key_strength_must_be_positive(beta):
    with pytest.raises(ValueError, match="key_strength must be positive"):
        CosineScore(key_strength=beta)


@pytest.mark.parametrize("strength", [None, 2.0])
def test_cosine_of_a_zero_vector_is_zero_with_a_finite_gradient(strength):
    part, (q, k) = CosineScore(strength), _pair(D_Q, D_Q)
    q[1], k[2] = 0.0, 0.0
    q.requires_grad_()
    k.requires_grad_()
    scores = part(q, part.prepare(k))
    assert torch.equal(scores[1], torch.zeros(K))
    assert torch.equal(scores[:, 2], torch.zeros(Q))
    for gradient in torch.autograd.grad(scores.square().sum() + scores.sum(), (q, k)):
        assert gradient.isfinite().all()
        assert gradient.abs().max().item() < 100


def test_leading_axes_broadcast(score):
    generator = torch.Generator().manual_seed(1)
    queries = torch.randn(2, 3, Q, D_Q, generator=generator)
    keys = torch.randn(2, 1, K, D_Q, generator=generator)
    scores = score(queries, score.prepare(keys))
    assert scores.shape == (2, 3, Q, K)
    for b in range(2):
        for h in range(3):
            one = score(queries[b, h], score.prepare(keys[b, 0]))
            torch.testing.assert_close(scores[b, h], one)


def test_product_scale_tells_the_truth(score):
    """Where it names a number, that number times the plain product with prepared keys is the score."""
    q, k = _pair(D_Q, D_Q)
    prepared = score.prepare(k)
    scale = score.product_scale(prepared.shape[-1])
    scores = score(q, prepared)
    if scale is None:
        products = q @ prepared.mT if prepared.shape[-1] == D_Q else None
        # Not proportional to the products: no single number would do.
        assert products is None or (scores / products).std() > 1e-3
    else:
        torch.testing.assert_close(scores, scale * (q @ prepared.mT))


def test_prepared_keys_of_a_memory_can_be_selected_row_by_row(score):
    _, k = _pair(D_Q, D_Q)
    torch.testing.assert_close(score.prepare(k)[[3, 1]], score.prepare(k[[3, 1]]))


def test_every_parameter_gets_a_gradient(score):
    q, k = (x.requires_grad_() for x in _pair(D_Q, D_Q))
    score(q, score.prepare(k)).square().sum().backward()
    for name, value in (*score.named_parameters(), ("queries", q), ("keys", k)):
        assert value.grad is not None, name
        assert value.grad.abs().sum() > 0, name


def test_gradients_are_those_of_finite_differences(score):
    score = score.double()
    q, k = (x.double().requires_grad_() for x in _pair(D_Q, D_Q))
    assert torch.autograd.gradcheck(lambda a, b: score(a, score.prepare(b)), (q, k))


def test_a_subclass_with_another_forward_is_not_computed_by_fast_kernels():
    """What its base class declares is about the formula of the base class."""

    class Sharp(ScaledDotScore):
        def forward(self, queries, keys):
            return 100 * super().forward(queries, keys)

    class Doubled(ScaledDotScore):
        def product_scale(self, d_p):
            return 2 * super().product_scale(d_p)

        def forward(self, queries, keys):
            return 2 * super().forward(queries, keys)

    assert (Sharp().product_scale(4), Doubled().product_scale(4)) == (None, 1.0)
    assert not Sharp().is_rotation_invariant
    torch.manual_seed(3)
    x, layout = torch.randn(11, 14), Layout.of([7, 4])
    plain, sharp = SelfAttention(14, 2).eval(), SelfAttention(14, 2, score=Sharp()).eval()
    sharp.load_state_dict(plain.state_dict())
    with torch.no_grad():
        q, k, v = (plain.qkv(x).unflatten(-1, (3, 2, 7)).permute(1, 2, 0, 3)).unbind(0)
        parts = []
        for rows in (slice(0, 7), slice(7, 11)):
            weights = (100 * q[:, rows] @ k[:, rows].mT / 7**0.5).softmax(-1)
            parts.append((weights @ v[:, rows]).transpose(0, 1).flatten(1))
        torch.testing.assert_close(sharp(x, layout), plain.out(torch.cat(parts)), atol=1e-5, rtol=1e-5)
        assert not torch.allclose(sharp(x, layout), plain(x, layout), atol=1e-2)
