"""Words of many scripts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.tasks.metrics.words import words


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Über die Brücke, schnell!", ["über", "die", "brücke", "schnell"]),
        ("Über", ["über"]),  # u and a combining mark
        ("Кошка сидит.", ["кошка", "сидит"]),
        ("हिन्दी में", ["हिन्दी", "में"]),  # vowel signs are combining marks
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("می‌خواهم", ["می‌خواهم"]),  # a joiner within a word
        ("한국어 문장", ["한국어", "문장"]),
        ("日本語です。", ["日", "本", "語", "で", "す"]),
        ("ラーメン2杯", ["ラ", "ー", "メ", "ン", "2", "杯"]),
        ("１２ ＡＢ", ["12", "ab"]),
        ("ที่นี่", ["ที่", "นี่"]),  # tone marks stay with their consonant
        ("བོད་ཡིག", ["བོད", "ཡིག"]),  # a mark separates syllables
        ("don't stop_now 3.5", ["don", "t", "stop", "now", "3", "5"]),
        ("", []),
        ("。、!", []),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


@given(st.text(st.characters(max_codepoint=127)))
def test_words_of_ascii_texts_are_those_of_rouge_score(text):
    from rouge_score.tokenize import tokenize

    assert words(text) == tokenize(text, None)


@given(st.text())
def test_every_letter_and_digit_is_in_a_word(text):
    import unicodedata

    normal = unicodedata.normalize("NFKC", text).lower()
    kept = [c for c in normal if unicodedata.category(c)[0] in "LN"]
    assert [c for word in words(text) for c in word if unicodedata.category(c)[0] in "LN"] == kept
