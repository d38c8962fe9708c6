"""Find the number of micro-batches with which an update fits into an amount of memory."""

from collections.abc import Callable
from dataclasses import dataclass

from heedful.memory import gibibytes
from heedful.typing import JsonObject


@dataclass(frozen=True)
class Fit:
    """The fewest micro-batches that fit, among doublings of the recipe's.

    Args:
        available: bytes of memory.
        accumulate: ``training.accumulate``; None: not even one sequence at a time fits.
        tokens: target tokens of a micro-batch.
        resident: bytes that updates with them keep resident.
        is_own: whether this is the recipe's own number.
    """

    available: int
    accumulate: int | None
    tokens: int
    resident: int
    is_own: bool

    def __str__(self) -> str:
        """Return a sentence."""
        memory, needed = _size(self.available), _size(self.resident)
        if self.accumulate is None:
            return (
                f"no training.accumulate fits into {memory}: one sequence at a time takes about {needed}; "
                "lower the sizes of the model, or the length of its inputs"
            )
        micro_batch = f"about {needed} with {self.tokens:,} target tokens at once"
        own = " (as it is)" if self.is_own else ""
        return f"training.accumulate={self.accumulate}{own} fits into {memory}: {micro_batch}"

    def to_dict(self) -> JsonObject:
        """Return the entry ``fit`` of ledger.schema.json."""
        return {
            "available": self.available,
            "accumulate": self.accumulate,
            "tokens": self.tokens,
            "resident": self.resident,
        }


def find_fit(
    resident: Callable[[int, bool], int], tokens_per_update: int, accumulate: int, length: int, available: int
) -> Fit:
    """Return the fewest micro-batches that fit: ``accumulate``, or twice, four times … as many.

    Args:
        resident: returns the bytes of updates, given the number of sequences of a micro-batch, and whether
            there are several micro-batches.
        tokens_per_update: target tokens of an update.
        accumulate: number of micro-batches of the recipe.
        length: tokens of a sequence.
        available: bytes of memory.
    """
    n_parts = accumulate
    while True:
        tokens = max(1, tokens_per_update // n_parts)
        n_sequences = max(1, tokens // length)
        needed = resident(n_sequences, n_parts > 1)
        if needed <= available:
            return Fit(available, n_parts, tokens, needed, n_parts == accumulate)
        if n_sequences == 1:
            return Fit(available, None, tokens, needed, False)
        n_parts *= 2


def _size(n: int) -> str:
    return gibibytes(n) if n >= 1 << 30 else f"{n / 2**20:,.0f} MiB"
