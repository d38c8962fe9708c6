"""The laws, for encoders of texts and models of images, with a label for each sequence."""

import pytest
import torch
from cases import (
    ENCODERS,
    END,
    IMAGES,
    LABELLED,
    LABELS,
    READERS,
    every_labelled,
    images_for,
    labelled,
    labelled_batch,
    labelled_configuration,
    labelled_model,
    layers_of,
    reader_configuration,
    reader_of,
    reads_pairs,
    same,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.artifacts.weights import load_weights, save_weights
from heedful.nn.attention import kernels
from heedful.nn.declarations import declared, without_gradient
from heedful.nn.experts import NoisyTopKGate
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.visibility import Window
from heedful.objectives.classification import SequenceClass, class_logits
from heedful.training.model_with_loss import ModelWithLoss

NAN = float("nan")
KINDS = {
    name: {(layer.norm.kind, layer.channels.kind) for layer in layers_of(labelled_configuration(name))}
    for name in LABELLED
}
UNCOUPLED = [name for name in LABELLED if not {norm for norm, _ in KINDS[name]} & {"batch", "power"}]
WITHOUT_EXPERTS = [name for name in UNCOUPLED if "experts" not in {channels for _, channels in KINDS[name]}]


def outputs(model, batch):
    """Hidden states of each sequence, and the logits of its classes."""
    hidden, layout = model(batch.inputs), batch.inputs.layout
    return [*hidden.split(list(layout.lengths))], [*class_logits(hidden, model.heads, layout)]


@every_labelled
@pytest.mark.parametrize("fused_from", [0, 1 << 30])
def test_batched_equals_single(name, fused_from, monkeypatch):
    monkeypatch.setattr(kernels, "CPU_SDPA_FROM", fused_from)
    model = labelled_model(name)
    together = outputs(model, labelled_batch(name))
    alone = [outputs(model, labelled_batch(name, [i])) for i in range(len(LABELS))]
    same(together[0], [hidden for (hidden,), _ in alone])
    same(together[1], [logits for _, (logits,) in alone])


@every_labelled
@settings(max_examples=3, deadline=None)
@given(order=st.permutations(range(4)))
def test_packed_in_any_order_equals_any_other(name, order):
    model = labelled_model(name)
    straight, moved = (outputs(model, labelled_batch(name, rows)) for rows in (range(4), order))
    for ours, theirs in zip(moved, straight, strict=True):
        same(ours, [theirs[i] for i in order])


def entered(model, inputs):
    """What enters a model: pixels, or embedded tokens; the rows of each sequence; how it runs on others."""
    if isinstance(inputs, Images):
        rows = [[i] for i in range(len(inputs.pixels))]
        return inputs.pixels.clone(), rows, lambda pixels: model(Images(pixels, inputs.layout))

    def run(x):
        handle = model.embedding.register_forward_hook(lambda *_: x)
        hidden = model(inputs)
        handle.remove()
        return hidden

    x = model.embedding(inputs).detach()
    return x, [part.tolist() for part in torch.arange(len(x)).split(list(inputs.layout.lengths))], run


@every_labelled
@pytest.mark.parametrize("value", [NAN, 1e3])
def test_the_other_sequences_change_nothing(name, value):
    model, inputs = labelled_model(name), labelled_batch(name).inputs
    x, rows, run = entered(model, inputs)
    good, bad = [row for i in (0, 2, 3) for row in rows[i]], rows[1]

    def seen(x):
        hidden = run(x)
        parts = hidden.split(list(inputs.layout.lengths))
        return [*(parts[i] for i in (0, 2, 3)), class_logits(hidden, model.heads, inputs.layout)[[0, 2, 3]]]

    x.requires_grad_()
    clean = seen(x)
    (grad,) = torch.autograd.grad(sum(part.square().sum() for part in clean), x)
    assert not grad[bad].any()
    changed = x.detach().clone()
    changed[bad] = value
    after = seen(changed.requires_grad_())
    same(after, clean)
    (again,) = torch.autograd.grad(sum(part.square().sum() for part in after), changed)
    same(again[good], grad[good])


def reach_of(mixer):
    """How many tokens a mixer reads on either side; at least 6: all."""
    pattern = getattr(mixer, "pattern", None)
    return pattern.size - 1 if isinstance(pattern, Window) else getattr(mixer, "kernel", 12) // 2


@pytest.mark.parametrize("name", ENCODERS)
def test_tokens_read_ahead_and_say_so(name):
    """All of them; of mixers with a kernel or a window, those that all layers cover; of a recurrence, its
    direction.
    """
    model, config = reader_of(name), reader_configuration(name)
    one, other = (model(Tokens.of([[4, 9, 11, 7, last, 5]])) for last in (12, 13))
    reach = sum(reach_of(block.mixer.part) for block in model.stack.blocks)
    one_way = {"left-to-right": range(4, 6), "right-to-left": range(5)}
    direction = getattr(config.layer.mixer, "direction", "both")
    near = one_way.get(direction, range(max(0, 4 - reach), min(6, 5 + reach)))
    assert (one != other).any(1).tolist() == [place in near for place in range(6)]
    assert ("non_causal" in declared(model)) == (near[0] < 4)


@pytest.mark.parametrize("name", READERS)
def test_a_causal_reader_reads_nothing_ahead(name):
    """And its last token, which stands for the text, has seen the first."""
    model = reader_of(name)
    assert "non_causal" not in declared(model)
    one, other = (Tokens.of([[END, 9, 11, 7, changed, 8, END]]) for changed in (12, 13))
    changed = (model(one) != model(other)).any(1).tolist()
    assert changed == [False] * 4 + [True] * 3
    first, second = (Tokens.of([[END, begun, 11, 7, 12, 8, END]]) for begun in (9, 10))
    logits = [class_logits(model(inputs), model.heads, inputs.layout) for inputs in (first, second)]
    assert not torch.equal(*logits)


@pytest.mark.parametrize("name", UNCOUPLED)
def test_train_mode_without_dropout_equals_eval_mode(name, monkeypatch):
    """Without the noise of experts, too."""
    monkeypatch.setattr(NoisyTopKGate, "draw", lambda self, like: torch.zeros_like(like))
    model, batch = labelled_model(name), labelled_batch(name)
    evaluated, trained = outputs(model, batch), outputs(model.train(), batch)
    same(trained[0], evaluated[0])
    same(trained[1], evaluated[1])


@pytest.mark.parametrize("name", WITHOUT_EXPERTS)
def test_accumulated_micro_batches_equal_one_large_step(name):
    model = labelled_model(name).train()

    def gradients(parts):
        step = ModelWithLoss(model, SequenceClass(0.1))
        batches = [labelled_batch(name, part) for part in parts]
        counts = {"class": len(LABELS), "correct": len(LABELS)}
        model.zero_grad()
        losses = [step(batch, counts)[0] for batch in batches]
        sum(losses).backward()
        return sum(losses).detach(), [p.grad for p in model.parameters() if p.grad is not None]

    same(gradients([[0], [3, 1], [2]]), gradients([[0, 1, 2, 3]]))


def waking(name):
    """Inputs in which every id, position and segment occurs, or images enough to wake every unit."""
    if name in IMAGES:
        inputs = images_for(name, n=7)
        return Images(inputs.pixels.double(), inputs.layout)
    ids = iter(torch.randperm(30).add(7).tolist())
    texts = [[next(ids) for _ in range(n)] for n in (14, 13, 3)]
    pairs = reads_pairs(name)
    return labelled(name, [[text[:6], text[6:]] if pairs else [text] for text in texts], [0, 3, 4]).inputs


@every_labelled
def test_every_parameter_gets_a_gradient_unless_declared(name):
    """In double precision, where zero and small are far apart."""
    model, inputs = labelled_model(name).double().train(), waking(name)
    for part in model.modules():
        if isinstance(getattr(part, "activation", None), torch.nn.ReLU):
            part.activation = torch.nn.GELU()
    hidden = model(inputs)
    logits = model.heads["class"](model.heads["pooled"](hidden, inputs.layout))
    # A sum over tokens, so that all rows of the last layer count, and one over classes.
    loss = (hidden * torch.randn_like(hidden)).sum() + (logits * torch.randn_like(logits)).sum()
    loss.backward()
    # Of the specials, those that are not among the inputs have no gradient.
    specials = {*range(7)} - {*inputs.ids.tolist()} if name not in IMAGES else set()
    allowed = {**without_gradient(model), "embedding.weight": specials}
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        rows_moved = parameter.grad.reshape(len(parameter) if parameter.dim() else 1, -1).abs().amax(1)
        zeros = set((rows_moved < 1e-12).nonzero().flatten().tolist())
        assert zeros == set(allowed.get(parameter_name, ())), parameter_name


@every_labelled
def test_a_configuration_round_trips_and_weights_load(name, tmp_path):
    config = labelled_configuration(name)
    assert type(config).model_validate(config.model_dump(mode="json")) == config
    model, other, batch = labelled_model(name), labelled_model(name, seed=2), labelled_batch(name)
    save_weights(tmp_path / "weights.safetensors", model)
    load_weights(tmp_path / "weights.safetensors", other)
    for ours, theirs in zip(outputs(other, batch), outputs(model, batch), strict=True):
        assert all(torch.equal(one, two) for one, two in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", ["encoder", "encoder, pre-norm", "vit", "mlp-mixer", "resnet, small root"])
def test_bf16_is_near_fp32(name):
    """Products in bf16 have 8 bits: the loss moves a little, and the gradient points the same way."""
    model, batch = labelled_model(name).train(), labelled_batch(name)

    def loss_and_gradient(precision):
        step = ModelWithLoss(model, SequenceClass(), precision)
        model.zero_grad()
        loss, _ = step(batch, step.counts(batch))
        loss.backward()
        return loss.item(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    (exact, right), (near, left) = loss_and_gradient("fp32"), loss_and_gradient("bf16")
    assert near == pytest.approx(exact, rel=0.05)
    assert torch.cosine_similarity(left, right, 0) > 0.98
