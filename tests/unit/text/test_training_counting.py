from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.text.training import count_characters, count_words, most_frequent, repeated, restricted

WORDS = st.dictionaries(st.text("abcd", min_size=1, max_size=5), st.integers(1, 250), max_size=8).map(Counter)


@given(st.lists(st.text("ab ", max_size=12)))
def test_all_words_are_counted_while_they_fit(lines):
    assert count_words(lines, str.split) == Counter(" ".join(lines).split())


def test_the_stream_is_read_once_and_memory_is_bounded():
    held = []

    def cut(line):
        held.append(len(held))
        return line.split()

    lines = (f"often word{i}" for i in range(1000))
    counts = count_words(lines, cut, max_words=10)
    assert counts["often"] == 1000
    assert len(counts) <= 10
    assert len(held) == 1000


def test_the_rarest_words_are_dropped_first():
    lines = ["a a a", "b b", "c", "d"]
    assert count_words(lines, str.split, max_words=3) == Counter(a=3, b=2)


@settings(max_examples=50)
@given(WORDS)
def test_characters_weigh_as_much_as_their_words(words):
    expected = Counter("".join(word * n for word, n in words.items()))
    assert count_characters(words) == expected


def test_most_frequent_breaks_ties_by_code_point():
    counts = Counter(z=3, b=2, a=2, q=1)
    assert most_frequent(counts, None, 1) == ["z", "a", "b", "q"]
    assert most_frequent(counts, 2, 1) == ["z", "a"]
    assert most_frequent(counts, None, 2) == ["z", "a", "b"]


def test_words_are_cut_at_letters_outside_the_alphabet():
    words = Counter({"abcab": 2, "ab": 3, "xx": 5})
    counts = restricted(words, "ab")
    del counts[""]
    assert counts == Counter({"ab": 2 + 2 + 3})


@settings(max_examples=50)
@given(WORDS)
def test_repetition_restores_the_counts(words):
    assert Counter(word for chunk in repeated(words, 100) for word in chunk) == words
