"""Sections of stacks: defaults and what is merged over them, layers that differ, and what families refuse."""

import pytest
import torch
from pydantic import ValidationError

from heedful.config import Config, merged
from heedful.errors import RequestError
from heedful.models import captioner, encoder, language_model, transformer, vision
from heedful.models.mixers import RecurrentMixerConfig
from heedful.models.positions import POSITIONS
from heedful.models.registry import PRESETS, build_model, preset_trees
from heedful.models.stacks import LayerConfig
from heedful.nn.attention.scores import CosineScore, ScaledDotScore
from heedful.nn.experts import MixtureOfExperts
from heedful.nn.layout import Tokens
from heedful.nn.norms import LayerNorm, PowerNorm, RMSNorm
from heedful.nn.visibility import Window
from heedful.recipes.problems import validate
from heedful.recipes.resolve import overrides_tree
from heedful.recipes.trees import Mark, Tree, merge

FAMILIES = {
    "transformer": transformer.TransformerConfig,
    "language-model": language_model.LanguageModelConfig,
    "encoder": encoder.EncoderConfig,
    "vision": vision.VisionConfig,
    "captioner": captioner.CaptionerConfig,
}
every_family = pytest.mark.parametrize("family", FAMILIES)
SMALL = {
    "d_model": 12,
    "n_layers": 3,
    "layer": {
        "mixer": {"kind": "attention", "n_heads": 2},
        "channels": {"kind": "feed-forward", "d_ff": 7},
    },
}


def config_of(family, **options):
    return FAMILIES[family].model_validate(merged(SMALL, options))


# Presets and defaults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_presets_round_trip_through_json(name):
    config = PRESETS[name]
    assert type(config).model_validate_json(config.model_dump_json()) == config
    assert type(config).model_validate(preset_trees()[name]) == config


@every_family
def test_what_is_given_is_merged_over_the_defaults_of_the_family(family):
    plain = FAMILIES[family]().layer
    found = FAMILIES[family](layer={"mixer": {"bias": False}, "norm": "rms"}).layer
    assert found == plain.changed(mixer={"bias": False}, norm="rms")
    assert (found.mixer.n_heads, found.channels) == (plain.mixer.n_heads, plain.channels)
    assert found.norm_placement == plain.norm_placement


@pytest.mark.parametrize(
    ("family", "n_heads", "activation", "placement", "positions"),
    [
        ("transformer", 8, "relu", "post", "sinusoidal"),
        ("language-model", 12, "gelu", "pre", "learned"),
        ("encoder", 12, "gelu", "post", "learned"),
        ("vision", 12, "gelu", "pre", "learned"),
        ("captioner", 8, "gelu", "pre", "sinusoidal"),
    ],
)
def test_defaults_of_families(family, n_heads, activation, placement, positions):
    config = FAMILIES[family]()
    layer = config.layer
    assert (layer.mixer.kind, layer.mixer.n_heads) == ("attention", n_heads)
    assert (layer.channels.kind, layer.channels.activation) == ("feed-forward", activation)
    assert (layer.norm.kind, layer.norm_placement) == ("layer", placement)
    assert config.positions.kind == positions


@every_family
def test_text_is_the_kind_of_a_section(family):
    text = {"mixer": {"score": "cosine"}, "channels": "gated", "norm": "rms"}
    maps = {
        "mixer": {"score": {"kind": "cosine"}},
        "channels": {"kind": "gated"},
        "norm": {"kind": "rms"},
    }
    assert config_of(family, layer=text) == config_of(family, layer=maps)
    assert config_of(family, positions="none") == config_of(family, positions={"kind": "none"})


def test_another_kind_drops_the_keys_of_the_kind_below():
    layer = LayerConfig(mixer={"n_heads": 5, "bias": False}, channels={"d_ff": 7, "activation": "silu"})
    changed = layer.changed(mixer={"kind": "recurrent"}, channels={"kind": "gated"})
    assert changed.mixer == RecurrentMixerConfig()
    assert (changed.channels.d_ff, changed.channels.activation) == (None, "relu")
    back = changed.changed(mixer="attention")
    assert (back.mixer.n_heads, back.mixer.bias) == (8, True)
    assert layer.changed(mixer={"kind": "attention", "n_heads": 3}).mixer.bias is False


def test_another_kind_drops_the_defaults_of_the_family():
    compressed = {"mixer": "compressed-attention"}
    assert language_model.LanguageModelConfig(layer=compressed).layer.mixer.n_heads == 8
    gated = language_model.LanguageModelConfig(layer={"channels": "gated"})
    assert gated.layer.channels.activation == "relu"


