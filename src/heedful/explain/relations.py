"""Compute which keys belong to each pattern, and how far heads attend to them (`heedful.explain.patterns`).

A *relation* is a boolean matrix ``[Q, K]``: for each query, the visible keys that belong to the pattern. Two
kinds of rows are uninformative, set to False, and excluded from all scores: rows without keys (the last
token has no next token), and rows with all visible keys (any attention would match).

Sums over the queries of each input are computed first, then scores over all inputs.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heedful.explain.matrix import Numbers
from heedful.explain.view import Kind
from heedful.tasks.model_input import Axis
from heedful.text.specials import SPECIALS
from heedful.text.subwords import CONTINUES
from heedful.text.tokenizer import NO_WORD

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
        counted: ``[Q]``, the queries that are scored: all except special tokens.
        null: ``[K]``, the keys that contain no word: special tokens and punctuation.
        relations: by name, ``[Q, K]``.
    """

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    visible: Relation
    counted: Relation
    null: Relation
    relations: Mapping[str, Relation]


def attention_context(kind: Kind, queries: Axis, keys: Axis) -> AttentionContext:
    """Return the context of an attention map between two axes.

    In self-attention, query i is key token i, even if the rows are labelled with predicted tokens. Keys
    outside a local attention window count as visible, because the axes do not describe the window.

    Raises:
        ValueError: the axes of a self-attention differ in length.
    """
    own = kind != "cross"
    if own and len(queries.tokens) != len(keys.tokens):
        raise ValueError(
            f"self-attention must have equal numbers of queries and keys, got {len(queries.tokens)} and "
            f"{len(keys.tokens)}"
        )
    queries = keys if own else queries
    shape = len(queries.tokens), len(keys.tokens)
    visible = np.tri(*shape, dtype=bool) if kind == "causal" else np.ones(shape, dtype=bool)
    counted = ~special(queries)
    copies = _copies(queries, keys, own) & visible
    # "same token" includes the query's own position, unless there is no other position with the token.
    itself = np.eye(*shape, dtype=bool) & copies.any(axis=1)[:, None] & own
    found = {
        "same token": copies | itself,
        COPY: copies,
        "separator": np.broadcast_to(null(keys), shape),
        "first token": np.broadcast_to(np.arange(shape[1]) == 0, shape),
        **(_of_itself(keys, visible) if own else {}),
    }
    informative = {name: _informative(relation, visible, counted) for name, relation in found.items()}
    return AttentionContext(queries.tokens, keys.tokens, visible, counted, null(keys), informative)


def special(axis: Axis) -> Relation:
    """Return which tokens are special: bounds and separators, or tokens before image patches."""
    if axis.grid is not None:
        return np.arange(len(axis.tokens)) < axis.before
    return np.array([token in BOUNDS for token in axis.tokens], dtype=bool)


def null(axis: Axis) -> Relation:
    """Return which tokens contain no word: special tokens and punctuation."""
    if axis.grid is not None:
        return special(axis)
    return special(axis) | np.array([_is_punctuation(token) for token in axis.tokens], dtype=bool)


def _is_punctuation(token: str) -> bool:
    """Whether a displayed token is only punctuation, at the start of a word or inside."""
    bare = token.lstrip("▁")
    bare = bare.removeprefix(CONTINUES) or bare
    return bool(bare) and all(unicodedata.category(sign).startswith("P") for sign in bare)


def _informative(relation: Relation, visible: Relation, counted: Relation) -> Relation:
    """Return the visible part of a relation, with uninformative rows set to False."""
    seen = relation & visible & counted[:, None]
    return seen & (seen.sum(axis=1) < visible.sum(axis=1))[:, None]


def _of_itself(axis: Axis, visible: Relation) -> dict[str, Relation]:
    """Return the relations between positions and words of one axis."""
    places = np.arange(len(axis.tokens))
    offsets = places - places[:, None]
    words = _words(axis)
    piece = (words != NO_WORD) & ~null(axis)
    return {
        "next token": offsets == 1,
        "previous token": offsets == -1,
        NEIGHBOUR: np.abs(offsets) == 1,
        "itself": offsets == 0,
        "same word": (words == words[:, None]) & piece & piece[:, None] & (offsets != 0),
        "same segment": _same_segment(axis, visible),
    }


def _same_segment(axis: Axis, visible: Relation) -> Relation:
    """Return the words of the query's segment, for queries that also see another segment."""
    if axis.grid is not None:
        return np.zeros_like(visible)
    ends = np.array([token in ENDS for token in axis.tokens], dtype=int)
    segments = np.cumsum(ends) - ends
    same, ordinary = segments == segments[:, None], ~special(axis)
    return same & ordinary & (visible & ordinary & ~same).any(axis=1)[:, None]


