"""Relative paths of overrides start at the current folder, those of a recipe at its own."""

from pathlib import Path

import pytest

from heedful.recipes.override_paths import with_paths_of_overrides
from heedful.recipes.trees import COMMAND_LINE, IN_PYTHON, Mark, Tree, merge

RECIPE = Mark("a/recipe.yaml", 1)


def changed(recipe, overrides, folder=Path("/elsewhere"), source=COMMAND_LINE):
    tree = merge(Tree.of(recipe, RECIPE), Tree.of(overrides, Mark(source)))
    return with_paths_of_overrides(tree, folder).data


TSV = {"kind": "tsv", "paths": "train.tsv", "columns": {"text": 0}}
FILES = {"kind": "files", "columns": {"a": "x", "b": "y"}}
ELSEWHERE = ["/x", "~/x", "$HEEDFUL_DATA/x"]
HERE = str(Path.cwd() / "own")


@pytest.mark.parametrize("source", [COMMAND_LINE, IN_PYTHON])
@pytest.mark.parametrize("place", [("train",), ("valid",), ("test", "t")])
@pytest.mark.parametrize(
    ("recipe", "override", "found"),
    [
        (TSV, {"paths": "own"}, {"paths": HERE}),
        (
            TSV,
            {"paths": ["own", "/x", "~/x", "$HEEDFUL_DATA/x"]},
            {"paths": [HERE, "/x", "~/x", "$HEEDFUL_DATA/x"]},
        ),
        (TSV, {"columns": {"text": "own"}}, {"paths": "train.tsv", "columns": {"text": "own"}}),
        ({"kind": "folder", "path": "x"}, {"path": "own"}, {"path": HERE}),
        (
            {"kind": "files", "columns": {"a": "x", "b": "y"}},
            {"columns": {"a": "own"}},
            {"columns": {"a": HERE, "b": "y"}},
        ),
        ({"kind": "datasets", "path": "imdb"}, {"path": "own"}, {"path": "own"}),
        ({"kind": "datasets", "path": "imdb"}, {"path": "./own"}, {"path": HERE}),
        ({"kind": "datasets", "path": "json"}, {"data_files": "own"}, {"path": "json", "data_files": HERE}),
        ({"kind": "chain", "sources": [TSV, TSV]}, {"sources": {1: {"paths": "own"}}}, {"kind": "chain"}),
    ],
)
def test_only_paths_of_overrides_become_absolute(recipe, override, found, place, source):
    def placed(section):
        for part in reversed(place):
            section = {part: section}
        return {"data": section}

    data = changed(placed(recipe), placed(override), source=source)["data"]
    for part in place:
        data = data[part]
    for key, value in found.items():
        assert data[key] == value
    if recipe["kind"] == "chain":
        assert [part["paths"] for part in data["sources"]] == ["train.tsv", HERE]


def test_a_run_to_start_from_and_a_root_too():
    assert changed({"start": {"run": "x"}}, {"start": {"run": "own"}}) == {"start": {"run": HERE}}
    # Other paths start at a root that is given with them.
    overrides = {"start": {"run": "run"}, "root": "own"}
    assert changed({"start": {"run": "x"}}, overrides) == {"start": {"run": "run"}, "root": HERE}


def test_paths_stay_relative_where_both_folders_are_the_same():
    recipe, override = {"data": {"train": TSV}}, {"data": {"train": {"paths": "own"}}}
    assert changed(recipe, override, Path.cwd())["data"]["train"]["paths"] == "own"
    rooted = {**recipe, "root": "data"}
    assert changed(rooted, override, Path.cwd())["data"]["train"]["paths"] == HERE
