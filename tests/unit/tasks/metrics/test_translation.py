import math
from collections import Counter
from importlib.util import find_spec
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu import corpus_bleu, corpus_chrf, corpus_ter, sentence_bleu, sentence_chrf

from heedful.errors import RequestError
from heedful.tasks.metrics import translation
from heedful.tasks.metrics.translation import (
    Preparation,
    bleu_tokeniser,
    exact_match,
    quick_scores,
    reference_notes,
    sentence_scores,
    tokenised_bleu,
    translation_scores,
)

HYPOTHESES = [
    "Ein Mann schläft auf einer Bank.",
    "Zwei Hunde laufen durch das Gras!",
    "",
    "Eine Frau in einem roten Kleid singt, während ein Kind zuhört.",
]
FIRST = [
    "Ein Mann schläft auf der Bank.",
    "Zwei Hunde rennen durch das hohe Gras.",
    "Niemand ist da.",
    "Eine Frau in rotem Kleid singt, während ein Kind ihr zuhört.",
]
SECOND = [
    "Auf einer Bank schläft ein Mann.",
    "Zwei Hunde laufen im Gras.",
    "Es ist niemand da.",
    "Eine Frau im roten Kleid singt und ein Kind hört zu.",
]


def test_the_scores_are_sacrebleu_s():
    found = translation_scores(HYPOTHESES, FIRST)
    bleu = corpus_bleu(HYPOTHESES, [FIRST])
    assert found["BLEU"].value == bleu.score
    assert found["BLEU"].details["precisions"] == bleu.precisions
    assert found["BLEU"].details["brevity_penalty"] == bleu.bp
    assert found["BLEU"].details["length_ratio"] == bleu.ratio
    counts = {"sentences": 4, "hypothesis_tokens": bleu.sys_len, "reference_tokens": bleu.ref_len}
    assert found["BLEU"].counts == counts
    assert found["chrF"].value == corpus_chrf(HYPOTHESES, [FIRST]).score
    assert found["TER"].value == corpus_ter(HYPOTHESES, [FIRST]).score
    assert 0 < found["BLEU"].value < 100
    assert 0 < found["chrF"].value < 100


def test_several_references_for_each():
    found = translation_scores(HYPOTHESES, list(zip(FIRST, SECOND, strict=True)))
    assert found["BLEU"].value == corpus_bleu(HYPOTHESES, [FIRST, SECOND]).score
    assert found["chrF"].value == corpus_chrf(HYPOTHESES, [FIRST, SECOND]).score
    assert found["TER"].value == corpus_ter(HYPOTHESES, [FIRST, SECOND]).score
    assert all("nrefs:2" in score.signature for score in found.values())
    assert found["BLEU"].signature != translation_scores(HYPOTHESES, FIRST)["BLEU"].signature


def test_more_references_for_some():
    rows = [[FIRST[0], SECOND[0]], FIRST[1], [FIRST[2]], [FIRST[3], SECOND[3]]]
    found = translation_scores(HYPOTHESES, rows)
    assert "nrefs:var" in found["BLEU"].signature
    # A missing second reference is worth as much as the first one given twice.
    twice = [[row, row] if isinstance(row, str) else [row[0], row[-1]] for row in rows]
    filled = translation_scores(HYPOTHESES, twice)
    assert {name: score.value for name, score in found.items()} == {
        name: pytest.approx(score.value) for name, score in filled.items()
    }
    assert found["BLEU"].value != translation_scores(HYPOTHESES, FIRST)["BLEU"].value


def test_case_shows_in_the_signature_and_forbids_comparing():
    mixed, lower = (translation_scores(HYPOTHESES, FIRST, lowercase=flag) for flag in (False, True))
    for name in ("BLEU", "chrF"):
        assert "case:mixed" in mixed[name].signature
        assert "case:lc" in lower[name].signature
        assert mixed[name].signature != lower[name].signature
    assert lower["BLEU"].value == corpus_bleu(HYPOTHESES, [FIRST], lowercase=True).score


def test_the_language_chooses_the_tokeniser():
    hypotheses, references = ["一个男人在睡觉。"], ["一个男人在长椅上睡觉。"]
    score = translation_scores(hypotheses, references, language="zh")["BLEU"]
    assert "tok:zh" in score.signature
    assert score.value == corpus_bleu(hypotheses, [references], tokenize="zh").score
    assert "tok:13a" in translation_scores(HYPOTHESES, FIRST, language="de")["BLEU"].signature


