"""Views of models of images: the class token by layers, positions, filters; and positions of texts."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from heedful.errors import RequestError
from heedful.explain.attention_sites import NO_MAPS
from heedful.explain.capture import explain_input
from heedful.explain.drawing.heat_map import figure_of
from heedful.explain.page.packing import LEVELS
from heedful.explain.views import view_module
from heedful.explain.views.filters import patch_filters
from heedful.explain.views.positions import MAX_POSITIONS, position_similarity

HALF = 0.5e-4 + 1e-9


def cosines(table):
    rows = [row / np.linalg.norm(row) for row in np.asarray(table, dtype=float)]
    return np.array([[a @ b for b in rows] for a in rows])


# The class token


def test_every_layer_has_what_the_class_token_looks_at(explained):
    seen = explain_input(*explained("images"), views=["class-token"])
    values = seen.views["class-token"]
    assert [layer["layer"] for layer in values["layers"]] == [0, 1]
    for layer, each in zip(values["layers"], seen.maps, strict=True):
        wanted = each.weights.astype(float).mean(axis=0)[0, 1:].reshape(2, 2)
        np.testing.assert_allclose(layer["weights"], wanted, atol=5.1e-7)
    view = view_module("class-token")
    (drawn,) = (each.to_dict() for each in view.drawings(seen, values))
    rest = [1 - np.sum(layer["weights"]) for layer in values["layers"]]
    labels = [f"layer {n}; <cls> {share:.2f}" for n, share in enumerate(rest, 1)]
    assert [image["label"] for image in drawn["images"]] == labels
    assert drawn["images"][1]["values"] == np.ravel(values["layers"][1]["weights"]).tolist()
    panels = [axes for axes in figure_of(seen).axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["the image", *labels]
    (image,) = panels[2].images
    np.testing.assert_array_equal(np.asarray(image.get_array()), values["layers"][1]["weights"])


@pytest.mark.parametrize("name", ["images without class token", "captions", "classification", "resnet"])
def test_without_a_class_token_in_an_image_there_is_no_such_view(explained, name):
    run, given = explained(name)
    assert not view_module("class-token").supports(run)
    with pytest.raises(RequestError, match="use another view"):
        explain_input(run, given, maps=NO_MAPS, views=["class-token"])


def test_attention_of_the_class_token_needs_selected_attention(explained):
    run, given = explained("images")
    with pytest.raises(RequestError, match="view class-token needs attention; select some"):
        explain_input(run, given, maps=NO_MAPS, views=["class-token"])


# Masks


@pytest.mark.parametrize("name", ["masks", "masks by a transformer"])
def test_a_mask_has_the_class_of_each_pixel(explained, name):
    run, given = explained(name)
    (predicted,) = run.predict([given])
    seen = explain_input(run, given, maps=NO_MAPS, views=["mask"])
    values, view = seen.views["mask"], view_module("mask")
    assert np.array_equal(values["classes"], predicted.mask)
    assert values["labels"] == ["a", "b", "c"]
    assert values["shares"] == pytest.approx(predicted.shares, abs=1e-6)
    beside, shares = view.drawings(seen, values)
    assert (beside.media, shares.media) == ({"page", "image"}, {"terminal"})
    assert shares.rows == [[label, f"{share:.1%}"] for label, share in values["shares"].items()]
    drawn = beside.to_dict()
    assert (drawn["kind"], drawn["side"]) == ("patches", "input")
    for label, image in zip(predicted.shares, drawn["images"], strict=True):
        assert image["label"].startswith(f"{label} ")
        assert image["grid"] == [6, 6]
        wanted = predicted.mask == values["labels"].index(label)
        assert np.array_equal(image["values"], wanted.ravel())
    panels = [axes for axes in figure_of(seen).axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == [
        "the image",
        *(each["label"] for each in drawn["images"]),
    ]


@pytest.mark.parametrize("name", ["images", "captions", "classification"])
def test_other_predictions_have_no_mask(explained, name):
    run, given = explained(name)
    with pytest.raises(RequestError, match="view mask needs masks as predictions"):
        explain_input(run, given, maps=NO_MAPS, views=["mask"])


# Positions


def test_positions_of_patches_are_laid_out(explained):
    run, given = explained("images")
    seen = explain_input(run, given, maps=NO_MAPS, views=["positions"])
    values = seen.views["positions"]
    ((side,), table) = values["sides"], run.model.embedding.positions.positions.weight.detach()
    wanted = cosines(table[1:])  # the first is the class token's
    np.testing.assert_allclose(side["similarity"], wanted, atol=HALF)
    drawn = np.ma.filled(figure_of(seen).axes[0].images[0].get_array(), np.nan)
    np.testing.assert_allclose(drawn[:2, 3:], wanted[1].reshape(2, 2), atol=HALF)
    heat, means = view_module("positions").drawings(seen, values)
    assert (heat.media, means.media) == ({"page", "image"}, {"terminal"})
    # Patches 0 and 1 are in one row, as are 2 and 3.
    assert means.rows == [
        ["same row", f"{(wanted[0, 1] + wanted[2, 3]) / 2:.3f}"],
        ["same column", f"{(wanted[0, 2] + wanted[1, 3]) / 2:.3f}"],
        ["elsewhere", f"{(wanted[0, 3] + wanted[1, 2]) / 2:.3f}"],
    ]


def test_on_the_page_they_are_sixteen_bits_with_nothing_between_patches(explained):
    run, given = explained("images")
    seen = explain_input(run, given, maps=NO_MAPS, views=["positions"])
    drawn = view_module("positions").drawings(seen, seen.views["positions"])[0].to_dict()
    levels = np.frombuffer(base64.b64decode(drawn["levels"]), "<u2").reshape(drawn["size"])
    assert drawn["size"] == [5, 5]
    assert not levels[2].any()
    assert not levels[:, 2].any()
    found = 2 * (levels[:2, :2].astype(float) - 1) / (LEVELS - 1) - 1
    np.testing.assert_allclose(found.ravel(), seen.views["positions"]["sides"][0]["similarity"][0], atol=2e-5)


def test_sinusoids_of_both_sides_of_a_translator(explained):
    run, given = explained("translation")
    seen = explain_input(run, given, maps=NO_MAPS, views=["positions"])
    sides = seen.views["positions"]["sides"]
    assert [side["name"] for side in sides] == ["source", "prefix"]
    for side in sides:
        n = len(seen.axes[side["name"]].tokens)
        # <PE_p, PE_q> = sum_i cos((p - q) omega_i), and |PE_p|^2 is d / 2 (SYSTEM row 48).
        omega = 10000.0 ** (-np.arange(0, 12, 2) / 12)
        wanted = [[np.cos((p - q) * omega).mean() for q in range(n)] for p in range(n)]
        np.testing.assert_allclose(side["similarity"], wanted, atol=HALF + 1e-6)
    _, means, *_ = view_module("positions").drawings(seen, seen.views["positions"])
    assert means.rows[0] == ["distance 1", f"{np.cos(omega).mean():.3f}"]


def test_of_a_long_text_there_are_the_first(explained, monkeypatch):
    monkeypatch.setattr("heedful.explain.views.positions.MAX_POSITIONS", 3)
    assert MAX_POSITIONS == 512
    run, given = explained("classification")
    (side,) = explain_input(run, given, maps=NO_MAPS, views=["positions"]).views["positions"]["sides"]
    assert np.shape(side["similarity"]) == (3, 3)


@pytest.mark.parametrize("name", ["rotary, shared keys", "recurrent", "resnet"])
def test_without_vectors_of_positions_there_is_no_such_view(explained, name):
    assert not view_module("positions").supports(explained(name)[0])


def test_similarities_are_torchs():
    table = np.random.default_rng(1).normal(size=(16, 11))
    table[5] = 0
    given_ = torch.from_numpy(table)
    wanted = torch.nn.functional.cosine_similarity(given_[:, None], given_[None], dim=-1).numpy()
    np.testing.assert_allclose(position_similarity(table), wanted, atol=1e-12)


# Filters


def filters(d=23, channels=3, patch=5, rank=4, seed=0):
    """Filters around a mean that vary in ``rank`` directions, each weaker than the one before."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(channels * patch**2, rank)))[0].T
    strengths = rng.normal(size=(d, rank)) * 10.0 ** -np.arange(rank)
    return strengths @ directions + rng.normal(size=channels * patch**2)


