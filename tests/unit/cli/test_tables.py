"""Tables in and out of `predict`: which fields are read, and what pandas reads of the output."""

import csv
import datetime
import gzip
import json
import math
import re
import sys
import weakref
from functools import partial

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import load_workbook
from typer.testing import CliRunner

import heedful
from heedful.cli import tables
from heedful.cli.answers import table_fields
from heedful.cli.main import app
from heedful.cli.tables import TableWriter
from heedful.data.lines import Location, Record
from heedful.data.user_files import user_table
from heedful.errors import DataError, RequestError
from heedful.tasks.inputs.words import as_line, words_and_tags
from heedful.tasks.prediction import Prediction
from heedful.tasks.regression import NumberPrediction
from heedful.tasks.tagging import Tagged
from heedful.tasks.task_info import Columns


def predict(run, *arguments, status=0, **options):
    done = CliRunner().invoke(app, ["predict", str(run), *map(str, arguments), "--device", "cpu"], **options)
    assert done.exit_code == status, (done.stderr, done.exception)
    return done


def labels(run, *texts):
    return [prediction.text for prediction in heedful.load(run, device="cpu").predict(texts)]


@pytest.fixture
def reviews(make_run, classifier, tmp_path):
    """A classifier whose training data have their texts under "review" and their labels under "stars"."""
    columns = {"text": "review", "label": "stars"}
    data = {part: {"kind": "jsonl", "paths": "x", "columns": columns} for part in ("train", "valid")}
    rows = [{"text": x, "label": x} for x in "ab"]
    return make_run(tmp_path / "reviews", {**classifier, "data": data}, rows)


@pytest.mark.parametrize("text", ["review", "text", "body"])
def test_parquet_is_read_as_other_tables(reviews, tmp_path, text):
    day, image = datetime.date(2020, 5, 17), b"\x89PNG"
    columns = {text: ["a, b", "b\n\u2028ä"], "day": day, "image": [{"bytes": image}] * 2, "n": [3, None]}
    pandas.DataFrame(columns).to_parquet(tmp_path / "in.parquet")
    chosen = ["--column", "body"] if text == "body" else []
    expected = labels(reviews, *columns[text])
    done = predict(reviews, tmp_path / "in.parquet", *chosen)
    assert done.stdout.splitlines() == expected
    out = tmp_path / "out.jsonl"
    predict(reviews, tmp_path / "in.parquet", *chosen, "--out", out)
    *lines, _ = out.read_text(encoding="utf-8").split("\n")
    records = [json.loads(line) for line in lines]
    kept = [(*(record["input"][name] for name in (text, "day", "n")), record["output"]) for record in records]
    rows = zip(columns[text], (3, None), expected, strict=True)
    assert kept == [(value, "2020-05-17", n, label) for value, n, label in rows]
    assert all("image" not in record for record in records)
    *lines, rest = predict(reviews, tmp_path / "in.parquet", *chosen, "--jsonl").stdout.split("\n")
    assert [json.loads(line)["output"] for line in lines] == expected
    assert not rest


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            {"y": ["a"]},
            [],
            "in.parquet: expected the fields x, got y; to name its columns: --column text=NAME",
        ),
        ({"text": ["a"]}, ["--whole"], "--whole: not supported for .parquet, which has rows"),
        (b"PAR1 but no table", [], "in.parquet: cannot be read as Parquet: "),
    ],
)
def test_what_no_parquet_can_be_is_refused(letters, tmp_path, content, options, message):
    if isinstance(content, bytes):
        (tmp_path / "in.parquet").write_bytes(content)
    else:
        pandas.DataFrame(content).to_parquet(tmp_path / "in.parquet")
    done = CliRunner().invoke(app, ["predict", str(letters), str(tmp_path / "in.parquet"), *options])
    assert isinstance(done.exception, RequestError)
    assert re.search(message, str(done.exception))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.csv", 'id,review,text\n1,"a, b",other\n\n2,b,other\n'),
        ("in.CSV", 'id;review\n1;"a, b"\n2;b\n'),
        ("in.tsv", "review\tid\na, b\t1\nb\t2\n"),
        ("in.csv", 'text,id\n"a, b",1\nb,2\n'),
        ("in.csv", 'review\n"a, b"\nb\n'),
        ("in.jsonl", '{"review": "a, b", "text": "other"}\n{"review": "b"}\n'),
        ("in.jsonl", '{"text": "a, b"}\n{"text": "b"}\n'),
        ("in.JSONL", '{"review": "a, b"}\n{"review": "b"}\n'),
    ],
)
def test_texts_are_found_by_the_recipes_names_or_the_tasks(reviews, tmp_path, name, content):
    (tmp_path / name).write_text(content)
    out = tmp_path / "out.jsonl"
    predict(reviews, tmp_path / name, "--out", out)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record.get("output", record.get("prediction")) for record in records] == labels(
        reviews, "a, b", "b"
    )
    (expected, *_) = heedful.load(reviews, device="cpu").predict(["a, b"])
    assert math.exp(expected.score) == records[0]["probabilities"][expected.text]


