"""Scheduled sampling: the decays of the paper, which inputs are replaced and by what, and what stays."""

import math

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from heedful.data.batch import Batch
from heedful.models.language_model import LanguageModelConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.nn.layout import Tokens
from heedful.objectives.cross_entropy import NextToken
from heedful.tasks.generation.sequence_formats import ENCODER_DECODER, ConcatenatedFormat
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.scheduled_sampling import (
    DecayConfig,
    ExponentialDecay,
    InverseSigmoidDecay,
    LinearDecay,
    ScheduledSampling,
)

V, UNREAD = 31, range(7)
LAYER = {"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}}
CONFIGS = {
    "transformer": TransformerConfig(d_model=14, n_layers=2, dropout=0.3, layer=LAYER),
    "batch norm": TransformerConfig(d_model=14, n_layers=2, dropout=0.0, layer={**LAYER, "norm": "batch"}),
    "recurrent": RecurrentConfig(d_embedding=5, d_hidden=7, d_readout=11, dropout=0.3),
    "language model": LanguageModelConfig(d_model=14, n_layers=2, context=29, dropout=0.3, layer=LAYER),
}
every_config = pytest.mark.parametrize("name", CONFIGS)
SOURCES = [[23, 24, 9], [25], [7, 28], []]
TARGETS = [[11, 12], [13, 14, 15, 16, 17], [], [21, 22, 23]]
SAMPLES = (5, 0, 9, 3)

GOLD, OWN = LinearDecay(offset=1.0, slope=0.0), LinearDecay(offset=0.0, slope=0.0)
HALF = LinearDecay(offset=0.5, slope=0.0)


def sampling(decay, seed=1, chunk=3):
    return ScheduledSampling(decay, seed, UNREAD, chunk)


def model_of(name):
    torch.manual_seed(2)
    config = CONFIGS[name]
    model = build_model(config, *[V] * (1 + (config.kind != "language-model")))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)  # predictions differ from place to place
    return model.train()


def batch_of(name, sources=SOURCES, targets=TARGETS, samples=SAMPLES):
    is_one_text = CONFIGS[name].kind == "language-model"
    sequence_format = ConcatenatedFormat(29) if is_one_text else ENCODER_DECODER
    return sequence_format.collate(sources, targets, samples)


@torch.no_grad()
def own_inputs(model, batch):
    """Replace every input that has a prediction by the most probable word after the correct prefix."""
    model.eval()
    inputs = batch.inputs.split()
    mixed = [list(ids) for ids in inputs]
    for i, (ids, n) in enumerate(zip(inputs, batch.n_answers, strict=True)):
        source = None if batch.source is None else Tokens.of([batch.source.split()[i]])
        for place in range(len(ids) - n + 1, len(ids)):
            logits = model.heads["token"](model(Tokens.of([ids[:place]]), source))[-1]
            mixed[i][place] = max(range(len(UNREAD), V), key=lambda token: float(logits[token]))
    model.train()
    return mixed


def test_the_decays_are_those_of_the_paper():
    for i in (1, 7, 100, 5000):
        linear = LinearDecay(offset=0.9, slope=1e-3, floor=0.25)
        assert linear.probability(i) == pytest.approx(max(0.25, 0.9 - 1e-3 * i))
        assert ExponentialDecay(base=0.995).probability(i) == pytest.approx(0.995**i)
        k = 40.0
        wanted = k / (k + math.exp(i / k))
        assert InverseSigmoidDecay(k=k).probability(i) == pytest.approx(wanted, rel=1e-9)


def test_probabilities_stay_between_0_and_1_and_never_rise():
    decays = [
        LinearDecay(offset=3.0, slope=0.01),
        LinearDecay(offset=0.5, slope=1e30),
        ExponentialDecay(base=1e-30),
        InverseSigmoidDecay(k=1.0),
        InverseSigmoidDecay(k=1e6),
    ]
    for decay in decays:
        found = [decay.probability(i) for i in (1, 2, 10, 250, 10**4, 10**9)]
        assert found == sorted(found, reverse=True)
        assert all(0 <= p <= 1 for p in found)
    assert decays[0].probability(250) == pytest.approx(0.5)
    k = 100.0
    assert InverseSigmoidDecay(k=k).probability(round(k * math.log(k))) == pytest.approx(0.5, abs=0.01)
    around = [InverseSigmoidDecay(k=k).probability(round(k * math.log(k) + d * k)) for d in (-2, 2)]
    assert around == pytest.approx([0.88, 0.12], abs=0.01)


@pytest.mark.parametrize(
    "section",
    [
        {"kind": "linear"},
        {"kind": "linear", "slope": -0.1},
        {"kind": "linear", "slope": 0.1, "floor": 1.5},
        {"kind": "exponential", "base": 1.0},
        {"kind": "inverse-sigmoid", "k": 0.5},
        {"kind": "cosine"},
    ],
)
def test_other_decays_are_refused(section):
    with pytest.raises(ValidationError):
        TypeAdapter(DecayConfig).validate_python(section)


@every_config
def test_without_the_reference_all_inputs_are_the_predictions_of_a_forced_pass(name):
    model, batch = model_of(name), batch_of(name)
    mixed = sampling(OWN).mixed(model, batch, 1)
    expected = own_inputs(model, batch)
    assert mixed.inputs.split() == expected
    assert mixed.inputs.split() != batch.inputs.split()
    assert torch.equal(mixed.targets, batch.targets)
    assert mixed.inputs.layout is batch.inputs.layout
    assert model.training
    assert all(part.training for part in model.modules())


