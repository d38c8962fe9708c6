"""Draw noun phrases: subjects, objects and places.

The words are those that the target language has too. Nouns, verbs and adjectives are combined by the classes
of the lexicon, so that people read books and open doors, and not the reverse.
"""

from heedful.data.corpora.grammar import Draw, Nominal, Place
from heedful.data.corpora.lexicon import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    NUMBERS,
    PLACES,
    SUITS,
    TITLES,
    VERBS,
    Language,
    words_in,
)

PERSONS = ("i", "he", "she", "we", "they")
EVERYDAY = (
    "see", "enjoy", "read", "write", "buy", "sell", "eat", "drink", "cook", "hear", "open", "close", "look",
    "meet", "help", "call", "wash", "wash.cloth", "play.game", "play.instrument",
)  # fmt: skip
RECALLED = (
    "see", "enjoy", "read", "write", "buy", "cook", "hear", "wash", "open", "close", "sell", "wash.cloth"
)  # fmt: skip
YOU = {"person": "you.one", "address": "you.many", "formal": "you.formal"}
"""The sense of "you" by the kind of name with which somebody is addressed."""

SUBJECTS = {
    "present": ("i", "he", "she"),
    "future": ("i", "he", "she"),
    "can": ("i", "he", "she", "we", "they", "you.one", "you.many", "who"),
    "have": ("i", "he", "she", "we", "they"),
    "live": ("i", "he", "she"),
    "whether": (),
    "who": (),
}
"""The pronouns (or the names they replace) that Tamil uses with a tense, verb or kind of question, if not
all; this limits the number of verb forms.
"""

NOT_PREDICATED = {"ta": ("red", "bright.person"), "de": ()}
"""Adjectives that are used only before nouns."""

POSSESSIVES = {
    "i": ("my", "his", "her"),
    "we": ("our", "his", "her"),
    "he": ("my", "her"),
    "she": ("my", "his"),
}
DETERMINERS = (
    *[("a", False)] * 6, *[("the", False)] * 4, *[("own", False)] * 3, ("this", False), ("this", False),
    ("the", True), ("two", True), ("three", True), ("", True), ("four", True),
)  # fmt: skip
"""Determiners and whether the noun is in the plural, each as often as it is drawn."""


