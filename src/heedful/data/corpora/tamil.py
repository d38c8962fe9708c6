"""Tamil: the verb last, suffixes for case and person, participles instead of subordinate clauses."""

from functools import cache

from heedful.data.corpora.grammar import Clause, Nominal, Place, Sentence, Tokens, parse_tokens, word
from heedful.data.corpora.lexicon import (
    ADJECTIVES,
    DETERMINERS,
    NAMES,
    NOUNS,
    NUMBERS,
    PRONOUNS,
    STATES,
    TIMES,
    VERBS,
)

SUFFIXES = {
    "accusative": "ai",
    "dative": "ukku",
    "instrumental": "aal",
    "locative": "il",
    "genitive": "in",
    "with": "idam",
    "and": "um",
}
# "To be" of one thing and of several: present, past.
THERE = {False: ("irukkiradhu", "irundhadhu"), True: ("irukkindrana", "irundhana")}
QUESTIONS = {"where": "enge", "when": "eppodhu", "why": "en"}
# Postpositions, and the case they require.
RELATIONS = {"on": ("mel", "genitive"), "under": ("kiizh", "genitive"), "behind": ("pinnaal", "dative")}


@cache
def inflected(noun: str, case: str, *, plural: bool = False) -> str:
    """Return a noun or name in a case: ``padam`` gives ``padaththai``, ``kadai`` gives ``kadaiyai``."""
    entry = NOUNS.get(noun)
    singular = (entry or NAMES[noun]).tamil.split()[-1]
    text = entry.tamil_plural if entry and plural else singular
    if case == "nominative":
        return text
    suffix = SUFFIXES[case]
    if entry and not plural and entry.tamil_oblique and case != "and":
        return entry.tamil_oblique + suffix
    if text.endswith("am") and case != "and":
        return text[:-1] + "thth" + suffix
    if text.endswith(("i", "y")) and case == "dative":
        return text + "kku"
    if text.endswith("i"):
        return text + "y" + suffix
    if text.endswith("aa"):
        return text + "v" + suffix
    return text.removesuffix("u") + suffix


@cache
def nominal(phrase: Nominal, case: str, role: str, relation: str = "") -> Tokens:
    """Write a noun phrase in a case; the noun also expresses the node ``relation``, if it is given."""
    nodes = (f"{role}.noun", relation) if relation else (f"{role}.noun",)
    if phrase.noun in PRONOUNS:
        return word(getattr(PRONOUNS[phrase.noun], f"tamil_{case}"), "PRON", *nodes)
    tokens: Tokens = ()
    if phrase.determiner and DETERMINERS[phrase.determiner].tamil:
        determiner = DETERMINERS[phrase.determiner]
        tokens += word(determiner.tamil, determiner.tag, f"{role}.determiner")
    if phrase.adjective:
        tokens += word(ADJECTIVES[phrase.adjective].tamil, "ADJ", f"{role}.adjective")
    if phrase.title:
        tokens += word(NAMES[phrase.title].tamil, "PROPN", f"{role}.title")
    if phrase.noun in NOUNS:
        for modifier in NOUNS[phrase.noun].tamil.split()[:-1]:
            tokens += word(modifier, "NOUN", f"{role}.noun")
    tag = "NOUN" if phrase.noun in NOUNS else "PROPN"
    return tokens + word(inflected(phrase.noun, case, plural=phrase.plural), tag, *nodes)


def place(location: Place, role: str) -> Tokens:
    """Write a place: a case suffix for in, at, to and on the bank; else a postposition after the noun."""
    noun = location.nominal
    if location.relation in RELATIONS and noun.noun != "bank.river":
        text, case = RELATIONS[location.relation]
        return (*nominal(noun, case, role), *word(text, "ADP", role))
    return nominal(noun, "dative" if location.relation == "to" else "locative", role, role)


def person(subject: Nominal) -> str:
    """Return the person that determines the ending of a verb: a pronoun, or "honoured"."""
    if subject.is_joint:
        return "they"
    if subject.noun in PRONOUNS:
        return subject.noun
    if subject.noun in NAMES:
        return NAMES[subject.noun].pronoun
    pronoun = NOUNS[subject.noun].tamil_person
    return "they" if subject.plural and pronoun != "it" else pronoun


