"""Files that have another form than their source: what is there instead, and what to write."""

import re

import pytest

from heedful.data.file_hints import listed
from heedful.data.sources import JsonlSource, TsvSource, open_source
from heedful.errors import DataError


def refusal(source, root):
    with pytest.raises(DataError) as refused:
        list(open_source(source, root))
    return str(refused.value)


def table(tmp_path, content, **settings):
    (tmp_path / "a.csv").write_text(content)
    fields = {"paths": "a.csv", "separator": ",", "quotes": True, "header": True, **settings}
    return refusal(TsvSource(**{"columns": {"label": "Category", "text": "Text"}, **fields}), tmp_path)


def lines(tmp_path, content):
    (tmp_path / "a.jsonl").write_text(content)
    return refusal(JsonlSource(paths="a.jsonl", columns={"text": "text"}), tmp_path)


def test_the_names_of_the_header_are_listed(tmp_path):
    assert table(tmp_path, "Topic,Text,Id\nx,y,1\n") == (
        "a.csv:1: the header has no field 'Category'; it has Topic, Text, Id"
    )
    assert listed([str(n) for n in range(22)]).endswith("18, 19 and 2 more")


@pytest.mark.parametrize("first", ["Sport,It was a long match with many goals.,7", "Sport,Goal,3.5"])
def test_a_first_row_in_place_of_a_header(tmp_path, first):
    assert table(tmp_path, f"{first}\n") == (
        "a.csv:1: the header has no field 'Category'; this line looks like a row: if the file has no header, "
        "set `header: false`, and use numbers for the fields (from 0)"
    )


def test_a_separator_inside_a_field_must_be_in_quotes(tmp_path):
    message = table(tmp_path, "Category,Text\nx,one, two\n")
    assert (
        message == "a.csv:2: the header names 2 fields, got 3; a ',' inside a field must be in double quotes"
    )


def test_a_missing_field_is_named(tmp_path):
    assert "field number 1 (from 0), Text, is required" in table(tmp_path, "Category,Text\nx,y\nx\n")


def test_the_fields_of_an_object_are_listed(tmp_path):
    assert lines(tmp_path, '{"review": "x", "stars": 1}\n') == (
        "a.jsonl:1: no field 'text'; there are review, stars"
    )


@pytest.mark.parametrize("content", ['[\n {"text": "x"}\n]\n', '[{"text": "x"}]\n'])
def test_an_array_is_to_be_converted(tmp_path, content):
    assert lines(tmp_path, content).endswith(
        "the file is one JSON array; JSON lines have one object on each line; convert it: "
        "jq -c '.[]' a.jsonl > NEW.jsonl"
    )


def test_a_table_is_no_json_lines(tmp_path):
    message = lines(tmp_path, "label,text\n")
    assert re.match(
        r"a.jsonl:1: not JSON lines, .* for CSV, use kind: csv, or .* name the file .csv$", message
    )


def test_a_raw_control_character_is_named_once(tmp_path):
    assert lines(tmp_path, '{"text": "a\tb"}\n') == (
        "a.jsonl:1: invalid JSON: Invalid control character at column 12"
    )