def test_a_table_has_one_line_of_plain_output_for_each_record_and_none_for_the_header(reviews, tmp_path):
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(b"review,id\na,1\nb,2\n"))
    done = predict(reviews, tmp_path / "in.csv.gz")
    assert done.stdout.splitlines() == labels(reviews, "a", "b")
    lines = predict(reviews, tmp_path / "in.csv.gz", "--jsonl", "--n-best", 2).stdout.splitlines()
    assert [(json.loads(line)["input"]["id"], json.loads(line)["input"]["review"]) for line in lines] == [
        ("1", "a"),
        ("2", "b"),
    ]


@pytest.mark.slow
def test_the_user_names_a_column(letters, tmp_path):
    (tmp_path / "in.csv").write_text("x,body\nother,a\n")
    (tmp_path / "in.jsonl").write_text('{"x": "other", "body": "a"}\n')
    for name in ("in.csv", "in.jsonl"):
        for column in ("body", "text=body"):
            done = predict(letters, tmp_path / name, "--column", column, "--out", tmp_path / "out.csv")
            assert pandas.read_csv(tmp_path / "out.csv").prediction.tolist() == labels(letters, "a")
            assert done.stdout == ""


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        (
            "in.csv",
            "id,review\n1,a\n",
            [],
            "in.csv:1: has the columns id, review, but the run reads x; to name its columns: "
            "--column text=NAME",
        ),
        ("in.csv", "x\na\n", ["--column", "y"], "in.csv:1: expected a header with the columns y"),
        (
            "in.csv",
            "x\na\n",
            ["--column", "x", "--column", "y"],
            "--column y: expected one name for each of text",
        ),
        (
            "in.csv",
            "x,y\na\n",
            ["--column", "y"],
            r"in.csv:2: field number 1 \(from 0\), y, is required, got 1",
        ),
        (
            "in.jsonl",
            '{"x": "a"}\n',
            ["--column", "y"],
            "in.jsonl:1: no field 'y'; there are x",
        ),
        (
            "in.txt",
            "a\n",
            ["--column", "x"],
            r"--column requires a table \(.csv, .tsv, .xlsx, .parquet\), CoNLL or JSON lines",
        ),
        (
            "in.csv",
            "x,prediction\na,b\n",
            ["--out", "o.csv", "--column", "x"],
            "a field 'prediction', .* rename it",
        ),
        ("in.txt", "a\n", ["--out", "o.xls"], "o.xls: file name must end in .csv, .tsv, .xlsx or .jsonl"),
        ("in.txt", "a\n", ["--n-best", "2"], "--n-best 2 requires --to jsonl .*, or a table: --out NAME.csv"),
        ("in.txt", "a\n", ["--out", "o.csv", "--attention"], "--attention requires .* --out NAME.jsonl"),
        ("in.txt", "a\n", ["--out", "o.csv", "--to", "jsonl"], "--to jsonl: a file has .* --out o.jsonl"),
        ("in.txt", "a\n", ["--out", "o.jsonl", "--to", "lines"], "--to lines: a file has .* leave out --out"),
        ("in.txt", "a\n", ["--out", "o.csv", "--stream"], "--stream is not supported with --out"),
        ("in.csv", "x\na\n", ["--out", "./in.csv"], "in.csv: is an input, which it would replace"),
    ],
)
def test_wrong_requests_name_the_remedy(letters, tmp_path, monkeypatch, name, content, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises((DataError, RequestError), match=message):
        CliRunner().invoke(app, ["predict", str(letters), name, *options], catch_exceptions=False)
    assert not (tmp_path / "o.csv").exists()


UNREADABLE = {
    "too few fields": ("2", {"id": "2", "x": ""}, "field number 1 (from 0), x, is required, got 1 field"),
    "an error of a spreadsheet": ("2,#N/A", {"id": "2", "x": "#N/A"}, "the field x is #N/A"),
    "too many fields": ("2,a,b", {"id": "2", "x": "a", "2": "b"}, "the header names 2 fields, got 3"),
}


@pytest.mark.parametrize("problem", UNREADABLE)
def test_a_record_that_cannot_be_read_keeps_its_fields_without_a_prediction(letters, tmp_path, problem):
    line, fields, message = UNREADABLE[problem]
    (tmp_path / "in.csv").write_text(f"id,x\n1,a\n{line}\n3,b\n")
    for suffix in (".csv", ".tsv", ".jsonl"):
        out = tmp_path / f"out{suffix}"
        done = predict(letters, tmp_path / "in.csv", "--out", out, status=1)
        assert f"in.csv:3: {message}" in done.stderr
        if suffix == ".jsonl":
            records = [json.loads(text) for text in out.read_text("utf-8").splitlines()]
            assert records[1]["input"] == {name: value for name, value in fields.items() if value}
            assert "output" not in records[1]
            continue
        read = pandas.read_csv(out, sep="\t" if suffix == ".tsv" else ",", keep_default_na=False, dtype=str)
        first, second = labels(letters, "a", "b")
        assert read.prediction.tolist() == [first, "", second]
        assert read.id.tolist() == ["1", "2", "3"]
        assert {name: read[name][1] for name in fields} == fields
        assert not any(read[name][1] for name in read if name not in fields and name != "notes")
        assert f"in.csv:3: {message}" in read.notes[1]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".xlsx", ".jsonl"])
