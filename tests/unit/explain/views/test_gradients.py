"""Gradients of images: a linear model's are its weights; finite differences; what is drawn of them.

Those of texts are in `tests/unit/explain/test_views.py`.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from torch import nn

from heedful.api.run import load
from heedful.data.batch import Batch
from heedful.explain.attention_sites import NO_MAPS
from heedful.explain.capture import explain_input, prepare_input
from heedful.explain.drawing.heat_map import figure_of
from heedful.explain.drawing.on_figure import PLAIN
from heedful.explain.drawing.on_terminal import lines
from heedful.explain.views import view_module
from heedful.explain.views.gradients import block_sums, compute
from heedful.nn.patches import Images
from heedful.tasks.model_input import INPUT, AnswerOptions, ModelInput, PredictionTargets
from heedful.tasks.prediction import Prediction

OF_IMAGES = {
    "images": INPUT,
    "images without class token": INPUT,
    "resnet": INPUT,
    "captions": "source",
    "captions of cells": "source",
    "show, attend and tell": "source",
}
STEP = 1e-3


# A model whose gradients are known


class Linear(nn.Module):
    """``z = W vec(x) + b``: the hidden states are the logits."""

    def __init__(self, n_pixels, n_classes):
        super().__init__()
        self.output = nn.Linear(n_pixels, n_classes)

    def forward(self, inputs, source=None):
        return self.output(inputs.pixels.flatten(1))


def linear(numbers=None):
    """A linear model, what it reads, ``[2, 3, 5]``, and the question which of 7 classes that is."""
    torch.manual_seed(0)
    model, pixels = Linear(30, 7), torch.randn(1, 2, 3, 5)
    targets = PredictionTargets(
        INPUT,
        (),
        torch.tensor([4]),
        lambda hidden, batch: iter([hidden]),
        lambda i, c: f"class {c}",
        numbers=numbers,
    )
    reading = ModelInput(Batch.of_images(Images.of(pixels, 1), [0]), {}, Prediction("class 4"), targets)
    return model, pixels[0], compute(SimpleNamespace(model=model), reading, ())


def test_of_a_linear_score_products_are_weights_times_pixels_and_sum_to_it():
    model, pixels, found = linear(lambda hidden, batch: hidden[:, 4])
    weight = model.output.weight[4].detach().unflatten(0, pixels.shape)
    (own,) = found["images"]
    np.testing.assert_allclose(own["products"], (weight * pixels).sum(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(own["norms"], weight.square().sum(0).sqrt(), rtol=1e-4)
    assert np.sum(own["products"]) == pytest.approx(found["score"] - model.output.bias[4].item(), abs=1e-4)
    assert (own["name"], found["sides"]) == (INPUT, [])


def test_of_a_linear_classifier_they_weigh_its_class_against_the_mean_of_all():
    """``log p_4 = z_4 - log sum_c exp z_c``, so its gradient is ``w_4 - sum_c p_c w_c``."""
    model, pixels, found = linear()
    weight, bias = (parameter.detach().double().numpy() for parameter in model.output.parameters())
    logits = weight @ pixels.double().numpy().ravel() + bias
    shares = np.exp(logits) / np.exp(logits).sum()
    gradient = (weight[4] - shares @ weight).reshape(pixels.shape)
    (own,) = found["images"]
    np.testing.assert_allclose(own["products"], (gradient * pixels.numpy()).sum(0), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(own["norms"], np.sqrt((gradient**2).sum(0)), rtol=1e-3)
    assert found["score"] == pytest.approx(math.log(shares[4]), abs=1e-5)


# Models as they are


def score(model, reading, pixels):
    """Of the answer, with other pixels than the reading's."""
    batch, name = reading.batch, "source" if reading.batch.source is not None else "inputs"
    batch = replace(batch, **{name: replace(getattr(batch, name), pixels=pixels)})
    with torch.no_grad():
        return reading.targets.scores(model(batch.inputs, batch.source), batch).double().sum().item()


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_IMAGES)
def test_products_are_the_slopes_of_the_score_when_a_pixel_grows(explained, name):
    own_run, given = explained(name)
    run = load(own_run.folder.path, device="cpu")
    # A class that is as good as certain has no slope, so another is asked about.
    answer, labels = run.predict([given])[0].text, getattr(run.processor, "labels", ())
    reading = prepare_input(
        run, given, options=AnswerOptions(target=next((label for label in labels if label != answer), None))
    )
    (own,) = compute(run, reading, ())["images"]
    assert own["name"] == OF_IMAGES[name]
    run.model.double()
    batch = reading.batch
    pixels = (batch.inputs if batch.source is None else batch.source).pixels.double()
    for row in range(pixels.shape[2]):
        for column in range(pixels.shape[3]):
            values = []
            for by in (1 + STEP, 1 - STEP):
                changed = pixels.clone()
                changed[:, :, row, column] *= by
                values.append(score(run.model, reading, changed))
            slope = (values[0] - values[1]) / (2 * STEP)
            # Logits are taken in 32 bits, which leaves some 1e-3 of a difference of STEP.
            assert own["products"][row][column] == pytest.approx(slope, abs=5e-3, rel=5e-3)
    assert max(abs(value) for line in own["products"] for value in line) > 0.02


