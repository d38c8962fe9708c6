"""Compute how far heads attend to the keys of each pattern (`heedful.explain.patterns.relations`).

Sums over the queries of each input are computed first, then scores over all inputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from heedful.explain.drawing.matrix import Numbers
from heedful.explain.patterns.relations import AttentionContext, Relation

MIN_QUERIES = 5
"""Minimum number of informative queries to score a relation."""
MIN_INPUTS = 2
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
class LayerSums:
    """Sums over the scored queries of one layer and one input: H heads, K keys.

    Args:
        mass: by relation, ``[H]``.
        chance: by relation.
        n_informative: by relation, the number of informative queries.
        position_mass: mass of every key position, ``[H, K]``.
        position_chance: the same for uniform attention, ``[K]``.
        position_queries: number of informative queries for each position, ``[K]``.
        entropy: ``[H]``, and its maximum, over queries that see at least two keys.
        segment_entropy: entropy within the keys of ``same segment`` and its maximum, each ``[H]``, with
            queries weighted by their mass.
        largest: ``[H]``, sum of the largest weights.
        queries: number of queries.
    """

    mass: Mapping[str, Numbers]
    chance: Mapping[str, float]
    n_informative: Mapping[str, int]
    position_mass: Numbers
    position_chance: Numbers
    position_queries: Numbers
    entropy: tuple[Numbers, float]
    segment_entropy: tuple[Numbers, Numbers]
    largest: Numbers
    queries: int


def entropy_terms(weights: ArrayLike) -> Numbers:
    """Return ``- w ln w`` in nats for every weight, with 0 ln 0 = 0."""
    w = np.asarray(weights, dtype=float)
    # Replaces 0 by the smallest positive number, so that the logarithm is finite; it is multiplied by 0.
    found = np.asarray(np.maximum(w, np.finfo(float).tiny))
    np.log(found, out=found)
    found *= -w
    return found


def layer_sums(weights: ArrayLike, known: AttentionContext) -> LayerSums:
    """Return the sums for `head_scores` from the weights ``[H, Q, K]`` of a layer, with Q and K above 0."""
    w = np.asarray(weights, dtype=float)
    flat = w.reshape(len(w), -1)
    seen = known.visible.sum(axis=1)
    choosing = known.scored & (seen > 1)
    able = known.visible & choosing[:, None] & ~known.null_mask
    able[:, 0] = False
    items = known.relations.items()
    terms = entropy_terms(w)
    return LayerSums(
        mass={name: flat @ relation.ravel().astype(float) for name, relation in items},
        chance={name: float((relation.sum(axis=1) / seen).sum()) for name, relation in items},
        n_informative={name: int(relation.any(axis=1).sum()) for name, relation in items},
        position_mass=np.einsum("hqk,qk->hk", w, able.astype(float)),
        position_chance=(able / seen[:, None]).sum(axis=0),
        position_queries=able.sum(axis=0).astype(float),
        entropy=(terms.sum(axis=2)[:, choosing].sum(axis=1), float(np.log(seen[choosing]).sum())),
        segment_entropy=_evenness_sums(w, terms, known.relations.get(SPREAD)),
        largest=w.max(axis=2)[:, known.scored].sum(axis=1),
        queries=int(known.scored.sum()),
    )


def _evenness_sums(w: Numbers, terms: Numbers, relation: Relation | None) -> tuple[Numbers, Numbers]:
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


def head_scores(parts: Sequence[LayerSums]) -> Iterator[HeadScores]:
    """Yield the scores of the heads of one layer, over all inputs."""
    n = sum(part.queries for part in parts)
    by_name = {name: found for name in parts[0].mass if (found := _matches(parts, name, n)) is not None}
    fixed = _fixed_position_matches(parts, n)
    entropy = np.asarray(sum(part.entropy[0] for part in parts))
    most = sum(part.entropy[1] for part in parts)
    greatest = np.asarray(sum(part.largest for part in parts))
    for row in range(len(greatest)):
        matches, position = {name: found[row] for name, found in by_name.items()}, None
        if fixed is not None:
            position, matches[POSITION] = fixed[row]
        yield matches, position, _ratio(entropy[row], most), _ratio(greatest[row], n)


def _ratio(part: float, of: float) -> float | None:
    return float(part) / float(of) if of > 0 else None


def _match(mass: float, chance: float, queries: float, of: int, evenness: float | None = None) -> Match:
    """Return a match, given sums over the informative queries, and the number of all queries."""
    m, c = float(mass) / float(queries), float(chance) / float(queries)
    explained = (m - c) * float(queries) / of
    return Match((m - c) / (1 - c), c, m, int(queries), explained, evenness)


def _matches(parts: Sequence[LayerSums], name: str, of: int) -> list[Match] | None:
    """Return the match of each head; None if the relation has too few informative queries."""
    queries = sum(part.n_informative[name] for part in parts)
    if queries < MIN_QUERIES:
        return None
    chance = sum(part.chance[name] for part in parts)
    mass = np.sum([part.mass[name] for part in parts], axis=0)
    spread, most = (np.sum([part.segment_entropy[which] for part in parts], axis=0) for which in (0, 1))
    return [
        _match(own, chance, queries, of, _ratio(spread[row], most[row]) if name == SPREAD else None)
        for row, own in enumerate(mass)
    ]


def _fixed_position_matches(parts: Sequence[LayerSums], of: int) -> list[tuple[int, Match]] | None:
    """Return, for each head, the position that explains most of its attention, and its match.

    Returns None if no position has enough inputs and queries.
    """
    longest = max(len(part.position_chance) for part in parts)

    def padded(each: Numbers) -> Numbers:
        return np.pad(each, [(0, 0)] * (each.ndim - 1) + [(0, longest - each.shape[-1])])

    mass, chance, queries, inputs = (
        np.sum([padded(each) for each in row], axis=0)
        for row in zip(
            *(
                (p.position_mass, p.position_chance, p.position_queries, p.position_queries > 0)
                for p in parts
            ),
            strict=True,
        )
    )
    (places,) = np.nonzero((inputs >= MIN_INPUTS) & (queries >= max(of / 2, MIN_QUERIES)))
    if not len(places):
        return None
    best = places[(mass - chance)[:, places].argmax(axis=1)]
    return [(int(k), _match(mass[row, k], chance[k], queries[k], of)) for row, k in enumerate(best)]