def test_numbers_in_tables_are_rounded_and_those_in_json_are_not(letters, tmp_path, suffix):
    out, (expected, _) = tmp_path / f"out{suffix}", heedful.load(letters, device="cpu").predict(["a", "b a"])
    predict(letters, "-", "--out", out, input="a\nb a\n \n")
    exact = expected.label_probabilities()
    if suffix == ".jsonl":
        records = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
        assert records[0]["probabilities"] == exact
        assert records[0]["confidence"] == expected.confidence
        assert records[2].keys() == {"version", "input", "output", "held_back", "notes"}
        return
    options = {"dtype": str, "keep_default_na": False}
    if suffix == ".xlsx":
        read = pandas.read_excel(out, **options)
    else:
        read = pandas.read_csv(out, sep="\t" if suffix == ".tsv" else ",", **options)
    numbers = read.iloc[0, 2:-1].astype(float).to_dict()
    assert numbers == {
        "confidence": round(expected.confidence, 6),
        **{f"p({label})": round(p, 6) for label, p in exact.items()},
    }
    assert all(re.fullmatch(r"[01](\.\d{1,6})?", text) for row in (0, 1) for text in read.iloc[row, 2:-1])
    assert read.iloc[2, 1:].tolist() == [*[""] * 4, "the input is empty"]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".xlsx"])
def test_a_table_has_the_notes_of_every_answer(letters, tmp_path, suffix):
    """Also if the input has such a column, which keeps its name."""
    (tmp_path / "in.csv").write_text(f"text,notes\n{'a ' * 500},mine\n ,\nc,\nb,\n")
    out = tmp_path / f"out{suffix}"
    done = predict(letters, tmp_path / "in.csv", "--column", "text", "--out", out)
    read = {".csv": pandas.read_csv, ".tsv": partial(pandas.read_csv, sep="\t"), ".xlsx": pandas.read_excel}
    table = read[suffix](out, keep_default_na=False)
    assert [*table][-1] == "prediction_notes"
    expected = heedful.load(letters, device="cpu").predict(["a " * 500, " ", "c", "b"])
    assert table.prediction_notes.tolist() == ["; ".join(answer.notes) for answer in expected]
    assert table.notes.tolist() == ["mine", "", "", ""]
    assert table.prediction_notes[1] == "the input is empty"
    assert "the input is empty" in done.stderr
    assert table.prediction_notes[0].startswith("cut from 500 to ")


