"""Messages are short whatever they quote, and keep the place and the remedy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import (
    LONGEST_MESSAGE,
    LONGEST_MESSAGE_LINE,
    LONGEST_QUOTE,
    MOST_MESSAGE_LINES,
    DataError,
    HeedfulError,
    nearest,
    quoted,
    shortened,
)


def test_a_long_text_in_a_message_loses_its_middle_alone():
    message = str(DataError(f"a.tsv:3: unknown label {'z' * 5000!r}; expected one of yes, no"))
    assert message.startswith("a.tsv:3: unknown label 'zzz")
    assert message.endswith("zzz'; expected one of yes, no")
    n_missing = 5000 - message.count("z")
    assert f" … {n_missing:,} more characters … " in message
    assert LONGEST_MESSAGE_LINE - 20 < len(message) <= LONGEST_MESSAGE_LINE


def test_of_many_lines_the_first_and_the_last_are_kept():
    message = str(HeedfulError("\n".join(f"line {n}" for n in range(100))))
    lines = message.split("\n")
    assert len(lines) == MOST_MESSAGE_LINES
    assert lines[0] == "line 0"
    assert lines[-2:] == ["… 61 more lines …", "line 99"]


@given(st.text(st.sampled_from("a \n"), max_size=300).map(lambda text: text * 50))
def test_messages_are_bounded_and_shortened_once(text):
    once = shortened(text)
    assert len(once) <= LONGEST_MESSAGE
    assert shortened(once) == once
    if len(text) <= LONGEST_MESSAGE_LINE and text.count("\n") < MOST_MESSAGE_LINES:
        assert once == text


@pytest.mark.parametrize("value", ["x" * 10**6, ["x" * 10**6], {"a": list(range(10**5))}, 10**4000])
def test_quotes_are_short(value):
    assert len(quoted(value)) <= 2 * LONGEST_QUOTE + 30


def test_short_quotes_are_whole():
    assert quoted("it's") == '"it\'s"'
    assert quoted(3) == "3"


def test_names_are_compared_in_little_time_however_many_and_long_they_are():
    names = [f"{n:07}" for n in range(200_000)]
    assert nearest("000000x", names) != ""
    assert nearest("x" * 10**6, names) == nearest("x", ["x" * 10**6]) == ""
