"""Read word alignments in Pharaoh and column format, and compute their error rate."""

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
    """The links of a sentence pair as (source, target) word indices, from 0.

    Args:
        sure: links that must be found.
        possible: links that may be found; they always include the sure ones.
    """

    sure: frozenset[Link]
    possible: frozenset[Link]

    def __post_init__(self) -> None:
        object.__setattr__(self, "possible", self.possible | self.sure)


def read_alignments(lines: Iterable[str], name: str, *, first: int) -> list[Alignment]:
    """Read one sentence pair per line: ``i-j`` is a sure link, ``ipj`` or ``i?j`` a possible one.

    Args:
        lines: lines such as ``0-0 1p2 2-1``; an empty line is a pair without links.
        name: the file name, for messages.
        first: the index of the first word in the file, 0 or 1.

    Raises:
        DataError: ``name:line: what is wrong``.
    """
    return [Alignment(*read_links(line, f"{name}:{n}", first)) for n, line in enumerate(lines, 1)]


class Gold(NamedTuple):
    """Gold alignments, and the index of the first word in their file: 0 or 1."""

    alignments: list[Alignment]
    first: int


def read_gold(lines: Iterable[str], name: str, *, first: int, n_pairs: int) -> Gold:
    """Read gold alignments in the format detected from the first non-empty line.

    | format | a line is | |
    |---|---|---|
    | Pharaoh | a sentence pair: ``1-1 2p3`` | `read_alignments` |
    | columns | a link: ``0001 1 1 S`` | pair, source word, target word, S(ure) or P(ossible) |

    The column format is that of the shared task of Mihalcea and Pedersen 2003: indices start at 1, links to
    word 0 (NULL) are ignored, a link without a letter is sure, and a number at the end (the confidence of a
    system) is ignored.

    Args:
        lines: lines of the file.
        name: the file name, for messages.
        first: the index of the first word in a file in Pharaoh format, 0 or 1.
        n_pairs: number of sentence pairs.

    Raises:
        DataError: ``name:line: what is wrong``, or the number of sentence pairs differs.
    """
    rest = iter(lines)
    head: list[str] = []
    for line in rest:
        head.append(line)
        if line.strip():
            break
    all_lines = chain(head, rest)
    if head and _COLUMNS.fullmatch(head[-1].strip()):
        return Gold(_from_columns(all_lines, name, n_pairs), 1)
    gold = read_alignments(all_lines, name, first=first)
    if len(gold) != n_pairs:
        raise DataError(f"{name}: expected {n_pairs} lines, one per sentence pair, got {len(gold)}")
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
                f"{name}:{number}: expected the numbers of sentence pair, source word and target word, then "
                f"S or P, as on the lines before, got {line.strip()!r}"
            )
        pair, source, target = (int(match[i]) - 1 for i in (1, 2, 3))
        if not 0 <= pair < n_pairs:
            raise DataError(f"{name}:{number}: sentence pair must be between 1 and {n_pairs}, got {pair + 1}")
        if min(source, target) < 0:
            continue
        (possible if match[4] == "P" else sure)[pair].add((source, target))
    return [Alignment(frozenset(s), frozenset(p)) for s, p in zip(sure, possible, strict=True)]


def check_alignments(gold: Gold, words: Sequence[tuple[int, int]], name: str) -> None:
    """Check that all links of gold alignments are inside their sentence pairs.

    Args:
        gold: the gold alignments.
        words: the number of source and target words of each pair.
        name: the file name, for messages.

    Raises:
        DataError: ``name, pair k: …``.
    """
    hint = "; does the file count from 1?" if gold.first == 0 else ""
    for number, (alignment, (n_source, n_target)) in enumerate(zip(gold.alignments, words, strict=True), 1):
        links = Links(alignment.sure, alignment.possible)
        check_links(links, n_source, n_target, f"{name}, pair {number}", first=gold.first, hint=hint)


def alignment_error_rate(predicted: Sequence[Set[Link]], gold: Sequence[Alignment]) -> Score:
    """Compute AER (Och and Ney 2003, section 5.1) over all sentence pairs; 0 is best, 1 worst::

        AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

    A are the predicted links, S the sure ones, and P the possible ones, which include the sure ones. The
    details contain precision |A ∩ P| / |A| and recall |A ∩ S| / |S|, None if the denominator is 0. AER is NaN
    if there are neither predicted nor sure links.

    Args:
        predicted: the predicted links of each sentence pair as (source, target), from 0.
        gold: the gold alignments.

    Raises:
        RequestError: there are no pairs, or unequal numbers of them.
    """
    check_lengths(predicted, gold, "alignments", "gold alignments")
    pairs = list(zip(predicted, gold, strict=True))
    n_predicted, n_sure = sum(len(a) for a in predicted), sum(len(g.sure) for g in gold)
    hit_sure = sum(len(a & g.sure) for a, g in pairs)
    hit_possible = sum(len(a & g.possible) for a, g in pairs)
    details = {
        "precision": hit_possible / n_predicted if n_predicted else None,
        "recall": hit_sure / n_sure if n_sure else None,
    }
    n_possible = sum(len(g.possible) for g in gold)
    counts = {"sentences": len(gold), "links": n_predicted, "sure": n_sure, "possible": n_possible}
    signature = f"possible:{'yes' if n_possible > n_sure else 'no'}"
    value = 1 - (hit_sure + hit_possible) / (n_predicted + n_sure) if n_predicted + n_sure else nan
    return Score("alignment error rate", value, signature, details, counts)
