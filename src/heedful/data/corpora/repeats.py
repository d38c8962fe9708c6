"""Repeated random sequences, to study induction heads.

A sequence has distinct symbols drawn from 64, and source and target are equal. So a language model that reads
both cannot predict the first better than by chance, but can predict the second exactly: it finds the previous
occurrence of the last token and copies the token that followed it. Attention that does so is called an
induction head (Elhage et al. 2021; Olsson et al. 2022); it takes two layers.

``repeats`` has 4 to 16 symbols in a sequence, ``repeats-long`` 17 to 32.
"""

import math
from collections.abc import Iterator

from heedful.data.corpora.grammar import Draw, Pair
from heedful.errors import RequestError, nearest

CONSONANTS, VOWELS = "bdfghjklmnprstvz", "aiou"
SYMBOLS = tuple(consonant + vowel for consonant in CONSONANTS for vowel in VOWELS)
SIZES = {"train": 50_000, "valid": 1_000, "test": 1_000}


def repeats(split: str, seed: int = 0, *, shortest: int, longest: int) -> Iterator[Pair]:
    """Return the pairs of a split, in an order fixed by the seed.

    Args:
        split: ``train``, ``valid`` or ``test``; each has its own stream of choices.
        seed: the seed of symbols and lengths.
        shortest: the minimum number of symbols of a sequence.
        longest: the maximum number; all lengths in this range are equally probable.

    Raises:
        RequestError: if there is no such split.
    """
    if split not in SIZES:
        known = ", ".join(repr(name) for name in SIZES)
        raise RequestError(f"repeats: there is no split {split!r}{nearest(split, SIZES)}; there are {known}")
    return _draw(split, seed, shortest, longest)


def chance(shortest: int, longest: int) -> float:
    """Return the entropy in nats per token of a first sequence and its separator: the minimum loss.

    For a sequence of n symbols, it is ``ln(64! / (64 - n)!)`` for the symbols and
    ``ln(longest - shortest + 1)`` for the length; the mean over all lengths is divided by the mean of n + 1.

    Args:
        shortest: as in `repeats`.
        longest: as in `repeats`.
    """
    lengths = range(shortest, longest + 1)
    symbols = sum(math.log(math.perm(len(SYMBOLS), n)) for n in lengths)
    return (symbols + len(lengths) * math.log(len(lengths))) / sum(n + 1 for n in lengths)


def _draw(split: str, seed: int, shortest: int, longest: int) -> Iterator[Pair]:
    draw = Draw(3 * seed + list(SIZES).index(split))
    for _ in range(SIZES[split]):
        n, left = shortest + draw.below(longest - shortest + 1), list(SYMBOLS)
        text = " ".join(left.pop(draw.below(len(left))) for _ in range(n))
        tags = ("SYM",) * n
        yield Pair(text, text, tuple((i, i) for i in range(n)), tags, tags)
