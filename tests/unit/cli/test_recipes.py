"""``heedful recipes``: one row per shipped recipe."""

import json
from pathlib import Path

import pytest
import typer
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from heedful.cli import recipes
from heedful.errors import RequestError
from heedful.recipes.resolve import shipped_recipes
from heedful.recipes.yaml import read_yaml

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "recipes.schema.json"
NAMES = list(shipped_recipes())


def invoke(*arguments):
    app = typer.Typer()
    app.callback()(lambda: None)  # with it, one command alone keeps its name
    app.command("recipes")(recipes.recipes)
    return CliRunner().invoke(app, ["recipes", *arguments])


@pytest.fixture(scope="module")
def rows():
    found = json.loads(invoke("--json").stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(found)
    return {row["name"]: row for row in found["recipes"]}


def test_all_recipes_are_listed_in_order(rows):
    assert list(rows) == NAMES
    assert all(row["description"] and row["task"] for row in rows.values())


def test_values_inherited_from_the_base_are_listed(rows):
    """But not what the base reached."""
    assert rows["multi30k-ende-rnn"]["task"] == "translation"
    assert rows["multi30k-ende-rnn"]["data"] == "multi30k"
    assert rows["phrasebook-rnn"]["scores"] != rows["phrasebook-ta"]["scores"]
    assert rows["shakespeare-char"]["minutes"] is None


@pytest.mark.parametrize(
    "name, data",
    [
        ("phrasebook-ta", "phrasebook-ta (built in)"),
        ("sst2", "sst2"),
        ("tatoeba-ende-lm", "tatoeba_en_de"),
        ("my-own-files", "your own"),
    ],
)
def test_where_the_data_come_from(rows, name, data):
    assert rows[name]["data"] == data


@pytest.mark.parametrize("name", NAMES)
def test_expected_values_are_listed(rows, name):
    expected = read_yaml(shipped_recipes()[name].read_text("utf-8"), name).data.get("expected", {})
    for key in ("scores", "minutes", "parameters"):
        assert rows[name][key] == expected.get(key, {} if key == "scores" else None)


def test_only_recipes_for_ones_own_data_do_not_say_how_large_their_model_is(rows):
    assert [name for name, row in rows.items() if row["parameters"] is None] == [
        name for name in NAMES if name.startswith("my-own")
    ]


def test_the_table_has_a_column_for_each_thing(rows):
    head, *lines = invoke().stdout.splitlines()
    assert tuple(head.split()) == recipes.COLUMNS
    own, described = lines[::2], lines[1::2]
    assert [line.split()[0] for line in own] == NAMES
    for line, row in zip(own, rows.values(), strict=True):
        for column in ("task", "data"):
            assert line[head.index(column) :].startswith(row[column])
        for column in ("parameters", "minutes"):
            assert line[: head.index(column) + len(column)][-1] not in " "
        scores = line[head.index("expected") :]
        assert all(f"{name} {value:g}" in scores for name, value in row["scores"].items())
        assert scores == "–" or row["scores"]
    assert [line.strip() for line in described] == [row["description"] for row in rows.values()]


@pytest.mark.parametrize(
    "n, expected", [(None, "–"), (104_374, "104k"), (2_641_152, "2.64M"), (999_999, "1000k")]
)
def test_sizes(n, expected):
    assert recipes._size(n) == expected


def test_one_recipe_is_no_json():
    done = invoke("sst2", "--json")
    assert isinstance(done.exception, RequestError)
    assert "--json: only supported for the list" in str(done.exception)
    assert not done.stdout


def test_another_name_is_refused_with_the_nearest():
    assert isinstance((error := invoke("sst3").exception), RequestError)
    assert "did you mean 'sst2'" in str(error)
