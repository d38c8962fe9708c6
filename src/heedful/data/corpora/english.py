"""English: the source side of every derivation."""

from functools import cache

from heedful.data.corpora.grammar import Clause, Nominal, Sentence, Token, Tokens, lemma, pattern
from heedful.data.corpora.lexicon_english import (
    ADDRESSES,
    DETERMINERS,
    NOUNS,
    NUMBERS,
    PARTICLES,
    PRONOUNS,
    TIMES,
    VERBS,
)

FULL_STOP = Token(".", "PUNCT", ("stop",))
QUESTION_MARK = Token("?", "PUNCT", ("stop",))
_MODALS = {"can": "can", "must": "must", "future": "will"}
_LIGHT = {"want": "want", "like": "like"}


@cache
def nominal(phrase: Nominal, role: str, *, subject: bool) -> Tokens:
    """Write a noun phrase; its nodes are ``role.determiner``, ``.adjective``, ``.noun`` and ``.title``."""
    here = f"{role}.noun"
    if phrase.noun in PRONOUNS:
        form = PRONOUNS[phrase.noun]
        return (Token(form.subject if subject else form.object, "PRON", (here,)),)
    if phrase.noun not in NOUNS:
        return proper(phrase.noun, role)
    tokens = []
    if phrase.determiner:
        tokens.append(_determiner(phrase, f"{role}.determiner"))
    if phrase.adjective:
        tokens.append(Token(lemma(phrase.adjective), "ADJ", (f"{role}.adjective",)))
    text = NOUNS[phrase.noun][0] if phrase.plural else lemma(phrase.noun)
    tokens.append(Token(text, "NOUN", (here,)))
    if phrase.title:
        tokens.append(Token(phrase.title, "PROPN", (f"{role}.title",)))
    return tuple(tokens)


def proper(name: str, role: str) -> Tokens:
    """Write a name; if it has two words ("Mrs Weber"), the first is a title."""
    words = name.split()
    tags = ("NOUN", "PROPN") if len(words) == 2 else ("PROPN",)
    nodes = (f"{role}.form", f"{role}.noun")[-len(words) :]
    return tuple(Token(word, tag, (node,)) for word, tag, node in zip(words, tags, nodes, strict=True))


def _determiner(phrase: Nominal, node: str) -> Token:
    text = DETERMINERS[phrase.determiner]
    if text == "a" and lemma(phrase.adjective or phrase.noun)[0] in "aeiou":
        text = "an"
    if text == "this" and phrase.plural:
        text = "these"
    return Token(text, "NUM" if phrase.determiner in NUMBERS else _kind(text), (node,))


def _kind(text: str) -> str:
    return "DET" if text in ("the", "a", "an", "this", "these") else "PRON"


def third_person(phrase: Nominal) -> bool:
    """Return whether a verb takes -s after this subject."""
    if phrase.noun in PRONOUNS:
        return PRONOUNS[phrase.noun].third
    return not phrase.plural and " and " not in phrase.noun


def clause(c: Clause, at: str = "") -> Tokens:
    """Write a clause; ``at`` sets its nodes apart from those of another clause."""
    subject = subject_of(c, at)
    if c.question == "subject":
        return (*subject, *_finite(c, at), *_rest(c, at))
    if c.question:
        return (*_asked(c, at), *_inverted(c, subject, at), *_rest(c, at))
    early = pattern(TIMES[c.time], f"{at}time") if c.early else ()
    return (*early, *subject, *_finite(c, at), *_rest(c, at))


def subject_of(c: Clause, at: str) -> Tokens:
    """Write the subject, which may be two names joined by "and"."""
    first, joined, second = c.subject.noun.partition(" and ")
    if not joined:
        return nominal(c.subject, f"{at}subject", subject=True)
    conjunction = Token("and", "CCONJ", (f"{at}and",))
    return (*proper(first, f"{at}subject"), conjunction, *proper(second, f"{at}partner"))


def _asked(c: Clause, at: str) -> Tokens:
    if c.question == "object" and c.object:
        return nominal(c.object, f"{at}object", subject=False)
    return () if c.question == "whether" else (Token(c.question, "ADV", (f"{at}asked",)),)


