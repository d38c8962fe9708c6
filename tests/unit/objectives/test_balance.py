"""The balance of experts against the paper's equations; its terms in a step."""

import math

import pytest
import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.models.language_model import LanguageModelConfig, build
from heedful.nn.experts import NoisyTopKGate, TopKGate
from heedful.nn.taps import recording
from heedful.objectives.balance import Balance, squared_variation
from heedful.objectives.cross_entropy import NextToken
from heedful.training.model_with_loss import ModelWithLoss

V = 17
SMALL = {
    "d_model": 6,
    "n_layers": 3,
    "dropout": 0.0,
    "context": 9,
    "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 7}},
}


def model_of(seed=1, layers=(2,), **experts):
    torch.manual_seed(seed)
    expert = {"d_ff": 7, "activation": "gelu"}
    channels = {"kind": "experts", "n": 5, "k": 2, "expert": expert, **experts}
    pattern = [{"channels": channels} if layer in layers else {} for layer in (1, 2, 3)]
    model = build(LanguageModelConfig.model_validate({**SMALL, "pattern": pattern}), V)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def batch_of(rows):
    return Batch.teacher_forced(None, rows, start=1, end=2)


BATCH = batch_of([[3, 4, 5], [6], [7, 8, 9, 10]])


def variation(numbers):
    mean = sum(numbers) / len(numbers)
    return sum((x - mean) ** 2 for x in numbers) / len(numbers) / mean**2


def test_the_squared_coefficient_of_variation():
    assert float(squared_variation(torch.tensor([2.0, 2.0, 2.0]))) == 0.0
    assert float(squared_variation(torch.tensor([1.0, 2.0, 6.0]))) == pytest.approx(variation([1, 2, 6]))
    assert float(squared_variation(torch.zeros(3))) == 0.0
    # All on one of n: n - 1.
    assert float(squared_variation(torch.tensor([0.0, 7.0, 0.0, 0.0]))) == pytest.approx(3.0)


@pytest.mark.parametrize("layers", [[2], [1, 3]])
@torch.no_grad()
def test_terms_are_those_of_equations_6_to_11(layers):
    model = model_of(layers=layers, importance=0.3, load=0.2).eval()
    step = ModelWithLoss(model, NextToken())
    taps = [f"{name}.{tap}" for name in Balance(model).gates for tap in ("gates", "chances")]
    with recording(model, taps) as seen:
        loss, terms = step(BATCH, step.counts(BATCH))
    found = {term.name: term for term in terms}
    n = BATCH.inputs.layout.n_tokens
    wanted = {"importance": 0.0, "load": 0.0, "max_load": 0.0}
    for name in taps:
        (values,) = seen[name]
        assert values.shape == (n, 5)
        term = "importance" if name.endswith("gates") else "load"
        wanted[term] += variation([float(values[:, i].sum()) for i in range(5)])
        if term == "importance":
            loads = [int((values[:, i] > 0).sum()) for i in range(5)]
            assert sum(loads) == 2 * n
            wanted["max_load"] = max(wanted["max_load"], max(loads) / (2 * n / 5))
    for name, value in wanted.items():
        assert found[name].count == n
        assert float(found[name].sum) / n == pytest.approx(value, rel=1e-5)
    assert {name: found[name].weight for name in wanted} == {"importance": 0.3, "load": 0.2, "max_load": 0}
    nll = float(found["token"].sum) / n
    assert float(loss) == pytest.approx(nll + 0.3 * wanted["importance"] + 0.2 * wanted["load"], rel=1e-5)
    assert {term.name: term.count for term in terms} == step.counts(BATCH)


def test_without_noise_there_is_no_load_to_foretell():
    model = model_of(gate="top-k")
    step = ModelWithLoss(model, NextToken())
    terms = step(BATCH, step.counts(BATCH))[1]
    assert [term.name for term in terms] == ["token", "nll", "importance", "max_load"]


def test_without_experts_there_is_nothing():
    model = build(LanguageModelConfig.model_validate(SMALL), V)
    step = ModelWithLoss(model, NextToken())
    assert step.counts(BATCH).keys() == {"token", "nll"}
    assert [term.name for term in step(BATCH, step.counts(BATCH))[1]] == ["token", "nll"]


