"""Synthetic batches: random ids of random lengths, the same for every contender."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from harness.flops import Shape

PAD, START, END, FIRST = 0, 1, 2, 3
"""Ids of the special tokens, and the first of the others."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Sentences in two languages.

    Args:
        sources: ids, the end token last.
        inputs: decoder inputs, the start token first.
        targets: labels, the end token last.
    """

    sources: list[np.ndarray]
    inputs: list[np.ndarray]
    targets: list[np.ndarray]


@lru_cache
def pairs(shape: Shape, rounds: int) -> list[Pairs]:
    """Return one batch of sentence pairs per round. Special tokens count towards the lengths."""
    rng = np.random.default_rng(0)
    return [_pairs(shape, rng) for _ in range(rounds)]


def _pairs(shape: Shape, rng: np.random.Generator) -> Pairs:
    def sentence() -> np.ndarray:
        length = rng.integers(shape.shortest, shape.length + 1)
        return rng.integers(FIRST, shape.vocab, size=length - 1)

    sources, targets = ([sentence() for _ in range(shape.batch)] for _ in range(2))
    # Every batch has a sentence of the maximum length, so all have one padded shape and compile once.
    for side in (sources, targets):
        side[0] = rng.integers(FIRST, shape.vocab, size=shape.length - 1)
    return Pairs(
        sources=[np.append(s, END) for s in sources],
        inputs=[np.insert(t, 0, START) for t in targets],
        targets=[np.append(t, END) for t in targets],
    )


@lru_cache
def sources(shape: Shape, sentences: int) -> list[np.ndarray]:
    """Return sentences to translate, the end token last; the first is the longest."""
    return _pairs(replace(shape, batch=sentences), np.random.default_rng(0)).sources


@lru_cache
def texts(shape: Shape, rounds: int) -> list[Tensor]:
    """Return one batch of text windows per round, ``[batch, length + 1]``."""
    generator = torch.Generator().manual_seed(0)
    size = (shape.batch, shape.length + 1)
    return [torch.randint(FIRST, shape.vocab, size, generator=generator) for _ in range(rounds)]


def padded(rows: Sequence[np.ndarray], fill: int = PAD) -> Tensor:
    """Pad to the longest row, ``[B, S]``."""
    sequences = [torch.as_tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=fill)
