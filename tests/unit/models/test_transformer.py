"""The Transformer: published sizes, torch's own with the same weights, tying, and what is refused."""

import math
from typing import Literal, get_args, get_origin

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from heedful.config import merged
from heedful.models import transformer
from heedful.models.positions import POSITIONS
from heedful.models.sections import ACTIVATIONS, CHANNELS, NORMS, SCORES
from heedful.models.stacks import decoder_stack, stack
from heedful.models.transformer import PRESETS, TransformerConfig, build
from heedful.nn.layout import Layout, Tokens
from heedful.nn.norms import LayerNorm, PowerNorm
from heedful.nn.taps import recording

SMALL = {
    "d_model": 14,
    "n_layers": 2,
    "layer": {
        "mixer": {"kind": "attention", "n_heads": 2},
        "channels": {"kind": "feed-forward", "d_ff": 19},
    },
    "dropout": 0.0,
    "tie": "none",
}
V_S, V_T = 31, 37
SOURCES = [[3, 4, 5, 6, 7], [8, 9], [10, 11, 12]]
TARGETS = [[1, 5, 6], [1, 7, 8, 9, 2, 30, 36], [1]]


def small(**options):
    return TransformerConfig.model_validate(merged(SMALL, options))


def model_of(config, seed=1):
    torch.manual_seed(seed)
    model = build(config, V_S, V_T)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model.eval()


# Sizes ----------------------------------------------------------------------------------------------------


def size(module):
    return sum(p.numel() for p in module.parameters())


def on_meta(config, vocabulary):
    with torch.device("meta"):
        return build(config, vocabulary, vocabulary)


@pytest.mark.parametrize(
    "bias, encoder_layer, decoder_layer", [(False, 3_150_336, 4_199_936), (True, 3_152_384, 4_204_032)]
)
def test_layers_of_the_base_model_have_their_published_parameters(bias, encoder_layer, decoder_layer):
    """Lecture S0: "about 3 million" and "about 4 million"; times six, 18.9M and 25.2M."""
    config = TransformerConfig(layer={"mixer": {"bias": bias}})
    with torch.device("meta"):
        encoder, decoder = stack(config, config.max_length), decoder_stack(config)
    assert [size(block) for block in encoder.blocks] == [encoder_layer] * 6
    assert [size(block) for block in decoder.blocks] == [decoder_layer] * 6
    assert size(encoder) == 6 * encoder_layer
    assert size(decoder) == 6 * decoder_layer


def test_the_layers_are_counted_from_their_matrices():
    d, d_ff = 512, 2048
    attention, norm = 4 * d * d, 2 * d
    feed_forward = 2 * d * d_ff + d_ff + d
    assert attention + feed_forward + 2 * norm == 3_150_336
    assert 2 * attention + feed_forward + 3 * norm == 4_199_936
    assert 4 * d == 3_152_384 - 3_150_336
    assert 8 * d == 4_204_032 - 4_199_936


def test_the_base_model_has_63_million_parameters_with_37000_words():
    """The paper prints 65M. S0: the output matrix takes 512 x 37,000 of them, about 19 million."""
    base = PRESETS["transformer-base"]
    words = 512 * 37_000
    assert words == 18_944_000
    assert size(on_meta(base, 37_000)) == 6 * 3_150_336 + 6 * 4_199_936 + words == 63_045_632
    assert size(on_meta(base, 32_768)) == 60_878_848
    assert sum(1 for name, _ in on_meta(base, 37_000).named_modules() if name.endswith(".part")) == 12 + 18


def test_the_big_model_has_214_million_parameters():
    d, d_ff = 1024, 4096
    feed_forward = 2 * d * d_ff + d_ff + d
    layers = 6 * (4 * d * d + feed_forward + 4 * d) + 6 * (8 * d * d + feed_forward + 6 * d)
    assert size(on_meta(PRESETS["transformer-big"], 37_000)) == layers + 37_000 * d == 214_171_648


