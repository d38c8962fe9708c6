"""Integrated gradients: completeness, and the exact values of a linear model."""

import pytest
import torch
from torch import nn

from heedful.explain.attribution import integrated_gradients as module
from heedful.explain.attribution.integrated_gradients import integrated_gradients
from heedful.explain.attribution.measure import Measured
from heedful.explain.capture import prepare_input
from heedful.explain.views import integrated_gradients as view
from heedful.nn.modes import evaluating

RUNS = [
    "classification",
    "pairs",
    "pairs, to their end",
    "sets of labels",
    "regression",
    "tagging",
    "answers",
]
RUNS += ["translation", "one text", "recurrent", "language model", "masked", "images", "captions", "fourier"]


@pytest.mark.parametrize("name", RUNS)
def test_the_scores_of_words_and_the_gap_sum_to_the_change_from_the_baseline(explained, name):
    run, given = explained(name)
    with evaluating(run.model):
        measured = Measured.of(run.model, prepare_input(run, given))
        few, many = (integrated_gradients(measured, most=most, tolerance=0.0) for most in (16, 128))
    assert few.scores.shape == (len(measured.features), len(measured.answers))
    assert (few.steps, many.steps) == (16, 128)
    # The change from the baseline does not depend on the number of steps, and the gap closes.
    changes = [each.scores.sum(0) + each.gap for each in (few, many)]
    torch.testing.assert_close(*changes, rtol=1e-3, atol=1e-3)
    assert (many.gap.abs() <= few.gap.abs() + 1e-4).all()
    assert (many.gap.abs() <= 0.02 * many.scores.abs().sum(0) + 1e-3).all()


@pytest.mark.parametrize("n", [2, 4, 16, 64, 512])
def test_polynomials_of_degree_n_are_integrated_without_error(n):
    alphas = module._points(n).double()
    degrees = torch.arange(min(n, 16) + 1)
    found = module._integral((alphas[:, None] ** degrees)[:, :, None])
    torch.testing.assert_close(found[:, 0], 1 / (degrees + 1).double(), rtol=1e-6, atol=1e-7)
    assert module._interleaved(module._points(n), module._points(2 * n)[1::2]).tolist() == pytest.approx(
        module._points(2 * n).tolist()
    )


@pytest.mark.parametrize("name", ["classification", "tagging", "translation", "images"])
def test_the_scores_are_those_of_a_sum_over_a_thousand_midpoints(explained, name):
    run, given = explained(name)
    with evaluating(run.model):
        measured = Measured.of(run.model, prepare_input(run, given))
        found = integrated_gradients(measured)
        path = module._Path.of(measured)
        _, products = path.at((torch.arange(1000) + 0.5) / 1000)
    wanted = products.mean(0)
    errors = (found.scores - wanted).abs().sum(0)
    assert (errors <= 0.03 * wanted.abs().sum(0) + 1e-3).all()


def test_the_view_says_what_the_baseline_has_and_whether_it_gives_the_answer_too(explained):
    run, given = explained("classification")
    for target in run.labels:
        seen = run.explain(given, target=target, kinds=[], views=["integrated-gradients"])
        values = seen.views["integrated-gradients"]
        (value,), (baseline,), (gap,) = values["values"], values["baseline"], values["gap"]
        assert value == pytest.approx(baseline + sum(values["scores"][0]) + gap, abs=1e-4)
        drawing = view.drawings(seen, values)[0]
        assert f"{value:.2f} = {baseline:.2f} (the mean word at every place) " in drawing.note
        assert ("gives it without them, too" in drawing.note) == (baseline > 0)


class Identity(nn.Module):
    """Hidden states are what the stack reads."""

    def forward(self, x, *args, **options):
        return x


class Mean(nn.Module):
    """The mean over tokens, without the layer that follows it in the model."""

    def forward(self, hidden, layout):
        return layout.pad(hidden).sum(1) / layout.length_tensor[:, None]


def test_of_a_linear_model_each_word_has_the_product_of_its_embedding_and_the_head(explained):
    run, given = explained("sets of labels")  # the log-odds of a label are its logit
    model = run.model
    stack, model.stack = model.stack, Identity()
    pooled, model.heads["pooled"] = model.heads["pooled"], Mean()
    try:
        with evaluating(model):
            measured = Measured.of(model, prepare_input(run, given))
            found = integrated_gradients(measured)
            inputs = measured.prepared.batch.inputs
            embedding, head = model.embedding, model.heads["class"]
            mean = embedding.weight.mean(0)

            def values(ids_without):
                weight = torch.cat((embedding.weight, mean[None]))
                new = torch.func.functional_call(
                    embedding,
                    {"weight": weight},
                    (type(inputs)(ids_without, inputs.layout, inputs.segments),),
                )
                logits = head(model.heads["pooled"](new, inputs.layout))[0]
                return logits[run.labels.index(measured.answers.names[0])]

            whole = values(inputs.ids)
            for tokens, score in zip(measured.features.tokens, found.scores[:, 0], strict=True):
                ids = inputs.ids.clone()
                ids[list(tokens)] = len(embedding.weight)
                torch.testing.assert_close(score, (whole - values(ids)).double(), rtol=1e-3, atol=1e-4)
    finally:
        model.stack, model.heads["pooled"] = stack, pooled
    assert found.steps == 16
    assert found.gap.abs().max() < 1e-4