@pytest.mark.parametrize("suffix", [".csv", ".xlsx"])
def test_a_table_has_the_next_best_labels(letters, tmp_path, suffix):
    (tmp_path / "in.csv").write_text("text\n \na\nb\n")
    out = tmp_path / f"out{suffix}"
    predict(letters, tmp_path / "in.csv", "--column", "text", "--n-best", 2, "--out", out)
    table = pandas.read_csv(out) if suffix == ".csv" else pandas.read_excel(out)
    names = ["text", "prediction", "confidence", "prediction_2", "confidence_2", "p(a)", "p(b)", "notes"]
    assert [*table] == names
    for row in (1, 2):
        assert {table.prediction[row], table.prediction_2[row]} == {"a", "b"}
        assert table.confidence_2[row] == table[f"p({table.prediction_2[row]})"][row]
        assert table.confidence_2[row] <= table.confidence[row]
    lines = tmp_path / "out.jsonl"
    predict(letters, tmp_path / "in.csv", "--column", "text", "--n-best", 2, "--out", lines)
    predict(letters, tmp_path / "in.csv", "--column", "text", "--out", lines, "--to", "jsonl", "--n-best", 2)
    record = json.loads(lines.read_text().splitlines()[1])
    assert [each["output"] for each in record["alternatives"]] == [table.prediction_2[1]]


@pytest.mark.parametrize("otherwise", [[], ["--otherwise", "HUMAN"]])
def test_a_table_says_which_answers_are_held_back_and_what_they_would_be(letters, tmp_path, otherwise):
    (tmp_path / "in.csv").write_text("text\n \na\nb\na b\n")
    plain = heedful.load(letters, device="cpu").predict(["a", "b", "a b"])
    threshold = sorted(answer.confidence for answer in plain)[1]
    options = ["--column", "text", "--threshold", f"{threshold:.9f}", *otherwise]
    predict(letters, tmp_path / "in.csv", *options, "--out", tmp_path / "out.csv")
    table = pandas.read_csv(tmp_path / "out.csv", keep_default_na=False, dtype=str)
    assert [*table][1:5] == ["prediction", "confidence", "held_back", "suggestion"]
    mark = otherwise[1] if otherwise else ""
    assert table.iloc[0, 1:5].tolist() == [mark, "", "empty input", ""]
    for row, answer in enumerate(plain, 1):
        is_held = answer.confidence < float(f"{threshold:.9f}")
        expected = [mark, "below threshold", answer.text] if is_held else [answer.text, "", ""]
        assert table.loc[row, ["prediction", "held_back", "suggestion"]].tolist() == expected
        assert table.confidence[row] == f"{answer.confidence:.6f}".rstrip("0")
    assert set(table.held_back) == {"", "empty input", "below threshold"}


def test_small_probabilities_have_no_exponent(tmp_path):
    with TableWriter(tmp_path / "out.csv") as writer:
        for interval in ((1e-9, 1234567.891), (2e-6, 0.1234567)):
            writer.add({}, NumberPrediction("5", value=5.0, interval=interval))
        writer.write()
    assert (tmp_path / "out.csv").read_text() == (
        "prediction,low,high,notes\n5,1e-09,1234570,\n5,0.000002,0.123457,\n"
    )


def test_a_workbook_has_the_columns_of_the_other_tables(letters, tmp_path):
    own = pandas.DataFrame({"id": [7, 8], "x": ["=a", "#N/A b"], "code": ["007", "1e5"], "n": [0.5, 2]})
    own.to_excel(tmp_path / "in.xlsx", index=False)
    book = load_workbook(tmp_path / "in.xlsx")
    book.active["B2"].data_type = "s"
    book.save(tmp_path / "in.xlsx")
    out = tmp_path / "out.xlsx"
    predict(letters, tmp_path / "in.xlsx", "--column", "x", "--out", out)
    (sheet,) = load_workbook(out).worksheets
    header, *rows = sheet.iter_rows()
    names = [cell.value for cell in header]
    assert names == ["id", "x", "code", "n", "prediction", "confidence", "p(a)", "p(b)", "notes"]
    assert [[cell.value for cell in row[:4]] for row in rows] == own.to_numpy().tolist()
    assert [[cell.data_type for cell in row] for row in rows] == [list("nssnsnnns")] * 2
    predict(letters, tmp_path / "in.xlsx", "--column", "x", "--out", tmp_path / "out.csv")
    table = user_table(out, ("prediction",), None, {}).records(tmp_path, ("prediction",))
    (_, *lines) = csv.reader((tmp_path / "out.csv").read_text("utf-8").splitlines())
    assert [[*record.fields.values()] for record in table] == lines


