"""The work of ``heedful demo``: which recipe it trains, what a folder holds, and the scores."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heedful.artifacts.run_folder import RunFolder
from heedful.data.corpora.baselines import monotone, word_by_word
from heedful.data.corpora.grammar import Pair
from heedful.data.corpora.phrasebook import LECTURE_SENTENCE, Language, phrasebook
from heedful.data.sources import BuiltInSource
from heedful.errors import RequestError
from heedful.recipes.schema import Recipe
from heedful.runs.evaluate import evaluate
from heedful.runs.loading import LoadedRun
from heedful.runs.reading import read_recipe, saved_recipe
from heedful.tasks.evaluation import EvaluationOptions
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.translation import translation_scores
from heedful.typing import JsonMapping

RunState = Literal["new", "interrupted", "finished"]

NAMES: dict[Language, str] = {"ta": "Tamil, in Latin letters", "de": "German"}
METRICS = ("BLEU", "chrF2")
QUICK = (
    "model.d_model=32",
    "model.layer.channels.d_ff=64",
    "training.max_updates=20",
    "training.tokens_per_update=512",
    "training.validate_every=10",
    "training.save_every=10",
    "validation.decode=8",
    "decoding.max_length.cap=10",
)
QUICK_SENTENCES = 40
MODEL = "model"
# A sentence with another word order in German; like the one for Tamil, it is not in the training data.
_DRAWN_IN_GERMAN = "she read the newspaper yesterday ."


def recipe_of(language: Language, quick: bool) -> Recipe:
    """Return the recipe of the demo; a quick one tests the command, not the model."""
    return read_recipe(f"phrasebook-{language}", QUICK if quick else ())[0]


def state_of(folder: Path, recipe: Recipe) -> RunState:
    """Return the state of the demo's run in ``folder``.

    Raises:
        RequestError: the folder contains another run.
    """
    run_folder = RunFolder(folder)
    if not run_folder.recipe.is_file():
        return "new"
    run_recipe = saved_recipe(run_folder)
    # A quick run has a smaller model.
    if (run_recipe.data.train, run_recipe.model) != (recipe.data.train, recipe.model):
        raise RequestError(f"{folder}: contains a different run; choose another folder with --out")
    is_finished = run_folder.card.is_file() and run_folder.read_card().get("stopped") != "signal"
    return "finished" if is_finished else "interrupted"


@dataclass(frozen=True)
class Comparison:
    """The model and baselines without attention, on the same test sentences.

    Args:
        rows: sources, references and translations of the model.
        scores: BLEU and chrF of each translator, the model first.
    """

    rows: Sequence[JsonMapping]
    scores: dict[str, list[Score]]

    @property
    def exact(self) -> float:
        """Return the share of the model's translations that equal the reference."""
        return sum(row["output"] == row["target"] for row in self.rows) / len(self.rows)


def compare(run: LoadedRun, language: Language, limit: int | None = None) -> Comparison:
    """Score the run on held-out sentences, and two baselines that keep the order of the source."""
    source = run.recipe.data.test["test"]
    assert isinstance(source, BuiltInSource)
    evaluation = evaluate(run, "test", source, EvaluationOptions(limit=limit))
    rows = [*evaluation.rows()]
    training = phrasebook(language, "train", source.seed)
    scores = {MODEL: _main_scores(evaluation.scores)}
    baselines = {"phrase by phrase": monotone(training), "word by word": word_by_word(training)}
    for name, translate in baselines.items():
        translations = [translate(row["input"]["source"]) for row in rows]
        baseline_scores = translation_scores(translations, [row["target"] for row in rows])
        scores[name] = _main_scores(baseline_scores.values())
    return Comparison(rows, scores)


def _main_scores(scores: Iterable[Score]) -> list[Score]:
    return [score for score in scores if score.name in METRICS]


def drawn_pair(language: Language) -> Pair:
    """Return the sentence whose alignment is plotted, and its translation: for Tamil that of the lectures."""
    if language == "ta":
        return LECTURE_SENTENCE
    return next(pair for pair in phrasebook(language, "test") if pair.source == _DRAWN_IN_GERMAN)


def judged_pairs(language: Language, limit: int) -> tuple[Pair, ...]:
    """Return validation sentences with gold alignments, which select a layer and head."""
    return phrasebook(language, "valid")[:limit]
