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
FIXED_POSITION = "fixed position"
SAME_SEGMENT = "same segment"
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
    terms = np.asarray(np.maximum(w, np.finfo(float).tiny))
    np.log(terms, out=terms)
    terms *= -w
    return terms


def layer_sums(weights: ArrayLike, context: AttentionContext) -> LayerSums:
    """Return the sums for `head_scores` from the weights ``[H, Q, K]`` of a layer, with Q and K above 0."""
    w = np.asarray(weights, dtype=float)
    flat = w.reshape(len(w), -1)
    n_visible = context.visible.sum(axis=1)
    has_choice = context.scored & (n_visible > 1)
    candidates = context.visible & has_choice[:, None] & ~context.null_mask
    candidates[:, 0] = False
    relations = context.relations.items()
    terms = entropy_terms(w)
    return LayerSums(
        mass={name: flat @ relation.ravel().astype(float) for name, relation in relations},
        chance={name: float((relation.sum(axis=1) / n_visible).sum()) for name, relation in relations},
        n_informative={name: int(relation.any(axis=1).sum()) for name, relation in relations},
        position_mass=np.einsum("hqk,qk->hk", w, candidates.astype(float)),
        position_chance=(candidates / n_visible[:, None]).sum(axis=0),
        position_queries=candidates.sum(axis=0).astype(float),
        entropy=(terms.sum(axis=2)[:, has_choice].sum(axis=1), float(np.log(n_visible[has_choice]).sum())),
        segment_entropy=_evenness_sums(w, terms, context.relations.get(SAME_SEGMENT)),
        largest=w.max(axis=2)[:, context.scored].sum(axis=1),
        queries=int(context.scored.sum()),
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
    within_entropy = np.einsum("hqk,qk->h", terms, relation.astype(float)) - entropy_terms(mass).sum(axis=1)
    return within_entropy, mass @ np.log(np.maximum(relation.sum(axis=1), 1))


HeadScores = tuple[dict[str, Match], int | None, float | None, float | None]
"""Scores of a head.

The matches of the relations that can be scored, and of ``fixed position``; the fixed position that explains
most, from 0; the entropy as a share of its maximum (None if every query sees a single key); and the mean over
queries of the largest weight (None without queries).
"""


def head_scores(input_sums: Sequence[LayerSums]) -> Iterator[HeadScores]:
    """Yield the scores of the heads of one layer, over all inputs."""
    n_queries = sum(sums.queries for sums in input_sums)
    by_name = {
        name: head_matches
        for name in input_sums[0].mass
        if (head_matches := _matches(input_sums, name, n_queries)) is not None
    }
    fixed = _fixed_position_matches(input_sums, n_queries)
    entropy = np.asarray(sum(sums.entropy[0] for sums in input_sums))
    max_entropy = sum(sums.entropy[1] for sums in input_sums)
    largest = np.asarray(sum(sums.largest for sums in input_sums))
    for row in range(len(largest)):
        matches, position = {name: head_matches[row] for name, head_matches in by_name.items()}, None
        if fixed is not None:
            position, matches[FIXED_POSITION] = fixed[row]
        yield matches, position, _ratio(entropy[row], max_entropy), _ratio(largest[row], n_queries)


def _ratio(part: float, whole: float) -> float | None:
    return float(part) / float(whole) if whole > 0 else None


def _match(
    mass: float, chance: float, n_informative: float, n_queries: int, evenness: float | None = None
) -> Match:
    """Return a match, given sums over the informative queries, and the number of all queries."""
    m, c = float(mass) / float(n_informative), float(chance) / float(n_informative)
    explained = (m - c) * float(n_informative) / n_queries
    return Match((m - c) / (1 - c), c, m, int(n_informative), explained, evenness)


def _matches(input_sums: Sequence[LayerSums], name: str, n_queries: int) -> list[Match] | None:
    """Return the match of each head; None if the relation has too few informative queries."""
    n_informative = sum(sums.n_informative[name] for sums in input_sums)
    if n_informative < MIN_QUERIES:
        return None
    chance = sum(sums.chance[name] for sums in input_sums)
    mass = np.sum([sums.mass[name] for sums in input_sums], axis=0)
    entropy, max_entropy = (np.sum([sums.segment_entropy[i] for sums in input_sums], axis=0) for i in (0, 1))
    return [
        _match(
            head_mass,
            chance,
            n_informative,
            n_queries,
            _ratio(entropy[row], max_entropy[row]) if name == SAME_SEGMENT else None,
        )
        for row, head_mass in enumerate(mass)
    ]


def _fixed_position_matches(
    input_sums: Sequence[LayerSums], n_queries: int
) -> list[tuple[int, Match]] | None:
    """Return, for each head, the position that explains most of its attention, and its match.

    Returns None if no position has enough inputs and queries.
    """
    longest = max(len(sums.position_chance) for sums in input_sums)

    def padded(array: Numbers) -> Numbers:
        return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, longest - array.shape[-1])])

    mass, chance, queries, inputs = (
        np.sum([padded(array) for array in row], axis=0)
        for row in zip(
            *(
                (sums.position_mass, sums.position_chance, sums.position_queries, sums.position_queries > 0)
                for sums in input_sums
            ),
            strict=True,
        )
    )
    (positions,) = np.nonzero((inputs >= MIN_INPUTS) & (queries >= max(n_queries / 2, MIN_QUERIES)))
    if not len(positions):
        return None
    best = positions[(mass - chance)[:, positions].argmax(axis=1)]
    return [(int(k), _match(mass[row, k], chance[k], queries[k], n_queries)) for row, k in enumerate(best)]
