"""Language models: published sizes, torch's own blocks with the same weights, first weights, refusals."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional

import heedful
from heedful.config import merged
from heedful.errors import RequestError
from heedful.models import language_model
from heedful.models.language_model import PRESETS, LanguageModelConfig, build
from heedful.nn.attention.compressed import CompressedCache, MemoryCompressedAttention
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.cells import ElmanCell, GRUCell, LSTMCell
from heedful.nn.experts import MixtureOfExperts, TopKGate
from heedful.nn.layout import Layout, Tokens
from heedful.nn.positions import LearnedPositions
from heedful.nn.state import KeyValueCache
from heedful.nn.visibility import Blocks, Window

SMALL = {
    "d_model": 14,
    "n_layers": 3,
    "layer": {
        "mixer": {"kind": "attention", "n_heads": 2},
        "channels": {"kind": "feed-forward", "d_ff": 19},
    },
    "dropout": 0.0,
    "context": 11,
}
V = 37
TARGETS = [[1, 5, 6], [1, 7, 8, 9, 2, 30, 36], [1]]


def small(**options):
    return LanguageModelConfig.model_validate(merged(SMALL, options))


def mixer(kind, **options):
    """A changed mixer of all layers."""
    return {"layer": {"mixer": {"kind": kind, **options}}}


def experts(**options):
    """Experts with the channels of the small model, in all layers."""
    expert = {"kind": "feed-forward", "d_ff": 19, "activation": "gelu"}
    return {"channels": {"kind": "experts", "expert": expert, **options}}


def model_of(config, seed=1):
    torch.manual_seed(seed)
    model = build(config, V)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model.eval()


def size(module):
    return sum(p.numel() for p in module.parameters())


def on_meta(config, vocabulary):
    with torch.device("meta"):
        return build(config, vocabulary)


@pytest.mark.parametrize(
    "name, parameters",
    [
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_gpt2_has_its_released_parameters(name, parameters):
    assert size(on_meta(PRESETS[name], 50_257)) == parameters
    assert heedful.describe(name, vocab_size=50_257).parameters == parameters


def test_a_layer_is_counted_from_its_matrices():
    d = 768
    attention = 4 * d * d + 4 * d
    feed_forward = 8 * d * d + 4 * d + d
    model = on_meta(LanguageModelConfig(), 53)
    assert [size(block) for block in model.stack.blocks] == [attention + feed_forward + 2 * 2 * d] * 12


@pytest.mark.slow
def test_the_table_of_presets_tells_the_sizes():
    rows = [line.split("|")[1:-1] for line in language_model.__doc__.splitlines() if line.endswith(" V |")]
    told = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert told.keys() == PRESETS.keys()
    for name, (layers, d_model, n_heads, context, parameters) in told.items():
        config = PRESETS[name]
        sizes = [config.n_layers, config.d_model, config.layer.mixer.n_heads, config.context]
        assert [int(layers), int(d_model), int(n_heads), int(context)] == sizes
        body, per_word = (int(n.replace(",", "").strip(" V")) for n in parameters.split("+"))
        assert size(on_meta(config, 53)) == body + 53 * per_word


def test_the_small_character_model_has_the_published_size():
    """0.80M parameters with the 65 characters, as is published without the table of positions."""
    model = on_meta(PRESETS["char-mini-cpu"], 65)
    assert size(model) - 64 * 128 == pytest.approx(0.80e6, abs=0.005e6)


def test_the_modern_small_model_is_counted_from_its_matrices():
    """No biases, gains alone in norms, two thirds of its heads' keys and values saved."""
    d, d_k, d_ff, vocabulary = 384, 64, 1024, 8192
    attention = d * (6 + 2 + 2) * d_k + 6 * d_k * d
    layer = attention + 3 * d * d_ff + 2 * d
    model = on_meta(PRESETS["modern-mini"], vocabulary)
    assert [size(block) for block in model.stack.blocks] == [layer] * 6 == [1_573_632] * 6
    assert size(model) == 6 * layer + d + vocabulary * d
    assert not any("bias" in name for name, _ in model.named_parameters())
    assert heedful.describe("modern-mini", vocab_size=vocabulary).parameters == size(model)


