"""The lectures' numbers, by sums written out here; shapes, the quiz and the passes' products by hand."""

import pytest
from sweep import Laws, judged, made, measured, value
from torch.utils._python_dispatch import _get_current_dispatch_mode

from heedful.lab.experiments import arithmetic
from heedful.model_summary.summary import describe


class TestExperiments(Laws):
    family = "arithmetic"


# Shapes


@pytest.mark.parametrize("shape", arithmetic.SHAPES, ids=lambda shape: f"{shape.lecture} {shape.printed}")
def test_shapes_do_not_fit_as_printed_and_do_corrected(shape):
    assert arithmetic.shape_of(shape.as_printed) != shape.expected
    assert arithmetic.shape_of(shape.corrected) == shape.expected


def test_all_formulas_are_counted():
    assert measured("printed-shapes", "formulas that give").expected == len(arithmetic.SHAPES)
    control = measured("printed-shapes", "formulas that give", control=True)
    assert control.value == control.expected


# Numbers of parameters and layers


D, FF = 512, 2048


def test_a_heads_matrix():
    for control in (False, True):
        assert value("head-matrix", "parameters of W_Q, one head", control) == 64 * 512 == 32_768
    assert measured("head-matrix", "parameters of W_Q, one head").expected == 32_178
    assert value("head-matrix", "parameters of W_Q, eight heads", control=True) == 8 * 64 * 512
    figure = measured("head-matrix", "eight times what is printed")
    assert figure.value != figure.expected == 262_144


def test_an_encoder_layer_is_the_sum_of_its_parts():
    attention, feed_forward, norm = 4 * D * D, 2 * D * FF + FF + D, 2 * D
    assert (
        value("encoder-parameters", "parameters of an encoder layer") == attention + feed_forward + 2 * norm
    )
    assert (
        value("encoder-parameters", "with biases") == attention + 4 * D + feed_forward + 2 * norm == 3_152_384
    )
    assert value("encoder-parameters", "parameters of the encoder") == 6 * 3_150_336
    assert value("encoder-parameters", "of a layer: feed-forward") == 2_099_712
    rows = {row["part"]: row["parameters"] for row in made("encoder-parameters").table}
    assert sum(rows.values()) == 3_150_336


def test_a_decoder_layer_is_the_sum_of_its_parts():
    attention, feed_forward, norm = 4 * D * D, 2 * D * FF + FF + D, 2 * D
    assert (
        value("decoder-parameters", "parameters of a decoder layer")
        == 2 * attention + feed_forward + 3 * norm
    )
    assert value("decoder-parameters", "parameters of a decoder layer") == 4_199_936
    assert value("decoder-parameters", "with biases") == 4_199_936 + 8 * D == 4_204_032


def test_the_layers():
    assert value("forty-two-layers", "layers") == 6 * 3 + 6 * 4
    assert value("forty-two-layers", "layers", control=True) == 4 * 3 + 4 * 4


@pytest.mark.parametrize(
    "name, counted",
    [
        ("bert-base", 109_482_240),
        ("bert-large", 335_141_888),
        ("vit-b-16", 86_567_656),
        ("vit-l-16", 304_326_632),
        ("vit-h-14", 632_045_800),
    ],
)
def test_published_sizes(name, counted):
    """ViT's known counts are those with a head of 1000 classes, which stand beside the summary's encoder."""
    width = {"vit-b-16": 768, "vit-l-16": 1024, "vit-h-14": 1280}.get(name)
    head = 0 if width is None else 1000 * width + 1000
    assert value("published-sizes", f"parameters of {name}") in {counted, counted - head}


def test_rows_are_found_by_name():
    ledger = describe("transformer-tiny")
    assert len(arithmetic.rows_of(ledger, "W_Q")) == 3
    with pytest.raises(KeyError, match="W_X"):
        arithmetic.rows_of(ledger, "W_X")


# The backward pass


def test_the_quiz_by_the_rule_of_the_product():
    a, b, c, d = 3.0, 1.0, -4.0, 2.0
    e, f = a * c + b, c / d
    wanted = {"a": f * c, "b": f, "c": a * f + e / d, "d": -e * c / d**2, "e": f, "f": e}
    found = arithmetic.quiz_gradients()
    assert found == pytest.approx(wanted)
    assert found["d"] == -11
    h = 1e-6
    numeric = ((e * c / (d + h)) - (e * c / (d - h))) / (2 * h)
    assert found["d"] == pytest.approx(numeric, rel=1e-6)
    assert {name for name, answer in arithmetic.AS_PRINTED.items() if answer != found[name]} == {"d"}


def test_backward_takes_twice_the_products():
    d, n, layers = 256, 64, 2
    linear, products = 2 * n * 12 * d * d, 2 * 2 * n * n * d
    assert value("backward-cost", "forward") == layers * (linear + products)
    assert value("backward-cost", "backward") == 2 * layers * (linear + products)
    assert value("backward-cost", "operations backward to forward") == 2
    # Frozen weights need no g xᵀ; both factors of a product of attention still get their gradient.
    assert value("backward-cost", "backward", control=True) == layers * (linear + 2 * products)


def test_wall_times_stand_beside_counts_and_in_no_figure():
    for control in (False, True):
        outcome = made("backward-cost", control)
        assert [row["pass"] for row in outcome.table] == ["forward", "backward"]
        assert outcome.panels[-1].heights == {row["pass"]: row["ms"] for row in outcome.table}
        assert not any(each.unit == "ms" for each in outcome.measured)


def test_nothing_is_counted_while_a_pass_is_timed(monkeypatch):
    modes = []

    def milliseconds(work, given):
        work(given())
        modes.append(_get_current_dispatch_mode())
        return 1.0

    monkeypatch.setattr(arithmetic, "milliseconds", milliseconds)
    outcome = judged("backward-cost", arithmetic.measure_cost_of_backward_pass("short", weights=True))
    assert modes == [None, None]
    assert outcome.verdict == "holds"
