import sys
import unicodedata
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sacremoses import MosesTokenizer

import heedful
from heedful.errors import RequestError
from heedful.text import normalisation
from heedful.text.configuration import PreprocessingConfig
from heedful.text.normalisation import _MARKS, moses, normalised, tokenise_for_bleu

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
# What Moses joins in ways of their own, and plain words.
SIGNS = [
    "a",
    "l'",
    "'s",
    "'",
    '"',
    "„",
    "“",
    "(",
    "$",
    ",",
    "%",
    ".",
    ":",
    "EU:",
    "n",
    "1",
    "12",
    "li",
    "ein",
]
SIGNS += ["@-@", "@", "-", "日", "本", "한", "\u00a0"]


@given(TEXT)
def test_nothing_is_changed_by_default(text):
    plain = PreprocessingConfig()
    assert plain.is_faithful
    assert plain.apply(text) == text
    assert plain.undo(text) == text


@given(TEXT)
@pytest.mark.parametrize("form", ["nfc", "nfkc"])
def test_the_result_is_normalised_even_after_lowering_case(form, text):
    for lowercase in (False, True):
        assert unicodedata.is_normalized(
            form.upper(), PreprocessingConfig(lowercase=lowercase, normalization=form).apply(text)
        )


def test_forms_by_hand():
    assert PreprocessingConfig(normalization="nfc").apply("e\u0301 ﬁ") == "é ﬁ"
    assert PreprocessingConfig(normalization="nfkc").apply("e\u0301 ﬁ") == "é fi"
    assert PreprocessingConfig(lowercase=True).apply("İSTANBUL ΟΔΟΣ ẞ") == "i̇stanbul οδος ß"


# Of several classes, some made of others, some with two characters in decomposition, and signs between them.
MARKS = "\u0301\u0316\u0308\u0344\u0f73\u0f81\u0334\u1dfa\u05b0\U0001d165\uff9e\uff9f\u0327\u3099"
BETWEEN = "e\u00e9\u0e33\u00a8か\u1100\u1161 \u2026\u0bc6\u0bbe😀\u1ea5"


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
def test_forms_equal_unicodedata_for_any_runs_of_marks(form, amount):
    draw = Random(3)
    for _ in range(amount(300, 5000)):
        signs = draw.choices(MARKS + BETWEEN, [8] * len(MARKS) + [draw.choice([0, 1])] * len(BETWEEN), k=120)
        text = "".join(signs)
        assert normalised(text, form) == unicodedata.normalize(form.upper(), text)


def test_the_pattern_matches_every_character_that_begins_with_a_mark():
    signs = map(chr, range(sys.maxunicode + 1))
    marks = [s for s in signs if unicodedata.combining(unicodedata.normalize("NFKD", s)[0])]
    assert len(marks) > 900
    assert all(_MARKS.fullmatch(mark * 32) for mark in marks)


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0344\u0316", "\u0301\uff9e"])
def test_nothing_is_left_to_be_ordered_by_insertion(form, marks, monkeypatch):
    """Python's function takes a step for each pair in the wrong order."""
    steps = []

    def normalize(name, text):
        if len(text) > 1:
            decomposed = "".join(unicodedata.normalize(name.replace("C", "D"), sign) for sign in text)
            steps.append(_inversions(map(unicodedata.combining, decomposed)))
        return unicodedata.normalize(name, text)

    monkeypatch.setattr(normalisation, "unicodedata", _Counting(normalize))
    text = "\u00e9" + marks * 200 + "e" + marks * 10
    assert normalised(text, form) == unicodedata.normalize(form.upper(), text)
    assert sum(steps) < 2 * len(text)


def test_no_other_module_normalises_text():
    """Python's function alone would take minutes for a long run of marks."""
    sources = Path(heedful.__file__).parent.rglob("*.py")
    users = [path.name for path in sources if "unicodedata.normalize(" in path.read_text("utf-8")]
    # Identifiers are short: longer names are compared as they are; names of pages are cut before.
    assert {*users} == {"explain_many.py", "identifiers.py", "normalisation.py"}


class _Counting:
    combining = staticmethod(unicodedata.combining)
    is_normalized = staticmethod(unicodedata.is_normalized)

    def __init__(self, normalize):
        self.normalize = normalize


def _inversions(classes):
    """Pairs in the wrong order, between characters of class 0."""
    n, before = 0, []
    for number in classes:
        n += sum(other > number for other in before) if number else 0
        before = [*before, number] if number else []
    return n


@pytest.mark.parametrize("changes", [{"lowercase": True}, {"moses": "de"}, {"normalization": "nfc"}])
def test_whatever_changes_text_is_not_faithful(changes):
    assert not PreprocessingConfig(**changes).is_faithful
    assert PreprocessingConfig(**changes).keeps_composed_text == ("normalization" in changes)


@pytest.mark.parametrize(
    "language, natural, tokens",
    [
        ("de", "Zwei Männer, z.B. Köche, kochen.", "Zwei Männer , z.B. Köche , kochen ."),
        (
            "de",
            "Das kostet 3,50 Euro (am Dr. Müller-Platz)!",
            "Das kostet 3,50 Euro ( am Dr. Müller-Platz ) !",
        ),
        ("de", 'Sie ruft: "Komm her!"', 'Sie ruft : " Komm her ! "'),
        ("en", "The dog's owner doesn't run.", "The dog 's owner doesn 't run ."),
        ("en", "Mr. Smith & Sons [in 1,200]?", "Mr. Smith & Sons [ in 1,200 ] ?"),
        ("fr", "L'homme d'hier", "L' homme d' hier"),
    ],
)
def test_moses_tokens_and_natural_text_again(language, natural, tokens):
    prepared = PreprocessingConfig(moses=language)
    assert prepared.apply(natural) == tokens
    assert prepared.undo(tokens) == natural


