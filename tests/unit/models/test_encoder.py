"""Encoders: published sizes, the parts that options choose, and what pairs change."""

import pytest
import torch

from heedful.config import merged
from heedful.data.batch import Batch
from heedful.models.encoder import PRESETS, EncoderConfig, build, class_head
from heedful.nn.layout import Tokens
from heedful.nn.pooling import Pooler

SMALL = {
    "d_model": 14,
    "n_layers": 2,
    "layer": {
        "mixer": {"kind": "attention", "n_heads": 2, "dropout": 0.0},
        "channels": {"kind": "feed-forward", "d_ff": 19},
    },
    "max_length": 17,
    "dropout": 0.0,
}


def encoder(**options):
    torch.manual_seed(1)
    return build(EncoderConfig(**merged(SMALL, options)), 31).eval()


@pytest.mark.parametrize(
    "name, vocabulary, wanted", [("bert-base", 30_522, 109_482_240), ("bert-large", 30_522, 335_141_888)]
)
def test_published_sizes(name, vocabulary, wanted):
    with torch.device("meta"):
        model = build(PRESETS[name], vocabulary)
    assert sum(p.numel() for p in model.parameters()) == wanted


def test_the_next_sentence_head_of_bert_has_1538_parameters():
    assert sum(p.numel() for p in class_head(768, 2, 0.1).parameters()) == 1538


def test_every_token_sees_the_whole_sequence():
    model = encoder()
    one, other = (model(Tokens.of([[4, 9, 11, last, 5]])) for last in (12, 13))
    assert (one != other).any(1).all()


def test_segments_tell_the_texts_of_a_pair_apart():
    model = encoder()
    pair = Batch.labelled([[[7, 8], [9]]], [0], classify=4, separate=5).inputs
    assert pair.segments.tolist() == [0, 0, 0, 0, 1, 1]
    single = Tokens(pair.ids, pair.layout)
    assert not torch.equal(model(pair), model(single))
    zeros = Tokens(pair.ids, pair.layout, torch.zeros_like(pair.ids))
    torch.testing.assert_close(model(zeros), model(single))


def test_segments_without_a_table_are_refused():
    pair = Batch.labelled([[[7, 8], [9]]], [0], classify=4, separate=5).inputs
    with pytest.raises(ValueError, match="no segment table"):
        encoder(segments=0)(pair)


def test_a_pooler_is_there_unless_left_away():
    assert isinstance(encoder().heads["pooled"], Pooler)
    assert not list(encoder(pooler=False).heads["pooled"].parameters())


def test_first_weights_are_those_of_bert():
    model = encoder(d_model=128, layer={"mixer": {"n_heads": 4}, "channels": {"d_ff": 256}})
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and "segments" not in name:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.1), name
            assert abs(parameter.mean().item()) < 0.002, name
        elif name.endswith("bias"):
            assert not parameter.any(), name


@pytest.mark.parametrize(
    "options",
    [{"positions": "sinusoidal", "layer": {"mixer": {"n_heads": 3}}}, {"layer": {"mixer": "recurrent"}}],
)
def test_odd_widths_are_refused_where_halves_are_needed(options):
    with pytest.raises(ValueError, match="must be even"):
        EncoderConfig(d_model=15, **options)


@pytest.mark.parametrize(
    "mixer, options, message",
    [
        (
            "fourier",
            {"positions": "rotary"},
            r"positions\.kind=rotary requires attention, got layer\.mixer\.kind=fourier",
        ),
        ({"kind": "convolution", "kernel": 4}, {}, "kernel must be odd, got 4"),
        ({"kind": "parallel-convolutions", "widths": []}, {}, "at least 1 item"),
        (
            {"kind": "parallel-convolutions", "widths": [3, 4, 5]},
            {"d_model": 2},
            "widths must have at most d_model=2 items, got 3",
        ),
        (
            {"kind": "fourier", "visible": {"kind": "window", "size": 3}},
            {},
            r"mixer\.fourier\.visible\n  Extra inputs",
        ),
        (
            "compressed-attention",
            {},
            r"layer\.mixer\.kind=compressed-attention is not supported by this model, whose tokens see later",
        ),
    ],
)
def test_mixers_that_cannot_work_are_refused(mixer, options, message):
    with pytest.raises(ValueError, match=message):
        EncoderConfig(layer={"mixer": mixer}, **options)


def test_fnet_has_no_parameters_for_mixing():
    """FNet-base is BERT-base without attention: 4 (768^2 + 768) parameters less in each of 12 layers."""
    with torch.device("meta"):
        bert, fnet = (
            build(EncoderConfig(layer={"mixer": mixer}), 32_000) for mixer in ("attention", "fourier")
        )
    sizes = [sum(p.numel() for p in model.parameters()) for model in (bert, fnet)]
    assert sizes[0] - sizes[1] == 12 * 4 * (768 * 768 + 768)


def test_a_source_is_refused():
    with pytest.raises(ValueError, match="has no source"):
        encoder()(Tokens.of([[4]]), Tokens.of([[4]]))
