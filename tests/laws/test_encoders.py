"""The laws, for encoders with a label for each sequence."""

import pytest
import torch
from cases import (
    ENCODERS,
    LABELS,
    encoder_of,
    every_encoder,
    labelled,
    same,
    texts_for,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.models.encoder import EncoderConfig
from heedful.nn.attention import kernels
from heedful.nn.declarations import declared, without_gradient
from heedful.nn.layout import Tokens
from heedful.objectives.classification import SequenceClass, class_logits
from heedful.training.step import Step
from heedful.training.weights import load_weights, save_weights

NAN = float("nan")
UNCOUPLED = [name for name, case in ENCODERS.items() if case.get("norm", "layer") not in ("batch", "power")]


def outputs(model, texts):
    """Hidden states of each sequence, and the logits of its classes."""
    batch = labelled(texts, [0] * len(texts))
    hidden = model(batch.inputs)
    logits = class_logits(hidden, model.heads, batch.inputs.layout)
    return [*hidden.split(list(batch.inputs.layout.lengths))], [*logits]


@every_encoder
@pytest.mark.parametrize("fused_from", [0, 1 << 30])
def test_batched_equals_single(name, fused_from, monkeypatch):
    monkeypatch.setattr(kernels, "CPU_FUSED_FROM", fused_from)
    model, texts = encoder_of(name), texts_for(name)
    together = outputs(model, texts)
    alone = [outputs(model, [text]) for text in texts]
    same(together[0], [hidden for (hidden,), _ in alone])
    same(together[1], [logits for _, (logits,) in alone])


@every_encoder
@settings(max_examples=3, deadline=None)
@given(order=st.permutations(range(4)))
def test_packed_in_any_order_equals_any_other(name, order):
    model, texts = encoder_of(name), texts_for(name)
    straight, moved = outputs(model, texts), outputs(model, [texts[i] for i in order])
    for ours, theirs in zip(moved, straight, strict=True):
        same(ours, [theirs[i] for i in order])


@every_encoder
@pytest.mark.parametrize("value", [NAN, 1e3])
def test_the_other_sequences_change_nothing(name, value):
    model, batch = encoder_of(name), labelled(texts_for(name), LABELS)
    lengths = batch.inputs.layout.lengths
    bad = list(range(lengths[0], lengths[0] + lengths[1]))
    good = [i for i in range(sum(lengths)) if i not in bad]

    def run(x):
        handle = model.embedding.register_forward_hook(lambda *_: x)
        hidden = model(batch.inputs)
        handle.remove()
        return hidden[good], class_logits(hidden, model.heads, batch.inputs.layout)[[0, 2, 3]]

    x = model.embedding(batch.inputs).detach().requires_grad_()
    clean = run(x)
    (grad,) = torch.autograd.grad(sum(part.square().sum() for part in clean), x)
    assert not grad[bad].any()
    changed = x.detach().clone()
    changed[bad] = value
    after = run(changed.requires_grad_())
    same([*after], [*clean])
    (again,) = torch.autograd.grad(sum(part.square().sum() for part in after), changed)
    same(again[good], grad[good])


@every_encoder
def test_tokens_read_ahead_and_say_so(name):
    """All of them, or, of mixers with a reach, those that it covers in two layers."""
    model = encoder_of(name)
    assert "reads_ahead" in declared(model)
    one, other = (model(Tokens.of([[4, 9, 11, 7, last, 5]])) for last in (12, 13))
    reach = 2 if ENCODERS[name].get("mixer") in ("separable", "convolution") else 6
    assert (one != other).any(1).tolist() == [abs(4 - place) <= reach for place in range(6)]


@pytest.mark.parametrize("name", UNCOUPLED)
def test_train_mode_without_dropout_equals_eval_mode(name):
    model, texts = encoder_of(name), texts_for(name)
    evaluated, trained = outputs(model, texts), outputs(model.train(), texts)
    same(trained[1], evaluated[1])


@pytest.mark.parametrize("name", UNCOUPLED)
def test_accumulated_micro_batches_equal_one_large_step(name):
    model, texts = encoder_of(name).train(), texts_for(name)

    def gradients(parts):
        step = Step(model, SequenceClass(0.1))
        batches = [labelled([texts[i] for i in part], [LABELS[i] for i in part]) for part in parts]
        counts = {"class": len(LABELS), "correct": len(LABELS)}
        model.zero_grad()
        losses = [step(batch, counts)[0] for batch in batches]
        sum(losses).backward()
        return sum(losses).detach(), [p.grad for p in model.parameters() if p.grad is not None]

    same(gradients([[0], [3, 1], [2]]), gradients([[0, 1, 2, 3]]))


@every_encoder
def test_every_parameter_gets_a_gradient_unless_declared(name):
    """In double precision, where zero and small are far apart; every id, position and segment occurs."""
    model = encoder_of(name).double().train()
    for part in model.modules():
        if isinstance(getattr(part, "activation", None), torch.nn.ReLU):
            part.activation = torch.nn.GELU()
    ids = iter(torch.randperm(30).add(7).tolist())
    rows = [[next(ids) for _ in range(14)], [next(ids) for _ in range(13)], [next(ids) for _ in range(3)]]
    pairs = [[row[:6], row[6:]] for row in rows]
    texts = pairs if ENCODERS[name].get("segments", 2) else rows and [[row] for row in rows]
    batch = labelled(texts, [0, 3, 4])
    # A label for the sequence and, so that all rows of the last layer count, a sum over its tokens.
    hidden = model(batch.inputs)
    loss = SequenceClass()(hidden, model.heads, batch)[0].sum + (hidden * torch.randn_like(hidden)).sum()
    loss.backward()
    allowed = without_gradient(model)
    unread = {0, 1, 2, 3, 6}  # specials that are not among the inputs
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        rows_moved = parameter.grad.reshape(len(parameter) if parameter.dim() else 1, -1).abs().amax(1)
        zeros = set((rows_moved < 1e-12).nonzero().flatten().tolist())
        wanted = unread if parameter_name == "embedding.weight" else set(allowed.get(parameter_name, ()))
        assert zeros == wanted, parameter_name


@every_encoder
def test_a_configuration_round_trips_and_weights_load(name, tmp_path):
    config = EncoderConfig.model_validate(ENCODERS[name])
    assert EncoderConfig.model_validate(config.model_dump(mode="json")) == config
    model, other = encoder_of(name), encoder_of(name, seed=2)
    save_weights(tmp_path / "weights.safetensors", model)
    load_weights(tmp_path / "weights.safetensors", other)
    for ours, theirs in zip(outputs(other, texts_for(name)), outputs(model, texts_for(name)), strict=True):
        assert all(torch.equal(one, two) for one, two in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", ["encoder", "encoder, pre-norm"])
def test_bf16_is_near_fp32(name):
    """Products in bf16 have 8 bits: the loss moves a little, and the gradient points the same way."""
    model, batch = encoder_of(name).train(), labelled(texts_for(name), LABELS)

    def loss_and_gradient(precision):
        step = Step(model, SequenceClass(), precision)
        model.zero_grad()
        loss, _ = step(batch, step.counts(batch))
        loss.backward()
        return loss.item(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    (exact, right), (near, left) = loss_and_gradient("fp32"), loss_and_gradient("bf16")
    assert near == pytest.approx(exact, rel=0.05)
    assert torch.cosine_similarity(left, right, 0) > 0.98
