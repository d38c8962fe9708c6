"""Read and write YAML 1.2 (core schema): plain data only, every value with its line.

ruamel.yaml parses the text into events; plain scalars are interpreted here, by the tables of YAML 1.2.2,
section 10.3.2. ``5e-4`` and ``.5`` are numbers, ``017`` is seventeen, and ``no``, ``on``, ``1_000`` and
``2020-01-01`` are text.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from heedful.errors import RequestError
from heedful.files import is_unicode
from heedful.recipes.trees import COMMAND_LINE, Mark, Tree
from heedful.recipes.yaml_errors import fault_of

MAX_DEPTH = 64
MAX_VALUES = 100_000

_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{sign + word: math.inf for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **{"-" + word: -math.inf for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASES = {"0o": 8, "0x": 16}
# Text that never needs quotes, and the words that YAML 1.1 reads as booleans.
_PLAIN = re.compile(r"[A-Za-z_/][\w./+-]*( [\w./+-]+)*", re.ASCII)
_OLD_BOOLEANS = frozenset({"y", "n", "yes", "no", "on", "off"})


def plain_scalar(text: str) -> str | float | bool | None:
    """Return the value of an unquoted scalar in the core schema of YAML 1.2.

    Raises:
        ValueError: if a number is out of range.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > 4000:
            raise ValueError(f"value out of range: a number of {len(text):,} digits")
        base = _BASES.get(text[:2], 10)
        return int(text if base == 10 else text[2:], base)
    if _FLOAT.fullmatch(text):
        if math.isinf(value := float(text)):
            raise ValueError(f"value out of range: {text}")
        return value
    return text


def read_yaml(text: str, name: str) -> Tree:
    """Read one document that is a map.

    Args:
        text: the document. Anchors and aliases are resolved; tags, merge keys (``<<``) and keys that are
            not text are refused.
        name: the file's name, for marks and messages.

    Raises:
        RequestError: ``name:line:column: problem``.
    """
    tree = _read(text, name, Mark(name))
    if tree is None or tree.value is None:
        raise RequestError(f"{name}: is empty")
    if not isinstance(tree.value, dict):
        raise RequestError(f"{tree.mark}: expected keys and values ('key: value'), got {describe(tree.data)}")
    return tree


def read_value(text: str, name: str) -> object:
    """Read the value of an override.

    Text that begins with ``[ { ' "`` is parsed as YAML; any other is one plain scalar.

    Raises:
        RequestError: ``name: problem``.
    """
    text = text.strip()
    try:
        if text[:1] not in ("[", "{", "'", '"'):
            return plain_scalar(text)
    except ValueError as error:
        raise RequestError(f"{name}: {error}") from None
    tree = _read(text, name, Mark(COMMAND_LINE))
    return None if tree is None else tree.data


def _read(text: str, name: str, mark: Mark) -> Tree | None:
    try:
        return _Composer(text, name, mark).document()
    except YAMLError as error:
        shown = "" if mark.source == COMMAND_LINE else text
        raise RequestError(fault_of(error, text).message(name, shown)) from None


