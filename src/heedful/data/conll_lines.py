"""Lines of CoNLL files: their fields, blocks of them between blank lines, and which are comments."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress

from heedful.data.lines import Location
from heedful.errors import DataError
from heedful.limits import check_count

DOCUMENT = "-DOCSTART-"
"""The first field of a line that only marks the beginning of a document."""

COMMENT = "#"
"""The first character of a comment, and of many words."""

MOST_VALUES = 100_000
"""So many different values of a field are compared; one with more has no tags."""

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


class FieldValues:
    """The values of each field in lines that are not comments, to compare those that may be.

    Args:
        tags: the numbers of the fields with tags, as in a source; empty: it is unknown which have some.
        known: tags that occur elsewhere, such as those of a run.
    """

    def __init__(self, tags: Sequence[int] = (), known: Set[str] = frozenset()) -> None:
        self.tags, self.known = tuple(tags), known
        self.values: defaultdict[int, set[str]] = defaultdict(set)

    def add(self, block: Block) -> None:
        """Add the fields of the lines of a block, but for those at its beginning that may be comments."""
        shapes = _shapes(block)
        for _, line in block[n_candidates(block) :]:
            if _is_word(line) or (line.startswith(COMMENT) and _shape(line) in shapes):
                fields = fields_of(line)
                for number, value in enumerate(fields):
                    if (number > 0 or 0 in self.tags) and len(self.values[number]) < MOST_VALUES:
                        self.values[number].add(value)
                for number in self.tags:
                    if -len(fields) <= number < 0:
                        self.values[number].add(fields[number])

    def lack(self, fields: Sequence[str]) -> bool:
        """Return whether no other line has the tags of a line that begins with ``#``; False if none has any.

        A first field that is more than ``#`` is more likely a word: then, no line may have one of its fields.
        The tag ``#`` is that of a word.
        """
        tags = [number for number in self.tags if -len(fields) <= number < len(fields)]
        others = range(1, len(fields))
        compared = tags or others if fields[0] == COMMENT else others if len(others) > 1 else ()
        tag_numbers = {number % len(fields) for number in tags}
        if not self.values or not compared:
            return False
        return not any(
            fields[number] in self.values[number]
            or (number % len(fields) in tag_numbers and fields[number] in self.known)
            or (number % len(fields) > 0 and fields[number] == COMMENT)
            for number in compared
        )


class CommentFinder:
    """Separates comments from words that begin with ``#``, by comparison with the other lines of a file.

    Args:
        head: the blocks at the beginning of the file.
        read_again: returns all blocks of the file; None: it can be read only once, so lines are compared with
            those of the head and those that came before.
        values: the fields with tags, and tags that are known.
    """

    def __init__(
        self,
        head: Sequence[Block],
        read_again: Callable[[], Iterable[Block]] | None,
        values: FieldValues,
    ) -> None:
        self.shapes = frozenset(shape for block in head for shape in _shapes(block))
        self.read_again, self.values = read_again, values
        self.is_read = False
        for block in head if read_again is None else ():
            values.add(block)

    def __call__(self, block: Block) -> list[bool]:
        """Return which lines of a block are comments.

        These are lines that begin with ``#`` and have the shape of no word: of none in the block or, if all
        its lines begin with ``#``, of none in the file; and such lines at the beginning of the block, before
        the first word, whose tags no other line has (`FieldValues.lack`).
        """
        if self.read_again is None:
            self.values.add(block)
        if not any(line.startswith(COMMENT) for _, line in block):
            return [False] * len(block)
        shapes = _shapes(block) or self.shapes
        flags = [
            line.startswith(COMMENT) and bool(shapes) and _shape(line) not in shapes for _, line in block
        ]
        for number, (_, line) in enumerate(block[: n_candidates(block)]):
            if line.startswith(COMMENT) and not flags[number]:
                if not self._values().lack(fields_of(line)):
                    break
                flags[number] = True
        return flags

    def _values(self) -> FieldValues:
        """Return the values of all lines; the file is read again for the first line that is compared."""
        if self.read_again is not None and not self.is_read:
            self.is_read = True
            with suppress(DataError):  # the rows before the error can be read
                for block in self.read_again():
                    self.values.add(block)
        return self.values


def n_candidates(block: Block) -> int:
    """Return the number of lines before the first that surely is a word: comments, and words with ``#``."""
    return next((number for number, (_, line) in enumerate(block) if _is_word(line)), len(block))


def _is_word(line: str) -> bool:
    """Return whether a line is surely a word; one that begins with ``#`` may be one."""
    return not line.startswith((COMMENT, DOCUMENT))


def _shape(line: str) -> Shape:
    return "\t" in line, len(fields_of(line))


def _shapes(block: Block) -> set[Shape]:
    return {_shape(line) for _, line in block if _is_word(line)}
