"""Translation memories in TMX, an XML format that translation programs exchange.

Source: TMX 1.4b Specification, Localization Industry Standards Association, 2005.
"""

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal
from xml.parsers.expat import ExpatError, ParserCreate

from pydantic import Field

from heedful.data.file_hints import listed
from heedful.data.lines import File, LocatedRow, Location, Paths, Rows, Source, read_all
from heedful.data.opening import opened
from heedful.errors import DataError

_CODES = ("bpt", "ept", "it", "ph", "ut")
"""Elements in a segment that hold codes of its original format, not text."""

_BLOCK = 1 << 16
_LINE_END = re.compile(r"\s*\n\s*")


class TmxSource(Source):
    """Translation units of TMX files.

    Args:
        paths: one file or several, read one after another; plain or compressed.
        columns: the language of each column, as ``xml:lang`` names it: ``en`` also stands for ``en-GB``.
    """

    kind: Literal["tmx"] = "tmx"
    paths: Paths
    columns: dict[str, str] = Field(min_length=1)

    def open(self, root: Path) -> Rows:
        """Yield a row for each unit; the text of a language that it lacks is empty."""
        return read_all(self.paths, root, self._rows)

    def _rows(self, file: File) -> Rows:
        languages: dict[str, None] = {}
        found: set[str] = set()
        for texts, location in _units(file):
            languages |= dict.fromkeys(texts)
            keys = {column: _key_of(language, texts) for column, language in self.columns.items()}
            found |= {column for column, key in keys.items() if key is not None}
            row = {column: "" if key is None else texts[key] for column, key in keys.items()}
            yield LocatedRow(row, location)
        if missing := [language for column, language in self.columns.items() if column not in found]:
            raise DataError(
                f"{file.name}: no text is in the language {missing[0]!r}; it has {listed(languages)}"
            )


def _key_of(language: str, texts: dict[str, str]) -> str | None:
    wanted = language.lower()
    keys = [key for key in texts if key.lower() == wanted]
    return next(iter([*keys, *(key for key in texts if key.lower().startswith(f"{wanted}-"))]), None)


def _units(file: File) -> Iterator[tuple[dict[str, str], Location]]:
    """Yield the text in each language of each unit.

    Raises:
        DataError: if the file cannot be read, is not XML, or declares entities, which may expand without end.
    """
    reader = _UnitReader(file.name)
    with opened(file.path, file.name, "bytes") as stream:
        try:
            yield from reader.units_of(stream)
        except ExpatError as error:
            raise DataError(f"{file.name}:{error.lineno}: the XML is damaged ({error})") from None


class _UnitReader:
    """Handlers of the parser, and the units that they have completed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parser = ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.EntityDeclHandler = self._refuse_entity
        self.done: deque[tuple[dict[str, str], Location]] = deque()
        self.unit: dict[str, str] = {}
        self.first_line, self.language, self.n_codes = 0, "", 0
        self.segment: list[str] | None = None

    def units_of(self, stream: BinaryIO) -> Iterator[tuple[dict[str, str], Location]]:
        """Yield the units of a stream, as soon as they are complete."""
        while block := stream.read(_BLOCK):
            self.parser.Parse(block, False)
            while self.done:
                yield self.done.popleft()
        self.parser.Parse(b"", True)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "tu":
            self.unit, self.first_line = {}, self.parser.CurrentLineNumber
        elif tag == "tuv":
            self.language = attributes.get("xml:lang", attributes.get("lang", ""))
        elif tag == "seg":
            self.segment = []
        self.n_codes += tag in _CODES

    def _end(self, tag: str) -> None:
        self.n_codes -= tag in _CODES
        if tag == "seg" and self.segment is not None:
            self.unit.setdefault(self.language, _LINE_END.sub(" ", "".join(self.segment)).strip())
            self.segment = None
        elif tag == "tu":
            self.done.append((self.unit, Location(self.name, self.first_line)))

    def _text(self, text: str) -> None:
        if self.segment is not None and not self.n_codes:
            self.segment.append(text)

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise DataError(
            f"{self.name}:{self.parser.CurrentLineNumber}: declares the entity {name[:50]!r}, which could "
            "expand without end; remove the declarations of entities"
        )