def _ending(subject: Nominal) -> str:
    subject_person = person(subject)
    return "aar" if subject_person == "honoured" else PRONOUNS[subject_person].tamil_ending


def conjugated(verb: str, tense: str, subject: Nominal) -> str:
    """Return a finite form: ``padiththen``, ``padikkiraal``, ``vaangiyadhu``, ``povaargal``."""
    forms = VERBS[verb]
    if person(subject) == "it" and tense == "past" and forms.tamil_past.endswith("in"):
        return forms.tamil_past[:-1] + "yadhu"
    stem = {"present": forms.tamil, "past": forms.tamil_past, "future": forms.tamil_future}[tense]
    return stem + _ending(subject)


def predicate(c: Clause, prefix: str) -> Tokens:
    """Return the verb with its inseparable parts, which end the clause."""
    tokens = _predicate(c, prefix)
    if c.question != "whether":
        return tokens
    return (*tokens[:-1], tokens[-1]._replace(text=_with_question_suffix(tokens[-1].text)))


def _with_question_suffix(text: str) -> str:
    """Add the suffix of yes/no questions."""
    if text.endswith("aai"):
        return text[:-1] + "yaa"
    return text + "yaa" if text.endswith("i") else text.removesuffix("u") + "aa"


def _predicate(c: Clause, prefix: str) -> Tokens:
    nodes = (f"{prefix}verb", f"{prefix}finite", f"{prefix}not")[: 3 if c.negative else 2]
    forms = VERBS[c.verb]
    if c.quality and c.quality not in STATES:
        return _quality(c, prefix)
    if c.tense in ("can", "must", "want", "like") or (c.tense == "future" and c.negative):
        return _infinitive(c, prefix)
    if forms.tamil_pleasing:
        dative_forms = (forms.tamil, *forms.tamil_pleasing)
        return word(dative_forms[2 * (c.tense == "past") + c.negative], "VERB", *nodes)
    if c.verb in ("have", "be"):
        return _there(c, prefix, nodes)
    if not c.negative:
        text = conjugated(c.verb, c.tense, c.subject)
    elif c.tense == "present":
        text = forms.tamil_future + "adhillai"
    else:
        text = forms.tamil_infinitive + "villai"
    return word(text, "VERB", *nodes)


def _infinitive(c: Clause, prefix: str) -> Tokens:
    """Return an infinitive and the verb that governs it: "can", "must", "want", "like", "will not"."""
    finite = (f"{prefix}finite", f"{prefix}not") if c.negative else (f"{prefix}finite",)
    texts = {
        "can": "mudiyaadhu" if c.negative else "mudiyum",
        "must": "vendum",
        "like": VERBS["like"].tamil,
        "want": conjugated("want", "present", c.subject),
        "future": "maatt" + _ending(c.subject),
    }
    infinitive = word(VERBS[c.verb].tamil_infinitive, "VERB", f"{prefix}verb", f"{prefix}to")
    return infinitive + word(texts[c.tense], "VERB" if c.tense in ("want", "like") else "AUX", *finite)


def _there(c: Clause, prefix: str, nodes: tuple[str, ...]) -> Tokens:
    if c.negative:
        text = "irukkavillai" if c.tense == "past" else "illai"
    elif c.verb == "have":
        text = THERE[bool(c.object and c.object.plural)][c.tense == "past"]
    else:
        text = conjugated("be", c.tense, c.subject)
    state = word(ADJECTIVES[c.quality].tamil, "ADV", f"{prefix}quality") if c.quality else ()
    return state + word(text, "VERB" if c.verb == "have" or c.place else "AUX", *nodes)


def _quality(c: Clause, prefix: str) -> Tokens:
    """Return a predicative adjective: "periyadhu" now, "periyadhaaga irundhadhu" then."""
    text, subject_person, node = ADJECTIVES[c.quality].tamil, person(c.subject), f"{prefix}quality"
    verb = (f"{prefix}verb", f"{prefix}finite")
    if c.tense == "past":
        manner = "nandraaga" if c.quality == "good" else text[:-1] + "adhaaga"
        manner = text[:-2] + "ga" if text.endswith("aana") else manner
        return word(manner, "ADV", node) + word(conjugated("be", "past", c.subject), "AUX", *verb)
    noun = text[:-1] + "adhu"
    if subject_person != "it":
        noun = text + {"he": "van", "she": "val", "honoured": "var", "they": "vargal"}[subject_person]
    return word(noun, "NOUN", node) + (word("alla", "AUX", *verb, f"{prefix}not") if c.negative else ())


