"""Experiments on warm-up: gradients against another network, trainings with and without."""

import math

import numpy as np
import pytest
import torch
from sweep import Laws, made, value
from torch.nn import functional

from heedful.lab import warmup
from heedful.lab.seeds import seeded
from heedful.nn.layout import Layout


class TestExperiments(Laws):
    family = "warmup"


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_gradients_before_training_by_a_network_written_out(placement):
    """The last feed-forward's W_2, whose gradient needs nothing of what is below but its input."""
    layout = Layout.of([16])
    with seeded(3):
        stack = warmup._stack(placement, 2)
        x, head = torch.randn(16, warmup.WIDTH), torch.randn(warmup.TYPES, warmup.WIDTH)
        target = torch.randint(warmup.TYPES, (1,))
    head = head * warmup.WIDTH**-0.5
    last = stack.blocks[-1]
    with torch.no_grad():
        y = last.mixing(stack.blocks[0](x, layout), layout)[-1:]
    part, norm = last.feed_forward.part, last.feed_forward.norm
    hidden = (y if placement == "post" else norm(y)) @ part.up.weight.T + part.up.bias
    weight = part.down.weight.detach().clone().requires_grad_()
    total = y + hidden.relu() @ weight.T + part.down.bias
    result = norm(total) if placement == "post" else stack.norm(total)
    functional.cross_entropy(result @ head.T, target).backward()
    found = warmup.gradients(placement, 2, seed=3)
    assert len(found) == 2
    assert found[-1] == pytest.approx(weight.grad.norm().item(), rel=1e-4)


def test_a_pre_norm_stacks_last_gradient_goes_with_the_size_of_its_sum():
    """What Xiong et al. derive: the last norm divides the gradient by the size of what it normalises."""
    sizes = []
    for n_layers in (2, 16):
        squares = []
        for seed in range(12):
            with seeded(seed):
                stack = warmup._stack("pre", n_layers)
                x = torch.randn(16, warmup.WIDTH)
            with torch.no_grad():
                for block in stack.blocks:
                    x = block(x, Layout.of([16]))
            squares.append(x[-1].square().mean().sqrt().item())
        sizes.append(np.mean(squares))
    table = {
        row["layers"]: row["gradient of the last, pre-norm"]
        for row in made("gradients-before-training").table
    }
    assert table[2] / table[16] == pytest.approx(sizes[1] / sizes[0], rel=0.3)


def test_the_powers_of_depth():
    assert value("gradients-before-training", "power of L") == pytest.approx(0.0, abs=0.1)
    assert value("gradients-before-training", "power of L", control=True) == pytest.approx(-0.5, abs=0.2)


def test_a_cycle_is_one():
    (batch,) = warmup.cycle(1, seed=4)
    follows = dict(zip(batch.inputs.ids.tolist(), batch.targets.tolist(), strict=True))
    again = next(warmup.cycle(1, seed=5))
    for a, b in zip(again.inputs.ids.tolist(), again.targets.tolist(), strict=True):
        assert follows.setdefault(a, b) == b
    rows = batch.inputs.ids.view(warmup.SENTENCES, warmup.LENGTH)
    assert all(len(set(row)) == warmup.LENGTH for row in rows.tolist())


def test_what_a_warm_up_gains():
    gain = value("post-norm-needs-warm-up", "what warm-up takes off")
    without = value("post-norm-needs-warm-up", "loss at the end without")
    warmed = value("post-norm-needs-warm-up", "loss at the end with warm-up")
    assert gain == pytest.approx(min(without, math.log(warmup.TYPES)) - warmed)
    assert gain > warmup.GAIN > value("post-norm-needs-warm-up", "what warm-up takes off", control=True)