def test_a_workbook_needs_the_library_and_says_so_before_predicting(letters, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    done = predict(letters, "-", "--out", tmp_path / "out.xlsx", input="a\n", status=1)
    assert isinstance(done.exception, RequestError)
    assert str(done.exception).endswith("run: pip install 'heedful[excel]', or write .csv")
    assert not [*tmp_path.glob("*.xlsx")]


def test_a_workbook_replaces_another_only_when_it_is_complete(tmp_path):
    path = tmp_path / "out.xlsx"
    path.write_bytes(b"before")
    with TableWriter(path) as writer:
        writer.add({"x": "a" * 40_000}, Prediction("p"))
        with pytest.raises(RequestError, match=r"out.xlsx: row 2 has a text of 40,000 characters"):
            writer.write()
    assert path.read_bytes() == b"before"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("header", ["text;Betrag (€)", "text;Betrag"])
@pytest.mark.parametrize("out", [["--out", "out.csv"], []])
def test_a_file_in_another_encoding_has_the_command_that_converts_it(letters, tmp_path, header, out):
    path = tmp_path / "in.csv"
    path.write_bytes(f"{header}\r\nHallo, schöne Grüße für 5 €;5\r\n".encode("cp1252"))
    options = [str(tmp_path / each) if "." in each else each for each in out]
    done = CliRunner().invoke(app, ["predict", str(letters), str(path), "--column", "text", *options])
    message = done.stderr if done.exception is None else f"{done.exception}{done.stderr}"
    line = 1 if "€" in header else 2
    assert re.search(rf"in.csv:{line}: byte \d+ of the line is not UTF-8; .*Windows-1252", message)
    assert f"iconv -f WINDOWS-1252 -t UTF-8 {path} > NEW" in message


def test_lines_of_text_become_a_column_with_the_name_of_the_input(letters, tmp_path):
    predict(letters, "-", "--out", tmp_path / "out.csv", input="a\nid,text\n")
    written = pandas.read_csv(tmp_path / "out.csv")
    assert list(written) == ["text", "prediction", "confidence", "p(a)", "p(b)", "notes"]
    assert written.confidence.tolist() == written[["p(a)", "p(b)"]].max(axis=1).tolist()
    assert written.text.tolist() == ["a", "id,text"]
    assert (written["p(a)"] + written["p(b)"]).tolist() == pytest.approx([1, 1], abs=1e-6)
    certain = written[["p(a)", "p(b)"]].idxmax(axis=1).str[2]
    assert written.prediction.tolist() == certain.tolist()


@pytest.mark.slow
def test_pairs_are_read_from_two_columns(make_run, classifier, tmp_path):
    classifier |= {"task": {"kind": "classification", "pairs": True}}
    run = make_run(tmp_path / "run", classifier, [{"text": x, "pair": "c", "label": x} for x in "ab"])
    (tmp_path / "in.csv").write_text("q2,q1\nc,a\nb,b\n")
    expected = labels(run, ("a", "c"), ("b", "b"))
    for columns in (("q1", "q2"), ("pair=q2", "q1"), ("text=q1", "pair=q2")):
        options = [word for column in columns for word in ("--column", column)]
        assert predict(run, tmp_path / "in.csv", *options).stdout.splitlines() == expected


def test_several_files_and_folders_are_for_images(letters, tmp_path):
    for files, problem in (
        (["x.txt", "y.txt"], "expected one FILE"),
        ([tmp_path], "is a folder, not a file"),
    ):
        with pytest.raises(RequestError, match=f"{problem}; several files and folders are for images"):
            CliRunner().invoke(app, ["predict", str(letters), *map(str, files)], catch_exceptions=False)


def test_a_table_may_be_read_as_one_text(letters, tmp_path):
    (tmp_path / "in.csv").write_text("a b\nb\n")
    assert predict(letters, tmp_path / "in.csv", "--whole").stdout.splitlines() == labels(letters, "a b\nb")


# Carriage returns are not among the characters: pandas' own reader turns some of them into line ends.
CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=6)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4))
def test_pandas_reads_what_was_written(tmp_path_factory, suffix, rows):
    with TableWriter(tmp_path_factory.mktemp("table") / f"out{suffix}") as writer:
        for x, y, predicted in rows:
            writer.add({"x": x, "y": y}, Prediction(predicted))
        writer.write()
    separator = "\t" if suffix == ".tsv" else ","
    read = pandas.read_csv(writer.path, sep=separator, dtype=str, keep_default_na=False, lineterminator="\n")
    assert list(read.itertuples(index=False, name=None)) == [(*row, "") for row in rows]
    assert list(read) == ["x", "y", "prediction", "notes"]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_records_are_not_kept_in_memory(tmp_path, suffix, monkeypatch):
    class Value(list):
        """A list that can be referred to weakly."""

    def written(name):
        with TableWriter(tmp_path / f"{name}{suffix}") as writer:
            values = [Value(["\u2028\r\n\ud800", n]) for n in range(5)]
            kept = [weakref.ref(value) for value in values]
            for n, value in enumerate(values):
                writer.add({"x": value, f"y{n}": 1e-300}, Prediction("p"))
            del value, values
            assert not any(reference() for reference in kept)
            writer.write()
        return writer.path.read_bytes()

    in_memory = written("a")
    monkeypatch.setattr(tables, "IN_MEMORY", 1)  # now in a file
    assert written("b") == in_memory


