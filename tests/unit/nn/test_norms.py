"""Norms against torch's own layers and plain loops."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.func import functional_call

from heedful.nn.norms import BatchNorm, GroupScaling, LayerNorm, PowerNorm, RMSNorm

T, D = 11, 7
EPS = 1e-5


def _tokens(n=T, d=D, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64).mul(2).add(0.7).to(dtype)


def _randomised(part, seed=5):
    """The part with parameters unlike those at the start."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in part.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return part


def _power(warmup, **settings):
    """A double-precision power norm of width D with parameters unlike those at the start."""
    return _randomised(PowerNorm(D, warmup=warmup, **settings).double())


def test_norms_declare_whether_they_couple_the_sequences_of_a_batch():
    alone, coupled = (LayerNorm, RMSNorm, GroupScaling), (BatchNorm, PowerNorm)
    assert not any(part.couples_batch for part in alone)
    assert all(part.couples_batch for part in coupled)


@pytest.mark.parametrize(
    "part",
    [LayerNorm(D), RMSNorm(D), GroupScaling(D), BatchNorm(D), PowerNorm(D, warmup=0), PowerNorm(D, warmup=9)],
    ids=lambda part: type(part).__name__,
)
def test_the_declaration_is_true(part):
    """In training, other tokens change a token's result, now or later, where the declaration says so."""
    part.train()
    twin = copy.deepcopy(part)
    x = _tokens()
    other = x.clone()
    other[3:] += 5.0
    results, changed = ([p(first)[:3], p(x)[:3]] for p, first in ((part, x), (twin, other)))
    same = all(torch.equal(a, b) for a, b in zip(results, changed, strict=True))
    assert same != type(part).couples_batch


# Layer norm


@pytest.mark.parametrize("bias", [False, True])
def test_layer_norm_is_torchs(bias):
    ours, theirs = LayerNorm(D, eps=1e-3, bias=bias), nn.LayerNorm(D, eps=1e-3, bias=bias)
    theirs.load_state_dict(_randomised(ours).state_dict())
    torch.testing.assert_close(ours(_tokens()), theirs(_tokens()))


def test_layer_norm_by_hand_has_zero_mean_and_a_gain_for_each_feature():
    part = LayerNorm(3, eps=0.0)
    with torch.no_grad():
        part.weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
        part.bias.copy_(torch.tensor([0.0, 0.0, 1.0]))
    r = math.sqrt(1.5)  # (1, 2, 3) has mean 2 and variance 2/3
    torch.testing.assert_close(part(torch.tensor([[1.0, 2.0, 3.0]])), torch.tensor([[-r, 0.0, 3 * r + 1]]))


def test_layer_norm_starts_at_mean_zero_and_deviation_one():
    y = LayerNorm(64, eps=0.0)(_tokens(d=64))
    torch.testing.assert_close(y.mean(-1), torch.zeros(T), atol=1e-6, rtol=0)
    torch.testing.assert_close(y.std(-1, correction=0), torch.ones(T))


def test_layer_norm_of_equal_features_is_the_bias():
    part = _randomised(LayerNorm(D))
    torch.testing.assert_close(part(torch.full((2, D), 3.0)), part.bias.detach().expand(2, D))


# Root mean square


def test_rms_norm_by_loop():
    part = _randomised(RMSNorm(D, eps=1e-3))
    x, gain = _tokens(), part.weight.tolist()
    rows = []
    for row in x.tolist():
        size = math.sqrt(sum(v * v for v in row) / D + 1e-3)
        rows.append([g * v / size for g, v in zip(gain, row, strict=True)])
    torch.testing.assert_close(part(x), torch.tensor(rows))


def test_rms_norm_is_torchs_gradients_too():
    ours, theirs = _randomised(RMSNorm(D, eps=1e-3)), nn.RMSNorm(D, eps=1e-3)
    theirs.load_state_dict(ours.state_dict())
    x, y = (_tokens().requires_grad_() for _ in range(2))
    torch.testing.assert_close(ours(x), theirs(y))
    ours(x).square().sum().backward()
    theirs(y).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


