"""Quoted fields: blanks around them do not count, and tables without such blanks are read as before."""

import csv
import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.lines import Location
from heedful.data.quoted import quoted_records

FIELDS = st.text('a", ;', max_size=6)
"""Texts of what could be mistaken for the end or the padding of a field."""

SEPARATORS = st.sampled_from(",;\t| ")


def read(text: str, separator: str = ",") -> list[list[str]]:
    located = ((Location("t.csv", number), line) for number, line in enumerate(text.splitlines(), 1))
    return [record for _, record in quoted_records(located, "t.csv", separator)]


@given(st.lists(st.tuples(FIELDS, FIELDS), min_size=1), SEPARATORS.filter(str.strip), st.data())
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


def test_a_record_of_several_lines_is_located_by_its_first():
    lines = ['"a', ' b", "c"', '"d" , ""']
    located = zip(map(Location, itertools.repeat("t"), itertools.count(1)), lines, strict=False)
    assert [*quoted_records(located, "t", ",")] == [
        (Location("t", 1), ["a\n b", "c"]),
        (Location("t", 3), ["d", ""]),
    ]
