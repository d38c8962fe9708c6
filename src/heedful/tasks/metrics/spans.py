"""Spans of words: the scheme of a set of tags, and the spans that the tags of a sentence encode.

A tag is ``O``, or a prefix and a type as in ``B-PER``, or a prefix alone. The prefixes:

| scheme | other names | begins | continues | ends | single word |
|---|---|---|---|---|---|
| bio | IO, IOB1, IOB2 | B | I | | |
| bioes | IOBES | B | I | E | S |
| bilou | BIOLU | B | I | L | U |
| bmes | BMEWO | B | M | E | S, W |

Spans are counted as in the script of the CoNLL shared tasks (Tjong Kim Sang and De Meulder 2003), also if
tags are not well-formed: a word that cannot continue a span of its type begins one, and a span that is not
ended by its prefix ends before the next span or the next other tag.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Span = tuple[str, int, int]
"""Type, index of the first word, and index after the last word."""

SchemeName = Literal["bio", "bioes", "bilou", "bmes"]

OUTSIDE = "O"
"""The tag of words that are in no span."""

UNTYPED = "_"
"""The type of spans whose tags have none."""


@dataclass(frozen=True)
class Scheme:
    """A scheme of tags.

    Args:
        name: its name.
        starts: prefixes of words that begin a span.
        continues: prefixes of other words.
        ends: prefixes of words after which a span ends.
    """

    name: SchemeName
    starts: str
    continues: str
    ends: str = ""

    @property
    def prefixes(self) -> frozenset[str]:
        """All prefixes."""
        return frozenset(self.starts + self.continues)

    def encodes(self, tag: str) -> bool:
        """Return whether a tag is one of a span in this scheme."""
        prefix, separator, type_name = tag.partition("-")
        return prefix in self.prefixes and bool(type_name) == bool(separator)

    def may_follow(self, tag: str | None, previous: str | None) -> bool:
        """Return whether a tag may follow another in well-formed tags; None is the beginning or the end."""
        before, _, open_type = (previous if previous and self.encodes(previous) else "").partition("-")
        prefix, _, type_name = (tag if tag and self.encodes(tag) else "").partition("-")
        is_open = bool(before) and before not in self.ends
        if prefix and prefix not in self.starts:
            return is_open and type_name == open_type
        return not (is_open and self.ends)  # without prefixes that end a span, any other tag ends it

    def is_well_formed(self, tags: Sequence[str]) -> bool:
        """Return whether all tags of a sentence may follow each other."""
        return all(self.may_follow(tag, before) for before, tag in pairwise((None, *tags, None)))

    def spans(self, tags: Sequence[str]) -> list[Span]:
        """Return the spans of the tags of a sentence, in order; other tags are outside of spans."""
        spans: list[Span] = []
        is_open = False
        for i, tag in enumerate(tags):
            if not self.encodes(tag):
                is_open = False
                continue
            prefix, _, type_name = tag.partition("-")
            type_name = type_name or UNTYPED
            if is_open and prefix not in self.starts and spans[-1][0] == type_name:
                spans[-1] = (type_name, spans[-1][1], i + 1)
            else:
                spans.append((type_name, i, i + 1))
            is_open = prefix not in self.ends
        return spans


SCHEMES: dict[SchemeName, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme("bio", starts="B", continues="I"),
        Scheme("bioes", starts="BS", continues="IE", ends="ES"),
        Scheme("bilou", starts="BU", continues="IL", ends="LU"),
        Scheme("bmes", starts="BSW", continues="ME", ends="ESW"),
    )
}
"""All schemes; tags that fit several are read in the first."""


def scheme_of(tags: Iterable[str]) -> Scheme | None:
    """Return the scheme of a set of tags, of which all but ``O`` encode spans; None if they have none.

    Tags must have types; without types, they must have at least two of the prefixes, ``B`` among them.
    """
    span_tags = {*tags} - {OUTSIDE}
    untyped = {tag for tag in span_tags if "-" not in tag}
    if not span_tags or (untyped and (untyped != span_tags or "B" not in untyped or len(untyped) < 2)):
        return None
    return next((scheme for scheme in SCHEMES.values() if all(map(scheme.encodes, span_tags))), None)


def nearest_scheme(tags: Iterable[str]) -> tuple[Scheme, str, str] | None:
    """Return the scheme of most tags with types, a tag of it and one of another form; None without them."""
    typed = sorted(tag for tag in {*tags} if "-" in tag)
    others = sorted({*tags} - {OUTSIDE})
    scheme = max(SCHEMES.values(), key=lambda scheme: sum(map(scheme.encodes, typed)))
    fitting = [tag for tag in typed if scheme.encodes(tag)]
    unfitting = [tag for tag in others if not scheme.encodes(tag)]
    return (scheme, fitting[0], unfitting[0]) if fitting and unfitting else None


@dataclass(frozen=True)
class OtherScheme:
    """The scheme of sentences that are not in an expected one.

    Args:
        scheme: the scheme.
        n_unfitting: the number of sentences that do not fit the expected one.
        n_sentences: the number of sentences with spans.
        tags: the tags of the first of these sentences.
    """

    scheme: Scheme
    n_unfitting: int
    n_sentences: int
    tags: Sequence[str]

    @property
    def example(self) -> str:
        """The tags of a sentence, the first of them if there are many."""
        return " ".join(self.tags[:_N_SHOWN]) + " ..." * (len(self.tags) > _N_SHOWN)


_N_SHOWN = 8
"""Number of tags in an example."""


def other_scheme(sentences: Iterable[Sequence[str]], expected: Scheme) -> OtherScheme | None:
    """Return the scheme of sentences, if it is not the expected one; None if it is, or they have none.

    Sentences fit a scheme if their tags of spans are of this scheme and well-formed. The other scheme has all
    tags, and at most half as many sentences do not fit it; those of ``bio`` need not be well-formed (IO,
    IOB1). If the expected scheme has all tags too, it does not fit most sentences with spans.
    """
    sentences = [*sentences]
    tags = {tag for sentence in sentences for tag in sentence}
    typed = {tag for tag in tags if "-" in tag and any(scheme.encodes(tag) for scheme in SCHEMES.values())}
    of_spans = typed or tags - {OUTSIDE}
    other = scheme_of(of_spans)
    if other is None or other == expected:
        return None
    with_spans = [sentence for sentence in sentences if not of_spans.isdisjoint(sentence)]

    foreign = {tag for tag in of_spans if not expected.encodes(tag)}
    bad = [x for x in with_spans if not (foreign.isdisjoint(x) and expected.is_well_formed(x))]
    n_bad_in_other = sum(not other.is_well_formed(x) for x in with_spans) if other.ends else 0
    if not bad or 2 * n_bad_in_other > len(bad) or (not foreign and 2 * len(bad) <= len(with_spans)):
        return None
    return OtherScheme(other, len(bad), len(with_spans), bad[0])
