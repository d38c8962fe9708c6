"""The phrasebook: fixed, unambiguous, aligned, grammatical by independent rules, and split as it says."""

import hashlib
import re
from collections import Counter
from functools import cache
from itertools import islice, pairwise

import pytest
import sacrebleu

from heedful.data.corpora import open_corpus
from heedful.data.corpora import phrasebook as module
from heedful.data.corpora.baselines import monotone, word_by_word
from heedful.data.corpora.phrasebook import HELD_OUT, LECTURE_SENTENCE, phrasebook

LANGUAGES = ("ta", "de")
SPLITS = ("train", "valid", "test")
TAGS = {
    "NOUN", "VERB", "PRON", "DET", "ADJ", "ADV", "ADP", "AUX", "PROPN", "NUM", "PART", "CCONJ", "SCONJ",
    "PUNCT", "INTJ",
}  # fmt: skip
# Change these only with the version of the package: published scores refer to these corpora.
DIGESTS = {"ta": "ae71f46f80d37aa4", "de": "d5c25b72549c51a1"}

each_language = pytest.mark.parametrize("language", LANGUAGES)


@cache
def everything(language):
    return [pair for split in SPLITS for pair in phrasebook(language, split)]


def words(pairs, side):
    return Counter(word for pair in pairs for word in getattr(pair, side).split())


def find(language, pattern, side="source"):
    return [p for p in everything(language) if re.search(pattern, getattr(p, side))]


@each_language
def test_the_corpus_never_changes_silently(language):
    rows = [row for split in SPLITS for row in open_corpus(f"phrasebook-{language}", split)]
    text = "\n".join("\t".join(row.values()) for row in rows)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGESTS[language]


def test_another_seed_draws_other_sentences():
    first, again, other = (list(module.derivations("de", seed, 300)) for seed in (0, 0, 1))
    assert first == again
    assert len(set(first) & set(other)) < 60


def test_the_order_of_the_corpus_is_the_order_of_the_derivations():
    written = [module.write(s, "ta") for s in islice(module.derivations("ta", 0, 100), 100)]
    known = {p.source: p for p in everything("ta")}
    common = [p for p in written if p.source in known]
    assert len(common) > 60
    assert all(known[p.source] == p for p in common)


@each_language
def test_sizes(language):
    train, valid, test = (phrasebook(language, split) for split in SPLITS)
    assert 20_000 <= len(train) <= 40_000
    assert 800 <= len(valid) <= 1_000
    assert 800 <= len(test) <= 1_000
    lengths = [len(p.source.split()) for p in train]
    assert min(lengths) >= 3
    assert max(lengths) <= 14
    assert len(words(train, "source")) < 300
    assert len(words(train, "target")) < 650


@each_language
def test_a_source_stands_once_and_the_splits_share_no_sentence(language):
    sources = [p.source for p in everything(language)]
    assert len(sources) == len(set(sources))
    train_targets = {p.target for p in phrasebook(language, "train")}
    for split in ("valid", "test"):
        assert train_targets.isdisjoint(p.target for p in phrasebook(language, split))


@each_language
def test_every_word_is_frequent_in_training(language):
    for side in ("source", "target"):
        known = words(phrasebook(language, "train"), side)
        assert min(known.values()) >= 30
        for split in ("valid", "test"):
            assert set(words(phrasebook(language, split), side)) <= set(known)


# The forms of the lemmas in HELD_OUT, written out here and not taken from the lexicon.
FORMS = {
    "read": "read reads", "drink": "drink drinks drank", "look": "look looks looked",
    "buy": "buy buys bought",
    "see": "see sees saw", "eat": "eat eats ate", "send": "send sends sent", "old": "old", "hot": "hot",
    "newspaper": "newspaper newspapers", "chair": "chair chairs", "bicycle": "bicycle bicycles",
    "mango": "mango mangoes", "apple": "apple apples", "song": "song songs", "table": "table tables",
    "girl": "girl girls", "film": "film films", "letter": "letter letters", "key": "key keys",
    "picture": "picture pictures", "house": "house houses", "dog": "dog dogs", "shirt": "shirt shirts",
    "man": "man men", "boy": "boy boys", "bird": "bird birds", "cat": "cat cats",
    "car": "car cars", "teacher": "teacher teachers", "bag": "bag bags",
}  # fmt: skip


def together(found, first, second):
    return all(not found.isdisjoint(FORMS.get(lemma, lemma).split()) for lemma in (first, second))


