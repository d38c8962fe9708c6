"""The lectures' numbers, by sums written out here."""

import math

import pytest
from sweep import Laws, made, measured, value

from heedful.lab import arithmetic
from heedful.runs.ledger.ledger import describe


class TestExperiments(Laws):
    family = "arithmetic"


D, FF, V = 512, 2048, 37_000


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
    """ViT's known counts are those with a head of 1000 classes, which stand beside the ledger's encoder."""
    width = {"vit-b-16": 768, "vit-l-16": 1024, "vit-h-14": 1280}.get(name)
    head = 0 if width is None else 1000 * width + 1000
    assert value("published-sizes", f"parameters of {name}") in {counted, counted - head}


def test_training_cost_is_time_times_chips():
    by_hand = {"transformer-base": 8 * 9.5e12 * 12 * 3600, "transformer-big": 8 * 9.5e12 * 3.5 * 86400}
    for name, cost in by_hand.items():
        for control in (False, True):
            assert value("training-cost", f"{name}, by time", control) == pytest.approx(cost)
    assert by_hand["transformer-base"] == pytest.approx(3.28e18, rel=1e-2)
    assert by_hand["transformer-big"] == pytest.approx(2.30e19, rel=1e-2)


def test_operations_by_hand_for_the_base_model():
    n = 32  # tokens of a sentence, as the ledger takes them
    encoder = 6 * (2 * (4 * D * D + 2 * D * FF) + 4 * n * D)
    decoder = 6 * (2 * (8 * D * D + 2 * D * FF) + 8 * n * D) + 2 * D * V
    counted = 3 * (encoder + decoder) * 25_000 * 100_000
    assert value("training-cost", "transformer-base, by its matrix products") == pytest.approx(
        counted, rel=1e-9
    )
    assert counted / 3.3e18 == pytest.approx(1 / 3, abs=0.06)


def test_rows_are_found_by_name():
    ledger = describe("transformer-tiny")
    assert len(arithmetic.rows_of(ledger, "W_Q")) == 3
    with pytest.raises(KeyError, match="W_X"):
        arithmetic.rows_of(ledger, "W_X")
    assert not math.isclose(arithmetic.TABLE["transformer-base"], arithmetic.TABLE["transformer-big"])
