"""Learning rates and warm-up: schedules by formula, Adam by hand, trainings with and without."""

import math

import numpy as np
import pytest
import torch
from sweep import Laws, curve, judged, made, statement_of, value, verdict_of
from torch.nn import functional

from heedful.lab.experiments import warmup
from heedful.lab.seeds import seeded
from heedful.nn.layout import Layout
from heedful.training.optimizers import AdamConfig


class TestExperiments(Laws):
    family = "warmup"


# Schedules and Adam


def test_the_peak_of_the_schedule():
    assert value("schedule-without-width", "peak", control=True) == pytest.approx(6.99e-4, rel=1e-3)
    assert value("schedule-without-width", "peak") == pytest.approx(0.0158, rel=1e-3)
    assert value("schedule-without-width", "update of the peak") == 4000
    assert value("schedule-without-width", "largest ratio") == pytest.approx(math.sqrt(512))
    assert value("schedule-without-width", "largest ratio", control=True) == pytest.approx(1)


@pytest.mark.parametrize("s", [1, 399, 4000, 4001, 9999])
def test_the_attempts_are_the_lectures(s):
    assert warmup.first_attempt(s) == pytest.approx(1 / math.sqrt(s))
    assert warmup.second_attempt(s) == pytest.approx(s / 4000 / math.sqrt(4000))
    assert warmup.pieces(s) == pytest.approx(min(1 / math.sqrt(s), s / 4000 / math.sqrt(4000)))


def test_the_pieces_meet_at_4000_alone():
    name = "schedule-as-minimum"
    assert value(name, "updates at which") == 0
    assert value(name, "updates at which", control=True) == 4000 - 2000 - 1
    for control in (False, True):
        assert value(name, "how often", control) == 1
        assert value(name, "the first time", control) == 4000


def test_a_schedule_that_takes_no_minimum_is_found(monkeypatch):
    monkeypatch.setattr(warmup.Warmup, "rate", lambda self, s: max(s**-0.5, s * 4000**-1.5))
    assert (
        judged("schedule-as-minimum", warmup.compare_pieces_with_the_minimum("short", 4000)).verdict
        == "is wrong"
    )


def test_both_attempts_are_drawn():
    steps, rates = curve("schedule-without-width", 0, "attempt 2: s 4000^-1.5")
    np.testing.assert_allclose(rates, np.asarray(steps) / 4000**1.5)
    steps, rates = map(np.asarray, curve("schedule-without-width", 1, "with d_model^-0.5"))
    np.testing.assert_allclose(rates, 512**-0.5 * np.minimum(steps**-0.5, steps / 4000**1.5))


@pytest.mark.parametrize("beta2, expected", [(0.98, 0.1 / math.sqrt(0.02)), (0.999, 0.1 / math.sqrt(0.001))])
def test_adams_first_steps(beta2, expected):
    config = AdamConfig(beta2=beta2)
    assert warmup._uncorrected(config, 1.0, 1)[0] == pytest.approx(expected)
    for gradient in (1e-4, -3.0):
        lengths = warmup._adam(config, gradient, 20)
        assert lengths == pytest.approx([math.copysign(1, gradient)] * 20, rel=1e-4)


def test_adams_steps_by_hand_for_a_tenth_step():
    m, v = 1 - 0.9**10, 1 - 0.98**10
    assert warmup._uncorrected(AdamConfig(), 1.0, 10)[9] == pytest.approx(m / math.sqrt(v))
    assert value("adam-first-steps", "step 10", control=True) == pytest.approx(m / math.sqrt(v))
    assert value("adam-first-steps", "first step, gradient 1", control=True) == pytest.approx(
        0.1 / math.sqrt(0.02)
    )


