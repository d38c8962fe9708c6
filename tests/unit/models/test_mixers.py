"""The table of mixers: every word makes a stack in every family, and no other word does."""

import pytest
import torch
from pydantic import ValidationError

from heedful.errors import RequestError
from heedful.models import encoder, vision
from heedful.models.mixers import MIXERS
from heedful.nn.cells import ElmanCell, GRUCell, LSTMCell
from heedful.nn.recurrent import Recurrence
from heedful.runs.reading import read_recipe

SMALL = {"d_model": 6, "d_ff": 7, "n_heads": 2, "n_layers": 1, "kernel": 3}
CONFIGS = {
    "encoder": lambda **options: encoder.EncoderConfig(**SMALL, max_length=11, **options),
    "vision": lambda **options: vision.VisionConfig(**SMALL, image_size=6, patch_size=2, **options),
}
every_family = pytest.mark.parametrize("family", CONFIGS)


@every_family
@pytest.mark.parametrize("mixer", MIXERS)
def test_every_family_offers_every_mixer(family, mixer):
    config = CONFIGS[family](mixer=mixer, pooling="mean")
    with torch.device("meta"):
        model = encoder.build(config, 17) if family == "encoder" else vision.build(config)
        wanted = type(MIXERS[mixer](config, 13))
    assert [type(block.mixer.part) for block in model.stack.blocks] == [wanted]


@every_family
@pytest.mark.parametrize("direction", ["left-to-right", "right-to-left", "both"])
@pytest.mark.parametrize(("word", "cell"), [("rnn", ElmanCell), ("lstm", LSTMCell), ("gru", GRUCell)])
def test_a_recurrence_has_the_cell_and_the_direction_asked_for(family, direction, word, cell):
    config = CONFIGS[family](mixer="recurrent", cell=word, direction=direction, pooling="mean")
    part = MIXERS["recurrent"](config, 13)
    ways = [each for each in part.modules() if isinstance(each, Recurrence)]
    wanted = {"left-to-right": [False], "right-to-left": [True], "both": [False, True]}[direction]
    assert [each.reverse for each in ways] == wanted
    assert [(type(each.cell), each.cell.d_hidden) for each in ways] == [(cell, 6 // len(ways))] * len(ways)
    assert part.d_out == config.d_model


@every_family
def test_by_default_it_is_an_lstm_in_both_directions(family):
    config = CONFIGS[family](mixer="recurrent")
    assert (config.cell, config.direction) == ("lstm", "both")


def test_each_direction_has_half_of_the_width():
    odd = {"d_model": 7, "n_heads": 1, "mixer": "recurrent"}
    with pytest.raises(ValidationError, match="d_model=7 must be even with direction=both: each direction"):
        encoder.EncoderConfig(**odd)
    assert encoder.EncoderConfig(**odd, direction="right-to-left").d_model == 7


@every_family
def test_a_first_token_that_would_see_itself_alone_is_refused(family):
    with pytest.raises(
        ValidationError, match=r"direction=left-to-right, .* sees only itself; set pooling=mean"
    ):
        CONFIGS[family](mixer="recurrent", direction="left-to-right", pooling="first")


@every_family
def test_another_word_is_refused_with_the_nearest(family):
    with pytest.raises(
        ValidationError, match=r"'atention' \(did you mean 'attention'\?\); expected attention"
    ):
        CONFIGS[family](mixer="atention")


def test_a_recipe_with_another_word_names_its_place():
    with pytest.raises(RequestError) as caught:
        read_recipe("sst2", ["model.mixer=furier"])
    assert "on the command line: model.mixer=furier: unknown mixer 'furier'" in str(caught.value)
    assert "did you mean 'fourier'" in str(caught.value)


@pytest.mark.parametrize("config", [encoder.EncoderConfig, vision.VisionConfig])
def test_the_schema_lists_the_words(config):
    assert config.model_json_schema()["properties"]["mixer"]["enum"] == list(MIXERS)
