import math

import pytest
import torch
from torch import nn
from toy_training import ToyModel

from heedful.errors import RequestError
from heedful.training.optimizers import (
    AdamConfig,
    AdamWConfig,
    MuonConfig,
    SGDConfig,
    build_optimizer,
    clip,
    gradient_norm,
    load_state_tensors,
    set_lr,
    state_tensors,
)


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5)).double()


def _gradients(model: nn.Module, step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in model.parameters()]


def _run(model, optimizer, rates, first=1):
    for step, rate in enumerate(rates, start=first):
        for p, g in zip(model.parameters(), _gradients(model, step), strict=True):
            p.grad = g.clone()
        set_lr(optimizer, rate)
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def _adam_by_hand(model, rates, beta1, beta2, eps, decay_of):
    """Kingma and Ba, algorithm 1, one number at a time; decoupled decay before the step."""
    results = []
    for index, p in enumerate(model.parameters()):
        values = p.detach().flatten().tolist()
        decay = decay_of(p)
        for place, value in enumerate(values):
            m = v = 0.0
            for step, rate in enumerate(rates, start=1):
                g = _gradients(model, step)[index].flatten()[place].item()
                m = beta1 * m + (1 - beta1) * g
                v = beta2 * v + (1 - beta2) * g * g
                value -= rate * decay * value
                value -= rate * (m / (1 - beta1**step)) / (math.sqrt(v / (1 - beta2**step)) + eps)
            values[place] = value
        results.append(torch.tensor(values, dtype=p.dtype).view_as(p))
    return results


RATES = [0.1, 0.05, 0.2, 0.01]


def test_adam_step_for_step():
    model = _model()
    wanted = _adam_by_hand(model, RATES, 0.9, 0.98, 1e-9, lambda p: 0.0)
    got = _run(model, build_optimizer(AdamConfig(), model), RATES)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_adamw_decays_matrices_only():
    model = _model()
    wanted = _adam_by_hand(model, RATES, 0.8, 0.95, 1e-6, lambda p: 0.3 if p.dim() >= 2 else 0.0)
    config = AdamWConfig(beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.3)
    got = _run(model, build_optimizer(config, model), RATES)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_with_momentum(nesterov):
    model = _model()
    start = [p.detach().clone() for p in model.parameters()]
    got = _run(model, build_optimizer(SGDConfig(momentum=0.7, nesterov=nesterov), model), RATES)
    for index, value in enumerate(start):
        momentum = torch.zeros_like(value)
        for step, rate in enumerate(RATES, start=1):
            g = _gradients(model, step)[index]
            momentum = 0.7 * momentum + g
            value = value - rate * (g + 0.7 * momentum if nesterov else momentum)
        torch.testing.assert_close(got[index], value, rtol=1e-12, atol=1e-12)


def test_fused_where_it_can_be_and_frozen_parameters_left_out():
    model = _model().float()
    model[0].bias.requires_grad_(False)
    optimizer = build_optimizer(AdamWConfig(), model)
    assert optimizer.defaults["fused"] is True
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in held} == {id(p) for p in model.parameters() if p.requires_grad}
    model.requires_grad_(False)
    with pytest.raises(RequestError, match="no trainable parameters"):
        build_optimizer(AdamConfig(), model)


def test_norm_and_clipping():
    a, b, c = (nn.Parameter(torch.zeros(n)) for n in (2, 3, 5))
    a.grad, b.grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0, 12.0])
    parameters = [a, b, c]  # c has no gradient
    norm = gradient_norm(parameters)
    assert norm.item() == 13.0
    clip(parameters, 26.0, norm)
    assert a.grad.tolist() == [3.0, 0.0]
    clip(parameters, 6.5, norm)
    torch.testing.assert_close(a.grad, torch.tensor([1.5, 0.0]))
    torch.testing.assert_close(b.grad, torch.tensor([0.0, 2.0, 6.0]))


@pytest.mark.parametrize("config", [AdamConfig(), AdamWConfig(), SGDConfig(momentum=0.9), SGDConfig()])
def test_state_goes_on_bit_for_bit(config):
    whole_model = _model()
    whole = _run(whole_model, build_optimizer(config, whole_model), RATES)
    model = _model()
    optimizer = build_optimizer(config, model)
    _run(model, optimizer, RATES[:2])
    tensors = {name: t.clone() for name, t in state_tensors(optimizer, model).items()}
    other = _model()
    other.load_state_dict(model.state_dict())
    fresh = build_optimizer(config, other)
    load_state_tensors(fresh, other, tensors)
    for a, b in zip(_run(other, fresh, RATES[2:], first=3), whole, strict=True):
        assert torch.equal(a, b)


def test_state_is_named_after_parameters_tied_ones_once():
    model = ToyModel(tied=True)
    optimizer = build_optimizer(AdamConfig(), model)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert set(state_tensors(optimizer, model)) == {
        f"{name}/{entry}"
        for name in ("embedding.weight", "heads.token.bias")
        for entry in ("step", "exp_avg", "exp_avg_sq")
    }


def test_state_of_another_model_is_refused():
    model = ToyModel()
    optimizer = build_optimizer(AdamConfig(), model)
    with pytest.raises(RequestError, match=r"has embeding.weight, .*did you mean 'embedding.weight'"):
        load_state_tensors(optimizer, model, {"embeding.weight/exp_avg": torch.zeros(11, 5)})
    with pytest.raises(RequestError, match=r"exp_avg of embedding.weight: .*got \[5, 11\]"):
        load_state_tensors(optimizer, model, {"embedding.weight/exp_avg": torch.zeros(5, 11)})


@pytest.mark.parametrize(
    "config", [AdamConfig(), AdamWConfig(), SGDConfig(momentum=0.9), MuonConfig()], ids=lambda c: c.kind
)
def test_state_with_an_entry_missing_unknown_or_of_another_type_is_refused(config):
    model = _model()
    optimizer = build_optimizer(config, model)
    _run(model, optimizer, RATES[:2])
    tensors = state_tensors(optimizer, model)
    assert tensors
    for key, tensor in tensors.items():
        name = key.rpartition("/")[0]
        others = {other: value for other, value in tensors.items() if other != key}
        for damaged in (others, {**others, f"{name}/other": tensor}, {**tensors, f"{name}/other": tensor}):
            with pytest.raises(RequestError, match=rf"the optimizer state of {name}: expected"):
                load_state_tensors(optimizer, model, damaged)
        for kind in (torch.complex64, torch.int64, torch.bool):
            with pytest.raises(RequestError, match=rf"of {name}: expected real numbers, got {str(kind)[6:]}"):
                load_state_tensors(optimizer, model, {**tensors, key: tensor.to(kind)})
    load_state_tensors(optimizer, model, tensors)
