"""Well-formed sequences of tags: whether training data have them, and the most probable one (Viterbi).

A tagger predicts the tag of each word by itself: P(t_i | words). Of tags that encode spans, the most probable
ones may not fit together (``O I-PER``, or ``B-PER I-LOC``). The answer is the well-formed sequence with the
highest product of probabilities:

    t* = argmax over well-formed t of  sum_i log P(t_i | words)
    s_i(t) = log P(t_i = t) + max over u that t may follow of  s_{i-1}(u)

The maximum is over all sequences where the training data are not well-formed: they have a scheme of their
own, such as IOB1, in which a span begins with ``I``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from heedful.data.store import TokenStore
from heedful.records import Record, read_record
from heedful.tasks.inputs.words import TAGS
from heedful.tasks.metrics.spans import SCHEMES, Scheme, SchemeName

MOST_ILL_FORMED = 0.05
"""Largest share of training rows whose tags are not well-formed, as annotations have errors."""


class TransitionsRecord(Record):
    """Content of ``transitions.json``: the scheme in which the tags of predictions are well-formed."""

    version: Literal[1] = 1
    scheme: SchemeName


@dataclass(frozen=True)
class Transitions:
    """Which tags may follow which.

    Args:
        allowed: ``[C + 1, C + 1]``, whether the second tag may follow the first; C is the beginning and the
            end.
    """

    allowed: NDArray[np.bool_]

    @classmethod
    def of(cls, scheme: Scheme, labels: Sequence[str]) -> "Transitions":
        """Return the transitions of well-formed tags."""
        states = (*labels, None)
        return cls(np.array([[scheme.may_follow(b, a) for b in states] for a in states]))

    def best(self, log_probs: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the most probable well-formed tags; the most probable ones if none are well-formed.

        Args:
            log_probs: ``[n, C]``, of each tag for each word.

        Returns:
            ``[n]``, the number of each tag.
        """
        best: NDArray[np.int64] = log_probs.argmax(axis=1)
        outside = len(self.allowed) - 1
        path = np.concatenate([[outside], best, [outside]])
        if len(best) == 0 or self.allowed[path[:-1], path[1:]].all():
            return best
        penalty = np.where(self.allowed, 0.0, -np.inf)
        among = penalty[:outside, :outside]
        scores = log_probs[0] + penalty[outside, :outside]
        parents = np.empty(log_probs.shape, dtype=np.int64)
        for i in range(1, len(log_probs)):
            reached = scores[:, None] + among
            parents[i] = reached.argmax(axis=0)
            scores = log_probs[i] + reached.max(axis=0)
        scores = scores + penalty[:outside, outside]
        if scores.max() == -np.inf:
            return best
        tags = np.empty_like(best)
        tags[-1] = scores.argmax()
        for i in range(len(tags) - 1, 0, -1):
            tags[i - 1] = parents[i, tags[i]]
        return tags


def tag_sentences(store: TokenStore, labels: Sequence[str]) -> Iterator[list[str]]:
    """Yield the tags of each row of encoded data.

    The stream of tags has 1 plus the number of a tag at the first token of each word, else 0.
    """
    for row in range(len(store)):
        marks = store[row][TAGS]
        yield [labels[mark - 1] for mark in marks[marks > 0].tolist()]


def read_transitions(path: Path, labels: Sequence[str]) -> Transitions | None:
    """Read the file of a run; None if it has none.

    Raises:
        DamagedError: it is damaged.
    """
    if not path.is_file():
        return None
    return Transitions.of(SCHEMES[read_record(path, TransitionsRecord).scheme], labels)
