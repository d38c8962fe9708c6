"""Explain the errors of the YAML parser: where the fault is, what it is, and what to write instead.

ruamel.yaml reports the place where it could not go on, in terms of its grammar. The fault is often on a line
above, and one of a few: a tab, a missing space, a second colon, an indent, an open bracket or quote.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ruamel.yaml.error import MarkedYAMLError, YAMLError

WIDTH = 100
"""Most characters that are shown of a line."""

_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""Where the parser counts a new line."""

_CLOSING = {"{": "}", "[": "]"}
_LAST_OPEN = re.compile(r"[\[{](?=[^\[{\]}]*$)")
_KEY_AND_MORE = re.compile(r"\s*(?:- )?([^:#]+): (.*\S)\s*")
_NO_SPACE = re.compile(r"\s*(?:- )?([\w.-]+:[^\s:/]\S*)")
_EQUALS = re.compile(r"\s*(\w+) ?= ?(\S+)\s*")
_ENTRY = re.compile(r"[a-z_]+: [\w./-]+")


class Fault(NamedTuple):
    """The place of a fault, counted from 0, and what it is."""

    line: int
    column: int
    text: str

    def message(self, name: str, text: str = "") -> str:
        """Return the message: ``name:line:column: problem`` and, if `text` is given, its line with a mark."""
        message, lines = f"{name}:{self.line + 1}:{self.column + 1}: {self.text}", _LINE_END.split(text)
        if self.line >= len(lines) or not (line := lines[self.line]).strip():
            return message
        start = max(0, self.column - WIDTH // 2)
        shown = line[start : start + WIDTH].replace("\t", " ").rstrip()
        return f"{message}\n  {shown}\n  {' ' * (self.column - start)}^"


class _Error(NamedTuple):
    """What the parser reports: its problem, the line and column, and those of what it was reading."""

    lines: Sequence[str]
    problem: str
    line: int
    column: int
    start: tuple[int, int]

    def text_of(self, line: int) -> str:
        return self.lines[line] if line < len(self.lines) else ""

    @property
    def line_above(self) -> int:
        """The last line above that is not blank or a comment, or -1."""
        above = range(self.line - 1, -1, -1)
        return next((n for n in above if self.lines[n].strip() and self.lines[n].lstrip()[0] != "#"), -1)


def fault_of(error: YAMLError, text: str) -> Fault:
    """Return the fault that the parser's error is about."""
    if not isinstance(error, MarkedYAMLError):
        # The reader refuses a character that YAML does not allow.
        position = getattr(error, "position", 0)
        head = text[:position]
        reason = getattr(error, "reason", "invalid YAML")
        return Fault(head.count("\n"), position - head.rfind("\n") - 1, reason)
    mark = error.problem_mark or error.context_mark
    start = error.context_mark or mark
    problem = error.problem or error.context or "invalid YAML"
    found = _Error(_LINE_END.split(text), problem, mark.line, mark.column, (start.line, start.column))
    for pattern, explain in _EXPLANATIONS.items():
        if re.search(pattern, problem) and (fault := explain(found)) is not None:
            return fault
    return Fault(mark.line, mark.column, _in_words(problem))


def _in_words(problem: str) -> str:
    """Rewrite a parser's message without its names for parts of a document."""
    return problem.replace("the node content", "a value").replace("<block end>", "a key or the end")


def _unexpected_character(error: _Error) -> Fault:
    line = error.text_of(error.line)
    character = line[error.column : error.column + 1]
    if not line[: error.column].strip() and "\t" in line[: error.column + 1]:
        return Fault(error.line, error.column, "indented with a tab; YAML needs spaces")
    shown = "a tab" if character == "\t" else repr(character)
    return Fault(error.line, error.column, f"a value that begins with {shown} must be in quotes")


def _second_colon(error: _Error) -> Fault | None:
    line, above = error.text_of(error.line), error.text_of(error.line_above)
    match = _KEY_AND_MORE.fullmatch(line)
    if match is not None and ": " in line[: error.column]:
        key, value = match.groups()
        remedy = f"write {{{value}}}, or put the text in quotes"
        if not _ENTRY.fullmatch(value):
            remedy = "put the text in quotes" + (f': {key}: "{value}"' if not {*'"\\#'} & {*value} else "")
        return Fault(error.line, error.column, f"a second ': ' in a value; {remedy}")
    if error.line_above < 0:
        return None
    return (
        _missing_space(error, error.line_above) or _wrong_indent(error) or _no_colon(error.line_above, above)
    )


def _wrong_indent(error: _Error) -> Fault | None:
    indent, above = (_indent(error.text_of(line)) for line in (error.line, error.line_above))
    if error.line_above < 0 or indent == above:
        return None
    text = f"indented by {_spaces(indent)}, but the line above by {above}"
    return Fault(error.line, indent, f"{text}; keys of one section need the same indent")


def _missing_space(error: _Error, line: int) -> Fault | None:
    match = _NO_SPACE.match(error.text_of(line))
    if match is None:
        return None
    colon = match.start(1) + match[1].index(":")
    return Fault(line, colon, f"{match[1]!r} needs a space after the colon")


def _no_colon(line: int, text: str) -> Fault:
    column = _indent(text)
    if match := _EQUALS.fullmatch(text):
        return Fault(line, column, f"expected '{match[1]}: {match[2]}', got {text.strip()!r}")
    return Fault(line, column, "expected 'key: value', but this line has no ': '")


def _key_without_colon(error: _Error) -> Fault:
    line, _ = error.start
    return _missing_space(error, line) or _no_colon(line, error.text_of(line))


def _open_quote(error: _Error) -> Fault:
    line, column = error.start
    return _never_closed(line, column, error.text_of(line)[column : column + 1])


def _open_bracket(error: _Error) -> Fault | None:
    (line, column), ends = error.start, "<stream end>" in error.problem
    if error.text_of(line)[column : column + 1] not in _CLOSING:  # after a comma: the last one is open
        opened = [n for n in range(len(error.lines)) if _LAST_OPEN.search(error.lines[n])]
        line = opened[-1] if opened else line
        column = match.start() if (match := _LAST_OPEN.search(error.text_of(line))) else column
    text = error.text_of(line)
    bracket = text[column : column + 1]
    if bracket not in _CLOSING:
        return None
    found = error.text_of(error.line)[error.column : error.column + 1]
    if not ends and found in _CLOSING.values():
        expected = f"expected {_CLOSING[bracket]!r}, for the {bracket!r} on line {line + 1}"
        return Fault(error.line, error.column, f"{expected}, got {found!r}")
    if not ends and line == error.line:
        if found != ":":
            return None
        return Fault(
            error.line, error.column, "a second ':' in a value; write a comma before its key, or quotes"
        )
    quotes = [match.start() for match in re.finditer(r'(?<!\\)"', text) if match.start() > column]
    if len(quotes) % 2:  # its quote ends at the first quote of a later line
        return _never_closed(line, quotes[-1], '"')
    comma = "" if ends else f", or a comma is missing before line {error.line + 1}"
    return _never_closed(line, column, bracket, comma)


def _never_closed(line: int, column: int, mark: str, or_else: str = "") -> Fault:
    return Fault(line, column, f"the {mark!r} opened here is never closed{or_else}")


def _block_end(error: _Error) -> Fault | None:
    line = error.text_of(error.line)
    if "<block mapping start>" in error.problem or "<block sequence start>" in error.problem:
        return _wrong_indent(error)
    if "<scalar>" in error.problem and line[: error.column].rstrip().endswith(('"', "'")):
        return Fault(error.line, error.column, "text after the closing quote; put the whole value in quotes")
    if "'?'" in error.problem:
        first = error.start[0] + 1
        return Fault(error.line, error.column, f"expected '- ', as in the list that begins on line {first}")
    return None


def _escape(error: _Error) -> Fault:
    text = "write single quotes, in which a backslash is text, or two backslashes"
    return Fault(error.line, error.column, f"unknown escape after a backslash in double quotes; {text}")


def _entry_in_line(error: _Error) -> Fault:
    text = "an entry ('- ') must begin a line; or write the list in brackets: [a, b]"
    return Fault(error.line, error.column, text)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _spaces(n: int) -> str:
    return f"{n} space{'s' * (n != 1)}"


_EXPLANATIONS: dict[str, Callable[[_Error], Fault | None]] = {
    "cannot start any token": _unexpected_character,
    "mapping values are not allowed": _second_colon,
    "could not find expected ':'": _key_without_colon,
    "unexpected end of stream": _open_quote,
    r"expected ',' or '[\]}]'|expected the node content, but found '<stream end>'": _open_bracket,
    "expected <block end>": _block_end,
    "unknown escape character": _escape,
    "sequence entries are not allowed": _entry_in_line,
}
"""Explanations by a pattern of the parser's problem."""