@given(st.text(st.sampled_from("aB. 1äÉßπЖ日,'-"), max_size=40))
def test_moses_is_that_of_sacremoses(text):
    """Its check for lowercase letters is replaced, because it builds a large set each time."""
    own, original = moses("en").tokenizer, MosesTokenizer("en")
    for aggressive in (False, True):
        expected = original.tokenize(text, aggressive, escape=False)
        assert own.tokenize(text, aggressive, escape=False) == expected


def test_moses_normalises_punctuation():
    assert PreprocessingConfig(moses="de").apply("Er sagt: „Ja“ – nein…") == 'Er sagt : " Ja " - nein ...'


def test_empty_text_stays_empty():
    prepared = PreprocessingConfig(lowercase=True, moses="en", normalization="nfkc")
    assert prepared.apply("") == prepared.undo("") == ""
    assert prepared.apply(" \n\t ") == ""


@given(TEXT)
def test_moses_gives_single_spaced_tokens_for_any_text(text):
    tokens = PreprocessingConfig(moses="en").apply(text)
    assert tokens == " ".join(tokens.split())
    PreprocessingConfig(moses="en").undo(tokens)


def test_case_is_lowered_before_tokenising():
    # "Dr." is an abbreviation that Moses knows; "dr." is not.
    assert PreprocessingConfig(moses="de").apply("Dr. Müller") == "Dr. Müller"
    assert PreprocessingConfig(lowercase=True, moses="de").apply("Dr. Müller") == "dr. müller"
    assert PreprocessingConfig(lowercase=True, moses="de").apply("Der Dr. Ä") == "der dr. ä"


def test_hyphens_are_split_only_on_request():
    assert tokenise_for_bleu("Ein T-Shirt.", "de") == "ein t-shirt ."
    assert tokenise_for_bleu("Ein T-Shirt.", "de", aggressive_hyphens=True) == "ein t @-@ shirt ."
    assert tokenise_for_bleu("Ein T-Shirt.", "de", lowercase=False) == "Ein T-Shirt ."
    assert PreprocessingConfig(moses="de").undo("ein t @-@ shirt .") == "ein t-shirt."


def test_the_heavy_objects_are_made_once():
    assert moses("de") is moses("de")


def test_an_unknown_language_is_refused_by_name():
    with pytest.raises(RequestError, match=r"Moses.*'xx'.*de"):
        moses("xx")


@settings(max_examples=25)
@given(st.lists(st.sampled_from(SIGNS), max_size=9))
@pytest.mark.parametrize("language", ["cs", "de", "en", "fi", "fr", "ga", "it", "ko", None])
def test_the_certain_prefix_does_not_depend_on_what_follows(language, tokens):
    prepared = PreprocessingConfig(moses=language)
    text = " ".join(tokens)
    whole = prepared.undo(text)
    found = [prepared.stable_prefix(text[:n]) for n in range(len(text) + 1)]
    assert all(whole.startswith(each) for each in found)
    assert [len(each) for each in found] == sorted(len(each) for each in found)


def test_the_certain_prefix_by_hand():
    assert PreprocessingConfig().stable_prefix("ein t") == "ein t"
    german, czech = PreprocessingConfig(moses="de"), PreprocessingConfig(moses="cs")
    texts = ["", "ein", "ein t", "ein t @-", "ein t @-@ shirt", "ein t @-@ shirt .", "( ein t"]
    assert [german.stable_prefix(text) for text in texts] == [
        "",
        "",
        "ein",
        "ein",
        "ein",
        "ein t-shirt",
        "(ein",
    ]
    # Where a text ends in "1 .", every number is joined to what stands before it.
    assert czech.undo("na 2 a 3 1 .") != czech.undo("na 2 a 3 1 . a")[: len(czech.undo("na 2 a 3 1 ."))]
    assert czech.stable_prefix("na 2 a 3") == ""


@pytest.mark.parametrize(
    "text, expected",
    [
        ("ISPARTA, IĞDIR ve İstanbul", "ısparta, ığdır ve istanbul"),
        ("I\u0307zmir", "izmir"),  # a letter and a combining dot
        ("ÇİÇEK ÖŞÜ", "çiçek öşü"),
        ("Iı İi", "ıı ii"),
        ("ΟΔΟΣ ẞ", "οδος ß"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("language", ["tr", "az"])
@pytest.mark.parametrize("form", ["none", "nfc"])
def test_lower_case_of_turkish_and_azerbaijani(language, form, text, expected):
    prepared = PreprocessingConfig(lowercase=language, normalization=form)
    assert prepared.apply(text) == expected
    assert prepared.apply(expected) == expected
    assert not prepared.is_faithful
    assert not prepared.keeps_composed_text


def test_other_languages_have_no_rules_of_their_own():
    with pytest.raises(ValidationError, match="lowercase"):
        PreprocessingConfig(lowercase="de")
    assert PreprocessingConfig(lowercase=True).apply("I") == "i"
