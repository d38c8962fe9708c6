"""Select the head with the best known word alignment, store it in the run folder, and show it first.

There are two sources: supervision (``objective.guided``) and gold alignments. When the attention of a run is
evaluated on gold alignments (`heedful evaluate --alignments`, `heedful.explain.alignment.error_rates`), the
head with the lowest error rate is stored in ``alignment.json``, with the hash of the weights it belongs to;
for other weights (after further training) it is ignored. It replaces

- a stored head, unless that was selected on more pairs;
- the supervised head, if its error rate is lower on at least `MIN_PAIRS` pairs.

For other runs no head is known to align better than the others: neither high confidence nor agreement with
other heads implies good alignment.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from heedful.artifacts.run_folder import RunFolder, write_card
from heedful.errors import DamagedError, HeedfulError
from heedful.explain.alignment.error_rates import HeadErrorRate, most_accurate
from heedful.explain.alignment.word_alignment import DecoderStep, HeadChoice
from heedful.explain.attention_sites import sites_of
from heedful.records import RESTORE, Count, Digest, StampedRecord, read_record
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import TARGET

FILE = "alignment.json"
VERSION = 3
REMEDY = f"{RESTORE}, or delete it and evaluate the run on gold alignments again"
MIN_PAIRS = 20
"""Minimum number of pairs with gold links to prefer another head to the supervised one."""


class BestHeadRecord(StampedRecord):
    """Content of ``alignment.json``, with layers and heads from 0; ``head`` is null for a mean of heads."""

    version: Literal[3]
    layer: Count
    head: Count | None
    step: DecoderStep
    rate: float | None
    pairs: Count
    weights: Digest


@dataclass(frozen=True)
class ShownHead:
    """A head that is shown first or whose links are returned, and the reason as text."""

    choice: HeadChoice
    reason: str


def store_best_head(run: LoadedRun, table: Sequence[HeadErrorRate], n_pairs: int) -> ShownHead | None:
    """Store the head with the lowest error rate in the run folder, unless another head takes precedence.

    Args:
        run: the run of the heads.
        table: all evaluated heads.
        n_pairs: number of pairs with gold links.

    Returns:
        The head that is now shown first; None if nothing is stored, because the folder is not writable or the
        run has no card (training has not finished).
    """
    weights = _weights_hash(run.folder)
    if weights is None:
        return None
    best = most_accurate(table)
    if preferred := _preferred_head(run, best, table, n_pairs):
        return preferred
    choice = best.choice
    content = {
        "version": VERSION,
        **choice.to_dict(),
        "rate": best.rate,
        "pairs": n_pairs,
        "weights": weights,
    }
    try:
        write_card(run.folder.path / FILE, content)
    except (OSError, HeedfulError):
        return None
    return ShownHead(choice, f"lowest error rate on {_format_pairs(n_pairs)}")


def _preferred_head(
    run: LoadedRun, best: HeadErrorRate, table: Sequence[HeadErrorRate], n_pairs: int
) -> ShownHead | None:
    """Return the head that takes precedence over the new one, if any."""
    stored, supervised = None, _supervised_head(run)
    with suppress(DamagedError):  # it is overwritten
        stored = _stored_head(run, supervised)
    if stored is not None and stored[1] > n_pairs:
        choice, stored_pairs = stored
        return ShownHead(
            choice,
            f"selected on {_format_pairs(stored_pairs)}; {best.choice} on only {_format_pairs(n_pairs)}",
        )
    if supervised in (None, best.choice) or (stored is not None and stored[0] != supervised):
        return None
    rate = next((row.rate for row in table if row.choice == supervised), None)
    if rate is None:
        return ShownHead(supervised, "supervised head, not among the evaluated ones")
    if n_pairs < MIN_PAIRS:
        reason = (
            f"{best.choice} has the lowest error rate, but on only {_format_pairs(n_pairs)} with gold links"
        )
        return ShownHead(supervised, f"supervised head; {reason}; at least {MIN_PAIRS} are needed")
    # An undefined rate (NaN) is not higher either.
    if best.rate < rate:
        return None
    return ShownHead(supervised, f"supervised head; {best.choice} is not better")


def best_head(run: LoadedRun) -> HeadChoice | None:
    """Return the head with the best known alignment, or None.

    Raises:
        DamagedError: ``alignment.json`` is damaged.
    """
    known = known_head(run)
    return None if known is None else known.choice


def known_head(run: LoadedRun) -> ShownHead | None:
    """Return the head with the best known alignment and how it is known, or None.

    Raises:
        DamagedError: ``alignment.json`` is damaged.
    """
    if not n_heads_by_layer(run):
        return None
    supervised = _supervised_head(run)
    stored = _stored_head(run, supervised)
    if stored is not None:
        return ShownHead(stored[0], f"lowest error rate on {_format_pairs(stored[1])} with gold links")
    return None if supervised is None else ShownHead(supervised, "trained on word alignments")


def n_heads_by_layer(run: LoadedRun) -> list[int]:
    """Return the number of heads of each layer with attention from target to source."""
    return [site.n_heads for site in sites_of(run) if (site.kind, site.queries) == ("cross", TARGET)]


def _supervised_head(run: LoadedRun) -> HeadChoice | None:
    """Return the head trained with alignment supervision, if there is one."""
    guided = getattr(getattr(run.recipe, "objective", None), "guided", None)
    if guided is None:
        return None
    return HeadChoice(guided.layer_index(len(n_heads_by_layer(run))), guided.head - 1, guided.step)


def _stored_head(run: LoadedRun, supervised: HeadChoice | None) -> tuple[HeadChoice, int] | None:
    """Return the head in ``alignment.json``, and the number of pairs with gold links it was selected on.

    Returns None if it belongs to other weights, or was selected on too few pairs.
    """
    path = run.folder.path / FILE
    if not path.is_file():
        return None
    record = read_record(path, BestHeadRecord, REMEDY)
    if record.weights != _weights_hash(run.folder):
        return None
    n_heads = n_heads_by_layer(run)
    choice = HeadChoice(record.layer, record.head, record.step)
    if record.layer >= len(n_heads) or (record.head or 0) >= n_heads[record.layer]:
        raise DamagedError(f"{path}: damaged: the model has no {choice}; {REMEDY}")
    return None if supervised not in (None, choice) and record.pairs < MIN_PAIRS else (choice, record.pairs)


def _weights_hash(folder: RunFolder) -> str | None:
    """Return the hash of the run's weights, from its card."""
    if not folder.card.is_file():
        return None
    entry = folder.read_card()["files"].get(folder.weights.name)
    return None if entry is None else entry["sha256"]


def _format_pairs(n: int) -> str:
    return "1 pair" if n == 1 else f"{n:,} pairs"
