"""The laws, for models of pictures with a label for each of them."""

import pytest
import torch
from cases import (
    LABELS,
    PICTURES,
    every_picture_model,
    picture_configuration,
    picture_model,
    pictures_for,
    same,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.batch import Batch
from heedful.nn.attention import kernels
from heedful.nn.declarations import without_gradient
from heedful.nn.patches import Pictures
from heedful.objectives.classification import SequenceClass, class_logits
from heedful.training.step import Step
from heedful.training.weights import load_weights, save_weights

NAN = float("nan")
UNCOUPLED = [name for name, case in PICTURES.items() if case.get("norm", "layer") not in ("batch", "power")]


def outputs(model, inputs):
    """Hidden states of each picture, and the logits of its classes."""
    hidden = model(inputs)
    logits = class_logits(hidden, model.heads, inputs.layout)
    return [*hidden.split(list(inputs.layout.lengths))], [*logits]


def batch_of(inputs, labels):
    """Pictures with their classes: a batch whose inputs are not tokens."""
    nothing = torch.zeros(0, dtype=torch.int64)
    return Batch(inputs, nothing, rows=nothing, ragged=False, classes=torch.tensor(labels))


@every_picture_model
@pytest.mark.parametrize("fused_from", [0, 1 << 30])
def test_batched_equals_single(name, fused_from, monkeypatch):
    monkeypatch.setattr(kernels, "CPU_FUSED_FROM", fused_from)
    model, inputs = picture_model(name), pictures_for(name)
    together = outputs(model, inputs)
    alone = [outputs(model, inputs.select([i])) for i in range(len(LABELS))]
    same(together[0], [hidden for (hidden,), _ in alone])
    same(together[1], [logits for _, (logits,) in alone])


@every_picture_model
@settings(max_examples=3, deadline=None)
@given(order=st.permutations(range(4)))
def test_packed_in_any_order_equals_any_other(name, order):
    model, inputs = picture_model(name), pictures_for(name)
    straight, moved = outputs(model, inputs), outputs(model, inputs.select(order))
    for ours, theirs in zip(moved, straight, strict=True):
        same(ours, [theirs[i] for i in order])


@every_picture_model
@pytest.mark.parametrize("value", [NAN, 1e3])
def test_the_other_pictures_change_nothing(name, value):
    model, inputs = picture_model(name), pictures_for(name)
    good, bad = [0, 2, 3], 1

    def run(pixels):
        hidden, logits = outputs(model, Pictures(pixels, inputs.layout))
        return [hidden[i] for i in good] + [logits[i] for i in good]

    x = inputs.pixels.clone().requires_grad_()
    clean = run(x)
    (grad,) = torch.autograd.grad(sum(part.square().sum() for part in clean), x)
    assert not grad[bad].any()
    changed = inputs.pixels.clone()
    changed[bad] = value
    after = run(changed.requires_grad_())
    same([*after], [*clean])
    (again,) = torch.autograd.grad(sum(part.square().sum() for part in after), changed)
    same(again[good], grad[good])


@pytest.mark.parametrize("name", UNCOUPLED)
def test_train_mode_without_dropout_equals_eval_mode(name):
    model, inputs = picture_model(name), pictures_for(name)
    evaluated, trained = outputs(model, inputs), outputs(model.train(), inputs)
    same(trained[0], evaluated[0])
    same(trained[1], evaluated[1])


@pytest.mark.parametrize("name", UNCOUPLED)
def test_accumulated_micro_batches_equal_one_large_step(name):
    model, inputs = picture_model(name).train(), pictures_for(name)

    def gradients(parts):
        step = Step(model, SequenceClass(0.1))
        batches = [batch_of(inputs.select(part), [LABELS[i] for i in part]) for part in parts]
        counts = {"class": len(LABELS), "correct": len(LABELS)}
        model.zero_grad()
        losses = [step(batch, counts)[0] for batch in batches]
        sum(losses).backward()
        return sum(losses).detach(), [p.grad for p in model.parameters() if p.grad is not None]

    same(gradients([[0], [3, 1], [2]]), gradients([[0, 1, 2, 3]]))


@every_picture_model
def test_every_parameter_gets_a_gradient_unless_declared(name):
    """In double precision, where zero and small are far apart; of pictures enough to wake every unit."""
    model, inputs = picture_model(name).double().train(), pictures_for(name, n=7)
    for part in model.modules():
        if isinstance(getattr(part, "activation", None), torch.nn.ReLU):
            part.activation = torch.nn.GELU()
    hidden = model(Pictures(inputs.pixels.double(), inputs.layout))
    logits = model.heads["class"](model.heads["pooled"](hidden, inputs.layout))
    # A sum over tokens, so that all rows of the last layer count, and one over classes.
    loss = (hidden * torch.randn_like(hidden)).sum() + (logits * torch.randn_like(logits)).sum()
    loss.backward()
    allowed = without_gradient(model)
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        rows_moved = parameter.grad.reshape(len(parameter) if parameter.dim() else 1, -1).abs().amax(1)
        zeros = set((rows_moved < 1e-12).nonzero().flatten().tolist())
        assert zeros == set(allowed.get(parameter_name, ())), parameter_name


@every_picture_model
def test_a_configuration_round_trips_and_weights_load(name, tmp_path):
    config = picture_configuration(name)
    assert type(config).model_validate(config.model_dump(mode="json")) == config
    model, other = picture_model(name), picture_model(name, seed=2)
    save_weights(tmp_path / "weights.safetensors", model)
    load_weights(tmp_path / "weights.safetensors", other)
    inputs = pictures_for(name)
    for ours, theirs in zip(outputs(other, inputs), outputs(model, inputs), strict=True):
        assert all(torch.equal(one, two) for one, two in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", ["vit", "mlp-mixer", "resnet, small root"])
def test_bf16_is_near_fp32(name):
    """Products in bf16 have 8 bits: the loss moves a little, and the gradient points the same way."""
    model, batch = picture_model(name).train(), batch_of(pictures_for(name), LABELS)

    def loss_and_gradient(precision):
        step = Step(model, SequenceClass(), precision)
        model.zero_grad()
        loss, _ = step(batch, step.counts(batch))
        loss.backward()
        return loss.item(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    (exact, right), (near, left) = loss_and_gradient("fp32"), loss_and_gradient("bf16")
    assert near == pytest.approx(exact, rel=0.05)
    assert torch.cosine_similarity(left, right, 0) > 0.98
