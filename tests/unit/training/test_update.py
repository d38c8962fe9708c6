import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy
from toy_training import ToyModel, ToyObjective, make_batch, toy_data

from heedful.errors import WorkError
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import AdamConfig, SGDConfig, build_optimizer
from heedful.training.settings import TrainingConfig
from heedful.training.update import seed_of, update_weights

SAMPLES = [2, 3, 5, 7, 11, 13, 17]


class Updating:
    """A model and an optimizer, and the function that updates them."""

    def __init__(self, accumulate=1, clip_norm=None, dropout=0.0, optimizer=None):
        self.module = ModelWithLoss(ToyModel(dropout), ToyObjective())
        self.model = self.module.model
        self.optimizer = build_optimizer(optimizer or SGDConfig(), self.model)
        self.settings = TrainingConfig(max_updates=1, accumulate=accumulate, clip_norm=clip_norm, seed=1)

    def __call__(self, samples, **options):
        return update_weights(self.module, self.optimizer, toy_data(), self.settings, samples, **options)


def _plain(model: nn.Module, samples, epoch=0):
    """The loss with both denominators over the whole update, written out."""
    batch = make_batch(samples, epoch)
    losses = cross_entropy(model.heads["token"](model(batch.inputs, None)), batch.targets, reduction="none")
    even = batch.targets % 2 == 0
    return losses.mean(), losses[even].mean(), len(losses)


def test_an_update_is_the_rate_times_the_gradient_of_the_whole_loss(tmp_path):
    updater = Updating()
    model = ToyModel()
    token, even, n = _plain(model, SAMPLES)
    (token + 0.5 * even).backward()
    figures = updater(SAMPLES, epoch=0, update=1, lr=0.7, run=tmp_path)
    norm = math.sqrt(sum(p.grad.square().sum().item() for p in model.parameters()))
    assert figures.loss == pytest.approx((token + 0.5 * even).item(), rel=1e-6)
    assert figures.terms == pytest.approx({"token": token.item(), "even": even.item(), "seen": 1.0})
    assert figures.norm == pytest.approx(norm, rel=1e-6)
    assert figures.tokens == n
    for p, q in zip(model.parameters(), updater.model.parameters(), strict=True):
        torch.testing.assert_close(q.detach(), (p - 0.7 * p.grad).detach(), rtol=1e-5, atol=1e-7)
        assert q.grad is None


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 22), min_size=1, max_size=11, unique=True), st.integers(2, 13))
def test_accumulated_equals_one_large_step(tmp_path_factory, samples, accumulate):
    run = tmp_path_factory.mktemp("run")
    large, small = Updating(1), Updating(accumulate)
    for number in (1, 2):
        a = large(samples, epoch=0, update=number, lr=0.5, run=run)
        b = small(samples, epoch=0, update=number, lr=0.5, run=run)
        assert a.loss == pytest.approx(b.loss, rel=1e-5)
        assert a.tokens == b.tokens
    for p, q in zip(large.model.parameters(), small.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_clipping_limits_the_step_and_reports_the_norm_before(tmp_path):
    free, clipped = Updating(), Updating(clip_norm=0.01)
    before = [p.detach().clone() for p in free.model.parameters()]
    a = free(SAMPLES, epoch=0, update=1, lr=1.0, run=tmp_path)
    b = clipped(SAMPLES, epoch=0, update=1, lr=1.0, run=tmp_path)
    assert a.norm == b.norm > 0.01

    def length(updater):
        moves = zip(before, updater.model.parameters(), strict=True)
        return math.sqrt(sum((p - q).square().sum().item() for p, q in moves))

    assert length(free) == pytest.approx(a.norm, rel=1e-4)
    assert length(clipped) == pytest.approx(0.01, rel=1e-3)


def test_dropout_depends_on_seed_update_and_part_and_on_nothing_before(tmp_path):
    def loss(update, scramble=0):
        torch.manual_seed(scramble)
        return Updating(accumulate=2, dropout=0.5)(SAMPLES, epoch=0, update=update, lr=0.1, run=tmp_path).loss

    assert loss(4, scramble=1) == loss(4, scramble=2)
    assert loss(4) != loss(5)


def test_seeds_differ():
    seeds = {seed_of(a, b, c) for a in range(7) for b in range(7) for c in range(7)}
    assert len(seeds) == 343
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seed_of(1, 23) != seed_of(12, 3)


def test_the_epoch_reaches_the_batches(tmp_path):
    model = ToyModel()
    token, even, _ = _plain(model, SAMPLES, epoch=4)
    figures = Updating()(SAMPLES, epoch=4, update=1, lr=0.1, run=tmp_path)
    assert figures.loss == pytest.approx((token + 0.5 * even).item(), rel=1e-6)


@pytest.mark.parametrize("place, value", [("weight", math.nan), ("weight", math.inf), ("gradient", math.nan)])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_non_finite_update_is_not_made_and_its_batch_is_saved(tmp_path, place, value, accumulate):
    updater = Updating(accumulate, clip_norm=1.0, optimizer=AdamConfig())
    model = updater.model
    bias = model.heads["token"].bias
    if place == "weight":
        with torch.no_grad():
            bias[3] = value
    else:
        bias.register_hook(lambda g: g * value)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    with pytest.raises(WorkError, match=r"update 9: .*7 samples were saved to .*bad_batch\.json"):
        updater(SAMPLES, epoch=0, update=9, lr=0.1, run=tmp_path)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor.nan_to_num(7.0), before[name].nan_to_num(7.0))
    assert all(p.grad is None for p in model.parameters())
    assert not updater.optimizer.state
    record = json.loads((tmp_path / "bad_batch.json").read_text())
    batch = make_batch(SAMPLES, 0)
    assert record["update"] == 9
    assert record["samples"] == SAMPLES
    assert record["ids"] == {"inputs": batch.inputs.split(), "targets": batch.targets.tolist()}


def test_bf16_runs_the_products_in_bf16_and_keeps_weights_in_fp32():
    model = ToyModel()
    seen = []
    model.heads["token"].register_forward_hook(lambda *args: seen.append(args[2].dtype))
    batch = make_batch(SAMPLES, 0)
    counts = ToyObjective().counts(batch)
    loss, terms = ModelWithLoss(model, ToyObjective(), "bf16")(batch, counts)
    loss.backward()
    exact, _ = ModelWithLoss(model, ToyObjective(), "fp32")(batch, counts)
    assert seen == [torch.bfloat16, torch.float32]
    assert loss.dtype == torch.float32
    assert loss.item() != exact.item()
    assert loss.item() == pytest.approx(exact.item(), rel=0.02)
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in model.parameters())
    assert not any(term.sum.requires_grad for term in terms)