def test_the_table_of_presets_tells_the_sizes():
    rows = [line.split("|")[1:-1] for line in transformer.__doc__.splitlines() if line.endswith(" V |")]
    told = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert told.keys() == PRESETS.keys()
    for name, (layers, d_model, d_ff, n_heads, parameters) in told.items():
        config = PRESETS[name]
        assert layers == f"{config.n_layers} + {config.n_decoder_layers or config.n_layers}"
        sizes = [config.d_model, config.layer.channels.d_ff, config.layer.mixer.n_heads]
        assert [int(d_model), int(d_ff), int(n_heads)] == sizes
        body, per_word = (int(n.replace(",", "").strip(" V")) for n in parameters.split("+"))
        assert size(on_meta(config, 53)) == body + 53 * per_word


# torch's own ----------------------------------------------------------------------------------------------


def torchs(config):
    """``torch.nn.Transformer`` with the layers of the configuration; post-norm stacks have no last norm."""
    pre, channels = config.layer.norm_placement == "pre", config.layer.channels
    sizes = (config.d_model, config.layer.mixer.n_heads, channels.d_ff)
    options = {"dropout": 0.0, "batch_first": True, "norm_first": pre, "activation": channels.activation}
    norm = (lambda: nn.LayerNorm(config.d_model)) if pre else (lambda: None)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(*sizes, **options), config.n_layers, norm(), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(*sizes, **options), config.n_decoder_layers or config.n_layers, norm()
    )
    return nn.Transformer(*sizes[:2], custom_encoder=encoder, custom_decoder=decoder, batch_first=True)


def copy_attention(theirs, ours):
    """Fill ``nn.MultiheadAttention`` from self- or cross-attention."""
    fused = [ours.qkv] if hasattr(ours, "qkv") else [ours.q, ours.kv]
    theirs.in_proj_weight.copy_(torch.cat([linear.weight for linear in fused]))
    theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in fused]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())


@torch.no_grad()
def copy_layer(theirs, ours):
    residuals = [ours.mixer, *([ours.cross_attention] if hasattr(ours, "cross_attention") else [])]
    copy_attention(theirs.self_attn, residuals[0].part)
    if len(residuals) == 2:
        copy_attention(theirs.multihead_attn, residuals[1].part)
    theirs.linear1.load_state_dict(ours.feed_forward.part.up.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.part.down.state_dict())
    for i, residual in enumerate([*residuals, ours.feed_forward]):
        getattr(theirs, f"norm{i + 1}").load_state_dict(residual.norm.state_dict())


