"""Find likely mistakes in data while rows are read: identical texts, spellings of labels, shared rows."""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from heedful.data.lines import LocatedRow, Location, Row
from heedful.identifiers import difference, number_of, similar_form

SHARE_OF_IDENTICAL = 0.5
"""More pairs than this share with identical texts are reported."""

SHARE_OF_ONE_CLASS = 0.99
"""A class with at least this share of the rows is reported."""

FEWEST_CLASSIFIED, SHARE_OF_CLASSES = 20, 0.5
"""From so many rows or words on, more different classes than this share of them are reported."""

N_SHOWN = 5

MISSING_VALUES = frozenset(
    ("NULL", "null", "NaN", "nan", "NA", "N/A", "n/a", "<NA>", "None", "none", "undefined", r"\N", "-nan")
)
"""What databases, pandas, R and other programs write for a missing value."""

ESCAPED_RETURN = "_x000D_"

NUL = "\0"
"""A character of files in UTF-16, or of binary files, but hardly of a text."""

LIST_MARKS = ",;"
"""What may be between the items of a list beside blanks."""

SEPARATORS = f"{LIST_MARKS}|#/&+ "
"""What may be between two labels of a text."""

_TAGS = "tags"
"""The column of tags, of which there is one for each word."""

FEWEST_IN_THREES = 3
"""From so many numbers on, three digits after every point are reported."""

_IN_THREES = re.compile(r"[-+]?[1-9][0-9]{0,2}\.[0-9]{3}")


@dataclass
class Points:
    """Counts of the points in numbers, which separate thousands in some countries.

    ``1.234`` is read as a number below two; its writer may have meant 1234. If no number with a point has
    another form (``0.734``, ``1.5``), either may be right.

    Args:
        n: numbers.
        n_pointed: numbers with a point.
        n_in_threes: of these, those that are thousands if the point separates them.
        example: the first of them.
    """

    n: int = 0
    n_pointed: int = 0
    n_in_threes: int = 0
    example: str = ""

    def add(self, number: str) -> None:
        """Count a number."""
        self.n += 1
        self.n_pointed += "." in number
        if _IN_THREES.fullmatch(number):
            self.n_in_threes += 1
            self.example = self.example or number

    @classmethod
    def of(cls, numbers: Iterable[str]) -> "Points":
        """Return the counts of numbers."""
        points = cls()
        for number in numbers:
            points.add(number)
        return points

    def notes(self, column: str) -> Iterator[str]:
        """Yield a note if every point may separate thousands."""
        if not FEWEST_IN_THREES <= self.n_in_threes == self.n_pointed:
            return
        yield (
            f"{counted(self.n_in_threes, self.n)} numbers in {column} have three digits after the point, "
            f"such as {self.example!r}, and are read as decimals; if the point separates thousands, write "
            f"{self.example.replace('.', '')!r}, and so in all rows"
        )


