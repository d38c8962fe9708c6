"""Every task declares what commands ask of it."""

from typing import get_args

import pytest
import torch

from heedful.models.registry import PRESETS
from heedful.recipes.resolve import shipped_recipes
from heedful.recipes.schema import Recipe
from heedful.runs.reading import read_recipe
from heedful.tasks.base import Task
from heedful.tasks.registry import TASKS, any_task, task_for


def test_recipes_accept_every_registered_task():
    tasks = get_args(any_task())
    assert {task.model_fields["kind"].default for task in tasks} == TASKS.keys()


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_a_recipe_of_its_own_and_facts(name):
    task = TASKS[name]
    assert issubclass(task, Task)
    assert issubclass(task.Recipe, Recipe)
    assert task.Recipe.model_fields["task"].annotation().kind == name
    for word in (task.info.unit, task.info.evaluation_verb, task.info.memory_advice):
        assert isinstance(word, str)
        assert word
    # What verbs read of every recipe is not left to the base, where it may be anything.
    for section in ("data", "model", "validation", "decoding", "evaluation"):
        assert task.Recipe.model_fields[section].annotation is not Recipe.model_fields[section].annotation


@pytest.mark.parametrize("name", TASKS)
def test_the_best_value_of_every_metric_is_known(name):
    recipe = TASKS[name].Recipe
    names = recipe.falling_metrics | recipe.decoded_metrics | recipe.rising_metrics | recipe.scored_metrics
    assert names <= recipe.best_values.keys()


@pytest.mark.parametrize("name", shipped_recipes())
def test_inputs_are_among_the_columns_of_the_data_or_have_a_name_of_their_own(name):
    recipe, _ = read_recipe(name)
    columns = task_for(recipe).columns
    assert columns.required
    assert columns.inputs
    assert set(columns.inputs) <= {*columns.required, "prompt"}


@pytest.mark.parametrize("name", shipped_recipes())
def test_synthetic_batches_hold_what_was_asked_for(name):
    recipe, _ = read_recipe(name)
    sizes, n, length, source_length = (101, 53), 11, 7, 5
    batch = task_for(recipe).synthetic_batch(sizes, n, length, source_length)
    if recipe.task.kind in ("image-classification", "segmentation"):
        if recipe.task.kind == "segmentation":
            assert batch.masks.shape == (n, recipe.model.image_size, recipe.model.image_size)
            assert batch.masks.max() < sizes[-1]
        else:
            assert len(batch.classes) == n
            assert batch.classes.max() < sizes[-1]
        assert batch.inputs.layout.lengths == (recipe.model.n_tokens,) * n
        assert batch.inputs.pixels.shape[1:] == (recipe.model.channels, *[recipe.model.image_size] * 2)
        return
    if recipe.task.kind == "classification":
        assert len(batch.classes) == len(batch.inputs.layout.lengths) == n
        assert sum(batch.inputs.layout.lengths) / n == pytest.approx(length, abs=0.5)
        return
    if recipe.task.kind == "sentence-embedding":
        assert len(batch.text_ids) == n
        assert batch.inputs.layout.n_sequences == batch.text_ids.numel() == 2 * n
        assert batch.inputs.layout.n_tokens / n == pytest.approx(length, abs=0.5)
        return
    if recipe.task.kind in ("tagging", "question-answering", "regression", "multilabel-classification"):
        layout = batch.inputs.layout
        assert layout.n_sequences == n
        assert layout.n_tokens / n == pytest.approx(length, abs=0.5)
        if recipe.task.kind == "tagging":
            assert len(batch.rows) == len(batch.targets) > n
            assert batch.targets.max() < sizes[-1]
        elif recipe.task.kind == "regression":
            assert len(batch.values) == n
        elif recipe.task.kind == "multilabel-classification":
            assert batch.values.shape == (n, sizes[-1])
        else:
            assert (layout.sequence[batch.answers] == torch.arange(n)[:, None]).all()
        return
    if recipe.task.kind == "masked-language-modelling":
        assert set(batch.inputs.layout.lengths) == {recipe.model.max_length}
        assert len(batch.inputs.layout.lengths) == n
        assert len(batch.rows) == len(batch.targets) > 0
        return
    context = getattr(recipe.model, "context", None)
    assert len(batch.inputs.layout.lengths) == n
    assert batch.targets.max() < sizes[-1]
    if getattr(recipe, "is_one_text", False):
        assert sum(batch.n_answers) == len(batch.targets)
        assert sum(batch.inputs.layout.lengths) / n == pytest.approx(length + source_length, abs=0.5)
        return
    assert len(batch.inputs.ids) == len(batch.targets)
    if context is not None:
        assert set(batch.inputs.layout.lengths) == {context}
        assert torch.equal(batch.inputs.ids.view(n, -1)[:, 1:], batch.targets.view(n, -1)[:, :-1])
        return
    if recipe.task.kind == "captioning":
        assert sum(batch.inputs.layout.lengths) / n == pytest.approx(length, abs=0.5)
        assert batch.source.layout.lengths == (recipe.model.n_tokens,) * n
        assert batch.source.pixels.shape == (n, 3, recipe.model.image_size, recipe.model.image_size)
        return
    for tokens, around in ((batch.inputs, length), (batch.source, source_length)):
        assert sum(tokens.layout.lengths) / n == pytest.approx(around, abs=0.5)
    assert batch.source.ids.max() < sizes[0]


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_shipped_recipe_is_of_the_class_of_its_task(name):
    recipe, _ = read_recipe(name)
    assert type(recipe) is task_for(recipe).Recipe


@pytest.mark.parametrize(
    "name", [name for name, preset in PRESETS.items() if preset.kind == "language-model"]
)
def test_every_preset_of_a_language_model_can_be_put_into_a_recipe(name):
    recipe, _ = read_recipe("phrasebook-lm", [f"model.preset={name}"])
    assert recipe.model == PRESETS[name]


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.kind == "encoder"])
def test_every_preset_of_an_encoder_can_be_put_into_a_recipe(name):
    recipe, _ = read_recipe("sst2", [f"model.preset={name}"])
    assert recipe.model == PRESETS[name]