def test_rms_norm_forgets_the_size_of_a_token_and_keeps_its_mean():
    part, x = RMSNorm(D, eps=0.0), _tokens()
    torch.testing.assert_close(part(37 * x), part(x))
    torch.testing.assert_close(part(x).square().mean(-1), torch.ones(T))
    assert (part(x + 1) - part(x)).abs().max() > 0.1


def test_rms_norm_of_zeros_is_zero_and_has_a_gradient():
    x = torch.zeros(2, D, requires_grad=True)
    y = _randomised(RMSNorm(D))(x)
    assert torch.equal(y, torch.zeros(2, D))
    y.sum().backward()
    assert x.grad.isfinite().all()


def test_rms_norm_squares_in_fp32():
    """In half precision 1000² is infinite, and the sum of 4096 squares of bf16 stops growing."""
    for dtype, x in ((torch.float16, torch.full((1, 4096), 1000.0)), (torch.bfloat16, torch.ones(1, 4096))):
        y = RMSNorm(4096).to(dtype)(x.to(dtype))
        assert y.dtype == dtype
        torch.testing.assert_close(y, torch.ones(1, 4096, dtype=dtype))


# Batch norm


def test_batch_norm_is_torchs_over_several_batches_and_in_evaluation():
    ours, theirs = BatchNorm(D, momentum=0.3), nn.BatchNorm1d(D, momentum=0.3)
    _randomised(ours)
    theirs.weight.data, theirs.bias.data = ours.weight.data, ours.bias.data
    for seed in range(3):
        x, y = (_tokens(seed=seed).requires_grad_() for _ in range(2))
        torch.testing.assert_close(ours(x), theirs(y))
        ours(x).square().sum().backward()
        theirs(y).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_variance, theirs.running_var)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(_tokens(seed=9)), theirs(_tokens(seed=9)))
    torch.testing.assert_close(ours(_tokens(n=1, seed=9)), theirs(_tokens(n=1, seed=9)))


def test_batch_norm_by_loop():
    x, part = _tokens(), BatchNorm(D)
    columns = []
    for i in range(D):
        values = x[:, i].tolist()
        mean = sum(values) / T
        variance = sum((v - mean) ** 2 for v in values) / T
        columns.append([(v - mean) / math.sqrt(variance + EPS) for v in values])
    torch.testing.assert_close(part(x), torch.tensor(columns).T)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_of_a_single_token_is_the_bias_and_leaves_the_statistics(dtype):
    part = _randomised(BatchNorm(D))
    x = _tokens(n=1, dtype=dtype).requires_grad_()
    y = part(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y, part.bias.detach()[None].to(dtype))
    y.square().sum().backward()
    assert torch.equal(x.grad, torch.zeros(1, D, dtype=dtype))
    assert torch.equal(part.weight.grad, torch.zeros(D))
    torch.testing.assert_close(part.bias.grad, 2 * y.detach()[0].float(), rtol=1e-2, atol=0)
    assert torch.equal(part.running_mean, torch.zeros(D))
    assert torch.equal(part.running_variance, torch.ones(D))


def test_batch_norm_of_lent_bf16_weights_has_statistics_in_fp32():
    """As a model is trained in bf16: weights and tokens are copies, running statistics stay as they are."""
    part = BatchNorm(D)
    for parameter in _randomised(part).parameters():
        parameter.data = parameter.data.bfloat16().float()
    twin, x = copy.deepcopy(part), _tokens(dtype=torch.bfloat16)
    for training in (True, False):
        lent = {name: parameter.bfloat16() for name, parameter in part.named_parameters()}
        y = functional_call(part.train(training), lent, (x,))
        assert y.dtype == torch.bfloat16
        assert torch.equal(y, twin.train(training)(x.float()).bfloat16())
    assert part.running_mean.any()
    assert torch.equal(part.running_mean, twin.running_mean)
    assert torch.equal(part.running_variance, twin.running_variance)