def test_a_changed_configuration_is_validated():
    config = config_of("encoder")
    assert config.changed(layer={"norm": "rms"}).layer.norm.kind == "rms"
    assert config.changed(layer={"norm": "rms"}).layer.mixer == config.layer.mixer
    with pytest.raises(ValidationError, match="d_model=12 must be divisible by n_heads=5"):
        config.changed(layer={"mixer": {"n_heads": 5}})
    with pytest.raises(ValidationError, match=r"self\n  Extra inputs"):
        config.changed(self=1)


@every_family
def test_configurations_and_sections_are_accepted_in_place_of_maps(family):
    config = config_of(family, layer={"norm": "rms"})
    assert FAMILIES[family].model_validate(config) == config
    layer = config.layer.changed(mixer={"bias": False})
    assert FAMILIES[family](d_model=12, n_layers=3, layer=layer).layer == layer


# Layers that differ ----------------------------------------------------------------------------------------


def test_a_pattern_is_repeated():
    window = {"kind": "window", "size": 2}
    config = config_of("encoder", n_layers=5, pattern=[{"mixer": {"visible": window}}, {}, {"norm": "rms"}])
    assert [layer.mixer.visible.kind for layer in config.layers] == ["window", "all", "all", "window", "all"]
    assert [layer.norm.kind for layer in config.layers] == ["layer", "layer", "rms", "layer", "layer"]
    assert {layer.mixer.n_heads for layer in config.layers} == {2}
    model = encoder.build(config, 17)
    assert [block.mixer.part.pattern for block in model.stack.blocks] == [
        Window(2),
        None,
        None,
        Window(2),
        None,
    ]
    norms = [(type(block.mixer.norm), type(block.feed_forward.norm)) for block in model.stack.blocks]
    assert norms == [(LayerNorm, LayerNorm)] * 2 + [(RMSNorm, RMSNorm)] + [(LayerNorm, LayerNorm)] * 2


def test_a_pattern_may_be_longer_than_the_stack():
    config = config_of("encoder", n_layers=1, pattern=[{}, {"channels": {"kind": "experts", "n": 3}}])
    assert [layer.channels.kind for layer in config.layers] == ["feed-forward"]


@pytest.mark.parametrize(("placement", "last"), [("post", "pre"), ("pre", "post")])
def test_the_norm_after_the_stack_depends_on_its_last_layer(placement, last):
    """Sums of a pre-norm layer are not normalised; those of a post-norm layer are."""
    pattern = [{}, {"norm_placement": last}]
    config = config_of("encoder", n_layers=2, layer={"norm_placement": placement}, pattern=pattern)
    assert isinstance(encoder.build(config, 17).stack.norm, LayerNorm) == (last == "pre")


def test_without_a_pattern_all_layers_are_alike():
    config = config_of("encoder")
    assert config.layers == (config.layer,) * 3
    assert config.changed(pattern=[{}]).layers == config.layers


def test_a_pattern_may_change_mixers_and_channel_mixers():
    pattern = [
        {"mixer": "recurrent", "channels": "none"},
        {"mixer": {"kind": "convolution", "kernel": 2}},
        {"channels": {"kind": "experts", "n": 3, "expert": {"d_ff": 5}}, "norm_placement": "post"},
    ]
    model = language_model.build(config_of("language-model", pattern=pattern, context=11), 17)
    names = [type(block.mixer.part).__name__ for block in model.stack.blocks]
    assert names == ["Recurrence", "Convolution", "SelfAttention"]
    placements = [type(block.mixer).__name__ for block in model.stack.blocks]
    assert placements == ["PreNorm", "PreNorm", "PostNorm"]
    assert isinstance(model.stack.blocks[0].feed_forward, torch.nn.Identity)
    assert isinstance(model.stack.blocks[2].feed_forward.part, MixtureOfExperts)


PATTERNS = {
    "model.pattern=[{}, {mixer: {n_haeds: 3}}]": (
        "model.pattern.1.mixer.n_haeds=3: unknown key (did you mean 'n_heads'?)"
    ),
    "model.pattern=[{mixr: {n_heads: 3}}]": "model.pattern.0.mixr: unknown key (did you mean 'mixer'?)",
    "model.pattern=[{}, {mixer: {visible: window}}]": (
        "model.pattern.1.mixer.visible.size: required key is missing"
    ),
    "model.pattern=[{mixer: {n_heads: two}}]": (
        "model.pattern.0.mixer.n_heads=two: expected a whole number, got 'two'"
    ),
    "model.pattern=[{channels: {kind: experts, n: 4, k: 4}}]": (
        "model.pattern.0.channels: experts.k must be smaller than experts.n (k=4, n=4)"
    ),
    "model.pattern=[{channels: {kind: experts, expert: {d_f: 4}}}]": (
        "model.pattern.0.channels.expert.d_f=4: unknown key (did you mean 'd_ff'?)"
    ),
    "model.pattern=[{mixer: {n_heads: 5}}]": (
        "model: d_model=128 must be divisible by n_heads=5; change one of them, or set d_k and d_v"
    ),
    "model.pattern=[{mixer: fourier}]": (
        "model: layer.mixer.kind=fourier is not supported by this model, which does not see later tokens"
    ),
    "model.pattern=[]": "model.pattern: expected at least 1 entries, got 0",
    "model.pattern=[1]": "model.pattern.0=1: expected a map, got 1; the keys here are "
    "mixer, channels, norm, norm_placement",
}


