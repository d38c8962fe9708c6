"""Word alignments in Pharaoh and in column form, and their error rate."""

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from math import nan
from typing import NamedTuple

from heedful.data.links import Link, Links, check_links, read_links
from heedful.errors import DataError
from heedful.tasks.metrics.score import Score, check_lengths

_COLUMNS = re.compile(r"([0-9]+)\s+([0-9]+)\s+([0-9]+)(?:\s+([SP]))?(?:\s+[0-9.]+)?", re.ASCII)


@dataclass(frozen=True)
class Alignment:
    """The links of a sentence pair as (source, target) places, from 0.

    Args:
        sure: links that must be found.
        possible: links that may be found; the sure ones always belong to them.
    """

    sure: frozenset[Link]
    possible: frozenset[Link]

    def __post_init__(self) -> None:
        object.__setattr__(self, "possible", self.possible | self.sure)


def read_alignments(lines: Iterable[str], name: str, *, first: int) -> list[Alignment]:
    """Read one sentence pair a line: ``i-j`` is a sure link, ``ipj`` or ``i?j`` a merely possible one.

    Args:
        lines: such as ``0-0 1p2 2-1``; an empty line is a pair without links.
        name: the file's name, for messages.
        first: what the file calls the first word, 0 or 1.

    Raises:
        DataError: ``name:line: what is wrong``.
    """
    return [Alignment(*read_links(line, f"{name}:{n}", first)) for n, line in enumerate(lines, 1)]


class Gold(NamedTuple):
    """Gold alignments, and what their file calls the first word: 0 or 1."""

    alignments: list[Alignment]
    first: int


def read_gold(lines: Iterable[str], name: str, *, first: int, n_pairs: int) -> Gold:
    """Read gold alignments in the form that the first line with a word shows.

    | form | a line is | |
    |---|---|---|
    | Pharaoh | a sentence pair: ``1-1 2p3`` | `read_alignments` |
    | columns | a link: ``0001 1 1 S`` | pair, source word, target word, S(ure) or P(ossible) |

    Columns are those of the shared task of Mihalcea and Pedersen 2003: everything counts from 1, word 0
    is NULL, whose links are left out, a link without a letter is sure, and a number at the end (how confident
    a system was) is not used.

    Args:
        lines: of the file.
        name: the file's name, for messages.
        first: what a file in Pharaoh form calls the first word, 0 or 1.
        n_pairs: how many sentence pairs there are.

    Raises:
        DataError: ``name:line: what is wrong``, or the file is of other sentence pairs.
    """
    rest = iter(lines)
    before: list[str] = []
    for line in rest:
        before.append(line)
        if line.strip():
            break
    everything = chain(before, rest)
    if before and _COLUMNS.fullmatch(before[-1].strip()):
        return Gold(_from_columns(everything, name, n_pairs), 1)
    gold = read_alignments(everything, name, first=first)
    if len(gold) != n_pairs:
        raise DataError(
            f"{name}: has {len(gold)} lines, but there are {n_pairs} sentence pairs: line k belongs to pair k"
        )
    return Gold(gold, first)


def _from_columns(lines: Iterable[str], name: str, n_pairs: int) -> list[Alignment]:
    sure: list[set[Link]] = [set() for _ in range(n_pairs)]
    possible: list[set[Link]] = [set() for _ in range(n_pairs)]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = _COLUMNS.fullmatch(line.strip())
        if match is None:
            raise DataError(
                f"{name}:{number}: {line.strip()!r} is no link; as on the lines before, write the numbers of "
                "the sentence pair, of the source word and of the target word, then S or P"
            )
        pair, source, target = (int(match[i]) - 1 for i in (1, 2, 3))
        if not 0 <= pair < n_pairs:
            raise DataError(f"{name}:{number}: is of pair {pair + 1}, but there are pairs 1 to {n_pairs}")
        if min(source, target) < 0:
            continue
        (possible if match[4] == "P" else sure)[pair].add((source, target))
    return [Alignment(frozenset(s), frozenset(p)) for s, p in zip(sure, possible, strict=True)]


def check_alignments(gold: Gold, words: Sequence[tuple[int, int]], name: str) -> None:
    """Refuse gold alignments of which a link points outside of its sentence pair.

    Args:
        gold: as it was read.
        words: of each pair, how many words source and target have.
        name: the file's name, for messages.

    Raises:
        DataError: ``name, pair k: …``.
    """
    hint = "; does the file count from 1?" if gold.first == 0 else ""
    for number, (alignment, (n_source, n_target)) in enumerate(zip(gold.alignments, words, strict=True), 1):
        links = Links(alignment.sure, alignment.possible)
        check_links(links, n_source, n_target, f"{name}, pair {number}", first=gold.first, hint=hint)


def alignment_error_rate(found: Sequence[Set[Link]], gold: Sequence[Alignment]) -> Score:
    """AER (Och and Ney 2003, section 5.1), over all sentence pairs together; 0 is best, 1 worst::

        AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

    A are the links found, S the sure ones, and P the possible ones, which hold the sure ones too. The
    details give precision |A ∩ P| / |A| and recall |A ∩ S| / |S|, None where they divide by nothing. Where no
    link was found and none is sure, the rate divides by nothing too: it is not a number.

    Args:
        found: for each sentence pair its links as (source, target), from 0.
        gold: what they are held against.

    Raises:
        RequestError: no pairs, or unequal numbers of them.
    """
    check_lengths(found, gold, "alignments", "gold alignments")
    pairs = list(zip(found, gold, strict=True))
    n_found, n_sure = sum(len(a) for a in found), sum(len(g.sure) for g in gold)
    hit_sure = sum(len(a & g.sure) for a, g in pairs)
    hit_possible = sum(len(a & g.possible) for a, g in pairs)
    details = {
        "precision": hit_possible / n_found if n_found else None,
        "recall": hit_sure / n_sure if n_sure else None,
    }
    n_possible = sum(len(g.possible) for g in gold)
    counts = {"sentences": len(gold), "links": n_found, "sure": n_sure, "possible": n_possible}
    signature = f"possible:{'yes' if n_possible > n_sure else 'no'}"
    value = 1 - (hit_sure + hit_possible) / (n_found + n_sure) if n_found + n_sure else nan
    return Score("alignment error rate", value, signature, details, counts)
