"""Tables of a user: names of columns, numbers in place of names, and the remedy if there are others."""

import csv
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


# Tables with tabs: quoted as CSV is, or not ----------------------------------------------------------------

FIELDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=6)


def rows_of_table(path, like=None):
    wanted = ("text", "label")
    recognised = user_table(path, wanted, like)
    records = input_records(File(path, path.name), Wanted(wanted, like=like), "table")
    rows = [row.row for row in open_source(recognised, path.parent)]
    assert [record.row for record in records] == rows
    return rows


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt"])
@given(rows=st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=5), spread=st.booleans())
def test_a_table_with_tabs_that_quotes_fields_is_read_as_csv(tmp_path_factory, name, rows, spread):
    """As Excel writes "Text (tab delimited)": a field with a quote, a tab or a line end is in quotes."""
    path = tmp_path_factory.mktemp("quoted") / name
    # One field that only quotes can hold; without any, nothing is quoted.
    written = [("text", "label"), *rows, ("a\nb" if spread else 'a "b"', "x")]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\r\n").writerows(written)
    expected = [{"text": text, "label": label} for text, label in written[1:]]
    assert rows_of_table(path) == expected


STRAY = st.text(st.sampled_from('ab" ,;'), max_size=6)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt"])
@given(rows=st.lists(st.tuples(STRAY, STRAY), min_size=1, max_size=5))
def test_quotes_in_a_table_with_tabs_that_quotes_nothing_are_text(tmp_path_factory, name, rows):
    """A field that is in quotes as CSV would quote it says otherwise, so there is one that is not."""
    path = tmp_path_factory.mktemp("plain") / name
    rows = [*rows, ('5" disk', '"left" and')]
    path.write_text("text\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows), "utf-8")
    read = rows_of_table(path)
    expected = [{"text": text, "label": label} for text, label in rows]
    assert [row for row in read if row["text"].strip() or row["label"].strip()] == [
        row for row in expected if row["text"].strip() or row["label"].strip()
    ]


def test_tables_of_a_run_that_was_trained_without_quotes_are_read_without(tmp_path):
    """Every verb reads the files that trained a run as the training did."""
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"a ""b"""\tx\n')
    like = TsvSource(paths="x", columns={"text": "text", "label": "label"}, header=True)
    assert rows_of_table(path, like) == [{"text": '"a ""b"""', "label": "x"}]
    assert rows_of_table(path) == [{"text": 'a "b"', "label": "x"}]


def test_no_setting_of_a_recipe_is_advised_for_a_file_of_a_verb(tmp_path):
    path = tmp_path / "a.tsv"
    for line in ("b,x", '"b'):
        path.write_text(f"text\tlabel\na\tx\n{line}\n")
        records = [*input_records(File(path, path.name), Wanted(("text", "label")), "table")]
        message = str(records[-1].error)
        assert "label, is required, got 1 field" in message
        assert "set `" not in message