def _copies(queries: Axis, keys: Axis, own: bool) -> Relation:
    """Return other positions with the same token, or with a subword of another word of the same spelling."""
    relation = np.zeros((len(queries.tokens), len(keys.tokens)), dtype=bool)
    if queries.grid is not None or keys.grid is not None:
        return relation  # patches have unique names
    apart = ~np.eye(*relation.shape, dtype=bool) if own else np.ones_like(relation)
    relation |= _labels(queries.tokens)[:, None] == _labels(keys.tokens)
    spelled = [_labels(_encode_with_spans(axis)) for axis in (queries, keys)]
    alike = (spelled[0][:, None] == spelled[1]) & (spelled[0] != "")[:, None]
    if own:
        words = _words(keys)
        alike &= words != words[:, None]
    return (relation | alike) & apart & ~null(queries)[:, None] & ~null(keys)


def _words(axis: Axis) -> NDArray[np.int64]:
    """Return the word index of each token; `NO_WORD` if the axis has no words."""
    return np.array(axis.words or (NO_WORD,) * len(axis.tokens), dtype=np.int64)


def _encode_with_spans(axis: Axis) -> list[str]:
    """Return the word that each token belongs to; empty if there is none."""
    return [axis.surface[word] if 0 <= word < len(axis.surface) else "" for word in _words(axis)]


def _labels(tokens: "list[str] | tuple[str, ...]") -> NDArray[np.object_]:
    """Return an object array of strings (fixed-width numpy strings drop trailing null characters)."""
    found = np.empty(len(tokens), dtype=object)
    found[:] = tokens
    return found


# How far heads match the relations

FEWEST = 5
"""Minimum number of informative queries to score a relation."""
FEWEST_INPUTS = 2
"""Minimum number of inputs with a word at a position to score the position."""
POSITION = "fixed position"
SPREAD = "same segment"
"""Relation for which the uniformity of the weights within its keys is measured."""


@dataclass(frozen=True)
class Match:
    """How far a head matches a relation.

    Args:
        score: s = (m - c) / (1 - c); 1: all attention is on its keys, 0: as much as uniform attention.
        chance: c, the mass of uniform attention on its keys.
        mass: m, the mass of this head on its keys.
        queries: n, number of informative queries of the relation.
        explained: (m - c) n / N, the share of all attention explained by the relation.
        evenness: only for ``same segment``: entropy of the attention within the keys, as a share of its
            maximum; None if every query has a single key.
    """

    score: float
    chance: float
    mass: float
    queries: int
    explained: float
    evenness: float | None = None


@dataclass(frozen=True)
class Sums:
    """Sums over the scored queries of one layer and one input: H heads, K keys.

    Args:
        mass: by relation, ``[H]``.
        chance: by relation.
        applied: by relation, the number of informative queries.
        at: mass of every key position, ``[H, K]``.
        at_chance: the same for uniform attention, ``[K]``.
        at_applied: number of informative queries for each position, ``[K]``.
        entropy: ``[H]``, and its maximum, over queries that see at least two keys.
        spread: entropy within the keys of ``same segment`` and its maximum, each ``[H]``, with queries
            weighted by their mass.
        greatest: ``[H]``, sum of the largest weights.
        queries: number of queries.
    """

    mass: Mapping[str, Numbers]
    chance: Mapping[str, float]
    applied: Mapping[str, int]
    at: Numbers
    at_chance: Numbers
    at_applied: Numbers
    entropy: tuple[Numbers, float]
    spread: tuple[Numbers, Numbers]
    greatest: Numbers
    queries: int


def entropy_terms(weights: ArrayLike) -> Numbers:
    """Return ``- w ln w`` in nats for every weight, with 0 ln 0 = 0."""
    w = np.asarray(weights, dtype=float)
    # Replaces 0 by the smallest positive number, so that the logarithm is finite; it is multiplied by 0.
    found = np.asarray(np.maximum(w, np.finfo(float).tiny))
    np.log(found, out=found)
    found *= -w
    return found


