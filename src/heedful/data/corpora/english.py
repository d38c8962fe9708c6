"""English: the source side of every derivation."""

from functools import cache

from heedful.data.corpora.grammar import Clause, Nominal, Sentence, Tokens, lemma, pattern, word
from heedful.data.corpora.lexicon import DETERMINERS, NAMES, NOUNS, PRONOUNS, TIMES, VERBS

_MODALS = ("can", "must", "future")
_WITH_TO = ("want", "like")


@cache
def nominal(phrase: Nominal, role: str, *, subject: bool = False) -> Tokens:
    """Write a noun phrase; its nodes are ``role.determiner``, ``.adjective``, ``.noun`` and ``.title``."""
    if phrase.noun in PRONOUNS:
        form = PRONOUNS[phrase.noun]
        return word(form.subject if subject else form.object, "PRON", f"{role}.noun")
    if phrase.noun not in NOUNS:
        return proper(phrase.noun, role)
    tokens: Tokens = ()
    if phrase.determiner:
        tokens += _determiner(phrase, f"{role}.determiner")
    if phrase.adjective:
        tokens += word(lemma(phrase.adjective), "ADJ", f"{role}.adjective")
    text = NOUNS[phrase.noun].plural if phrase.plural else lemma(phrase.noun)
    tokens += word(text, "NOUN", f"{role}.noun")
    return tokens + (word(phrase.title, "PROPN", f"{role}.title") if phrase.title else ())


def proper(name: str, role: str) -> Tokens:
    """Write a name; if it has two words ("Mrs Weber"), the first is a title."""
    title, _, own = name.rpartition(" ")
    return (*(word(title, "NOUN", f"{role}.form") if title else ()), *word(own, "PROPN", f"{role}.noun"))


def _determiner(phrase: Nominal, node: str) -> Tokens:
    entry = DETERMINERS[phrase.determiner]
    text = entry.english
    if text == "a" and lemma(phrase.adjective or phrase.noun)[0] in "aeiou":
        text = "an"
    if text == "this" and phrase.plural:
        text = "these"
    return word(text, entry.tag, node)


def is_third_person(phrase: Nominal) -> bool:
    """Return whether a verb takes -s after this subject."""
    if phrase.noun in PRONOUNS:
        return PRONOUNS[phrase.noun].be == "is"
    return not phrase.plural and not phrase.is_joint


def clause(c: Clause, at: str = "") -> Tokens:
    """Write a clause; ``at`` sets its nodes apart from those of another clause."""
    subject = subject_of(c, at)
    if c.question not in ("", "subject"):
        return (*_asked(c, at), *_inverted(c, subject, at), *_rest(c, at))
    early = pattern(TIMES[c.time].english, f"{at}time") if c.early else ()
    return (*early, *subject, *_finite(c, at), *_rest(c, at))


def subject_of(c: Clause, at: str) -> Tokens:
    """Write the subject, which may be two names joined by "and"."""
    if not c.subject.is_joint:
        return nominal(c.subject, f"{at}subject", subject=True)
    first, _, second = c.subject.noun.partition(" and ")
    both = proper(first, f"{at}subject"), proper(second, f"{at}partner")
    return (*both[0], *word("and", "CCONJ", f"{at}and"), *both[1])


def _asked(c: Clause, at: str) -> Tokens:
    if c.question == "object" and c.object:
        return nominal(c.object, f"{at}object")
    return () if c.question == "whether" else word(c.question, "ADV", f"{at}asked")


def _finite(c: Clause, at: str) -> Tokens:
    """Return the verb group of a statement: ``does not read``, ``read``, ``wants to read``."""
    verb, finite = f"{at}verb", f"{at}finite"
    denied = word("not", "PART", f"{at}not") if c.negative else ()
    if c.verb == "be":
        return (*word(_be(c), "AUX", verb, finite), *denied)
    if c.tense in _WITH_TO:
        return (*word(_simple(c, c.tense), "VERB", finite), *_to(c, at))
    if c.tense == "can" and c.negative:
        return (*word("cannot", "AUX", finite, f"{at}not"), *_base(c, at))
    if c.tense in _MODALS or c.negative:
        return (*word(_auxiliary(c), "AUX", finite), *denied, *_base(c, at))
    return word(_simple(c, c.verb), "VERB", verb, finite)


def _inverted(c: Clause, subject: Tokens, at: str) -> Tokens:
    finite = f"{at}finite"
    if c.verb == "be":
        return (*word(_be(c), "AUX", f"{at}verb", finite), *subject)
    if c.tense in _WITH_TO:
        return (*word(_auxiliary(c), "AUX", finite), *subject, *word(c.tense, "VERB", finite), *_to(c, at))
    return (*word(_auxiliary(c), "AUX", finite), *subject, *_base(c, at))


def _to(c: Clause, at: str) -> Tokens:
    return (*word("to", "PART", f"{at}to"), *_base(c, at))


def _base(c: Clause, at: str) -> Tokens:
    return word(VERBS[c.verb].base, "VERB", f"{at}verb")


def _auxiliary(c: Clause) -> str:
    if c.tense in _MODALS:
        return VERBS[c.tense].base
    if c.tense == "past":
        return "did"
    return "does" if is_third_person(c.subject) else "do"


def _simple(c: Clause, key: str) -> str:
    forms = VERBS[key]
    if c.tense == "past":
        return forms.past
    return forms.third if is_third_person(c.subject) else forms.base


def _be(c: Clause) -> str:
    like = c.subject.noun
    if like not in PRONOUNS:
        like = "it" if is_third_person(c.subject) else "they"
    return PRONOUNS[like].was if c.tense == "past" else PRONOUNS[like].be


def _rest(c: Clause, at: str) -> Tokens:
    """Return what follows the verb: particle, recipient, object, quality, place, time."""
    tokens: Tokens = word("for", "ADP", f"{at}verb") if c.verb == "look" else ()
    if c.recipient:
        tokens += nominal(c.recipient, f"{at}recipient")
    if c.object and c.question != "object":
        tokens += nominal(c.object, f"{at}object")
    if c.quality:
        tokens += word(lemma(c.quality), "ADJ", f"{at}quality")
    if c.place:
        tokens += word(c.place.relation, "ADP", f"{at}place") + nominal(c.place.nominal, f"{at}place")
    return tokens + (pattern(TIMES[c.time].english, f"{at}time") if c.time and not c.early else ())


def sentence(s: Sentence) -> Tokens:
    """Write a whole sentence with its punctuation."""
    return (*_address(s.address), *_body(s), *word("?" if s.main.question else ".", "PUNCT", "stop"))


def _address(name: str) -> Tokens:
    if not name:
        return ()
    is_noun = NAMES[name].kind == "address"
    written = word(name, "NOUN", "address.noun") if is_noun else proper(name, "address")
    return (*written, *word(",", "PUNCT", "address.comma"))


def _body(s: Sentence) -> Tokens:
    main = s.main
    if s.kind == "request":
        verb = word(VERBS[main.verb].base, "VERB", "verb", "finite")
        return (*word("please", "INTJ", "please"), *verb, *_rest(main, ""))
    if s.other is None:
        return clause(main)
    if s.kind == "relative":
        inner = (*word("that", "PRON", "other.that"), *clause(s.other._replace(object=None), "other."))
        return (*subject_of(main, ""), *inner, *_finite(main, ""), *_rest(main, ""))
    is_but = s.kind == "but"
    joint = word(s.kind, "CCONJ" if is_but else "SCONJ", "joint")
    comma = word(",", "PUNCT", "comma") if is_but else ()
    return (*clause(main), *comma, *joint, *clause(s.other, "other."))
