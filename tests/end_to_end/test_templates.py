"""Templates for a user's own data lose no rows: each row of the files is in one of the data sets."""

import re
from collections import Counter

import pytest
from miniature import miniature

from heedful.data.sources import open_source
from heedful.data.splitting import PartSource
from heedful.recipes.resolve import shipped_recipes
from heedful.runs.left_out import left_out
from heedful.runs.reading import read_recipe
from heedful.runs.required_files import sources_of

TEMPLATES = [name for name in shipped_recipes() if name.startswith("my-own-")]


def locations(source, root):
    return Counter(str(row.location) for row in open_source(source, root))


def lost_rows(recipe):
    """Return the rows of the files of a recipe that are in no data set, or in several."""
    found, whole = Counter(), {}
    for source in sources_of(recipe.data).values():
        found += locations(source, recipe.folder)
        bare = source.source if isinstance(source, PartSource) else source
        bare = bare.model_copy(update={"skip": 0, "limit": None})
        whole[bare.model_dump_json()] = locations(bare, recipe.folder)
    expected = sum(whole.values(), Counter())
    assert expected
    return (expected - found) + (found - expected)


def template(name, folder, *overrides):
    """Return a template as copied to a folder with data of its kinds."""
    made = miniature(name, folder)
    shares = [text for text in made.overrides if text.startswith("data.split")]
    return read_recipe(name, [*shares, *overrides, f"root={folder}"])[0]


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_row_is_in_one_data_set(name, tmp_path):
    assert lost_rows(template(name, tmp_path)) == Counter()


@pytest.mark.parametrize("name", ["my-own-images", "my-own-labels", "my-own-captions", "my-own-masks"])
def test_rows_that_settings_leave_out_are_lost_and_logged(name, tmp_path):
    """What the law would see, and the notes that a training logs."""
    assert list(left_out(template(name, tmp_path))) == []
    for key, n in (("skip", 6), ("limit", 18)):
        recipe = template(name, tmp_path, f"data.train.{key}={n}")
        assert lost_rows(recipe)
        (note,) = left_out(recipe)
        assert note.startswith(f"data.train: {key} ")
        assert re.search(rf" {n} (rows|images) of ", note)


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_empty_map_of_test_sets_is_none(name, tmp_path):
    base = tmp_path / "mine.yaml"
    base.write_text(shipped_recipes()[name].read_text("utf-8"), "utf-8")
    derived = tmp_path / "derived.yaml"
    derived.write_text(f"base: {base}\ndata: {{test: {{}}, split: {{test: null}}}}\n", "utf-8")
    for recipe, overrides in ((base, ["data.test={}", "data.split.test=null"]), (derived, [])):
        assert read_recipe(str(recipe), overrides)[0].data.sets.test == {}