def test_values_that_are_not_texts_are_written_as_json(tmp_path):
    with TableWriter(tmp_path / "out.csv") as writer:
        writer.add({"x": [1, "a"], "y": None, "z": True}, Prediction("p"))
        writer.add({"w": "\ud800"}, Prediction("q"))
        writer.write()
    assert (tmp_path / "out.csv").read_text("utf-8") == (
        'x,y,z,w,prediction,notes\n"[1, ""a""]",,true,,p,\n,,,\\ud800,q,\n'
    )


DIALECTS = [
    (beginning, separator)
    for separator in (",", ";")
    for beginning in ("", "\ufeff", f"sep={separator}\n", f"\ufeffsep={separator}\n")
]


@pytest.mark.parametrize(("beginning", "separator"), DIALECTS)
def test_the_program_that_wrote_a_table_opens_the_output(letters, tmp_path, beginning, separator):
    """It reads the first bytes and the separator of the input, and nothing else is between fields."""
    own, out = tmp_path / "in.csv", tmp_path / "out.csv"
    header = separator.join(("text", "n"))
    own.write_text(f'{beginning}{header}\n"a{separator} b"{separator}1\nb{separator}2\n')
    predict(letters, own, "--column", "text", "--out", out)
    written = out.read_text()
    assert written.startswith(f"{beginning}{header}{separator}prediction{separator}")
    _, *rows = csv.reader(written.removeprefix(beginning).splitlines(), delimiter=separator)
    assert [row[:2] for row in rows] == [[f"a{separator} b", "1"], ["b", "2"]]
    again = predict(letters, out, "--column", "text")
    assert again.stdout == predict(letters, own, "--column", "text").stdout
    predict(letters, own, "--column", "text", "--out", tmp_path / "out.tsv")
    mark = beginning.partition("sep")[0]
    assert (tmp_path / "out.tsv").read_text().startswith(f"{mark}text\tn\tprediction\t")


def test_tables_of_tabs_and_other_inputs_become_tables_of_commas(letters, tmp_path):
    for name, content in (("in.tsv", "text\tn\na\t1\n"), ("in.jsonl", '{"text": "a", "n": 1}\n')):
        (tmp_path / name).write_text(content)
        predict(letters, tmp_path / name, "--column", "text", "--out", tmp_path / "out.csv")
        assert (tmp_path / "out.csv").read_text().startswith("text,n,prediction,")


SENTENCES = st.lists(st.lists(st.text(max_size=5), min_size=1, max_size=4), min_size=1, max_size=3)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@given(sentences=SENTENCES)
def test_words_and_their_tags_are_written_as_training_reads_them(tmp_path_factory, suffix, sentences):
    path = tmp_path_factory.mktemp("table") / f"out{suffix}"
    columns = Columns(("words", "tags"), ("words",), list_valued=("words", "tags"), input_lists=True)
    tags = [[f"T{n}" for n, _ in enumerate(words)] for words in sentences]
    with TableWriter(path) as writer:
        for words, of_words in zip(sentences, tags, strict=True):
            record = Record(Location("x"), {"tokens": words, "other": ["a", "b"]}, {"words": words})
            answer = Tagged(" ".join(of_words), words=words, tags=of_words)
            writer.add(table_fields(record, writer, columns), answer)
        writer.write()
    names = {"words": "input.tokens", "tags": "output"}
    if suffix != ".jsonl":
        names = {"words": "tokens", "tags": "prediction"}
    source = user_table(path, ("words", "tags"), None, names)
    read = [words_and_tags(row) for row in source.open(path.parent)]
    expected = [[word if suffix == ".jsonl" else as_line([word]) for word in words] for words in sentences]
    # A row of white space alone is empty.
    pairs = zip(expected, tags, strict=True)
    assert read == [(words, each) if any(map(str.strip, words)) else ([], []) for words, each in pairs]


