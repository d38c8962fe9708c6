"""The number of micro-batches with which an update fits into an amount of memory."""

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


def _size(n: int) -> str:
    return gibibytes(n) if n >= 1 << 30 else f"{n / 2**20:,.0f} MiB"
