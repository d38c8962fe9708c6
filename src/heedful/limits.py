"""Limits on what is read, which hold before anything is normalised, tokenised or allocated for it.

They are far above what any task needs, so what exceeds them is a mistake (a file without line ends, a quote
that is never closed) or an attack (a small file that decompresses to gigabytes). They are listed in
`docs/reference/limits.md`.
"""

from collections.abc import Sequence

from heedful.errors import DataError

LONGEST_LINE = 64 << 20
"""Bytes of a line, and characters of a quoted field."""

LONGEST_DOCUMENT = 1 << 30
"""Bytes of a file that is read whole, after decompression, and characters of a document."""

LONGEST_TEXT = 1_000_000
"""Characters of a text of a row or an input, some 300 pages; documents of running text may be longer."""

MOST_ITEMS = 100_000
"""Entries of a list in a row, such as the words of a sentence."""


def too_large(cell: object, longest: int | None = None) -> str | None:
    """Return why a cell of a row, or an input, is too large, or None.

    Args:
        cell: a text, or a sequence of texts; anything else is accepted.
        longest: characters that a text may have, or all texts of a list together; None: `LONGEST_TEXT`.
    """
    longest = LONGEST_TEXT if longest is None else longest
    if isinstance(cell, str):
        n_characters = len(cell)
    elif isinstance(cell, list | tuple):
        if len(cell) > MOST_ITEMS:
            return f"has {len(cell):,} entries, more than {MOST_ITEMS:,}; split it into several"
        n_characters = sum(len(part) for part in cell if isinstance(part, str))
    else:
        return None
    if n_characters <= longest:
        return None
    return f"has {n_characters:,} characters, more than {longest:,}; split it into several, or remove it"


def line_too_long(name: str, number: int) -> DataError:
    """Return the error for a line of a file or of standard input that is longer than `LONGEST_LINE`."""
    return DataError(
        f"{name}:{number}: the line has more than {LONGEST_LINE >> 20} MiB; it may lack line ends: end lines "
        "with a newline, or split it"
    )


def check_count(words: Sequence[object], location: object) -> None:
    """Refuse more entries of one row than `MOST_ITEMS`, while they are read.

    Raises:
        DataError: there are more.
    """
    if len(words) > MOST_ITEMS:
        raise DataError(
            f"{location}: the sentence has more than {MOST_ITEMS:,} words; separate sentences by blank lines"
        )