# Keys of --column ------------------------------------------------------------------------------------------

KEYS = {
    "predict": (["RUN", "in.csv"], "text"),
    "embed": (["RUN", "in.csv"], "text"),
    "evaluate": (["RUN", "in.csv"], "text and label"),
    "compare": (["RUN", "OTHER", "--data", "in.csv"], "text and label"),
    "train": (["my-own-labels", "--data", "in.csv"], "text and label"),
}


@pytest.fixture
def own_table(reviews, tmp_path, monkeypatch):
    """The run of `reviews`, beside a table without its names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text("id,body,kind\n1,a,a\n2,b,b\n")
    return reviews


def refusal(verb, run, *options):
    arguments = [{"RUN": str(run), "OTHER": str(run)}.get(each, each) for each in KEYS[verb][0]]
    with pytest.raises(RequestError) as raised:
        CliRunner().invoke(app, [verb, *arguments, *options], catch_exceptions=False)
    return str(raised.value)


@pytest.mark.parametrize("verb", KEYS)
def test_an_unknown_key_is_reported_by_every_verb_in_the_same_words(verb, own_table):
    read = sorted(KEYS[verb][1].split(" and "))
    found = refusal(verb, own_table, "--column", "txt=body", "--column", "label=kind")
    listed = re.fullmatch(
        r"--column txt=body: unknown key 'txt'; the task classification reads ([\w ]+) "
        r"\(did you mean 'text'\?\)",
        found,
    )
    assert listed, found
    assert sorted(listed[1].split(" and ")) == read
    assert "the key comes first: text=body" in refusal(verb, own_table, "--column", "body=text")


def test_an_unknown_key_is_reported_before_the_columns_that_are_missing(own_table):
    """The message on the missing column alone hid the misspelt key."""
    (own_table.parent / "pairs.tsv").write_text("en\tde\na\tb\n")
    command = ["train", "my-own-files", "--data", "pairs.tsv", "--column", "src=en", "--column", "target=de"]
    with pytest.raises(
        RequestError, match=r"unknown key 'src'; .* source and target \(did you mean 'source'"
    ):
        CliRunner().invoke(app, command, catch_exceptions=False)
    with pytest.raises(RequestError, match=r"columns: unknown key 'src'; .* \(did you mean 'source'"):
        heedful.train("my-own-files", data={"train": "pairs.tsv"}, columns={"src": "en", "target": "de"})


def test_a_key_of_training_data_alone_is_no_key_of_inputs(own_table):
    found = refusal("predict", own_table, "--column", "text=body", "--column", "label=kind")
    assert found.startswith("--column label=kind: 'label' is not part of an input")
    assert found.endswith("remove it")


def test_a_setting_may_make_a_task_read_another_column(own_table):
    command = ["train", "my-own-labels", "--data", "in.csv", "--print", "--column", "text=body"]
    columns = ["--column", "pair=id", "--column", "label=kind", "task.pairs=true"]
    assert "pair: id" in CliRunner().invoke(app, [*command, *columns], catch_exceptions=False).stdout


@pytest.mark.parametrize("name", ["a=b", "text=a"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_the_name_of_a_field_may_have_an_equals_sign(reviews, tmp_path, name, suffix):
    path, table = tmp_path / f"in.{suffix}", pandas.DataFrame({name: ["a", "b"], "stars": ["a", "b"]})
    if suffix == "jsonl":
        table.to_json(path, orient="records", lines=True)
    elif suffix == "csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)
    for chosen in [f"text={name}", *([name] if name == "a=b" else [])]:
        done = predict(reviews, path, "--to", "lines", "--column", chosen)
        assert done.stdout.splitlines() == labels(reviews, "a", "b")