def sinusoids(n, d):
    """PE[p, 2i] = sin(p / 10000^(2i/d)), PE[p, 2i+1] = cos of the same."""
    table = torch.zeros(n, d)
    for p in range(n):
        for i in range(d // 2):
            angle = p / 10000 ** (2 * i / d)
            table[p, 2 * i], table[p, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return table


def embedded(weight, sequences):
    """A padded rectangle of scaled embeddings and sinusoids, garbage where nothing is."""
    longest, d = max(map(len, sequences)), weight.shape[1]
    rectangle = torch.full((len(sequences), longest, d), 9.0)
    for row, ids in zip(rectangle, sequences):
        row[: len(ids)] = weight[ids] * math.sqrt(d) + sinusoids(len(ids), d)
    return rectangle


@pytest.mark.parametrize("place", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_equals_torchs_transformer_with_the_same_weights(place, activation):
    layer = {"norm_placement": place, "channels": {"activation": activation}}
    config = small(layer=layer, n_decoder_layers=3)
    ours, theirs = model_of(config), torchs(config)
    stacks = ((theirs.encoder, ours.encoder), (theirs.decoder, ours.decoder))
    for layers, own in stacks:
        for layer, block in zip(layers.layers, own.blocks, strict=True):
            copy_layer(layer, block)
        if place == "pre":
            layers.norm.load_state_dict(own.norm.state_dict())
    layout, keys = Layout.of([len(t) for t in TARGETS]), Layout.of([len(s) for s in SOURCES])
    x = embedded(ours.target_embedding.weight.detach(), TARGETS).requires_grad_()
    y = embedded(ours.source_embedding.weight.detach(), SOURCES).requires_grad_()
    wanted = theirs(
        y,
        x,
        tgt_mask=torch.ones(7, 7).triu(1).bool(),
        src_key_padding_mask=~keys.real,
        memory_key_padding_mask=~keys.real,
        tgt_key_padding_mask=~layout.real,
    )
    hidden = ours(Tokens.of(TARGETS), Tokens.of(SOURCES))
    torch.testing.assert_close(hidden, layout.unpad(wanted))
    probe = torch.randn_like(hidden)
    mine = [
        ours.encoder.blocks[0].mixer.part.qkv.weight,
        ours.decoder.blocks[0].cross_attention.part.q.weight,
    ]
    self_theirs = theirs.encoder.layers[0].self_attn.in_proj_weight
    cross_theirs = theirs.decoder.layers[0].multihead_attn.in_proj_weight
    got = torch.autograd.grad((hidden * probe).sum(), mine)
    expected = torch.autograd.grad((layout.unpad(wanted) * probe).sum(), [self_theirs, cross_theirs])
    torch.testing.assert_close(got[0], expected[0])
    torch.testing.assert_close(got[1], expected[1][: config.d_model])


def test_logits_are_the_products_with_the_output_matrix():
    model = model_of(small())
    hidden = model(Tokens.of(TARGETS), Tokens.of(SOURCES))
    assert hidden.shape == (11, 14)
    logits = model.heads["token"](hidden)
    torch.testing.assert_close(logits, hidden @ model.heads["token"].weight.T)
    assert logits.shape == (11, V_T)


# Tying ----------------------------------------------------------------------------------------------------


def matrices(model):
    return model.source_embedding.weight, model.target_embedding.weight, model.heads["token"].weight


def test_three_way_tying_makes_one_parameter():
    model = build(small(tie="three-way"), V_T, V_T)
    source, target, head = matrices(model)
    assert source is target is head
    named = [name for name, p in model.named_parameters() if p.shape[0] == V_T]
    assert named == ["source_embedding.weight"]
    assert size(build(small(tie="none"), V_T, V_T)) - size(model) == 2 * V_T * 14


def test_target_tying_leaves_the_source_its_own():
    source, target, head = matrices(build(small(tie="target"), V_S, V_T))
    assert target is head
    assert source is not target
    assert (source.shape, target.shape) == ((V_S, 14), (V_T, 14))


def test_untied_matrices_are_three():
    assert len({id(matrix) for matrix in matrices(build(small(), V_S, V_T))}) == 3


def test_embeddings_and_logits_start_at_a_size_of_one():
    torch.manual_seed(1)
    model = build(TransformerConfig(n_layers=1, tie="three-way", positions="none", dropout=0.0), 1009, 1009)
    x = model.target_embedding(Tokens.of([list(range(1009))]))
    torch.testing.assert_close(x.std(), torch.tensor(1.0), rtol=0, atol=0.01)
    logits = model.heads["token"](torch.randn(11, 512))
    torch.testing.assert_close(logits.std(), torch.tensor(1.0), rtol=0, atol=0.05)


# Options --------------------------------------------------------------------------------------------------

SIX = {"mixer": {"d_k": 6}}
NEEDS = {
    ("positions", "one-hot"): {"max_length": 14},
    ("positions", "rotary"): {"layer": SIX},
    ("combine", "concat"): {"d_positions": 4},
}


def kinds(sections):
    return [section.model_fields["kind"].default for section in sections]


def choices(config):
    """Keys with a fixed list of words, and their words."""
    return [
        (name, option)
        for name, field in config.model_fields.items()
        if get_origin(field.annotation) is Literal
        for option in get_args(field.annotation)
    ]


OPTIONS = [
    *choices(TransformerConfig),
    *(("positions", kind) for kind in kinds(POSITIONS) if kind != "grid"),
    ("positions", {"kind": "sinusoidal", "interleaved": False}),
    *(("layer", {"mixer": {"score": kind}}) for kind in kinds(SCORES)),
    *(("layer", {"channels": kind}) for kind in kinds(CHANNELS) if kind != "none"),
    *(("layer", {"channels": {"activation": activation}}) for activation in ACTIVATIONS),
    *(("layer", {"norm": kind}) for kind in kinds(NORMS)),
    *(("layer", {"norm_placement": placement}) for placement in ("post", "pre")),
    *(("decoder_layer", {"norm": kind}) for kind in kinds(NORMS)),
    ("cross_attention", {"n_heads": 7, "score": "cosine"}),
]


@pytest.mark.parametrize("name, option", OPTIONS)
def test_every_option_builds_and_runs(name, option):
    needs = NEEDS.get((name, option), {}) if isinstance(option, str) else {}
    config = small(**{name: option, **needs})
    vocabularies = (V_T, V_T) if config.tie == "three-way" else (V_S, V_T)
    model = build(config, *vocabularies)
    hidden = model(Tokens.of(TARGETS), Tokens.of(SOURCES))
    assert hidden.shape == (11, 14)
    assert hidden.isfinite().all()
    assert TransformerConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    "positions, width", [("sinusoidal", 10), ("none", 14), ("rotary", 14), ("alibi", 14), ("one-hot", 3)]
)
def test_concatenated_positions_take_their_columns_from_the_embedding(positions, width):
    options = {"max_length": 11} if positions == "one-hot" else {"d_positions": 4}
    config = small(combine="concat", positions=positions, layer=SIX, **options)
    model = build(config, V_S, V_T)
    assert config.d_embedding == width
    assert model.source_embedding.weight.shape == (V_S, width)
    assert model(Tokens.of(TARGETS), Tokens.of(SOURCES)).shape == (11, 14)


@pytest.mark.parametrize("positions, part", [("rotary", "rotary"), ("alibi", "score_bias")])
@torch.no_grad()
def test_positions_inside_attention_are_in_self_attentions_alone_and_do_not_end(positions, part):
    config = small(positions=positions, layer=SIX, max_length=5)
    model = model_of(config)
    mixers = [block.mixer.part for stack in (model.encoder, model.decoder) for block in stack.blocks]
    assert len(mixers) == 4
    assert all(getattr(mixer, part) is not None for mixer in mixers)
    assert not any(hasattr(block.cross_attention.part, part) for block in model.decoder.blocks)
    assert config.longest is None
    source, target = [3 + i % 23 for i in range(31)], [1 + i % 29 for i in range(37)]
    whole = model(Tokens.of([target]), Tokens.of([source]))
    assert whole.isfinite().all()
    swapped = model(Tokens.of([target]), Tokens.of([[source[1], source[0], *source[2:]]]))
    assert (whole - swapped).abs().max() > 1e-3  # the encoder sees the order
    mirrored = model(Tokens.of([target]), Tokens.of([source[::-1]]))
    assert torch.allclose(mirrored, whole, atol=1e-5) == (positions == "alibi")  # distances have no direction


def test_alignments_are_told_by_every_layer_of_the_decoder():
    model = model_of(small(n_decoder_layers=3))
    assert model.alignment_taps == [f"decoder.blocks.{i}.cross_attention.part.weights" for i in range(3)]
    with recording(model, model.alignment_taps) as seen:
        model(Tokens.of(TARGETS), Tokens.of(SOURCES))
    for (weights,) in seen.values():
        assert weights.shape == (3, 2, 7, 5)
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 7))
        assert not weights[1, :, :, 2:].any()  # the second source has two tokens


