"""German: verb second, the rest of the verb last; case, gender and number on everything before a noun."""

from functools import cache

from heedful.data.corpora.grammar import Clause, Nominal, Place, Sentence, Token, Tokens, pattern
from heedful.data.corpora.lexicon_german import (
    ADDRESSES,
    ADJECTIVES,
    AFTER_EIN,
    AFTER_THE,
    ALONE,
    AT,
    CONTRACTED,
    EIN,
    FORMAL,
    GENDERS,
    MODALS,
    NOUNS,
    NUMBERS,
    PERSON_OF,
    PERSONS,
    POSSESSIVES,
    PRETERITE,
    PRONOUNS,
    QUESTIONS,
    RELATIONS,
    THE,
    THIS,
    TIMES,
    TO,
    VERBS,
)

NOMINATIVE, ACCUSATIVE, DATIVE = range(3)


@cache
def nominal(phrase: Nominal, case: int, role: str, *, denied: bool = False) -> Tokens:
    """Write a noun phrase in a case; ``denied`` writes "kein" instead of "ein" or of no article."""
    here = (f"{role}.noun",)
    if phrase.noun in PRONOUNS:
        return (Token(PRONOUNS[phrase.noun][case], "PRON", here),)
    if phrase.noun not in NOUNS:
        return _proper(phrase.noun, case, role)
    noun = NOUNS[phrase.noun]
    column = GENDERS.index("p" if phrase.plural else noun.gender)
    endings: tuple[tuple[str, ...], ...] = ALONE
    tokens = []
    if phrase.determiner or denied:
        text, endings = _determiner(phrase, case, column, denied=denied)
        nodes = (f"{role}.determiner", "not") if denied else (f"{role}.determiner",)
        tokens.append(Token(text, "NUM" if phrase.determiner in NUMBERS else "DET", nodes))
    if phrase.adjective:
        text = ADJECTIVES[phrase.adjective] + endings[case][column]
        tokens.append(Token(text, "ADJ", (f"{role}.adjective",)))
    tokens.append(Token(_declined(phrase, case), "NOUN", here))
    if phrase.title:
        tokens.append(Token(phrase.title.capitalize(), "PROPN", (f"{role}.title",)))
    return tuple(tokens)


def _declined(phrase: Nominal, case: int) -> str:
    noun = NOUNS[phrase.noun]
    if not phrase.plural:
        return noun.singular if case == NOMINATIVE else noun.weak
    return noun.plural + ("n" if case == DATIVE and noun.plural[-1] not in "ns" else "")


def _determiner(
    phrase: Nominal, case: int, column: int, *, denied: bool
) -> tuple[str, tuple[tuple[str, ...], ...]]:
    key = phrase.determiner
    if denied:
        return "kein" + EIN[case][column], AFTER_EIN
    if key == "the":
        return THE[case][column], AFTER_THE
    if key == "this":
        return "dies" + THIS[case][column], AFTER_THE
    if key in NUMBERS:
        return NUMBERS[key], ALONE
    stem, ending = POSSESSIVES.get(key, "ein"), EIN[case][column]
    return ("eur" + ending if stem == "euer" and ending else stem + ending), AFTER_EIN


def _proper(name: str, case: int, role: str) -> Tokens:
    if name not in FORMAL:
        return (Token(name, "PROPN", (f"{role}.noun",)),)
    title, surname = FORMAL[name]
    if title == "Herr" and case != NOMINATIVE:
        title = "Herrn"
    return (Token(title, "NOUN", (f"{role}.form",)), Token(surname, "PROPN", (f"{role}.noun",)))


