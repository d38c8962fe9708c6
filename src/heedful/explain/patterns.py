"""What heads do, measured: a census that names the pattern of each head of a model (lecture S1, figures 11
and 12; Vig 2018 and 2019; Clark et al. 2019, section 3; Voita et al. 2019, sections 4.1 and 5.1).

A pattern says which keys belong to a query (`heedful.explain.relations`). Over all queries i of all inputs
for which it says something, with S_i those keys among the V_i that the query sees::

    mass   m = mean_i of sum_{j in S_i} w_ij         chance   c = mean_i of |S_i| / |V_i|
    score  s = (m - c) / (1 - c)

Chance is what a head gives that looks at all it sees evenly. So s is 0 for such a head at any length, also in
causal attention, where early queries see few keys; 1 for one that looks nowhere else; negative for one that
looks away; and λ for one that gives a share λ of its attention to the pattern and the rest to all it sees
(the correction of Cohen's kappa, 1960).

A head is named after a pattern with s of at least 1/2. Of two patterns without common keys only one can have
more, for s <= m, and both masses are parts of 1; Clark et al. count heads by half of the attention, too.
Patterns can hold each other: the first token is often a special one, and a head that looks there gets about
the same s for both. The name is that of the pattern that explains most, ``(m - c) n / N`` with n of all N
queries: of patterns with equal s and n that is the one with fewer keys. Others with s of at least a quarter
stand beside it. Five rules more:

- *Special tokens do not count as queries*: patterns break there (S1, figure 11a: "broken by the SEP tokens").
- *The same token* means all places with it, one's own too, for queries that see another; the score for the
  others alone (``copy``) must be a quarter at least. It goes before ``itself``: a head like that of figure
  11c looks at itself as at the others, and at nothing else where a word stands alone.
- *The same segment* means all of it (figure 11d: "equal attention"), not one word that a head picks there:
  attention within it has at least 9/10 of the greatest entropy.
- *A fixed position* is the one, but the first, that explains most; it must hold a word in two inputs or more,
  or a place and what stands in it could not be told apart, and half of the queries must see it.
- *Broad* is a head that has no other name and an entropy of at least 9/10 of the greatest, summed over
  queries: sum_i H_i >= 0.9 sum_i ln |V_i| (it looks at |V| to the power of 0.9: 15 of 20, 274 of 512).

The lecture says of its figure 12 that the model has 6 layers with 12 heads each. It is BERT-base: 12 layers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from heedful.errors import RequestError
from heedful.explain.classes import PATTERNS, Pattern
from heedful.explain.matches import Match, measured, sums
from heedful.explain.relations import COPY, NEIGHBOUR, AttentionContext, Relation, frame
from heedful.explain.view import Explanation, Kind, Map

THRESHOLD = 0.5
"""From this score on a pattern may name a head."""
BESIDE = 0.5
"""Times the threshold: from this score on a pattern stands beside the name."""
BROAD = 0.9
"""From this share of the greatest entropy on attention is even."""
EXAMPLES = 3


@dataclass(frozen=True)
class Example:
    """One weight as evidence.

    Args:
        input: the number of the input, from 0.
        query: the place of the token that looks.
        key: the place of the one it looks at.
        tokens: both, as they are shown.
        weight: that it gives to it.
    """

    input: int
    query: int
    key: int
    tokens: tuple[str, str]
    weight: float


@dataclass(frozen=True)
class HeadPattern:
    """What a head does.

    Args:
        layer: counted from 0 within its stack.
        kind: who looks at whom.
        head: counted from 0.
        pattern: its name.
        score: that of the pattern; of ``broad`` the share of the greatest entropy; of ``none`` nothing.
        chance: what even attention scores in mass; 1 of ``broad``; of ``none`` nothing.
        evidence: the greatest weights that belong to the pattern (of ``broad`` and ``none``: of all), each
            from another query.
        tap: where in the model its attention was read.
        others: patterns that stand beside the name, those that explain more first.
        position: of ``fixed position``, here or among the others: which, from 0.
        entropy: as a share of the greatest.
        confidence: the mean over queries of the greatest weight (Voita et al. 2019, section 4.1).
        matches: all patterns that could be judged, by name.
    """

    layer: int
    kind: Kind
    head: int
    pattern: Pattern
    score: float | None
    chance: float | None
    evidence: tuple[Example, ...]
    tap: str
    others: tuple[Pattern, ...]
    position: int | None
    entropy: float | None
    confidence: float | None
    matches: Mapping[str, Match]


@dataclass(frozen=True)
class Share:
    """A line of the table of a census.

    Args:
        kind: of attention.
        pattern: of heads.
        heads: how many are named after it.
        share: of all heads of that kind.
        beside: how many have it beside their names.
    """

    kind: Kind
    pattern: Pattern
    heads: int
    share: float
    beside: int


@dataclass(frozen=True)
class Recurrence:
    """How much of a recurrent network there is in a model: heads that look at their neighbours.

    Args:
        heads: how many look at their own side.
        previous: the share of them whose score for the token before reaches the threshold, as a recurrence
            over time has it.
        next: likewise for the token after, as a recurrence backwards has it.
        either: likewise for both together, whichever of them it is at a query.
    """

    heads: int
    previous: float
    next: float
    either: float


@dataclass(frozen=True)
class Census:
    """What all heads of a model do.

    Args:
        task: of the run.
        run: its name.
        inputs: how many were looked at.
        threshold: from which score on a pattern named a head.
        heads: all, stack by stack, layer by layer.
    """

    task: str
    run: str
    inputs: int
    threshold: float
    heads: tuple[HeadPattern, ...]

    def table(self) -> tuple[Share, ...]:
        """How many heads follow each pattern, for each kind of attention that there is."""
        kinds = dict.fromkeys(head.kind for head in self.heads)
        return tuple(self._share(kind, pattern) for kind in kinds for pattern in PATTERNS)

    def _share(self, kind: Kind, pattern: Pattern) -> Share:
        heads = [head for head in self.heads if head.kind == kind]
        own = sum(head.pattern == pattern for head in heads)
        beside = sum(pattern in head.others for head in heads)
        return Share(kind, pattern, own, own / len(heads), beside)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, as ``docs/schemas/census.schema.json`` has it: layers and heads from 1."""
        found = recurrence(self)
        return {
            "version": 1,
            "task": self.task,
            "run": self.run,
            "inputs": self.inputs,
            "threshold": self.threshold,
            "table": [asdict(share) for share in self.table()],
            "recurrence": None if found is None else asdict(found),
            "heads": [
                {**_json(asdict(head)), "layer": head.layer + 1, "head": head.head + 1} for head in self.heads
            ],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Census":
        """The inverse of `to_dict`."""
        heads = tuple(_head(each) for each in value["heads"])
        return cls(value["task"], value["run"], value["inputs"], value["threshold"], heads)


def _json(value: Any) -> Any:
    """The same with lists for tuples, as it comes back from JSON."""
    if isinstance(value, dict):
        return {key: _json(inner) for key, inner in value.items()}
    return [_json(inner) for inner in value] if isinstance(value, tuple | list) else value


def _head(plain: Mapping[str, Any]) -> HeadPattern:
    """A head as JSON has it."""
    made = {
        "layer": plain["layer"] - 1,
        "head": plain["head"] - 1,
        "others": tuple(plain["others"]),
        "evidence": tuple(Example(**{**each, "tokens": tuple(each["tokens"])}) for each in plain["evidence"]),
        "matches": {name: Match(**match) for name, match in plain["matches"].items()},
    }
    return HeadPattern(**{**plain, **made})


def recurrence(of: Census) -> Recurrence | None:
    """The share of heads that do what a recurrent network is wired for (S1 on Vig; item 75 of the lectures).

    The lecture says that recurrence is a subset of attention: its links emerge in training. A head that looks
    at the token before can stand for such a link; how many there are, is counted here.

    Returns:
        None where no side looks at itself.
    """
    heads = [head for head in of.heads if head.kind != "cross"]

    def share(name: str) -> float:
        scores = [head.matches[name].score for head in heads if name in head.matches]
        return sum(score >= of.threshold for score in scores) / len(heads)

    if not heads:
        return None
    return Recurrence(len(heads), share("previous token"), share("next token"), share(NEIGHBOUR))


def census(explanations: Sequence[Explanation], *, threshold: float = THRESHOLD) -> Census:
    """Name the pattern of every head, over all inputs together.

    Give it several inputs of different lengths, some with words that occur twice, and pairs of segments where
    the task has them: what never occurs cannot be judged.

    Args:
        explanations: of one run, with the same maps of the same heads.
        threshold: from which score on a pattern names a head.

    Raises:
        RequestError: no explanations, several runs, maps that differ in their heads, or no attention at all.
    """
    if not explanations:
        raise RequestError("a census needs one explained input at least; several tell more")
    if len(runs := sorted({each.run for each in explanations})) > 1:
        raise RequestError(f"a census is of one run, not of {' and '.join(runs)}")
    taps: dict[str, list[_Seen]] = {}
    for number, explanation in enumerate(explanations):
        for seen in _seen(number, explanation):
            taps.setdefault(seen.map.tap, []).append(seen)
    if not taps:
        raise RequestError("the explanations hold no attention weights to judge heads by")
    heads = tuple(head for seen in taps.values() for head in _heads(seen, threshold))
    return Census(explanations[0].task, runs[0], len(explanations), threshold, heads)


@dataclass(frozen=True)
class _Seen:
    """The attention of a layer in one input, and what is known of it beforehand."""

    input: int
    map: Map
    frame: AttentionContext

    def keys(self, pattern: Pattern, position: int | None) -> Relation:
        """``[Q, K]``: the weights that are evidence for a pattern."""
        name = COPY if pattern == "same token" else pattern
        if name in self.frame.relations:
            return self.frame.relations[name]
        visible = self.frame.visible & self.frame.counted[:, None]
        return visible & (np.arange(visible.shape[1]) == position) if pattern == "fixed position" else visible


def _seen(number: int, explanation: Explanation) -> Iterator[_Seen]:
    """The maps of an input; those between the same sides share a frame. Empty ones say nothing."""
    frames: dict[tuple[Kind, str, str], AttentionContext] = {}
    for each in explanation.maps:
        if each.weights.size:
            sides = (each.kind, each.queries, each.keys)
            if sides not in frames:
                frames[sides] = frame(
                    each.kind, explanation.sides[each.queries], explanation.sides[each.keys]
                )
            yield _Seen(number, each, frames[sides])


def _heads(seen: Sequence[_Seen], threshold: float) -> Iterator[HeadPattern]:
    """The heads of one layer.

    Raises:
        RequestError: not the same heads in all inputs.
    """
    first = seen[0].map
    if any(each.map.heads != first.heads for each in seen):
        raise RequestError(f"{first.tap}: not the same heads in all inputs")
    found = measured([sums(each.map.weights, each.frame) for each in seen])
    for row, (head, own) in enumerate(zip(first.heads, found, strict=True)):
        pattern, others = named(own.matches, own.evenness, threshold)
        match = own.matches.get(pattern)
        broad = pattern == "broad"
        yield HeadPattern(
            layer=first.layer,
            kind=first.kind,
            head=head,
            pattern=pattern,
            score=match.score if match else own.evenness if broad else None,
            chance=match.chance if match else 1.0 if broad else None,
            evidence=_evidence(seen, row, pattern, own.position),
            tap=first.tap,
            others=others,
            position=own.position if "fixed position" in (pattern, *others) else None,
            entropy=own.evenness,
            confidence=own.confidence,
            matches=own.matches,
        )


def named(
    matches: Mapping[str, Match], evenness: float | None, threshold: float = THRESHOLD
) -> tuple[Pattern, tuple[Pattern, ...]]:
    """The name of a head, and the patterns that stand beside it.

    Args:
        matches: of the patterns that could be judged.
        evenness: its entropy as a share of the greatest; None where no query had a choice.
        threshold: from which score on a pattern names a head.
    """

    def reaches(pattern: str, score: float) -> bool:
        return pattern in matches and matches[pattern].score >= score

    reaching = [pattern for pattern in PATTERNS if reaches(pattern, BESIDE * threshold)]
    if not reaches(COPY, BESIDE * threshold):
        reaching = [pattern for pattern in reaching if pattern != "same token"]
    if "same segment" in reaching and (matches["same segment"].evenness or 0) < BROAD:
        reaching.remove("same segment")
    # Rounded: what explains the same explains it to the last digits, those of the order of a sum.
    reaching.sort(key=lambda pattern: -round(matches[pattern].explained, 9))
    leading = [pattern for pattern in reaching if reaches(pattern, threshold)]
    if leading[:1] == ["itself"] and "same token" in leading:
        leading.insert(0, "same token")
    if evenness is not None and evenness >= BROAD:
        reaching.append("broad")
        leading.append("broad")
    name: Pattern = leading[0] if leading else "none"
    return name, tuple(pattern for pattern in reaching if pattern != name)


def _evidence(seen: Sequence[_Seen], row: int, pattern: Pattern, position: int | None) -> tuple[Example, ...]:
    """The greatest weights among the keys of a pattern, one of a query; of equal ones the first."""
    found = []
    for each in seen:
        own = np.where(each.keys(pattern, position), each.map.weights[row], -1.0)
        best = own.argmax(axis=1)
        greatest = own[np.arange(len(own)), best]
        for query in np.argsort(-greatest, kind="stable")[:EXAMPLES]:
            key, weight = int(best[query]), float(greatest[query])
            if weight >= 0:
                tokens = each.frame.queries[query], each.frame.keys[key]
                found.append(Example(each.input, int(query), key, tokens, weight))
    return tuple(sorted(found, key=lambda example: -example.weight)[:EXAMPLES])
