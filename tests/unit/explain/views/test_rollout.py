"""The view of all layers together, on real runs, against its functions; what it says and draws of it."""

import numpy as np
import pytest

from heedful.errors import RequestError
from heedful.explain.attention_sites import Selection
from heedful.explain.capture import explain_input
from heedful.explain.drawing.heat_map import figure_of
from heedful.explain.drawing.on_terminal import lines
from heedful.explain.views import view_module
from heedful.explain.views.rollout import rollout, rollout_across

ROUNDED = 5.1e-7
ENCODERS = ["one text", "language model", "masked", "classification", "pairs", "pairs, to their end"]
ENCODERS += ["tagging", "images"]


def matrices(seen):
    found = seen.views["rollout"]["matrices"]
    return {(each["queries"], each["keys"]): np.array(each["weights"]) for each in found}


def stack(seen, queries, keys):
    return [each.weights for each in seen.maps if (each.queries, each.keys) == (queries, keys)]


@pytest.mark.parametrize("name", ENCODERS)
def test_of_a_stack_it_is_the_product_of_its_layers(explained, name):
    seen = explain_input(*explained(name), views=["rollout"])
    ((sides, found),) = matrices(seen).items()
    assert sides == ("input", "input")
    np.testing.assert_allclose(found, rollout(stack(seen, "input", "input")), atol=ROUNDED)


@pytest.mark.parametrize("name", ["translation", "summarisation", "captions"])
def test_a_writer_is_rolled_out_down_to_the_source(explained, name):
    """A decoder looks at the source from what it read: its own layers are of the prefix."""
    seen = explain_input(*explained(name), views=["rollout"])
    found = matrices(seen)
    assert list(found) == [("source", "source"), ("prefix", "prefix"), ("target", "source")]
    encoder = rollout(stack(seen, "source", "source"))
    own, across = rollout_across(stack(seen, "prefix", "prefix"), stack(seen, "target", "source"), encoder)
    for sides, wanted in zip(found, (encoder, own, across), strict=True):
        np.testing.assert_allclose(found[sides], wanted, atol=ROUNDED)
    both = np.concatenate([found["prefix", "prefix"], found["target", "source"]], axis=1)
    np.testing.assert_allclose(both.sum(axis=1), 1, atol=both.shape[1] * ROUNDED)


@pytest.mark.parametrize("name", ["local and compressed", "recurrent", "recurrent, one head"])
def test_what_has_no_stack_that_could_be_rolled_out_says_so(explained, name):
    run, given = explained(name)
    with pytest.raises(RequestError, match=r"view rollout needs a stack .* \(available: l(ens|osses), "):
        explain_input(run, given, views=["rollout"])


@pytest.mark.parametrize("choice", [{"layers": [0]}, {"heads": [0]}, {"heads": [1]}, {"kinds": ["cross"]}])
def test_a_choice_of_attention_is_refused(explained, choice):
    run, given = explained("translation")
    with pytest.raises(RequestError, match="needs all kinds of attention, layers and heads"):
        explain_input(run, given, maps=Selection(**choice), views=["rollout"])


def test_the_terminal_has_a_line_for_each_word(explained):
    seen = explain_input(*explained("translation"), views=["rollout"])
    *_, last = view_module("rollout").drawings(seen, seen.views["rollout"])
    title, *rows = lines(last, seen.axes)
    assert title == "Rollout: share of each source token in each target token"
    words = [*seen.axes["target"].surface, "</s>"]
    assert [row.split()[0] for row in rows] == words


@pytest.mark.parametrize("name", ["images", "images without class token", "captions"])
def test_over_an_image_it_is_laid_out_as_its_patches(explained, name):
    seen = explain_input(*explained(name), views=["rollout"])
    view = view_module("rollout")
    (*_, (sides, weights)) = matrices(seen).items()
    side = seen.axes[sides[1]]
    wanted = (weights[0, 1:] if name == "images" else weights.mean(axis=0)).reshape(side.grid)
    drawn = view.drawings(seen, seen.views["rollout"])[-1].to_dict()
    assert (drawn["kind"], drawn["side"]) == ("patches", sides[1])
    (image,) = drawn["images"]
    np.testing.assert_allclose(np.reshape(image["values"], side.grid), wanted, atol=1e-12)
    assert image["label"] == ("class token" if name == "images" else "mean of all tokens")
    *_, photo, drawn_map, _ = figure_of(seen).axes
    assert photo.get_title() == "the image"
    (image,) = drawn_map.images
    np.testing.assert_allclose(np.asarray(image.get_array()), wanted, atol=1e-12)


def test_of_a_text_matrices_are_drawn_between_words(explained):
    seen = explain_input(*explained("translation"), views=["rollout"])
    axes = figure_of(seen).axes[-2]
    assert [label.get_text() for label in axes.get_xticklabels()] == [*seen.axes["source"].surface, "</s>"]
    drawn = np.asarray(axes.images[0].get_array())
    assert drawn.shape[1] == len(seen.axes["source"].surface) + 1
    # One layer of the decoder: the other half of each word is what goes past its cross-attention.
    np.testing.assert_allclose(drawn.sum(axis=1), 0.5, atol=1e-5)


def test_attention_alone_is_drawn_without_it(explained):
    seen = explain_input(*explained("translation"))
    (part,) = figure_of(seen).subfigs
    assert "cross-attention" in part.get_suptitle()
    with pytest.raises(RequestError, match="one view, got rollout and lens and census"):
        figure_of(explain_input(*explained("translation"), views=["rollout", "lens", "census"]))