class Phrases(Draw):
    """Draws noun phrases that English and a target language can express."""

    def __init__(self, language: Language, seed: int) -> None:
        super().__init__(seed)
        self.language = language
        nouns, verbs, adjectives = (words_in(table, language) for table in (NOUNS, VERBS, ADJECTIVES))
        names = {key: NAMES[key].kind for key in words_in(NAMES, language)}
        self.you = {key: YOU[kind] for key, kind in names.items() if kind in YOU}
        self.addresses = tuple(self.you)
        self.names, self.formal, self.cities = (
            tuple(key for key, kind in names.items() if kind == name_kind)
            for name_kind in ("person", "formal", "city")
        )
        self.nouns = nouns
        self.people, self.kin, self.animals = (self._of_class(name) for name in ("person", "kin", "animal"))
        self.destinations = self._of_class("inside", "at")
        self.objects = {key: tuple(n for n in verb.objects if n in nouns) for key, verb in VERBS.items()}
        self.everyday = tuple(key for key in EVERYDAY if key in verbs and self.objects[key])
        self.lasting = tuple(verb for verb in PLACES if verb in verbs)
        stative = ("have", "have", "know.person", "need", "like", "like", "love")
        self.stative = tuple(verb for verb in stative if verb in verbs or verb == "have")
        self.suits = {key: tuple(a for a in SUITS[key] if a in adjectives) for key in nouns}
        self.predicated = {
            key: tuple(a for a in suits if a not in NOT_PREDICATED[language])
            for key, suits in self.suits.items()
        }
        self.describable = tuple(noun for noun in nouns if self.predicated[noun])
        things = [n for n in self.describable if not NOUNS[n].is_any("person", "animal")]
        recalled = {
            key: tuple(n for n in self.objects[key] if n in things)
            for key in RECALLED
            if key in self.everyday
        }
        self.recalled_objects = {key: nouns for key, nouns in recalled.items() if nouns}
        self.far_verb = "travel" if "travel" in verbs else "go"

    def _of_class(self, *classes: str) -> tuple[str, ...]:
        return tuple(key for key in self.nouns if NOUNS[key].is_any(*classes))

    def subject(self) -> Nominal:
        """Draw a person as the subject; never "you"."""
        r = self.below(20)
        if r < 9:
            return Nominal(self.pick(("i", "i", "we", "we", *PERSONS)))
        if r < 14:
            return Nominal(self.pick(self.names))
        if r == 14:
            return self.two_names()
        if r == 15 and self.formal:
            return Nominal(self.pick(self.formal))
        if r < 18:
            return self.human(("the", "my", "this", "our"))
        return Nominal(self.pick(self.kin), self.pick(("my", "our", "his", "her")))

    def two_names(self) -> Nominal:
        """Draw two different names joined by "and"."""
        first = self.below(len(self.names))
        second = (first + 1 + self.below(len(self.names) - 1)) % len(self.names)
        return Nominal(f"{self.names[first]} and {self.names[second]}", plural=True)

    def human(self, determiners: tuple[str, ...], *, plurals: bool = True) -> Nominal:
        """Draw a person by a common noun."""
        noun, determiner = self.pick(self.people), self.pick(determiners)
        if determiner in ("my", "our") and noun in ("man", "woman", "boy", "girl"):
            determiner = "the"
        plural = plurals and determiner in ("the", "our") and self.chance(0.4)
        adjective = self.pick(self.suits[noun]) if self.chance(0.25) else ""
        return Nominal(noun, determiner, adjective, plural)

    def possessive(self, subject: Nominal, you: str) -> str:
        """Draw a possessive that cannot be read as the subject's own, or clearly is."""
        if you:
            your = you.replace("you", "your")
            return self.pick(("my", your, your))
        return self.pick(POSSESSIVES.get(pronoun_of(subject), ("my", "our")))

    def thing(self, verb: str, noun: str, subject: Nominal, you: str = "") -> Nominal:
        """Draw determiner, number and adjective for a thing or an animal, as the object of a verb."""
        if NOUNS[noun].is_any("game"):
            return Nominal(noun)
        if NOUNS[noun].is_any("instrument"):
            return Nominal(noun, "the")
        determiner, plural = self.pick(DETERMINERS)
        if plural and not self.takes_plural(verb, determiner):
            determiner, plural = "this", False
        if determiner == "own":
            determiner = self.possessive(subject, you)
        if not NOUNS[noun].plural:
            determiner, plural = (determiner if determiner in ("the", "this") else ""), False
        suits = self.suits[noun]
        adjective = self.pick(suits) if suits and self.chance(0.3) else ""
        if noun == "film" and self.chance(0.7):
            return Nominal(noun, "the", title=self.pick(TITLES))
        return Nominal(noun, determiner, adjective, plural)

    def takes_plural(self, verb: str, determiner: str) -> bool:
        """Return whether a verb is used with an object in the plural; Tamil avoids the marked plural."""
        return self.language == "de" or (determiner != "the" and VERBS[verb].tamil_object != "marked")

    def fits(self, subject: Nominal, use: str) -> bool:
        """Return whether a subject is used with a tense, verb or kind of question."""
        return self.language == "de" or use not in SUBJECTS or pronoun_of(subject) in SUBJECTS[use]

    def someone(self, subject: Nominal, you: str) -> Nominal:
        """Draw a person as an object: never the subject again."""
        r = self.below(10)
        if r < 4:
            options = [p for p in PERSONS if p != subject.noun and {p, subject.noun} != {"i", "we"}]
            return Nominal(self.pick(options))
        if r < 6:
            return Nominal(self.pick([name for name in self.names if name not in subject.noun]))
        if r < 8:
            person = self.human(("the", "a", "this", "our"), plurals=self.takes_plural("meet", "the"))
            return person if person.noun != subject.noun else Nominal(self.names[0])
        return Nominal(self.pick(self.kin), self.possessive(subject, you))

    def object_of(self, verb: str, subject: Nominal, you: str = "") -> Nominal:
        """Draw an object that fits the verb."""
        noun = self.pick(self.objects[verb])
        if NOUNS[noun].is_any("person", "kin"):
            return self.someone(subject, you)
        return self.thing(verb, noun, subject, you)

    def location(self, verb: str) -> Place:
        """Draw the place of an action."""
        noun = self.pick([noun for noun in PLACES[verb] if noun in self.nouns])
        return Place(PLACES[verb][noun], Nominal(noun, "the"))


def pronoun_of(phrase: Nominal) -> str:
    """Return the pronoun of a person's name, or the noun itself."""
    name = NAMES.get(phrase.noun)
    return name.pronoun if name and name.pronoun else phrase.noun


def is_living(phrase: Nominal) -> bool:
    """Return whether a common noun denotes a person."""
    return NOUNS[phrase.noun].is_any("person", "kin")


def is_counted(phrase: Nominal | None) -> bool:
    """Return whether a noun phrase has a number."""
    return phrase is not None and phrase.determiner in NUMBERS
