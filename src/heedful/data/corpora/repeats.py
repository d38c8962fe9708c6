"""Sequences that come twice: all that can be known of the second is in the first.

A sequence is drawn from 64 symbols, none of them twice, and source and target are the same. So a language
model that reads one after the other cannot foretell the first better than by chance, and can foretell the
second exactly: it finds the token that it has just written in what stands before, and copies the one that
followed it there. Attention that does so is called an induction head (Elhage et al. 2021; Olsson et al.
2022); it takes two layers.

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
        seed: of the symbols and lengths.
        shortest: the fewest symbols of a sequence.
        longest: the most; every length between them is equally probable.

    Raises:
        RequestError: for a split that is not there.
    """
    if split not in SIZES:
        known = ", ".join(repr(name) for name in SIZES)
        raise RequestError(f"repeats: there is no split {split!r}{nearest(split, SIZES)}; there are {known}")
    return _draw(split, seed, shortest, longest)


def chance(shortest: int, longest: int) -> float:
    """Nats per token that no model can do without, of a first sequence and the separator that ends it.

    Of a sequence of n, they are ``ln(64! / (64 - n)!)`` for its symbols, and ``ln(longest - shortest + 1)``
    for its length; their mean over all lengths is divided by the mean of n + 1.

    Args:
        shortest: as of `repeats`.
        longest: likewise.
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
