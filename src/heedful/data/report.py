"""What became of the rows: kept, dropped and truncated, by reason, with the lines to look at."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from pydantic import Field, PositiveInt

from heedful.config import Config
from heedful.data.lines import LocatedRow, Location
from heedful.errors import DataError

EncodedRow = Mapping[str, Sequence[int]]
Encoded = LocatedRow[EncodedRow]

N_EXAMPLES = 5
N_CLASSES = 20
PERCENTILES = (50, 90, 99)


class Limit(Protocol):
    """A bound on the length of a row's columns: of the filter, or of what the model reads."""

    @property
    def reason(self) -> str:
        """What reports call a row that is over the limit: "source longer than 30"."""
        ...

    def over(self, row: EncodedRow) -> str | None:
        """By how much the row is over the limit, for an error message; None if it is not."""
        ...

    def cut(self, row: EncodedRow) -> EncodedRow:
        """The row, cut to the limit."""
        ...


@dataclass(frozen=True)
class ColumnLimit:
    """The most ids that a column may have. A `Limit`.

    Args:
        column: its name.
        most: how many.
        key: the setting that says so.
    """

    column: str
    most: int
    key: str = "max_length"

    @property
    def reason(self) -> str:
        """See `Limit`."""
        return f"{self.column} longer than {self.most}"

    def over(self, row: EncodedRow) -> str | None:
        """See `Limit`."""
        length = len(row[self.column])
        if length <= self.most:
            return None
        return f"{self.column} has {length} tokens, more than {self.key} {self.most}"

    def cut(self, row: EncodedRow) -> EncodedRow:
        """The first ids."""
        return {**row, self.column: row[self.column][: self.most]}


class Filter(Config):
    """What to do with rows that cannot be used as they are.

    Args:
        max_length: the most ids a column may have, for all columns or by column; the special ids
            that a task adds are not counted. null: no limit.
        too_long: what to do with a row that is over this limit, or over what the model reads: cut it, drop
            it, or stop.
        empty: drop a row with an empty column, or stop.
        max_ratio: drop a row whose longest column is more than this many times its shortest, as
            they were before cutting.
    """

    max_length: PositiveInt | dict[str, PositiveInt] | None = None
    too_long: Literal["truncate", "drop", "error"] = "truncate"
    empty: Literal["drop", "error"] = "drop"
    max_ratio: float | None = Field(default=None, ge=1)

    def limit(self, column: str) -> int | None:
        """The most ids that ``column`` may have."""
        if isinstance(self.max_length, dict):
            return self.max_length.get(column)
        return self.max_length

    def limits(self, columns: Iterable[str]) -> list[Limit]:
        """Those of some columns."""
        of = {column: self.limit(column) for column in columns}
        return [ColumnLimit(column, most) for column, most in of.items() if most is not None]


@dataclass
class Tally:
    """A count, and the first places that were counted."""

    count: int = 0
    examples: list[Location] = field(default_factory=list)

    def add(self, where: Location) -> None:
        """Count one more."""
        self.count += 1
        if len(self.examples) < N_EXAMPLES:
            self.examples.append(where)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"count": self.count, "examples": [str(where) for where in self.examples]}

    def line(self, what: str, reason: str) -> str:
        """For people."""
        more = ", ..." if self.count > len(self.examples) else ""
        return f"{what}, {reason}: {self.count:,} ({', '.join(map(str, self.examples))}{more})"


@dataclass(frozen=True)
class Longest:
    """The row that has the most ids in a column, the first of several."""

    column: str
    tokens: int
    where: Location

    def __str__(self) -> str:
        """For people."""
        return f"longest {self.column}: {self.where}, {self.tokens:,} tokens"


@dataclass
class ColumnCounts:
    """Lengths and unknown ids of the kept rows in one column (as cut), and the longest of them."""

    lengths: Counter[int] = field(default_factory=Counter)
    unknown: int = 0
    longest: Longest | None = None

    @property
    def tokens(self) -> int:
        """Ids in all."""
        return sum(length * count for length, count in self.lengths.items())

    @property
    def unknown_rate(self) -> float:
        """The share of ids that are the unknown one."""
        return self.unknown / self.tokens if self.tokens else 0.0

    def percentile(self, percent: float) -> int:
        """The shortest length that at least ``percent`` of the rows do not exceed (nearest rank)."""
        needed, seen = percent / 100 * self.lengths.total(), 0
        for length in sorted(self.lengths):
            seen += self.lengths[length]
            if seen >= needed:
                return length
        return 0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = self.lengths.total()
        return {
            "tokens": self.tokens,
            "unknown": self.unknown,
            "unknown_rate": self.unknown_rate,
            "length": {
                "min": min(self.lengths, default=0),
                "mean": self.tokens / rows if rows else 0.0,
                **{f"p{percent}": self.percentile(percent) for percent in PERCENTILES},
                "max": max(self.lengths, default=0),
            },
        }


