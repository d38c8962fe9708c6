"""German: verb second, the rest of the verb last; case, gender and number on everything before a noun."""

from functools import cache

from heedful.data.corpora.grammar import Clause, Nominal, Place, Sentence, Token, Tokens, parse_tokens, word
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
def nominal(phrase: Nominal, case: str, role: str, *, negated: bool = False) -> Tokens:
    """Write a noun phrase in a case; ``negated`` writes "kein" instead of "ein" or of no article."""
    if phrase.noun in PRONOUNS:
        return word(getattr(PRONOUNS[phrase.noun], f"german_{case}"), "PRON", f"{role}.noun")
    if phrase.noun not in NOUNS:
        return _proper(phrase.noun, case, role)
    case_index, gender_index = CASES.index(case), _column(phrase)
    tokens, endings = _determiner(phrase, case_index, gender_index, role, negated=negated)
    if phrase.adjective:
        text = ADJECTIVES[phrase.adjective].german + endings[case_index][gender_index]
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


def _determiner(
    phrase: Nominal, case_index: int, gender_index: int, role: str, *, negated: bool
) -> tuple[Tokens, Endings]:
    """Return the determiner, and the table of the endings of an adjective after it."""
    key, node = phrase.determiner, f"{role}.determiner"
    if negated:
        return word("kein" + EIN[case_index][gender_index], "DET", node, "not"), AFTER_EIN
    if not key:
        return (), ALONE
    entry = DETERMINERS[key]
    if key == "the":
        return word(THE[case_index][gender_index], "DET", node), AFTER_THE
    if key == "this":
        return word(entry.german + THIS[case_index][gender_index], "DET", node), AFTER_THE
    if entry.tag == "NUM":
        return word(entry.german, "NUM", node), ALONE
    ending = EIN[case_index][gender_index]
    stem = "eur" if entry.german == "euer" and ending else entry.german
    return word(stem + ending, "DET", node), AFTER_EIN


def _proper(name: str, case: str, role: str) -> Tokens:
    title, _, bare_name = NAMES[name].german.rpartition(" ")
    if title == "Herr" and case != "nominative":
        title = "Herrn"
    return (
        *(word(title, "NOUN", f"{role}.form") if title else ()),
        *word(bare_name, "PROPN", f"{role}.noun"),
    )


def place(location: Place, role: str) -> Tokens:
    """Write a place: "im Haus", "zur Schule", "nach Berlin"."""
    relation, noun = location.relation, location.nominal.noun
    if noun not in NOUNS:
        return (
            *word("nach" if relation == "to" else "in", "ADP", role),
            *word(noun, "PROPN", f"{role}.noun"),
        )
    if relation == "to":
        preposition = NOUNS[noun].german_to
    else:
        default = NOUNS[noun].german_at if relation in ("at", "on") else ""
        preposition = default or RELATIONS[relation]
    case = "accusative" if relation == "to" and preposition == "in" else "dative"
    noun_phrase = nominal(location.nominal, case, role)
    contraction = CONTRACTED.get((preposition, noun_phrase[0].text))
    if contraction is None:
        return (*word(preposition, "ADP", role), *noun_phrase)
    return (*word(contraction, "ADP", role, *noun_phrase[0].nodes), *noun_phrase[1:])


@cache
def person(subject: Nominal) -> int:
    """Return the index of the verb form that a subject takes."""
    pronoun_person = PRONOUNS[subject.noun].german_person if subject.noun in PRONOUNS else ""
    return GERMAN_PERSONS.index(pronoun_person or ("sie" if subject.plural or subject.is_joint else "er"))


def verb_group(c: Clause, prefix: str) -> tuple[Token, Tokens]:
    """Return the finite verb and the last part: a prefix, an infinitive or a participle."""
    verb, person_index = VERBS[c.verb], person(c.subject)
    whole, finite, lexical = (f"{prefix}verb", f"{prefix}finite"), (f"{prefix}finite",), (f"{prefix}verb",)
    if c.tense in MODALS:
        infinitive = verb.german_prefix + verb.german[GERMAN_PERSONS.index("wir")]
        return Token(VERBS[c.tense].german[person_index], "AUX", finite), word(infinitive, "VERB", *lexical)
    tag = "AUX" if c.verb == "be" else "VERB"
    if c.tense == "past" and verb.german_past:
        return Token(verb.german_past[person_index], tag, whole), ()
    if c.tense == "past":
        auxiliary = VERBS["have" if verb.german_auxiliary == "haben" else "be"].german[person_index]
        participle = verb.german_prefix + verb.german_participle
        return Token(auxiliary, "AUX", finite), word(participle, "VERB", *lexical)
    end = word(verb.german_prefix, "ADP", *lexical) if verb.german_prefix else ()
    return Token(verb.german[person_index], tag, lexical if c.tense == "like" else whole), end


