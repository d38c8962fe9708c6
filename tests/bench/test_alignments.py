"""Training texts of the benchmark of alignments."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from alignments import CORPORA, add_joined_pairs, groups, join_pairs

WORDS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4)


@st.composite
def pairs(draw):
    source, target = draw(WORDS), draw(WORDS)
    places = st.tuples(st.integers(0, len(source) - 1), st.integers(0, len(target) - 1))
    return " ".join(source), " ".join(target), draw(st.frozensets(places))


@given(st.lists(pairs(), min_size=1, max_size=5))
def test_links_of_joined_pairs_join_the_same_words(sample):
    source, target, links = join_pairs(sample)
    assert source == " ".join(pair[0] for pair in sample)
    assert target == " ".join(pair[1] for pair in sample)
    # Made unlike any other by the number of its pair and its place there, a word is found again.
    unique_pairs = [
        (
            " ".join(f"{word}/{n}/{i}" for i, word in enumerate(s.split())),
            " ".join(f"{word}/{n}/{j}" for j, word in enumerate(t.split())),
            pair_links,
        )
        for n, (s, t, pair_links) in enumerate(sample)
    ]
    unique_joined = join_pairs(unique_pairs)
    assert unique_joined[2] == links
    linked = {(unique_joined[0].split()[i], unique_joined[1].split()[j]) for i, j in links}
    assert linked == {
        (s.split()[i], t.split()[j]) for s, t, pair_links in unique_pairs for i, j in pair_links
    }


@given(st.integers(1, 200))
def test_every_pair_is_in_one_group(n):
    partition = list(groups(n))
    assert sorted(number for group in partition for number in group) == list(range(n))
    assert all(2 <= len(group) <= 5 for group in partition[:-1])


def test_texts_and_links_stay_beside_each_other(tmp_path: Path):
    corpus = CORPORA[0]
    for language in (corpus.source, corpus.target):
        (tmp_path / f"train.{language}").write_text("one two\nthree\nfour\n")
    add_joined_pairs(corpus, tmp_path, [frozenset({(0, 0), (1, 1)}), frozenset({(0, 0)}), frozenset()])
    source, target, links = (
        (tmp_path / f"train.{end}").read_text().splitlines()
        for end in (corpus.source, corpus.target, "links")
    )
    assert source == target
    assert len(source) == len(links) > 3
    assert (source[:3], links[:3]) == (["one two", "three", "four"], ["0-0 1-1", "0-0", ""])
    for text, text_links in zip(source, links, strict=True):
        words = text.split()
        linked = {words[int(link.split("-")[0])] for link in text_links.split()}
        assert linked == set(words) - {"four"}
        assert all(link.split("-")[0] == link.split("-")[1] for link in text_links.split())
