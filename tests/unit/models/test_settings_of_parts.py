"""Every parameter of the parts of a model is a key of recipes or given by the model."""

import inspect
from typing import get_type_hints

import pytest
from torch import nn

from heedful.models import sections
from heedful.models.cells import CELLS, CellSection
from heedful.models.mixers import MIXERS, CrossAttentionConfig, MixerSection, StackSizes
from heedful.models.positions import POSITIONS, NoPositionsConfig, PositionsSection
from heedful.models.sections import CHANNELS, NORMS, SCORES
from heedful.models.stacks import StackConfig
from heedful.models.visible import VISIBLE, VisibleSection
from heedful.nn import cells, experts, feedforward, mixers, norms, positions, recurrent, visibility
from heedful.nn.attention import scores
from heedful.nn.attention.compressed import MemoryCompressedAttention
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.heads import HeadOptions
from heedful.nn.attention.relative import Alibi, Rotary
from heedful.nn.attention.self_attention import SelfAttention

# Classes that each section builds, with the parameters that the model gives.
GIVEN = {
    "score scaled-dot": {scores.ScaledDotScore: ""},
    "score dot": {scores.DotScore: ""},
    "score bilinear": {scores.BilinearScore: "d_q d_k"},
    "score additive": {scores.AdditiveScore: "d_q d_k n_heads"},
    "score cosine": {scores.CosineScore: ""},
    "norm layer": {norms.LayerNorm: "d"},
    "norm rms": {norms.RMSNorm: "d"},
    "norm batch": {norms.BatchNorm: "d"},
    "norm power": {norms.PowerNorm: "d"},
    "channels feed-forward": {feedforward.FeedForward: "d_model"},
    "channels gated": {feedforward.GatedFeedForward: "d_model"},
    "channels experts": {
        experts.MixtureOfExperts: "",
        experts.NoisyTopKGate: "d_model",
        experts.TopKGate: "d_model",
    },
    "channels none": {type(None): ""},
    "positions none": {positions.NoPositions: "d"},
    "positions learned": {positions.LearnedPositions: "max_length d"},
    "positions sinusoidal": {positions.SinusoidalPositions: "d"},
    "positions rotary": {positions.NoPositions: "d", Rotary: "d_k"},
    "positions alibi": {positions.NoPositions: "d", Alibi: "n_heads"},
    "positions one-hot": {positions.OneHotPositions: "max_length"},
    "positions constant": {positions.ConstantPositions: "d scale"},
    "positions grid": {positions.GridPositions: "rows columns d before"},
    "cell lstm": {cells.LSTMCell: "d_in d_hidden"},
    "cell gru": {cells.GRUCell: "d_in d_hidden", cells.ResetAfterGRUCell: "d_in d_hidden"},
    "cell rnn": {cells.ElmanCell: "d_in d_hidden"},
    "visible all": {type(None): ""},
    "visible window": {visibility.Window: ""},
    "visible blocks": {visibility.Blocks: ""},
    "visible dilated": {visibility.Dilated: ""},
    "visible strided": {visibility.Strided: ""},
    "visible fixed": {visibility.Fixed: ""},
    "visible global": {visibility.GlobalTokens: ""},
    "visible tree": {visibility.Tree: ""},
    "visible mask": {visibility.Mask: ""},
    "mixer attention": {SelfAttention: "d_model causal"},
    "mixer compressed-attention": {MemoryCompressedAttention: "d_model"},
    "mixer cross-attention": {CrossAttention: "d_model d_memory"},
    "mixer recurrent": {recurrent.Recurrence: "", recurrent.Bidirectional: ""},
    "mixer fourier": {mixers.FourierMixer: ""},
    "mixer mlp": {mixers.PositionMLP: "d_model n_positions"},
    "mixer separable": {mixers.DepthwiseSeparableConvolution: "d_model causal"},
    "mixer convolution": {mixers.Convolution: "d_model causal"},
    "mixer parallel-convolutions": {mixers.ParallelConvolutions: "d_model causal"},
}

# Parameters with another name in recipes: their key in the section, or in the stack.
RENAMED = {
    "qkv_bias": "bias",
    "out_bias": "bias",
    "pattern": "visible",
    "rotary": "positions",
    "score_bias": "positions",
    "n_experts": "n",
    "experts": "expert",
    "reverse": "direction",
    "left_to_right": "direction",
    "right_to_left": "direction",
}

SECTIONS = {
    f"{part} {section.model_fields['kind'].default}": section
    for part, table in {
        "score": SCORES,
        "norm": NORMS,
        "channels": CHANNELS,
        "positions": POSITIONS,
        "cell": CELLS,
        "visible": VISIBLE,
        "mixer": (*MIXERS, CrossAttentionConfig),
    }.items()
    for section in table
}