def test_filters_are_the_components_of_the_covariance():
    weight = filters()
    tiles, shares = patch_filters(weight, 5)
    values, vectors = np.linalg.eigh(np.cov(weight.T))
    assert tiles.shape == (4, 5, 5, 3)
    np.testing.assert_allclose(shares, values[::-1][:4] / values.sum(), rtol=1e-6)
    for number, tile in enumerate(tiles):
        component = tile.transpose(2, 0, 1).ravel() - 0.5
        component /= np.linalg.norm(component)
        assert abs(component @ vectors[:, -1 - number]) == pytest.approx(1, abs=1e-6)
        assert tile.max() == 1
        assert tile.min() >= 0


def test_filters_may_be_those_of_a_convolution():
    weight = filters()
    linear, shares = patch_filters(weight, 5, count=2)
    convolution, _ = patch_filters(weight.reshape(23, 3, 5, 5), 5, count=2)
    np.testing.assert_array_equal(convolution, linear)
    assert linear.shape == (2, 5, 5, 3)
    assert len(shares) == 2


def test_the_sign_of_the_filters_does_not_matter():
    weight = filters()
    np.testing.assert_allclose(patch_filters(-weight, 5)[0], patch_filters(weight, 5)[0], atol=1e-9)


def test_a_channel_stays_with_its_colour():
    """Filters that only vary in one pixel of one channel have one component, with that pixel."""
    weight = np.ones((7, 3, 5, 5))
    weight[:, 2, 1, 4] = range(7)
    tiles, shares = patch_filters(weight, 5)
    wanted = np.full((1, 5, 5, 3), 0.5)
    wanted[0, 1, 4, 2] = 1
    np.testing.assert_allclose(tiles, wanted, atol=1e-12)
    np.testing.assert_allclose(shares, [1])


