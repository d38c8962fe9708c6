"""Tables as spreadsheet programs write them: hints, separators, empty cells, errors, workbooks."""

import datetime
import io
import random
import re
import sys
import unicodedata
import zipfile
from contextlib import suppress

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl import Workbook, load_workbook

from heedful.data import spreadsheets
from heedful.data.delimited import TsvSource
from heedful.data.lines import File
from heedful.data.spreadsheets import cell_text, is_workbook, sheet_rows, write_sheet
from heedful.data.user_files import user_table
from heedful.errors import DataError, RequestError

ROWS = [["text", "label"], ["Grüße, Welt", "a"], ['two "words"; more', "b"]]
READ = [{"text": "Grüße, Welt", "label": "a"}, {"text": 'two "words"; more', "label": "b"}]
COLUMNS = {"text": "text", "label": "label"}


def read(path, columns=COLUMNS, separator=",", header=True):
    source = TsvSource(paths=path.name, columns=columns, header=header, separator=separator, quotes=True)
    return [row for row, _ in source.open(path.parent)]


def written(rows, separator=",", end="\r\n"):
    quoted = (separator.join('"' + field.replace('"', '""') + '"' for field in row) for row in rows)
    return "".join(row + end for row in quoted)


# Text -------------------------------------------------------------------------------------------------------