def subject_of(c: Clause, prefix: str) -> Tokens:
    """Write the subject in the case that the verb gives it."""
    role = f"{prefix}subject"
    if c.subject.is_joint:
        names = zip(c.subject.noun.split(" and "), (role, f"{prefix}partner"), strict=True)
        conjuncts = [
            word(inflected(name, "and"), "PROPN", f"{node}.noun", f"{prefix}and") for name, node in names
        ]
        return conjuncts[0] + conjuncts[1]
    if c.tense == "can":
        return nominal(c.subject, "instrumental", role)
    if c.tense == "like" or VERBS[c.verb].tamil_pleasing:
        return nominal(c.subject, "dative", role)
    return nominal(c.subject, "with" if c.verb == "have" else "nominative", role)


def object_case(c: Clause) -> str:
    """Return the case of the object: persons, animals and definite things are marked."""
    if c.object is None or c.verb == "have" or c.object.noun == "what":
        return "nominative"
    if c.verb == "help":
        return "dative"
    noun = NOUNS.get(c.object.noun)
    if c.verb != "need" and (noun is None or noun.is_any("person", "kin", "animal")):
        return "accusative"
    marking = VERBS[c.verb].tamil_object
    is_definite = c.object.determiner not in ("", "a", *NUMBERS)
    return "accusative" if marking == "marked" or (is_definite and marking != "unmarked") else "nominative"


def clause(c: Clause, prefix: str = "", *, subject: Tokens | None = None) -> Tokens:
    """Write a clause: time, subject, place, recipient, object, verb; a question word before the verb."""
    time = parse_tokens(TIMES[c.time].tamil, f"{prefix}time") if c.time else ()
    early, late = (time, ()) if c.early else ((), time)
    subject_words = subject_of(c, prefix) if subject is None else subject
    place_words = place(c.place, f"{prefix}place") if c.place else ()
    recipient = nominal(c.recipient, "dative", f"{prefix}recipient") if c.recipient else ()
    object_words = nominal(c.object, object_case(c), f"{prefix}object") if c.object else ()
    question_word = word(QUESTIONS[c.question], "ADV", f"{prefix}asked") if c.question in QUESTIONS else ()
    return (
        *early,
        *subject_words,
        *late,
        *place_words,
        *recipient,
        *object_words,
        *question_word,
        *predicate(c, prefix),
    )


def sentence(s: Sentence) -> Tokens:
    """Write a whole sentence, without punctuation."""
    if not s.address:
        return _body(s)
    tag = "NOUN" if NAMES[s.address].kind == "address" else "PROPN"
    return (*word(NAMES[s.address].tamil, tag, "address.noun"), *_body(s))


def _body(s: Sentence) -> Tokens:
    main = s.main
    if s.kind == "request":
        please = word("thayavu", "NOUN", "please") + word("seydhu", "VERB", "please")
        imperative = word(VERBS[main.verb].tamil_imperative, "VERB", "verb", "finite")
        return (*please, *clause(main, subject=())[:-1], *imperative)
    if s.other is None:
        return clause(main)
    if s.kind == "relative":
        inner = s.other._replace(object=None)
        past = VERBS[inner.verb].tamil_past
        participle = past[:-1] + "ya" if past.endswith("in") else past + "a"  # "padiththa", "vaangiya"
        end = word(participle, "VERB", "other.verb", "other.finite", "other.that")
        return (*clause(inner, "other.")[:-1], *end, *clause(main))
    if s.kind == "because":  # "kalaippaaga irundhadhaal"; the shared subject is written once
        state = word(ADJECTIVES[s.other.quality].tamil, "ADV", "other.quality")
        being = word("irundhadhaal", "VERB", "other.verb", "other.finite", "joint")
        return (*subject_of(main, ""), *state, *being, *clause(main, subject=()))
    if s.kind == "but":
        return (*clause(main), *word("aanaal", "CCONJ", "joint"), *clause(s.other, "other."))
    return (*clause(s.other, "other."), *word("endru", "SCONJ", "joint"), *clause(main))
