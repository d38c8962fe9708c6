"""The registry of cases leaves nothing out."""

import importlib
import inspect
import pkgutil
from typing import Literal, get_args, get_origin

import pytest
import torch
from cases import (
    CROSS,
    DECODERS,
    ENCODERS,
    IMAGES,
    LABELLED,
    MIXERS,
    MODELS,
    OBJECTIVES,
    REGISTERED,
    configuration,
    cross_of,
    every_mixer,
    image_configuration,
    labelled_model,
    mixer_of,
    plain_model,
)
from torch import nn

import heedful.nn as nn_package
from heedful import objectives
from heedful.decoding.config import DecodingConfig
from heedful.models.captioner import CaptionerConfig
from heedful.models.encoder import EncoderConfig
from heedful.models.language_model import ExpertsConfig, LanguageModelConfig
from heedful.models.mixers import MIXERS as MAKERS
from heedful.models.recurrent import Attention, RecurrentConfig
from heedful.models.registry import BUILDERS
from heedful.models.resnet import ResNetConfig
from heedful.models.transformer import TransformerConfig
from heedful.models.vision import VisionConfig
from heedful.nn import cells, experts, mixers, recurrent
from heedful.nn.attention import compressed, heads, relative, scores
from heedful.nn.declarations import declared
from heedful.objectives import registry
from heedful.objectives.terms import Objective


def options(config_type):
    """Every option of every literal field, as (field, option); booleans are options too."""
    for name, field in config_type.model_fields.items():
        if get_origin(field.annotation) is Literal:
            yield from ((name, option) for option in get_args(field.annotation))
        elif field.annotation is bool:
            yield from ((name, option) for option in (False, True))


@pytest.mark.parametrize(
    "kind",
    [TransformerConfig, RecurrentConfig, LanguageModelConfig, CaptionerConfig],
    ids=lambda kind: kind.__name__,
)
def test_every_option_of_every_model_occurs(kind):
    configs = [c for c in map(configuration, MODELS) if isinstance(c, kind)]
    missing = {(f, o) for f, o in options(kind) if o not in [getattr(c, f) for c in configs]}
    assert not missing


def test_every_option_of_every_encoder_occurs():
    configs = [EncoderConfig.model_validate(case) for case in ENCODERS.values()]
    missing = {(f, o) for f, o in options(EncoderConfig) if o not in [getattr(c, f) for c in configs]}
    assert not missing


@pytest.mark.parametrize("kind", [VisionConfig, ResNetConfig], ids=lambda kind: kind.__name__)
def test_every_option_of_every_model_of_images_occurs(kind):
    configs = [c for c in map(image_configuration, IMAGES) if isinstance(c, kind)]
    missing = {(f, o) for f, o in options(kind) if o not in [getattr(c, f) for c in configs]}
    assert not missing


def test_the_mixer_of_every_word_in_recipes_occurs():
    """By itself; within models, the cases make one for every word."""
    config = EncoderConfig.model_validate({**ENCODERS["encoder"], "kernel": 3})
    assert {type(make(config, 11)) for make in MAKERS.values()} <= parts(mixer_of, MIXERS)


def test_every_objective_occurs():
    known = {
        kind
        for module in modules_of(objectives)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and {"counts", "__call__"} <= vars(kind).keys()
    }
    made = [case.make() for case in OBJECTIVES.values()]
    inner = [each for objective in made for each in getattr(objective, "objectives", ())]
    assert known - {Objective} <= {type(each) for each in [*made, *inner]}


def test_every_loss_that_recipes_may_name_occurs():
    swept = {id(config.losses) for config, _, _ in REGISTERED.values()}
    assert swept == {id(table) for name, table in vars(registry).items() if name.isupper()}


def test_every_score_of_recurrent_models_occurs():
    union = get_args(Attention)[0]
    known = {o for kind in get_args(union) for o in get_args(kind.model_fields["score"].annotation)}
    configs = [c for c in map(configuration, MODELS) if isinstance(c, RecurrentConfig)]
    assert {c.attention.score for c in configs if c.attention} == known
    assert None in [c.attention for c in configs]


def test_every_gate_of_experts_occurs():
    found = [c.experts for c in map(configuration, MODELS) if isinstance(c, LanguageModelConfig)]
    assert None in found
    known = {option for field, option in options(ExpertsConfig) if field == "gate"}
    assert {e.gate for e in found if e} == known
    used = parts(plain_model, MODELS)
    assert subclasses(experts, experts.Gate) <= used


def test_every_family_occurs():
    assert {case["kind"] for case in (MODELS | ENCODERS | IMAGES).values()} == BUILDERS.keys()


def modules_of(package):
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [importlib.import_module(each.name) for each in found]


def subclasses(module, base):
    found = (kind for _, kind in inspect.getmembers(module, inspect.isclass))
    return {kind for kind in found if issubclass(kind, base) and kind is not base}


def of_module(module):
    """Its own public parts."""
    found = inspect.getmembers(module, inspect.isclass)
    own = {kind for name, kind in found if kind.__module__ == module.__name__ and not name.startswith("_")}
    return {kind for kind in own if issubclass(kind, nn.Module)}


def parts(make, names):
    return {type(part) for name in names for part in make(name).modules()}


def test_every_mixer_cell_and_score_occurs():
    used = parts(mixer_of, MIXERS) | parts(cross_of, CROSS)
    assert subclasses(recurrent, recurrent.RecurrentLayer) <= used
    assert subclasses(cells, cells.Cell) | {cells.StackedCell} <= used
    assert subclasses(scores, scores.Score) <= used
    assert of_module(mixers) | of_module(relative) <= used
    assert subclasses(compressed, heads.MultiHead) <= used
    assert subclasses(heads, heads.MultiHead) <= used


def test_every_part_of_nn_occurs():
    """In some case, so that some law holds it; but for those that others are made from."""
    known = {kind for module in modules_of(nn_package) for kind in of_module(module)}
    used = parts(mixer_of, MIXERS) | parts(cross_of, CROSS) | parts(plain_model, MODELS)
    used |= parts(labelled_model, LABELLED) | parts(lambda name: OBJECTIVES[name].heads(), OBJECTIVES)
    bases = {base for kind in known for base in kind.__mro__[1:]}
    assert sorted(kind.__name__ for kind in known - used - bases) == []


def test_every_decoder_occurs():
    assert {*map(type, DECODERS.values())} == {*get_args(get_args(DecodingConfig)[0])}


@every_mixer
def test_a_mixer_has_a_cache_unless_it_reads_ahead(name):
    mixer = mixer_of(name)
    assert isinstance(mixer, nn.Module)
    assert ("reads_ahead" in declared(mixer)) == (MIXERS[name].cache is None)


@every_mixer
def test_a_case_is_made_anew_whenever_it_is_asked_for(name):
    # Parts that two of them share would be moved twice.
    one, other = (list(mixer_of(name).parameters()) for _ in range(2))
    assert not {*map(id, one)} & {*map(id, other)}
    assert all(map(torch.equal, one, other))