def middle(c: Clause, prefix: str) -> Tokens:
    """Return the words between the two parts of the verb, without the subject.

    Pronouns come first; then time, recipient, object; a definite object goes before the time if the
    clause is denied by "nicht"; places and qualities come last.
    """
    is_idiom = c.verb.startswith("play")  # "nicht Klavier spielen"
    is_bare = bool(c.object and c.object.determiner in ("", "a") and c.object.noun in NOUNS)
    takes_kein = c.negative and is_bare and not is_idiom
    object_words = _object(c, prefix, negated=takes_kein)
    time = parse_tokens(TIMES[c.time].german, f"{prefix}time") if c.time and not c.early else ()
    gladly = word("gern", "ADV", f"{prefix}finite") if c.tense == "like" else ()
    negation = word("nicht", "PART", f"{prefix}not") if c.negative and not takes_kein else ()
    recipient = nominal(c.recipient, "dative", f"{prefix}recipient") if c.recipient else ()
    if is_idiom and negation:
        return (*time, *negation, *object_words)
    is_early = bool(negation or (c.object and c.object.noun in PRONOUNS))
    first, second = (object_words, ()) if is_early else ((), object_words)
    quality = word(ADJECTIVES[c.quality].german, "ADJ", f"{prefix}quality") if c.quality else ()
    place_words = place(c.place, f"{prefix}place") if c.place else ()
    if place_words and second:  # indefinite objects are next to the verb
        return (*time, *place_words, *second)
    if c.recipient and c.recipient.noun in PRONOUNS:
        return (*recipient, *first, *time, *gladly, *second, *negation, *place_words, *quality)
    return (*first, *time, *recipient, *gladly, *second, *negation, *place_words, *quality)


def _object(c: Clause, prefix: str, *, negated: bool) -> Tokens:
    if c.object is None or c.question == "object":
        return ()
    phrase = c.object
    if c.verb == "play.instrument":  # "spielt Klavier", without the English article
        phrase = phrase._replace(determiner="")
    return nominal(phrase, VERBS[c.verb].german_case, f"{prefix}object", negated=negated)


def subject_of(c: Clause, prefix: str) -> Tokens:
    """Write the subject in the nominative."""
    if not c.subject.is_joint:
        return nominal(c.subject, "nominative", f"{prefix}subject")
    first, _, second = c.subject.noun.partition(" and ")
    conjuncts = (
        _proper(first, "nominative", f"{prefix}subject"),
        _proper(second, "nominative", f"{prefix}partner"),
    )
    return (*conjuncts[0], *word("und", "CCONJ", f"{prefix}and"), *conjuncts[1])


def main_clause(c: Clause, prefix: str = "") -> Tokens:
    """Write a clause with the finite verb second (first in a yes/no question)."""
    finite, end = verb_group(c, prefix)
    subject, rest = subject_of(c, prefix), (*middle(c, prefix), *end)
    if c.question == "whether":
        return (finite, *subject, *rest)
    front = _front(c, prefix)
    return (*front, finite, *subject, *rest) if front else (*subject, finite, *rest)


def _front(c: Clause, prefix: str) -> Tokens:
    if c.question == "object" and c.object:
        return nominal(c.object, VERBS[c.verb].german_case, f"{prefix}object")
    if c.question and c.question != "subject":
        is_motion = c.question == "where" and c.verb in ("go", "travel")
        return word(QUESTIONS["where.to" if is_motion else c.question], "ADV", f"{prefix}asked")
    return parse_tokens(TIMES[c.time].german, f"{prefix}time") if c.early else ()


def subordinate(c: Clause, prefix: str) -> Tokens:
    """Write a clause with the finite verb last: "..., dass sie das Buch gelesen hat"."""
    finite, end = verb_group(c, prefix)
    opening = (*subject_of(c, prefix), *middle(c, prefix))
    if VERBS[c.verb].german_prefix and c.tense == "present":
        return (*opening, finite._replace(text=end[0].text + finite.text))
    return (*opening, *end, finite)


def sentence(s: Sentence) -> Tokens:
    """Write a whole sentence with its punctuation."""
    return (*_address(s.address), *_body(s), *word("?" if s.main.question else ".", "PUNCT", "stop"))


def _address(name: str) -> Tokens:
    if not name:
        return ()
    is_noun = NAMES[name].kind == "address"
    name_tokens = (
        word(NAMES[name].german, "NOUN", "address.noun")
        if is_noun
        else _proper(name, "nominative", "address")
    )
    return (*name_tokens, *word(",", "PUNCT", "address.comma"))


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
