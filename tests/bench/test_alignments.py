"""Training texts of the benchmark of alignments."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from alignments import CORPORA, groups, joined, lengthen

WORDS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4)


@st.composite
def pairs(draw):
    source, target = draw(WORDS), draw(WORDS)
    places = st.tuples(st.integers(0, len(source) - 1), st.integers(0, len(target) - 1))
    return " ".join(source), " ".join(target), draw(st.frozensets(places))


@given(st.lists(pairs(), min_size=1, max_size=5))
def test_links_of_joined_pairs_join_the_same_words(given):
    source, target, links = joined(given)
    assert source == " ".join(pair[0] for pair in given)
    assert target == " ".join(pair[1] for pair in given)
    # Made unlike any other by the number of its pair and its place there, a word is found again.
    named = [
        (
            " ".join(f"{word}/{n}/{i}" for i, word in enumerate(s.split())),
            " ".join(f"{word}/{n}/{j}" for j, word in enumerate(t.split())),
            own,
        )
        for n, (s, t, own) in enumerate(given)
    ]
    there = joined(named)
    assert there[2] == links
    linked = {(there[0].split()[i], there[1].split()[j]) for i, j in links}
    assert linked == {(s.split()[i], t.split()[j]) for s, t, own in named for i, j in own}


@given(st.integers(1, 200))
def test_every_pair_is_in_one_group(n):
    found = list(groups(n))
    assert sorted(number for group in found for number in group) == list(range(n))
    assert all(2 <= len(group) <= 5 for group in found[:-1])


def test_texts_and_links_stay_beside_each_other(tmp_path: Path):
    corpus = CORPORA[0]
    for language in (corpus.source, corpus.target):
        (tmp_path / f"train.{language}").write_text("one two\nthree\nfour\n")
    lengthen(corpus, tmp_path, [frozenset({(0, 0), (1, 1)}), frozenset({(0, 0)}), frozenset()])
    source, target, links = (
        (tmp_path / f"train.{end}").read_text().splitlines()
        for end in (corpus.source, corpus.target, "links")
    )
    assert source == target
    assert len(source) == len(links) > 3
    assert (source[:3], links[:3]) == (["one two", "three", "four"], ["0-0 1-1", "0-0", ""])
    for text, own in zip(source, links, strict=True):
        words = text.split()
        linked = {words[int(link.split("-")[0])] for link in own.split()}
        assert linked == set(words) - {"four"}
        assert all(link.split("-")[0] == link.split("-")[1] for link in own.split())
