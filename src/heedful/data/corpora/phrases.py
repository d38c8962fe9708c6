"""Draw noun phrases: subjects, objects and places.

A `Vocabulary` has the words of a language; nouns, verbs and adjectives are combined by the classes of
`lexicon_english`, so that people read books and open doors, and not the reverse.
"""

from collections.abc import Callable
from typing import NamedTuple

from heedful.data.corpora.grammar import Draw, Nominal, Place, Sentence, Tokens
from heedful.data.corpora.lexicon_english import LOCATIONS, NOUNS, SUITS, TITLES, VERBS


class Vocabulary(NamedTuple):
    """The words of a language, and the limits of its grammar.

    Args:
        nouns: keys of common nouns.
        verbs: keys of verbs.
        names: first names and the pronoun of each.
        formal: names with a title, as subjects and addresses.
        cities: names of cities.
        you: for every address, the sense of "you".
        quality: whether the language can express that a noun (or a noun in the plural) has a quality.
        adjectives: keys of adjectives.
        subjects: for a tense, verb or kind of question, the pronouns (or the names they replace) that it is
            used with, if not with all; they limit the number of verb forms.
        plural: whether a verb is used with an object in the plural that has a determiner.
        imperatives: verbs that have a polite imperative.
        antecedent: the key of the pronoun "it" for a noun.
        write: writes the target side.
    """

    nouns: tuple[str, ...]
    verbs: tuple[str, ...]
    names: dict[str, str]
    formal: tuple[str, ...]
    cities: tuple[str, ...]
    you: dict[str, str]
    quality: Callable[[str, bool], bool]
    adjectives: tuple[str, ...]
    subjects: dict[str, tuple[str, ...]]
    plural: Callable[[str, str], bool]
    imperatives: tuple[str, ...]
    antecedent: Callable[[str], str]
    write: Callable[[Sentence], Tokens]


PERSONS = ("i", "he", "she", "we", "they")
EVERYDAY = (
    "see", "enjoy", "read", "write", "buy", "sell", "eat", "drink", "cook", "hear", "open", "close", "look",
    "meet", "help", "call", "wash", "wash.cloth", "play.game", "play.instrument",
)  # fmt: skip
WHAT = ("read", "buy", "eat", "drink", "write", "see", "cook", "sell", "hear")
MADE = ("see", "enjoy", "read", "write", "buy", "cook", "hear", "wash", "open", "close", "sell", "wash.cloth")


