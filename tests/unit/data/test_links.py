"""Links as text: what they say, and what is wrong with those that say nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.links import Links, check_links, read_links
from heedful.errors import DataError

links = st.frozensets(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=7)


@given(links, links, st.sampled_from("p?"), st.integers(0, 1))
def test_written_links_are_read_back(sure, possible, sign, first):
    text = " ".join(f"{i + first}-{j + first}" for i, j in sure)
    text += " " + "  ".join(f"{i + first}{sign}{j + first}" for i, j in possible)
    assert read_links(text, "x", first) == Links(sure, possible)


@pytest.mark.parametrize("word", ["1", "1-", "-1", "1--1", "1-2-3", "a-b", "1p", "1s2", "1,2"])
def test_a_malformed_link_is_named_with_its_location(word):
    with pytest.raises(DataError, match="gold:7: ") as caught:
        read_links(f"0-0 {word}", "gold:7")
    assert repr(word) in str(caught.value)


@given(links, st.integers(1, 9), st.integers(1, 9))
def test_links_outside_of_the_pair_are_refused_and_no_others(found, n_source, n_target):
    outside = [link for link in found if link[0] >= n_source or link[1] >= n_target]
    for each in (Links(found, frozenset()), Links(frozenset(), found)):
        if not outside:
            check_links(each, n_source, n_target, "x")
            continue
        with pytest.raises(DataError) as caught:
            check_links(each, n_source, n_target, "x")
        i, j = min(outside)
        assert f"x: link {i}-{j} is outside" in str(caught.value)
        assert f"{n_source} source and {n_target} target words" in str(caught.value)


def test_a_message_counts_as_the_file_does():
    with pytest.raises(DataError, match=r"link 4-1 is outside .* counted from 1"):
        check_links(read_links("4-1", "x", 1), 3, 3, "x", first=1)
