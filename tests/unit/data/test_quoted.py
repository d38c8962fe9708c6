"""Quoted fields: blanks around them do not count, and tables without such blanks are read as before."""

import csv
import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.lines import Location
from heedful.data.quoted import quoted_records
from heedful.errors import DataError

FIELDS = st.text('a", ;', max_size=6)
"""Texts of what could be mistaken for the end or the padding of a field."""

SEPARATORS = st.sampled_from(",;\t| ")


def read(text: str, separator: str = ",") -> list[list[str]]:
    located = (
        (Location("t.csv", number), line)
        for number, line in enumerate(text.removesuffix("\n").split("\n"), 1)
    )
    return [record for _, record in quoted_records(located, "t.csv", separator)]


FIELDS_OF_LINES = st.text('a", ;\n', max_size=8)


@given(st.lists(st.tuples(FIELDS_OF_LINES, FIELDS), min_size=1), SEPARATORS.filter(str.strip), st.data())
def test_blanks_around_quoted_fields_do_not_count(rows, separator, data):
    blanks = st.integers(0, 2).map(" ".__mul__)
    lines = (
        separator.join(
            f'{data.draw(blanks)}"{field.replace(chr(34), 2 * chr(34))}"{data.draw(blanks)}' for field in row
        )
        for row in rows
    )
    assert read("\n".join(lines), separator) == [[*row] for row in rows]


@given(
    st.lists(st.lists(st.text('a", ;\n', max_size=8), min_size=2, max_size=3), min_size=1),
    SEPARATORS,
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_what_programs_write_is_read_back(rows, separator, quoting):
    written = io.StringIO()
    csv.writer(written, delimiter=separator, quoting=quoting, lineterminator="\n").writerows(rows)
    assert read(written.getvalue(), separator) == rows


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ('pos, "a", b', ["pos", "a", " b"]),
        (' a , "b, c" ', [" a ", "b, c"]),
        ('pos, "Oh" he said', ["pos", ' "Oh" he said']),  # quotes of a text: the field goes on after them
        ('pos, he said "Oh"', ["pos", ' he said "Oh"']),
        ('5" disk, 3" disk', ['5" disk', ' 3" disk']),
        ('pos, "', ["pos", ' "']),
    ],
)
def test_other_blanks_and_quotes_are_text(line, fields):
    assert read(line) == [fields]


@pytest.mark.parametrize(
    ("text", "records"),
    [
        ('x, "a\n b" , c', [["x", "a\n b", " c"]]),
        ('x, "a\ny, b', [["x", ' "a'], ["y", " b"]]),  # no quote follows
        ('x, "a\ny, "b" c', [["x", ' "a'], ["y", ' "b" c']]),  # it ends no field
        ('x, "a\ny, 5" b\nz, "c"', [["x", ' "a'], ["y", ' 5" b'], ["z", "c"]]),
        ('x, "a ""b""\nc"\ny, d', [["x", 'a "b"\nc'], ["y", " d"]]),
    ],
)
def test_a_quote_after_a_blank_begins_a_field_of_several_lines_if_one_ends_it(text, records):
    assert read(text) == records


def test_the_end_of_a_field_is_searched_in_a_bounded_number_of_lines():
    read_lines = []

    def lines():
        for number in range(5000):
            read_lines.append(number)
            yield Location("t", number), 'x, "a' if number == 0 else "y, b"

    records = quoted_records(lines(), "t", ",")
    assert next(records)[1] == ["x", ' "a']
    assert len(read_lines) < 2000


def test_an_error_in_a_line_is_raised_in_its_place():
    def lines():
        yield Location("t", 1), 'x, "a'
        raise DataError("t:2: not UTF-8")

    records = quoted_records(lines(), "t", ",")
    assert next(records)[1] == ["x", ' "a']
    with pytest.raises(DataError, match="t:2: not UTF-8"):
        next(records)


def test_a_record_of_several_lines_is_located_by_its_first():
    lines = ['"a', ' b", "c"', '"d" , ""']
    located = zip(map(Location, itertools.repeat("t"), itertools.count(1)), lines, strict=False)
    assert [*quoted_records(located, "t", ",")] == [
        (Location("t", 1), ["a\n b", "c"]),
        (Location("t", 3), ["d", ""]),
    ]
