"""How far heads keep to relations (`heedful.explain.relations`): sums over the queries of one input, then the
scores of all inputs together. What the scores are, and why, stands in `heedful.explain.patterns`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.explain.flow import surprises
from heedful.explain.relations import AttentionContext, Relation

FEWEST = 5
"""A relation that says something of fewer queries is not judged."""
FEWEST_INPUTS = 2
"""Nor is a position that holds a word in fewer inputs."""
POSITION = "fixed position"
SPREAD = "same segment"
"""The relation for which it is measured how evenly attention lies on its keys."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Match:
    """How far a head keeps to a relation.

    Args:
        score: s = (m - c) / (1 - c); 1 is entirely, 0 is chance.
        chance: c, what even attention gives to its keys.
        mass: m, what this head gives to them.
        queries: n, of how many queries the relation says something.
        explained: (m - c) n / N, the part of all attention that the relation explains.
        evenness: of ``same segment`` alone: the entropy of attention within the keys, as a share of the
            greatest that there could be; None also where there was never a choice.
    """

    score: float
    chance: float
    mass: float
    queries: int
    explained: float
    evenness: float | None = None


@dataclass(frozen=True)
class Measured:
    """One head.

    Args:
        matches: by relation, and ``fixed position``, as far as they could be judged.
        position: the fixed position that explains most, from 0.
        evenness: the entropy of its attention as a share of the greatest; None where it never had a choice.
        confidence: the mean over queries of its greatest weight; None without queries.
    """

    matches: Mapping[str, Match]
    position: int | None
    evenness: float | None
    confidence: float | None


@dataclass(frozen=True)
class Sums:
    """Sums over the queries that count, of one layer in one input: H heads, K keys.

    Args:
        mass: by relation, ``[H]``.
        chance: by relation.
        applied: by relation, of how many queries it says something.
        at: mass of every place as a fixed position, ``[H, K]``.
        at_chance: ``[K]``.
        at_applied: ``[K]``.
        entropy: ``[H]`` and the greatest there could be, of queries that see two keys or more.
        spread: both ``[H]``: the same within the keys of ``same segment``, queries weighed by their mass.
        greatest: ``[H]``, of the greatest weight.
        queries: how many there are.
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


def sums(weights: Any, known: AttentionContext) -> Sums:
    """What `measured` needs of the weights ``[H, Q, K]`` of a layer in one input; neither Q nor K is 0."""
    w = np.asarray(weights, dtype=float)
    flat = w.reshape(len(w), -1)
    seen = known.visible.sum(axis=1)
    choosing = known.counted & (seen > 1)
    able = known.visible & choosing[:, None] & ~known.null
    able[:, 0] = False
    items = known.relations.items()
    terms = surprises(w)
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
    """``sum_i m_i H_i`` and ``sum_i m_i ln |S_i|``, H_i of the weights within S_i made to sum to 1.

    Args:
        w: ``[H, Q, K]``.
        terms: ``- w ln w``.
        relation: S.
    """
    if relation is None or not relation.any():
        return np.zeros(len(w)), np.zeros(len(w))
    mass = np.einsum("hqk,qk->hq", w, relation.astype(float))
    # m H(w / m) = - sum w ln w + m ln m
    within = np.einsum("hqk,qk->h", terms, relation.astype(float)) - surprises(mass).sum(axis=1)
    return within, mass @ np.log(np.maximum(relation.sum(axis=1), 1))


def measured(parts: Sequence[Sums]) -> list[Measured]:
    """The heads of one layer, over all inputs together."""
    of = sum(part.queries for part in parts)
    by_name = {name: found for name in parts[0].mass if (found := _matches(parts, name, of)) is not None}
    fixed = _fixed(parts, of)
    entropy, room = (sum(part.entropy[which] for part in parts) for which in (0, 1))
    greatest = sum(part.greatest for part in parts)
    heads = []
    for row in range(len(parts[0].greatest)):
        matches = {name: found[row] for name, found in by_name.items()}
        position = None
        if fixed is not None:
            position, matches[POSITION] = fixed[row]
        evenness = _share(np.asarray(entropy)[row], room)
        heads.append(Measured(matches, position, evenness, _share(np.asarray(greatest)[row], of)))
    return heads


def _share(part: Any, of: Any) -> float | None:
    return float(part) / float(of) if of > 0 else None


def _match(mass: Any, chance: Any, queries: Any, of: int, evenness: float | None = None) -> Match:
    """From sums over the queries that a relation says something of, and the number of all queries."""
    m, c = float(mass) / float(queries), float(chance) / float(queries)
    explained = (m - c) * float(queries) / of
    return Match((m - c) / (1 - c), c, m, int(queries), explained, evenness)


def _matches(parts: Sequence[Sums], name: str, of: int) -> list[Match] | None:
    """The match of each head; None where the relation says too little."""
    queries = sum(part.applied[name] for part in parts)
    if queries < FEWEST:
        return None
    chance = sum(part.chance[name] for part in parts)
    mass = np.sum([part.mass[name] for part in parts], axis=0)
    spread, room = (np.sum([part.spread[which] for part in parts], axis=0) for which in (0, 1))
    return [
        _match(own, chance, queries, of, _share(spread[row], room[row]) if name == SPREAD else None)
        for row, own in enumerate(mass)
    ]


def _fixed(parts: Sequence[Sums], of: int) -> list[tuple[int, Match]] | None:
    """For each head the position that explains most of it, and its match; None where no position will do."""
    longest = max(len(part.at_chance) for part in parts)

    def padded(each: Any) -> Numbers:
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
