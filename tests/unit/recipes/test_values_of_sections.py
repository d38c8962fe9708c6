"""Sections of recipes given as text, lists, numbers or null: understood, or refused with their line."""

import random

import pytest

from heedful.errors import RequestError
from heedful.models.registry import preset_trees
from heedful.recipes.resolve import resolve, shipped_recipes
from heedful.recipes.trees import Mark, Tree
from heedful.runs.reading import read_recipe, recipe_from
from heedful.tasks.registry import TASKS

WRITTEN = Mark("recipe.yaml", 123)
VALUES = {
    "unknown text": "zzz",
    "no text": "",
    "a custom class": "nowhere.parts:Nothing",
    "null": None,
    "a number": 3,
    "a fraction": 0.5,
    "true": True,
    "a list": [],
    "a list of text": ["cosine"],
    "an empty map": {},
    "a map of anything": {"zzz": {"kind": []}},
    "a kind that is a number": {"kind": 3},
    "a kind that is a list": {"kind": ["zzz"]},
    "a kind that is a map": {"kind": {"kind": "zzz"}},
}


@pytest.fixture(scope="module")
def recipes() -> dict[str, str]:
    """The first shipped recipe of each task."""
    names: dict[str, str] = {}
    for name in shipped_recipes():
        names.setdefault(resolve(name, presets=preset_trees()).data["task"]["kind"], name)
    return names


def replaced(tree: Tree, path: tuple, value: Tree) -> Tree:
    """Return the tree with another value at a path."""
    if not path:
        return value
    entries = tree.value.copy()
    entries[path[0]] = replaced(entries[path[0]], path[1:], value)
    return Tree(entries, tree.mark)


def full_tree(name: str) -> Tree:
    """Return the recipe with all of its sections, those that it does not set too."""
    recipe, _ = read_recipe(name)
    return Tree.of(recipe.model_dump(mode="json"), Mark("defaults"))


def refusal(tree: Tree, what: str) -> str:
    """Return the message with which a recipe is refused; empty if it is valid."""
    try:
        recipe_from(tree, for_training=True)
    except RequestError as error:
        return str(error)
    except Exception as error:
        raise RuntimeError(what) from error
    return ""


def test_each_task_has_a_recipe(recipes):
    assert recipes.keys() == TASKS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_section_given_as_anything_is_understood_or_refused_with_its_line(recipes, task, amount):
    tree = full_tree(recipes[task])
    sections = [path for path, item in tree.walk() if path and isinstance(item.value, dict)]
    assert {("task",), ("data",), ("model",), ("training",), ("schedule",)} <= {*sections}
    kinds = {path: tree.find((*path, "kind")) for path in sections}
    cases = [(path, how, value) for path in sections for how, value in VALUES.items()]
    cases += [(path, "its kind", kind.data) for path, kind in kinds.items() if kind is not None]
    n_refused = 0
    for path, how, value in random.Random(task).sample(cases, amount(40, len(cases))):
        changed = replaced(tree, path, Tree.of(value, WRITTEN))
        message = refusal(changed, f"{'.'.join(map(str, path))} as {how}")
        n_refused += bool(message)
        assert not message or str(WRITTEN) in message or "defaults" in message, (path, how, message)
    assert n_refused


@pytest.mark.parametrize("task", TASKS)
def test_a_task_as_text_is_its_kind(recipes, task):
    """As for every other section."""
    tree = Tree.of(resolve(recipes[task], presets=preset_trees()).data, WRITTEN)
    settings = tree.value["task"].value
    bare = replaced(tree, ("task",), Tree.of(task, WRITTEN))
    expected = recipe_from(replaced(tree, ("task",), Tree.of({"kind": task}, WRITTEN)))
    assert recipe_from(bare) == expected
    assert settings["kind"].data == task