def test_patches_have_products_of_their_own_where_they_are_embedded(explained):
    run, given = explained("images")
    found = compute(run, prepare_input(run, given), ())
    assert [side["name"] for side in found["sides"]] == [INPUT]
    assert np.shape(found["sides"][0]["products"]) == (5,)  # the class token, and 2 x 2 patches
    assert np.shape(found["images"][0]["products"]) == (6, 6)


# What is shown


def test_pixels_and_patches_stand_beside_the_image(explained):
    seen = explain_input(*explained("images"), views=["gradients"])
    values = seen.views["gradients"]
    pixels, patches = (np.abs(values[part][0]["products"]) for part in ("images", "sides"))
    beside, _ = view_module("gradients").drawings(seen, values)
    drawn = beside.to_dict()
    one, other = drawn["images"]
    assert (drawn["kind"], drawn["side"], drawn["apart"]) == ("patches", INPUT, True)
    assert (one["grid"], one["values"]) == ([6, 6], pixels.ravel().tolist())
    assert (other["grid"], other["values"]) == ([2, 2], patches[1:].tolist())
    assert f"<cls> {patches[0]:.3g}" in other["label"]
    photo, first, second = [axes for axes in figure_of(seen).axes if axes.get_title()]
    assert photo.get_title() == "the image"
    for axes, wanted in ((first, pixels), (second, patches[1:].reshape(2, 2))):
        (image,) = axes.images
        np.testing.assert_array_equal(np.asarray(image.get_array()), wanted)


def test_the_terminal_has_sums_over_patches(explained):
    seen = explain_input(*explained("resnet"), maps=NO_MAPS, views=["gradients"])
    values, (rows, columns) = seen.views["gradients"], seen.axes[INPUT].grid
    pixels = np.abs(values["images"][0]["products"])
    sums = pixels.reshape(rows, 6 // rows, columns, 6 // columns).sum(axis=(1, 3))
    *_, drawing = view_module("gradients").drawings(seen, values)
    assert drawing.media == {"terminal"}
    (panel,) = drawing.panels
    np.testing.assert_allclose(panel.values, sums)
    assert f"total {pixels.sum():.4g}" in panel.label
    assert "it has no sign" in drawing.note
    assert f"{values['score']:.4f}" in drawing.note


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-9])
def test_the_terminal_tells_numbers_of_any_size(explained, scale):
    """An answer that is sure has small gradients."""
    seen = explain_input(*explained("translation"), views=["gradients"])
    for side in seen.views["gradients"]["sides"]:
        for name in ("products", "norms"):
            side[name] = [value * scale for value in side[name]]
    drawings = view_module("gradients").drawings(seen, seen.views["gradients"])
    for drawing, side in zip(drawings, seen.views["gradients"]["sides"], strict=True):
        n = len(side["products"])
        rows = [line.split() for line in lines(drawing, seen.axes)[2 : 2 + n]]
        for number, name in enumerate(("products", "norms")):
            found = [float(row[number]) for row in rows]
            assert found == pytest.approx(np.abs(side[name]), abs=1e-2 * max(map(abs, side[name])))


def test_of_texts_each_token_has_a_bar(explained):
    seen = explain_input(*explained("translation"), views=["gradients"])
    drawings = view_module("gradients").drawings(seen, seen.views["gradients"])
    assert [drawing.axis for drawing in drawings] == ["source", "prefix"]
    for drawing, side in zip(drawings, seen.views["gradients"]["sides"], strict=True):
        assert drawing.values == [abs(product) for product in side["products"]]
        assert drawing.others == {"gradient norm": side["norms"]}
    for each, side in zip(figure_of(seen).axes, seen.views["gradients"]["sides"], strict=True):
        assert [bar.get_width() for bar in each.patches] == [abs(product) for product in side["products"]]
        assert {bar.get_facecolor() for bar in each.patches} == {to_rgba(PLAIN)}
        assert [label.get_text() for label in each.get_yticklabels()] == [*seen.axes[side["name"]].tokens]


# Sums over patches


@pytest.mark.parametrize(("size", "grid"), [((6, 6), (2, 3)), ((7, 11), (3, 5)), ((5, 2), (5, 1))])
def test_sums_over_patches_are_those_of_a_loop(size, grid):
    values = np.random.default_rng(3).normal(size=size)
    wanted = np.zeros(grid)
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            # The last patch that begins no later than the pixel.
            r, c = (
                max(n for n in range(g) if n * s // g <= at)
                for at, g, s in zip((i, j), grid, size, strict=True)
            )
            wanted[r, c] += value
    np.testing.assert_allclose(block_sums(values, grid), wanted)


def test_more_patches_than_pixels_are_refused():
    with pytest.raises(ValueError, match="patches"):
        block_sums(np.ones((2, 3)), (3, 3))
