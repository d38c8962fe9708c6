"""Laws 6 and 9: configurations and weights survive files and processes; a seed gives one model."""

import json

import pytest
import torch
from cases import (
    MODELS,
    SOURCES,
    TARGETS,
    configuration,
    every_model,
    in_fresh_process,
    model_of,
    plain_model,
    source_of,
)
from pydantic import TypeAdapter
from safetensors.torch import load_file

from heedful.artifacts.weights import save_weights
from heedful.models.registry import PRESETS, ModelConfig
from heedful.nn.layout import Tokens

CONFIGS = {**PRESETS, **{name: configuration(name) for name in MODELS}}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_configuration_round_trips(name):
    config, any_model = CONFIGS[name], TypeAdapter(ModelConfig)
    assert any_model.validate_python(config.model_dump()) == config
    assert any_model.validate_python(json.loads(json.dumps(config.model_dump(mode="json")))) == config
    assert any_model.validate_json(config.model_dump_json()) == config


def test_every_checkpoint_loads_in_a_fresh_process(tmp_path):
    """The process knows the configuration and the weights alone; its numbers are the same to the bit."""
    wanted = {}
    for i, name in enumerate(MODELS):
        model = model_of(name)
        (tmp_path / f"{i}.json").write_text(configuration(name).model_dump_json(), encoding="utf-8")
        save_weights(tmp_path / f"{i}.safetensors", model)
        with torch.no_grad():
            wanted[str(i)] = model.heads["token"](model(Tokens.of(TARGETS), source_of(model, SOURCES)))
    in_fresh_process("loaded.py", str(tmp_path), str(torch.get_num_threads()))
    outputs = load_file(tmp_path / "outputs")
    assert outputs.keys() == wanted.keys()
    assert all(torch.equal(outputs[i], wanted[i]) for i in wanted)


@every_model
def test_one_seed_gives_one_initialisation(name):
    one, again, other = plain_model(name), plain_model(name), plain_model(name, seed=2)
    state = one.state_dict()
    assert all(torch.equal(tensor, state[key]) for key, tensor in again.state_dict().items())
    drawn = [key for key, p in one.named_parameters() if p.dim() > 1]
    assert drawn
    assert not any(torch.equal(state[key], other.state_dict()[key]) for key in drawn)