@pytest.mark.slow
@each_language
def test_held_out_words_never_meet_in_training_and_always_in_their_split(language):
    pairs = HELD_OUT[language]
    train = [set(p.source.split()) for p in phrasebook(language, "train")]
    for first, second in (*pairs["valid"], *pairs["test"]):
        assert not any(together(found, first, second) for found in train), (first, second)
    for split, other in (("valid", "test"), ("test", "valid")):
        used = Counter()
        for p in phrasebook(language, split):
            found = set(p.source.split())
            used.update(held for held in pairs[split] if together(found, *held))
            assert any(together(found, *held) for held in pairs[split]), p.source
            assert not any(together(found, *held) for held in pairs[other]), p.source
        assert all(used[held] >= 5 for held in pairs[split]), used


def test_the_lectures_sentence_is_derived_known_and_in_no_split():
    assert LECTURE_SENTENCE.source == "I enjoyed the film transformers"
    assert LECTURE_SENTENCE.target == "naan transfarmar padaththai rasiththen"
    assert LECTURE_SENTENCE.alignment == ((0, 0), (1, 3), (3, 2), (4, 1))
    for side in ("source", "target"):
        assert set(getattr(LECTURE_SENTENCE, side).split()) <= set(words(phrasebook("ta", "train"), side))
        assert all(getattr(p, side) != getattr(LECTURE_SENTENCE, side) for p in everything("ta"))


@each_language
def test_alignments_and_tags_fit_the_words(language):
    for p in everything(language):
        source, target = p.source.split(" "), p.target.split(" ")
        assert len(source) == len(p.source_tags)
        assert len(target) == len(p.target_tags)
        assert set(p.source_tags) | set(p.target_tags) <= TAGS
        assert list(p.alignment) == sorted(set(p.alignment))
        assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in p.alignment)
        assert {j for _, j in p.alignment} | _free(p) == set(range(len(target))), p


def _free(pair):
    """Target places that may stand alone: German commas and the polite Sie, Tamil's "it" with a verb."""
    return {j for j, word in enumerate(pair.target.split()) if word in (",", "Sie")}


NAMES = {"Kumar": "kumaar", "Priya": "priyaa", "Ravi": "ravi", "Anna": "Anna", "Paul": "Paul"}
STEMS = {
    "ta": {
        "film": "pada", "book": "puththaga", "letter": "kadidha", "dog": "naay", "coffee": "kaappi",
        "two": "irandu", "not": "(illai|maatt|aadhu|alla|vendaam)", "yesterday": "netru", "that": ".",
    },
    "de": {
        "film": "Film", "book": "(Buch|Büch)", "letter": "Brief", "dog": "Hund", "coffee": "Kaffee",
        "two": "zwei", "not": "(nicht|kein)", "yesterday": "gestern", "because": "weil",
    },
}  # fmt: skip


@each_language
def test_aligned_words_translate_each_other(language):
    checked = 0
    for p in everything(language):
        source, target = p.source.split(), p.target.split()
        for i, j in p.alignment:
            stem = STEMS[language].get(source[i]) or NAMES.get(source[i])
            if stem:
                assert re.search(stem, target[j]), (p, i, j)
                checked += 1
    assert checked > 2_000


TAMIL_ENDINGS = {"I": "en", "he": "aan", "she": "aal", "we": "om", "they": "aargal"}


def test_tamil_verbs_agree_and_stand_last():
    checked = Counter()
    for p in everything("ta"):
        match = re.fullmatch(r"(I|he|she|we|they) (\w+ed|bought|wrote|ate|drank|saw|met|heard) .*", p.source)
        if match and "that" not in p.source and "because" not in p.source:
            assert p.target.split()[-1].endswith(TAMIL_ENDINGS[match[1]]), p
            assert p.target_tags[-1] == "VERB"
            checked[match[1]] += 1
    assert min(checked[person] for person in TAMIL_ENDINGS) > 20


def test_tamil_cases():
    assert all(p.target.split()[0].endswith("aal") for p in find("ta", r"^(I|he|she|we|they) can "))
    assert all("ukku" in p.target.split()[0] or "kku" in p.target for p in find("ta", r"likes? to "))
    for p in find("ta", r"^\w+ (saw|enjoyed) the film$|^\w+ (saw|enjoyed) the film \w+$"):
        assert "padaththai" in p.target.split()


GERMAN_PERSONS = {
    "ich": "habe bin war hatte werde kann muss will",
    "er": "hat ist war hatte wird kann muss will",
    "wir": "haben sind waren hatten werden können müssen wollen",
}


def test_german_finite_verbs_agree_and_stand_second():
    checked = Counter()
    for p in everything("de"):
        target = p.target.split()
        if target[0] in GERMAN_PERSONS and p.target_tags[1] == "AUX":
            assert target[1] in GERMAN_PERSONS[target[0]].split(), p
            checked[target[0]] += 1
    assert min(checked[person] for person in GERMAN_PERSONS) > 200


