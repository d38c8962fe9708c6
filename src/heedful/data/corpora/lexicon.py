"""The words of the phrasebook in English, German and Tamil, read from the tables in ``words/``.

The key of a word is its English lemma, with a sense if another language distinguishes senses
(``play.game``). A field of several words is split at spaces; an empty field is written ``-``.

Tamil is romanised as in the lectures: long a, i, u are doubled, e and o represent both lengths, ``th`` is the
dental and ``t``/``d`` the retroflex stop, doubled consonants are written double (``thth``), ``zh``, ``l``,
``r``, ``n`` as usual; all lower case, no punctuation.
"""

from collections.abc import Mapping
from importlib.resources import files
from typing import Literal, NamedTuple, TypeVar

Language = Literal["ta", "de"]
Words = tuple[str, ...]
T = TypeVar("T", bound=tuple)


class Noun(NamedTuple):
    """A common noun: its classes determine with which verbs and adjectives it is used.

    Args:
        plural: the English plural; empty for words without one.
        gender: the German gender, m, f or n.
        german_weak: the German form of the accusative and dative, if it differs.
        german_to, german_at: the German prepositions for "to" and "at", if they depend on the noun.
        tamil_person: the pronoun with which a Tamil verb agrees.
        tamil_oblique: the Tamil stem before case suffixes, if it does not follow from the nominative.
    """

    classes: Words
    plural: str
    german: str
    gender: str
    german_plural: str
    german_weak: str
    german_to: str
    german_at: str
    tamil: str
    tamil_plural: str
    tamil_person: str
    tamil_oblique: str

    def is_any(self, *classes: str) -> bool:
        """Return whether the noun belongs to one of these classes."""
        return not set(classes).isdisjoint(self.classes)


class Verb(NamedTuple):
    """A verb.

    Args:
        base, third, past: the English forms.
        objects: the nouns that can be its object; in the table also classes of nouns.
        german: the present forms of the six `GERMAN_PERSONS`.
        german_past: the preterite, of the two verbs for which it is usual.
        german_auxiliary: the verb of the perfect, "haben" or "sein".
        german_prefix: the separable prefix.
        german_case: the case of the object.
        tamil, tamil_past, tamil_future: the stems before personal endings.
        tamil_object: "marked" if an indefinite thing as object takes the accusative, "unmarked" if a definite
            one does not.
        tamil_pleasing: of a verb whose subject is in the dative ("to me the film pleases"): the negation, the
            past and its negation; ``tamil`` is then the whole present form.
    """

    base: str
    third: str
    past: str
    objects: Words
    german: Words
    german_past: Words
    german_participle: str
    german_auxiliary: str
    german_prefix: str
    german_case: str
    tamil: str
    tamil_past: str
    tamil_future: str
    tamil_infinitive: str
    tamil_imperative: str
    tamil_object: str
    tamil_pleasing: Words


class Adjective(NamedTuple):
    """An adjective, or a state ("tired") if it has no classes.

    Args:
        classes: the nouns, or classes of nouns, with which it is used.
        unsuitable: the nouns of these classes with which it is not used.
        judgement: "praise" or "blame", for sentences with "but".
        german: the stem before endings, also used after "ist".
    """

    classes: Words
    unsuitable: Words
    judgement: str
    german: str
    tamil: str


class Pronoun(NamedTuple):
    """A personal or interrogative pronoun: its cases, and the form of verbs it takes."""

    subject: str
    object: str
    be: str
    was: str
    german_nominative: str
    german_accusative: str
    german_dative: str
    german_person: str
    tamil_nominative: str
    tamil_accusative: str
    tamil_dative: str
    tamil_instrumental: str
    tamil_with: str
    tamil_ending: str


class Determiner(NamedTuple):
    """An article, possessive or number."""

    tag: str
    english: str
    german: str
    tamil: str


class Time(NamedTuple):
    """An adverbial of time, in the format of `heedful.data.corpora.grammar.parse_tokens`."""

    english: str
    german: str
    tamil: str


class Name(NamedTuple):
    """The name of a person, a city or a film, or a form of address.

    Args:
        kind: person, address, formal (with a title), city or title (of a film).
        pronoun: the pronoun of a person.
    """

    kind: str
    pronoun: str
    german: str
    tamil: str


class Animal(NamedTuple):
    """What an animal eats, and where it sleeps."""

    food: Words
    beds: Words


def read_rows(name: str) -> list[list[str]]:
    """Read a table of the folder ``words``, the header included."""
    text = files(__package__).joinpath("words", f"{name}.tsv").read_text(encoding="utf-8")
    return [["" if field == "-" else field for field in line.split("\t")] for line in text.splitlines()]


def _read_table(name: str, record: type[T]) -> dict[str, T]:
    """Read a table whose first column is the key and whose other columns are the fields of ``record``."""
    (_, *fields), *rows = read_rows(name)
    word_lists = {field for field in fields if record.__annotations__[field] == Words}

    def parse(field: str, text: str) -> str | Words:
        return tuple(text.split()) if field in word_lists else text

    return {key: record(**{f: parse(f, text) for f, text in zip(fields, row)}) for key, *row in rows}


NOUNS = _read_table("nouns", Noun)
ADJECTIVES = _read_table("adjectives", Adjective)
PRONOUNS = _read_table("pronouns", Pronoun)
DETERMINERS = _read_table("determiners", Determiner)
NUMBERS = tuple(key for key, determiner in DETERMINERS.items() if determiner.tag == "NUM")
TIMES = _read_table("times", Time)
NAMES = _read_table("names", Name)
ANIMALS = _read_table("animals", Animal)
STATES = tuple(key for key, adjective in ADJECTIVES.items() if not adjective.classes)
TITLES = tuple(key for key, name in NAMES.items() if name.kind == "title")
GERMAN_PERSONS = ("ich", "du", "er", "wir", "ihr", "sie")
"""The persons of German verbs; the polite "Sie" takes the form of "sie"."""


def _objects(verb: Verb) -> Words:
    return tuple(key for key, noun in NOUNS.items() if key in verb.objects or noun.is_any(*verb.objects))


VERBS = {key: verb._replace(objects=_objects(verb)) for key, verb in _read_table("verbs", Verb).items()}

SUITS = {
    key: tuple(
        adjective
        for adjective, entry in ADJECTIVES.items()
        if (key in entry.classes or noun.is_any(*entry.classes)) and key not in entry.unsuitable
    )
    for key, noun in NOUNS.items()
}
"""The adjectives of each noun, before it or after "is"; the sense follows from the noun."""

_PLACES = read_rows("places")[1:]
PLACES = {verb: {noun: at for other, noun, at in _PLACES if other == verb} for verb, _, _ in _PLACES}
"""The places of actions, with the preposition; "on the bank" is the river's, "at the bank" is the other."""


def words_in(table: Mapping[str, object], language: Language) -> Words:
    """Return the keys of the words of a table that a language has."""
    column = {"ta": "tamil", "de": "german"}[language]
    return tuple(key for key, word in table.items() if getattr(word, column))
