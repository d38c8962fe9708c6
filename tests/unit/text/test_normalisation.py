import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import RequestError
from heedful.text.normalisation import Preprocessing, moses, tokenise_for_bleu

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
def test_nothing_is_changed_unless_asked(text):
    plain = Preprocessing()
    assert plain.is_faithful
    assert plain.apply(text) == text
    assert plain.undo(text) == text


@given(TEXT)
@pytest.mark.parametrize("form", ["nfc", "nfkc"])
def test_the_result_is_normalised_even_after_lowering_case(form, text):
    for lowercase in (False, True):
        assert unicodedata.is_normalized(
            form.upper(), Preprocessing(lowercase=lowercase, normalization=form).apply(text)
        )


def test_forms_by_hand():
    assert Preprocessing(normalization="nfc").apply("e\u0301 ﬁ") == "é ﬁ"
    assert Preprocessing(normalization="nfkc").apply("e\u0301 ﬁ") == "é fi"
    assert Preprocessing(lowercase=True).apply("İSTANBUL ΟΔΟΣ ẞ") == "i̇stanbul οδος ß"


@pytest.mark.parametrize("changes", [{"lowercase": True}, {"moses": "de"}, {"normalization": "nfc"}])
def test_whatever_changes_text_is_not_faithful(changes):
    assert not Preprocessing(**changes).is_faithful


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
    prepared = Preprocessing(moses=language)
    assert prepared.apply(natural) == tokens
    assert prepared.undo(tokens) == natural


def test_moses_normalises_punctuation():
    assert Preprocessing(moses="de").apply("Er sagt: „Ja“ – nein…") == 'Er sagt : " Ja " - nein ...'


def test_empty_text_stays_empty():
    prepared = Preprocessing(lowercase=True, moses="en", normalization="nfkc")
    assert prepared.apply("") == prepared.undo("") == ""
    assert prepared.apply(" \n\t ") == ""


@given(TEXT)
def test_moses_gives_single_spaced_tokens_for_any_text(text):
    tokens = Preprocessing(moses="en").apply(text)
    assert tokens == " ".join(tokens.split())
    Preprocessing(moses="en").undo(tokens)


def test_case_is_lowered_before_tokenising():
    # "Dr." is an abbreviation that Moses knows; "dr." is not.
    assert Preprocessing(moses="de").apply("Dr. Müller") == "Dr. Müller"
    assert Preprocessing(lowercase=True, moses="de").apply("Dr. Müller") == "dr. müller"
    assert Preprocessing(lowercase=True, moses="de").apply("Der Dr. Ä") == "der dr. ä"


def test_hyphens_are_split_only_on_request():
    assert tokenise_for_bleu("Ein T-Shirt.", "de") == "ein t-shirt ."
    assert tokenise_for_bleu("Ein T-Shirt.", "de", aggressive_hyphens=True) == "ein t @-@ shirt ."
    assert tokenise_for_bleu("Ein T-Shirt.", "de", lowercase=False) == "Ein T-Shirt ."
    assert Preprocessing(moses="de").undo("ein t @-@ shirt .") == "ein t-shirt."


def test_the_heavy_objects_are_made_once():
    assert moses("de") is moses("de")


def test_an_unknown_language_is_refused_by_name():
    with pytest.raises(RequestError, match=r"moses.*'xx'.*de"):
        Preprocessing(moses="xx").apply("a")


@settings(max_examples=25)
@given(st.lists(st.sampled_from(SIGNS), max_size=9))
@pytest.mark.parametrize("language", ["cs", "de", "en", "fi", "fr", "ga", "it", "ko", None])
def test_what_is_certain_of_a_text_stays_however_it_goes_on(language, tokens):
    prepared = Preprocessing(moses=language)
    text = " ".join(tokens)
    whole = prepared.undo(text)
    found = [prepared.certain(text[:n]) for n in range(len(text) + 1)]
    assert all(whole.startswith(each) for each in found)
    assert [len(each) for each in found] == sorted(len(each) for each in found)


def test_how_much_is_certain_by_hand():
    assert Preprocessing().certain("ein t") == "ein t"
    german, czech = Preprocessing(moses="de"), Preprocessing(moses="cs")
    texts = ["", "ein", "ein t", "ein t @-", "ein t @-@ shirt", "ein t @-@ shirt .", "( ein t"]
    assert [german.certain(text) for text in texts] == ["", "", "ein", "ein", "ein", "ein t-shirt", "(ein"]
    # Where a text ends in "1 .", every number is joined to what stands before it.
    assert czech.undo("na 2 a 3 1 .") != czech.undo("na 2 a 3 1 . a")[: len(czech.undo("na 2 a 3 1 ."))]
    assert czech.certain("na 2 a 3") == ""