def place(where: Place, role: str) -> Tokens:
    """Write a place: "im Haus", "zur Schule", "nach Berlin"."""
    noun, node = where.nominal.noun, f"{role}.noun"
    if noun not in NOUNS:
        text = "nach" if where.relation == "to" else "in"
        return (Token(text, "ADP", (role,)), Token(noun, "PROPN", (node,)))
    preposition, case = TO[noun] if where.relation == "to" else RELATIONS[where.relation]
    preposition = AT.get(noun, preposition) if where.relation in ("at", "on") else preposition
    rest = nominal(where.nominal, case, role)
    short = CONTRACTED.get((preposition, rest[0].text))
    if short is None:
        return (Token(preposition, "ADP", (role,)), *rest)
    return (Token(short, "ADP", (role, *rest[0].nodes)), *rest[1:])


@cache
def person(subject: Nominal) -> int:
    """Return the index of the verb form that a subject takes."""
    plural = subject.plural or " and " in subject.noun
    return PERSONS.index(PERSON_OF.get(subject.noun, "sie" if plural else "er"))


def verb_group(c: Clause, at: str) -> tuple[Token, Tokens]:
    """Return the finite verb and the last part: a prefix, an infinitive or a participle."""
    verb, who = VERBS[c.verb], person(c.subject)
    whole, finite, lexical = (f"{at}verb", f"{at}finite"), (f"{at}finite",), (f"{at}verb",)
    if c.tense in MODALS:
        infinitive = Token(verb.prefix + verb.infinitive, "VERB", lexical)
        return Token(MODALS[c.tense][who], "AUX", finite), (infinitive,)
    tag = "AUX" if c.verb == "be" else "VERB"
    if c.tense == "past" and c.verb in PRETERITE:
        return Token(PRETERITE[c.verb][who], tag, whole), ()
    if c.tense == "past":
        participle = Token(verb.prefix + verb.participle, "VERB", lexical)
        auxiliary = VERBS["have" if verb.auxiliary == "haben" else "be"].present[who]
        return Token(auxiliary, "AUX", finite), (participle,)
    end = (Token(verb.prefix, "ADP", lexical),) if verb.prefix else ()
    return Token(verb.present[who], tag, (lexical if c.tense == "like" else whole)), end


def middle(c: Clause, at: str) -> Tokens:
    """Return the words between the two parts of the verb, without the subject.

    Pronouns come first; then time, recipient, object; a definite object goes before the time if the
    clause is denied by "nicht"; places and qualities come last.
    """
    none = _takes_kein(c)
    thing = _object(c, at, denied=none)
    time = pattern(TIMES[c.time], f"{at}time") if c.time and not c.early else ()
    gladly = (Token("gern", "ADV", (f"{at}finite",)),) if c.tense == "like" else ()
    denied = (Token("nicht", "PART", (f"{at}not",)),) if c.negative and not none else ()
    recipient = nominal(c.recipient, DATIVE, f"{at}recipient") if c.recipient else ()
    pronoun = bool(c.object and c.object.noun in PRONOUNS)
    idiom = c.verb.startswith("play")  # "nicht Klavier spielen"
    if idiom and denied:
        return (*time, *denied, *thing)
    first = thing if pronoun or denied else ()
    second = () if first else thing
    quality = (Token(ADJECTIVES[c.quality], "ADJ", (f"{at}quality",)),) if c.quality else ()
    where = place(c.place, f"{at}place") if c.place else ()
    if where and second:  # indefinite objects are next to the verb
        return (*time, *where, *second)
    if c.recipient and c.recipient.noun in PRONOUNS:
        return (*recipient, *first, *time, *gladly, *second, *denied, *where, *quality)
    return (*first, *time, *recipient, *gladly, *second, *denied, *where, *quality)


def _takes_kein(c: Clause) -> bool:
    bare = bool(c.object and c.object.determiner in ("", "a") and c.object.noun in NOUNS)
    return c.negative and bare and not c.verb.startswith("play")


def _object(c: Clause, at: str, *, denied: bool) -> Tokens:
    if c.object is None or c.question == "object":
        return ()
    phrase = c.object
    if c.verb == "play.instrument":  # "spielt Klavier", without the English article
        phrase = phrase._replace(determiner="")
    return nominal(phrase, VERBS[c.verb].case, f"{at}object", denied=denied)


