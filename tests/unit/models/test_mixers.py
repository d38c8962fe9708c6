"""The table of mixers: every kind makes a stack in every family that can use it, and no other kind does."""

import pytest
import torch
from pydantic import ValidationError

from heedful.errors import RequestError
from heedful.models import encoder, language_model, vision
from heedful.models.mixers import MIXERS, StackSizes
from heedful.nn.cells import ElmanCell, GRUCell, LSTMCell
from heedful.nn.recurrent import Recurrence
from heedful.runs.reading import read_recipe

SMALL = {"d_model": 6, "n_layers": 1}
CONFIGS = {
    "encoder": lambda mixer, **options: encoder.EncoderConfig(
        **SMALL, layer=layer(mixer), max_length=11, **options
    ),
    "vision": lambda mixer, **options: vision.VisionConfig(
        **SMALL, layer=layer(mixer), image_size=6, patch_size=2, **options
    ),
}
KINDS = {mixer.model_fields["kind"].default: mixer for mixer in MIXERS}
HEADS = {"attention": {"n_heads": 2}, "compressed-attention": {"n_heads": 2}}
every_family = pytest.mark.parametrize("family", CONFIGS)


def layer(mixer):
    return {"mixer": mixer, "channels": {"d_ff": 7}}


def built(family, config):
    with torch.device("meta"):
        model = encoder.build(config, 17) if family == "encoder" else vision.build(config)
    return [block.mixer.part for block in model.stack.blocks]


@every_family
@pytest.mark.parametrize("kind", [kind for kind, mixer in KINDS.items() if mixer.both_ways])
def test_every_family_offers_every_mixer_that_sees_both_ways(family, kind):
    mixer = {"kind": kind, **HEADS.get(kind, {})}
    config = CONFIGS[family](mixer, pooling="mean")
    with torch.device("meta"):
        wanted = type(config.layer.mixer.build(StackSizes(6, 13, causal=False, positions=config.positions)))
    assert [type(part) for part in built(family, config)] == [wanted]


@every_family
@pytest.mark.parametrize("kind", [kind for kind, mixer in KINDS.items() if not mixer.both_ways])
def test_mixers_that_see_only_earlier_tokens_are_refused(family, kind):
    with pytest.raises(
        ValidationError,
        match=rf"layer\.mixer\.kind={kind} is not supported by this model, whose tokens see later tokens",
    ):
        CONFIGS[family]({"kind": kind, **HEADS.get(kind, {})}, pooling="mean")


@pytest.mark.parametrize("kind", KINDS)
def test_language_models_offer_every_mixer_that_sees_only_earlier_tokens(kind):
    given = {**SMALL, "layer": layer({"kind": kind, **HEADS.get(kind, {})}), "context": 11}
    if not KINDS[kind].one_way:
        with pytest.raises(
            ValidationError, match=rf"kind={kind} is not supported .* does not see later tokens"
        ):
            language_model.LanguageModelConfig(**given)
        return
    config = language_model.LanguageModelConfig(**given)
    with torch.device("meta"):
        (block,) = language_model.build(config, 17).stack.blocks
        wanted = type(config.layer.mixer.build(StackSizes(6, 11, causal=True, positions=config.positions)))
    assert type(block.mixer.part) is wanted


@every_family
@pytest.mark.parametrize("direction", ["left-to-right", "right-to-left", "both"])
@pytest.mark.parametrize(("word", "cell"), [("rnn", ElmanCell), ("lstm", LSTMCell), ("gru", GRUCell)])
def test_a_recurrence_has_the_cell_and_the_direction_asked_for(family, direction, word, cell):
    config = CONFIGS[family]({"kind": "recurrent", "cell": word, "direction": direction}, pooling="mean")
    (part,) = built(family, config)
    ways = [each for each in part.modules() if isinstance(each, Recurrence)]
    wanted = {"left-to-right": [False], "right-to-left": [True], "both": [False, True]}[direction]
    assert [each.reverse for each in ways] == wanted
    assert [(type(each.cell), each.cell.d_hidden) for each in ways] == [(cell, 6 // len(ways))] * len(ways)
    assert part.d_out == config.d_model


@every_family
def test_by_default_it_is_an_lstm_in_both_directions(family):
    mixer = CONFIGS[family]("recurrent").layer.mixer
    assert (mixer.cell.kind, mixer.direction) == ("lstm", "both")


def test_each_direction_has_half_of_the_width():
    with pytest.raises(ValidationError, match="d_model=7 must be even with direction=both: each direction"):
        encoder.EncoderConfig(d_model=7, layer={"mixer": "recurrent"})
    one = {"kind": "recurrent", "direction": "right-to-left"}
    assert encoder.EncoderConfig(d_model=7, layer={"mixer": one}).d_model == 7


@every_family
def test_a_first_token_that_would_see_itself_alone_is_refused(family):
    with pytest.raises(
        ValidationError, match=r"direction=left-to-right, .* sees only itself; set pooling=mean"
    ):
        CONFIGS[family]({"kind": "recurrent", "direction": "left-to-right"}, pooling="first")


@every_family
def test_another_kind_is_refused(family):
    with pytest.raises(
        ValidationError, match=r"layer\.mixer\n  Input tag 'atention' .* expected tags: 'attention', 'compr"
    ):
        CONFIGS[family]("atention")


@pytest.mark.parametrize("key", ["model.layer.mixer", "model.layer.mixer.kind"])
def test_a_recipe_with_another_kind_names_its_place(key):
    with pytest.raises(RequestError) as caught:
        read_recipe("sst2", [f"{key}=furier"])
    assert "on the command line: model.layer.mixer.kind" in str(caught.value)
    assert ": unknown kind 'furier' (did you mean 'fourier'?); the kinds are attention, " in str(caught.value)


@pytest.mark.parametrize("config", [encoder.EncoderConfig, vision.VisionConfig])
def test_the_schema_lists_the_kinds(config):
    definitions = config.model_json_schema()["$defs"]
    kinds = {mixer.__name__: definitions[mixer.__name__]["properties"]["kind"]["const"] for mixer in MIXERS}
    assert kinds == {mixer.__name__: kind for kind, mixer in KINDS.items()}
    listed = definitions["LayerConfig"]["properties"]["mixer"]
    named = [each["$ref"].rpartition("/")[2] for each in (listed.get("oneOf") or listed["anyOf"])]
    assert named[: len(MIXERS)] == [mixer.__name__ for mixer in MIXERS]