DIALECTS = {
    "comma": written(ROWS),
    "semicolon": written(ROWS, ";"),
    "tab": written(ROWS, "\t"),
    "hint": "sep=;\r\n" + written(ROWS, ";"),
    "quoted hint": '"sep=|"\n' + written(ROWS, "|"),
    "old Mac": written(ROWS, ";", end="\r"),
    "empty columns": "".join(f"{line};;;\n" for line in written(ROWS, ";").splitlines()),
    "rows of separators": written(ROWS, ";") + ";\r\n; ;\r\n;;;;;;\r\n\r\n",
    "no last line end": written(ROWS, ";").rstrip(),
}


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("name", ["my data.csv", "data.txt"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_table_is_read_in_every_dialect(tmp_path, dialect, name, mark):
    path = tmp_path / name
    path.write_bytes((mark + DIALECTS[dialect]).encode())
    separator = {"comma": ",", "tab": "\t"}.get(dialect, ";")
    assert read(path, separator=separator) == READ
    like = TsvSource(paths="x", columns=COLUMNS, header=True, separator=separator, quotes=True)
    source = user_table(path, ["text", "label"], like)
    assert [row for row, _ in source.open(tmp_path)] == READ


@pytest.mark.parametrize(
    "header",
    ["größe,label", " größe ,label", "\u00a0größe\u00a0,\ufefflabel\u200b", "größe\t, label"],
)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("asked", ["größe", unicodedata.normalize("NFD", "größe"), " größe"])
def test_names_of_columns_are_compared_and_not_their_bytes(tmp_path, header, form, asked):
    path = tmp_path / "data.csv"
    path.write_text(f"{unicodedata.normalize(form, header)}\r\n1,a\r\n")
    assert read(path, {"text": asked, "label": "label"}) == [{"text": "1", "label": "a"}]


def test_two_names_that_compare_equal_need_a_number(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("text ,text,label\n1,2,3\n")
    assert read(path) == [{"text": "2", "label": "3"}]
    path.write_text("text , text,label\n1,2,3\n")
    with pytest.raises(
        DataError, match=r"data.csv:1: the header has the field 'text' 2 times; use the number"
    ):
        read(path)
    assert read(path, {"text": 1, "label": "label"}) == [{"text": "2", "label": "3"}]


def test_mixed_line_ends_have_a_command(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b'text,label\r"a\nb",1\rc,2\r')
    with pytest.raises(DataError, match=r"data.csv:1: a carriage return ends a line here, .* NEW$") as caught:
        read(path)
    command = str(caught.value).split("alike: ")[1]
    assert command == r"tr '\r' '\n' < data.csv > NEW"
    path.write_bytes(path.read_bytes().replace(b"\r", b"\n"))
    assert read(path) == [{"text": "a\nb", "label": "1"}, {"text": "c", "label": "2"}]


@pytest.mark.parametrize("error", sorted(spreadsheets.ERRORS))
def test_an_error_of_a_spreadsheet_is_no_text(tmp_path, error):
    path = tmp_path / "data.csv"
    path.write_text(f"text,label,other\na,1,{error}\n{error},2,x\n")
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(caught.value) == (
        f"data.csv:3: the field text is {error}, an error of a spreadsheet; correct its formula, or remove "
        "the row"
    )
    path.write_text(f"text,label,other\na,1,{error}\n")
    assert read(path) == [{"text": "a", "label": "1"}]


# Workbooks --------------------------------------------------------------------------------------------------


def saved(path, rows, change=lambda book: None):
    book = Workbook()
    for row in rows:
        book.active.append(row)
    change(book)
    book.save(path)
    return path


@pytest.mark.parametrize("name", ["data.xlsx", "data.csv", "my table"])
def test_a_workbook_is_read_by_its_content(tmp_path, name):
    path = saved(tmp_path / "x.xlsx", [*ROWS, [], [None, " "]]).rename(tmp_path / name)
    assert read(path) == READ
    source = user_table(path, ["text", "label"])
    assert [row for row, _ in source.open(tmp_path)] == READ
    assert [location.line for _, location in source.open(tmp_path)] == [2, 3]


CELLS = [
    (3, "3"),
    (3.0, "3"),
    (2.5, "2.5"),
    (-0.001, "-0.001"),
    (1e300, "1e+300"),
    (True, "TRUE"),
    (None, ""),
    ("007", "007"),
    (datetime.datetime(2024, 3, 5), "2024-03-05"),
    (datetime.datetime(2024, 3, 5, 13, 30), "2024-03-05T13:30:00"),
    (datetime.time(13, 30), "13:30:00"),
    ("two\nlines", "two\nlines"),
    ("two_x000D_\nlines", "two\nlines"),
    ("#hashtag", "#hashtag"),
    ("  spaces ", "  spaces "),
]


def test_the_values_of_cells(tmp_path):
    path = saved(tmp_path / "a.xlsx", [["text", "label"], *([value, "x"] for value, _ in CELLS)])
    assert [row["text"] for row in read(path)] == [text for _, text in CELLS]


@settings(max_examples=30)
@given(value=st.one_of(st.integers(-(2**52), 2**52), st.floats(allow_nan=False, allow_infinity=False)))
def test_the_text_of_a_number_is_the_number(value):
    assert float(cell_text(value)) == value
    assert cell_text(float(int(value) % 1000)) == str(int(value) % 1000)


def test_the_first_visible_sheet_is_read(tmp_path):
    def add(book):
        book.active.sheet_state = "hidden"
        for title, row in (("first", ["a", "b"]), ("second", ["c", "d"])):
            sheet = book.create_sheet(title)
            sheet.append(["text", "label"])
            sheet.append(row)

    assert read(saved(tmp_path / "a.xlsx", [["x"]], add)) == [{"text": "a", "label": "b"}]


def test_an_error_in_a_cell_is_refused_with_its_row(tmp_path):
    path = saved(tmp_path / "a.xlsx", [*ROWS, ["#N/A", "c"]])
    with pytest.raises(DataError, match=r"^a.xlsx:4: the field text is #N/A, an error of a spreadsheet"):
        read(path)


def test_a_formula_without_a_value_is_refused(tmp_path):
    path = saved(tmp_path / "a.xlsx", [*ROWS, ["=A2", "c"]])
    with pytest.raises(DataError, match=r"^a.xlsx:4: the value of the formula '=A2' is not stored; open the"):
        read(path)


def test_a_formula_has_its_stored_value(tmp_path):
    path = saved(tmp_path / "a.xlsx", [*ROWS, ["=A2", "c"]])
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    name = "xl/worksheets/sheet1.xml"
    for empty in (b"<v></v>", b"<v />", b"<v/>"):
        stored = b'<c r="A4" t="str"><f>A2</f><v>stored</v>'
        content[name] = content[name].replace(b'<c r="A4"><f>A2</f>' + empty, stored)
    with zipfile.ZipFile(path, "w") as archive:
        for part, data in content.items():
            archive.writestr(part, data)
    assert read(path)[2] == {"text": "stored", "label": "c"}


def test_without_the_library_the_message_has_both_remedies(tmp_path, monkeypatch):
    path = saved(tmp_path / "a.xlsx", ROWS)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(caught.value) == (
        "a.xlsx: is an Excel workbook; save the sheet as CSV in UTF-8, or run: pip install 'heedful[excel]'"
    )


def test_a_damaged_workbook_is_an_error_and_no_traceback(tmp_path):
    content, draw = saved(tmp_path / "a.xlsx", ROWS * 20).read_bytes(), random.Random(0)
    for _ in range(40):
        at = draw.randrange(len(content))
        (tmp_path / "a.xlsx").write_bytes(content[:at] + draw.randbytes(9) + content[at + 9 :])
        with suppress(DataError):
            read(tmp_path / "a.xlsx")


def test_a_large_workbook_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(spreadsheets, "MOST_BYTES", 5000)
    path = saved(tmp_path / "a.xlsx", [["x" * 30000, "y"]] * 9)
    with pytest.raises(DataError, match=r"a.xlsx: the workbook has [0-9,]+ bytes unpacked; save the sheet"):
        read(path)


def test_what_is_not_a_workbook(tmp_path):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("word/document.xml", "")
    for content in (b"", b"PK", b"PK\3\4", b"text", stream.getvalue()):
        (tmp_path / "a").write_bytes(content)
        assert not is_workbook(File(tmp_path / "a", "a"))
    assert not is_workbook(File(tmp_path, "a"))
    assert not is_workbook(File(tmp_path / "missing", "a"))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_rows_of_separators_are_empty_texts_but_at_the_end(tmp_path, separator):
    rows = [["text", "id"], ["a", "1"], ["", ""], [" ", ""], ["b", ""], ["", ""], ["", " "]]
    content = "".join(separator.join(row) + "\n" for row in rows)
    (tmp_path / "x.csv").write_text(content)
    source = TsvSource(paths="x.csv", columns={"text": "text"}, header=True, separator=separator, quotes=True)
    assert [row["text"] for row, _ in source.open(tmp_path)] == ["a", "", " ", "b"]
    found = [(record.fields, record.location.line) for record in source.records(tmp_path, ["text"])]
    assert found == [({"text": x, "id": y}, line) for line, (x, y) in enumerate(rows[1:5], 2)]


# Workbooks that are written -------------------------------------------------------------------------------

TEXTS = st.one_of(
    st.text(st.characters(exclude_characters="\r"), max_size=8),
    st.sampled_from(
        ["=1+1", "007", "1e5", "#N/A", "TRUE", "_x0041_", "_x005F_", "+49", "@a", "-", "'a", " "]
    ),
)
VALUES = st.one_of(
    TEXTS,
    st.none(),
    st.booleans(),
    st.integers(-(10**15) + 1, 10**15 - 1),
    st.floats(-1e8, 1e8).map(lambda x: round(x, 6)),
)


def sheet(path, header, rows):
    with path.open("wb") as file:
        write_sheet(file, path.name, header, rows)
    return path


def library_escape(text):
    """Return how the library reads a text whose characters XML excludes: it does not undo the escape."""
    return re.sub(
        "_(?=x[0-9A-Fa-f]{4}_)|[\0-\x08\x0b-\x1f\ufffe\uffff]", lambda m: f"_x{ord(m[0]):04X}_", text
    )


@settings(deadline=None)
@given(rows=st.lists(st.tuples(VALUES, VALUES, TEXTS), min_size=1, max_size=4))
def test_what_is_written_is_read_back(tmp_path_factory, rows):
    """By heedful as text, by the library and pandas with its types; texts are never formulas or numbers."""
    path = sheet(tmp_path_factory.mktemp("written") / "a.xlsx", ["x", "y", "z"], rows)
    assert is_workbook(File(path, path.name))
    _, *read = (texts for _, texts in sheet_rows(File(path, path.name)))
    expected = [[cell_text(value) if not isinstance(value, str) else value for value in row] for row in rows]
    while expected and not any(expected[-1]):
        expected.pop()
    assert [*read][: len(expected)] == expected
    assert not any(any(row) for row in read[len(expected) :])
    (worksheet,) = load_workbook(path).worksheets
    for row, cells in zip(rows, worksheet.iter_rows(min_row=2), strict=False):
        for value, cell in zip(row, cells, strict=False):
            assert cell.data_type != "f"
            own = library_escape(value) or None if isinstance(value, str) else value
            assert cell.value == own
            assert type(cell.value) is type(own) or own == cell.value != str(own)
    frame = pandas.read_excel(path, dtype=object, keep_default_na=False)
    assert list(frame) == ["x", "y", "z"]


def test_numbers_of_a_workbook_stay_numbers(tmp_path):
    own = Workbook()
    for row in (["id", "n", "b"], ["007", 7, True], ["8", 2.5, False]):
        own.active.append(row)
    own.save(tmp_path / "a.xlsx")
    _, *rows = (texts for _, texts in sheet_rows(File(tmp_path / "a.xlsx", "a.xlsx")))
    assert rows == [["007", "7", "TRUE"], ["8", "2.5", "FALSE"]]
    assert [[getattr(text, "value", text) for text in row] for row in rows] == [
        ["007", 7, True],
        ["8", 2.5, False],
    ]


def test_a_number_of_more_digits_than_excel_keeps_is_a_text(tmp_path):
    path = sheet(tmp_path / "a.xlsx", ["x"], [[10**15], [10**15 - 1], [[1, "a"]]])
    values = [cell.value for (cell,) in load_workbook(path).worksheets[0].iter_rows(min_row=2)]
    assert values == [str(10**15), 10**15 - 1, '[1, "a"]']


def test_what_excel_cannot_hold_is_refused_and_never_cut(tmp_path, monkeypatch):
    sheet(tmp_path / "a.xlsx", ["x"], [["a" * 32_767]])
    with pytest.raises(RequestError, match=r"row 3 has a text of 32,768 characters; .* write .csv"):
        sheet(tmp_path / "a.xlsx", ["x"], [["a"], ["a" * 32_768]])
    with pytest.raises(RequestError, match="at most 16,384 columns"):
        sheet(tmp_path / "a.xlsx", ["x"] * 16_385, [])
    monkeypatch.setattr(spreadsheets, "_MOST_ROWS", 3)
    sheet(tmp_path / "a.xlsx", ["x"], [["a"], ["b"]])
    with pytest.raises(RequestError, match="at most 3 rows"):
        sheet(tmp_path / "a.xlsx", ["x"], [["a"], ["b"], ["c"]])
