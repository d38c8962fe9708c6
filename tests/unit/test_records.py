"""Small files of runs: a reader returns a value of its schema, or names what does not fit."""

import json
from typing import Literal

import pytest

from heedful.errors import DamagedError
from heedful.files import stamped
from heedful.records import Count, Digest, Record, StampedRecord, parse_strictly, read_record


class Inner(Record):
    names: list[str]


class Example(Record):
    n: Count
    rate: float | None = None
    inner: Inner | None = None
    reason: Literal["data", "signal"] | Literal["failed"] | int = 0


class Stamped(StampedRecord):
    sha256: Digest
    n: int


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"n": 3}', {"n": 3}),
        ('{"n": 0, "rate": 2, "inner": {"names": ["a", "ü"]}}', {"n": 0, "rate": 2.0}),
        ('{"n": 9223372036854775807, "rate": 1e308}', {"n": 2**63 - 1, "rate": 1e308}),
    ],
)
def test_what_fits_the_schema_is_read(tmp_path, text, value):
    (tmp_path / "a.json").write_text(text, "utf-8")
    record = read_record(tmp_path / "a.json", Example)
    assert {key: getattr(record, key) for key in value} == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expecting value"),
        ("3", "expected a valid dictionary"),
        ("null", "expected a valid dictionary"),
        ("{}", "n: missing"),
        ('{"n": 3', "Expecting"),
        ('{"n": 3}{}', "Extra data"),
        ('{"n": 3, "n": 4}', "the key 'n' occurs twice"),
        ('{"n": 3, "m": 4}', "m: unknown key"),
        ('{"n": "3"}', "n: expected a valid integer, got '3'"),
        ('{"n": true}', "n: expected a valid integer, got true"),
        ('{"n": 3.0}', "n: expected a valid integer, got 3.0"),
        ('{"n": -1}', "n: expected greater than or equal to 0, got -1"),
        ('{"n": 9223372036854775808}', "a whole number of at most 64 bits, got '9223372036854775808'"),
        ('{"n": %s}' % ("9" * 5000), "expected a whole number of at most 64 bits, got '9"),
        ('{"n": 3, "rate": NaN}', "expected a finite number, got 'NaN'"),
        ('{"n": 3, "rate": 1e999}', "expected a finite number, got '1e999'"),
        ('{"n": 3, "inner": {"names": [1]}}', "inner.names[0]: expected a valid string, got 1"),
        ('{"n": 3, "reason": [1]}', "damaged: reason: expected 'data' or 'signal', got list; "),
        ('{"n": 3, "inner": []}', "inner: expected a valid dictionary"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(tmp_path, text, problem):
    path = tmp_path / "a.json"
    path.write_text(text, "utf-8")
    with pytest.raises(DamagedError) as raised:
        read_record(path, Example, "delete it")
    message = str(raised.value)
    assert message.startswith(f"{path}: damaged: ")
    assert problem in message
    assert message.endswith("; delete it")
    assert len(message) < len(str(path)) + 250


def test_bytes_that_are_no_text_are_named(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{\n"n": 3, "\xff": 1}')
    with pytest.raises(DamagedError, match=r"a\.json: damaged: line 2 is not UTF-8"):
        read_record(tmp_path / "a.json", Example)


@pytest.mark.parametrize(
    "change", [{"n": 4}, {"sha256": "0" * 64}, {"sha256": None}, {"sha256": 3}, {"m": 1}]
)
def test_a_stamp_covers_every_entry(tmp_path, change):
    path, record = tmp_path / "a.json", stamped({"n": 3})
    path.write_text(json.dumps(record), "utf-8")
    assert read_record(path, Stamped).n == 3
    path.write_text(json.dumps({**record, **change}), "utf-8")
    with pytest.raises(DamagedError, match="does not match its SHA-256"):
        read_record(path, Stamped)


def test_a_stamp_that_is_missing_is_named(tmp_path):
    (tmp_path / "a.json").write_text('{"n": 3}', "utf-8")
    with pytest.raises(DamagedError, match="sha256: missing"):
        read_record(tmp_path / "a.json", Stamped)


def test_numbers_of_any_length_take_no_time():
    with pytest.raises(ValueError, match="64 bits"):
        parse_strictly("1" * 4_000)
