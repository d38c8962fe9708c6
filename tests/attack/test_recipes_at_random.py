"""Random recipes are refused by key before a model is built, or train an update and predict."""

import math
import re
import traceback

import pytest
import torch
from base_recipes import BASES, base, task_of, write_rows
from configurations import Drawing, configurations

from heedful.api.run import load
from heedful.errors import HeedfulError, RequestError
from heedful.models.registry import BUILDERS, READERS
from heedful.recipes.yaml import dump_yaml
from heedful.runs.prepare import rows_of
from heedful.runs.reading import read_recipe
from heedful.runs.train import train_run
from heedful.tasks.registry import TASKS
from heedful.training.callbacks import Updated

CHOICES = {
    "max_updates": (1, 1, 2, 0),
    "max_epochs": (1, 2),
    "max_minutes": (0.0, 0.001, 0.01),
    "processes": ("auto", 1),
    "compile": ("auto", "off"),
    "metric": ("loss", "perplexity", "bleu", "chrf", "accuracy", "x"),
    "loss": ("cross-entropy", "huber", "squared-error", "absolute-error", "x"),
    "labels": (["no", "yes"], ["yes"], ["a", "b", "no", "yes"], [], None),
    "paths": ("rows.jsonl", "text.txt", ["rows.jsonl", "rows.jsonl"], "none", "table.conll"),
    "path": ("images", "captioned", "none", "rows.jsonl"),
    "run": ("run", "none", "other"),
    "root": (None, ".", "none"),
    "name": ("phrasebook", "none"),
    "text": ("vectors.txt", "none", None),
    "source": ("vectors.txt", "none", None),
    "target": ("vectors.txt", "none", None),
    "caption": ("vectors.txt", None),
    "language": ("en", "zh", "xx", None),
    "moses": ("en", "xx", None),
    "tokenised_bleu": ("en", "xx", None),
    "begins": ("a", "[", None),
    "stop": ([], ["a"], [""]),
    "columns": (
        {"source": "source", "target": "target"},
        {"text": "text", "label": "label"},
        {"words": "words", "tags": "tags"},
        {"words": 0, "tags": 1},
        {"text": "label", "label": "text"},
        {"image": "image", "caption": "caption"},
        {"source": "target", "target": "source", "alignment": "alignment"},
        {},
    ),
    "max_length": (1, 2, 3, 4, 6, 8, 12, 16, 32, {"source": 3}, {"target": 8, "source": 8}, {"x": 2}, None),
    "context": (1, 2, 3, 4, 8, 16, 32),
    "cap": (0, 1, 3, 8),
    "extra": (0, 1, 4),
    "max_new_tokens": (0, 1, 5),
    "vocab_size": (None, 1, 4, 5, 9, 30, 300),
    "merges": (None, 1, 9),
    "n_blocks": ([], [1], [1, 2], [2, 1, 1]),
}
"""Values of fields whose type says too little, or allows too much for a moment's work."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("recipes")
    write_rows(made)
    return made


@pytest.fixture
def built(monkeypatch):
    """The kinds of the models that were built with memory of their own."""
    found = []

    def noting(kind, build):
        def built(*arguments):
            if torch.empty(0).device.type != "meta":
                found.append(kind)
            return build(*arguments)

        return built

    for table in (BUILDERS, READERS):
        for kind, build in [*table.items()]:
            monkeypatch.setitem(table, kind, noting(kind, build))
    return found


def is_named(message, sections):
    """Whether every line of a refusal has a key, or the file and line of the data or of the recipe.

    Indented lines go on with the one above.
    """
    place = re.compile(rf"\.\w+:\d+:|(^|\W)({'|'.join(sections)})([.:=]| \w+:)")
    return all(place.search(line) for line in message.splitlines() if not line.startswith("  "))


def outcome(file, out, built):
    """Trains and predicts as a recipe says; what was wrong, or None; and whether it was trained."""
    sections = None
    try:
        recipe, _ = read_recipe(str(file))
        sections = type(recipe).model_fields
        losses = []
        callback = lambda event: losses.append(event.loss) if isinstance(event, Updated) else None  # noqa: E731
        train_run(recipe, out, device="cpu", callbacks=lambda made: [callback])
        if not all(map(math.isfinite, losses)):
            return f"losses: {losses}", True
        return predicted(out), True
    except RequestError as error:
        named = is_named(str(error), sections or SECTIONS)
        late = f"after a {built[0]} was built: " if built else ""
        return (None if named and not late else f"{late}{error}"), False
    except HeedfulError as error:
        diverged = "diverged" in str(error) and bool(LARGE.search(file.read_text("utf-8")))
        return (None if diverged else f"{type(error).__name__}: {error}"), False


LARGE = re.compile(r"\b1e\+(30|300)\b")
"""With such a learning rate the first update makes weights that are no numbers."""


def predicted(out):
    """What was wrong with the prediction of a run for a row of its own, or None."""
    run = load(out, device="cpu")
    row = next(iter(rows_of(run.recipe, run.recipe.data.valid))).row
    if run.recipe.task.kind == "language-modelling":
        answers = run.predict([row["text"][:5]])
    else:
        answers = run.predict([run.task.columns.input_of(row)])
    return None if len(answers) == 1 else f"{len(answers)} answers"


SECTIONS = {name for task in TASKS.values() for name in task.Recipe.model_fields}


def tried(settings, folder, built, number):
    """One recipe: what was wrong, or None, and whether it was trained."""
    file = folder / "recipe.yaml"
    file.write_text(dump_yaml(settings), "utf-8")
    built.clear()
    try:
        return outcome(file, folder / f"run{number}", built)
    except Exception:
        return traceback.format_exc(), False


def test_every_family_of_every_task_occurs():
    taken = {
        (name, each.model_fields["kind"].default)
        for name, task in TASKS.items()
        for each in configurations(task.Recipe.model_fields["model"].annotation)
    }
    assert taken == {(task_of(name), own["model"]["kind"]) for name, own in BASES.items()}


@pytest.mark.parametrize("task", BASES)
def test_the_base_trains(task, folder, built):
    wrong, trained = tried(base(task), folder, built, f"-{task}")
    assert wrong is None, wrong
    assert trained


@pytest.mark.timeout(1800)  # for the whole sweep
def test_recipes_are_refused_by_key_or_train(folder, built, draw, amount):
    drawing, trained = Drawing(draw, CHOICES, extreme=0.1), 0
    n = amount(40, 1000)
    for number in range(n):
        task = draw.choice(list(BASES))
        settings = drawing.mutated(base(task), TASKS[task_of(task)].Recipe, draw.choice((1, 1, 2, 3, 5)))
        wrong, learned = tried(settings, folder, built, number)
        assert wrong is None, f"{wrong}\n{dump_yaml(settings)}"
        trained += learned
    print(f"{trained} of {n} recipes were trained")
    assert trained >= n / 4
