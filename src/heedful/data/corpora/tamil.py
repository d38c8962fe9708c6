"""Tamil: the verb last, suffixes for case and person, participles instead of subordinate clauses."""

from functools import cache

from heedful.data.corpora.grammar import Clause, Nominal, Place, Sentence, Token, Tokens, pattern
from heedful.data.corpora.lexicon_english import NOUNS as ENGLISH_NOUNS
from heedful.data.corpora.lexicon_english import NUMBERS
from heedful.data.corpora.lexicon_tamil import (
    ADDRESSES,
    ADJECTIVES,
    BEFORE_NOUN,
    DETERMINERS,
    ENDINGS,
    LOCATIVE_ALWAYS,
    MARKED,
    NOUNS,
    PLEASING,
    PRONOUNS,
    QUESTIONS,
    RELATIONS,
    STATES,
    THERE,
    TIMES,
    TITLES,
    UNMARKED,
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
_CASES = ("nominative", "accusative", "dative", "instrumental", "with")


@cache
def inflected(noun: str, case: str, *, plural: bool = False) -> str:
    """Return a noun in a case: ``padam`` gives ``padaththai``, ``kadai`` gives ``kadaiyai``."""
    entry = NOUNS[noun]
    word = entry.plural if plural else entry.nominative
    if case == "nominative":
        return word
    suffix = SUFFIXES[case]
    if not plural and entry.oblique and case != "and":
        return entry.oblique + suffix
    if word.endswith("am") and case != "and":
        return word[:-1] + "thth" + suffix
    if word.endswith(("i", "y")) and case == "dative":
        return word + "kku"
    if word.endswith("i"):
        return word + "y" + suffix
    if word.endswith("aa"):
        return word + "v" + suffix
    return (word[:-1] if word.endswith("u") else word) + suffix


@cache
def nominal(phrase: Nominal, case: str, role: str, relation: str = "") -> Tokens:
    """Write a noun phrase in a case; the noun also expresses the node ``relation``, if it is given."""
    nodes = (f"{role}.noun", relation) if relation else (f"{role}.noun",)
    if phrase.noun in PRONOUNS:
        return (Token(PRONOUNS[phrase.noun][_CASES.index(case)], "PRON", nodes),)
    tokens = []
    if phrase.determiner in DETERMINERS:
        tokens.append(_determiner(phrase.determiner, f"{role}.determiner"))
    if phrase.adjective:
        tokens.append(Token(ADJECTIVES[phrase.adjective], "ADJ", (f"{role}.adjective",)))
    if phrase.title:
        tokens.append(Token(TITLES[phrase.title], "PROPN", (f"{role}.title",)))
    if phrase.noun in BEFORE_NOUN:
        tokens.append(Token(BEFORE_NOUN[phrase.noun], "NOUN", (f"{role}.noun",)))
    tag = "NOUN" if phrase.noun in ENGLISH_NOUNS else "PROPN"
    tokens.append(Token(inflected(phrase.noun, case, plural=phrase.plural), tag, nodes))
    return tuple(tokens)


def _determiner(key: str, node: str) -> Token:
    tag = "NUM" if key in NUMBERS else "DET" if key in ("a", "this") else "PRON"
    return Token(DETERMINERS[key], tag, (node,))


def place(where: Place, role: str) -> Tokens:
    """Write a place: a case suffix for in, at and to; else a postposition after the noun."""
    noun = where.nominal
    if where.relation in RELATIONS and noun.noun not in LOCATIVE_ALWAYS:
        word, case = RELATIONS[where.relation]
        return (*nominal(noun, case, role), Token(word, "ADP", (role,)))
    return nominal(noun, "dative" if where.relation == "to" else "locative", role, role)


def person(subject: Nominal) -> str:
    """Return the key of the verb ending that a subject takes."""
    if " and " in subject.noun:
        return "they"
    if subject.noun in PRONOUNS:
        return subject.noun
    pronoun = NOUNS[subject.noun].pronoun
    return "they" if subject.plural and pronoun != "it" else pronoun


def conjugated(verb: str, tense: str, who: str) -> str:
    """Return a finite form: ``padiththen``, ``padikkiraal``, ``vaangiyadhu``, ``povaargal``."""
    forms = VERBS[verb]
    if who == "it" and tense == "past" and forms.past.endswith("in"):
        return forms.past[:-1] + "yadhu"
    stem = {"present": forms.present, "past": forms.past, "future": forms.future}[tense]
    return stem + ENDINGS[who]


def participle(verb: str) -> str:
    """Return the past relative participle: ``padiththa``, ``vaangiya``."""
    past = VERBS[verb].past
    return past[:-1] + "ya" if past.endswith("in") else past + "a"


def asked(word: str) -> str:
    """Add the suffix of yes/no questions."""
    if word.endswith("aai"):
        return word[:-1] + "yaa"
    if word.endswith("i"):
        return word + "yaa"
    return (word[:-1] if word.endswith("u") else word) + "aa"


def predicate(c: Clause, at: str) -> Tokens:
    """Return the verb with its inseparable parts, which end the clause."""
    tokens = _predicate(c, at)
    if c.question == "whether":
        last = tokens[-1]
        tokens = (*tokens[:-1], last._replace(text=asked(last.text)))
    return tokens


def _predicate(c: Clause, at: str) -> Tokens:
    verb, finite, denied = f"{at}verb", f"{at}finite", f"{at}not"
    nodes = (verb, finite, denied) if c.negative else (verb, finite)
    if c.quality and c.quality not in STATES:
        return _quality(c, at)
    if c.tense in ("can", "must", "want", "like") or (c.tense == "future" and c.negative):
        return _infinitive(c, at)
    if c.verb in PLEASING:
        present, no, past, never = PLEASING[c.verb]
        word = (never if c.negative else past) if c.tense == "past" else (no if c.negative else present)
        return (Token(word, "VERB", nodes),)
    if c.verb in ("have", "be"):
        return _there(c, at)
    if not c.negative:
        return (Token(conjugated(c.verb, c.tense, person(c.subject)), "VERB", nodes),)
    forms = VERBS[c.verb]
    word = forms.future + "adhillai" if c.tense == "present" else forms.infinitive + "villai"
    return (Token(word, "VERB", nodes),)


def _infinitive(c: Clause, at: str) -> Tokens:
    """Return an infinitive and the verb that governs it: "can", "must", "want", "like", "will not"."""
    finite = (f"{at}finite", f"{at}not") if c.negative else (f"{at}finite",)
    words = {
        "can": "mudiyaadhu" if c.negative else "mudiyum",
        "must": "vendum",
        "like": "pidikkum",
        "want": conjugated("want", "present", person(c.subject)),
        "future": "maatt" + ENDINGS[person(c.subject)],
    }
    infinitive = Token(VERBS[c.verb].infinitive, "VERB", (f"{at}verb", f"{at}to"))
    tag = "VERB" if c.tense in ("want", "like") else "AUX"
    return (infinitive, Token(words[c.tense], tag, finite))


def _there(c: Clause, at: str) -> Tokens:
    nodes = (f"{at}verb", f"{at}finite", *((f"{at}not",) if c.negative else ()))
    if c.negative:
        word = "irukkavillai" if c.tense == "past" else "illai"
    elif c.verb == "have":
        word = THERE[bool(c.object and c.object.plural)][c.tense == "past"]
    else:
        word = conjugated("be", c.tense, person(c.subject))
    verb = Token(word, "VERB" if c.verb == "have" or c.place else "AUX", nodes)
    if not c.quality:
        return (verb,)
    return (Token(STATES[c.quality], "ADV", (f"{at}quality",)), verb)


def _quality(c: Clause, at: str) -> Tokens:
    """Return a predicative adjective: "periyadhu" now, "periyadhaaga irundhadhu" then."""
    word, who, node = ADJECTIVES[c.quality], person(c.subject), f"{at}quality"
    if c.tense == "past":
        manner = "nandraaga" if c.quality == "good" else word[:-1] + "adhaaga"
        manner = word[:-2] + "ga" if word.endswith("aana") else manner
        was = Token(conjugated("be", "past", who), "AUX", (f"{at}verb", f"{at}finite"))
        return (Token(manner, "ADV", (node,)), was)
    noun = word[:-1] + "adhu"
    if who != "it":
        noun = word + {"he": "van", "she": "val", "honoured": "var", "they": "vargal"}[who]
    no = (Token("alla", "AUX", (f"{at}verb", f"{at}finite", f"{at}not")),) if c.negative else ()
    return (Token(noun, "NOUN", (node,)), *no)


def subject_of(c: Clause, at: str) -> Tokens:
    """Write the subject in the case that the verb gives it."""
    role = f"{at}subject"
    first, joined, second = c.subject.noun.partition(" and ")
    if joined:
        both = ((first, role), (second, f"{at}partner"))
        return tuple(
            Token(inflected(name, "and"), "PROPN", (f"{node}.noun", f"{at}and")) for name, node in both
        )
    if c.tense == "can":
        return nominal(c.subject, "instrumental", role)
    if c.tense == "like" or c.verb in PLEASING:
        return nominal(c.subject, "dative", role)
    return nominal(c.subject, "with" if c.verb == "have" else "nominative", role)


def _object(c: Clause, at: str) -> Tokens:
    if c.object is None:
        return ()
    return nominal(c.object, object_case(c), f"{at}object")


def object_case(c: Clause) -> str:
    """Return the case of the object: persons, animals and definite things are marked."""
    if c.object is None or c.verb == "have" or c.object.noun == "what":
        return "nominative"
    if c.verb == "help":
        return "dative"
    noun = c.object.noun
    animate = noun in PRONOUNS or noun not in ENGLISH_NOUNS or _animate(noun)
    if animate and c.verb != "need":
        return "accusative"
    definite = c.object.determiner not in ("", "a", *NUMBERS)
    return "accusative" if c.verb in MARKED or (definite and c.verb not in UNMARKED) else "nominative"


@cache
def _animate(noun: str) -> bool:
    return bool({"person", "kin", "animal"} & set(ENGLISH_NOUNS[noun][1]))


def clause(c: Clause, at: str = "", *, subject: Tokens | None = None) -> Tokens:
    """Write a clause: time, subject, place, recipient, object, verb; a question word before the verb."""
    time = pattern(TIMES[c.time], f"{at}time") if c.time else ()
    early, late = (time, ()) if c.early else ((), time)
    who = subject_of(c, at) if subject is None else subject
    where = place(c.place, f"{at}place") if c.place else ()
    recipient = nominal(c.recipient, "dative", f"{at}recipient") if c.recipient else ()
    ask = (Token(QUESTIONS[c.question], "ADV", (f"{at}asked",)),) if c.question in QUESTIONS else ()
    return (*early, *who, *late, *where, *recipient, *_object(c, at), *ask, *predicate(c, at))


def sentence(s: Sentence) -> Tokens:
    """Write a whole sentence, without punctuation."""
    return (*_address(s), *_body(s))


def _address(s: Sentence) -> Tokens:
    if not s.address:
        return ()
    if s.address in ADDRESSES:
        return (Token(ADDRESSES[s.address], "NOUN", ("address.noun",)),)
    return nominal(Nominal(s.address), "nominative", "address")


def _body(s: Sentence) -> Tokens:
    if s.kind == "request":
        return _request(s.main)
    if s.other is None:
        return clause(s.main)
    if s.kind == "relative":
        inner = s.other._replace(object=None)
        before = clause(inner, "other.")
        end = Token(participle(inner.verb), "VERB", ("other.verb", "other.finite", "other.that"))
        return (*before[:-1], end, *clause(s.main))
    if s.kind == "because":
        return _because(s.main, s.other)
    if s.kind == "but":
        return (*clause(s.main), Token("aanaal", "CCONJ", ("joint",)), *clause(s.other, "other."))
    return (*clause(s.other, "other."), Token("endru", "SCONJ", ("joint",)), *clause(s.main))


def _because(main: Clause, reason: Clause) -> Tokens:
    """Join by the causal participle: "kalaippaaga irundhadhaal"; the shared subject is written once."""
    state = Token(STATES[reason.quality], "ADV", ("other.quality",))
    being = Token("irundhadhaal", "VERB", ("other.verb", "other.finite", "joint"))
    return (*subject_of(main, ""), state, being, *clause(main, subject=()))


def _request(c: Clause) -> Tokens:
    please = (Token("thayavu", "NOUN", ("please",)), Token("seydhu", "VERB", ("please",)))
    before = clause(c, subject=())[:-1]
    return (*please, *before, Token(VERBS[c.verb].imperative, "VERB", ("verb", "finite")))
