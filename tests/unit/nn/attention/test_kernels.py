"""All kernels against a loop over queries and keys, and the laws of what cannot be seen."""

import math

import pytest
import torch
from torch import nn

from heedful.nn.attention import kernels
from heedful.nn.attention.kernels import attend, choose
from heedful.nn.attention.scores import AdditiveScore, ScaledDotScore
from heedful.nn.dropout import Dropout
from heedful.nn.layout import Layout
from heedful.nn.taps import Tap, capture, recording
from heedful.nn.visibility import Blocks, Visibility, Window

H, G, D_K, D_V = 6, 2, 5, 7
KERNELS = ["explicit", "matmul", "sdpa"]


def run(q, k, v, view, kernel, score=None, bias=None, tap=None):
    return attend(
        q,
        k,
        v,
        view,
        score or ScaledDotScore(),
        dropout=Dropout(0.0),
        scores_tap=Tap(),
        weights_tap=tap or Tap(),
        bias=bias,
        kernel=kernel,
    )


def tensors(view, dtype=torch.float32):
    torch.manual_seed(5)
    b, q, k = view.visible.shape
    shapes = ((b, H, q, D_K), (b, G, k, D_K), (b, G, k, D_V))
    return [torch.randn(s, dtype=dtype, requires_grad=True) for s in shapes]


def loop(q, k, v, view):
    """One query at a time, over the keys that it sees."""
    out = torch.zeros(q.shape[0], H, q.shape[2], D_V)
    for b in range(q.shape[0]):
        for h in range(H):
            for i in range(view.queries.lengths[b]):
                seen = [j for j in range(k.shape[2]) if view.visible[b, i, j]]
                if not seen:
                    continue
                g = h // (H // G)
                e = [math.exp(float(q[b, h, i] @ k[b, g, j]) / math.sqrt(D_K)) for j in seen]
                for j, weight in zip(seen, e):
                    out[b, h, i] += weight / sum(e) * v[b, g, j]
    return out


def views():
    ragged, square, keys = Layout.of([3, 5, 2]), Layout.of([4, 4]), Layout.of([7, 1, 4])
    later = Layout.of([2, 1, 2], [3, 6, 0])
    allowed = torch.rand(3, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.4
    return {
        "ragged": Visibility.of(ragged, ragged),
        "causal": Visibility.of(ragged, ragged, causal=True),
        "square": Visibility.of(square, square),
        "cross": Visibility.of(ragged, keys),
        "cached": Visibility.of(later, later.with_past, causal=True),
        "window": Visibility.of(ragged, ragged, causal=True, pattern=Window(2)),
        "block": Visibility.of(square, square, pattern=Blocks(3)),
        "earlier block": Visibility.of(ragged, ragged, causal=True, pattern=Blocks(2, 1)),
        "cached block": Visibility.of(later, later.with_past, causal=True, pattern=Blocks(3)),
        "strided": Visibility.of(ragged, Layout.of([2, 2, 1]), causal=True, key_stride=3),
        "allowed": Visibility.of(ragged, keys, allowed=allowed),
        "no keys": Visibility.of(ragged, Layout.of([0, 3, 0])),
    }


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", views())
def test_equals_a_plain_loop(name, kernel):
    view = views()[name]
    q, k, v = (x.detach() for x in tensors(view))
    out = run(q, k, v, view, kernel)
    real = view.queries.real[:, None, :, None]
    torch.testing.assert_close(out * real, loop(q, k, v, view))


@pytest.mark.parametrize("fast", KERNELS[1:])
@pytest.mark.parametrize("name", views())
def test_fast_kernels_equal_the_explicit_one_in_gradients(name, fast):
    view = views()[name]
    probe = torch.randn(view.visible.shape[0], H, view.visible.shape[1], D_V)
    probe = probe * view.queries.real[:, None, :, None]
    grads = []
    for kernel in ("explicit", fast):
        inputs = tensors(view)
        grads.append(torch.autograd.grad((run(*inputs, view, kernel) * probe).sum(), inputs))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["causal", "window", "square"])
def test_products_in_blocks_of_queries_equal_the_explicit_kernel(name, rows, monkeypatch):
    monkeypatch.setattr(kernels, "CAUSAL_ROWS", rows)
    test_equals_a_plain_loop(name, "matmul")
    test_fast_kernels_equal_the_explicit_one_in_gradients(name, "matmul")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "name", [*("causal", "window", "allowed", "cached", "block", "earlier block", "cached block")]
)
def test_the_invisible_changes_nothing_even_when_it_is_nan(name, kernel):
    view = views()[name]
    q, k, v = tensors(view)
    row = 0
    unseen = [j for j in range(k.shape[2]) if not view.visible[row, 0, j]]
    assert unseen
    before = run(q, k, v, view, kernel)[row, :, 0]
    grads = torch.autograd.grad(before.sum(), [k, v])
    for grad in grads:
        assert torch.equal(grad[row, :, unseen], torch.zeros_like(grad[row, :, unseen]))
    with torch.no_grad():
        k[row, :, unseen], v[row, :, unseen] = float("nan"), float("inf")
    after = run(q, k, v, view, kernel)[row, :, 0]
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)
    for grad, old in zip(torch.autograd.grad(after.sum(), [k, v]), grads):
        torch.testing.assert_close(grad, old)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["allowed", "no keys"])