def test_every_signature_names_the_version():
    for score in (*translation_scores(HYPOTHESES, FIRST).values(), tokenised_bleu(HYPOTHESES, FIRST)):
        assert "|version:" in score.signature


@pytest.mark.parametrize("score", [translation_scores, tokenised_bleu, sentence_scores, quick_scores])
def test_wrong_numbers_of_texts_are_refused(score):
    with pytest.raises(RequestError, match="2 hypotheses but 1 references"):
        score(["a", "b"], ["a"])
    with pytest.raises(RequestError, match="nothing to score"):
        score([], [])
    with pytest.raises(RequestError, match="hypothesis 2 has no reference"):
        score(["a", "b"], [["a"], []])


def test_sentences_by_themselves():
    found = sentence_scores(HYPOTHESES, list(zip(FIRST, SECOND, strict=True)))
    rows = list(zip(HYPOTHESES, FIRST, SECOND, strict=True))
    assert [f["BLEU"] for f in found] == [sentence_bleu(h, [a, b]).score for h, a, b in rows]
    assert [f["chrF"] for f in found] == [sentence_chrf(h, [a, b]).score for h, a, b in rows]


def test_quick_scores_are_the_same_numbers():
    whole = translation_scores(HYPOTHESES, FIRST)
    assert quick_scores(HYPOTHESES, FIRST) == {"bleu": whole["BLEU"].value, "chrf": whole["chrF"].value}


def test_equal_texts_have_no_more_than_all():
    assert translation_scores(FIRST, FIRST)["BLEU"].value == 100.0
    assert tokenised_bleu(FIRST, FIRST).value == 100.0
    assert quick_scores(FIRST, FIRST)["bleu"] == 100.0
    assert all(0 <= each["BLEU"] <= 100 for each in sentence_scores(FIRST, FIRST))


def test_quick_scores_know_the_language():
    texts, references = ["今天天气很好", "你好"], ["今天天气真好", "你好"]
    whole = translation_scores(texts, references, language="zh")
    assert quick_scores(texts, references, language="zh")["bleu"] == whole["BLEU"].value
    assert whole["BLEU"].value != quick_scores(texts, references, language="de")["bleu"]


def ngrams(tokens, n):
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def multi_bleu(hypotheses, references):
    """The definition: clipped precisions over the corpus, no smoothing, closest reference length."""
    c = r = 0
    right, total = [0] * 4, [0] * 4
    for hypothesis, row in zip(hypotheses, references, strict=True):
        tokens, others = hypothesis.split(), [reference.split() for reference in row]
        c += len(tokens)
        r += min((abs(len(o) - len(tokens)), len(o)) for o in others)[1]
        for n in range(1, 5):
            allowed = Counter()
            for o in others:
                allowed |= ngrams(o, n)
            have = ngrams(tokens, n)
            total[n - 1] += sum(have.values())
            right[n - 1] += sum((have & allowed).values())
    if min(right) == 0:
        return 0.0
    penalty = math.exp(1 - r / c) if c < r else 1.0
    return 100 * penalty * math.exp(sum(math.log(a / b) for a, b in zip(right, total, strict=True)) / 4)


sentence = st.lists(st.sampled_from(["a", "b", "c", ".", "&quot;", "@-@"]), max_size=9).map(" ".join)
pairs = st.lists(st.tuples(sentence, st.lists(sentence, min_size=1, max_size=3)), min_size=1, max_size=6)


@given(pairs)
def test_tokenised_bleu_is_the_multi_bleu_formula(rows):
    hypotheses, references = [h for h, _ in rows], [r for _, r in rows]
    expected = multi_bleu(hypotheses, references)
    assert tokenised_bleu(hypotheses, references).value == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_tokenised_bleu_of_a_corpus_by_hand():
    # 5 of 6, 3 of 5, 1 of 4 and no 4-gram: zero, for nothing is smoothed.
    assert tokenised_bleu(["the cat sat on a mat"], ["the cat sat in a mat"]).value == 0
    # 7/8, 5/7, 4/6, 3/5 right; 8 tokens against 9.
    score = tokenised_bleu(["a b c d e f x h"], ["a b c d e f g h i"])
    expected = 100 * math.exp(1 - 9 / 8) * (7 / 8 * 5 / 7 * 4 / 6 * 3 / 5) ** 0.25
    assert score.value == pytest.approx(expected, rel=1e-12)
    assert score.counts == {"sentences": 1, "hypothesis_tokens": 8, "reference_tokens": 9}


