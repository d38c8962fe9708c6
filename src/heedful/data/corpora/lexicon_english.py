"""English words, and which of them can be combined.

A key is a lemma, with a sense if other languages distinguish senses (``play.game``). The lexicon of a
language determines which keys are used with it.
"""

from typing import NamedTuple


class Pronoun(NamedTuple):
    """A pronoun: subject form, object form, and the form of "be" and of verbs it takes."""

    subject: str
    object: str
    be: str
    was: str
    third: bool = False


PRONOUNS = {
    "i": Pronoun("I", "me", "am", "was"),
    "you.one": Pronoun("you", "you", "are", "were"),
    "you.many": Pronoun("you", "you", "are", "were"),
    "you.formal": Pronoun("you", "you", "are", "were"),
    "he": Pronoun("he", "him", "is", "was", third=True),
    "she": Pronoun("she", "her", "is", "was", third=True),
    "it": Pronoun("it", "it", "is", "was", third=True),
    "it.m": Pronoun("it", "it", "is", "was", third=True),
    "it.f": Pronoun("it", "it", "is", "was", third=True),
    "it.n": Pronoun("it", "it", "is", "was", third=True),
    "we": Pronoun("we", "us", "are", "were"),
    "they": Pronoun("they", "them", "are", "were"),
    "who": Pronoun("who", "who", "is", "was", third=True),
    "what": Pronoun("what", "what", "is", "was", third=True),
}

# noun: its plural ("-" for words without one) and its classes.
_NOUNS = """
man men person | woman women person | boy boys person | girl girls person | teacher teachers person
doctor doctors person | friend friends person | student students person | mother - kin
father - kin | brother - kin | sister - kin | uncle - kin | aunt - kin | grandfather - kin
grandmother - kin
dog dogs animal | cat cats animal | bird birds animal | cow cows animal | horse horses animal
book books text ware thing written | newspaper newspapers text ware thing | letter letters text written
story stories text written art | poem poems text written art | film films film art
song songs song art | picture pictures ware thing
apple apples food ware | banana bananas food ware | mango mangoes food ware | egg eggs food ware dish
cake cakes food ware | bread - food ware | fish - food ware dish | rice - food ware dish
soup - food dish | coffee - drink | tea - drink | milk - drink ware | water - drink
car cars vehicle ware thing | bicycle bicycles vehicle ware thing | bag bags ware thing
chair chairs ware thing | table tables ware thing | key keys thing | lamp lamps ware thing
light.lamp lights ware thing | shirt shirts cloth ware thing | flower flowers ware thing
house houses building | room rooms building | door doors opening | window windows opening
question questions question
football - game | chess - game | cricket - game | tennis - game
piano - instrument | guitar - instrument | violin - instrument | flute - instrument | veena - instrument
garden - inside | kitchen - inside | park - inside town | school - at town | bank.money - at town
station - at town | shop - inside town | city - inside town | temple - at town | bank.river - on
"""


def _nouns() -> dict[str, tuple[str, tuple[str, ...]]]:
    rows = (row.split() for row in _NOUNS.replace("\n", "|").split("|") if row.strip())
    return {key: (plural, tuple(classes)) for key, plural, *classes in rows}


NOUNS = _nouns()
TITLES = ("transformers", "titanic", "avatar", "gandhi")

# verb: base, third person, past; then the classes or nouns of its objects.
_VERBS = """
see see sees saw : film person animal vehicle building
enjoy enjoy enjoys enjoyed : art
read read reads read : text
write write writes wrote : written
buy buy buys bought : ware
sell sell sells sold : vehicle book bag table lamp light.lamp flower
eat eat eats ate : food
eat.animal eat eats ate : fish egg bread rice banana
drink drink drinks drank : drink
drink.animal drink drinks drank : milk water
cook cook cooks cooked : dish
hear hear hears heard : song story
open open opens opened : opening
close close closes closed : opening
look look looks looked : key bag book dog cat friend doctor newspaper
meet meet meets met : person kin
love love loves loved : person kin
help help helps helped : person kin
call call calls called : person kin
wash wash washes washed : vehicle apple table
wash.cloth wash washes washed : cloth
play.game play plays played : game
play.instrument play plays played : instrument
like like likes liked : film song book food drink animal person
know.person know knows knew : person kin
have have has had : ware vehicle animal question
need want wants wanted : drink ware
give give gives gave : ware vehicle
send send sends sent : letter book picture flower
go go goes went :
travel go goes went :
come come comes came :
live live lives lived :
work work works worked :
sleep sleep sleeps slept :
think think thinks thought :
know.fact know knows knew :
say say says said :
"""


class Verb(NamedTuple):
    """The English forms of a verb and the nouns that can be its object."""

    base: str
    third: str
    past: str
    objects: tuple[str, ...]


def _objects(names: list[str]) -> tuple[str, ...]:
    return tuple(key for key, (_, classes) in NOUNS.items() if key in names or set(classes) & set(names))


def _verbs() -> dict[str, Verb]:
    verbs = {}
    for row in _VERBS.strip().splitlines():
        forms, _, names = row.partition(":")
        key, base, third, past = forms.split()
        verbs[key] = Verb(base, third, past, _objects(names.split()))
    return verbs


VERBS = _verbs()
PARTICLES = {"look": "for"}