def test_filters_that_do_not_vary_have_no_components():
    tiles, shares = patch_filters(np.ones((7, 2, 5, 5)), 5)
    assert (tiles.shape, shares.shape) == ((0, 5, 5, 2), (0,))


def test_filters_are_the_components_of_the_projection(explained):
    run, given = explained("images")
    seen = explain_input(run, given, maps=NO_MAPS, views=["filters"])
    values = seen.views["filters"]
    weight = run.model.embedding.patches.projection.weight.detach().numpy()
    tiles, shares = patch_filters(weight, 3)
    assert (values["patch"], values["filters"]) == (3, 12)
    np.testing.assert_allclose(values["tiles"], tiles, atol=HALF)
    np.testing.assert_allclose(values["shares"], shares, atol=5.1e-7)
    view = view_module("filters")
    (drawn,) = (each.to_dict() for each in view.drawings(seen, values))
    assert drawn["text"].startswith("12 filters of 3 x 3 pixels: 9 principal components explain 100%")
    assert f"{shares[0]:.1%}, {shares[1]:.1%}" in drawn["note"]
    assert drawn["image"].startswith("data:image/png;base64,")
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(drawn["image"].partition(",")[2]))))
    # Nine tiles, seven beside each other, with a line between them that cannot be seen.
    assert shown.shape == (2 * 4 - 1, 7 * 4 - 1, 2)
    np.testing.assert_allclose(shown[4:7, 4:7, 0] / 255, tiles[8, :, :, 0], atol=0.5 / 255 + HALF)
    assert (shown[:3, :3, 1] == 255).all()
    assert (shown[3, :, 1] == 0).all()
    assert (shown[4:, 8:, 1] == 0).all()
    assert np.asarray(figure_of(seen).axes[0].images[0].get_array()).shape == (7, 27, 4)


def test_filters_that_are_all_alike_have_no_image(explained):
    run, given = explained("captions")
    view = view_module("filters")
    weight = run.model.source_embedding.patches.projection.weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight.zero_()
    try:
        seen = explain_input(run, given, maps=NO_MAPS, views=["filters"])
    finally:
        with torch.no_grad():
            weight.copy_(before)
    values = seen.views["filters"]
    assert (values["tiles"], values["shares"]) == ([], [])
    assert view.drawings(seen, values) == []
    with pytest.raises(RequestError, match=r"the filters are equal.* nothing to draw"):
        figure_of(seen)


@pytest.mark.parametrize("name", ["resnet", "classification", "translation"])
def test_without_patches_there_are_no_filters(explained, name):
    assert not view_module("filters").supports(explained(name)[0])
