"""Rows from functions in modules of a user, which are really imported."""

import re
import sys

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from heedful import plugins
from heedful.data.functions import PythonSource
from heedful.data.images import LazyImage
from heedful.data.sources import ChainSource, open_source
from heedful.errors import DataError

MODULE = '''\
import json
import sqlite3
import numpy as np
import heedful
from decimal import Decimal
from pathlib import Path
from PIL import Image


@heedful.part
def rows(n, root, prefix="text"):
    """Rows of a database in the recipe's folder."""
    connection = sqlite3.connect(root / "rows.db")
    connection.execute("create table if not exists rows (id integer, body text)")
    for i in range(n):
        yield {"id": i, "body": f"{prefix} {i}"}


@heedful.part
def listed():
    return [{"text": "one"}, {"text": "two"}]


@heedful.part
def values():
    yield {"a": 3, "b": 0.5, "c": np.float32(0.25), "d": np.int64(7), "e": True, "f": np.str_("x")}
    yield {"a": ["u", 1], "b": ("v",), "c": np.array([1, 2]), "d": [np.float64(0.5)], "e": Path("p"), "f": ""}


@heedful.part
def images():
    yield {"image": np.zeros((2, 3), np.uint8)}
    yield {"image": Image.new("L", (3, 2))}
    yield {"image": Path("folder/image.png").name.encode()}


@heedful.part
def fails():
    yield {"text": "fine"}
    json.loads("{")


@heedful.part
def fails_at_once():
    raise KeyError("no such table")


@heedful.part
def gives(value):
    return {"none": None, "text": "abc", "map": {"text": "a"}, "number": 3}[value]


@heedful.part
def yields(value):
    yield {
        "none": None, "text": "abc", "null": {"text": None}, "nan": {"text": float("nan")},
        "decimal": {"text": Decimal(1)}, "map": {"text": {}}, "key": {3: "a"}, "deep": {"text": [["a"]]},
    }[value]


constant = 3


def unmarked():
    yield {"text": "a"}


class Rows:
    def __iter__(self):
        yield {"text": "a"}
'''
LINE = next(i for i, text in enumerate(MODULE.splitlines(), 1) if "json.loads" in text)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modules")
    (folder / "functions_of_mine.py").write_text(MODULE)
    (folder / "broken_of_mine.py").write_text("import json\n\nnumber = int('x')\n")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("functions_of_mine", None)


@pytest.fixture(autouse=True)
def allowed(path, monkeypatch):
    monkeypatch.setenv(plugins.VARIABLE, "functions_of_mine,broken_of_mine")


def source(name="rows", module="functions_of_mine", **settings):
    return PythonSource(function=f"{module}:{name}", **settings)


def rows_of(source, folder):
    return [row.row for row in open_source(source, folder)]


def test_arguments_columns_and_the_folder_reach_the_function(tmp_path):
    chosen = source(arguments={"n": 5, "prefix": "row"}, columns={"text": "body"}, skip=1, limit=3)
    assert rows_of(chosen, tmp_path) == [{"text": f"row {i}"} for i in (1, 2, 3)]
    assert (tmp_path / "rows.db").is_file()
    located = next(open_source(source(arguments={"n": 1}), tmp_path))
    assert (located.row, str(located.location)) == ({"id": "0", "body": "text 0"}, "functions_of_mine:rows:1")


def test_a_source_is_read_again_by_calling_again(tmp_path):
    for chosen in (source("listed"), ChainSource(sources=[source("listed"), source("listed", skip=1)])):
        first, second = rows_of(chosen, tmp_path), rows_of(chosen, tmp_path)
        assert first == second
        assert first[:2] == [{"text": "one"}, {"text": "two"}]


def test_numbers_become_text_as_in_json_and_lists_stay_lists(tmp_path):
    first, second = rows_of(source("values"), tmp_path)
    assert first == {"a": "3", "b": "0.5", "c": "0.25", "d": "7", "e": "true", "f": "x"}
    assert second == {"a": ["u", "1"], "b": ["v"], "c": ["1", "2"], "d": ["0.5"], "e": "p", "f": ""}
    assert type(first["f"]) is str


def test_images_may_be_arrays_images_of_pillow_or_bytes(tmp_path):
    array, image, raw = (row["image"] for row in rows_of(source("images"), tmp_path))
    assert isinstance(array, LazyImage)
    assert np.array_equal(array.pixels(2, 1), np.zeros((1, 2, 2)))
    assert image.size == Image.new("L", (3, 2)).size
    assert (raw.content, raw.name) == (b"image.png", "functions_of_mine:images:3")


