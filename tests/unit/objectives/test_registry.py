"""Losses by name: every one is an objective, and no other word is."""

import pytest

from heedful.errors import RequestError
from heedful.objectives import registry
from heedful.objectives.classification import SequenceClass
from heedful.objectives.cross_entropy import NextToken
from heedful.objectives.terms import Objective
from heedful.runs.kinds import kind_of
from heedful.runs.reading import read_recipe

RECIPES = {
    "phrasebook-ta": NextToken,
    "phrasebook-lm": NextToken,
    "scitldr-lm": NextToken,
    "sst2": SequenceClass,
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_makes_what_it_names(name):
    recipe, _ = read_recipe(name, ["objective.label_smoothing=0.25"])
    objective = kind_of(recipe).objective(recipe)
    assert type(objective) is RECIPES[name]
    assert objective.smoothing == 0.25


@pytest.mark.parametrize("losses", [registry.NEXT_TOKEN, registry.CLASS])
def test_every_loss_is_an_objective(losses):
    recipe, _ = read_recipe("sst2")
    for make in losses.values():
        assert isinstance(make(recipe.objective), Objective)


@pytest.mark.parametrize("name", RECIPES)
def test_another_word_is_refused_with_its_place(name):
    with pytest.raises(RequestError) as caught:
        read_recipe(name, ["objective.loss=cross-entropie"])
    message = (
        "objective.loss=cross-entropie: no loss is called 'cross-entropie' (did you mean 'cross-entropy'?)"
    )
    assert message in str(caught.value)