@pytest.mark.parametrize(("cell", "gates"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_a_recurrent_layer_is_counted_from_its_matrices(cell, gates):
    d = 14
    layer = {"mixer": {"kind": "recurrent", "cell": cell}, "channels": "none"}
    model = on_meta(small(layer=layer, positions="none"), V)
    layer = gates * (2 * d * d + d) + 2 * d
    assert [size(block) for block in model.stack.blocks] == [layer] * 3
    assert size(model) == 3 * layer + 2 * d + V * d


# torch's own ----------------------------------------------------------------------------------------------


def torchs(config):
    """``torch.nn.TransformerEncoder`` with the layers of the configuration."""
    pre, channels = config.layer.norm_placement == "pre", config.layer.channels
    activation = {"gelu": "gelu", "relu": "relu", "gelu-tanh": nn.GELU("tanh")}[channels.activation]
    layer = nn.TransformerEncoderLayer(
        config.d_model,
        config.layer.mixer.n_heads,
        channels.d_ff,
        dropout=0.0,
        batch_first=True,
        norm_first=pre,
        activation=activation,
    )
    norm = nn.LayerNorm(config.d_model) if pre else None
    return nn.TransformerEncoder(layer, config.n_layers, norm, enable_nested_tensor=False)


@torch.no_grad()
def copy_layer(theirs, ours):
    attention, feed_forward = ours.mixer.part, ours.feed_forward.part
    theirs.self_attn.in_proj_weight.copy_(attention.qkv.weight)
    theirs.self_attn.in_proj_bias.copy_(attention.qkv.bias)
    theirs.self_attn.out_proj.load_state_dict(attention.out.state_dict())
    theirs.linear1.load_state_dict(feed_forward.up.state_dict())
    theirs.linear2.load_state_dict(feed_forward.down.state_dict())
    theirs.norm1.load_state_dict(ours.mixer.norm.state_dict())
    theirs.norm2.load_state_dict(ours.feed_forward.norm.state_dict())


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu-tanh"])
def test_equals_torchs_layers_with_the_same_weights(place, activation):
    config = small(layer={"norm_placement": place, "channels": {"activation": activation}})
    ours, theirs = model_of(config), torchs(config)
    for layer, block in zip(theirs.layers, ours.stack.blocks, strict=True):
        copy_layer(layer, block)
    if place == "pre":
        theirs.norm.load_state_dict(ours.stack.norm.state_dict())
    layout = Layout.of([len(t) for t in TARGETS])
    rectangle = torch.full((3, 7, 14), 9.0)
    for row, ids in enumerate(TARGETS):
        rectangle[row, : len(ids)] = (
            ours.embedding.weight[ids] + ours.embedding.positions.positions.weight[: len(ids)]
        )
    wanted = theirs(rectangle, mask=torch.ones(7, 7).triu(1).bool(), src_key_padding_mask=~layout.real)
    torch.testing.assert_close(ours(Tokens.of(TARGETS)), layout.unpad(wanted))


# First weights ---------------------------------------------------------------------------------------------


def spread(weight):
    return float(weight.detach().std())


D = 13


def recurred(cell, x):
    """What a cell with these weights makes of one sequence, ``[n, d]``: by torch's own layers.

    Of the GRU, whose reset gate acts before the product, step by step (Cho et al. 2014, equations 5 to 8).
    """
    inner, outer, bias = cell.input.weight, cell.recurrent.weight, cell.input.bias
    if isinstance(cell, GRUCell):
        h, states = torch.zeros(D), []
        for now in x:
            r, z, n = (inner @ now + bias).chunk(3)
            r, z = torch.sigmoid(r + outer[:D] @ h), torch.sigmoid(z + outer[D:] @ h)
            h = z * h + (1 - z) * torch.tanh(n + cell.candidate.weight @ (r * h))
            states.append(h)
        return torch.stack(states)
    theirs = nn.LSTM(D, D) if isinstance(cell, LSTMCell) else nn.RNN(D, D)
    weights = {"weight_ih_l0": inner, "weight_hh_l0": outer, "bias_ih_l0": bias}
    theirs.load_state_dict({**weights, "bias_hh_l0": torch.zeros_like(bias)})
    return theirs(x)[0]


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("channels", ["none", "feed-forward"])
def test_a_recurrent_model_equals_torchs_layers_with_the_same_weights(cell, channels):
    layer = {"mixer": {"kind": "recurrent", "cell": cell}, "channels": {"kind": channels}}
    model = model_of(small(d_model=D, positions="none", layer=layer))
    hidden = model(Tokens.of(TARGETS)).split([len(target) for target in TARGETS])
    for target, found in zip(TARGETS, hidden, strict=True):
        x = model.embedding.weight[target]
        for block in model.stack.blocks:
            x = x + recurred(block.mixer.part.cell, block.mixer.norm(x))
            if channels == "feed-forward":
                normed, part = block.feed_forward.norm(x), block.feed_forward.part
                x = x + part.down(functional.gelu(part.up(normed)))
        torch.testing.assert_close(found, model.stack.norm(x))


@pytest.mark.parametrize("place, last", [("pre", 0.02 / math.sqrt(8)), ("post", 0.02)])
def test_first_weights_have_the_spread_of_gpt2(place, last):
    """Standard deviations of some 10,000 numbers, so within 3 %."""
    torch.manual_seed(1)
    model = build(
        LanguageModelConfig(
            n_layers=4, d_model=96, tie=False, layer={"mixer": {"n_heads": 3}, "norm_placement": place}
        ),
        101,
    )
    for block in model.stack.blocks:
        attention, feed_forward = block.mixer.part, block.feed_forward.part
        assert spread(attention.qkv.weight) == pytest.approx(0.02, rel=0.03)
        assert spread(feed_forward.up.weight) == pytest.approx(0.02, rel=0.03)
        assert spread(attention.out.weight) == pytest.approx(last, rel=0.03)
        assert spread(feed_forward.down.weight) == pytest.approx(last, rel=0.03)
        for part in (attention.qkv, attention.out, feed_forward.up, feed_forward.down):
            assert not part.bias.any()
    positions = [part for part in model.modules() if isinstance(part, LearnedPositions)]
    assert [spread(part.weight) for part in positions] == [pytest.approx(0.01, rel=0.03)]
    assert spread(model.embedding.weight) == pytest.approx(0.02, rel=0.03)
    assert spread(model.heads["token"].weight) == pytest.approx(0.02, rel=0.03)
    assert not torch.equal(model.heads["token"].weight, model.embedding.weight)


def test_a_gated_feed_forward_starts_alike():
    torch.manual_seed(1)
    config = LanguageModelConfig(
        n_layers=4, d_model=96, layer={"mixer": {"n_heads": 3}, "channels": {"kind": "gated"}}
    )
    for block in build(config, 101).stack.blocks:
        feed_forward = block.feed_forward.part
        assert spread(feed_forward.gate_up.weight) == pytest.approx(0.02, rel=0.03)
        assert spread(feed_forward.down.weight) == pytest.approx(0.02 / math.sqrt(8), rel=0.03)
        assert not feed_forward.gate_up.bias.any()


def test_tying_makes_one_parameter():
    tied, untied = build(small(), V), build(small(tie=False), V)
    assert tied.heads["token"].weight is tied.embedding.weight
    assert size(untied) - size(tied) == V * 14


@pytest.mark.parametrize("positions", ["sinusoidal", "constant"])
def test_positions_of_size_one_do_not_drown_the_tokens(positions):
    torch.manual_seed(1)
    model = build(
        LanguageModelConfig(
            n_layers=1, d_model=192, positions=positions, dropout=0.0, layer={"mixer": {"n_heads": 3}}
        ),
        101,
    )
    seen = model.embedding(Tokens.of([list(range(53))]))
    alone = seen - model.embedding.positions.positions(torch.arange(53))
    torch.testing.assert_close(alone, model.embedding.weight[:53] * math.sqrt(192), rtol=0, atol=1e-6)


# Layers ----------------------------------------------------------------------------------------------------


def mixers(config):
    return [block.mixer.part for block in on_meta(config, V).stack.blocks]


def test_the_long_summariser_alternates_and_has_its_experts_in_the_middle():
    """L-M-L-M-L; blocks of 256, memory a third as long; 128 experts in layer 3."""
    model = on_meta(PRESETS["t-dmca-moe"], 53)
    kinds = [type(block.mixer.part) for block in model.stack.blocks]
    local, compressed = SelfAttention, MemoryCompressedAttention
    assert kinds == [local, compressed, local, compressed, local]
    parts = mixers(PRESETS["t-dmca"])
    assert [part.pattern for part in parts[::2]] == [Blocks(256)] * 3
    assert [part.factor for part in parts[1::2]] == [3, 3]
    channels = [block.feed_forward.part for block in model.stack.blocks]
    assert [isinstance(part, MixtureOfExperts) for part in channels] == [False, False, True, False, False]
    assert len(channels[2].experts) == 128
    assert size(channels[2].experts[0]) == size(channels[0]) == 2_099_712
    assert all(part.pattern is None for part in mixers(PRESETS["t-d"]))


def test_options_of_mixing_reach_their_layers():
    kinds = {"rnn": ElmanCell, "gru": GRUCell, "lstm": LSTMCell}
    for word, kind in kinds.items():
        parts = mixers(small(**mixer("recurrent", cell=word)))
        assert [(type(part.cell), part.reverse) for part in parts] == [(kind, False)] * 3
    for word in ("separable", "convolution"):
        parts = mixers(small(**mixer(word, kernel=4)))
        assert [(part.kernel, part.causal) for part in parts] == [(4, True)] * 3
    window = mixer("attention", visible={"kind": "window", "size": 5})
    assert [part.pattern for part in mixers(small(**window))] == [Window(5)] * 3
    second_sees_all = [{}, {"mixer": {"visible": "all"}}]
    assert [part.pattern for part in mixers(small(**window, pattern=second_sees_all))] == [
        Window(5),
        None,
        Window(5),
    ]
    parallel = mixers(small(**mixer("parallel-convolutions", widths=[2, 7])))
    assert [(part.widths, part.causal) for part in parallel] == [((2, 7), True)] * 3
    local = mixers(small(**mixer("attention", visible={"kind": "blocks", "size": 5, "earlier": 2})))
    assert [(part.pattern, part.causal) for part in local] == [(Blocks(5, 2), True)] * 3
    compressed = mixers(small(**mixer("compressed-attention", n_heads=2, factor=4)))
    assert [part.factor for part in compressed] == [4] * 3
    plain = mixers(small(**mixer("compressed-attention", n_heads=2, bias=False)))
    assert [part.qkv.bias is None for part in plain] == [True] * 3


@pytest.mark.parametrize("layers, found", [("{} e {}", [2]), ("e {} e", [1, 3]), ("e", [1, 2, 3])])
def test_options_of_experts_reach_their_layers(layers, found):
    options = {"{}": {}, "e": experts(n=5, k=3, importance=0.2)}
    config = small(pattern=[options[word] for word in layers.split()])
    channels = [block.feed_forward.part for block in on_meta(config, V).stack.blocks]
    assert [i + 1 for i, part in enumerate(channels) if isinstance(part, MixtureOfExperts)] == found
    mixture = channels[found[0] - 1]
    gate = mixture.gate
    assert (gate.n_experts, gate.k, gate.importance, gate.load) == (5, 3, 0.2, 0.2)
    assert {(each.up.out_features, type(each.activation)) for each in mixture.experts} == {(19, nn.GELU)}
    plain = small(layer=experts(n=5, gate="top-k"))
    assert type(on_meta(plain, V).stack.blocks[1].feed_forward.part.gate) is TopKGate


def test_first_weights_of_experts_and_compressions():
    torch.manual_seed(1)
    config = LanguageModelConfig(
        n_layers=2,
        d_model=96,
        layer={"mixer": {"kind": "compressed-attention", "n_heads": 3}},
        pattern=[{"channels": {"kind": "experts", "n": 3, "k": 2, "expert": {"activation": "gelu"}}}, {}],
    )
    model = build(config, 101)
    attention, mixture = model.stack.blocks[0].mixer.part, model.stack.blocks[0].feed_forward.part
    assert spread(attention.qkv.weight) == pytest.approx(0.02, rel=0.03)
    assert spread(attention.out.weight) == pytest.approx(0.01, rel=0.03)
    # Xavier: sqrt(2 / (3 d_k + d_k)).
    assert spread(attention.compress_keys.weight) == pytest.approx(math.sqrt(2 / 128), rel=0.03)
    for expert in mixture.experts:
        assert spread(expert.up.weight) == pytest.approx(0.02, rel=0.03)
        assert spread(expert.down.weight) == pytest.approx(0.01, rel=0.03)


@torch.no_grad()
def test_a_memory_far_below_the_context_is_kept_for_continuing():
    local, compressed = {"kind": "blocks", "size": 4}, {"kind": "compressed-attention", "n_heads": 2}
    model = model_of(small(pattern=[{"mixer": {"visible": local}}, {"mixer": compressed}], context=64))
    state = model.start(1)
    _, state = model.extend(Tokens.of([list(range(1, 31))]), state)
    kinds = [type(cache) for cache in state.caches]
    assert kinds == [KeyValueCache, CompressedCache, KeyValueCache]
    assert state.caches[1].memory.keys.shape[2] == 16


# Refusals --------------------------------------------------------------------------------------------------


def test_a_source_is_refused():
    with pytest.raises(ValueError, match="has no source"):
        model_of(small())(Tokens.of(TARGETS), Tokens.of(TARGETS))


def test_a_sequence_beyond_the_context_is_refused():
    with pytest.raises(RequestError, match="position 11 is out of range: the model has 11 positions"):
        model_of(small())(Tokens.of([list(range(12))]))


@pytest.mark.parametrize("positions", ["sinusoidal", "constant", "none", "rotary", "alibi"])
@torch.no_grad()
def test_other_positions_go_on_beyond_the_context(positions):
    """31 tokens in a context of 11: the first are what they were alone."""
    model = model_of(small(positions=positions, layer={"mixer": {"d_k": 6}}))
    ids = [1 + i % 29 for i in range(31)]
    long, short = model(Tokens.of([ids])), model(Tokens.of([ids[:11]]))
    assert long.isfinite().all()
    torch.testing.assert_close(long[:11], short, rtol=0, atol=1e-5)


@pytest.mark.parametrize("positions", ["none", "rotary", "alibi"])
@torch.no_grad()
def test_positions_inside_attention_alone_tell_the_order_of_what_came_before(positions):
    """With one layer, the causal mask does not: earlier tokens may change places."""
    model = model_of(small(positions=positions, layer={"mixer": {"d_k": 6}}, n_layers=1))
    straight, swapped = (model(Tokens.of([ids]))[-1] for ids in ([5, 6, 7, 8], [6, 7, 5, 8]))
    assert torch.allclose(straight, swapped, atol=1e-5) == (positions == "none")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"d_model": 15}, "must be divisible by n_heads"),
        ({"positions": "rotary"}, r"d_k=7 must be even with positions\.kind=rotary"),
        (
            {"positions": {"kind": "rotary", "d_rotated": 3}},
            r"positions\.d_rotated=3 must be even and at most d_k=7",
        ),
        (
            {"positions": {"kind": "rotary", "d_rotated": 8}},
            r"positions\.d_rotated=8 must be even and at most d_k=7",
        ),
        (
            {"positions": {"kind": "rotary", "base": 1.0}, **mixer("attention", d_k=6)},
            "greater than 1",
        ),
        ({"positions": {"kind": "alibi", "d_rotated": 2}}, r"positions\.alibi\.d_rotated\n  Extra inputs"),
        ({"positions": {"base": 500.0}}, r"positions\.learned\.base\n  Extra inputs"),
        (
            {"positions": "rotary", **mixer("attention", d_k=6, score="additive")},
            r"got layer\.mixer\.score\.kind=additive; choose other positions",
        ),
        (mixer("attention", n_kv_heads=3), "must be divisible by n_kv_heads=3"),
        (
            {"d_model": 15, "positions": "sinusoidal", **mixer("attention", n_heads=3)},
            r"d_model must be even .*, got 15",
        ),
        ({"context": 0}, "greater than or equal to 1"),
        ({"tie": "three-way"}, "valid boolean"),
        (mixer("attention", visible={"kind": "window", "size": 1}), "greater than or equal to 2"),
        (mixer("attention", visible="window"), r"visible\.window\.size\n  Field required"),
        (
            mixer("attention", visible={"kind": "window", "size": 3, "earlier": 1}),
            r"visible\.window\.earlier\n  Extra inputs",
        ),
        (
            mixer("compressed-attention", visible={"kind": "window", "size": 3}),
            r"compressed-attention\.visible\n  Extra inputs",
        ),
        (
            mixer("recurrent", visible={"kind": "window", "size": 3}),
            r"recurrent\.visible\n  Extra inputs",
        ),
        (
            {"positions": "alibi", **mixer("recurrent")},
            r"requires attention, got layer\.mixer\.kind=recurrent",
        ),
        (
            {"positions": "alibi", **mixer("separable")},
            r"requires attention, got layer\.mixer\.kind=separable",
        ),
        (
            {"positions": "alibi", **mixer("compressed-attention", n_heads=2)},
            r"layer\.mixer\.kind=compressed-attention, whose memory slots have no single position",
        ),
        (mixer("fourier"), r"layer\.mixer\.kind=fourier is not supported by this model"),
        (mixer("compressed-attention", factor=1), "greater than or equal to 2"),
        (mixer("sparse"), "'separable', 'convolution', 'parallel-convolutions'"),
        ({"layer": experts(n=4, k=4)}, r"experts\.k must be smaller than experts\.n"),
        ({"layer": experts(n=4, k=1)}, "greater than or equal to 2"),
        ({"layer": experts(n=4, gate="top-k", load=0.1)}, "load requires gate=noisy-top-k"),
        (
            {"layer": {"channels": {"kind": "experts", "expert": "none"}}},
            r"channels\.experts\.expert",
        ),
        ({"pattern": []}, "at least 1 item"),
        (
            {"pattern": [{}, experts(n=4, k=4)]},
            r"pattern\.1\.channels\.experts\n  Value error, experts\.k must be",
        ),
    ],
)
def test_contradictions_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        small(**options)


def test_only_the_one_vocabulary_may_be_given():
    assert heedful.build("char-mini-cpu", vocab_size=5).heads["token"].out_features == 5
    with pytest.raises(RequestError, match="one vocabulary; set vocab_size"):
        heedful.build("char-mini-cpu", target_vocab=5)
    with pytest.raises(RequestError, match=r"^vocab_size is required$"):
        heedful.build("char-mini-cpu")