def test_attention_has_a_bias_where_asked_for():
    names = [
        [n for n, _ in build(small(layer={"mixer": {"bias": b}}), V_S, V_T).named_parameters()]
        for b in (True, False)
    ]
    biases = {n for n in names[0] if n.endswith(("qkv.bias", "q.bias", "kv.bias", "out.bias"))}
    assert len(biases) == 2 * 2 + 2 * (2 + 3)
    assert set(names[0]) - set(names[1]) == biases


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"layer": {"mixer": {"n_heads": 3}}}, "d_model=14 must be divisible by n_heads=3"),
        ({"layer": {"mixer": {"n_heads": 3, "d_k": 5}}}, "or set d_k and d_v"),
        (
            {"layer": {"mixer": {"n_heads": 6, "n_kv_heads": 4, "d_k": 5, "d_v": 3}}},
            "n_heads=6 must be divisible by n_kv_heads=4",
        ),
        ({"combine": "concat", "tie": "target", "d_positions": 4}, "needs tie=none"),
        ({"combine": "concat", "d_positions": 14}, "14 columns of positions leave none of d_model"),
        ({"combine": "concat", "positions": "one-hot", "max_length": 17}, "leave none"),
        ({"positions": "one-hot", "max_length": 17}, "max_length=d_model"),
        ({"layer": {"mixer": {"score": "concat"}}}, "scaled-dot"),
        ({"dropout": 1.0}, "dropout"),
        ({"n_layers": 0}, "n_layers"),
        ({"d_model": 14.0}, "d_model"),
        ({"heads": 2}, "heads"),
    ],
)
def test_contradictions_are_refused(wrong, message):
    with pytest.raises(ValidationError, match=message):
        small(**wrong)