@pytest.mark.parametrize("text", PATTERNS)
def test_errors_in_a_pattern_have_its_place(text):
    assert message("char-mini-cpu", text) == f"on the command line: {PATTERNS[text]}"


class OneLanguageModel(Config):
    model: language_model.LanguageModelConfig


class OneTransformer(Config):
    model: transformer.TransformerConfig


def message(preset, text):
    """The message about a model section with one change."""
    below = Tree.of({"model": preset_trees()[preset]}, Mark("preset"))
    model = {"char-mini-cpu": OneLanguageModel, "transformer-tiny": OneTransformer}[preset]
    with pytest.raises(RequestError) as caught:
        validate(merge(below, overrides_tree([text])), model)
    return str(caught.value)


# Decoders --------------------------------------------------------------------------------------------------


def test_the_layers_of_a_decoder_are_changes_of_those_of_the_encoder():
    power = {"kind": "power", "warmup": 3}
    options = {"layer": {"norm": power}, "decoder_layer": {"norm": "layer", "mixer": {"n_heads": 3}}}
    config = config_of("transformer", **options, n_decoder_layers=2, tie="none")
    assert [layer.norm.kind for layer in config.layers] == ["power"] * 3
    assert [layer.norm.kind for layer in config.decoder_layers] == ["layer"] * 2
    model = transformer.build(config, 11, 13)
    assert {type(block.mixer.norm) for block in model.encoder.blocks} == {PowerNorm}
    assert {type(block.mixer.norm) for block in model.decoder.blocks} == {LayerNorm}
    assert [block.mixer.part.n_heads for block in model.decoder.blocks] == [3, 3]
    assert [block.cross_attention.part.n_heads for block in model.decoder.blocks] == [3, 3]


@pytest.mark.parametrize("family", ["transformer", "captioner"])
def test_cross_attention_has_the_heads_of_self_attention_unless_changed(family):
    mixer = {"n_heads": 4, "n_kv_heads": 2, "d_k": 5, "score": "cosine", "bias": False, "dropout": 0.25}
    config = config_of(family, layer={"mixer": mixer})
    build = {
        "transformer": lambda c: transformer.build(c, 11, 11),
        "captioner": lambda c: captioner.build(c, 11),
    }
    parts = [block.cross_attention.part for block in build[family](config).decoder.blocks]
    assert [(part.n_heads, part.n_kv_heads, part.d_k, part.d_v) for part in parts] == [(4, 2, 5, 3)] * 3
    assert {type(part.score) for part in parts} == {CosineScore}
    assert [(part.q.bias, part.out.bias, part.dropout.p) for part in parts] == [(None, None, 0.25)] * 3
    other = config.changed(cross_attention={"n_heads": 6, "dropout": 0.5})
    parts = [block.cross_attention.part for block in build[family](other).decoder.blocks]
    assert [(part.n_heads, part.n_kv_heads, part.d_k, part.dropout.p) for part in parts] == [
        (6, 6, 2, 0.5)
    ] * 3
    assert {type(part.score) for part in parts} == {ScaledDotScore}
    assert {part.q.bias is None for part in parts} == {False}
    assert [block.mixer.part.n_heads for block in build[family](other).decoder.blocks] == [4] * 3


DECODERS = {
    "model.decoder_layer.mixer.n_haeds=3": (
        "model.decoder_layer.mixer.n_haeds=3: unknown key (did you mean 'n_heads'?)"
    ),
    "model.decoder_layer.norm=rsm": (
        "model.decoder_layer.norm.kind: unknown kind 'rsm' (did you mean 'rms'?); the kinds are "
        "batch, layer, package.module:Name, power, rms"
    ),
    "model.decoder_layer.mixer.n_heads=5": (
        "model: d_model=128 must be divisible by n_heads=5; change one of them, or set d_k and d_v"
    ),
    "model.cross_attention.n_heads=5": (
        "model: d_model=128 must be divisible by n_heads=5; change one of them, or set d_k and d_v"
    ),
    "model.cross_attention.visible=al": (
        "model.cross_attention.visible.kind: unknown kind 'al' (did you mean 'all'?); the kinds are all, "
        "blocks, dilated, fixed, global, mask, package.module:Name, strided, tree, window"
    ),
    "model.layer.mixer=recurrent": (
        "model: layer.mixer.kind=recurrent is not supported with kind=transformer; expected attention"
    ),
    "model.decoder_layer.mixer={visible: {kind: blocks, size: 0}}": (
        "model.decoder_layer.mixer.visible.size=0: expected a number of at least 1, got 0"
    ),
    "model.layer.channels=none": "model: layer.channels.kind=none is not supported with kind=transformer",
    "model.n_heads=5": "model.n_heads=5: unknown key (did you mean 'model.layer.mixer.n_heads'?)",
    "model.activation=gelu": "model.activation=gelu: unknown key "
    "(did you mean 'model.layer.channels.activation'?)",
}


