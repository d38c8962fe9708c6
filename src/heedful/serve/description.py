"""What a run can do, as its engine reports it to the front and the clients."""

from torch import nn

from heedful.explain.alignment.predictions import can_align
from heedful.explain.views import OVER_INPUTS, VIEWS, views_of
from heedful.nn.attention.heads import MultiHead
from heedful.recipes.schema import Recipe
from heedful.serve.answering import Answering
from heedful.tasks.language_modelling.task import LanguageModellingRecipe
from heedful.tasks.text_scoring import TextScoring
from heedful.tasks.translation import TranslationRecipe
from heedful.typing import JsonObject


def description_of(answering: Answering, slots: int) -> JsonObject:
    """Return what a run can do, for the front and its clients.

    Args:
        answering: with the run.
        slots: how many outputs are decoded at once by continuous batching.
    """
    run = answering.run
    task, decoding = run.task, run.recipe.decoding
    columns = task.columns
    return {
        "task": run.recipe.task.kind,
        "inputs": [*columns.inputs],
        "optional_inputs": [*columns.optional_inputs],
        "images": [*columns.images],
        "generates": bool(task.info.writes),
        "options": [*task.info.options],
        "decoding": None if decoding is None else decoding.model_dump(mode="json"),
        "languages": languages_of(run.recipe),
        "max_new_tokens": max_new_tokens(run.recipe),
        "slots": slots,
        "aligns": can_align(run, run.predictor(precision=answering.precision)),
        "scores": isinstance(task, TextScoring),
        "labels": run.labels,
        "views": {name: VIEWS[name].description for name in views_of(run) if name not in OVER_INPUTS},
        "precision": run.inference(answering.precision).description,
        "cache_bytes": cache_bytes(run.model) if task.info.writes else 0,
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
    }


def languages_of(recipe: Recipe) -> JsonObject | None:
    """Return the codes of the languages that a recipe names; None: it names none."""
    languages = recipe.task.languages if isinstance(recipe, TranslationRecipe) else None
    return None if languages is None else languages.model_dump(mode="json")


def max_new_tokens(recipe: Recipe) -> int | None:
    """Return the maximum number of tokens that a language model writes; None: of other models."""
    return recipe.completion.max_new_tokens if isinstance(recipe, LanguageModellingRecipe) else None


def cache_bytes(model: nn.Module) -> int:
    """Return the most bytes that the keys and values of a token take in all layers, in float32."""
    return sum(4 * sum(part.sizes[1:]) for part in model.modules() if isinstance(part, MultiHead))