def _finite(c: Clause, at: str) -> Tokens:
    """Return the verb group of a statement: ``does not read``, ``read``, ``wants to read``."""
    verb, finite, denied = f"{at}verb", f"{at}finite", Token("not", "PART", (f"{at}not",))
    if c.verb == "be":
        be = Token(_be(c), "AUX", (verb, finite))
        return (be, denied) if c.negative else (be,)
    if c.tense in _LIGHT:
        return (Token(_simple(c, _LIGHT[c.tense]), "VERB", (finite,)), *_to(c, at))
    if c.tense == "can" and c.negative:
        return (Token("cannot", "AUX", (finite, f"{at}not")), _base(c, at))
    if c.tense in _MODALS or c.negative:
        auxiliary = Token(_auxiliary(c), "AUX", (finite,))
        return (auxiliary, *((denied,) if c.negative else ()), _base(c, at))
    return (Token(_simple(c, c.verb), "VERB", (verb, finite)),)


def _inverted(c: Clause, subject: Tokens, at: str) -> Tokens:
    if c.verb == "be":
        return (Token(_be(c), "AUX", (f"{at}verb", f"{at}finite")), *subject)
    if c.tense in _LIGHT:
        want = Token(_LIGHT[c.tense], "VERB", (f"{at}finite",))
        return (Token(_auxiliary(c), "AUX", (f"{at}finite",)), *subject, want, *_to(c, at))
    return (Token(_auxiliary(c), "AUX", (f"{at}finite",)), *subject, _base(c, at))


def _to(c: Clause, at: str) -> Tokens:
    return (Token("to", "PART", (f"{at}to",)), _base(c, at))


def _base(c: Clause, at: str) -> Token:
    return Token(VERBS[c.verb].base, "VERB", (f"{at}verb",))


def _auxiliary(c: Clause) -> str:
    if c.tense in _MODALS:
        return _MODALS[c.tense]
    if c.tense == "past":
        return "did"
    return "does" if third_person(c.subject) else "do"


def _simple(c: Clause, key: str) -> str:
    forms = VERBS[key] if key != "want" else VERBS["need"]
    if c.tense == "past":
        return forms.past
    return forms.third if third_person(c.subject) else forms.base


def _be(c: Clause) -> str:
    past = c.tense == "past"
    if c.subject.noun in PRONOUNS:
        form = PRONOUNS[c.subject.noun]
        return form.was if past else form.be
    if third_person(c.subject):
        return "was" if past else "is"
    return "were" if past else "are"


def _rest(c: Clause, at: str) -> Tokens:
    """Return what follows the verb: particle, recipient, object, quality, place, time."""
    tokens: list[Token] = []
    if c.verb in PARTICLES:
        tokens.append(Token(PARTICLES[c.verb], "ADP", (f"{at}verb",)))
    if c.recipient:
        tokens += nominal(c.recipient, f"{at}recipient", subject=False)
    if c.object and c.question != "object":
        tokens += nominal(c.object, f"{at}object", subject=False)
    if c.quality:
        tokens.append(Token(lemma(c.quality), "ADJ", (f"{at}quality",)))
    if c.place:
        tokens.append(Token(c.place.relation, "ADP", (f"{at}place",)))
        tokens += nominal(c.place.nominal, f"{at}place", subject=False)
    if c.time and not c.early:
        tokens += pattern(TIMES[c.time], f"{at}time")
    return tuple(tokens)


def sentence(s: Sentence) -> Tokens:
    """Write a whole sentence with its punctuation."""
    stop = QUESTION_MARK if s.main.question else FULL_STOP
    return (*_address(s), *_body(s), stop)


def _address(s: Sentence) -> Tokens:
    if not s.address:
        return ()
    if s.address in ADDRESSES:
        name: Tokens = (Token(s.address, "NOUN", ("address.noun",)),)
    else:
        name = proper(s.address, "address")
    return (*name, Token(",", "PUNCT", ("address.comma",)))


def _body(s: Sentence) -> Tokens:
    if s.kind == "request":
        please = Token("please", "INTJ", ("please",))
        verb = Token(VERBS[s.main.verb].base, "VERB", ("verb", "finite"))
        return (please, verb, *_rest(s.main, ""))
    if s.other is None:
        return clause(s.main)
    if s.kind == "relative":
        that = Token("that", "PRON", ("other.that",))
        inner = s.other._replace(object=None)
        rest = (*_finite(s.main, ""), *_rest(s.main, ""))
        return (*subject_of(s.main, ""), that, *clause(inner, "other."), *rest)
    joint = (Token(s.kind, "CCONJ" if s.kind == "but" else "SCONJ", ("joint",)),)
    comma = (Token(",", "PUNCT", ("comma",)),) if s.kind == "but" else ()
    return (*clause(s.main), *comma, *joint, *clause(s.other, "other."))
