"""Scripts without spaces between words, and the words of pieces."""

from itertools import pairwise

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from heedful.text.scripts import (
    NO_WORD,
    has_script_without_spaces,
    language_without_spaces,
    segments,
    words_of_pieces,
)


@pytest.mark.parametrize(
    "text, language",
    [
        ("A plain sentence.", None),
        ("Кошка сидит", None),
        ("한국어 문장", None),
        ("日本語です。", "ja"),
        ("東京都知事選挙のお知らせ", "ja"),
        ("你好世界", "zh"),
        ("我用 Python 写代码和文章", "zh"),
        ("Tokyo (東京) is a city", None),
        ("สวัสดีชาวโลก", "th"),
        ("ສະບາຍດີ", "lo"),
        ("សួស្តី", "km"),
        ("မင်္ဂလာပါ", "my"),
        ("བཀྲ་ཤིས་བདེ་ལེགས།", "bo"),
        ("", None),
    ],
)
def test_language_without_spaces(text, language):
    assert language_without_spaces([text]) == language


SPACED = "Zoë, naïve: сова и ёж. Ελλάδα! שלום عالم हिन्दी தமிழ் 안녕하세요 세계 a·b 👨‍👩‍👧 1,000"


def test_scripts_with_spaces_have_words_between_spaces():
    assert not has_script_without_spaces(SPACED)
    assert segments(SPACED) == SPACED.split()
    assert words_of_pieces([character.encode() for character in SPACED])[0] == SPACED.split()


@pytest.mark.parametrize(
    "text, expected",
    [
        ("猫が Tokyo にいる。", ["猫", "が", "Tokyo", "に", "い", "る", "。"]),
        ("我用Python3写", ["我", "用", "Python3", "写"]),
        ("か\u3099", ["か\u3099"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("หมา 2 ตัว", ["ห", "ม", "า", "2", "ตั", "ว"]),
        ("သည်", ["သ", "ည်"]),
        ("ភាសា", ["ភា", "សា"]),
        ("ພາສາ", ["ພ", "າ", "ສ", "າ"]),
        ("བོད་ཡིག", ["བོ", "ད", "་", "ཡི", "ག"]),
        ("本当？！", ["本", "当", "？", "！"]),
        ("", []),
    ],
)
def test_segments_by_hand(text, expected):
    assert segments(text) == expected


@pytest.mark.parametrize(
    "pieces, words, indices",
    [
        (["猫", "が", "いる", "。"], ["猫", "が", "いる", "。"], [0, 1, 2, 3]),
        (["▁", "To", "kyo", "に", "行く"], ["Tokyo", "に", "行く"], [NO_WORD, 0, 0, 1, 2]),
        (["猫", "▁sat", "s"], ["猫", "sats"], [0, 1, 1]),
        (["か", "\u3099", "き"], ["か\u3099", "き"], [0, 0, 1]),  # a mark does not begin a word
        (["the", "▁do", "g", "s"], ["the", "dogs"], [0, 1, 1, 1]),
        (["猫", "", "犬"], ["猫", "犬"], [0, NO_WORD, 1]),
        ([], [], []),
    ],
)
def test_words_of_pieces_by_hand(pieces, words, indices):
    found = words_of_pieces([piece.replace("▁", " ").encode() for piece in pieces])
    assert found == (words, indices)


def test_bytes_of_a_character_are_one_word():
    assert words_of_pieces([bytes([value]) for value in "猫が".encode()]) == (["猫", "が"], [0] * 3 + [1] * 3)
    assert words_of_pieces([b"\xe7\x8c", b"\xab\xe3", b"\x81\x8c"]) == (["猫が"], [0, 0, 0])
    assert words_of_pieces([b"\xe7", b"a"]) == (["\ufffda"], [0, 0])


TEXT = st.text(st.sampled_from("aé ,3\u3000\n猫がー。ที่\u3099한👧\u200d"), max_size=12)


@given(TEXT, st.lists(st.integers(0, 40), max_size=8))
def test_words_consist_of_whole_pieces_or_whole_characters(text, cuts):
    encoded = text.encode()
    bounds = sorted({0, len(encoded), *(cut for cut in cuts if cut < len(encoded))})
    pieces = [encoded[a:b] for a, b in pairwise(bounds)]
    words, indices = words_of_pieces(pieces)
    assert "".join(words) == "".join(text.split())
    assert [index for index in indices if index != NO_WORD] == sorted(
        index for index in indices if index != NO_WORD
    )
    clusters = [cluster for run in text.split() for cluster in regex.findall(r"\X", run)]
    assert [cluster for word in words for cluster in regex.findall(r"\X", word)] == clusters
    if not has_script_without_spaces(text):
        assert words == text.split()
