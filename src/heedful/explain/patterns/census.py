"""Classify attention heads by what they attend to: a census of all heads of a model.

Sources: lecture S1, figures 11 and 12; Vig 2018 and 2019; Clark et al. 2019, section 3; Voita et al. 2019,
sections 4.1 and 5.1.

A pattern defines, for each query, a set of keys (`heedful.explain.patterns.relations`). Over the queries i of
all inputs for which it is informative, with S_i those keys among the V_i visible ones::

    mass   m = mean_i of sum_{j in S_i} w_ij         chance   c = mean_i of |S_i| / |V_i|
    score  s = (m - c) / (1 - c)

Chance is the mass of uniform attention. So s is 0 for a uniform head at any length, also in causal attention,
where early queries see few keys; 1 for a head with all weight on these keys; negative for a head that avoids
them; and λ for a head that gives a share λ to the pattern and the rest uniformly to all visible keys (the
correction of Cohen's kappa, 1960).

A head gets the name of a pattern with s of at least 1/2. Of two patterns without common keys, at most one
can reach more than that, because s <= m and both masses are shares of 1; Clark et al. also use half of the
attention as the criterion. Patterns may overlap: the first token is often a special token, and a head that
attends to it has about the same s for both. The head is then named after the pattern that explains most,
``(m - c) n / N`` with n of all N queries: of patterns with equal s and n, the one with fewer keys. Other
patterns with s of at least 1/4 are listed beside the name. Five further rules:

- *Special tokens are excluded as queries*, because patterns break there (S1, figure 11a: "broken by the SEP
  tokens").
- *Same token* comprises all positions with the query's token, including its own, for queries with at least
  one other such position; the score for the others alone (``copy``) must be at least 1/4. It takes precedence
  over ``itself``: a head as in figure 11c attends equally to itself and to the others, and to nothing else
  if a word occurs once.
- *Same segment* means the whole segment (figure 11d: "equal attention"), not a single word in it: the entropy
  of the attention within the segment must be at least 9/10 of its maximum.
- *Fixed position* is the position, other than the first, that explains most. At least two inputs must have a
  word there, since otherwise the position cannot be separated from its token, and at least half of the
  queries must see it.
- *Broad* is a head without another name whose entropy, summed over queries, is at least 9/10 of its maximum:
  sum_i H_i >= 0.9 sum_i ln |V_i| (it attends to about |V| to the power of 0.9 keys: 15 of 20, 274 of 512).

The lecture states that the model in its figure 12 has 6 layers with 12 heads each. It is BERT-base, which has
12 layers.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from heedful.errors import RequestError
from heedful.explain.attention_map import AttentionMap, Kind
from heedful.explain.patterns.classes import CLASSES
from heedful.explain.patterns.relations import (
    COPY,
    NEIGHBOUR,
    AttentionContext,
    Relation,
    attention_context,
)
from heedful.explain.patterns.scores import Match, head_scores, layer_sums
from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

THRESHOLD = 0.5
"""Minimum score of a pattern that names a head."""
BESIDE = 0.5
"""Minimum score of a pattern listed beside the name, as a factor of the threshold."""
BROAD = 0.9
"""Minimum entropy of uniform attention, as a share of its maximum."""
EXAMPLES = 3


@dataclass(frozen=True)
class Example:
    """One weight as evidence for a pattern; inputs and positions are counted from 0."""

    input: int
    query: int
    key: int
    tokens: tuple[str, str]
    weight: float


@dataclass(frozen=True)
class HeadPattern:
    """The class of a head, with scores.

    Args:
        layer: index within its stack, from 0.
        kind: kind of attention.
        head: index from 0.
        pattern: the class.
        score: score of the class; for ``broad``, the share of the maximum entropy; for ``none``, None.
        chance: mass of uniform attention; 1 for ``broad``; None for ``none``.
        evidence: the largest weights that belong to the class (for ``broad`` and ``none``: of all weights),
            each of a different query.
        tap: tap of its attention in the model.
        others: patterns listed beside the class, those that explain more first.
        position: position of ``fixed position``, as the class or beside it, from 0.
        entropy: share of the maximum entropy.
        confidence: mean over queries of the largest weight (Voita et al. 2019, section 4.1).
        matches: all patterns that could be scored, by name.
    """

    layer: int
    kind: Kind
    head: int
    pattern: str
    score: float | None
    chance: float | None
    evidence: tuple[Example, ...]
    tap: str
    others: tuple[str, ...]
    position: int | None
    entropy: float | None
    confidence: float | None
    matches: Mapping[str, Match]


@dataclass(frozen=True)
class ClassShare:
    """A row of the census table.

    Args:
        kind: kind of attention.
        pattern: class of heads.
        heads: number of heads of this class.
        share: share of all heads of this kind.
        beside: number of heads that have the pattern beside their class.
    """

    kind: Kind
    pattern: str
    heads: int
    share: float
    beside: int


@dataclass(frozen=True)
class Recurrence:
    """How many heads attend to neighbouring tokens, as a recurrent network does by its architecture.

    Args:
        heads: number of self-attention heads.
        previous: share of them whose score for the previous token reaches the threshold (forward recurrence).
        next: the same for the next token (backward recurrence).
        either: the same for both together, whichever of them each query attends to.
    """

    heads: int
    previous: float
    next: float
    either: float


@dataclass(frozen=True)
class Census:
    """The classes of all heads of a model.

    Args:
        task: kind of the run's task.
        run: name of the run.
        inputs: number of inputs.
        threshold: minimum score of a pattern that names a head.
        heads: all heads, by stack and layer.
    """

    task: str
    run: str
    inputs: int
    threshold: float
    heads: tuple[HeadPattern, ...]

    def table(self) -> tuple[ClassShare, ...]:
        """Return the number of heads of each class, for each kind of attention in the model."""
        rows = []
        for kind in dict.fromkeys(head.kind for head in self.heads):
            heads = [head for head in self.heads if head.kind == kind]
            for pattern in CLASSES:
                n = sum(head.pattern == pattern for head in heads)
                beside = sum(pattern in head.others for head in heads)
                rows.append(ClassShare(kind, pattern, n, n / len(heads), beside))
        return tuple(rows)

    def to_dict(self) -> JsonObject:
        """Return the JSON form described by ``docs/schemas/census.schema.json``; layers and heads from 0."""
        recurrent = recurrence(self)
        return {
            "version": 2,
            "task": self.task,
            "run": self.run,
            "inputs": self.inputs,
            "threshold": self.threshold,
            "table": [asdict(share) for share in self.table()],
            "recurrence": None if recurrent is None else asdict(recurrent),
            # Through JSON, because asdict keeps tuples.
            "heads": [json.loads(json.dumps(asdict(head))) for head in self.heads],
        }


def recurrence(model_census: Census) -> Recurrence | None:
    """Return the share of heads that attend to neighbours (S1 on Vig; item 75 of the lectures).

    The lecture states that recurrence is a subset of attention: its connections emerge in training. A head
    that attends to the previous token can take the role of such a connection.

    Returns:
        None if the model has no self-attention.
    """
    heads = [head for head in model_census.heads if head.kind != "cross"]

    def share(name: str) -> float:
        scores = [head.matches[name].score for head in heads if name in head.matches]
        return sum(score >= model_census.threshold for score in scores) / len(heads)

    if not heads:
        return None
    return Recurrence(len(heads), share("previous token"), share("next token"), share(NEIGHBOUR))


def census(explanations: Sequence["Explanation"], *, threshold: float = THRESHOLD) -> Census:
    """Classify every head, over all inputs together.

    Use several inputs of different lengths, some with repeated words, and pairs of segments if the task has
    them: patterns that never occur in the inputs cannot be scored.

    Args:
        explanations: of one run, with the same heads in the same maps.
        threshold: minimum score of a pattern that names a head.

    Raises:
        RequestError: there are no explanations, no attention, several runs, or maps with different heads.
    """
    if not explanations:
        raise RequestError("a census needs at least one explained input, got none; use several")
    if len(runs := sorted({each.run for each in explanations})) > 1:
        raise RequestError(f"all explanations of a census must be of one run, got {' and '.join(runs)}")
    taps: dict[str, list[_LayerInput]] = {}
    for index, explanation in enumerate(explanations):
        for layer_input in _layer_inputs(index, explanation):
            taps.setdefault(layer_input.map.tap, []).append(layer_input)
    if not taps:
        raise RequestError("a census needs attention weights; the explanations contain none")
    heads = tuple(head for inputs in taps.values() for head in _classify_layer(inputs, threshold))
    return Census(explanations[0].task, runs[0], len(explanations), threshold, heads)


@dataclass(frozen=True)
class _LayerInput:
    """The attention of a layer in one input, and its context."""

    input: int
    map: AttentionMap
    context: AttentionContext

    def keys(self, pattern: str, position: int | None) -> Relation:
        """Return the weights that are evidence for a pattern, ``[Q, K]``."""
        name = COPY if pattern == "same token" else pattern
        if name in self.context.relations:
            return self.context.relations[name]
        visible = self.context.visible & self.context.scored[:, None]
        return visible & (np.arange(visible.shape[1]) == position) if pattern == "fixed position" else visible


def _layer_inputs(index: int, explanation: "Explanation") -> Iterator[_LayerInput]:
    """Yield the non-empty maps of an input; maps between the same axes share a context."""
    contexts: dict[tuple[Kind, str, str], AttentionContext] = {}
    for attention_map in explanation.maps:
        if attention_map.weights.size:
            key = (attention_map.kind, attention_map.queries, attention_map.keys)
            if key not in contexts:
                contexts[key] = attention_context(
                    attention_map.kind,
                    explanation.axes[attention_map.queries],
                    explanation.axes[attention_map.keys],
                )
            yield _LayerInput(index, attention_map, contexts[key])


def _classify_layer(inputs: Sequence[_LayerInput], threshold: float) -> Iterator[HeadPattern]:
    """Yield the heads of one layer.

    Raises:
        RequestError: the inputs have different heads.
    """
    first = inputs[0].map
    if any(layer_input.map.heads != first.heads for layer_input in inputs):
        raise RequestError(f"{first.tap}: all inputs must have the same heads")
    scores = head_scores([layer_sums(layer_input.map.weights, layer_input.context) for layer_input in inputs])
    for row, (head, (matches, position, evenness, confidence)) in enumerate(
        zip(first.heads, scores, strict=True)
    ):
        pattern, others = classify(matches, evenness, threshold)
        match = matches.get(pattern)
        is_broad = pattern == "broad"
        yield HeadPattern(
            layer=first.layer,
            kind=first.kind,
            head=head,
            pattern=pattern,
            score=match.score if match else evenness if is_broad else None,
            chance=match.chance if match else 1.0 if is_broad else None,
            evidence=_evidence(inputs, row, pattern, position),
            tap=first.tap,
            others=others,
            position=position if "fixed position" in (pattern, *others) else None,
            entropy=evenness,
            confidence=confidence,
            matches=matches,
        )


def classify(
    matches: Mapping[str, Match], evenness: float | None, threshold: float = THRESHOLD
) -> tuple[str, tuple[str, ...]]:
    """Return the class of a head, and the patterns listed beside it.

    Args:
        matches: the patterns that could be scored.
        evenness: share of the maximum entropy; None if every query sees a single key.
        threshold: minimum score of a pattern that names a head.
    """

    def reaches(pattern: str, score: float) -> bool:
        return pattern in matches and matches[pattern].score >= score

    reaching = [pattern for pattern in CLASSES if reaches(pattern, BESIDE * threshold)]
    if not reaches(COPY, BESIDE * threshold):
        reaching = [pattern for pattern in reaching if pattern != "same token"]
    if "same segment" in reaching and (matches["same segment"].evenness or 0) < BROAD:
        reaching.remove("same segment")
    # Rounded, because equal values may differ in the last digits, depending on the order of summation.
    reaching.sort(key=lambda pattern: -round(matches[pattern].explained, 9))
    leading = [pattern for pattern in reaching if reaches(pattern, threshold)]
    if leading[:1] == ["itself"] and "same token" in leading:
        leading.insert(0, "same token")
    if evenness is not None and evenness >= BROAD:
        reaching.append("broad")
        leading.append("broad")
    name = leading[0] if leading else "none"
    return name, tuple(pattern for pattern in reaching if pattern != name)


def _evidence(
    inputs: Sequence[_LayerInput], row: int, pattern: str, position: int | None
) -> tuple[Example, ...]:
    """Return the largest weights on the keys of a pattern, one per query; of equal weights the first."""
    examples = []
    for layer_input in inputs:
        weights = np.where(layer_input.keys(pattern, position), layer_input.map.weights[row], -1.0)
        keys = weights.argmax(axis=1)
        largest = weights[np.arange(len(weights)), keys]
        for query in np.argsort(-largest, kind="stable")[:EXAMPLES]:
            key, weight = int(keys[query]), float(largest[query])
            if weight >= 0:
                tokens = layer_input.context.queries[query], layer_input.context.keys[key]
                examples.append(Example(layer_input.input, int(query), key, tokens, weight))
    return tuple(sorted(examples, key=lambda example: -example.weight)[:EXAMPLES])
