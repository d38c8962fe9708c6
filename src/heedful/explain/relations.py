"""Which keys a pattern means, for each query: what heads are held against in `heedful.explain.patterns`.

A *relation* is a matrix ``[Q, K]`` of booleans: for each token that looks, those of the tokens it sees that
belong to the pattern. A row without any says nothing (a last token has no next one); so does a row with all
that is seen, for there attention cannot but keep to it. Both are empty here, and left out of every score.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heedful.explain.view import Axis, Kind
from heedful.text.specials import SPECIALS
from heedful.text.subwords import CONTINUES
from heedful.text.tokenizer import NO_WORD

Relation = NDArray[np.bool_]

NEIGHBOUR = "neighbour"
"""The tokens before and after, together: no pattern of its own, but what recurrence is measured by."""
COPY = "copy"
"""Other places with the same token: what a head must look at, and not at itself alone, for ``same token``."""

_NAMES = SPECIALS.names
BOUNDS = frozenset(_NAMES) - {_NAMES[SPECIALS.unknown], _NAMES[SPECIALS.mask]}
"""The special tokens that stand for nothing in the text."""
ENDS = frozenset({_NAMES[SPECIALS.separate], _NAMES[SPECIALS.end]})
"""Those after which another segment begins."""


@dataclass(frozen=True)
class AttentionContext:
    """What is known of an attention before its weights: Q tokens look at K tokens.

    Args:
        queries: the tokens that look.
        keys: the tokens that are looked at.
        visible: ``[Q, K]``, who may see whom.
        counted: ``[Q]``, the queries that count: all but special tokens.
        null: ``[K]``, the keys that carry no word: special tokens and punctuation.
        relations: by name, ``[Q, K]``.
    """

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    visible: Relation
    counted: Relation
    null: Relation
    relations: Mapping[str, Relation]


def frame(kind: Kind, queries: Axis, keys: Axis) -> AttentionContext:
    """Everything that patterns need to know of two sides.

    Where a side looks at itself, position i stands for the i-th token that is looked at, also where the rows
    are shown under the names of the tokens that were written there. What a window hides from a token counts
    as visible: sides do not tell.

    Raises:
        ValueError: a side that looks at itself has two lengths.
    """
    own = kind != "cross"
    if own and len(queries.tokens) != len(keys.tokens):
        raise ValueError(f"{len(queries.tokens)} tokens look at themselves, who are {len(keys.tokens)}")
    queries = keys if own else queries
    shape = len(queries.tokens), len(keys.tokens)
    visible = np.tri(*shape, dtype=bool) if kind == "causal" else np.ones(shape, dtype=bool)
    counted = ~special(queries)
    copies = _copies(queries, keys, own) & visible
    # Who looks at all places with one token looks at its own, too; where there is no other, it says nothing.
    itself = np.eye(*shape, dtype=bool) & copies.any(axis=1)[:, None] & own
    found = {
        "same token": copies | itself,
        COPY: copies,
        "separator": np.broadcast_to(null(keys), shape),
        "first token": np.broadcast_to(np.arange(shape[1]) == 0, shape),
        **(_of_itself(keys, visible) if own else {}),
    }
    said = {name: _said(relation, visible, counted) for name, relation in found.items()}
    return AttentionContext(queries.tokens, keys.tokens, visible, counted, null(keys), said)


def special(side: Axis) -> Relation:
    """Which tokens are special: they bound or separate, or stand before the patches of an image."""
    if side.grid is not None:
        return np.arange(len(side.tokens)) < side.before
    return np.array([token in BOUNDS for token in side.tokens], dtype=bool)


def null(side: Axis) -> Relation:
    """Which tokens carry no word: special ones, and punctuation alone."""
    if side.grid is not None:
        return special(side)
    return special(side) | np.array([_is_punctuation(token) for token in side.tokens], dtype=bool)


def _is_punctuation(token: str) -> bool:
    """Whether a token, as it is shown, is punctuation alone, at the start of a word or within."""
    bare = token.lstrip("▁")
    bare = bare.removeprefix(CONTINUES) or bare
    return bool(bare) and all(unicodedata.category(sign).startswith("P") for sign in bare)


def _said(relation: Relation, visible: Relation, counted: Relation) -> Relation:
    """What of a relation can be seen, without the rows that say nothing."""
    seen = relation & visible & counted[:, None]
    return seen & (seen.sum(axis=1) < visible.sum(axis=1))[:, None]


def _of_itself(side: Axis, visible: Relation) -> dict[str, Relation]:
    """The relations between places and words of one side."""
    places = np.arange(len(side.tokens))
    gaps = places - places[:, None]
    words = _words(side)
    piece = (words != NO_WORD) & ~null(side)
    return {
        "next token": gaps == 1,
        "previous token": gaps == -1,
        NEIGHBOUR: np.abs(gaps) == 1,
        "itself": gaps == 0,
        "same word": (words == words[:, None]) & piece & piece[:, None] & (gaps != 0),
        "same segment": _same_segment(side, visible),
    }


def _same_segment(side: Axis, visible: Relation) -> Relation:
    """The words of one's own segment, for queries that see a word of another segment too."""
    if side.grid is not None:
        return np.zeros_like(visible)
    ends = np.array([token in ENDS for token in side.tokens], dtype=int)
    segments = np.cumsum(ends) - ends
    same, ordinary = segments == segments[:, None], ~special(side)
    return same & ordinary & (visible & ordinary & ~same).any(axis=1)[:, None]


def _copies(queries: Axis, keys: Axis, own: bool) -> Relation:
    """Other places with the same token, or with a piece of another word that is written alike."""
    relation = np.zeros((len(queries.tokens), len(keys.tokens)), dtype=bool)
    if queries.grid is not None or keys.grid is not None:
        return relation  # no two patches are the same by name
    apart = ~np.eye(*relation.shape, dtype=bool) if own else np.ones_like(relation)
    relation |= _labels(queries.tokens)[:, None] == _labels(keys.tokens)
    spelled = [_labels(_spelled(side)) for side in (queries, keys)]
    alike = (spelled[0][:, None] == spelled[1]) & (spelled[0] != "")[:, None]
    if own:
        words = _words(keys)
        alike &= words != words[:, None]
    return (relation | alike) & apart & ~null(queries)[:, None] & ~null(keys)


def _words(side: Axis) -> NDArray[np.int64]:
    """For each token the number of its word; `NO_WORD` where the side has no words."""
    return np.array(side.words or (NO_WORD,) * len(side.tokens), dtype=np.int64)


def _spelled(side: Axis) -> list[str]:
    """For each token the word that it belongs to, as it is written; nothing where there is none."""
    return [side.surface[word] if 0 <= word < len(side.surface) else "" for word in _words(side)]


def _labels(tokens: "list[str] | tuple[str, ...]") -> NDArray[np.object_]:
    """Strings of any length, compared as they are (numpy's own strings lose zeros at their end)."""
    found = np.empty(len(tokens), dtype=object)
    found[:] = tokens
    return found