# Adjectives of each noun class, before a noun or after "is"; the sense follows from the noun.
ADJECTIVES = {
    "good": "person text film art ware vehicle",
    "new": "book film song vehicle ware building",
    "old.thing": "book film song vehicle chair table building",
    "old.person": "person kin",
    "big": "animal ware building vehicle",
    "small": "animal ware building vehicle",
    "beautiful": "picture flower song poem building woman girl bird",
    "bright.person": "person",
    "bright.thing": "lamp light.lamp room kitchen",
    "light": "bag chair bicycle",
    "hard.difficult": "question book",
    "hard.firm": "chair bread",
    "interesting": "text film question",
    "important": "letter book question key",
    "red": "vehicle ware",
    "hot": "coffee tea milk soup",
    "tasty": "food dish",
}
# Things for which no colour, size or judgement of the list above is used.
UNSUITABLE = {
    ("big", "newspaper"), ("small", "newspaper"), ("big", "milk"), ("small", "milk"), ("red", "newspaper"),
    ("big", "rice"), ("small", "rice"), ("red", "rice"), ("red", "milk"), ("red", "egg"), ("red", "banana"),
    ("red", "bread"), ("red", "fish"), ("red", "picture"), ("red", "cake"), ("new", "apple"), ("new", "egg"),
    ("new", "banana"), ("new", "mango"), ("new", "cake"), ("new", "bread"), ("new", "fish"), ("new", "rice"),
    ("new", "milk"), ("new", "flower"), ("new", "newspaper"), ("red", "mango"), ("big", "bread"),
    ("small", "bread"), ("good", "egg"), ("good", "flower"), ("old.person", "boy"), ("old.person", "girl"),
    ("tasty", "egg"), ("hard.firm", "rice"),
}  # fmt: skip
STATES = ("tired", "happy", "sad")

DETERMINERS = {
    "the": "the", "a": "a", "this": "this", "my": "my", "our": "our", "his": "his", "her": "her",
    "your.one": "your", "your.many": "your", "your.formal": "your",
    "two": "two", "three": "three", "four": "four",
}  # fmt: skip
NUMBERS = ("two", "three", "four")

TIMES = {
    "today": "today/ADV/1",
    "yesterday": "yesterday/ADV/1",
    "tomorrow": "tomorrow/ADV/1",
    "now": "now/ADV/1",
    "every day": "every/DET/1 day/NOUN/2",
    "morning": "in/ADP/1 the/DET/2 morning/NOUN/3",
    "evening": "in/ADP/1 the/DET/2 evening/NOUN/3",
    "night": "at/ADP/1 night/NOUN/3",
    "last week": "last/ADJ/1 week/NOUN/2",
    "next week": "next/ADJ/1 week/NOUN/2",
}
TIMES_OF = {
    "present": ("today", "now", "every day", "morning", "evening", "night"),
    "past": ("today", "yesterday", "last week", "yesterday"),
    "future": ("today", "tomorrow", "next week", "tomorrow"),
    "can": ("today", "tomorrow", "now"),
    "must": ("today", "tomorrow", "now", "next week"),
    "want": ("today", "tomorrow", "now"),
    "like": ("morning", "evening", "night"),
}
ADDRESSES = ("children", "friends", "sir")

# Places of actions, with the preposition; "on the bank" is the river's, "at the bank" is the other.
LOCATIONS = {
    "work": {"kitchen": "in", "garden": "in", "school": "at", "bank.money": "at", "station": "at",
             "shop": "in", "city": "in"},
    "sleep": {"garden": "in", "park": "in", "house": "in", "room": "in", "bank.river": "on"},
    "play.game": {"garden": "in", "park": "in", "school": "at", "room": "in"},
    "read": {"garden": "in", "park": "in", "kitchen": "in", "station": "at", "school": "at", "room": "in",
             "bank.river": "on"},
    "eat": {"kitchen": "in", "garden": "in", "school": "at", "station": "at", "bank.river": "on"},
}  # fmt: skip
DIETS = {
    "dog": ("bread", "egg", "rice"),
    "cat": ("fish", "egg"),
    "bird": ("bread", "rice", "fish"),
    "cow": ("banana", "bread"),
    "horse": ("banana", "bread"),
}
BEDS = {
    "dog": ("garden", "house", "park"),
    "cat": ("garden", "house", "room"),
    "bird": ("garden", "park"),
    "cow": ("garden", "park"),
    "horse": ("garden", "park"),
}
SURFACES = ("table", "chair")
CONTAINERS = ("bag", "kitchen", "room", "house", "car")
LYING = ("key", "book", "letter", "shirt", "newspaper", "flower", "lamp", "light.lamp")


def _suits(key: str) -> tuple[str, ...]:
    classes = NOUNS[key][1]
    return tuple(
        adjective
        for adjective, names in ADJECTIVES.items()
        if (key in names.split() or set(classes) & set(names.split())) and (adjective, key) not in UNSUITABLE
    )


SUITS = {key: _suits(key) for key in NOUNS}
# Adjectives of praise and of blame, for "but".
PRAISE = ("good", "new", "beautiful", "bright.thing", "light", "interesting", "important", "tasty")
BLAME = ("old.thing", "small", "big", "hard.difficult", "hard.firm")
