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

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Literal, NamedTuple

from heedful.data.corpora import english, german, lexicon_german, lexicon_tamil, tamil
from heedful.data.corpora.derivations import Drawing
from heedful.data.corpora.grammar import Clause, Draw, Nominal, Pair, Sentence, lemma, pair
from heedful.data.corpora.lexicon_english import NOUNS
from heedful.data.corpora.phrases import Vocabulary
from heedful.errors import RequestError, nearest

Language = Literal["ta", "de"]
Split = Literal["train", "valid", "test"]

DERIVATIONS = 36_000
HELD_OUT_PAIRS = 1_000
LEAST_OCCURRENCES = 30

# Pairs of lemmas that share no training sentence.
HELD_OUT: dict[str, dict[str, tuple[tuple[str, str], ...]]] = {
    "ta": {
        "valid": (
            ("eat", "mango"), ("send", "letter"), ("look", "dog"), ("buy", "picture"),
            ("see", "house"), ("small", "dog"), ("new", "shirt"), ("old", "man"),
            ("bright", "boy"), ("interesting", "newspaper"), ("beautiful", "bird"), ("hot", "tea"),
        ),
        "test": (
            ("read", "newspaper"), ("drink", "milk"), ("look", "cat"), ("buy", "chair"),
            ("see", "bicycle"), ("big", "mango"), ("new", "song"), ("old", "table"),
            ("bright", "teacher"), ("beautiful", "girl"), ("light", "chair"), ("good", "film"),
        ),
    },
    "de": {
        "valid": (
            ("eat", "apple"), ("send", "letter"), ("look", "key"), ("buy", "picture"),
            ("see", "house"), ("small", "dog"), ("new", "shirt"), ("old", "man"),
            ("bright", "boy"), ("interesting", "newspaper"), ("beautiful", "bird"), ("hot", "soup"),
        ),
        "test": (
            ("read", "newspaper"), ("drink", "tea"), ("look", "cat"), ("buy", "chair"),
            ("see", "bicycle"), ("big", "apple"), ("new", "song"), ("old", "table"),
            ("bright", "kitchen"), ("beautiful", "girl"), ("new", "car"), ("hot", "milk"),
            ("good", "film"),
        ),
    },
}  # fmt: skip

KINDS = (
    ("transitive", 50), ("spoken_to", 12), ("question", 10), ("likes_doing", 3), ("staying", 6), ("going", 9),
    ("animal", 4), ("giving", 6), ("having", 9), ("quality", 7), ("state", 5), ("lying", 4), ("reported", 14),
    ("reasoned", 5), ("recalled", 5), ("contrasted", 5), ("requested", 5),
)  # fmt: skip


def _german() -> Vocabulary:
    words = lexicon_german
    nouns = tuple(key for key in NOUNS if key in words.NOUNS)
    you = dict.fromkeys(words.NAMES, "you.one")
    you |= {"children": "you.many", "Mrs Weber": "you.formal", "Mr Klein": "you.formal"}
    return Vocabulary(
        nouns=nouns,
        verbs=tuple(words.VERBS),
        names=words.NAMES,
        formal=tuple(words.FORMAL),
        cities=words.CITIES,
        you=you,
        quality=lambda adjective, plural: plural or adjective in words.ADJECTIVES,
        adjectives=tuple(words.ADJECTIVES),
        subjects={},
        plural=lambda verb, determiner: True,
        imperatives=("read", "open", "close", "buy", "write", "give", "send", "call", "help", "wash"),
        antecedent=lambda noun: f"it.{words.NOUNS[noun].gender}",
        write=german.sentence,
    )


_TAMIL_SUBJECTS = {
    "present": ("i", "he", "she"),
    "future": ("i", "he", "she"),
    "can": ("i", "he", "she", "we", "they", "you.one", "you.many", "who"),
    "have": ("i", "he", "she", "we", "they"),
    "live": ("i", "he", "she"),
    "whether": (),
    "who": (),
}


def _tamil() -> Vocabulary:
    words = lexicon_tamil
    nouns = tuple(key for key in NOUNS if key in words.NOUNS)
    you = dict.fromkeys(words.NAMES, "you.one") | dict.fromkeys(words.ADDRESSES, "you.many")
    return Vocabulary(
        nouns=nouns,
        verbs=(*words.VERBS, *words.PLEASING),
        names=words.NAMES,
        formal=(),
        cities=words.CITIES,
        you=you,
        quality=lambda adjective, plural: not plural and adjective not in words.NOT_PREDICATED,
        adjectives=tuple(words.ADJECTIVES),
        subjects=_TAMIL_SUBJECTS,
        plural=lambda verb, determiner: determiner != "the" and verb not in words.MARKED,
        imperatives=("read", "look", "buy", "write", "give", "send", "help", "wash", "wash.cloth"),
        antecedent=lambda noun: "it",
        write=tamil.sentence,
    )


_VOCABULARIES = {"ta": _tamil, "de": _german}