# Warm-up


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
        y = last.mixer(stack.blocks[0](x, layout), layout)[-1:]
    part, norm = last.feed_forward.part, last.feed_forward.norm
    hidden = (y if placement == "post" else norm(y)) @ part.up.weight.T + part.up.bias
    weight = part.down.weight.detach().clone().requires_grad_()
    total = y + hidden.relu() @ weight.T + part.down.bias
    result = norm(total) if placement == "post" else stack.norm(total)
    functional.cross_entropy(result @ head.T, target).backward()
    found = warmup.gradient_norms(placement, 2, seed=3)
    assert len(found) == 2
    assert found[-1] == pytest.approx(weight.grad.norm().item(), rel=1e-4)


@pytest.mark.slow
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
    (batch,) = warmup.cyclic_batches(1, seed=4)
    follows = dict(zip(batch.inputs.ids.tolist(), batch.targets.tolist(), strict=True))
    again = next(warmup.cyclic_batches(1, seed=5))
    for a, b in zip(again.inputs.ids.tolist(), again.targets.tolist(), strict=True):
        assert follows.setdefault(a, b) == b
    rows = batch.inputs.ids.view(warmup.SENTENCES, warmup.LENGTH)
    assert all(len(set(row)) == warmup.LENGTH for row in rows.tolist())


def test_what_a_warm_up_gains():
    name, gain = "post-norm-needs-warm-up", "what warm-up takes off the loss at the end, rate "
    without = value(name, "loss at the end without")
    warmed = value(name, "loss at the end with warm-up")
    assert value(name, gain + "0.01") == pytest.approx(min(without, math.log(warmup.TYPES)) - warmed)
    assert value(name, gain + "0.01") > 0.5 > value(name, gain + "0.01", control=True)
    assert value(name, gain + "0.003") < 0.1  # at a lower rate it is no gain


def test_the_image_shows_each_rate_with_and_without():
    rates, without = curve("post-norm-needs-warm-up", 0, "without")
    _, warmed = curve("post-norm-needs-warm-up", 0, "with warm-up")
    table = {row["rate"]: row for row in made("post-norm-needs-warm-up").table}
    assert sorted(rates) == sorted(warmup.RATES["Adam", "short"])
    assert list(without) == [table[rate]["without warm-up"] for rate in rates]
    assert list(warmed) == [table[rate]["with warm-up"] for rate in rates]


def test_a_training_that_diverges_counts_as_chance():
    lost, learned = warmup.Training([9.0, math.nan], [1.0]), warmup.Training([0.5] * 12, [1.0])
    assert warmup.Pair([lost], [learned]).gain == pytest.approx(math.log(warmup.TYPES) - 0.5)


@pytest.mark.full
def test_both_optimizers_need_a_warm_up_at_high_rates_and_after_the_sum_alone():
    name, most = "warm-up-and-optimizer", "most that warm-up takes off the loss at the end, "
    for kind in warmup.KINDS:
        assert value(name, most + kind) > 0.5
        assert value(name, f"the same at the highest rate, {kind}, pre-norm") < 0.1
        assert value(name, f"least loss at the end without warm-up, {kind}") < 0.3  # at a lower rate
    assert value(name, most + "SGD", control=True) < 0.1


@pytest.mark.parametrize(
    "adam, sgd, verdict, told",
    [
        (3.0, 0.1, "holds", "It appears so"),
        (3.0, 3.0, "is wrong", "For either optimizer"),
        (0.1, 3.0, "is wrong", "Adam needs no warm-up"),
        (0.1, 0.1, "is wrong", "Adam needs no warm-up"),
    ],
)
def test_the_verdict_on_optimizers(adam, sgd, verdict, told):
    gains = {"Adam": adam, "SGD": sgd}
    assert verdict_of("warm-up-and-optimizer", gains=gains) == verdict
    assert told in statement_of("warm-up-and-optimizer", gains=gains)


@pytest.mark.parametrize(
    "gains, told", [([3.0, 2.0], "At none of these rates"), ([3.0, 0.0], "At lower rates it does train")]
)
def test_what_is_said_of_lower_rates(gains, told):
    assert told in statement_of("post-norm-needs-warm-up", gains=gains)