def parameters(built):
    """Names of the parameters of a constructor, with those of its keyword options."""
    if built.__init__ in (nn.Module.__init__, object.__init__):
        return
    for parameter in inspect.signature(built).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            yield from get_type_hints(HeadOptions)
        else:
            yield parameter.name


def has_key(section, key):
    """Whether a section has a key, or the stack has it."""
    first, _, rest = key.partition(".")
    if first not in section.model_fields:
        return first in StackConfig.model_fields
    kinds = getattr(section.model_fields[first].annotation, "__args__", ())
    return not rest or any(rest in kind.__args__[0].model_fields for kind in kinds)


def test_every_section_is_listed():
    assert GIVEN.keys() == SECTIONS.keys()


@pytest.mark.parametrize(
    ("name", "built"), [(name, built) for name, classes in GIVEN.items() for built in classes]
)
def test_every_parameter_of_a_part_can_be_set_or_is_given_by_the_model(name, built):
    section, given = SECTIONS[name], GIVEN[name][built].split()
    unset = [
        each
        for each in parameters(built)
        if each not in given and not has_key(section, each) and not has_key(section, RENAMED.get(each, each))
    ]
    assert unset == [], f"{name}: no key of a recipe sets {built.__name__}({', '.join(unset)})"


@pytest.mark.parametrize(
    ("name", "built"), [(name, built) for name, classes in GIVEN.items() for built in classes]
)
def test_only_parameters_are_listed(name, built):
    """A parameter is not both given by the model and a key."""
    section, given = SECTIONS[name], GIVEN[name][built].split()
    assert {*given} <= {*parameters(built)}
    assert not {*given} & section.model_fields.keys()


def build(section):
    match section:
        case sections.ScoreSection():
            return section.build(4, 4)
        case PositionsSection():
            return section.build(5, 8)
        case MixerSection():
            return section.build(StackSizes(8, 5, causal=False, positions=NoPositionsConfig()))
        case VisibleSection():
            return section.build()
        case CellSection():
            return section.build(4, 5)
        case _:
            return section.build(8)


REQUIRED = {"size": 4, "step": 2, "stride": 3, "rows": ["10", "11"]}


def smallest(section, **settings):
    """The section with what has no default."""
    required = {key: REQUIRED[key] for key, field in section.model_fields.items() if field.is_required()}
    return section(**required, **settings)


@pytest.mark.parametrize("name", [name for name in SECTIONS if name != "positions grid"])
def test_a_section_builds_one_of_the_classes_that_are_listed(name):
    section = smallest(SECTIONS[name])
    built = build(section)
    assert type(built) in GIVEN[name]
    if name.startswith("positions"):
        assert {type(part) for part in section.inside(4, 2).values()} <= GIVEN[name].keys()


def test_the_table_of_renamed_keys_has_no_others():
    names = {each for classes in GIVEN.values() for built in classes for each in parameters(built)}
    assert names >= RENAMED.keys()


# Values that differ from the defaults; other numbers are increased, and switches turned.
OTHER = {
    "score": "cosine",
    "visible": {"kind": "window", "size": 3},
    "activation": "silu",
    "gate": "top-k",
    "reset": "after",
    "expert": "gated",
    "cell": "gru",
    "direction": "right-to-left",
    "widths": [2],
    "rows": ["11", "11"],
    "n_heads": 4,
    "n_kv_heads": 1,
    "d_tokens": 3,
}


def other(key, value):
    if key in OTHER:
        return OTHER[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value / 2 + 0.125 if value < 1 else 2 * value
    return 2 if value is None else value + 2


def described(part):
    """The modules of a part, their attributes and the sizes of their weights."""
    if not isinstance(part, nn.Module):
        return part
    attributes = {
        name: value
        for name, value in vars(part).items()
        if isinstance(value, int | float | str | tuple | visibility.AttentionPattern)
    }
    if isinstance(part, cells.LSTMCell):
        attributes["initial bias"] = part.input.bias.tolist()
    weights = {
        name: weight.tolist() if weight.numel() == 1 else weight.shape
        for name, weight in part.named_parameters(recurse=False)
    }
    inner = {name: described(child) for name, child in part.named_children()}
    return type(part).__name__, attributes, weights, inner


def built_of(section):
    inside = section.inside(4, 2) if isinstance(section, PositionsSection) else {}
    return described(build(section)), {name: described(part) for name, part in inside.items()}


@pytest.mark.parametrize(
    ("name", "key"),
    [(name, key) for name, section in SECTIONS.items() for key in section.model_fields if key != "kind"],
)
def test_every_key_changes_what_is_built(name, key):
    section = SECTIONS[name]
    plain = smallest(section, **({"n_heads": 2} if "n_heads" in section.model_fields else {}))
    changed = plain.changed(**{key: other(key, getattr(plain, key))})
    assert built_of(changed) != built_of(plain)
