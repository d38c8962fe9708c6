"""The lectures' numbers, by sums written out here."""

import pytest
from sweep import Laws, made, measured, value

from heedful.lab import arithmetic
from heedful.model_summary.summary import describe


class TestExperiments(Laws):
    family = "arithmetic"


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
