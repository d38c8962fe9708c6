"""What the demo trains, and how it tells what its folder holds."""

import json

import pytest

from heedful.artifacts.run_folder import FORMAT
from heedful.data.corpora.phrasebook import phrasebook
from heedful.errors import RequestError
from heedful.files import stamped
from heedful.recipes.yaml import dump_yaml
from heedful.runs.demo import NAMES, Comparison, drawn_pair, judged_pairs, recipe_of, state_of
from heedful.tasks.prediction import Prediction


@pytest.mark.parametrize("language", NAMES)
@pytest.mark.parametrize("quick", [False, True])
def test_every_language_has_a_recipe_and_a_quick_one(language, quick):
    recipe = recipe_of(language, quick)
    assert recipe.data.train.name == f"phrasebook-{language}"
    assert (recipe.training.max_updates <= 20) == quick


def save(folder, recipe, stopped=None):
    folder.mkdir(exist_ok=True)
    (folder / "recipe.yaml").write_text(dump_yaml(recipe.model_dump(mode="json")), encoding="utf-8")
    if stopped:
        card = {"version": FORMAT, "stopped": stopped, "files": {}}
        (folder / "run.json").write_text(json.dumps(stamped(card)))


@pytest.mark.parametrize(
    ("stopped", "expected"),
    [(None, "interrupted"), ("signal", "interrupted"), ("updates", "finished"), ("patience", "finished")],
)
def test_a_folder_tells_how_far_the_training_is(tmp_path, stopped, expected):
    recipe = recipe_of("ta", False)
    save(tmp_path, recipe, stopped)
    assert state_of(tmp_path, recipe) == expected


def test_a_folder_that_is_not_there_is_new(tmp_path):
    assert state_of(tmp_path / "none", recipe_of("ta", False)) == "new"


def test_a_folder_with_another_run_is_refused(tmp_path):
    save(tmp_path, recipe_of("de", False), "updates")
    with pytest.raises(RequestError, match="--out"):
        state_of(tmp_path, recipe_of("ta", False))


@pytest.mark.parametrize("quick", [False, True])
def test_a_quick_run_is_another_than_a_whole_one(tmp_path, quick):
    save(tmp_path, recipe_of("ta", quick), "updates")
    assert state_of(tmp_path, recipe_of("ta", quick)) == "finished"
    with pytest.raises(RequestError, match="contains a different run; choose another folder with --out"):
        state_of(tmp_path, recipe_of("ta", not quick))


@pytest.mark.parametrize("language", NAMES)
def test_the_drawn_sentence_was_never_seen_and_its_words_cross(language):
    pair = drawn_pair(language)
    sources = {p.source for split in ("train", "valid") for p in phrasebook(language, split)}
    assert pair.source not in sources
    links = sorted(pair.alignment)
    assert any(a[0] < b[0] and a[1] > b[1] for a in links for b in links)


def test_heads_are_judged_on_validation_sentences():
    assert judged_pairs("ta", 7) == phrasebook("ta", "valid")[:7]


def test_exact_is_the_share_of_equal_translations():
    predictions = [Prediction("a b"), Prediction("a"), Prediction("c")]
    pairs = zip(["a b", "a b", "c"], predictions, strict=True)
    rows = [each.to_dict({"target": target}) | {"target": target} for target, each in pairs]
    assert Comparison(rows, {}).exact == pytest.approx(2 / 3)
