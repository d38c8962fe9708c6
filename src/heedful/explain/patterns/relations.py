"""Compute which keys belong to each pattern (`heedful.explain.patterns.census`).

A *relation* is a boolean matrix ``[Q, K]``: for each query, the visible keys that belong to the pattern. Two
kinds of rows are uninformative, set to False, and excluded from all scores: rows without keys (the last
token has no next token), and rows with all visible keys (any attention would match).
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heedful.explain.attention_map import Kind
from heedful.tasks.model_input import Axis
from heedful.text.scripts import NO_WORD
from heedful.text.specials import SPECIALS
from heedful.text.subwords import CONTINUES

Relation = NDArray[np.bool_]

NEIGHBOUR = "neighbour"
"""The tokens before and after together: not a head class; used to measure recurrence."""
COPY = "copy"
"""Other positions with the same token; heads of class ``same token`` must also attend to these."""

_NAMES = SPECIALS.names
BOUNDS = frozenset(_NAMES) - {_NAMES[SPECIALS.unknown], _NAMES[SPECIALS.mask]}
"""Special tokens that stand for no text."""
ENDS = frozenset({_NAMES[SPECIALS.separate], _NAMES[SPECIALS.end]})
"""Special tokens that end a segment."""


@dataclass(frozen=True)
class AttentionContext:
    """Properties of an attention map that do not depend on its weights: Q queries, K keys.

    Args:
        queries: tokens of the queries.
        keys: tokens of the keys.
        visible: ``[Q, K]``, whether the mask allows attention.
        scored: ``[Q]``, the queries that are scored: all except special tokens.
        null_mask: ``[K]``, the keys that contain no word: special tokens and punctuation.
        relations: by name, ``[Q, K]``.
    """

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    visible: Relation
    scored: Relation
    null_mask: Relation
    relations: Mapping[str, Relation]


def attention_context(kind: Kind, queries: Axis, keys: Axis) -> AttentionContext:
    """Return the context of an attention map between two axes.

    In self-attention, query i is key token i, even if the rows are labelled with predicted tokens. Keys
    outside a local attention window count as visible, because the axes do not describe the window.

    Raises:
        ValueError: the axes of a self-attention differ in length.
    """
    is_self = kind != "cross"
    if is_self and len(queries.tokens) != len(keys.tokens):
        raise ValueError(
            f"self-attention must have equal numbers of queries and keys, got {len(queries.tokens)} and "
            f"{len(keys.tokens)}"
        )
    queries = keys if is_self else queries
    shape = len(queries.tokens), len(keys.tokens)
    visible = np.tri(*shape, dtype=bool) if kind == "causal" else np.ones(shape, dtype=bool)
    scored = ~special_mask(queries)
    copies = _copies(queries, keys, is_self) & visible
    # "same token" includes the query's own position, unless there is no other position with the token.
    itself = np.eye(*shape, dtype=bool) & copies.any(axis=1)[:, None] & is_self
    relations = {
        "same token": copies | itself,
        COPY: copies,
        "separator": np.broadcast_to(null_mask(keys), shape),
        "first token": np.broadcast_to(np.arange(shape[1]) == 0, shape),
        **(_self_relations(keys, visible) if is_self else {}),
    }
    informative = {name: _informative(relation, visible, scored) for name, relation in relations.items()}
    return AttentionContext(queries.tokens, keys.tokens, visible, scored, null_mask(keys), informative)


def special_mask(axis: Axis) -> Relation:
    """Return which tokens are special: bounds and separators, or tokens before image patches."""
    if axis.grid is not None:
        return np.arange(len(axis.tokens)) < axis.before
    return np.array([token in BOUNDS for token in axis.tokens], dtype=bool)


def null_mask(axis: Axis) -> Relation:
    """Return which tokens contain no word: special tokens and punctuation."""
    if axis.grid is not None:
        return special_mask(axis)
    return special_mask(axis) | np.array([_is_punctuation(token) for token in axis.tokens], dtype=bool)


def _is_punctuation(token: str) -> bool:
    """Whether a displayed token is only punctuation, at the start of a word or inside."""
    bare = token.lstrip("▁")
    bare = bare.removeprefix(CONTINUES) or bare
    return bool(bare) and all(unicodedata.category(character).startswith("P") for character in bare)


def _informative(relation: Relation, visible: Relation, scored: Relation) -> Relation:
    """Return the visible part of a relation, with uninformative rows set to False."""
    allowed = relation & visible & scored[:, None]
    return allowed & (allowed.sum(axis=1) < visible.sum(axis=1))[:, None]


def _self_relations(axis: Axis, visible: Relation) -> dict[str, Relation]:
    """Return the relations between positions and words of one axis."""
    positions = np.arange(len(axis.tokens))
    offsets = positions - positions[:, None]
    words = _word_indices(axis)
    is_subword = (words != NO_WORD) & ~null_mask(axis)
    return {
        "next token": offsets == 1,
        "previous token": offsets == -1,
        NEIGHBOUR: np.abs(offsets) == 1,
        "itself": offsets == 0,
        "same word": (words == words[:, None]) & is_subword & is_subword[:, None] & (offsets != 0),
        "same segment": _same_segment(axis, visible),
    }


def _same_segment(axis: Axis, visible: Relation) -> Relation:
    """Return the words of the query's segment, for queries that also see another segment."""
    if axis.grid is not None:
        return np.zeros_like(visible)
    ends = np.array([token in ENDS for token in axis.tokens], dtype=int)
    segments = np.cumsum(ends) - ends
    same, ordinary = segments == segments[:, None], ~special_mask(axis)
    return same & ordinary & (visible & ordinary & ~same).any(axis=1)[:, None]


def _copies(queries: Axis, keys: Axis, is_self: bool) -> Relation:
    """Return other positions with the same token, or with a subword of another word of the same spelling."""
    relation = np.zeros((len(queries.tokens), len(keys.tokens)), dtype=bool)
    if queries.grid is not None or keys.grid is not None:
        return relation  # patches have unique names
    is_elsewhere = ~np.eye(*relation.shape, dtype=bool) if is_self else np.ones_like(relation)
    relation |= _object_array(queries.tokens)[:, None] == _object_array(keys.tokens)
    spellings = [_object_array(_word_spellings(axis)) for axis in (queries, keys)]
    same_spelling = (spellings[0][:, None] == spellings[1]) & (spellings[0] != "")[:, None]
    if is_self:
        words = _word_indices(keys)
        same_spelling &= words != words[:, None]
    return (relation | same_spelling) & is_elsewhere & ~null_mask(queries)[:, None] & ~null_mask(keys)


def _word_indices(axis: Axis) -> NDArray[np.int64]:
    """Return the word index of each token; `NO_WORD` if the axis has no words."""
    return np.array(axis.words or (NO_WORD,) * len(axis.tokens), dtype=np.int64)


def _word_spellings(axis: Axis) -> list[str]:
    """Return the word that each token belongs to; empty if there is none."""
    return [axis.surface[word] if 0 <= word < len(axis.surface) else "" for word in _word_indices(axis)]


def _object_array(tokens: "list[str] | tuple[str, ...]") -> NDArray[np.object_]:
    """Return an object array of strings (fixed-width numpy strings drop trailing null characters)."""
    array = np.empty(len(tokens), dtype=object)
    array[:] = tokens
    return array