def gradients(model, batches):
    step = ModelWithLoss(model, NextToken())
    each = [step.counts(batch) for batch in batches]
    counts = {name: sum(count[name] for count in each) for name in each[0]}
    model.zero_grad()
    for batch in batches:
        step(batch, counts)[0].backward()
    return [p.grad.clone() for p in model.parameters()]


ROWS = [[3, 4, 5], [6], [7, 8, 9, 10], [11, 12]]
PARTS = [batch_of(ROWS[:1]), batch_of(ROWS[1:])]


def test_accumulated_micro_batches_equal_one_large_step_but_for_the_balance():
    """What holds: the terms over tokens. What does not: a coefficient of variation is no sum."""
    model = model_of(gate="top-k", importance=0.0)
    for ours, theirs in zip(gradients(model, PARTS), gradients(model, [batch_of(ROWS)]), strict=True):
        torch.testing.assert_close(ours, theirs)
    model = model_of(gate="top-k", importance=1.0)
    pairs = zip(gradients(model, PARTS), gradients(model, [batch_of(ROWS)]), strict=True)
    assert max(float((ours - theirs).abs().max()) for ours, theirs in pairs) > 1e-3


@pytest.mark.slow
def test_noise_is_all_that_tells_accumulated_micro_batches_from_one_large_step(monkeypatch):
    """What holds for the other declaration."""
    model = model_of(importance=0.0, load=0.0).train()
    noisy = gradients(model, PARTS), gradients(model, [batch_of(ROWS)])
    assert any(not torch.allclose(a, b) for a, b in zip(*noisy, strict=True))
    monkeypatch.setattr(NoisyTopKGate, "draw", lambda self, like: torch.zeros_like(like))
    for ours, theirs in zip(gradients(model, PARTS), gradients(model, [batch_of(ROWS)]), strict=True):
        torch.testing.assert_close(ours, theirs)


@torch.no_grad()
def test_the_balance_of_an_update_is_the_mean_over_its_micro_batches():
    """Weighted by their tokens: so two processes with a part each equal one with both parts."""
    model = model_of(gate="top-k")
    step = ModelWithLoss(model, NextToken())
    counts = {name: step.counts(PARTS[0])[name] + step.counts(PARTS[1])[name] for name in step.counts(BATCH)}
    total = sum(float(step(part, counts)[0]) for part in PARTS)
    alone = [{t.name: t for t in step(part, step.counts(part))[1]} for part in PARTS]
    tokens = [part.inputs.layout.n_tokens for part in PARTS]
    means = [float(terms["importance"].sum) / n for terms, n in zip(alone, tokens)]
    nll = sum(float(terms["token"].sum) for terms in alone) / sum(tokens)
    balance = sum(n * mean for n, mean in zip(tokens, means)) / sum(tokens)
    assert total == pytest.approx(nll + 0.1 * balance, rel=1e-5)


def test_a_balanced_gate_is_what_the_terms_ask_for():
    """Descent on the terms alone makes loads even."""
    torch.manual_seed(2)
    gate = NoisyTopKGate(6, 5, 2)
    with torch.no_grad():
        gate.weight[0] = 2.0
    model = nn.ModuleDict({"gate": gate})
    x, balance = torch.rand(64, 6), Balance(model)
    optimizer, seen = torch.optim.SGD(model.parameters(), 0.5), []
    for _ in range(60):
        with balance.attached(batch_of([[3] * 63])) as terms:
            gate(x)
        found = {term.name: term for term in terms()}
        seen.append(float(found["max_load"].sum.detach()) / 64)
        loss = sum(found[name].sum / 64 for name in ("importance", "load"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert seen[0] > 2.2
    assert sum(seen[-5:]) / 5 < 1.5


def test_gates_must_agree_on_their_weights():
    gates = nn.ModuleList([TopKGate(6, 5, 2, importance=weight) for weight in (0.1, 0.2)])
    with pytest.raises(ValueError, match="the same importance"):
        Balance(gates)


@torch.no_grad()
def test_a_batch_without_tokens_has_no_terms_to_speak_of():
    model = model_of()
    step = ModelWithLoss(model, NextToken())
    empty = Batch(BATCH.inputs.__class__.of([[]]), torch.zeros(0, dtype=torch.int64))
    loss, terms = step(empty, {**dict.fromkeys(step.counts(empty), 1)})
    assert math.isfinite(float(loss))
    assert all(float(term.sum) == 0.0 for term in terms)