def test_tokenised_bleu_has_its_own_name_and_signature():
    given_, plain = tokenised_bleu(HYPOTHESES, FIRST), translation_scores(HYPOTHESES, FIRST)["BLEU"]
    assert given_.name == "tokenised BLEU"
    assert "tok:none" in given_.signature
    assert "smooth:none" in given_.signature
    assert given_.signature != plain.signature


def test_a_preparation_is_applied_to_both_sides_and_named():
    seen = []

    def split_stops(text):
        seen.append(text)
        return text.replace(".", " .").lower()

    score = tokenised_bleu(HYPOTHESES, FIRST, preparation=Preparation("stops+lc", split_stops))
    assert sorted(seen) == sorted([*HYPOTHESES, *FIRST])
    by_hand = [[t.replace(".", " .").lower() for t in texts] for texts in (HYPOTHESES, FIRST)]
    assert (
        score.value
        == tokenised_bleu(*by_hand).value
        == pytest.approx(multi_bleu(by_hand[0], [[t] for t in by_hand[1]]))
    )
    assert score.value != tokenised_bleu(HYPOTHESES, FIRST).value
    assert score.signature.startswith("prep:stops+lc|")
    assert score.signature != tokenised_bleu(*by_hand).signature


def test_tokenised_bleu_without_case():
    score = tokenised_bleu(["A B c d e"], ["a b C d e"], lowercase=True)
    assert score.value == pytest.approx(100, rel=1e-12)
    assert "case:lc" in score.signature
    assert tokenised_bleu(["A B c d e"], ["a b C d e"]).value < 99


@pytest.mark.parametrize("language, module", [("ja", "MeCab"), ("ko", "mecab_ko")])
def test_a_language_without_its_tokeniser_is_named_with_what_to_install(language, module):
    if find_spec(module) is None:
        extra = {"ja": "japanese", "ko": "korean"}[language]
        expected = rf"^evaluation\.language={language}: .*pip install 'heedful\[{extra}\]'$"
        with pytest.raises(RequestError, match=expected):
            translation_scores(["a"], ["a"], language=language)
    else:
        found = translation_scores(["a"], ["a"], language=language)["BLEU"]
        assert f"{language}-mecab" in found.signature


def test_an_exact_match_is_of_any_reference():
    rows = [["a cat", "a dog"], ["A dog"], ["a", "dog"]]
    found = exact_match(["a dog", "a dog", "a dog"], rows)
    assert (found.value, found.counts) == (1 / 3, {"sentences": 3, "equal": 1})
    assert exact_match(["a dog", "a dog", "a dog"], rows, lowercase=True).value == 2 / 3
    # As sacrebleu's signatures say it.
    signatures = [translation_scores(["a"] * 2, r)["BLEU"].signature for r in (rows[:2], [rows[0], rows[2]])]
    ours = [exact_match(["a"] * 2, r).signature for r in (rows[:2], [rows[0], rows[2]])]
    assert [s.partition("|")[0] for s in ours] == [s.partition("|")[0] for s in signatures]
    assert exact_match(["a"], ["a"]).signature == "case:mixed"


def test_exact_matches_are_counted_letter_by_letter():
    found = exact_match(["a dog", "A dog", "", "a  dog"], ["a dog", "a dog", "", "a dog"])
    assert (found.value, found.signature) == (0.5, "case:mixed")
    assert found.counts == {"sentences": 4, "equal": 2}
    without_case = exact_match(["A dog", "cat"], ["a DOG", "cats"], lowercase=True)
    assert (without_case.value, without_case.signature) == (0.5, "case:lc")
    with pytest.raises(RequestError, match="1 hypotheses but 2 references"):
        exact_match(["a"], ["a", "b"])


@pytest.mark.parametrize(
    "language, text",
    [("th", "แมวนั่งอยู่"), ("my", "ကြောင်ထိုင်"), ("zh", "猫坐在窗边"), ("bo", "ཞི་མི་འདུག")],
)
def test_scripts_without_spaces_are_split_into_characters(language, text):
    hypotheses = [text[:-1]]
    assert translation_scores(hypotheses, [text], language="de")["BLEU"].value == 0  # one word, and another
    scores = translation_scores(hypotheses, [text], language=language)
    found = scores["BLEU"]
    assert found.value > 50
    assert found.details["precisions"] == [100.0] * 4
    assert 0 < scores["TER"].value < 50
    # The same without the language: it is that of the references.
    assert translation_scores(hypotheses, [text]) == scores
    quick = quick_scores(hypotheses, [text])
    assert quick == {"bleu": found.value, "chrf": scores["chrF"].value}
    (sentence,) = sentence_scores(hypotheses, [text])
    assert sentence == sentence_scores(hypotheses, [text], language=language)[0]


