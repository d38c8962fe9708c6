"""Guided attention against loops and finite differences; what it changes in a step, and what not."""

import math

import pytest
import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.models.language_model import LanguageModelConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.nn.taps import recording
from heedful.objectives.cross_entropy import NextToken
from heedful.objectives.guided import Guidance, guided_loss
from heedful.objectives.terms import AuxiliaryLoss
from heedful.training.model_with_loss import ModelWithLoss

V = 17
TRANSFORMER = TransformerConfig(
    d_model=14, n_layers=3, dropout=0.0, layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}}
)
RECURRENT = RecurrentConfig(d_embedding=5, d_hidden=7, d_readout=11)
HEADS = RecurrentConfig.model_validate(
    {
        "d_embedding": 5,
        "d_hidden": 7,
        "attention": {"kind": "multi-head-additive", "n_heads": 3, "d_k": 5, "d_v": 4},
    }
)
SOURCES = [[3, 4, 5], [6], [7, 8]]
TARGETS = [[9, 10], [11, 12, 13], [14]]
PAIRS = [[(0, 1), (0, 2), (1, 0)], [(2, 0)], []]  # target, source


def batch_of(rows=(0, 1, 2)):
    batch = Batch.teacher_forced([SOURCES[r] for r in rows], [TARGETS[r] for r in rows], start=1, end=2)
    return batch.linked([[place for pair in PAIRS[r] for place in pair] for r in rows])


def model_of(config=TRANSFORMER, seed=1):
    torch.manual_seed(seed)
    model = build_model(config, V, V)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def by_loops(weights, later=0):
    """The sum over target tokens, and how many there are; ``weights [B, Q, S]`` of one head.

    Token t is looked for in row t, or in one that comes ``later``.
    """
    total, n = 0.0, 0
    for own, pairs in zip(weights, PAIRS, strict=True):
        for token in {t for t, _ in pairs}:
            sources = [s for t, s in pairs if t == token]
            total -= sum(math.log(own[token + later, s]) for s in sources) / len(sources)
            n += 1
    return total, n


@pytest.mark.parametrize(("decoder_step", "later"), [("output", 0), ("input", 1)])
@pytest.mark.parametrize(
    ("config", "layer", "head"), [(TRANSFORMER, 0, 1), (TRANSFORMER, 2, 0), (RECURRENT, 0, 0), (HEADS, 0, 2)]
)
def test_the_term_is_the_cross_entropy_of_one_head(config, layer, head, decoder_step, later):
    model, batch = model_of(config), batch_of()
    step = ModelWithLoss(model, NextToken(0.1), auxiliary=[Guidance(model, 0.3, layer, head, decoder_step)])
    with recording(model, model.alignment_taps) as seen:
        loss, terms = step(batch, counts := step.counts(batch))
    plain, _ = ModelWithLoss(model, NextToken(0.1))(batch, counts)
    total, n = by_loops(seen[model.alignment_taps[layer]][0][:, head].detach(), later)
    term = {each.name: each for each in terms}["alignment"]
    assert (term.count, term.weight, counts["alignment"]) == (n, 0.3, n) == (3, 0.3, 3)
    assert float(term.sum) == pytest.approx(total, rel=1e-5)
    assert float(loss.detach()) == pytest.approx(float(plain.detach()) + 0.3 * total / n, rel=1e-5)


@pytest.mark.parametrize(("n_layers", "place"), [(1, 0), (2, 0), (3, 1)])
def test_the_layer_is_the_last_but_one_unless_it_is_named(n_layers, place):
    model = model_of(TRANSFORMER.model_copy(update={"n_layers": n_layers}))
    assert Guidance(model).taps == [model.alignment_taps[place]]
    assert Guidance(model, layer=n_layers - 1).taps == [model.alignment_taps[-1]]
    assert isinstance(Guidance(model), AuxiliaryLoss)
    with pytest.raises(ValueError, match="layer must be below"):
        Guidance(model, layer=n_layers)


