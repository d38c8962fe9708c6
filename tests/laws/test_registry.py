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
    labelled_configuration,
    labelled_model,
    layers_of,
    mixer_of,
    plain_model,
)
from configurations import configurations
from pydantic import ValidationError
from torch import nn

import heedful.nn as nn_package
from heedful import objectives
from heedful.config import Config, CustomSection
from heedful.decoding.config import DecodingConfig
from heedful.models.mixers import MIXERS as MIXERS_OF_RECIPES
from heedful.models.mixers import StackSizes
from heedful.models.positions import NoPositionsConfig
from heedful.models.recurrent import RecurrentDecoderConfig
from heedful.models.registry import BUILDERS
from heedful.nn import cells, experts, mixers, recurrent
from heedful.nn.attention import compressed, heads, relative, scores
from heedful.nn.declarations import declared
from heedful.objectives import registry
from heedful.objectives.terms import Objective

CONFIGS = [configuration(name) for name in MODELS] + [labelled_configuration(name) for name in LABELLED]
FAMILIES = [*{type(config): None for config in CONFIGS}]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
ONCE = {"visible", "cell", "expert", "cross_attention", "attention"}
"""Sections of parts that occur elsewhere too: it is enough if one family has each of their options."""


def known_sections(config_type, place=()):
    """Every class of sections that a configuration may have, at any depth, and its place; also itself."""
    yield place, config_type
    for name, field in config_type.model_fields.items():
        for each in configurations(field.annotation):
            if not issubclass(each, CustomSection):
                yield from known_sections(each, (*place, name))


def sections(config, place=()):
    """Every section of a configuration, of each of its layers, and its place; also itself."""
    yield place, config
    for name in type(config).model_fields:
        for value in layers_of(config) if name == "layer" else [getattr(config, name)]:
            if isinstance(value, Config):
                yield from sections(value, (*place, name))


def options(config_type):
    """Every option of every literal field, as (field, option); booleans are options too."""
    for name, field in config_type.model_fields.items():
        if name == "kind":
            continue
        if get_origin(field.annotation) is Literal:
            yield from ((name, option) for option in get_args(field.annotation))
        elif field.annotation is bool:
            yield from ((name, option) for option in (False, True))


def chosen(config):
    """What a section has for each of its `options`."""
    return {(name, getattr(config, name)) for name, _ in options(type(config))}


def of_kind(place, section):
    """Changes that give a configuration a section of this class at this place."""
    required = {name: 2 for name, field in section.model_fields.items() if field.is_required()}
    changes = {**required, "kind": section.model_fields["kind"].default}
    for name in reversed(place):
        changes = {name: changes}
    return changes


def accepts(config, place, section):
    """Whether such a section can be set there; a pattern may replace it in all layers."""
    try:
        changed = config.changed(**of_kind(place, section))
    except ValidationError:
        return False
    return (place, section) in [(each, type(found)) for each, found in sections(changed)]


@every_family
def test_every_kind_of_every_section_of_a_family_occurs_or_is_refused(family):
    configs = [config for config in CONFIGS if type(config) is family]
    occurring = {(place, type(section)) for config in configs for place, section in sections(config)}
    others = [
        (place, section)
        for place, section in {*known_sections(family)} - occurring
        if "kind" in section.model_fields and not {*place} & ONCE
    ]
    accepted = [each for each in others if any(accepts(config, *each) for config in configs)]
    assert accepted == []


@every_family
def test_every_option_of_a_family_occurs(family):
    """At each place; whatever the kind of the section there, if several have it."""
    occurring, known = set(), set()
    for config in CONFIGS:
        if type(config) is family:
            for place, section in sections(config):
                occurring |= {(place, *each) for each in chosen(section)}
                known |= {(place, *each) for each in options(type(section)) if not {*place} & ONCE}
    assert known - occurring == set()


def test_every_option_of_every_section_occurs():
    occurring = {
        (type(section), *each) for c in CONFIGS for _, section in sections(c) for each in chosen(section)
    }
    known = {section for family in FAMILIES for _, section in known_sections(family)}
    assert {(section, *each) for section in known for each in options(section)} - occurring == set()


def test_every_key_of_every_section_occurs():
    """Not only its default; but rates of dropout, which the laws do without."""
    set_keys = {
        (type(section), name)
        for config in CONFIGS
        for _, section in sections(config)
        for name, field in type(section).model_fields.items()
        if field.is_required() or getattr(section, name) != field.get_default()
    }
    known = {
        (section, name)
        for family in FAMILIES
        for _, section in known_sections(family)
        for name in section.model_fields
        if name not in ("kind", "dropout")
    }
    assert known - set_keys == set()


def test_the_mixer_of_every_kind_in_recipes_occurs():
    """By itself; within models, the cases make one of every kind."""
    made = [
        mixer().build(StackSizes(16, 11, causal=not mixer.both_ways, positions=NoPositionsConfig()))
        for mixer in MIXERS_OF_RECIPES
    ]
    assert {*map(type, made)} <= parts(mixer_of, MIXERS)


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


@pytest.mark.parametrize("family", RecurrentDecoderConfig.__subclasses__())
def test_a_recurrent_model_without_attention_occurs(family):
    assert None in [config.attention for config in CONFIGS if isinstance(config, family)]


def test_every_gate_of_experts_occurs():
    assert subclasses(experts, experts.Gate) <= parts(plain_model, MODELS)


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
    assert subclasses(scores, scores.ScoreFunction) <= used
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
    assert ("non_causal" in declared(mixer)) == (MIXERS[name].cache is None)


@every_mixer
def test_a_case_is_made_anew_whenever_it_is_asked_for(name):
    # Parts that two of them share would be moved twice.
    one, other = (list(mixer_of(name).parameters()) for _ in range(2))
    assert not {*map(id, one)} & {*map(id, other)}
    assert all(map(torch.equal, one, other))
