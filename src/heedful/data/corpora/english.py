"""English: the source side of every derivation."""

from functools import cache

from heedful.data.corpora.grammar import Clause, Nominal, Sentence, Tokens, lemma, parse_tokens, word
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
    title, _, bare_name = name.rpartition(" ")
    return (
        *(word(title, "NOUN", f"{role}.form") if title else ()),
        *word(bare_name, "PROPN", f"{role}.noun"),
    )


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


def clause(c: Clause, prefix: str = "") -> Tokens:
    """Write a clause; ``prefix`` sets its nodes apart from those of another clause."""
    subject = subject_of(c, prefix)
    if c.question not in ("", "subject"):
        return (*_question_words(c, prefix), *_inverted(c, subject, prefix), *_after_verb(c, prefix))
    early = parse_tokens(TIMES[c.time].english, f"{prefix}time") if c.early else ()
    return (*early, *subject, *_finite(c, prefix), *_after_verb(c, prefix))


def subject_of(c: Clause, prefix: str) -> Tokens:
    """Write the subject, which may be two names joined by "and"."""
    if not c.subject.is_joint:
        return nominal(c.subject, f"{prefix}subject", subject=True)
    first, _, second = c.subject.noun.partition(" and ")
    conjuncts = proper(first, f"{prefix}subject"), proper(second, f"{prefix}partner")
    return (*conjuncts[0], *word("and", "CCONJ", f"{prefix}and"), *conjuncts[1])


def _question_words(c: Clause, prefix: str) -> Tokens:
    if c.question == "object" and c.object:
        return nominal(c.object, f"{prefix}object")
    return () if c.question == "whether" else word(c.question, "ADV", f"{prefix}asked")


def _finite(c: Clause, prefix: str) -> Tokens:
    """Return the verb group of a statement: ``does not read``, ``read``, ``wants to read``."""
    verb, finite = f"{prefix}verb", f"{prefix}finite"
    negation = word("not", "PART", f"{prefix}not") if c.negative else ()
    if c.verb == "be":
        return (*word(_be(c), "AUX", verb, finite), *negation)
    if c.tense in _WITH_TO:
        return (*word(_simple(c, c.tense), "VERB", finite), *_to(c, prefix))
    if c.tense == "can" and c.negative:
        return (*word("cannot", "AUX", finite, f"{prefix}not"), *_base(c, prefix))
    if c.tense in _MODALS or c.negative:
        return (*word(_auxiliary(c), "AUX", finite), *negation, *_base(c, prefix))
    return word(_simple(c, c.verb), "VERB", verb, finite)


def _inverted(c: Clause, subject: Tokens, prefix: str) -> Tokens:
    finite = f"{prefix}finite"
    if c.verb == "be":
        return (*word(_be(c), "AUX", f"{prefix}verb", finite), *subject)
    if c.tense in _WITH_TO:
        return (
            *word(_auxiliary(c), "AUX", finite),
            *subject,
            *word(c.tense, "VERB", finite),
            *_to(c, prefix),
        )
    return (*word(_auxiliary(c), "AUX", finite), *subject, *_base(c, prefix))


def _to(c: Clause, prefix: str) -> Tokens:
    return (*word("to", "PART", f"{prefix}to"), *_base(c, prefix))


def _base(c: Clause, prefix: str) -> Tokens:
    return word(VERBS[c.verb].base, "VERB", f"{prefix}verb")


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
    pronoun = c.subject.noun
    if pronoun not in PRONOUNS:
        pronoun = "it" if is_third_person(c.subject) else "they"
    return PRONOUNS[pronoun].was if c.tense == "past" else PRONOUNS[pronoun].be


def _after_verb(c: Clause, prefix: str) -> Tokens:
    """Return what follows the verb: particle, recipient, object, quality, place, time."""
    tokens: Tokens = word("for", "ADP", f"{prefix}verb") if c.verb == "look" else ()
    if c.recipient:
        tokens += nominal(c.recipient, f"{prefix}recipient")
    if c.object and c.question != "object":
        tokens += nominal(c.object, f"{prefix}object")
    if c.quality:
        tokens += word(lemma(c.quality), "ADJ", f"{prefix}quality")
    if c.place:
        tokens += word(c.place.relation, "ADP", f"{prefix}place") + nominal(c.place.nominal, f"{prefix}place")
    return tokens + (parse_tokens(TIMES[c.time].english, f"{prefix}time") if c.time and not c.early else ())


def sentence(s: Sentence) -> Tokens:
    """Write a whole sentence with its punctuation."""
    return (*_address(s.address), *_body(s), *word("?" if s.main.question else ".", "PUNCT", "stop"))


def _address(name: str) -> Tokens:
    if not name:
        return ()
    is_noun = NAMES[name].kind == "address"
    name_tokens = word(name, "NOUN", "address.noun") if is_noun else proper(name, "address")
    return (*name_tokens, *word(",", "PUNCT", "address.comma"))


def _body(s: Sentence) -> Tokens:
    main = s.main
    if s.kind == "request":
        verb = word(VERBS[main.verb].base, "VERB", "verb", "finite")
        return (*word("please", "INTJ", "please"), *verb, *_after_verb(main, ""))
    if s.other is None:
        return clause(main)
    if s.kind == "relative":
        inner = (*word("that", "PRON", "other.that"), *clause(s.other._replace(object=None), "other."))
        return (*subject_of(main, ""), *inner, *_finite(main, ""), *_after_verb(main, ""))
    is_but = s.kind == "but"
    joint = word(s.kind, "CCONJ" if is_but else "SCONJ", "joint")
    comma = word(",", "PUNCT", "comma") if is_but else ()
    return (*clause(main), *comma, *joint, *clause(s.other, "other."))
