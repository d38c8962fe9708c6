"""ROUGE against counts by hand."""

import pytest

from heedful.errors import RequestError
from heedful.tasks.metrics.summarisation import rouge_scores, sentence_rouge

HYPOTHESIS = "the cat sat on a mat"
REFERENCE = "a cat was on the mat"


def f1(common, hypothesis, reference):
    precision, recall = common / hypothesis, common / reference
    return 100 * 2 * precision * recall / (precision + recall)


def test_n_grams_and_the_longest_common_subsequence_are_counted():
    (row,) = sentence_rouge([HYPOTHESIS], [REFERENCE])
    # the, cat, on, a, mat; no pair of neighbours but none; cat .. on .. mat
    assert row == pytest.approx({"ROUGE-1": f1(5, 6, 6), "ROUGE-2": 0.0, "ROUGE-L": f1(3, 6, 6)})


def test_repeated_words_count_as_often_as_both_have_them():
    (row,) = sentence_rouge(["the the the"], ["the cat the"])
    assert row["ROUGE-1"] == pytest.approx(f1(2, 3, 3))


def test_the_score_of_a_corpus_is_the_mean():
    texts = [HYPOTHESIS, "one two"], [REFERENCE, "one three two"]
    each, whole = sentence_rouge(*texts), rouge_scores(*texts)
    for name, score in whole.items():
        assert score.value == pytest.approx((each[0][name] + each[1][name]) / 2)
        assert score.counts == {"sentences": 2}
        assert score.signature.startswith("refs:1|tok:unicode|stem:porter|agg:mean|version:")


def test_of_several_references_the_nearest_counts():
    (row,) = sentence_rouge(["one two"], [["three", "one two", "one"]])
    assert row == pytest.approx({"ROUGE-1": 100.0, "ROUGE-2": 100.0, "ROUGE-L": 100.0})


def test_stems_agree_where_words_do_not():
    texts = ["they were walking"], ["they walked"]
    stemmed, plain = (rouge_scores(*texts, stem=stem)["ROUGE-1"] for stem in (True, False))
    assert (stemmed.value, plain.value) == pytest.approx((f1(2, 3, 2), f1(1, 3, 2)))
    assert stemmed.signature != plain.signature


@pytest.mark.parametrize("word, cut", [("was", "wa"), ("résumés", "résumé")])
def test_short_words_and_those_of_other_letters_have_no_stems(word, cut):
    """As in the package; the stemmer itself would cut both."""
    assert set(sentence_rouge([word], [cut])[0].values()) == {0.0}


def test_an_empty_summary_scores_nothing():
    assert set(sentence_rouge([""], ["one"])[0].values()) == {0.0}


@pytest.mark.parametrize("texts", [([], []), (["a"], []), (["a"], [[]])])
def test_what_cannot_be_scored_is_refused(texts):
    with pytest.raises(RequestError):
        rouge_scores(*texts)


# Other scripts --------------------------------------------------------------------------------------------

SCRIPTS = [
    "Кошка сидит на окне",
    "猫が窓辺に座っている。",
    "แมวนั่งอยู่บนหน้าต่าง",
    "बिल्ली खिड़की पर बैठी है",
    "பூனை ஜன்னலில் அமர்ந்திருக்கிறது",
    "Größe und Übermut",
]


@pytest.mark.parametrize("text", SCRIPTS)
def test_a_perfect_summary_scores_100_in_every_script(text):
    assert set(sentence_rouge([text], [text])[0].values()) == {100.0}


def test_words_with_umlauts_are_not_cut():
    # The package's tokenizer reads both as "gr e".
    (own,) = sentence_rouge(["Größe"], ["Grüße"])
    (package,) = sentence_rouge(["Größe"], ["Grüße"], tokenizer="rouge-score")
    assert (own["ROUGE-1"], package["ROUGE-1"]) == (0.0, 100.0)


def test_characters_are_compared_in_scripts_without_spaces():
    (row,) = sentence_rouge(["猫がいる"], ["犬がいる。"])
    assert row["ROUGE-1"] == pytest.approx(f1(3, 4, 4))
    assert row["ROUGE-2"] == pytest.approx(f1(2, 3, 3))


@pytest.mark.parametrize("stem", [True, False])
def test_both_tokenizers_score_ascii_texts_alike(stem):
    texts = ["They were walking_to the shops' 3.5 km"], ["he walked to the shop, running 3 km"]
    own, package = (rouge_scores(*texts, stem=stem, tokenizer=t) for t in ("unicode", "rouge-score"))
    assert [s.value for s in own.values()] == [s.value for s in package.values()]
    assert "|tok:unicode|" in own["ROUGE-1"].signature
    # As it was written before there was a choice: scores stay comparable with those.
    assert package["ROUGE-1"].signature.startswith(f"refs:1|stem:{'porter' if stem else 'no'}|agg:mean|")