class _Composer:
    """Builds a tree from the parser's events."""

    def __init__(self, text: str, name: str, mark: Mark) -> None:
        self.events: Iterator[Event] = YAML(typ="safe", pure=True).parse(text)
        self.name = name
        self.mark = mark
        self.anchors: dict[str, tuple[Tree, int]] = {}
        self.count = 0

    def fail(self, event: Event, problem: str) -> RequestError:
        mark = event.start_mark
        return RequestError(f"{self.name}:{mark.line + 1}:{mark.column + 1}: {problem}")

    def mark_at(self, event: Event) -> Mark:
        return self.mark if self.mark.source == COMMAND_LINE else Mark(self.name, event.start_mark.line + 1)

    def document(self) -> Tree | None:
        next(self.events)
        start = next(self.events)
        if isinstance(start, StreamEndEvent):
            return None
        version = start.version if isinstance(start, DocumentStartEvent) else None
        if version is not None and tuple(version) != (1, 2):
            raise self.fail(start, "only YAML 1.2 is supported; remove the %YAML line")
        tree = self.node(next(self.events), 0)
        next(self.events)
        if not isinstance(next_event := next(self.events), StreamEndEvent):
            raise self.fail(next_event, "a second document starts here; a file must contain one document")
        return tree

    def node(self, event: Event, depth: int) -> Tree:
        if isinstance(event, AliasEvent):
            return self.alias(event)
        assert isinstance(event, CollectionStartEvent | ScalarEvent)
        if event.ctag is not None:
            raise self.fail(event, f"tags such as {event.ctag} are not supported; write plain data")
        if depth > MAX_DEPTH:
            raise self.fail(event, f"nested deeper than {MAX_DEPTH} levels")
        count_before = self.count
        self.add(1, event)
        tree = Tree(self.content(event, depth), self.mark_at(event))
        if event.anchor is not None:
            self.anchors[event.anchor] = tree, self.count - count_before
        return tree

    def add(self, n: int, event: Event) -> None:
        self.count += n
        if self.count > MAX_VALUES:
            raise self.fail(event, f"more than {MAX_VALUES} values, with all aliases expanded")

    def alias(self, event: AliasEvent) -> Tree:
        if event.anchor not in self.anchors:
            raise self.fail(event, f"undefined alias *{event.anchor}")
        tree, size = self.anchors[event.anchor]
        self.add(size, event)
        return tree

    def content(self, event: CollectionStartEvent | ScalarEvent, depth: int) -> object:
        if isinstance(event, ScalarEvent):
            return self.scalar(event)
        return self.mapping(depth) if isinstance(event, MappingStartEvent) else self.sequence(depth)

    def sequence(self, depth: int) -> list[Tree]:
        items = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            items.append(replace(self.node(event, depth + 1), mark=self.mark_at(event)))
        return items

    def mapping(self, depth: int) -> dict[str, Tree]:
        entries: dict[str, Tree] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            key = self.key(event)
            if key in entries:
                line = entries[key].mark.line
                first_line = "" if line is None else f"; the first is on line {line}"
                raise self.fail(event, f"duplicate key {key!r}{first_line}")
            entries[key] = replace(self.node(next(self.events), depth + 1), mark=self.mark_at(event))
        return entries

    def key(self, event: Event) -> str:
        if not isinstance(event, ScalarEvent) or event.ctag is not None:
            raise self.fail(event, "a key must be plain text")
        key = self.scalar(event)
        if not isinstance(key, str):
            raise self.fail(event, f"a key must be text: put {event.value or 'it'} in quotes")
        if key == "<<" and event.style is None:
            raise self.fail(event, "merge keys (<<) are not part of YAML 1.2; write the keys out")
        return key

    def scalar(self, event: ScalarEvent) -> str | float | bool | None:
        if not is_unicode(event.value):
            raise self.fail(event, "half of a surrogate pair is not a character")
        if event.style is not None:
            return event.value
        try:
            return plain_scalar(event.value)
        except ValueError as error:
            raise self.fail(event, str(error)) from None


def dump_yaml(data: object) -> str:
    """Return plain data, or a `Tree`, as YAML in its order.

    ``read_yaml(dump_yaml(data), name).data == data`` for any map of text to maps, lists and scalars.

    Raises:
        TypeError: if the data are not plain, or a key is not text.
    """
    data = data.data if isinstance(data, Tree) else data
    return "\n".join(_lines(data, 0)) + "\n"


def _lines(value: object, indent: int) -> list[str]:
    pad = " " * indent
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in _entry(key, item, indent)]
    if isinstance(value, list | tuple) and not _fits_inline(value):
        blocks = [_lines(item, indent + 2) for item in value]
        return [line for head, *rest in blocks for line in (f"{pad}- {head[indent + 2 :]}", *rest)]
    return [pad + show(value)]


def _entry(key: object, item: object, indent: int) -> list[str]:
    if not isinstance(key, str):
        raise TypeError(f"a key must be text, got {key!r}")
    head = f"{' ' * indent}{show(key)}:"
    if _fits_inline(item):
        return [f"{head} {show(item)}"]
    return [head, *_lines(item, indent + 2)]


def _fits_inline(value: object) -> bool:
    if isinstance(value, list | tuple):
        return not any(isinstance(item, dict | list | tuple) for item in value)
    return not isinstance(value, dict) or not value


def show(value: object) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{show(k)}: {show(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(show(item) for item in value) + "]"
    if isinstance(value, str):
        return _show_text(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if isinstance(value, int | float):
        return repr(value)
    raise TypeError(f"expected plain data, got {type(value).__name__}: {value!r}")


def _show_text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text not in _CONSTANTS and text.lower() not in _OLD_BOOLEANS:
        return text
    return '"' + "".join(_escape(c) for c in text) + '"'


def _escape(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    if c.isprintable():
        return c
    escapes = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return escapes.get(c) or (f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\U{ord(c):08x}")


def describe(value: object) -> str:
    """Describe a value for a message: short scalars in full, maps and lists by their type."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else repr(value[:57] + "...")
    return show(value)
