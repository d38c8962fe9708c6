"""Names that look alike: equal if only their Unicode form or ends differ, or shown with the difference."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import nearest
from heedful.identifiers import difference, found_in, identifier, in_order, positions_of, similar_form

FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@given(name=st.text(), form=st.sampled_from(["NFC", "NFD"]))
def test_the_form_and_the_ends_of_a_name_do_not_matter(name, form):
    expected = identifier(name)
    assert identifier(f" \u00a0{unicodedata.normalize(form, name)}\ufeff\t") == expected
    assert identifier(expected) == expected


@given(one=st.text(), other=st.text())
def test_only_names_that_look_alike_have_a_difference(one, other):
    assert bool(difference(one, other)) <= (similar_form(one) == similar_form(other))


@given(name=st.text(min_size=1), form=st.sampled_from(FORMS))
def test_names_that_look_alike_are_never_shown_without_their_difference(name, form):
    other = unicodedata.normalize(form, name)
    if other != name and other.casefold().strip() != name.casefold().strip():
        assert ", which differs in " in nearest(name, [other])


def test_an_equal_name_comes_before_one_that_compares_so():
    names = ["cafe\u0301", "café", "tea", "tea "]
    assert positions_of("café", names) == [1]
    assert positions_of(" café", names) == [0, 1]
    assert found_in("café", names) == "café"
    assert found_in(" café", names) is None  # which one?
    assert found_in(" tea\ufeff", names[:3]) == "tea"
    assert found_in("milk", names) is None


@pytest.mark.parametrize(
    ("name", "other", "hint"),
    [
        ("cafe\u0301s", "cafés", " (did you mean 'cafés', which differs in Unicode form (NFD, NFC)?)"),
        ("a b", "a\u00a0b", " (did you mean 'a\\xa0b', which differs in white space?)"),
        ("Text", "text", " (did you mean 'text'?)"),
        ("txet", "text", " (did you mean 'text'?)"),
        ("раss", "pass", " (did you mean 'pass', which differs in U+0440 (CYRILLIC SMALL LETTER ER)?)"),
    ],
)
def test_the_nearest_name(name, other, hint):
    assert nearest(name, [other]) == hint


def test_names_in_order():
    assert in_order(["10", "9", "1e1", "-2"]) == ["-2", "9", "10", "1e1"]
    assert in_order(["b10", "b9"]) == ["b10", "b9"]