def sums(weights: ArrayLike, known: AttentionContext) -> Sums:
    """Return the sums for `head_scores` from the weights ``[H, Q, K]`` of a layer, with Q and K above 0."""
    w = np.asarray(weights, dtype=float)
    flat = w.reshape(len(w), -1)
    seen = known.visible.sum(axis=1)
    choosing = known.counted & (seen > 1)
    able = known.visible & choosing[:, None] & ~known.null
    able[:, 0] = False
    items = known.relations.items()
    terms = entropy_terms(w)
    return Sums(
        mass={name: flat @ relation.ravel().astype(float) for name, relation in items},
        chance={name: float((relation.sum(axis=1) / seen).sum()) for name, relation in items},
        applied={name: int(relation.any(axis=1).sum()) for name, relation in items},
        at=np.einsum("hqk,qk->hk", w, able.astype(float)),
        at_chance=(able / seen[:, None]).sum(axis=0),
        at_applied=able.sum(axis=0).astype(float),
        entropy=(terms.sum(axis=2)[:, choosing].sum(axis=1), float(np.log(seen[choosing]).sum())),
        spread=_spread(w, terms, known.relations.get(SPREAD)),
        greatest=w.max(axis=2)[:, known.counted].sum(axis=1),
        queries=int(known.counted.sum()),
    )


def _spread(w: Numbers, terms: Numbers, relation: Relation | None) -> tuple[Numbers, Numbers]:
    """Return ``sum_i m_i H_i`` and ``sum_i m_i ln |S_i|``.

    H_i is the entropy of the weights within S_i, rescaled to sum 1.

    Args:
        w: ``[H, Q, K]``.
        terms: ``- w ln w``.
        relation: S.
    """
    if relation is None or not relation.any():
        return np.zeros(len(w)), np.zeros(len(w))
    mass = np.einsum("hqk,qk->hq", w, relation.astype(float))
    # m H(w / m) = - sum w ln w + m ln m
    within = np.einsum("hqk,qk->h", terms, relation.astype(float)) - entropy_terms(mass).sum(axis=1)
    return within, mass @ np.log(np.maximum(relation.sum(axis=1), 1))


HeadScores = tuple[dict[str, Match], int | None, float | None, float | None]
"""Scores of a head.

The matches of the relations that can be scored, and of ``fixed position``; the fixed position that explains
most, from 0; the entropy as a share of its maximum (None if every query sees a single key); and the mean over
queries of the largest weight (None without queries).
"""


def head_scores(parts: Sequence[Sums]) -> Iterator[HeadScores]:
    """Yield the scores of the heads of one layer, over all inputs."""
    n = sum(part.queries for part in parts)
    by_name = {name: found for name in parts[0].mass if (found := _matches(parts, name, n)) is not None}
    fixed = _fixed(parts, n)
    entropy = np.asarray(sum(part.entropy[0] for part in parts))
    most = sum(part.entropy[1] for part in parts)
    greatest = np.asarray(sum(part.greatest for part in parts))
    for row in range(len(greatest)):
        matches, position = {name: found[row] for name, found in by_name.items()}, None
        if fixed is not None:
            position, matches[POSITION] = fixed[row]
        yield matches, position, _share(entropy[row], most), _share(greatest[row], n)


def _share(part: float, of: float) -> float | None:
    return float(part) / float(of) if of > 0 else None


def _match(mass: float, chance: float, queries: float, of: int, evenness: float | None = None) -> Match:
    """Return a match, given sums over the informative queries, and the number of all queries."""
    m, c = float(mass) / float(queries), float(chance) / float(queries)
    explained = (m - c) * float(queries) / of
    return Match((m - c) / (1 - c), c, m, int(queries), explained, evenness)


def _matches(parts: Sequence[Sums], name: str, of: int) -> list[Match] | None:
    """Return the match of each head; None if the relation has too few informative queries."""
    queries = sum(part.applied[name] for part in parts)
    if queries < FEWEST:
        return None
    chance = sum(part.chance[name] for part in parts)
    mass = np.sum([part.mass[name] for part in parts], axis=0)
    spread, most = (np.sum([part.spread[which] for part in parts], axis=0) for which in (0, 1))
    return [
        _match(own, chance, queries, of, _share(spread[row], most[row]) if name == SPREAD else None)
        for row, own in enumerate(mass)
    ]


def _fixed(parts: Sequence[Sums], of: int) -> list[tuple[int, Match]] | None:
    """Return, for each head, the position that explains most of its attention, and its match.

    Returns None if no position has enough inputs and queries.
    """
    longest = max(len(part.at_chance) for part in parts)

    def padded(each: Numbers) -> Numbers:
        return np.pad(each, [(0, 0)] * (each.ndim - 1) + [(0, longest - each.shape[-1])])

    mass, chance, queries, inputs = (
        np.sum([padded(each) for each in row], axis=0)
        for row in zip(*((p.at, p.at_chance, p.at_applied, p.at_applied > 0) for p in parts), strict=True)
    )
    (places,) = np.nonzero((inputs >= FEWEST_INPUTS) & (queries >= max(of / 2, FEWEST)))
    if not len(places):
        return None
    best = places[(mass - chance)[:, places].argmax(axis=1)]
    return [(int(k), _match(mass[row, k], chance[k], queries[k], of)) for row, k in enumerate(best)]