def lexemes(s: Sentence) -> frozenset[str]:
    """Return the English lemmas of all nouns, adjectives and verbs of a sentence."""
    found: set[str] = set()
    for clause in (s.main, s.other):
        if clause is not None:
            found |= {lemma(clause.verb), lemma(clause.quality)}
            place = clause.place.nominal if clause.place else None
            for phrase in (clause.subject, clause.object, clause.recipient, place):
                if phrase is not None:
                    found |= {lemma(phrase.noun), lemma(phrase.adjective)}
    return frozenset(found)


@cache
def _partners(language: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return for the first lemma of every held-out pair the second, and the split that has the pair."""
    partners: dict[str, tuple[tuple[str, str], ...]] = {}
    for split, pairs in HELD_OUT[language].items():
        for first, second in pairs:
            partners[first] = (*partners.get(first, ()), (second, split))
    return partners


def split_of(s: Sentence, language: Language) -> str | None:
    """Return the split of a sentence by the held-out pairs it has, or None if it has pairs of two splits."""
    found, partners = lexemes(s), _partners(language)
    held = {
        split for word in found if word in partners for second, split in partners[word] if second in found
    }
    if len(held) == 2:
        return None
    return held.pop() if held else "train"


def write(s: Sentence, language: Language) -> Pair:
    """Write a derivation in English and in ``language``, and align the words."""
    source = english.sentence(s)
    if language == "ta":
        source = tuple(token for token in source if token.tag != "PUNCT")
    target = tamil.sentence(s) if language == "ta" else german.sentence(s)
    return pair(source, target)


_LECTURE = Sentence(
    "plain", Clause(Nominal("i"), "enjoy", Nominal("film", "the", title="transformers"), tense="past")
)
# The sentence of the lectures, derived by the grammar and in no split.
LECTURE_SENTENCE = write(_LECTURE, "ta")


class Phrasebook(NamedTuple):
    """The three splits of one language."""

    train: tuple[Pair, ...]
    valid: tuple[Pair, ...]
    test: tuple[Pair, ...]


def phrasebook(language: Language, split: Split, seed: int = 0) -> tuple[Pair, ...]:
    """Return a split of the phrasebook corpus; the same for a seed on every machine.

    Args:
        language: ``ta`` (English to romanised Tamil) or ``de`` (English to German).
        split: ``train``, ``valid`` or ``test``.
        seed: the seed of the choices among derivations; the held-out pairs do not depend on it.

    Raises:
        RequestError: if there is no such language or split.
    """
    if language not in _VOCABULARIES:
        raise RequestError(
            f"phrasebook: there is no language {language!r}{nearest(language, _VOCABULARIES)};"
            " there are 'ta' and 'de'"
        )
    if split not in Phrasebook._fields:
        raise RequestError(
            f"phrasebook: there is no split {split!r}{nearest(split, Phrasebook._fields)};"
            " there are 'train', 'valid' and 'test'"
        )
    return getattr(_splits(language, seed), split)


@cache
def _splits(language: Language, seed: int) -> Phrasebook:
    written = _derive(language, seed)
    train = _frequent(written["train"])
    known = [set(_words(train, side)) for side in ("source", "target")]
    seen = ({p.source for p in train}, {p.target for p in train})
    held = {}
    for split in ("valid", "test"):
        pairs = [
            p
            for p in written[split]
            if known[0].issuperset(p.source.split())
            and known[1].issuperset(p.target.split())
            and p.target not in seen[1]
        ]
        held[split] = tuple(pairs[:HELD_OUT_PAIRS])
    return Phrasebook(tuple(train), held["valid"], held["test"])


def derivations(language: Language, seed: int, count: int) -> Iterable[Sentence]:
    """Yield ``count`` different derivations."""
    drawing = Drawing(_VOCABULARIES[language](), Draw(seed))
    table = [name for name, weight in KINDS for _ in range(weight)]
    seen: set[Sentence] = set()
    while len(seen) < count:
        s = drawing.sentence(drawing.draw.pick(table))
        if s not in seen:
            seen.add(s)
            yield s


def _derive(language: Language, seed: int) -> dict[str, list[Pair]]:
    written: dict[str, list[Pair]] = {"train": [], "valid": [], "test": []}
    sources = {LECTURE_SENTENCE.source}
    for s in derivations(language, seed, DERIVATIONS):
        split = split_of(s, language)
        if split is None:
            continue
        made = write(s, language)
        if made.source not in sources:
            sources.add(made.source)
            written[split].append(made)
    return written


def _words(pairs: Iterable[Pair], side: str) -> Counter[str]:
    return Counter(word for p in pairs for word in getattr(p, side).split())


def _frequent(pairs: list[Pair]) -> list[Pair]:
    """Drop sentences with rare words until every word occurs at least `LEAST_OCCURRENCES` times."""
    sides = [([p.source.split() for p in pairs]), ([p.target.split() for p in pairs])]
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
