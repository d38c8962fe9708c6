"""Synthetic sequences: integers to reverse, copy or sort, and repeated symbols to study induction heads.

``reverse`` is JoeyNMT's synthetic task with its sizes: integers from 0 to 49, written in digits and
separated by spaces; 50,000 training pairs of 1 to 25 integers, and 1,000 each for validation and test, of 1
to 30, so that some are longer than any in training. JoeyNMT trains on 40,000 of them per epoch; that is a
training option, not part of the corpus.

A sequence of ``repeats`` has distinct symbols drawn from 64, and source and target are equal. So a language
model that reads both cannot predict the first better than by chance, but can predict the second exactly: it
finds the previous occurrence of the last token and copies the token that followed it. Attention that does so
is called an induction head (Elhage et al. 2021; Olsson et al. 2022); it takes two layers. ``repeats`` has
4 to 16 symbols in a sequence, ``repeats-long`` 17 to 32.
"""

import math
from collections.abc import Callable, Iterator, Sequence

from heedful.data.corpora.grammar import SPLITS, Draw, Pair

SIZES = {"train": 50_000, "valid": 1_000, "test": 1_000}
INTEGERS = 50
LONGEST = {"train": 25, "valid": 30, "test": 30}
SYMBOLS = tuple(consonant + vowel for consonant in "bdfghjklmnprstvz" for vowel in "aiou")

TASKS: dict[str, Callable[[Sequence[int]], Sequence[int]]] = {
    "reverse": lambda integers: range(len(integers) - 1, -1, -1),
    "copy": lambda integers: range(len(integers)),
    "sort": lambda integers: sorted(range(len(integers)), key=integers.__getitem__),
}
"""For each task on integers, the source position of each target word."""


def reverse(split: str, seed: int = 0, task: str = "reverse") -> Iterator[Pair]:
    """Return the pairs of a split, in an order fixed by the seed.

    Args:
        split: ``train``, ``valid`` or ``test``; each has its own stream of choices.
        seed: the seed of integers and lengths.
        task: ``reverse``; ``copy``; or ``sort``, into ascending order (stable, so that the alignment is
            unique).
    """
    return (_reordered(draw, split, task) for draw in _draws(split, seed))


def _draws(split: str, seed: int) -> Iterator[Draw]:
    """Yield the same stream of choices for each pair of a split."""
    draw = Draw(3 * seed + SPLITS.index(split))
    return (draw for _ in range(SIZES[split]))


def _reordered(draw: Draw, split: str, task: str) -> Pair:
    integers = [draw.below(INTEGERS) for _ in range(1 + draw.below(LONGEST[split]))]
    order, tags = TASKS[task](integers), ("NUM",) * len(integers)
    source, target = " ".join(map(str, integers)), " ".join(str(integers[i]) for i in order)
    return Pair(source, target, tuple(sorted((i, j) for j, i in enumerate(order))), tags, tags)


def repeats(split: str, seed: int = 0, *, shortest: int, longest: int) -> Iterator[Pair]:
    """Return the pairs of a split, in an order fixed by the seed.

    Args:
        split: ``train``, ``valid`` or ``test``; each has its own stream of choices.
        seed: the seed of symbols and lengths.
        shortest: the minimum number of symbols of a sequence.
        longest: the maximum number; all lengths in this range are equally probable.
    """
    return (_repeated(draw, shortest, longest) for draw in _draws(split, seed))


def _repeated(draw: Draw, shortest: int, longest: int) -> Pair:
    n, remaining = shortest + draw.below(longest - shortest + 1), list(SYMBOLS)
    text = " ".join(remaining.pop(draw.below(len(remaining))) for _ in range(n))
    tags = ("SYM",) * n
    return Pair(text, text, tuple((i, i) for i in range(n)), tags, tags)


def chance(shortest: int, longest: int) -> float:
    """Return the entropy in nats per token of a first sequence and its separator: the minimum loss.

    For a sequence of n symbols, it is ``ln(64! / (64 - n)!)`` for the symbols and
    ``ln(longest - shortest + 1)`` for the length; the mean over all lengths is divided by the mean of n + 1.
    Arguments are those of `repeats`.
    """
    lengths = range(shortest, longest + 1)
    symbols = sum(math.log(math.perm(len(SYMBOLS), n)) for n in lengths)
    return (symbols + len(lengths) * math.log(len(lengths))) / sum(n + 1 for n in lengths)