class Phrases:
    """Draws noun phrases for one vocabulary from one stream of choices."""

    def __init__(self, vocabulary: Vocabulary, draw: Draw) -> None:
        self.words, self.draw = vocabulary, draw
        self.names = tuple(vocabulary.names)
        self.people = self._nouns("person")
        self.kin = self._nouns("kin")
        self.animals = self._nouns("animal")
        self.objects = {
            key: tuple(noun for noun in verb.objects if noun in vocabulary.nouns)
            for key, verb in VERBS.items()
        }
        self.everyday = tuple(key for key in EVERYDAY if key in vocabulary.verbs and self.objects[key])
        self.lasting = tuple(verb for verb in LOCATIONS if verb in vocabulary.verbs)
        stative = ("have", "have", "know.person", "need", "like", "like", "love")
        self.stative = tuple(verb for verb in stative if verb in vocabulary.verbs or verb == "have")
        self.what = tuple(key for key in WHAT if key in self.everyday)
        self.addresses = tuple(vocabulary.you)
        self.suits = {
            key: tuple(a for a in SUITS[key] if a in vocabulary.adjectives) for key in vocabulary.nouns
        }
        self.describable = tuple(
            noun
            for noun in vocabulary.nouns
            if any(vocabulary.quality(adjective, False) for adjective in self.suits[noun])
        )
        self.locations = {
            verb: tuple(noun for noun in places if noun in vocabulary.nouns)
            for verb, places in LOCATIONS.items()
        }
        made = {key: tuple(filter(self._recalled, self.objects[key])) for key in MADE if key in self.everyday}
        self.made = {key: nouns for key, nouns in made.items() if nouns}
        self.destinations = self._nouns("inside", "at")

    def _nouns(self, *classes: str) -> tuple[str, ...]:
        here = self.words.nouns
        return tuple(key for key, (_, own) in NOUNS.items() if key in here and set(own) & set(classes))

    def _recalled(self, noun: str) -> bool:
        return noun in self.describable and not {"person", "animal"} & set(NOUNS[noun][1])

    def living(self, phrase: Nominal) -> bool:
        """Return whether a common noun denotes a person."""
        return bool({"person", "kin"} & set(NOUNS[phrase.noun][1]))

    def subject(self) -> Nominal:
        """Draw a person as the subject; never "you"."""
        r = self.draw.below(20)
        if r < 9:
            return Nominal(self.draw.pick(("i", "i", "we", "we", *PERSONS)))
        if r < 14:
            return Nominal(self.draw.pick(self.names))
        if r == 14:
            return self.two_names()
        if r == 15 and self.words.formal:
            return Nominal(self.draw.pick(self.words.formal))
        if r < 18:
            return self.human(("the", "my", "this", "our"))
        return Nominal(self.draw.pick(self.kin), self.draw.pick(("my", "our", "his", "her")))

    def two_names(self) -> Nominal:
        """Draw two different names joined by "and"."""
        first = self.draw.below(len(self.names))
        second = (first + 1 + self.draw.below(len(self.names) - 1)) % len(self.names)
        return Nominal(f"{self.names[first]} and {self.names[second]}", plural=True)

    def human(self, determiners: tuple[str, ...], *, plurals: bool = True) -> Nominal:
        """Draw a person by a common noun."""
        noun, determiner = self.draw.pick(self.people), self.draw.pick(determiners)
        if determiner in ("my", "our") and noun in ("man", "woman", "boy", "girl"):
            determiner = "the"
        plural = plurals and determiner in ("the", "our") and self.draw.chance(0.4)
        adjective = self.draw.pick(self.suits[noun]) if self.draw.chance(0.25) else ""
        return Nominal(noun, determiner, adjective, plural)

    def possessive(self, subject: Nominal, you: str) -> str:
        """Draw a possessive that cannot be read as the subject's own, or clearly is."""
        if you:
            your = you.replace("you", "your")
            return self.draw.pick(("my", your, your))
        own = self.words.names.get(subject.noun, subject.noun)
        options = ("my", "our") if own not in ("i", "we", "he", "she") else _POSSESSIVES[own]
        return self.draw.pick(options)

    def thing(self, verb: str, noun: str, subject: Nominal, you: str = "") -> Nominal:
        """Draw determiner, number and adjective for a thing or an animal, as the object of a verb."""
        if NOUNS[noun][1][0] == "game":
            return Nominal(noun)
        if NOUNS[noun][1][0] == "instrument":
            return Nominal(noun, "the")
        mass = NOUNS[noun][0] == "-"
        determiner, plural = self.draw.pick(_DETERMINERS)
        if plural and not self.words.plural(verb, determiner):
            determiner, plural = "this", False
        if determiner == "own":
            determiner = self.possessive(subject, you)
        if mass:
            determiner, plural = (determiner if determiner in ("the", "this") else ""), False
        suits = self.suits[noun]
        adjective = self.draw.pick(suits) if suits and self.draw.chance(0.3) else ""
        title = self.draw.pick(TITLES) if noun == "film" and self.draw.chance(0.7) else ""
        if title:
            determiner, plural, adjective = "the", False, ""
        return Nominal(noun, determiner, adjective, plural, title)

    def fits(self, subject: Nominal, use: str) -> bool:
        """Return whether a subject is used with a tense, verb or kind of question."""
        allowed = self.words.subjects.get(use)
        return allowed is None or self.words.names.get(subject.noun, subject.noun) in allowed

    def someone(self, subject: Nominal, you: str) -> Nominal:
        """Draw a person as an object: never the subject again."""
        r = self.draw.below(10)
        if r < 4:
            options = [p for p in PERSONS if p != subject.noun and {p, subject.noun} != {"i", "we"}]
            return Nominal(self.draw.pick(options))
        if r < 6:
            options = [name for name in self.names if name not in subject.noun]
            return Nominal(self.draw.pick(options))
        if r < 8:
            person = self.human(("the", "a", "this", "our"), plurals=self.words.plural("meet", "the"))
            return person if person.noun != subject.noun else Nominal(self.names[0])
        return Nominal(self.draw.pick(self.kin), self.possessive(subject, you))

    def object_of(self, verb: str, subject: Nominal, you: str = "") -> Nominal:
        """Draw an object that fits the verb."""
        noun = self.draw.pick(self.objects[verb])
        if "person" in NOUNS[noun][1] or "kin" in NOUNS[noun][1]:
            return self.someone(subject, you)
        return self.thing(verb, noun, subject, you)

    def location(self, verb: str) -> Place:
        """Draw the place of an action."""
        noun = self.draw.pick(self.locations[verb])
        return Place(LOCATIONS[verb][noun], Nominal(noun, "the"))


_POSSESSIVES = {
    "i": ("my", "his", "her"),
    "we": ("our", "his", "her"),
    "he": ("my", "her"),
    "she": ("my", "his"),
}
_DETERMINERS = (
    *[("a", False)] * 6, *[("the", False)] * 4, *[("own", False)] * 3, ("this", False), ("this", False),
    ("the", True), ("two", True), ("three", True), ("", True), ("four", True),
)  # fmt: skip


def counted(phrase: Nominal | None) -> bool:
    """Return whether a noun phrase has a number."""
    return phrase is not None and phrase.determiner in ("two", "three", "four")
