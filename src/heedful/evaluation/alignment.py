"""Word alignments in Pharaoh form, and their error rate."""

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from heedful.errors import DataError, RequestError
from heedful.evaluation.score import Score, check_lengths

Link = tuple[int, int]

_LINK = re.compile(r"([0-9]+)([-p])([0-9]+)", re.ASCII)


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
    """Read one sentence pair a line: ``i-j`` is a sure link, ``ipj`` a merely possible one.

    Args:
        lines: such as ``0-0 1p2 2-1``; an empty line is a pair without links.
        name: the file's name, for messages.
        first: what the file calls the first word, 0 or 1.

    Raises:
        DataError: ``name:line: what is wrong``.
    """
    return [_parse(line, f"{name}:{number}", first) for number, line in enumerate(lines, 1)]


def _parse(line: str, where: str, first: int) -> Alignment:
    links: dict[str, set[Link]] = {"-": set(), "p": set()}
    for word in line.split():
        match = _LINK.fullmatch(word)
        if match is None:
            raise DataError(f"{where}: {word!r} is no link; write i-j (sure) or ipj (possible)")
        source, target = int(match[1]) - first, int(match[3]) - first
        if min(source, target) < 0:
            raise DataError(f"{where}: {word!r} names a word before the first, which is {first}")
        links[match[2]].add((source, target))
    return Alignment(frozenset(links["-"]), frozenset(links["p"]))


def alignment_error_rate(found: Sequence[Set[Link]], gold: Sequence[Alignment]) -> Score:
    """AER (Och and Ney 2003, section 5.1), over all sentence pairs together; 0 is best, 1 worst::

        AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

    A are the links found, S the sure ones, and P the possible ones, which hold the sure ones too. The
    details give precision |A ∩ P| / |A| and recall |A ∩ S| / |S|, None where they divide by nothing.

    Args:
        found: for each sentence pair its links as (source, target), from 0.
        gold: what they are held against.

    Raises:
        RequestError: no pairs, unequal numbers of them, or neither a link found nor a sure one.
    """
    check_lengths(found, gold, "alignments", "gold alignments")
    pairs = list(zip(found, gold, strict=True))
    n_found, n_sure = sum(len(a) for a in found), sum(len(g.sure) for g in gold)
    if n_found + n_sure == 0:
        raise RequestError("there is nothing to score: no link was found, and no gold link is sure")
    hit_sure = sum(len(a & g.sure) for a, g in pairs)
    hit_possible = sum(len(a & g.possible) for a, g in pairs)
    details = {
        "precision": hit_possible / n_found if n_found else None,
        "recall": hit_sure / n_sure if n_sure else None,
    }
    n_possible = sum(len(g.possible) for g in gold)
    counts = {"sentences": len(gold), "links": n_found, "sure": n_sure, "possible": n_possible}
    signature = f"possible:{'yes' if n_possible > n_sure else 'no'}"
    value = 1 - (hit_sure + hit_possible) / (n_found + n_sure)
    return Score("alignment error rate", value, signature, details, counts)