def test_german_times_in_front_invert_the_subject():
    fronted = find("de", r"^yesterday (he|she|they|we|I) ")
    assert len(fronted) > 20
    subjects = {"he": "er", "she": "sie", "they": "sie", "we": "wir", "I": "ich"}
    for p in fronted:
        assert p.target.split()[0] == "gestern"
        assert p.target.split()[2] == subjects[p.source.split()[1]]


def test_german_subordinate_clauses_end_in_the_finite_verb():
    found = find("de", r"because (he|she) was")
    assert found
    assert all(re.search(r", weil (er|sie) \w+ war \.$", p.target) for p in found)
    said = find("de", r"(knows?|thinks?|said) that she (bought|saw|drank|ate|heard)")
    assert said
    assert all(re.search(r", dass sie .* ge\w+ hat \.$", p.target) for p in said)


GENDERS = {
    "Film": "m",
    "Hund": "m",
    "Tisch": "m",
    "Buch": "n",
    "Auto": "n",
    "Haus": "n",
    "Tasche": "f",
    "Lampe": "f",
}


def test_german_articles_adjectives_and_pronouns_follow_the_gender():
    allowed = {
        "m": "der den dem ein einen einem dieser diesen diesem",
        "n": "das dem ein einem dieses diesem",
        "f": "die der eine einer diese dieser",
    }
    determiners = {word for row in allowed.values() for word in row.split()} | {"des", "eines"}
    it = {"m": ("er", "ihn"), "n": ("es", "es"), "f": ("sie", "sie")}
    checked = 0
    for p in everything("de"):
        target = p.target.split()
        for before, noun in pairwise(target):
            if noun in GENDERS and before in determiners:
                assert before in allowed[GENDERS[noun]].split(), p
                checked += 1
        match = re.match(r"\w+ (\w+) ist \w+ , aber (er|sie|es) ist", p.target)
        if match and match[1] in GENDERS:
            assert match[2] == it[GENDERS[match[1]]][0], p
    assert checked > 500


def test_the_address_settles_you():
    pronouns = {"Paul": "du", "children": "ihr", "Mrs Weber": "Sie"}
    for address, pronoun in pronouns.items():
        found = find("de", rf"^{address} , (do|did|can|are|were) you ")
        assert found
        assert all(pronoun in p.target.split() for p in found)
    assert all(" nii" in p.target or " un" in p.target for p in find("ta", r"^Kumar (did|can|do) you "))
    assert all(
        "ungal" in p.target or "niingal" in p.target for p in find("ta", r"^(sir|children|friends) can you ")
    )


@pytest.mark.parametrize(
    "language, source, target",
    [
        ("de", r"\bknows? (him|Anna)\b", r"\b(kenn|kann)"),
        ("de", r"\bknows? that\b", r"\b(weiß|wissen|wisst)"),
        ("de", r"went to (London|Berlin)", r"gefahren"),
        ("de", r"went to the (bank|park)", r"gegangen"),
        ("de", r"on the bank\b", r"am Ufer"),
        ("de", r"at the bank\b", r"(in der|zur) Bank"),
        ("de", r"bright (boy|woman)", r"klug"),
        ("de", r"(cat|horse|bird) ate", r"gefressen"),
        ("de", r"likes to read", r"\bliest\b.*\bgern\b"),
        ("ta", r"\bplay(s|ed)? chess", r"vilaiyaad"),
        ("ta", r"\bplay(s|ed)? the flute", r"vaasi"),
        ("ta", r"\bold (woman|teacher)", r"vayathaana"),
        ("ta", r"\bold (house|car)", r"pazhaiya"),
        ("ta", r"wash(es|ed)? the shirt", r"thuvai"),
        ("ta", r"wash(es|ed)? the car\b", r"kazhuv"),
    ],
)  # fmt: skip
def test_words_whose_translation_hangs_on_another_word(language, source, target):
    found = find(language, source)
    assert len(found) >= 10
    for p in found:
        assert re.search(target, p.target), p


@pytest.mark.slow
@pytest.mark.parametrize("language, most_by_word, most_by_phrase", [("ta", 15, 40), ("de", 35, 65)])
def test_the_baselines_fail_by_a_clear_margin(language, most_by_word, most_by_phrase):
    train, test = phrasebook(language, "train"), phrasebook(language, "test")
    scores = []
    for baseline in (word_by_word, monotone):
        translate = baseline(train)
        hypotheses = [translate(p.source) for p in test]
        scores.append(sacrebleu.corpus_bleu(hypotheses, [[p.target for p in test]], force=True).score)
    assert 1 < scores[0] < most_by_word
    assert scores[0] < scores[1] < most_by_phrase