@dataclass
class DataReport:
    """Counts that `keep` fills while rows go by.

    Args:
        unknown: for each column, the id of the unknown token; columns without one are left out.
    """

    unknown: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    kept: int = 0
    dropped: dict[str, Tally] = field(default_factory=dict)
    truncated: dict[str, Tally] = field(default_factory=dict)
    columns: dict[str, ColumnCounts] = field(default_factory=dict)
    classes: Counter[str] = field(default_factory=Counter)
    """How many rows of each class were kept, where classes are counted."""
    noted: dict[str, Tally] = field(default_factory=dict)
    """What was found in rows that is no reason to drop them."""

    def drop(self, reason: str, where: Location) -> None:
        """Take in that a row is left out."""
        self.dropped.setdefault(reason, Tally()).add(where)

    def note(self, what: str, where: Location) -> None:
        """Take in what was found in a row."""
        self.noted.setdefault(what, Tally()).add(where)

    def count(self, located: Encoded) -> None:
        """Take in a row that is kept."""
        self.kept += 1
        for column, ids in located.row.items():
            counts = self.columns.setdefault(column, ColumnCounts())
            counts.lengths[len(ids)] += 1
            if counts.longest is None or len(ids) > counts.longest.tokens:
                counts.longest = Longest(column, len(ids), located.where)
            if column in self.unknown:
                counts.unknown += _count(ids, self.unknown[column])

    @property
    def longest(self) -> Longest | None:
        """The longest of all columns, where rows were counted."""
        found = [counts.longest for counts in self.columns.values() if counts.longest is not None]
        return max(found, key=lambda longest: longest.tokens, default=None)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: counts, first examples as ``file:line``, lengths and unknown rates."""
        return {
            "rows": self.rows,
            "kept": self.kept,
            "dropped": {reason: tally.to_dict() for reason, tally in self.dropped.items()},
            "truncated": {reason: tally.to_dict() for reason, tally in self.truncated.items()},
            "columns": {column: counts.to_dict() for column, counts in self.columns.items()},
            **({"classes": dict(sorted(self.classes.items()))} if self.classes else {}),
            **({"noted": {what: t.to_dict() for what, t in self.noted.items()}} if self.noted else {}),
        }

    def lines(self) -> list[str]:
        """For people."""
        n_dropped = sum(tally.count for tally in self.dropped.values())
        head = f"rows: {self.rows:,} read, {self.kept:,} kept, {n_dropped:,} dropped"
        return [
            head,
            *(f"  {tally.line('dropped', reason)}" for reason, tally in self.dropped.items()),
            *(f"  {tally.line('truncated', reason)}" for reason, tally in self.truncated.items()),
            *(f"  {tally.line('noted', what)}" for what, tally in self.noted.items()),
            *(self._column_line(column, counts) for column, counts in self.columns.items()),
            *([self._class_line()] if self.classes else []),
        ]

    def _class_line(self) -> str:
        """The classes, the largest first."""
        largest = self.classes.most_common(N_CLASSES)
        more = f", and {len(self.classes) - N_CLASSES:,} more" if len(self.classes) > N_CLASSES else ""
        return f"  classes: {', '.join(f'{name} {count:,}' for name, count in largest)}{more}"

    def _column_line(self, column: str, counts: ColumnCounts) -> str:
        facts = counts.to_dict()
        lengths = ", ".join(f"{name} {value:.4g}" for name, value in facts["length"].items())
        unknown = f"; {counts.unknown_rate:.2%} unknown" if column in self.unknown else ""
        return f"  {column}: {counts.tokens:,} tokens; length {lengths}{unknown}"


def _count(ids: Sequence[int], wanted: int) -> int:
    return ids.count(wanted) if hasattr(ids, "count") else int(np.count_nonzero(np.asarray(ids) == wanted))


def keep(
    rows: Iterable[Encoded],
    filter: Filter,
    report: DataReport,
    beside: Collection[str] = (),
    limits: Sequence[Limit] = (),
) -> Iterator[Encoded]:
    """Pass on the rows that can be used, cut where that is asked for, and fill the report.

    A row that fails for several reasons counts for the first: empty, length ratio, too long.

    Args:
        rows: ids by column.
        filter: what can be used.
        report: is filled.
        beside: columns that are passed on as they are and not looked at.
        limits: besides those of the filter; they count after those.

    Raises:
        DataError: a row that is to stop the work, with its file and line; or no row is left.
    """
    for whole in rows:
        report.rows += 1
        aside = {column: whole.row[column] for column in beside if column in whole.row}
        located: Encoded = LocatedRow({c: x for c, x in whole.row.items() if c not in aside}, whole.where)
        every = [*filter.limits(located.row), *limits]
        reason = _reason_to_drop(located, filter, every)
        if reason is not None:
            report.drop(reason, located.where)
            continue
        cut = _cut(located, every, report)
        report.count(cut)
        yield LocatedRow({**cut.row, **aside}, cut.where)
    if report.kept == 0:
        raise DataError("\n  ".join(["no row can be used", *report.lines()]))


def _reason_to_drop(located: Encoded, filter: Filter, limits: Sequence[Limit]) -> str | None:
    row, where = located
    lengths = {column: len(ids) for column, ids in row.items()}
    for column, length in lengths.items():
        if length == 0:
            if filter.empty == "error":
                raise DataError(f"{where}: {column} is empty (`empty: drop` leaves such rows out)")
            return f"empty {column}"
    if filter.max_ratio is not None and max(lengths.values()) > filter.max_ratio * min(lengths.values()):
        return f"length ratio above {filter.max_ratio:g}"
    if filter.too_long == "truncate":
        return None
    for limit in limits:
        if (excess := limit.over(row)) is not None:
            if filter.too_long == "error":
                ways = "`too_long: truncate` cuts such rows, `too_long: drop` leaves them out"
                raise DataError(f"{where}: {excess} ({ways})")
            return limit.reason
    return None


def _cut(located: Encoded, limits: Sequence[Limit], report: DataReport) -> Encoded:
    row = located.row
    for limit in limits:
        if limit.over(row) is not None:
            report.truncated.setdefault(limit.reason, Tally()).add(located.where)
            row = limit.cut(row)
    return LocatedRow(row, located.where)
