"""Filter rows and report how many were kept, dropped and truncated, by reason, with example lines."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from pydantic import Field, PositiveInt

from heedful.config import Config
from heedful.data.lines import LocatedRow, Location
from heedful.errors import DataError
from heedful.text.tokenizer import ByteSpelling
from heedful.typing import JsonObject

EncodedRow = Mapping[str, Sequence[int]]
Encoded = LocatedRow[EncodedRow]

N_EXAMPLES = 5
N_CLASSES = 20
PERCENTILES = (50, 90, 99)


class Limit(Protocol):
    """A limit on the length of a row's columns, set by the filter or by the model's inputs."""

    @property
    def reason(self) -> str:
        """The reason in reports for a row that exceeds the limit: "source longer than 30"."""

    def excess(self, row: EncodedRow) -> str | None:
        """Describe by how much the row exceeds the limit, for an error message; None if it does not."""

    def truncate(self, row: EncodedRow) -> EncodedRow:
        """Truncate the row to the limit."""


@dataclass(frozen=True)
class ColumnLimit:
    """The maximum number of ids of a column. A `Limit`."""

    column: str
    max_length: int
    key: str = "max_length"

    @property
    def reason(self) -> str:
        """See `Limit`."""
        return f"{self.column} longer than {self.max_length}"

    def excess(self, row: EncodedRow) -> str | None:
        """See `Limit`."""
        length = len(row[self.column])
        if length <= self.max_length:
            return None
        return f"{self.column} has {length} tokens, more than {self.key} {self.max_length}"

    def truncate(self, row: EncodedRow) -> EncodedRow:
        """Keep the first ids."""
        return {**row, self.column: row[self.column][: self.max_length]}


class Filter(Config):
    """Handling of empty and long rows.

    Args:
        max_length: the maximum number of ids of a column, for all columns or by column; special tokens
            that a task adds are not counted. null: no limit.
        too_long: what to do with a row that exceeds this limit or the model's maximum length: truncate it,
            drop it, or stop with an error.
        empty: what to do with a row that has an empty column, or a text of white space alone: drop it, or
            stop with an error.
        max_ratio: drop a row if its longest column is more than this many times as long as its shortest,
            before truncation.
    """

    max_length: PositiveInt | dict[str, PositiveInt] | None = None
    too_long: Literal["truncate", "drop", "error"] = "truncate"
    empty: Literal["drop", "error"] = "drop"
    max_ratio: float | None = Field(default=None, ge=1)

    def limit(self, column: str) -> int | None:
        """Return the maximum number of ids of ``column``."""
        return self.max_length.get(column) if isinstance(self.max_length, dict) else self.max_length

    def limits(self, columns: Iterable[str]) -> list[Limit]:
        """Return the limits of some columns."""
        lengths = {column: self.limit(column) for column in columns}
        return [ColumnLimit(column, length) for column, length in lengths.items() if length is not None]


EMPTY = "empty "
"""The beginning of the reason to drop a row with an empty column, whose name follows."""


@dataclass
class Tally:
    """A count, and the first locations that were counted."""

    count: int = 0
    examples: list[Location] = field(default_factory=list)

    def add(self, location: Location) -> None:
        """Count a location."""
        self.count += 1
        if len(self.examples) < N_EXAMPLES:
            self.examples.append(location)

    def to_dict(self) -> JsonObject:
        """Convert to JSON values."""
        return {"count": self.count, "examples": [str(location) for location in self.examples]}

    def line(self, outcome: str, reason: str) -> str:
        """Format as a line of text."""
        ellipsis = ", ..." if self.count > len(self.examples) else ""
        return f"{outcome}, {reason}: {self.count:,} ({', '.join(map(str, self.examples))}{ellipsis})"


@dataclass(frozen=True)
class Longest:
    """The row with the most ids in a column, the first if several are equal."""

    column: str
    tokens: int
    location: Location

    def __str__(self) -> str:
        """Format as text."""
        return f"longest {self.column}: {self.location}, {self.tokens:,} tokens"


@dataclass
class ColumnCounts:
    """Lengths (after truncation) of the kept rows in one column, their unknown ids, the longest row.

    Args:
        lengths: number of rows of each length.
        unknown: number of unknown ids.
        characters: number of characters; 0 if the vocabulary has entries for all, or spells all in bytes.
        spelled: how many of these are spelled in bytes.
        longest: the longest row.
    """

    lengths: Counter[int] = field(default_factory=Counter)
    unknown: int = 0
    characters: int = 0
    spelled: int = 0
    longest: Longest | None = None

    @property
    def tokens(self) -> int:
        """The total number of ids."""
        return sum(length * count for length, count in self.lengths.items())

    @property
    def unknown_rate(self) -> float:
        """The share of unknown ids."""
        return self.unknown / self.tokens if self.tokens else 0.0

    @property
    def spelled_rate(self) -> float:
        """The share of characters that are spelled in bytes."""
        return self.spelled / self.characters if self.characters else 0.0

    def percentile(self, percent: float) -> int:
        """Return the smallest length that at least ``percent`` of the rows do not exceed (nearest rank)."""
        threshold, cumulative = percent / 100 * self.lengths.total(), 0
        for length in sorted(self.lengths):
            cumulative += self.lengths[length]
            if cumulative >= threshold:
                return length
        return 0

    def to_dict(self) -> JsonObject:
        """Convert to JSON values."""
        rows = self.lengths.total()
        return {
            "tokens": self.tokens,
            "unknown": self.unknown,
            "unknown_rate": self.unknown_rate,
            **({"spelled_in_bytes": self.spelled_rate} if self.characters else {}),
            "length": {
                "min": min(self.lengths, default=0),
                "mean": self.tokens / rows if rows else 0.0,
                **{f"p{percent}": self.percentile(percent) for percent in PERCENTILES},
                "max": max(self.lengths, default=0),
            },
        }


@dataclass
class DataReport:
    """Statistics that `keep` collects while rows are read.

    Args:
        unknown: the id of the unknown token of each column; columns without one are omitted.
        spelling: counts characters that are spelled in bytes, by column, if a vocabulary can do so.
        rows, kept: the number of rows that were read and kept.
        dropped, truncated: the rows that were dropped and truncated, by reason.
        columns: the lengths of the kept rows in each column.
        classes: the number of kept rows of each class, if classes are counted.
        noted: findings in rows that are not a reason to drop them.
    """

    unknown: Mapping[str, int] = field(default_factory=dict)
    spelling: Mapping[str, ByteSpelling] = field(default_factory=dict)
    rows: int = 0
    kept: int = 0
    dropped: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    truncated: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    columns: dict[str, ColumnCounts] = field(default_factory=lambda: defaultdict(ColumnCounts))
    classes: Counter[str] = field(default_factory=Counter)
    noted: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))

    def drop(self, reason: str, location: Location) -> None:
        """Record a dropped row."""
        self.dropped[reason].add(location)

    @property
    def n_empty(self) -> int:
        """How many rows were dropped because a column is empty."""
        return sum(tally.count for reason, tally in self.dropped.items() if reason.startswith(EMPTY))

    def note(self, finding: str, location: Location) -> None:
        """Record a finding in a row."""
        self.noted[finding].add(location)

    def count(self, located: Encoded) -> None:
        """Record a kept row."""
        self.kept += 1
        for column, ids in located.row.items():
            counts = self.columns[column]
            counts.lengths[len(ids)] += 1
            if counts.longest is None or len(ids) > counts.longest.tokens:
                counts.longest = Longest(column, len(ids), located.location)
            if column in self.unknown:
                counts.unknown += int(np.count_nonzero(np.asarray(ids) == self.unknown[column]))
            if column in self.spelling:
                n_characters, n_spelled = self.spelling[column].count(ids)
                counts.characters += n_characters
                counts.spelled += n_spelled

    @property
    def longest(self) -> Longest | None:
        """The longest row over all columns; None if no rows were counted."""
        candidates = [counts.longest for counts in self.columns.values() if counts.longest is not None]
        return max(candidates, key=lambda longest: longest.tokens, default=None)

    def to_dict(self) -> JsonObject:
        """Convert to JSON values: counts, first examples as ``file:line``, lengths and unknown rates."""
        return {
            "rows": self.rows,
            "kept": self.kept,
            "dropped": {reason: tally.to_dict() for reason, tally in self.dropped.items()},
            "truncated": {reason: tally.to_dict() for reason, tally in self.truncated.items()},
            "columns": {column: counts.to_dict() for column, counts in self.columns.items()},
            **({"classes": dict(sorted(self.classes.items()))} if self.classes else {}),
            **({"noted": {finding: t.to_dict() for finding, t in self.noted.items()}} if self.noted else {}),
        }

    def lines(self) -> list[str]:
        """Format as lines of text."""
        n_dropped = sum(tally.count for tally in self.dropped.values())
        tallies = {"dropped": self.dropped, "truncated": self.truncated, "noted": self.noted}
        lines = [f"rows: {self.rows:,} read, {self.kept:,} kept, {n_dropped:,} dropped"]
        lines += [
            f"  {tally.line(outcome, r)}"
            for outcome, tallies_by_reason in tallies.items()
            for r, tally in tallies_by_reason.items()
        ]
        for column, counts in self.columns.items():
            lengths = ", ".join(f"{k} {value:.4g}" for k, value in counts.to_dict()["length"].items())
            unknown = f"; {counts.unknown_rate:.2%} unknown" if column in self.unknown else ""
            spelled = f"; {counts.spelled_rate:.2%} of characters spelled in bytes" if counts.spelled else ""
            lines.append(f"  {column}: {counts.tokens:,} tokens; length {lengths}{unknown}{spelled}")
        if self.classes:
            largest = ", ".join(f"{name} {n:,}" for name, n in self.classes.most_common(N_CLASSES))
            others = [n for _, n in self.classes.most_common()[N_CLASSES:]]
            more = f", and {len(others):,} more with {sum(others):,}" if others else ""
            lines.append(f"  classes: {largest}{more}")
        return lines


def keep(
    rows: Iterable[Encoded],
    filter: Filter,
    report: DataReport,
    unchecked_columns: Collection[str] = (),
    limits: Sequence[Limit] = (),
) -> Iterator[Encoded]:
    """Yield the rows that pass the filter, truncated if the filter says so, and fill the report.

    A row that fails for several reasons counts for the first: empty, length ratio, too long.

    Args:
        rows: ids by column.
        filter: the filter.
        report: the report to fill.
        unchecked_columns: columns that are passed through unchecked.
        limits: further limits, applied after those of the filter.

    Raises:
        DataError: if the filter stops at a row (with its file and line), or no row is left.
    """
    for full_row in rows:
        report.rows += 1
        unchecked = {column: full_row.row[column] for column in unchecked_columns if column in full_row.row}
        checked: Encoded = LocatedRow(
            {c: x for c, x in full_row.row.items() if c not in unchecked}, full_row.location
        )
        all_limits = [*filter.limits(checked.row), *limits]
        reason = _reason_to_drop(checked, filter, all_limits)
        if reason is not None:
            report.drop(reason, checked.location)
            continue
        truncated = _truncate(checked, all_limits, report)
        report.count(truncated)
        yield LocatedRow({**truncated.row, **unchecked}, truncated.location)
    if report.kept == 0:
        raise DataError("\n  ".join(["no rows left after filtering", *report.lines()]))


def _reason_to_drop(located: Encoded, filter: Filter, limits: Sequence[Limit]) -> str | None:
    row, location = located
    lengths = {column: len(ids) for column, ids in row.items()}
    for column, length in lengths.items():
        if length == 0:
            if filter.empty == "error":
                raise DataError(f"{location}: {column} is empty (set `empty: drop` to drop such rows)")
            return f"{EMPTY}{column}"
    if filter.max_ratio is not None and max(lengths.values()) > filter.max_ratio * min(lengths.values()):
        return f"length ratio above {filter.max_ratio:g}"
    if filter.too_long == "truncate":
        return None
    for limit in limits:
        if (excess := limit.excess(row)) is not None:
            if filter.too_long == "error":
                remedy = "set `too_long: truncate` or `too_long: drop` to truncate or drop such rows"
                raise DataError(f"{location}: {excess} ({remedy})")
            return limit.reason
    return None


def _truncate(located: Encoded, limits: Sequence[Limit], report: DataReport) -> Encoded:
    row = located.row
    for limit in limits:
        if limit.excess(row) is not None:
            report.truncated[limit.reason].add(located.location)
            row = limit.truncate(row)
    return LocatedRow(row, located.location)