@pytest.mark.parametrize("text", DECODERS)
def test_errors_in_decoders_have_their_place(text):
    assert message("transformer-tiny", text).startswith(f"on the command line: {DECODERS[text]}")


# What families support -------------------------------------------------------------------------------------


SUPPORTED = {
    "transformer": {"sinusoidal", "learned", "one-hot", "constant", "none", "rotary", "alibi"},
    "language-model": {"sinusoidal", "learned", "one-hot", "constant", "none", "rotary", "alibi"},
    "encoder": {"sinusoidal", "learned", "one-hot", "constant", "none", "rotary", "alibi"},
    "vision": {"learned", "grid", "none"},
    "captioner": {"sinusoidal", "learned", "none"},
}


@every_family
@pytest.mark.parametrize("kind", [section.model_fields["kind"].default for section in POSITIONS])
def test_families_refuse_the_positions_that_they_do_not_support(family, kind):
    if kind in SUPPORTED[family]:
        limit = {FAMILIES[family].limit_key: 12} if kind == "one-hot" else {}
        assert config_of(family, positions=kind, **limit).positions.kind == kind
        return
    with pytest.raises(
        ValidationError, match=rf"positions\.kind={kind} is not supported by kind={family}; expected one of "
    ):
        config_of(family, positions=kind)


@pytest.mark.parametrize("family", ["transformer", "captioner"])
@pytest.mark.parametrize(
    "mixer",
    [
        "compressed-attention",
        "recurrent",
        "fourier",
        "mlp",
        "separable",
        "convolution",
        "parallel-convolutions",
    ],
)
@pytest.mark.parametrize("key", ["layer", "decoder_layer"])
def test_layers_of_encoder_decoders_have_attention_alone(family, mixer, key):
    with pytest.raises(ValidationError):
        config_of(family, **{key: {"mixer": mixer}})


def test_groups_of_features_divide_the_width_in_every_layer():
    power = {"norm": {"kind": "power", "n_groups": 5}}
    for options in ({"layer": power}, {"pattern": [{}, power]}):
        with pytest.raises(ValidationError, match=r"d_model=12 must be divisible by layer\.norm\.n_groups=5"):
            config_of("encoder", **options)
    with pytest.raises(ValidationError, match=r"d_model=12 must be divisible by layer\.norm\.n_groups=5"):
        config_of("transformer", decoder_layer=power)


# Positions of tokens ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family, untied", [("language-model", {"tie": False}), ("encoder", {})])
def test_concatenated_positions_leave_the_rest_of_the_width_to_embeddings(family, untied):
    config = config_of(family, combine="concat", d_positions=5, positions="learned", **untied)
    model = build_model(config, 17)
    assert model.embedding.weight.shape == (17, config.d_model - 5)
    combined = model.embedding.eval()(Tokens.of([[3, 3]]))
    assert combined.shape == (2, config.d_model)
    if family == "language-model":  # an encoder normalises the whole
        table = model.embedding.positions.positions.weight[:2]
        assert torch.equal(combined[0, :-5], combined[1, :-5])
        torch.testing.assert_close(combined[:, -5:], table)


@pytest.mark.parametrize(
    "family, options, message",
    [
        ("language-model", {"combine": "concat"}, "combine=concat makes .* needs tie=false"),
        ("transformer", {"combine": "concat"}, "combine=concat makes .* needs tie=none"),
        (
            "encoder",
            {"combine": "concat", "d_positions": 12},
            "12 columns of positions leave none of d_model",
        ),
        ("encoder", {"positions": "one-hot", "max_length": 11}, "add them with max_length=d_model"),
        ("language-model", {"positions": "one-hot", "context": 11}, "add them with context=d_model"),
    ],
)
def test_positions_that_do_not_fit_the_embeddings_are_refused(family, options, message):
    with pytest.raises(ValidationError, match=message):
        config_of(family, **options)