def test_an_exception_is_named_with_its_row_and_place(tmp_path, path):
    rows = open_source(source("fails"), tmp_path)
    assert next(rows).row == {"text": "fine"}
    with pytest.raises(DataError) as raised:
        next(rows)
    message = str(raised.value)
    assert message.startswith("functions_of_mine:fails: row 2: JSONDecodeError: Expecting property name")
    own = re.escape(f"{path}/functions_of_mine.py:{LINE}")
    assert re.search(rf"\(raised at \S+json/decoder\.py:\d+ in a call at {own}\)$", message)
    assert isinstance(raised.value.__cause__, ValueError)
    line = next(i for i, text in enumerate(MODULE.splitlines(), 1) if "no such table" in text)
    place = f"{path}/functions_of_mine.py:{line}"
    expected = f"functions_of_mine:fails_at_once: KeyError: 'no such table' (raised at {place})"
    with pytest.raises(DataError) as raised:
        rows_of(source("fails_at_once"), tmp_path)
    assert str(raised.value) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("none", r"expected rows \(mappings\), got None"),
        ("text", r"expected rows \(mappings\), got a text"),
        ("map", r"expected rows \(mappings\), got a dict"),
        ("number", r"expected rows \(mappings\), got an int"),
    ],
)
def test_what_is_no_stream_of_rows_is_refused(tmp_path, value, message):
    with pytest.raises(DataError, match=f"^functions_of_mine:gives: {message}$"):
        rows_of(source("gives", arguments={"value": value}), tmp_path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("none", "expected a mapping of columns to values, got None"),
        ("text", "expected a mapping of columns to values, got a text"),
        ("null", "field 'text' must be text, got null; remove such rows"),
        ("nan", "field 'text' must be text, got NaN; remove such rows"),
        (
            "decimal",
            "column 'text': expected text, a number, .* or an image, got .* Decimal; convert .*",
        ),
        ("map", "field 'text' must be text, got an object"),
        ("deep", "field 'text.0' must be text, got a list of 1"),
        ("key", "the name of a column must be text, got 3"),
    ],
)
def test_what_is_no_row_is_refused_with_its_number(tmp_path, value, message):
    with pytest.raises(DataError, match=f"^functions_of_mine:yields:1: {message}$"):
        rows_of(source("yields", arguments={"value": value}), tmp_path)


def test_a_missing_column_is_named_with_the_nearest(tmp_path):
    with pytest.raises(
        DataError, match=r"functions_of_mine:listed:1: no column 'texts' \(did you mean 'text'\?"
    ):
        rows_of(source("listed", columns={"text": "texts"}), tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "row"}, "functions_of_mine:row: the module .* has no 'row' .did you mean 'rows'"),
        ({"name": "constant"}, "functions_of_mine:constant: expected a class, or a function .*, got an int$"),
        (
            {"name": "unmarked"},
            ":unmarked: expected .* with the decorator @heedful.part, .*; add the decorator",
        ),
        (
            {"name": "Rows"},
            ":Rows: expected a function with the decorator @heedful.part, got a class without",
        ),
        (
            {"name": "Decimal"},
            ":Decimal: expected a class that functions_of_mine defines, got one of .*decimal",
        ),
        ({}, "functions_of_mine:rows requires the setting 'n'"),
        ({"arguments": {"n": 1, "m": 2}}, "functions_of_mine:rows has no setting 'm'"),
        ({"arguments": {"n": 1, "root": "x"}}, "functions_of_mine:rows has no setting 'root'"),
        (
            {"module": "none_of_mine"},
            "would import the module 'none_of_mine', which was not named as a plugin",
        ),
        (
            {"module": "broken_of_mine"},
            r"broken_of_mine:rows: cannot import broken_of_mine: ValueError: invalid .* \(raised at .*:3\)$",
        ),
    ],
)
def test_functions_are_checked_before_rows_are_read(tmp_path, settings, message):
    with pytest.raises(DataError, match=message):
        open_source(source(**settings), tmp_path)


def test_a_function_is_an_import_path():
    with pytest.raises(ValidationError, match=r"expected an import path such as my_package\.data:rows"):
        PythonSource(function="rows")
