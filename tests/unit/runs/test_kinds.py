"""Every task has its kind of run, and every kind says all that verbs ask it for."""

from typing import get_args

import pytest

from heedful.models.registry import PRESETS
from heedful.runs.kind import Kind
from heedful.runs.kinds import KINDS, kind_of
from heedful.runs.reading import read_recipe
from heedful.runs.recipe import Recipe
from heedful.runs.resolve import shipped_recipes
from heedful.tasks.registry import TaskConfig


def test_every_task_has_a_kind_and_the_other_way_round():
    tasks = get_args(get_args(TaskConfig)[0])
    assert {task.model_fields["kind"].default for task in tasks} == KINDS.keys()


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_has_a_recipe_of_its_own_task_and_words_for_what_it_does(name):
    kind = KINDS[name]
    assert isinstance(kind, Kind)
    assert issubclass(kind.recipe, Recipe)
    assert kind.recipe.model_fields["task"].annotation().kind == name
    assert kind.columns
    for word in (kind.input, kind.unit, kind.scoring, kind.shorter, kind.own_data):
        assert isinstance(word, str)
        assert word
    # What verbs read of every recipe is not left to the base, where it may be anything.
    for section in ("data", "tokenizer", "model", "validation", "decoding", "evaluation"):
        assert kind.recipe.model_fields[section].annotation is not Recipe.model_fields[section].annotation


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_shipped_recipe_is_of_the_class_of_its_kind(name):
    recipe, _ = read_recipe(name)
    assert type(recipe) is kind_of(recipe).recipe


@pytest.mark.parametrize(
    "name", [name for name, preset in PRESETS.items() if preset.kind == "language-model"]
)
def test_every_preset_of_a_language_model_can_be_put_into_a_recipe(name):
    recipe, _ = read_recipe("phrasebook-lm", [f"model.preset={name}"])
    assert recipe.model == PRESETS[name]
