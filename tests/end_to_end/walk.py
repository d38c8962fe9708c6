"""Does what a page of the documentation says, in the current folder, and compares what it shows.

    python walk.py PAGE.md

A page is gone through from top to bottom. What is done to a block hangs on the word behind its backticks:

| block | what is done |
|---|---|
| ``python`` | it is run; all of a page is one session |
| ``pycon`` | the same, typed behind ``>>>``; what it prints must be what the page shows |
| ``console`` | each line behind ``$`` is run by bash and must succeed (see `Command`) |
| any with ``title="NAME"`` | it is written to the file NAME, and not run |
| any other | nothing |

Where something stands below a command, it is all that the command may print to standard output. In what is
shown, ``...`` stands for anything, as in doctest.
"""

import doctest
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^```(\w+)([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANYTHING = doctest.ELLIPSIS


@dataclass(frozen=True)
class Block:
    """What stands between two lines of backticks.

    Args:
        language: the word behind the first ones.
        title: the name of the file that it is, or None.
        text: of it.
        line: of the page on which the text begins, counted from 1.
    """

    language: str
    title: str | None
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """A command of a console block; a backslash at the end of a line continues it.

    Args:
        text: for the shell.
        shown: what stands below it; empty where nothing does.
        line: of the page.
    """

    text: str
    shown: str
    line: int


class Untrue(Exception):
    """The page says something that is not so; the message has the line."""


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page, in order."""
    for found in FENCE.finditer(page):
        title = re.search(r'title="([^"]+)"', found[2])
        line = page.count("\n", 0, found.start(3)) + 1
        yield Block(found[1], None if title is None else title[1], found[3], line)


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block, in order.

    Raises:
        Untrue: the block begins with something else.
    """
    lines = block.text.splitlines()
    at = 0
    while at < len(lines):
        first = at
        if not lines[at].startswith("$ "):
            raise Untrue(f"line {block.line + at}: a console block begins with a command, '$ ...'")
        while lines[at].endswith("\\") and at + 1 < len(lines):
            at += 1
        text = "\n".join(lines[first : at + 1]).removeprefix("$ ")
        below = at = at + 1
        while at < len(lines) and not lines[at].startswith("$ "):
            at += 1
        yield Command(text, _trimmed("\n".join(lines[below:at])), block.line + first)


def walk(page: Path) -> None:
    """Go through a page.

    Raises:
        Untrue: something is not as the page says.
    """
    session: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.title is not None:
            path = Path(block.title)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            _run(block, session, str(page))
        elif block.language == "pycon":
            _compare(block, session, str(page))
        elif block.language == "console":
            for command in commands(block):
                _call(command)


def _run(block: Block, session: dict[str, Any], name: str) -> None:
    # Line ends before it, so that what goes wrong is told by its line on the page.
    code = compile("\n" * (block.line - 1) + block.text, name, "exec")
    try:
        exec(code, session)
    except Exception:
        raise Untrue(f"line {block.line}: it raises\n{traceback.format_exc()}") from None


def _compare(block: Block, session: dict[str, Any], name: str) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, session, name, name, block.line - 1)
    runner = doctest.DocTestRunner(verbose=False, optionflags=ANYTHING)
    told: list[str] = []
    failed = runner.run(test, out=told.append, clear_globs=False).failed
    if failed:
        raise Untrue("".join(told))
    session.update(test.globs)


def _call(command: Command) -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command.text}"],
        stdin=subprocess.DEVNULL, capture_output=True, check=False, encoding="utf-8",
    )  # fmt: skip
    said = f"line {command.line}: $ {command.text}\n"
    if done.returncode:
        raise Untrue(f"{said}ends with status {done.returncode}\n{done.stdout}{done.stderr}")
    if not command.shown:
        return
    checker, got = doctest.OutputChecker(), _trimmed(done.stdout)
    if not checker.check_output(command.shown, got, ANYTHING):
        raise Untrue(f"{said}the page shows\n{command.shown}\nit prints\n{got}\n{done.stderr}")


def _trimmed(text: str) -> str:
    """Without empty lines around it and blanks at the ends of lines, and with one line end behind it."""
    lines = "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
    return f"{lines}\n" if lines else ""


if __name__ == "__main__":
    # As at the prompt: what is imported is looked for in the current folder first.
    sys.path[0] = ""
    try:
        walk(Path(sys.argv[1]).resolve())
    except Untrue as error:
        sys.exit(f"{sys.argv[1]}: {error}")