def test_a_query_with_no_key_gets_exactly_zero_and_gives_no_gradient(name, kernel):
    view = views()[name]
    if name == "allowed":
        view.allowed[1, 2] = False
    has_empty_rows = ~view.visible.any(-1) & view.queries.real
    assert has_empty_rows.any()
    q, k, v = tensors(view)
    out = run(q, k, v, view, kernel)
    picked = out.transpose(1, 2)[has_empty_rows]
    assert torch.equal(picked, torch.zeros_like(picked))
    for grad in torch.autograd.grad(picked.sum(), [q, k, v]):
        assert torch.equal(grad, torch.zeros_like(grad))


def test_weights_are_shown_without_changing_the_result():
    view = views()["causal"]
    q, k, v = tensors(view)
    tap = Tap()
    with recording(nn.Sequential(tap), ["0"]) as seen:
        out = run(q, k, v, view, None, tap=tap)
    real = view.queries.real[:, None, :, None]
    torch.testing.assert_close(out * real, run(q, k, v, view, "sdpa") * real)
    (weights,) = seen["0"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert not weights[~view.visible[:, None].expand_as(weights)].any()
    torch.testing.assert_close(weights @ v.repeat_interleave(H // G, 1), out)


def test_a_bias_is_added_to_the_scores():
    view = views()["square"]
    q, k, v = tensors(view)
    bias = torch.randn(H, 4, 4)
    kv = [x.repeat_interleave(H // G, 1) for x in (k, v)]
    wanted = torch.softmax(q @ kv[0].mT / math.sqrt(D_K) + bias, -1) @ kv[1]
    torch.testing.assert_close(run(q, k, v, view, None, bias=bias), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [None, *KERNELS])
@pytest.mark.parametrize("name", views())
@pytest.mark.parametrize("rows", [1, 3])
def test_every_kernel_adds_a_constant_bias(name, kernel, rows, monkeypatch):
    """Values and gradients, against scores of one query and key at a time; rows of 1 or of their own."""
    monkeypatch.setattr(kernels, "CAUSAL_ROWS", 2)
    view = views()[name]
    b, n, m = view.visible.shape
    q, k, v = tensors(view)
    bias = 3 * torch.randn(b if rows == b else 1, H, n, m)
    out = run(q, k, v, view, kernel, bias=bias)
    real = view.queries.real[:, None, :, None]
    wanted = torch.zeros(b, H, n, D_V)
    for i, h, x in torch.cartesian_prod(torch.arange(b), torch.arange(H), torch.arange(n)).tolist():
        seen = view.visible[i, x].nonzero().flatten()
        if len(seen) and x < view.queries.lengths[i]:
            keys, values = k[i, h // (H // G), seen], v[i, h // (H // G), seen]
            scores = (keys * q[i, h, x]).sum(-1) / math.sqrt(D_K) + bias[i % len(bias), h, x, seen]
            wanted[i, h, x] = (scores.softmax(-1)[:, None] * values).sum(0)
    torch.testing.assert_close(out * real, wanted)
    probe = torch.randn(wanted.shape) * real
    ours, theirs = (torch.autograd.grad((x * probe).sum(), [q, k, v]) for x in (out, wanted))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kernel", [None, *KERNELS])
@pytest.mark.parametrize("learns", [False, True])
def test_a_bias_beside_half_precision_is_added_to_within_its_rounding(kernel, learns):
    """Far keys are hidden by it, near ones are weighed as in fp32."""
    view = views()["causal"]
    q, k, v = (x.detach().bfloat16().requires_grad_(learns) for x in tensors(view))
    distances = (torch.arange(5)[:, None] - torch.arange(5)).abs()
    bias = -torch.tensor([0.5, 0.03, 7.0, 1.0, 0.3, 100.0])[:, None, None] * distances
    out = run(q, k, v, view, kernel, bias=bias[None])
    assert out.dtype == torch.bfloat16
    wide = [x.detach().float() for x in (q, k, v)]
    torch.testing.assert_close(
        out.float()[0, :, :3], run(*wide, view, "explicit", bias=bias[None])[0, :, :3], rtol=0, atol=2**-5
    )
    if learns:
        assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.float().sum(), [q, k, v]))


def test_a_bias_that_learns_gets_its_gradient():
    view = views()["causal"]
    q, k, v = tensors(view)
    bias = torch.zeros(1, H, 5, 5, requires_grad=True)
    (grad,) = torch.autograd.grad(run(q, k, v, view, None, bias=bias).square().sum(), bias)
    assert grad.any()
    assert not grad[:, :, ~view.visible.any(0)].any()


@pytest.mark.slow
def test_products_pass_the_check_of_gradients():
    view = views()["ragged"] if "ragged" in views() else next(iter(views().values()))
    inputs = [x.detach().double().requires_grad_() for x in tensors(view)]
    assert torch.autograd.gradcheck(lambda q, k, v: run(q, k, v, view, "matmul"), inputs)


def test_products_keep_weights_apart_that_bf16_would_make_equal():
    """The softmax is taken in fp32: of 300 scores near each other none may collapse onto its neighbour."""
    torch.manual_seed(1)
    q, k = torch.randn(1, 1, 3, D_K).bfloat16(), torch.randn(1, 1, 300, D_K).bfloat16()
    v = torch.ones(1, 1, 300, 1).bfloat16()
    view = Visibility.of(Layout.of([3]), Layout.of([300]))
    summed = run(q, k, v, view, "matmul").float()
    torch.testing.assert_close(summed, torch.ones_like(summed), rtol=0, atol=2**-8)


def test_the_choice_in_training_on_a_cpu():
    q, k = (torch.randn(2, 2, 9, 4, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    ask = {"is_product": True, "wants_weights": False}
    assert choose(q, k, **ask) == "matmul"
    assert choose(q, k, **ask, drops=True) == "explicit"
    assert choose(q, k, **ask, learned_bias=True) == "explicit"


def test_only_scaled_products_can_be_fused():
    q, k = torch.randn(1, 2, 1000, 4), torch.randn(1, 2, 1000, 4)
    assert choose(q, k, is_product=True, wants_weights=False) == "sdpa"
    assert choose(q, k, is_product=False, wants_weights=False) == "explicit"
    assert choose(q, k, is_product=True, wants_weights=True) == "explicit"
    assert AdditiveScore(3, 4, 5).product_scale(3) is None


# Beside the kernels ---------------------------------------------------------------------------------------


def told(q, k, v, view, kernel, heads, bias=None):
    """What watchers of some heads are told, and the result."""
    taps = [Tap(), Tap()]
    options = {"dropout": Dropout(0.0), "scores_tap": taps[0], "weights_tap": taps[1]}
    with capture(nn.Sequential(*taps), {"0": heads, "1": heads}) as seen:
        out = attend(q, k, v, view, ScaledDotScore(), bias=bias, kernel=kernel, **options)
    (scores,), (weights,) = seen.values()
    return scores, weights, out


@pytest.mark.slow
@pytest.mark.parametrize("heads", [None, [4, 1], [0]])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", views())
def test_watchers_are_told_scores_and_weights_beside_every_kernel(name, kernel, biased, heads):
    """Against a softmax over the visible keys, head by head; heads of queries share those of keys."""
    view = views()[name]
    b, n, m = view.visible.shape
    q, k, v = tensors(view)
    bias = 3 * torch.randn(b if biased else 1, H, n, m) if biased else None
    scores, weights, out = told(q, k, v, view, kernel, heads, bias)
    chosen, real = range(H) if heads is None else heads, view.queries.real
    for place, h in enumerate(chosen):
        wanted = (q[:, h] @ k[:, h // (H // G)].mT / math.sqrt(D_K)).detach()
        torch.testing.assert_close(scores[:, place], wanted)
        masked = (wanted if bias is None else wanted + bias[:, h]).masked_fill(~view.visible, -math.inf)
        torch.testing.assert_close(weights[:, place][real], masked.softmax(-1).nan_to_num(0.0)[real])
    assert scores.shape[1] == weights.shape[1] == len(chosen)
    assert not scores.requires_grad
    assert not weights.requires_grad
    assert torch.equal(out, run(q, k, v, view, kernel, bias=bias))


@pytest.mark.parametrize("kernel", KERNELS[1:])
@pytest.mark.parametrize("autocast", [False, True])
def test_beside_half_precision_watchers_are_told_weights_in_fp32(kernel, autocast):
    view = views()["causal"]
    q, k, v = (x.detach().bfloat16() for x in tensors(view))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        scores, weights, out = told(q, k, v, view, kernel, [5, 2])
    assert out.dtype == torch.bfloat16
    wanted = told(*(x.float() for x in (q, k, v)), view, "explicit", [5, 2])
    for ours, theirs in zip((scores, weights), wanted):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_a_watcher_does_not_change_the_choice_of_the_kernel(monkeypatch):
    view = views()["square"]
    q, k, v = tensors(view)
    called = []
    for name in ("_sdpa", "_matmul"):
        kernel = getattr(kernels, name)
        monkeypatch.setattr(kernels, name, lambda *a, n=name, f=kernel: (called.append(n), f(*a))[1])
    told(q, k, v, view, None, None)
    monkeypatch.setattr(kernels, "CPU_SDPA_FROM", 0)
    told(q, k, v, view, None, None)
    assert called == ["_matmul", "_sdpa"]
