"""Tables of ``heedful evaluate``: the scores of each class, and the confusion matrix."""

from collections.abc import Iterator, Sequence

from heedful.tables import columns
from heedful.tasks.metrics.class_rows import MOST_SCORES, class_rows, has_classes
from heedful.typing import JsonMapping

MOST_COUNTS, MOST_NUMBERED = 12, 30
"""Maximum number of classes of a confusion matrix whose columns have names, and numbers."""

LONGEST = 24
"""Maximum number of characters of a class in a table."""


def class_tables(details: JsonMapping, width: int, heading: str = "class") -> Iterator[str]:
    """Yield the lines of both tables, if there are any in the details of a score.

    If the names do not fit side by side, the classes are numbered: in the first table, and in rows and
    columns of the matrix.

    Args:
        details: of a score of `heedful.tasks.metrics.classification` or of ``segmentation``.
        width: maximum number of characters of a line.
        heading: of the column of the classes.
    """
    if not has_classes(details):
        return
    names, n = details["classes"], len(details["classes"])
    if n > MOST_SCORES:
        yield f"the scores of {n:,} classes are in --json"
        return
    matrix = details.get("confusion")
    named = [] if matrix is None else list(_named_matrix([*map(_short, names)], matrix))
    is_numbered = matrix is not None and (n > MOST_COUNTS or max(map(len, named)) > width)
    if is_numbered and n <= MOST_NUMBERED:
        names = [f"{number:>{len(str(n))}} {name}" for number, name in enumerate(names, 1)]
    rows = class_rows(details, [*map(_short, names)], heading)
    yield ""
    yield from columns(rows, range(1, len(rows[0])))
    if matrix is None:
        return
    yield ""
    if not is_numbered:
        yield from named
    elif n <= MOST_NUMBERED:
        yield from _numbered_matrix(matrix, width)
    else:
        yield f"the confusion matrix of {n} classes is in --json"


def _named_matrix(names: Sequence[str], matrix: Sequence[Sequence[int]]) -> Iterator[str]:
    """Yield the lines of a confusion matrix whose rows are the true classes."""
    rows = [["true \\ predicted", *names]]
    rows += [[name, *(f"{count:,}" for count in counts)] for name, counts in zip(names, matrix, strict=True)]
    yield from columns(rows, range(1, len(rows[0])))


def _numbered_matrix(matrix: Sequence[Sequence[int]], width: int) -> Iterator[str]:
    """Yield the lines of a confusion matrix with numbers of classes; a point is a count of 0.

    Columns that do not fit are in further blocks below.
    """
    n = len(matrix)
    numbers = [str(number) for number in range(1, n + 1)]
    cells = [[str(count) if count else "." for count in counts] for counts in matrix]
    widths = [max(len(numbers[j]), *(len(row[j]) for row in cells)) for j in range(n)]
    margin = len(numbers[-1])
    blocks: list[list[int]] = [[]]
    for j in range(n):
        used = margin + 2 + sum(widths[i] + 1 for i in blocks[-1])
        if blocks[-1] and used + widths[j] > width:
            blocks.append([])
        blocks[-1].append(j)
    yield "confusion matrix (rows: true, columns: predicted)"
    for block in blocks:
        if block is not blocks[0]:
            yield ""
        yield f"{'':{margin}}  {' '.join(numbers[j].rjust(widths[j]) for j in block)}"
        for number, row in zip(numbers, cells, strict=True):
            yield f"{number:>{margin}}  {' '.join(row[j].rjust(widths[j]) for j in block)}"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