class Findings:
    """Counts of the rows of a data set that pass through.

    Args:
        pair: two columns whose texts should differ; None: there are none.
        label: the column of the class, or of the tags of words; None: there is none.
        without_header: whether the rows are those of a table that should have no header.
        numeric: columns of numbers.
        split: returns the classes or tags in a text of the column ``label``; None: the text is one class.
    """

    def __init__(
        self,
        pair: tuple[str, str] | None,
        label: str | None,
        without_header: bool = False,
        *,
        numeric: Iterable[str] = (),
        split: Callable[[str], list[str] | None] = lambda text: None,
    ) -> None:
        self.pair, self.label, self.without_header = pair, label, without_header
        self.points = {column: Points() for column in numeric}
        self.split = split
        self.first: tuple[str, Location] | None = None
        self.n_like_first = 0
        self.n_rows = self.n_identical = self.n_lists = 0
        self.classes: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()
        self.missing: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.blank: Counter[str] = Counter()
        self.n_escaped = self.n_nul = 0

    def through(self, rows: Iterable[LocatedRow[Row]]) -> Iterator[LocatedRow[Row]]:
        """Count each row and pass it on."""
        for located in rows:
            self.n_rows += 1
            self.n_lists += any(isinstance(cell, list) for cell in located.row.values())
            for column, cell in located.row.items():
                if isinstance(cell, str):
                    if cell in MISSING_VALUES:
                        self.missing[column][cell] += 1
                    self.blank[column] += cell.isspace()
                    self.n_escaped += ESCAPED_RETURN in cell
                    self.n_nul += NUL in cell
                elif isinstance(cell, list):
                    self.n_nul += any(NUL in str(part) for part in cell)
            for column, points in self.points.items():
                points.add(str(located.row.get(column, "")))
            if self.pair is not None:
                first, second = self.pair
                self.n_identical += located.row[first] == located.row[second]
            if self.label is not None:
                self._count(located.row[self.label], located.location)
            yield located

    def _count(self, cell: object, location: Location) -> None:
        """Count the class or the tags of a row."""
        if isinstance(cell, list):
            self.tags.update(map(str, cell))
            return
        if not cell:
            return
        self.first = self.first or (str(cell), location)
        self.n_like_first += self.first[0] == cell
        if (parts := self.split(str(cell))) is None:
            self.classes[str(cell)] += 1
        else:
            self.tags.update(parts)

    def notes(self, n_dropped: int = 0) -> list[str]:
        """Return what should be checked in these rows, for the log.

        Args:
            n_dropped: how many rows were left out because a column is empty, which the log says already.
        """
        return [
            f"data.train: {note}"
            for note in (
                *self._header(),
                *self._one_sentence(),
                *self._identical(),
                *self._spellings(),
                *self._compounds(),
                *self._missing_values(),
                *self._no_texts(n_dropped),
                *(note for column, points in self.points.items() for note in points.notes(column)),
                *self._one_class(),
                *self._many_classes(self.classes, "labels", "rows"),
                *self._many_classes(
                    self.tags, *(("tags", "words") if self.label == _TAGS else ("labels", "uses"))
                ),
            )
        ]

    def _header(self) -> Iterator[str]:
        if self.first is None or not self.without_header:
            return
        label, location = self.first
        if self.n_like_first == 1 and location.line == 1 and self.n_rows > 1:
            yield (
                f"{location}: the label {label!r} is only here; if this line is a header, set header: true"
            )

    def _one_sentence(self) -> Iterator[str]:
        if self.n_rows == self.n_lists == 1:
            yield "there is only one row; in CoNLL files, a blank line separates sentences"

    def _identical(self) -> Iterator[str]:
        if self.pair is None or self.n_identical <= SHARE_OF_IDENTICAL * self.n_rows:
            return
        rows = counted(self.n_identical, self.n_rows)
        yield f"{' and '.join(self.pair)} are identical in {rows} rows; check the files and columns"

    def _spellings(self) -> Iterator[str]:
        counts = self.classes or self.tags
        groups = defaultdict(list)
        for label in sorted(counts):
            number = number_of(label)
            groups[similar_form(label) if number is None else number].append(label)
        pairs = [labels for labels in groups.values() if len(labels) > 1]
        for first, *others in pairs[:N_SHOWN]:
            shown = " and ".join(f"{label!r} ({counts[label]:,})" for label in (first, *others))
            reason = "are the same number" if number_of(first) is not None else "look alike"
            differs = f", but differ {how}" if (how := difference(first, others[0])) else ""
            yield f"{shown} {reason}{differs}; they are different classes; make them equal if they are one"
        if len(pairs) > N_SHOWN:
            yield f"{len(pairs) - N_SHOWN} more groups of labels look alike"

    def _compounds(self) -> Iterator[str]:
        """Yield a note for each mark between, or after, labels that occur by themselves too."""
        counts, are_tags = self.classes or self.tags, self.label == _TAGS
        for mark in LIST_MARKS if are_tags else SEPARATORS:
            parts = {label: parts_between(label, mark) for label in sorted(counts)}
            compounds = [label for label, found in parts.items() if found and found <= counts.keys()]
            if not compounds:
                continue
            if are_tags:
                remedy = "write only blanks between tags"
            elif self.classes:
                remedy = f"train a recipe such as phrasebook-label-sets with task.separator={mark!r}"
            else:
                remedy = f"set task.separator={mark!r}"
            shown = " and ".join(f"{label!r} ({counts[label]:,})" for label in compounds[:N_SHOWN])
            more = f" and {len(compounds) - N_SHOWN} more" * (len(compounds) > N_SHOWN)
            yield f"{shown}{more} consist of other labels and {mark!r}; if it separates labels, {remedy}"

    def _missing_values(self) -> Iterator[str]:
        for column, counts in self.missing.items():
            for value, n in counts.most_common(N_SHOWN):
                rows = f"{counted(n, self.n_rows)} rows have {value!r} as {column}"
                yield f"{rows}, which programs write for a missing value; remove them if it is one"
        if self.n_escaped:
            cells = f"{self.n_escaped:,} cells contain {ESCAPED_RETURN}, by which Excel escapes a line end"
            yield f"{cells}; remove it: sed -i 's/{ESCAPED_RETURN}//g' FILE"

    def _no_texts(self, n_dropped: int) -> Iterator[str]:
        for column, n in self.blank.items():
            if n > n_dropped:
                rows = counted(n, self.n_rows)
                yield f"{rows} rows have white space alone as {column}; remove them if they are mistakes"
        if self.n_nul:
            yield (
                f"{self.n_nul:,} cells contain NUL characters; if these are mistakes, remove them: "
                "tr -d '\\000' < FILE > NEW"
            )

    def _one_class(self) -> Iterator[str]:
        n_rows = self.classes.total()
        for label, n in self.classes.most_common(1):
            if n >= SHARE_OF_ONE_CLASS * n_rows:
                rows = counted(n, n_rows)
                yield f"{rows} rows have the label {label!r}; accuracy says little about a model"

    def _many_classes(self, classes: Counter[str], kind: str, unit: str) -> Iterator[str]:
        n = classes.total()
        if n >= FEWEST_CLASSIFIED and len(classes) > SHARE_OF_CLASSES * n:
            shown = ", ".join(repr(name) for name in islice(classes, N_SHOWN))
            different = f"{len(classes):,} different {kind} in {n:,} {unit}, such as {shown}"
            yield f"{different}; is {self.label} the right column?"


def parts_between(label: str, mark: str) -> set[str]:
    """Return the parts of a label between marks; none if it has no mark, or nothing else."""
    return {part.strip() for part in label.split(mark)} - {""} if mark in label else set()


def shared_rows(train: "array[int]", other: "array[int]") -> str:
    """Return a note on rows of another data set that are also training rows; empty if there are none.

    Args:
        train: hashes of the training rows (`heedful.data.store.RowDigest`), in one process with the others.
        other: hashes of the rows of the other data set.
    """
    n_shared = int(np.isin(np.asarray(other), np.asarray(train)).sum())
    if not n_shared:
        return ""
    return f"{counted(n_shared, len(other))} rows are also training rows; its scores are too high"


def counted(n: int, total: int) -> str:
    """Format a number of rows with its share."""
    return f"{n:,} of {total:,} ({n / total:.1%})"