def test_batch_norm_of_two_tokens_is_the_limit_of_which_one_token_is_the_case():
    """Two equal tokens have variance 0 as one has, and give the bias as well."""
    part = _randomised(BatchNorm(D))
    torch.testing.assert_close(part(_tokens(n=1).expand(2, D)), part.bias.detach().expand(2, D))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("part", [BatchNorm(D), PowerNorm(D, warmup=1)], ids=["batch", "power"])
def test_no_tokens_change_nothing(part, training):
    before = {name: value.clone() for name, value in part.state_dict().items()}
    part.train(training)
    assert part(torch.empty(0, D)).shape == (0, D)
    for name, value in part.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_batch_norm_refuses_a_momentum_that_keeps_nothing_new():
    with pytest.raises(ValueError, match="momentum"):
        BatchNorm(D, momentum=0.0)


# Group scaling


def test_group_scaling_by_hand():
    x = torch.tensor([[3.0, -3.0, 4.0, 0.0], [0.0, 0.0, 1.0, 7.0]])
    expected = torch.tensor([[1.0, -1.0, math.sqrt(2), 0.0], [0.0, 0.0, 0.2, 1.4]])
    torch.testing.assert_close(GroupScaling(4, n_groups=2, eps=1e-12)(x), expected)


def test_group_scaling_of_one_group_leaves_a_root_mean_square_of_one():
    y = GroupScaling(D)(_tokens())
    torch.testing.assert_close(y.square().mean(-1), torch.ones(T), rtol=1e-4, atol=0)


@pytest.mark.parametrize("n_groups", [0, 2, 8])
def test_group_scaling_needs_equal_groups(n_groups):
    with pytest.raises(ValueError, match="groups"):
        GroupScaling(D, n_groups)


# Power norm


class _PowerLoop:
    """Power normalisation written out number by number, after algorithms 1 and 2 of the paper."""

    def __init__(self, weight, bias, warmup, alpha_fwd, alpha_bkw):
        self.weight, self.bias, self.warmup = weight.tolist(), bias.tolist(), warmup
        self.alpha_fwd, self.alpha_bkw = alpha_fwd, alpha_bkw
        self.psi2, self.nu, self.t = [1.0] * D, [0.0] * D, 0

    def batch(self, x, upstream):
        """One training batch: its output, the gradients of x, weight and bias; the state moves on."""
        n, warm = len(x), self.t < self.warmup
        y, gx = ([[0.0] * D for _ in range(n)] for _ in range(2))
        g_weight, g_bias = [0.0] * D, [0.0] * D
        for i in range(D):
            batch = sum(row[i] ** 2 for row in x) / n
            divisor = math.sqrt((batch if warm else self.psi2[i]) + EPS)
            z = [row[i] / divisor for row in x]
            g = [self.weight[i] * row[i] for row in upstream]
            big_lambda = sum(a * b for a, b in zip(g, z, strict=True)) / n
            big_gamma = sum(a * a for a in z) / n
            correction = big_lambda if warm else self.nu[i]
            for t in range(n):
                y[t][i] = self.weight[i] * z[t] + self.bias[i]
                gx[t][i] = (g[t] - correction * z[t]) / divisor
            g_weight[i] = sum(u[i] * v for u, v in zip(upstream, z, strict=True))
            g_bias[i] = sum(u[i] for u in upstream)
            self.psi2[i] = self.alpha_fwd * self.psi2[i] + (1 - self.alpha_fwd) * batch
            share = 1 - self.alpha_bkw
            self.nu[i] = self.nu[i] * (1 - share * big_gamma) + share * big_lambda
        self.t += 1
        return y, gx, g_weight, g_bias


