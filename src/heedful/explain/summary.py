"""An explanation for a glance: one matrix of it, in words, and the strongest links of each row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError
from heedful.explain.alignment import READ_AS_INPUT, at_step, links, merge, pharaoh
from heedful.explain.attention_sites import KINDS
from heedful.explain.sides import by_words, merged
from heedful.explain.view import SOURCE, TARGET, Axis, Best, Explanation, Map
from heedful.text.tokenizer import NO_WORD

STRONGEST = 3
"""Links of a row that are told."""

LEAST = 0.005
"""A weight that would be shown as 0.00 is not."""


@dataclass(frozen=True)
class Shown:
    """One matrix of an explanation.

    Args:
        queries, keys: what stands along its rows and columns.
        weights: ``[rows, columns]``; every row sums to 1.
        title: which part of the attention it is, for people.
    """

    queries: Axis
    keys: Axis
    weights: NDArray[np.float64]
    title: str

    def in_words(self) -> "Shown":
        """The same between words (`heedful.explain.alignment`); tokens of no word stand by themselves."""
        rows, columns = by_words(self.queries)[1], by_words(self.keys)[1]
        weights = merge(self.weights, columns, rows)
        return Shown(merged(self.queries), merged(self.keys), weights, self.title)

    def strongest(self, n: int = STRONGEST) -> list[tuple[str, list[tuple[str, float]]]]:
        """For each row its token, and the tokens that it looks at most, with their weights."""
        found = []
        for token, row in zip(self.queries.tokens, self.weights, strict=True):
            best = np.argsort(-row, kind="stable")[:n]
            found.append((token, [(self.keys.tokens[i], float(row[i])) for i in best if row[i] >= LEAST]))
        return found


def mean_of(explanation: Explanation, kind: str | None = None) -> Shown:
    """The mean of all heads of all layers that the explanation has of a kind; or the head that aligns best.

    By default of cross-attention where there is some, which says what was looked at for what was written, and
    of it the head that is known to align best (`heedful.explain.best_head`), if one is; else of the attention
    within a side. Maps with other sides than the last of the kind are left out.

    Raises:
        RequestError: there is no map, or none of that kind.
    """
    kinds = {each.kind for each in explanation.maps}
    known = [kind for kind in reversed(KINDS) if kind in kinds]
    if not known or (kind is not None and kind not in known):
        told = f"there is no {kind} attention" if known else "there is no attention"
        raise RequestError(f"{told} in this explanation")
    wanted = kind or known[0]
    if kind is None and wanted == "cross" and explanation.best is not None:
        return _best(explanation, explanation.best)
    last = [each for each in explanation.maps if each.kind == wanted][-1]
    maps = [
        each
        for each in explanation.maps
        if (each.kind, each.queries, each.keys) == (wanted, last.queries, last.keys)
    ]
    return Shown(explanation.sides[last.queries], explanation.sides[last.keys], _mean(maps), _title(maps))


def _mean(maps: Sequence[Map]) -> NDArray[np.float64]:
    """Of all heads, one after the other, so that no second array of all weights is made."""
    total = np.zeros(maps[0].weights.shape[1:])
    for each in maps:
        for weights in each.weights:
            total += weights
    return total / sum(len(each.heads) for each in maps)


def _best(explanation: Explanation, best: Best) -> Shown:
    """The head, or the mean of the layer, that is known to align best, where it looks for target words."""
    (own,) = (each for each in explanation.maps if each.tap == best.tap)
    if best.head is None:
        weights, which = own.weights.mean(axis=0, dtype=np.float64), "mean of its heads"
    else:
        weights, which = own.head(best.head).astype(np.float64), f"head {best.head + 1}"
    if best.step == "input":
        which += READ_AS_INPUT
    title = f"{name_of(own)}: layer {own.layer + 1}, {which} (known to align best)"
    sides = explanation.sides[own.queries], explanation.sides[own.keys]
    return Shown(*sides, at_step(weights, best.step), title)


NAMES = {"self": "self-attention", "causal": "causal self-attention", "cross": "cross-attention"}
PART = "causal self-attention from target to source, rows divided by their sums"


def name_of(each: Map) -> str:
    """What attention it is, for people."""
    return PART if each.is_part else NAMES[each.kind]


def _title(maps: Sequence[Map]) -> str:
    name = name_of(maps[0])
    layers = ", ".join(str(each.layer + 1) for each in maps)
    heads = sorted({head + 1 for each in maps for head in each.heads})
    if len(maps) == 1 and len(heads) == 1:
        return f"{name}: layer {layers}, head {heads[0]}"
    one = f"head {heads[0]}" if len(heads) == 1 else f"{len(heads)} heads"
    several = f"layer {layers}" if len(maps) == 1 else f"{len(maps)} layers"
    return f"{name}: mean of {several}, {one}"


def word_alignment(shown: Shown) -> str:
    """The links of a translation's cross-attention in Pharaoh form: ``0-0 1-2``, source word first.

    Both sides end in their end token, which is no word, and neither is white space before it; a word that
    looks most at the end of the source has no link (`heedful.explain.alignment.links`).

    Args:
        shown: between tokens.
    """
    return pharaoh(links(merge(shown.weights, _places(shown.keys), _places(shown.queries))))


def _places(side: Axis) -> list[int]:
    """For each token its word's place; what belongs to no word is at the end."""
    places = side.words or range(len(side.tokens))
    return [len(side.surface) if place == NO_WORD else place for place in places]


def alignment_of(explanation: Explanation) -> str | None:
    """`word_alignment` of the cross-attention of `mean_of`; None where no text is written from another."""
    sides = explanation.sides
    if not {SOURCE, TARGET} <= sides.keys() or sides[SOURCE].grid is not None:
        return None
    if not any(each.kind == "cross" and each.queries == TARGET for each in explanation.maps):
        return None
    return word_alignment(mean_of(explanation))


def over_patches(shown: Shown, row: int | None = None) -> NDArray[np.float64]:
    """How an image is looked at, ``[rows, columns]`` of patches.

    Args:
        shown: with patches for its columns.
        row: what one token sees; None: what the class token sees, where one stands before the patches, else
            the mean of all rows.

    Raises:
        RequestError: nothing looks at patches.
    """
    keys = shown.keys
    if keys.grid is None:
        raise RequestError("nothing looks at an image here")
    if row is None and shown.queries.before:
        row = 0
    seen = shown.weights.mean(axis=0) if row is None else shown.weights[row]
    return seen[keys.before :].reshape(keys.grid)
