"""German: verb second, the rest of the verb last; case, gender and number on everything before a noun."""

from functools import cache

from heedful.data.corpora.grammar import Clause, Nominal, Place, Sentence, Token, Tokens, pattern, word
from heedful.data.corpora.lexicon import (
    ADJECTIVES,
    DETERMINERS,
    GERMAN_PERSONS,
    NAMES,
    NOUNS,
    PRONOUNS,
    TIMES,
    VERBS,
)

Endings = tuple[tuple[str, ...], ...]

CASES = ("nominative", "accusative", "dative")
GENDERS = "mfnp"  # p: plural
# Articles and endings by case and gender.
THE = (("der", "die", "das", "die"), ("den", "die", "das", "die"), ("dem", "der", "dem", "den"))
THIS = (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en"))
EIN = (("", "e", "", "e"), ("en", "e", "", "e"), ("em", "er", "em", "en"))
AFTER_THE = (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en", "en", "en", "en"))
AFTER_EIN = (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en", "en", "en", "en"))
ALONE = THIS
MODALS = ("future", "can", "must", "want")
QUESTIONS = {"where": "wo", "where.to": "wohin", "when": "wann", "why": "warum"}
RELATIONS = {"in": "in", "at": "in", "on": "auf", "under": "unter", "behind": "hinter"}
CONTRACTED = {
    ("in", "dem"): "im",
    ("an", "dem"): "am",
    ("in", "das"): "ins",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}


@cache
def nominal(phrase: Nominal, case: str, role: str, *, denied: bool = False) -> Tokens:
    """Write a noun phrase in a case; ``denied`` writes "kein" instead of "ein" or of no article."""
    if phrase.noun in PRONOUNS:
        return word(getattr(PRONOUNS[phrase.noun], f"german_{case}"), "PRON", f"{role}.noun")
    if phrase.noun not in NOUNS:
        return _proper(phrase.noun, case, role)
    at, column = CASES.index(case), _column(phrase)
    tokens, endings = _determiner(phrase, at, column, role, denied=denied)
    if phrase.adjective:
        text = ADJECTIVES[phrase.adjective].german + endings[at][column]
        tokens += word(text, "ADJ", f"{role}.adjective")
    tokens += word(_declined(phrase, case), "NOUN", f"{role}.noun")
    return tokens + (word(NAMES[phrase.title].german, "PROPN", f"{role}.title") if phrase.title else ())


def _column(phrase: Nominal) -> int:
    """Return the index of a noun phrase in `GENDERS`."""
    return GENDERS.index("p" if phrase.plural else NOUNS[phrase.noun].gender)


def _declined(phrase: Nominal, case: str) -> str:
    noun = NOUNS[phrase.noun]
    if not phrase.plural:
        return noun.german if case == "nominative" else noun.german_weak or noun.german
    return noun.german_plural + ("n" if case == "dative" and noun.german_plural[-1] not in "ns" else "")


def _determiner(phrase: Nominal, at: int, column: int, role: str, *, denied: bool) -> tuple[Tokens, Endings]:
    """Return the determiner, and the table of the endings of an adjective after it."""
    key, node = phrase.determiner, f"{role}.determiner"
    if denied:
        return word("kein" + EIN[at][column], "DET", node, "not"), AFTER_EIN
    if not key:
        return (), ALONE
    entry = DETERMINERS[key]
    if key == "the":
        return word(THE[at][column], "DET", node), AFTER_THE
    if key == "this":
        return word(entry.german + THIS[at][column], "DET", node), AFTER_THE
    if entry.tag == "NUM":
        return word(entry.german, "NUM", node), ALONE
    ending = EIN[at][column]
    stem = "eur" if entry.german == "euer" and ending else entry.german
    return word(stem + ending, "DET", node), AFTER_EIN


def _proper(name: str, case: str, role: str) -> Tokens:
    title, _, own = NAMES[name].german.rpartition(" ")
    if title == "Herr" and case != "nominative":
        title = "Herrn"
    return (*(word(title, "NOUN", f"{role}.form") if title else ()), *word(own, "PROPN", f"{role}.noun"))


def place(where: Place, role: str) -> Tokens:
    """Write a place: "im Haus", "zur Schule", "nach Berlin"."""
    relation, noun = where.relation, where.nominal.noun
    if noun not in NOUNS:
        return (
            *word("nach" if relation == "to" else "in", "ADP", role),
            *word(noun, "PROPN", f"{role}.noun"),
        )
    if relation == "to":
        preposition = NOUNS[noun].german_to
    else:
        at = NOUNS[noun].german_at if relation in ("at", "on") else ""
        preposition = at or RELATIONS[relation]
    case = "accusative" if relation == "to" and preposition == "in" else "dative"
    rest = nominal(where.nominal, case, role)
    short = CONTRACTED.get((preposition, rest[0].text))
    if short is None:
        return (*word(preposition, "ADP", role), *rest)
    return (*word(short, "ADP", role, *rest[0].nodes), *rest[1:])


@cache
def person(subject: Nominal) -> int:
    """Return the index of the verb form that a subject takes."""
    own = PRONOUNS[subject.noun].german_person if subject.noun in PRONOUNS else ""
    return GERMAN_PERSONS.index(own or ("sie" if subject.plural or subject.is_joint else "er"))


def verb_group(c: Clause, at: str) -> tuple[Token, Tokens]:
    """Return the finite verb and the last part: a prefix, an infinitive or a participle."""
    verb, who = VERBS[c.verb], person(c.subject)
    whole, finite, lexical = (f"{at}verb", f"{at}finite"), (f"{at}finite",), (f"{at}verb",)
    if c.tense in MODALS:
        infinitive = verb.german_prefix + verb.german[GERMAN_PERSONS.index("wir")]
        return Token(VERBS[c.tense].german[who], "AUX", finite), word(infinitive, "VERB", *lexical)
    tag = "AUX" if c.verb == "be" else "VERB"
    if c.tense == "past" and verb.german_past:
        return Token(verb.german_past[who], tag, whole), ()
    if c.tense == "past":
        auxiliary = VERBS["have" if verb.german_auxiliary == "haben" else "be"].german[who]
        participle = verb.german_prefix + verb.german_participle
        return Token(auxiliary, "AUX", finite), word(participle, "VERB", *lexical)
    end = word(verb.german_prefix, "ADP", *lexical) if verb.german_prefix else ()
    return Token(verb.german[who], tag, lexical if c.tense == "like" else whole), end


def middle(c: Clause, at: str) -> Tokens:
    """Return the words between the two parts of the verb, without the subject.

    Pronouns come first; then time, recipient, object; a definite object goes before the time if the
    clause is denied by "nicht"; places and qualities come last.
    """
    is_idiom = c.verb.startswith("play")  # "nicht Klavier spielen"
    is_bare = bool(c.object and c.object.determiner in ("", "a") and c.object.noun in NOUNS)
    takes_kein = c.negative and is_bare and not is_idiom
    thing = _object(c, at, denied=takes_kein)
    time = pattern(TIMES[c.time].german, f"{at}time") if c.time and not c.early else ()
    gladly = word("gern", "ADV", f"{at}finite") if c.tense == "like" else ()
    denied = word("nicht", "PART", f"{at}not") if c.negative and not takes_kein else ()
    recipient = nominal(c.recipient, "dative", f"{at}recipient") if c.recipient else ()
    if is_idiom and denied:
        return (*time, *denied, *thing)
    is_early = bool(denied or (c.object and c.object.noun in PRONOUNS))
    first, second = (thing, ()) if is_early else ((), thing)
    quality = word(ADJECTIVES[c.quality].german, "ADJ", f"{at}quality") if c.quality else ()
    where = place(c.place, f"{at}place") if c.place else ()
    if where and second:  # indefinite objects are next to the verb
        return (*time, *where, *second)
    if c.recipient and c.recipient.noun in PRONOUNS:
        return (*recipient, *first, *time, *gladly, *second, *denied, *where, *quality)
    return (*first, *time, *recipient, *gladly, *second, *denied, *where, *quality)


def _object(c: Clause, at: str, *, denied: bool) -> Tokens:
    if c.object is None or c.question == "object":
        return ()
    phrase = c.object
    if c.verb == "play.instrument":  # "spielt Klavier", without the English article
        phrase = phrase._replace(determiner="")
    return nominal(phrase, VERBS[c.verb].german_case, f"{at}object", denied=denied)


def subject_of(c: Clause, at: str) -> Tokens:
    """Write the subject in the nominative."""
    if not c.subject.is_joint:
        return nominal(c.subject, "nominative", f"{at}subject")
    first, _, second = c.subject.noun.partition(" and ")
    both = _proper(first, "nominative", f"{at}subject"), _proper(second, "nominative", f"{at}partner")
    return (*both[0], *word("und", "CCONJ", f"{at}and"), *both[1])


def main_clause(c: Clause, at: str = "") -> Tokens:
    """Write a clause with the finite verb second (first in a yes/no question)."""
    finite, end = verb_group(c, at)
    subject, rest = subject_of(c, at), (*middle(c, at), *end)
    if c.question == "whether":
        return (finite, *subject, *rest)
    front = _front(c, at)
    return (*front, finite, *subject, *rest) if front else (*subject, finite, *rest)


def _front(c: Clause, at: str) -> Tokens:
    if c.question == "object" and c.object:
        return nominal(c.object, VERBS[c.verb].german_case, f"{at}object")
    if c.question and c.question != "subject":
        is_motion = c.question == "where" and c.verb in ("go", "travel")
        return word(QUESTIONS["where.to" if is_motion else c.question], "ADV", f"{at}asked")
    return pattern(TIMES[c.time].german, f"{at}time") if c.early else ()


def subordinate(c: Clause, at: str) -> Tokens:
    """Write a clause with the finite verb last: "..., dass sie das Buch gelesen hat"."""
    finite, end = verb_group(c, at)
    before = (*subject_of(c, at), *middle(c, at))
    if VERBS[c.verb].german_prefix and c.tense == "present":
        return (*before, finite._replace(text=end[0].text + finite.text))
    return (*before, *end, finite)


def sentence(s: Sentence) -> Tokens:
    """Write a whole sentence with its punctuation."""
    return (*_address(s.address), *_body(s), *word("?" if s.main.question else ".", "PUNCT", "stop"))


def _address(name: str) -> Tokens:
    if not name:
        return ()
    is_noun = NAMES[name].kind == "address"
    own = (
        word(NAMES[name].german, "NOUN", "address.noun")
        if is_noun
        else _proper(name, "nominative", "address")
    )
    return (*own, *word(",", "PUNCT", "address.comma"))


def _body(s: Sentence) -> Tokens:
    if s.kind == "request":
        finite, end = verb_group(s.main, "")
        polite = word("Sie", "PRON", "polite")
        return (*word("bitte", "INTJ", "please"), finite, *polite, *middle(s.main, ""), *end)
    if s.other is None:
        return main_clause(s.main)
    if s.kind == "relative":
        return _relative(s.main, s.other)
    text, tag = {"that": ("dass", "SCONJ"), "because": ("weil", "SCONJ"), "but": ("aber", "CCONJ")}[s.kind]
    joint = (*word(",", "PUNCT", "comma"), *word(text, tag, "joint"))
    write = main_clause if s.kind == "but" else subordinate
    return (*main_clause(s.main), *joint, *write(s.other, "other."))


def _relative(main: Clause, inner: Clause) -> Tokens:
    case = CASES.index(VERBS[inner.verb].german_case)
    that = word(THE[case][_column(main.subject)], "PRON", "other.that")
    finite, end = verb_group(main, "")
    clause = subordinate(inner._replace(object=None), "other.")
    commas = word(",", "PUNCT", "comma"), word(",", "PUNCT", "comma.end")
    opening = (*subject_of(main, ""), *commas[0], *that, *clause, *commas[1])
    return (*opening, finite, *middle(main, ""), *end)