def subject_of(c: Clause, at: str) -> Tokens:
    """Write the subject in the nominative."""
    first, joined, second = c.subject.noun.partition(" and ")
    if not joined:
        return nominal(c.subject, NOMINATIVE, f"{at}subject")
    und = Token("und", "CCONJ", (f"{at}and",))
    return (*_proper(first, 0, f"{at}subject"), und, *_proper(second, 0, f"{at}partner"))


def main_clause(c: Clause, at: str = "") -> Tokens:
    """Write a clause with the finite verb second (first in a yes/no question)."""
    finite, end = verb_group(c, at)
    subject, rest = subject_of(c, at), middle(c, at)
    if c.question == "whether":
        return (finite, *subject, *rest, *end)
    front = _front(c, at)
    if front:
        return (*front, finite, *subject, *rest, *end)
    return (*subject, finite, *rest, *end)


def _front(c: Clause, at: str) -> Tokens:
    if c.question == "object" and c.object:
        return nominal(c.object, VERBS[c.verb].case, f"{at}object")
    if c.question and c.question != "subject":
        motion = c.question == "where" and c.verb in ("go", "travel")
        return (Token(QUESTIONS["where.to" if motion else c.question], "ADV", (f"{at}asked",)),)
    return pattern(TIMES[c.time], f"{at}time") if c.early else ()


def subordinate(c: Clause, at: str) -> Tokens:
    """Write a clause with the finite verb last: "..., dass sie das Buch gelesen hat"."""
    finite, end = verb_group(c, at)
    before = (*subject_of(c, at), *middle(c, at))
    if VERBS[c.verb].prefix and c.tense == "present":
        return (*before, finite._replace(text=end[0].text + finite.text))
    return (*before, *end, finite)


def sentence(s: Sentence) -> Tokens:
    """Write a whole sentence with its punctuation."""
    stop = Token("?" if s.main.question else ".", "PUNCT", ("stop",))
    return (*_address(s), *_body(s), stop)


def _address(s: Sentence) -> Tokens:
    if not s.address:
        return ()
    if s.address in ADDRESSES:
        name: Tokens = (Token(ADDRESSES[s.address], "NOUN", ("address.noun",)),)
    else:
        name = _proper(s.address, NOMINATIVE, "address")
    return (*name, Token(",", "PUNCT", ("address.comma",)))


def _comma(node: str) -> Token:
    return Token(",", "PUNCT", (node,))


def _body(s: Sentence) -> Tokens:
    if s.kind == "request":
        return _request(s.main)
    if s.other is None:
        return main_clause(s.main)
    if s.kind == "relative":
        return _relative(s.main, s.other)
    word, tag = {"that": ("dass", "SCONJ"), "because": ("weil", "SCONJ"), "but": ("aber", "CCONJ")}[s.kind]
    write = main_clause if s.kind == "but" else subordinate
    joint = Token(word, tag, ("joint",))
    return (*main_clause(s.main), _comma("comma"), joint, *write(s.other, "other."))


def _request(c: Clause) -> Tokens:
    finite, end = verb_group(c, "")
    polite = Token("Sie", "PRON", ("polite",))
    return (Token("bitte", "INTJ", ("please",)), finite, polite, *middle(c, ""), *end)


def _relative(main: Clause, inner: Clause) -> Tokens:
    noun = NOUNS[main.subject.noun]
    column = GENDERS.index("p" if main.subject.plural else noun.gender)
    that = Token(THE[VERBS[inner.verb].case][column], "PRON", ("other.that",))
    finite, end = verb_group(main, "")
    clause = subordinate(inner._replace(object=None), "other.")
    opening = (*subject_of(main, ""), _comma("comma"), that, *clause, _comma("comma.end"))
    return (*opening, finite, *middle(main, ""), *end)
