"""Lists that a program wrote as text into a table are refused by every verb; lists and texts are read."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest
from base_recipes import BASES, base
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.lines import File, LocatedRow, Location
from heedful.errors import DataError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.inputs import read_inputs
from heedful.runs.prepare import check_written_lists, rows_of
from heedful.runs.reading import read_recipe, recipe_from
from heedful.tasks.inputs.words import words_and_tags
from heedful.tasks.registry import task_for
from heedful.tasks.task_info import Columns

WRITERS = {
    "Python": str,
    "tuple-like": lambda items: f"[{', '.join(map(repr, items))}, ]",
    "JSON": json.dumps,
    "NumPy": lambda items: str(np.array(items)),
}
ITEMS = st.lists(st.text(min_size=1), min_size=1) | st.lists(st.integers(), min_size=2)
COLUMNS = Columns(("text", "label"), ("text",), list_valued=("label",))


def check(cell, columns=COLUMNS, column="label"):
    check_written_lists(LocatedRow({"text": "['a', 'b']", column: cell}, Location("t.csv", 7)), columns)


@pytest.mark.parametrize("writer", ["Python", "tuple-like", "JSON"])
@given(items=ITEMS)
def test_any_list_as_text_is_refused_and_the_list_itself_is_not(writer, items):
    with pytest.raises(
        DataError, match=r"^t\.csv:7: label: expected labels separated by task\.separator, or a"
    ):
        check(WRITERS[writer](items))
    check(items)


@given(st.lists(st.from_regex(r"[\w.:/-]+", fullmatch=True), min_size=1, max_size=5))
def test_arrays_of_numpy_are_refused_and_items_alone_are_read(items):
    with pytest.raises(DataError, match="a list written as text"):
        check(WRITERS["NumPy"](items))
    check(" ".join(items))
    check(", ".join(items))


@pytest.mark.parametrize(
    "cell", ["", "[]", "[PAD]", "[1]", "a [b]", "'a', 'b'", "[laughs] 'hm'", "['tis late]"]
)
def test_texts_with_brackets_are_no_lists(cell):
    check(cell)


TAGGED = [(["Ann", "runs"], ["B-PER", "O"]), (["Bob", "sits", "here"], ["B-PER", "O", "O"])]


def write(path, write_cell):
    """A table with a column of words and one of tags."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["words", "tags"], *(map(write_cell, row) for row in TAGGED)])


def tagging(folder, kind):
    path = folder / f"rows.{kind}"
    source = f"{{kind: {kind}, paths: {path}, columns: {{words: words, tags: tags}}}}"
    recipe, _ = read_recipe(
        "my-own-tags", [f"data.{part}={source}" for part in ("train", "valid", "test.test")]
    )
    return recipe


@pytest.mark.parametrize("writer", WRITERS)
def test_tables_with_written_lists_are_refused_by_training_and_prediction(tmp_path, writer):
    write(tmp_path / "rows.csv", WRITERS[writer])
    recipe = tagging(tmp_path, "csv")
    with pytest.raises(DataError, match=r"rows\.csv:2: words: expected words separated by blanks, or a list"):
        list(rows_of(recipe, recipe.data.train))
    columns, file = task_for(recipe).columns, File(tmp_path / "rows.csv", "rows.csv")
    run = SimpleNamespace(recipe=recipe, task=SimpleNamespace(known_tags=frozenset()))
    inputs = list(read_inputs(run, columns, file, "table"))
    assert len(inputs) == 2
    assert all("a list written as text" in str(record.error) for record in inputs)


def test_the_remedies_read_the_same_rows(tmp_path):
    write(tmp_path / "rows.csv", " ".join)
    lines = [json.dumps({"words": words, "tags": tags}) for words, tags in TAGGED]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    for kind in ("csv", "jsonl"):
        recipe = tagging(tmp_path, kind)
        assert [words_and_tags(row) for row in rows_of(recipe, recipe.data.train)] == TAGGED


@pytest.mark.parametrize("name", BASES)
def test_every_column_of_lists_of_every_task(name):
    columns = task_for(recipe_from(Tree.of(base(name), Mark("r")))).columns
    for column in columns.list_valued:
        with pytest.raises(DataError, match=f"{column}: expected .* a list written as text"):
            check("['a', 'b']", columns, column)
