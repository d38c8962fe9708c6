"""The phrasebook: a grammar-generated corpus of English with romanised Tamil (``ta``) and German (``de``).

Spelling. Words are written as in the middle of a sentence: English ``I`` and names, and German nouns, names
and polite pronouns are capitalised; Tamil, and film titles in English, are not, as in the lectures' "I
enjoyed the film transformers". The Tamil corpus has no punctuation on either side; the German one has full
stops, question marks and commas as separate words.

Splits. Validation and test hold out *combinations* of words: `HELD_OUT` lists pairs of English lemmas (a
verb and a noun that can be its object, or an adjective and a noun it suits). Both words of a pair are
frequent in training, but no training sentence contains both. Every test sentence contains a test pair and no
validation pair, and vice versa.
"""

from collections import Counter, defaultdict
from functools import cache

from heedful.data.corpora import english, german, tamil
from heedful.data.corpora.derivations import derivations
from heedful.data.corpora.grammar import Clause, Nominal, Pair, Sentence, lemma, pair
from heedful.data.corpora.lexicon import Language, read_rows

LANGUAGES = {"ta": tamil, "de": german}
DERIVATIONS = 36_000
HELD_OUT_PAIRS = 1_000
LEAST_OCCURRENCES = 30

HELD_OUT = {
    language: {
        split: [(first, second) for *of, first, second in read_rows("held_out") if of == [language, split]]
        for split in ("valid", "test")
    }
    for language in LANGUAGES
}
"""For each language and split, the pairs of lemmas that share no training sentence."""


@cache
def _partners(language: str) -> dict[str, list[tuple[str, str]]]:
    """Map the first lemma of each held-out pair to the second lemmas and their splits."""
    partners: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for split, pairs in HELD_OUT[language].items():
        for first, second in pairs:
            partners[first].append((second, split))
    return dict(partners)


def split_of(s: Sentence, language: Language) -> str | None:
    """Return the split of a sentence by the held-out pairs it has, or None if it has pairs of two splits."""
    lemmas: set[str] = set()  # the English lemmas of all nouns, adjectives and verbs
    for clause in (s.main, s.other):
        if clause is not None:
            lemmas |= {lemma(clause.verb), lemma(clause.quality)}
            place = clause.place.nominal if clause.place else None
            for phrase in (clause.subject, clause.object, clause.recipient, place):
                if phrase is not None:
                    lemmas |= {lemma(phrase.noun), lemma(phrase.adjective)}
    partners = _partners(language)
    splits = {
        split for first in lemmas & partners.keys() for second, split in partners[first] if second in lemmas
    }
    if len(splits) == 2:
        return None
    return splits.pop() if splits else "train"


def write(s: Sentence, language: Language) -> Pair:
    """Write a derivation in English and in ``language``, and align the words."""
    source = english.sentence(s)
    if language == "ta":
        source = tuple(token for token in source if token.tag != "PUNCT")
    return pair(source, LANGUAGES[language].sentence(s))


_LECTURE = Sentence(
    "plain", Clause(Nominal("i"), "enjoy", Nominal("film", "the", title="transformers"), tense="past")
)
LECTURE_SENTENCE = write(_LECTURE, "ta")
"""The sentence of the lectures, derived by the grammar and in no split."""


def phrasebook(language: Language, split: str, seed: int = 0) -> tuple[Pair, ...]:
    """Return a split of the phrasebook corpus; the same for a seed on every machine.

    Args:
        language: ``ta`` (English to romanised Tamil) or ``de`` (English to German).
        split: ``train``, ``valid`` or ``test``.
        seed: the seed of the choices among derivations; the held-out pairs do not depend on it.
    """
    return _splits(language, seed)[split]


@cache
def _splits(language: Language, seed: int) -> dict[str, tuple[Pair, ...]]:
    pairs: dict[str, list[Pair]] = {"train": [], "valid": [], "test": []}
    sources = {LECTURE_SENTENCE.source}
    for s in derivations(language, seed, DERIVATIONS):
        split = split_of(s, language)
        if split is None:
            continue
        translation = write(s, language)
        if translation.source not in sources:
            sources.add(translation.source)
            pairs[split].append(translation)
    train = _frequent(pairs["train"])
    vocabularies = [
        {word for p in train for word in getattr(p, side).split()} for side in ("source", "target")
    ]
    targets = {p.target for p in train}

    def held_out(split: str) -> tuple[Pair, ...]:
        """Return the sentences of known words whose translation is not in the training data."""
        kept = [
            p
            for p in pairs[split]
            if vocabularies[0].issuperset(p.source.split())
            and vocabularies[1].issuperset(p.target.split())
            and p.target not in targets
        ]
        return tuple(kept[:HELD_OUT_PAIRS])

    return {"train": tuple(train), "valid": held_out("valid"), "test": held_out("test")}


def _frequent(pairs: list[Pair]) -> list[Pair]:
    """Drop sentences with rare words until every word occurs at least `LEAST_OCCURRENCES` times."""
    sides = [[p.source.split() for p in pairs], [p.target.split() for p in pairs]]
    counts = [Counter(word for words in side for word in words) for side in sides]
    kept = list(range(len(pairs)))
    while True:
        rare = [{word for word, n in count.items() if 0 < n < LEAST_OCCURRENCES} for count in counts]
        if not rare[0] and not rare[1]:
            return [pairs[k] for k in kept]
        remaining = []
        for k in kept:
            if rare[0].isdisjoint(sides[0][k]) and rare[1].isdisjoint(sides[1][k]):
                remaining.append(k)
            else:
                for count, side in zip(counts, sides, strict=True):
                    count.subtract(side[k])
        kept = remaining