def test_odd_widths_have_no_sinusoids():
    with pytest.raises(
        ValidationError, match=r"d_model must be even and at least 2 .*, got 15; change d_model"
    ):
        small(d_model=15, layer={"mixer": {"n_heads": 3}})
    with pytest.raises(ValidationError, match=r"d_positions must be even .*, got 3; change d_positions"):
        small(combine="concat", tie="none", d_positions=3)


def test_three_way_tying_needs_one_vocabulary():
    with pytest.raises(ValueError, match="31 and 37"):
        build(small(tie="three-way"), V_S, V_T)


def test_a_norm_epsilon_reaches_every_norm():
    config = small(layer={"norm": {"eps": 1e-3}, "norm_placement": "pre"})
    model = build(config, 11, 11)
    found = [part.eps for part in model.modules() if isinstance(part, nn.LayerNorm)]
    assert found == [1e-3] * len(found)
    assert len(found) == 2 * config.n_layers + 3 * (config.n_decoder_layers or config.n_layers) + 2
    for norm in ("batch", "power"):
        other = build(small(layer={"norm": {"kind": norm, "eps": 1e-3}}), 11, 11)
        assert {part.eps for part in other.modules() if hasattr(part, "couples_batch")} == {1e-3}


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_encoder_and_decoder_may_have_different_norms(placement):
    """The released form of power normalisation: in the encoder alone, after scaling by groups."""
    power = {"kind": "power", "warmup": 7, "n_groups": 2, "alpha_fwd": 0.5, "alpha_bkw": 0.25}
    config = small(
        n_decoder_layers=3,
        layer={"norm": power, "norm_placement": placement},
        decoder_layer={"norm": "layer"},
    )
    model = build(config, 11, 11)
    encoder, decoder = (
        [part for part in stack.modules() if isinstance(part, PowerNorm | nn.LayerNorm)]
        for stack in (model.encoder, model.decoder)
    )
    last = placement == "pre"
    assert {type(part) for part in decoder} == {LayerNorm}
    assert (len(encoder), len(decoder)) == (2 * 2 + last, 3 * 3 + last)
    for part in encoder:
        assert isinstance(part, PowerNorm)
        assert (part.warmup, part.alpha_fwd, part.alpha_bkw) == (7, 0.5, 0.25)
        assert part.scaling.n_groups == 2


def test_groups_of_features_are_equal():
    with pytest.raises(ValueError, match=r"d_model=14 must be divisible by layer\.norm\.n_groups=5"):
        small(layer={"norm": {"kind": "power", "n_groups": 5}})


def test_half_split_positions_and_a_bias_of_the_output_are_marians():
    positions, layer = {"kind": "sinusoidal", "interleaved": False}, {"channels": {"activation": "silu"}}
    model = build(small(positions=positions, head_bias=True, layer=layer), 11, 11)
    positions = model.source_embedding.positions.positions
    assert positions.interleaved is False
    assert model.heads["token"].bias.tolist() == [0.0] * 11
    assert isinstance(model.encoder.blocks[0].feed_forward.part.activation, nn.SiLU)


@pytest.mark.parametrize(("n_targets", "n_sources"), [(1, 2), (3, 2), (0, 2)])
def test_numbers_of_sequences_that_do_not_fit_are_refused(n_targets, n_sources):
    model = model_of(small())
    message = rf"sequences, {n_targets}, must be equal to that of the sources, {n_sources}, or a multiple"
    with pytest.raises(ValueError, match=message):
        model(Tokens.of([[1, 2]] * n_targets), Tokens.of([[3, 4]] * n_sources))