@every_config
def test_with_the_reference_alone_the_batch_is_the_same_and_the_model_does_not_run(name):
    batch = batch_of(name)
    assert sampling(GOLD).mixed(nn.Module(), batch, 1) is batch


def test_a_share_of_the_inputs_is_replaced_each_by_its_own_prediction():
    model, name = model_of("transformer"), "transformer"
    targets = [[7 + (i * j) % 24 for j in range(19)] for i in range(40)]
    batch = batch_of(name, [[8, 9]] * 40, targets, range(40))
    mixed, own = sampling(HALF).mixed(model, batch, 3), sampling(OWN).mixed(model, batch, 3)
    replaced = torch.zeros(len(batch.inputs.ids), dtype=torch.bool)
    replaced[sampling(HALF).replaced(batch, 3) + 1] = True
    assert torch.equal(mixed.inputs.ids, torch.where(replaced, own.inputs.ids, batch.inputs.ids))
    # 760 inputs; three standard deviations are 41.
    assert 330 < int(replaced.sum()) < 430
    assert not replaced[batch.inputs.layout.offsets[:-1]].any()


def replaced_by_sample(seed, update, samples):
    targets = {sample: [11] * (10 + sample) for sample in samples}
    batch = batch_of("transformer", [[8]] * len(samples), list(targets.values()), samples)
    rows = sampling(HALF, seed).replaced(batch, update)
    marks = torch.zeros(len(batch.targets), dtype=torch.int64)
    marks[rows] = 1
    return dict(zip(samples, Tokens(marks, batch.inputs.layout).split(), strict=True))


def test_what_is_replaced_depends_on_seed_update_and_sample_alone():
    together = replaced_by_sample(1, 4, [2, 7, 11])
    torch.manual_seed(77)
    assert together == {**replaced_by_sample(1, 4, [11, 2]), **replaced_by_sample(1, 4, [7])}
    assert together != replaced_by_sample(1, 5, [2, 7, 11])
    assert together != replaced_by_sample(2, 4, [2, 7, 11])
    assert together[2][:11] != together[7][:11]


def gradients(model, sampled, batch, precision, update):
    torch.manual_seed(4)
    step = ModelWithLoss(model, NextToken(0.1), precision, sampling=sampled)
    model.zero_grad()
    loss, terms = step(batch, step.counts(batch), update)
    loss.backward()
    return [loss.detach(), *(term.sum for term in terms), *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@every_config
def test_the_loss_and_its_gradients_are_those_of_the_mixed_batch(name, precision):
    """Dropout draws the same masks, and no weight loses its gradient to the pass without gradients."""
    model, batch = model_of(name), batch_of(name)
    found = gradients(model, sampling(OWN), batch, precision, 1)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    model = model_of(name)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        mixed = sampling(OWN).mixed(model, batch, 1)
    if precision == "fp32":  # bf16 weights may predict other tokens than bf16 products
        expected = gradients(model, None, mixed, precision, None)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    else:
        assert all(gradient is not None and gradient.isfinite().all() for gradient in found)
        expected = gradients(model, None, batch, precision, None)
        pairs = zip(found[3:], expected[3:], strict=True)
        assert all(bool(a.any()) == bool(b.any()) for a, b in pairs)


@every_config
def test_validation_and_a_share_of_0_are_bit_for_bit_teacher_forcing(name):
    batch = batch_of(name)
    plain = gradients(model_of(name), None, batch, "fp32", 1)
    for sampled, update in ((sampling(GOLD), 1), (sampling(OWN), None)):
        found = gradients(model_of(name), sampled, batch, "fp32", update)
        assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))


@pytest.mark.slow
def test_accumulated_micro_batches_equal_one():
    model = model_of("transformer").double()
    for part in model.modules():
        part.p = 0.0  # dropout draws for each micro-batch
    whole = batch_of("transformer")
    parts = [batch_of("transformer", SOURCES[s], TARGETS[s], SAMPLES[s]) for s in (slice(1, 4), slice(0, 1))]
    step = ModelWithLoss(model, NextToken(0.1), sampling=sampling(HALF))
    counts, found = step.counts(whole), []
    for batches in ([whole], parts):
        model.zero_grad()
        for batch in batches:
            step(batch, counts, 2)[0].backward()
        found.append([p.grad.clone() for p in model.parameters()])
    mixed = sampling(HALF).mixed(model, whole, 2)
    assert not torch.equal(mixed.inputs.ids, whole.inputs.ids)
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_batches_without_sample_numbers_are_supported():
    """Those of measurements of time, for example."""
    numbered, bare = batch_of("recurrent", samples=range(4)), batch_of("recurrent", samples=())
    assert torch.equal(sampling(HALF).replaced(numbered, 1), sampling(HALF).replaced(bare, 1))


def test_a_batch_without_targets_has_nothing_to_replace():
    empty = Batch.delimited([], [], start=1, separate=5, end=2)
    assert sampling(OWN).mixed(nn.Module(), empty, 1) is empty
    single = batch_of("transformer", [[8]], [[]], [0])
    assert sampling(OWN).mixed(nn.Module(), single, 1) is single
