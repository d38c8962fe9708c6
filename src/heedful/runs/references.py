"""References: what a text that was written is held against, one or several."""

from collections.abc import Sequence
from typing import Any

from heedful.data.sources import Row

REFERENCES = "references"
"""The column of a list of references, where a data set has several for an input."""


def references_of(row: Row, column: str) -> list[str]:
    """Those of the list that a row has, or its one text in ``column``."""
    return row.get(REFERENCES) or [row[column]]


def shown(references: Sequence[str]) -> dict[str, Any]:
    """What the record of an input says of them."""
    return {"reference": references[0]} if len(references) == 1 else {REFERENCES: references}
