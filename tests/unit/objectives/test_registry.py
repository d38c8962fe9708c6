"""Losses by name: recipes of every task choose among those of its table, and no other word is one."""

import pytest
import torch

from heedful.errors import RequestError
from heedful.objectives import registry
from heedful.objectives.classification import AnswerSpan, SequenceClass, TokenClass
from heedful.objectives.contrastive import InfoNCE
from heedful.objectives.cross_entropy import MaskedToken, NextToken
from heedful.objectives.regression import NumberError
from heedful.objectives.segmentation import PixelClass
from heedful.objectives.terms import Objective
from heedful.runs.reading import read_recipe
from heedful.tasks.registry import TASKS, task_for

RECIPES = {
    "phrasebook-ta": ("NEXT_TOKEN", NextToken),
    "phrasebook-lm": ("NEXT_TOKEN", NextToken),
    "scitldr-lm": ("NEXT_TOKEN", NextToken),
    "scenes": ("NEXT_TOKEN", NextToken),
    "wikitext2-masked": ("MASKED_TOKEN", MaskedToken),
    "sst2": ("CLASS", SequenceClass),
    "digits": ("CLASS", SequenceClass),
    "phrasebook-tags": ("TAG", TokenClass),
    "sick-relatedness": ("NUMBER", NumberError),
    "phrasebook-questions": ("ANSWER", AnswerSpan),
    "scene-masks": ("PIXEL", PixelClass),
    "sick-embeddings": ("CONTRAST", InfoNCE),
}
OVER_VOCABULARY = [name for name, (table, _) in RECIPES.items() if table in ("NEXT_TOKEN", "MASKED_TOKEN")]
SMOOTHED = [name for name, (table, _) in RECIPES.items() if table in ("NEXT_TOKEN", "CLASS", "TAG", "PIXEL")]
TABLES = {name: table for name, table in vars(registry).items() if name.isupper()}


def minimised(name, *overrides):
    """What a recipe learns before all else."""
    recipe, _ = read_recipe(name, list(overrides))
    objective = task_for(recipe).objective()
    return getattr(objective, "objectives", [objective])[0]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_minimises_what_its_task_is_known_for(name):
    assert type(minimised(name)) is RECIPES[name][1]


@pytest.mark.parametrize("name", SMOOTHED)
def test_settings_reach_what_is_minimised(name):
    assert minimised(name, "objective.label_smoothing=0.25").smoothing == 0.25


@pytest.mark.parametrize("name", OVER_VOCABULARY)
def test_losses_over_the_vocabulary_use_the_chunk_of_the_recipe(name):
    assert minimised(name, "objective.chunk=77").chunk == 77


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in OVER_VOCABULARY])
def test_other_losses_refuse_a_chunk(name):
    with pytest.raises(RequestError, match=r"objective\.chunk=77: unknown key"):
        minimised(name, "objective.chunk=77")


@pytest.mark.parametrize(
    "overrides, expected",
    [
        ([], [9.0, 0.25]),
        (["objective.loss=absolute-error"], [3.0, 0.5]),
        (["objective.loss=huber"], [2.5, 0.125]),
        (["objective.loss=huber", "objective.huber_delta=2"], [4.0, 0.125]),
    ],
)
def test_a_number_may_be_missed_in_three_ways(overrides, expected):
    penalty = minimised("sick-relatedness", *overrides).penalty
    assert penalty(torch.tensor([-3.0, 0.5])).tolist() == expected


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("word", ["mine", "cross-entropy"])
def test_one_line_offers_a_loss_to_recipes(name, word, monkeypatch):
    """Another one, or another in place of the one that is there."""

    class Mine(NextToken):
        pass

    monkeypatch.setitem(TABLES[RECIPES[name][0]], word, lambda c: Mine(chunk=5))
    objective = minimised(name, f"objective.loss={word}")
    assert type(objective) is Mine
    assert objective.chunk == 5


def test_every_table_is_one_of_some_recipe():
    assert {table for table, _ in RECIPES.values()} == TABLES.keys()


@pytest.mark.parametrize("task", TASKS)
def test_every_loss_is_an_objective(task):
    config = TASKS[task].Recipe.model_fields["objective"].annotation
    for word in config.losses:
        assert isinstance(config(loss=word).make(), Objective)


@pytest.mark.parametrize("name", RECIPES)
def test_another_word_is_refused_with_its_place(name):
    with pytest.raises(RequestError) as caught:
        read_recipe(name, ["objective.loss=absolut-entropy"])
    assert "objective.loss=absolut-entropy: unknown loss 'absolut-entropy'" in str(caught.value)


def test_the_nearest_word_is_named():
    with pytest.raises(
        RequestError,
        match=r"'hubert' \(did you mean 'huber'\?\); expected one of squared-error, absolute-error, huber",
    ):
        read_recipe("sick-relatedness", ["objective.loss=hubert"])
