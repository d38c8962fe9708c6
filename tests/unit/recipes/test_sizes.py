import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import RequestError
from heedful.recipes.resolve import resolve, sizes_of
from heedful.recipes.sizes import Amount, count_rows, fitting_entry, size_entries
from heedful.recipes.yaml import read_yaml

RECIPE = """\
training: {seed: 1, max_updates: 100}
model: {kind: small, width: 1}
sizes:
  - {max_rows: 10, training: {max_updates: 7}}
  - {max_rows: 20, max_characters: 500, model: {kind: wide, width: 3}}
  - {training: {max_updates: 9}}
"""


def entries(text):
    return size_entries(read_yaml(text, "r.yaml"))


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE)
    return path


def resolved(path, overrides=(), size=None):
    return resolve(path, overrides, presets={}, size=size).data


def test_the_chosen_entry_is_merged_and_the_list_is_gone(recipe):
    base = {"training": {"seed": 1, "max_updates": 100}, "model": {"kind": "small", "width": 1}}
    assert resolved(recipe) == base
    assert resolved(recipe, size=0) == {**base, "training": {"seed": 1, "max_updates": 7}}
    assert resolved(recipe, size=1) == {**base, "model": {"kind": "wide", "width": 3}}


def test_overrides_and_recipes_that_build_on_it_win(recipe, tmp_path):
    assert resolved(recipe, ["training.max_updates=5"], 0)["training"]["max_updates"] == 5
    mine = tmp_path / "mine.yaml"
    mine.write_text("base: r.yaml\ntraining: {max_updates: 6}\n")
    assert resolved(mine, size=0)["training"] == {"seed": 1, "max_updates": 6}
    assert len(sizes_of(mine)) == 3
    mine.write_text("base: r.yaml\nsizes: [{max_rows: 3, training: {seed: 2}}]\n")
    assert len(sizes_of(mine)) == 1
    assert resolved(mine, size=0)["training"] == {"seed": 2, "max_updates": 100}


def test_null_removes_the_list(recipe):
    assert sizes_of(recipe, ["sizes=null"]) == []
    assert resolved(recipe, ["sizes=null"])["training"]["max_updates"] == 100


@pytest.mark.parametrize(
    "text, message",
    [
        ("sizes: 3", "r.yaml:1: sizes: expected a list of maps, got 3"),
        ("sizes:\n- 3", "r.yaml:2: sizes.0: expected a map of settings, got 3"),
        ("sizes:\n- {max_rows: 0}", "r.yaml:2: sizes.0.max_rows: expected a number of at least 1"),
        ("sizes:\n- {max_rows: 9}\n- {max_rows: many}", "r.yaml:3: sizes.1.max_rows: expected a number"),
    ],
)
def test_malformed_lists_are_refused_with_their_place(text, message):
    with pytest.raises(RequestError) as caught:
        entries(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "rows, characters, expected",
    [(10, 9999, 0), (11, 500, 1), (20, 500, 1), (20, 501, 2), (21, 1, 2)],
)
def test_the_first_entry_whose_limits_all_hold_is_chosen(rows, characters, expected):
    assert fitting_entry(entries(RECIPE), Amount(rows, characters)) == expected


def test_without_an_entry_for_the_rest_none_may_fit():
    assert fitting_entry(entries("sizes: [{max_rows: 3}]"), Amount(4, 1)) is None


@given(st.lists(st.text(max_size=30), max_size=40))
def test_counting_stops_early_but_chooses_as_the_whole_does(texts):
    rows = [{"text": text, "image": object()} for text in texts]
    whole = Amount(len(texts), sum(map(len, texts)))
    read = []

    def reading():
        for row in rows:
            read.append(row)
            yield row

    counted = count_rows(reading(), entries(RECIPE))
    assert fitting_entry(entries(RECIPE), counted) == fitting_entry(entries(RECIPE), whole)
    assert len(read) <= 21