def test_the_gradient_of_the_loss_is_that_of_finite_differences():
    links = batch_of().links
    scores = torch.randn(3, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: guided_loss(x.softmax(-1), links), (scores,))
    # With respect to scores, a row's gradient is alpha - G; rows without links have none.
    guided_loss(scores.softmax(-1), links).backward()
    wanted = torch.zeros(3, 4, 4, dtype=torch.float64)
    for b, pairs in enumerate(PAIRS):
        for token in {t for t, _ in pairs}:
            wanted[b, token] = scores[b, token].detach().softmax(-1)
            own = [s for t, s in pairs if t == token]
            wanted[b, token, own] -= 1 / len(own)
    torch.testing.assert_close(scores.grad, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("config", [TRANSFORMER, RECURRENT], ids=["transformer", "recurrent"])
def test_the_gradient_through_the_model_is_that_of_finite_differences(config):
    model, batch = model_of(config), batch_of()
    guidance = Guidance(model)

    def term():
        with guidance.attached(batch) as terms:
            model(batch.inputs, batch.source)
        return terms()[0].sum

    term().backward()
    moved = [
        (name, p) for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0.01
    ]
    assert len(moved) > 3
    for name, parameter in moved:
        # Along its gradient, with a step that fp32 can see.
        direction = parameter.grad / parameter.grad.norm()
        with torch.no_grad():
            values = []
            for sign in (1, -2):
                parameter += sign * 1e-3 * direction
                values.append(float(term()))
            parameter += 1e-3 * direction
        slope = (values[0] - values[1]) / 2e-3
        assert slope == pytest.approx(float(parameter.grad.norm()), rel=0.05, abs=5e-3), name


def gradients(model, batches, *inside):
    step = ModelWithLoss(model, NextToken(0.1), auxiliary=inside)
    each = [step.counts(batch) for batch in batches]
    counts = {name: sum(count[name] for count in each) for name in each[0]}
    model.zero_grad()
    for batch in batches:
        step(batch, counts)[0].backward()
    return [p.grad.clone() for p in model.parameters()]


def test_a_weight_of_zero_changes_nothing_and_is_reported():
    model = model_of()
    plain, guided = gradients(model, [batch_of()]), gradients(model, [batch_of()], Guidance(model, 0.0))
    torch.testing.assert_close(guided, plain)
    step = ModelWithLoss(model, NextToken(0.1), auxiliary=[Guidance(model, 0.0)])
    assert "alignment" in [term.name for term in step(batch_of(), step.counts(batch_of()))[1]]
    assert not all(
        torch.allclose(a, b)
        for a, b in zip(gradients(model, [batch_of()], Guidance(model, 1.0)), plain, strict=True)
    )


def test_accumulated_micro_batches_equal_one_large_step():
    """Also where a part has links and another none."""
    model = model_of()
    whole = gradients(model, [batch_of()], Guidance(model, 0.7))
    for parts in ([(0,), (1, 2)], [(0, 1), (2,)]):
        torch.testing.assert_close(
            gradients(model, [batch_of(p) for p in parts], Guidance(model, 0.7)), whole
        )


def test_without_links_the_model_runs_as_it_always_does():
    model = model_of()
    batch = Batch.teacher_forced(SOURCES, TARGETS, start=1, end=2)
    step = ModelWithLoss(model, NextToken(), auxiliary=[Guidance(model)])
    assert step.counts(batch).keys() == {"token", "nll"}
    attention = model.get_submodule(step.auxiliary[1].taps[0].removesuffix(".weights"))
    listened = []
    attention.out.register_forward_pre_hook(lambda *_: listened.append(attention.weights.has_hooks))
    step(batch, step.counts(batch))
    step(batch_of(), step.counts(batch_of()))
    assert listened == [False, True]
    assert not attention.weights.has_hooks


def test_bf16_is_near_fp32():
    model = model_of()
    found = []
    for precision in ("fp32", "bf16"):
        step = ModelWithLoss(model, NextToken(0.1), precision, [Guidance(model, 1.0)])
        found.append(
            {t.name: float(t.sum) for t in step(batch_of(), step.counts(batch_of()))[1]}["alignment"]
        )
    assert found[1] != found[0]
    assert found[1] == pytest.approx(found[0], rel=0.03)


def test_a_weight_of_exactly_zero_is_dear_but_finite():
    weights = torch.zeros(3, 4, 4, requires_grad=True)
    loss = guided_loss(weights, batch_of().links)
    loss.backward()
    assert 200 < float(loss.detach()) < 300
    assert weights.grad.isfinite().all()


@pytest.mark.full
@pytest.mark.parametrize(("decoder_step", "later"), [("output", 0), ("input", 1)])
@pytest.mark.parametrize("config", [TRANSFORMER, RECURRENT, HEADS], ids=["transformer", "recurrent", "heads"])
def test_descent_on_the_term_alone_brings_the_head_to_the_links(config, decoder_step, later):
    model, batch = model_of(config), batch_of()
    guidance = Guidance(model, step=decoder_step)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(100):
        with recording(model, guidance.taps) as seen, guidance.attached(batch) as terms:
            model(batch.inputs, batch.source)
        optimizer.zero_grad()
        terms()[0].sum.backward()
        optimizer.step()
    weights = seen[guidance.taps[0]][0][:, 0, later:].detach()
    assert float(weights[0, 0, 1:3].sum()) > 0.9
    assert float(weights[0, 0, 1:3].min()) > 0.3
    assert float(weights[0, 1, 0]) > 0.9
    assert float(weights[1, 2, 0]) > 0.9


def test_only_a_stack_in_which_nobody_listens_is_compiled():
    model = model_of()
    step = ModelWithLoss(model, NextToken(), auxiliary=[Guidance(model)])
    step.compile("eager")
    assert step.compiled
    assert model.encoder.compiled is not None
    assert model.decoder.compiled is None


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(2, 3),
        build_model(
            LanguageModelConfig(
                d_model=4, n_layers=1, context=5, layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 3}}
            ),
            V,
        ),
        build_model(
            RecurrentConfig(d_embedding=3, d_hidden=5, attention=None, direction="left-to-right"), V, V
        ),
    ],
    ids=["no model", "language model", "no attention"],
)
def test_without_attention_over_a_source_there_is_nothing_to_guide(model):
    with pytest.raises(ValueError, match="requires a model with attention over a source"):
        Guidance(model)