@pytest.mark.parametrize("warmup", [0, 3, 9])
def test_power_norm_is_the_loop_forward_and_backward_batch_after_batch(warmup):
    part = _power(warmup, alpha_fwd=0.8, alpha_bkw=0.7)
    loop = _PowerLoop(part.weight, part.bias, warmup, 0.8, 0.7)
    for seed in range(6):
        x = _tokens(n=T + seed, seed=seed, dtype=torch.float64).requires_grad_()
        upstream = _tokens(n=T + seed, seed=100 + seed, dtype=torch.float64)
        part.zero_grad()
        y = part(x)
        y.backward(upstream)
        expected = loop.batch(x.tolist(), upstream.tolist())
        for ours, theirs in zip((y, x.grad, part.weight.grad, part.bias.grad), expected, strict=True):
            torch.testing.assert_close(ours.detach(), torch.tensor(theirs, dtype=torch.float64))
        state = {"running_quadratic_mean": loop.psi2, "running_correction": loop.nu, "n_batches": loop.t}
        for name, value in state.items():
            buffer = part.state_dict()[name]
            torch.testing.assert_close(buffer, torch.tensor(value, dtype=buffer.dtype))


def test_power_norm_has_the_exact_gradient_in_its_warmup():
    part, x, upstream = _power(1), _tokens(dtype=torch.float64), _tokens(seed=3, dtype=torch.float64)
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    part(ours).backward(upstream)
    exact = part.weight.detach() * theirs / (theirs.square().mean(0) + EPS).sqrt() + part.bias.detach()
    exact.backward(upstream)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_power_norm_in_evaluation_divides_by_the_running_mean_and_changes_no_state():
    part = _power(2)
    for seed in range(4):
        part(_tokens(seed=seed, dtype=torch.float64)).sum().backward()
    part.eval()
    before = {name: value.clone() for name, value in part.state_dict().items()}
    x = _tokens(seed=8, dtype=torch.float64).requires_grad_()
    y = part(x)
    divisor = (before["running_quadratic_mean"] + EPS).sqrt()
    torch.testing.assert_close(y, part.weight * x / divisor + part.bias)
    y.sum().backward()
    torch.testing.assert_close(x.grad, (part.weight / divisor).detach().expand(T, D))
    for name, value in part.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_power_norm_after_warmup_does_not_couple_the_tokens_of_a_batch_in_its_forward_pass():
    part, other = _power(0), _power(0)
    x = _tokens(dtype=torch.float64)
    torch.testing.assert_close(part(x)[:3], other(x[:3]))


def test_power_norm_keeps_the_mean_where_batch_norm_removes_it():
    x = _tokens() + 3.0
    assert PowerNorm(D, warmup=1)(x).mean().item() > 0.5
    assert abs(BatchNorm(D)(x).mean().item()) < 1e-6


def test_power_norm_scales_groups_first():
    scaled, plain = PowerNorm(6, warmup=1, n_groups=3), PowerNorm(6, warmup=1)
    x = _tokens(d=6)
    torch.testing.assert_close(scaled(x), plain(GroupScaling(6, 3)(x)))


def test_power_norm_continues_from_its_saved_state_as_if_never_stopped():
    one, two = _power(2), _power(2)
    for seed in range(3):
        one(_tokens(seed=seed, dtype=torch.float64)).square().sum().backward()
    two.load_state_dict(one.state_dict())
    for part in (one, two):
        part.zero_grad()
    for seed in range(3, 6):
        x, y = (_tokens(seed=seed, dtype=torch.float64).requires_grad_() for _ in range(2))
        one(x).square().sum().backward()
        two(y).square().sum().backward()
        assert torch.equal(x.grad, y.grad)
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name]), name


def test_power_norm_of_bf16_computes_in_the_precision_of_its_state():
    part = PowerNorm(D, warmup=1)
    x = _tokens(n=4099, dtype=torch.bfloat16)
    y = part(x)
    assert y.dtype == torch.bfloat16
    mean = x.double().square().mean(0)
    expected = 0.9 + 0.1 * mean
    torch.testing.assert_close(part.running_quadratic_mean.double(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    "settings", [{"warmup": -1}, {"warmup": 1, "alpha_fwd": 1.0}, {"warmup": 1, "alpha_bkw": -0.1}]
)
def test_power_norm_refuses_impossible_settings(settings):
    with pytest.raises(ValueError, match=r"warmup|alpha"):
        PowerNorm(D, **settings)
