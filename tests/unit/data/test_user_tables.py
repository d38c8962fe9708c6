"""Tables of a user: names of columns, numbers in place of names, and the remedy if there are others."""

import json
import re
from pathlib import Path

import pytest

from heedful.data.delimited import TsvSource
from heedful.data.lines import File
from heedful.data.sources import open_source
from heedful.data.user_files import form_of, input_records, user_source, user_table
from heedful.data.user_tables import Wanted
from heedful.errors import DataError

LIKES = {
    "tabs": TsvSource(paths="x", columns={"label": 0, "text": 1}),
    "quoted commas": TsvSource(
        paths="x", columns={"text": "Text", "label": "Class"}, header=True, separator=",", quotes=True
    ),
    "lines": None,
    "names": TsvSource(paths="x", columns={"text": "body", "label": "queue"}, header=True),
}

ROWS = [{"text": f"a, b {n}", "label": "xy"[n % 2]} for n in range(4)]
TABLES = {
    "own.tsv": [f"{row['label']}\t{row['text']}" for row in ROWS],
    "own.csv": [f'{row["label"]},"{row["text"]}"' for row in ROWS],
    "semicolons.csv": [f"{row['label']};{row['text']}" for row in ROWS],
    "own.txt": [f"{row['label']}\t{row['text']}" for row in ROWS],
}
HEADERS = {
    "own.tsv": "queue\tbody",
    "own.csv": "queue,body",
    "semicolons.csv": "queue;body",
    "own.txt": "queue\tbody",
}


def rows_by_every_verb(path, like, names):
    """Return the rows of an evaluation, of a training and of predictions."""
    columns = ("text", "label")
    file, wanted = File(path, path.name), Wanted(columns, like=like, names=names)
    yield [row.row for row in open_source(user_table(path, columns, like, names), Path())]
    yield [row.row for row in open_source(user_source([path], columns, like, names), Path())]
    yield [record.row for record in input_records(file, wanted, form_of(file, wanted))]


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("label", ["0", "-2"])
def test_a_number_is_that_of_a_field_in_a_table_without_a_header(tmp_path, like, name, label):
    (tmp_path / name).write_text("\n".join(TABLES[name]))
    for rows in rows_by_every_verb(tmp_path / name, LIKES[like], {"label": label, "text": "1"}):
        assert rows == ROWS


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("names", [{"label": "queue", "text": "1"}, {"label": "0", "text": "1"}])
def test_a_line_with_a_name_of_the_user_or_the_run_is_a_header(tmp_path, name, names):
    (tmp_path / name).write_text("\n".join([HEADERS[name], *TABLES[name]]))
    for rows in rows_by_every_verb(tmp_path / name, LIKES["names"], names):
        assert rows == ROWS


def test_a_number_that_is_a_name_of_the_header_is_the_name(tmp_path):
    (tmp_path / "own.csv").write_text("1,0\ny,a\n")
    for rows in rows_by_every_verb(tmp_path / "own.csv", LIKES["names"], {"label": "1", "text": "0"}):
        assert rows == [{"text": "a", "label": "y"}]


def test_a_cell_that_is_the_number_of_another_field_is_not_a_name(tmp_path):
    (tmp_path / "own.csv").write_text("1,a\n0,b\n")
    for rows in rows_by_every_verb(tmp_path / "own.csv", LIKES["names"], {"label": "0", "text": "1"}):
        assert rows == [{"text": "a", "label": "1"}, {"text": "b", "label": "0"}]


def test_numbers_that_a_table_does_not_have_are_errors(tmp_path):
    (tmp_path / "own.csv").write_text("y,a\n")
    source = user_table(tmp_path / "own.csv", ("text", "label"), None, {"label": "0", "text": "7"})
    with pytest.raises(DataError, match=r"own\.csv:1: field number 7 \(from 0\) is required, got 2 fields"):
        list(open_source(source, tmp_path))


def write_with_other_names(folder, form):
    """Write a file whose fields have names that neither the task nor the run knows; return its path."""
    path = folder / f"own.{form}"
    if form == "parquet":
        import pandas

        pandas.DataFrame([{"it": row["text"], "is": row["label"]} for row in ROWS]).to_parquet(path)
    elif form == "jsonl":
        path.write_text("".join(json.dumps({"it": row["text"], "is": row["label"]}) + "\n" for row in ROWS))
    else:
        separator = "," if form == "csv" else "\t"
        lines = [f'"{row["text"]}"' + separator + row["label"] for row in ROWS]
        path.write_text("\n".join([f"it{separator}is", *lines]))
    return path


FIRST_WITH_A_NUMBER = "1{0}a b\n2{0}a c\n"
NAMES = {"NAME": {"text": "it", "label": "is"}, "N": {"text": "1", "label": "0"}}


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet", "csv without header"])
def test_the_remedy_for_other_names_is_that_of_every_verb_and_works(tmp_path, like, form):
    """It is read from the message, with the names of the file in place of ``NAME``."""
    path = write_with_other_names(tmp_path, form.split()[0])
    if form == "csv without header":
        path.write_text(FIRST_WITH_A_NUMBER.format(","))
    if form == "tsv" and like == "tabs":
        pytest.skip("a table of tabs without names is like that of the run")
    for columns in (("text", "label"), ("text",)):
        file, wanted = File(path, path.name), Wanted(columns, like=LIKES[like])
        found = set()
        for read in (
            lambda columns=columns: user_table(path, columns, LIKES[like]),
            lambda columns=columns: user_source([path], columns, LIKES[like], {}),
            lambda file=file, wanted=wanted: [*input_records(file, wanted, form_of(file, wanted))],
        ):
            with pytest.raises(DataError) as raised:
                read()
            found.add(tuple(re.findall(r"--column (\w+)=(N|NAME)\b", str(raised.value))))
        (remedy,) = found
        assert [column for column, _ in remedy] == [*columns]
        names = {column: NAMES[name][column] for column, name in remedy}
        expected = [
            {"text": text} for text in (["a b", "a c"] if "without" in form else [r["text"] for r in ROWS])
        ]
        named = Wanted(columns, like=LIKES[like], names=names)
        rows = [record.row for record in input_records(file, named, form_of(file, named))]
        assert [{"text": row["text"].strip('"')} for row in rows] == expected