def test_japanese_is_split_into_characters_unless_its_tokeniser_is_installed(monkeypatch):
    text = "猫は家で鳥を見る。"
    specs = {"MeCab": None, "ipadic": None}
    monkeypatch.setattr(translation, "find_spec", lambda name: specs[name])
    scores = translation_scores([text[:-2]], [text])
    assert "|tok:char|" in scores["BLEU"].signature
    assert scores["BLEU"].details["precisions"] == [100.0] * 4
    assert "|asian:yes|" in scores["TER"].signature
    assert scores["TER"].value == pytest.approx(100 * 2 / 9)
    (note,) = reference_notes([text], None)
    assert "tokeniser char" in note
    assert "heedful[japanese]" in note
    specs.update(MeCab="installed", ipadic="installed")
    assert bleu_tokeniser(None, [text]) == "ja-mecab"
    assert bleu_tokeniser("de", [text]) == "13a"
    assert "heedful[japanese]" not in reference_notes([text], None)[0]


def test_marks_are_not_edits_of_their_own():
    # Characters with their marks are counted: one of two is wrong.
    score = translation_scores(["ที่กี่"], ["ที่นี่"])["TER"]
    assert score.value == 50
    assert score.signature.startswith("prep:segments|")


def test_scripts_with_spaces_are_scored_as_before():
    rows = ["Кошка сидит на окне", "고양이가 창가에 앉아 있다", "Die Katze sitzt"]
    scores = translation_scores(rows, rows)
    assert scores["BLEU"].signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "|norm:no|punct:yes|asian:no|" in scores["TER"].signature


def test_only_texts_without_spaces_and_a_language_get_a_note():
    assert reference_notes(["a b", "c"], None) == []
    assert reference_notes(["Кошка сидит на окне"], None) == []
    (note,) = reference_notes(["你好世界"], None)
    assert "look like zh" in note
    assert "tokeniser zh;" in note
    assert reference_notes(["你好世界"], "zh") == []


def test_tokenised_references_get_a_note_and_no_warning_of_another_library(caplog):
    tokenised, plain = ["a dog sleeps ."], ["a dog sleeps."]
    (note,) = reference_notes(tokenised * 150 + plain * 120, None)
    assert '150 of 270 end in " ."' in note
    for few in (tokenised * 120 + plain * 150, tokenised * 9 + ["a dog"] * 90, []):
        assert reference_notes(few, None) == []
    quick_scores(tokenised * 150, tokenised * 150)
    translation_scores(tokenised * 150, tokenised * 150)
    assert not caplog.records


def test_decomposed_references_are_compared_in_nfc():
    composed = ["Ein schöner Café-Besuch in Zürich.", "Über den Fluß."]
    decomposed = [normalize("NFD", text) for text in composed]
    for references in (decomposed, [composed[0], decomposed[1]]):
        scores = [*translation_scores(composed, references).values(), exact_match(composed, references)]
        assert [score.value for score in scores] == pytest.approx([100, 100, 0, 1])
        assert {score.signature.partition("|")[0] for score in scores} == {"form:nfc"}
        assert quick_scores(composed, references) == pytest.approx({"bleu": 100, "chrf": 100})
    # Otherwise the texts are those that sacreBLEU itself would compare.
    scores = translation_scores(decomposed, composed)
    assert scores["BLEU"].value == pytest.approx(corpus_bleu(decomposed, [composed], force=True).score)
    assert scores["BLEU"].signature.startswith("nrefs:")


def test_case_is_ignored_by_the_rules_of_the_language():
    lower, upper = ["ısparta ve ığdır ile istanbul çok uzak"], ["Isparta ve IĞDIR ile İstanbul çok uzak"]
    scores = [*translation_scores(lower, upper, lowercase="tr").values()]
    scores.append(exact_match(lower, upper, lowercase="tr"))
    assert [score.value for score in scores] == pytest.approx([100, 100, 0, 1])
    assert {score.signature.partition("|")[0] for score in scores} == {"lowercase:tr"}
    assert translation_scores(lower, upper, lowercase=True)["BLEU"].value < 100
