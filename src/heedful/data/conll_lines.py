"""Lines of CoNLL files: their fields, blocks of them between blank lines, and which are comments."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from heedful.data.lines import Location
from heedful.limits import check_count

DOCUMENT = "-DOCSTART-"
"""The first field of a line that only marks the beginning of a document."""

COMMENT = "#"
"""The first character of a comment, and of many words."""

LocatedLine = tuple[Location, str]

Block = Sequence[LocatedLine]
"""The lines between two blank lines: a sentence, comments, or both."""

Shape = tuple[bool, int]
"""Whether a line has tabs, and its number of fields."""


def fields_of(line: str) -> list[str]:
    """Split a line at tabs if it has any, otherwise at spaces; other white space is part of a field.

    Spaces at the ends of a field are removed. A field between tabs may be empty.
    """
    if "\t" in line:
        return [field.strip(" ") for field in line.split("\t")]
    return [field for field in line.split(" ") if field]


def blocks(lines: Iterable[LocatedLine]) -> Iterator[Block]:
    """Yield the lines between blank lines; a line of white space alone is blank.

    Raises:
        DataError: there are more than `heedful.limits.MOST_ITEMS` of them.
    """
    block: list[LocatedLine] = []
    for location, line in lines:
        if line.strip():
            block.append((location, line))
            check_count(block, location)
        elif block:
            yield block
            block = []
    if block:
        yield block


@dataclass(frozen=True)
class CommentFinder:
    """Separates comments from words that begin with ``#``, by comparison with the other lines of a file.

    Args:
        shapes: those of the lines that do not begin with ``#``.
        n_before: how many comments precede the words of every sentence (see `_n_before`).
    """

    shapes: frozenset[Shape]
    n_before: int

    @classmethod
    def of(cls, head: Sequence[Block]) -> "CommentFinder":
        """Return the finder for a file that begins with these blocks."""
        sentences = [block for block in head if _shapes(block)]
        words = [fields_of(line) for block in sentences for _, line in block if _is_word(line)]
        values = {value for fields in words for value in enumerate(fields)}
        counts = [_n_before(block, values) for block in sentences]
        shapes = frozenset(shape for block in sentences for shape in _shapes(block))
        return cls(shapes, min(counts) if len(counts) > 1 else 0)

    def __call__(self, block: Block) -> list[bool]:
        """Return which lines of a block are comments.

        These are lines that begin with ``#`` and have the shape of no word: of none in the block or, if all
        its lines begin with ``#``, of none in the file; and the first `n_before` lines.
        """
        if not any(line.startswith(COMMENT) for _, line in block):
            return [False] * len(block)
        shapes = _shapes(block) or self.shapes
        return [
            line.startswith(COMMENT)
            and (number < self.n_before or (bool(shapes) and _shape(line) not in shapes))
            for number, (_, line) in enumerate(block)
        ]


def _is_word(line: str) -> bool:
    """Return whether a line is surely a word; one that begins with ``#`` may be one."""
    return not line.startswith((COMMENT, DOCUMENT))


def _shape(line: str) -> Shape:
    return "\t" in line, len(fields_of(line))


def _shapes(block: Block) -> set[Shape]:
    return {_shape(line) for _, line in block if _is_word(line)}


def _n_before(block: Block, values: Set[tuple[int, str]]) -> int:
    """Return the number of first lines ``# x y``, if no word of the file has x or y in the same field.

    Args:
        block: a sentence.
        values: the fields of words, each with its number.
    """
    n = 0
    for _, line in block:
        first, *others = fields_of(line)
        if first != COMMENT or not values.isdisjoint(enumerate(others, 1)):
            break
        n += 1
    return n
