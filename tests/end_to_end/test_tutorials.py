"""Pages with sessions do what they say, on a machine that has heedful and nothing else."""

import os
import re
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest
from tiers import sampled

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
WALK = HERE / "walk.py"
PAGES = sorted(
    page
    for page in DOCS.rglob("*.md")
    if page.parent.name == "tutorials"
    or re.search(r"^```(pycon|console)$", page.read_text(encoding="utf-8"), re.M)
)
"""The tutorials, and every other page with a session of Python or of the shell: all their blocks are run."""

KEPT = DOCS / "tutorials" / "blocks.md"

RIGHT = """\
A file, a session that goes on from block to block, and commands.

```text title="below/words.txt"
one
two
```

```python
from pathlib import Path

words = Path("below/words.txt").read_text().split()
```

Nothing is done with this:

```text
1 / 0
```

```pycon
>>> words
['one', 'two']
>>> longest = max(len(word) for word in words)
```

```python
assert longest == 3
```

```console
$ echo one; echo noise >&2
one
$ cat below/words.txt \\
    below/words.txt
one
...
two
$ echo what is not shown is not compared
```
"""

WRONG = {
    "a value": ("['one', 'two']", "['one']", "line 21"),
    "what is not said to print": ("longest = max(", "max(", "line 23"),
    "a name of an earlier block": ("longest == 3", "longest == 4", "line 27"),
    "what a command prints": ("noise >&2\none", "noise >&2\ntwo", "line 31"),
    "a status": ("echo what", "false", "line 38"),
    "a status within a pipe": ("echo what", "false | echo what", "line 38"),
    "a command that is not there": ("$ echo what", "$ no-such-command", "status 127"),
    "no command": ("$ echo one; echo", "echo", "line 31: a console block begins with a command"),
    "a file": ('title="below/words.txt"', "", "FileNotFoundError"),
}


@pytest.fixture
def walk(process, environment, tmp_path):
    """Go through a page in an empty folder, with commands that are those of this interpreter.

    A service listens on a free port, and is ended with the test.
    """
    programs, folder, services = tmp_path / "programs", tmp_path / "folder", tmp_path / "services"
    for path in (programs, folder):
        path.mkdir()
    services.touch()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = f'if [ "$1" = serve ]; then echo $$ >> "{services}"; set -- "$@" --port {port}; fi\n'
    for name, lines, arguments in (("heedful", serve, "-m heedful"), ("python", "", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\n{lines}exec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    env = {**environment, "PATH": f"{programs}:{environment['PATH']}", "PYTHONIOENCODING": "utf-8"}

    def run(page):
        own = tmp_path / "pages" / page.name
        own.parent.mkdir(exist_ok=True)
        text = page.read_text(encoding="utf-8").replace("//127.0.0.1:8000", f"//127.0.0.1:{port}")
        own.write_text(text, encoding="utf-8")
        return process(WALK, own, cwd=folder, env=env, timeout=840)

    yield run
    for pid in map(int, services.read_text().split()):
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and b"serve" in command.read_bytes():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", sampled(PAGES, [KEPT]), ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page, walk):
    if "$ curl " in page.read_text(encoding="utf-8") and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    done = walk(page)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_shows_something_that_could_be_wrong(page):
    """A page that prints nothing would pass whatever it says."""
    text = page.read_text(encoding="utf-8")
    assert "\n```pycon\n" in text or "\n```console\n" in text


def test_what_is_so_passes(walk, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(RIGHT, encoding="utf-8")
    done = walk(page)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "folder" / "below" / "words.txt").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_so_is_told_by_its_line(what, walk, tmp_path):
    right, wrong, told = WRONG[what]
    assert RIGHT.count(right) == 1
    page = tmp_path / "page.md"
    page.write_text(RIGHT.replace(right, wrong), encoding="utf-8")
    done = walk(page)
    assert done.returncode == 1
    assert told in done.stderr
