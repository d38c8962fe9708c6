"""The pages of errors have every message that heedful raises, and each of them has an anchor of its own."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from error_messages import PACKAGE, Message, Package, raises
from error_pages import FILES, MARK, generated, page_of, pages, read_pages

from heedful.api.run import load
from heedful.errors import HeedfulError
from heedful.runs.reading import read_recipe

pytestmark = pytest.mark.slow  # reading the source takes seconds

FOLDER = Path(__file__).parents[3] / "docs" / "troubleshooting"
WRITTEN = read_pages(FOLDER)


@cache
def messages():
    """All messages of the source."""
    return Package().messages()


OF_VALIDATION = {
    "{key}: unknown key (did you mean {name}?)",
    "{key}: expected {type}, got {value}",
    "{key}: required key is missing",
}
"""Explained messages that are made of pydantic's errors, not raised as they stand."""


def test_the_pages_are_what_the_source_says():
    assert pages(WRITTEN) == WRITTEN, (
        "docs/troubleshooting is not what the source says; regenerate it:\n    make pages"
    )


def literals(node):
    """The words of an error that stand in its `raise` statement: texts of more than one word."""
    inner = [each for each in ast.walk(node) if isinstance(each, ast.Call) and each is not node]
    keys = {id(arg) for call in inner if is_join_or_choice(call) for arg in ast.walk(call)}
    for each in ast.walk(node):
        text = each.value if isinstance(each, ast.Constant) and id(each) not in keys else None
        if isinstance(text, str) and re.search(r"[a-z]{3,} [a-z]{2,}", text):
            yield " ".join(text.split())


def is_join_or_choice(call):
    """Whether a call makes its result of other words than its arguments."""
    return isinstance(call.func, ast.Name) and call.func.id in {
        "getattr",
        "hasattr",
        "nearest",
        "message_for",
    }


def test_the_words_of_every_raise_statement_are_on_a_page():
    """Read without what makes the messages: all texts in the statements, wherever they stand."""
    shown = " ".join(WRITTEN.values())
    n_statements, missing = 0, []
    for path in sorted(PACKAGE.rglob("*.py")):
        for raised, _ in raises(ast.parse(path.read_text(encoding="utf-8"))):
            found = list(literals(raised))
            n_statements += bool(found)
            missing += [f"{path.name}:{raised.lineno}: {text}" for text in found if text.strip() not in shown]
    assert missing == []
    assert n_statements > 700


def test_every_message_is_on_one_page_with_an_anchor_of_its_own():
    anchors = Counter({message.text: message.anchor for message in messages()}.values())
    assert max(anchors.values()) == 1
    on_pages = Counter(re.findall(r" \{: #([\w-]+) \}$", "\n".join(WRITTEN.values()), re.MULTILINE))
    assert {message.anchor for message in messages()} == on_pages.keys()
    assert len(on_pages) > 800


def test_an_anchor_depends_on_the_message_alone():
    one, other = (Message("{path}: no such run{other_runs}", "RequestError", f"{name}.py") for name in "ab")
    assert one.anchor == other.anchor
    assert one.anchor.startswith("path-no-such-run-other-runs-")
    assert len(Message("word " * 100, "RequestError", "a.py").anchor) <= 65


@pytest.mark.parametrize("file", FILES)
def test_what_is_explained_is_a_message_of_the_page(file):
    own, _, rest = WRITTEN[file].partition(MARK)
    explained = re.findall(r"^### `+ ?(.+?) ?`+$", own, re.MULTILINE)
    assert {*explained} - OF_VALIDATION <= {m.text for m in messages() if page_of(m) == file}
    assert rest.startswith("\n## All messages\n")
    assert own.count("\n### ") == len(explained)


def test_about_forty_messages_are_explained():
    assert 35 < sum(WRITTEN[file].partition(MARK)[0].count("\n### ") for file in FILES) < 60


def pattern(template):
    """A regular expression of the messages that a template describes."""
    if "[" not in template:
        parts = re.split(r"\{\w+\}", template)
        return "(?:.|\n)*".join(map(re.escape, parts))
    start, rest = template.split("[", 1)
    depth = 1
    for end, letter in enumerate(rest):  # noqa: B007 - read below
        depth += (letter == "[") - (letter == "]")
        if depth == 0:
            break
    return f"{pattern(start)}(?:.|\n)*{pattern(rest[end + 1 :])}"


def raised_by(function, *arguments):
    with pytest.raises(HeedfulError) as caught:
        function(*arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "beginning"),
    [
        (["training.max_updates: 5"], "{source}: {text}: expected KEY=VALUE; write"),
        (["base=other"], "{source}: {text}: base cannot be overridden"),
        (["training.metric=accuracy"], "training.metric={metric} is not measured by validation"),
        (["model.layer.mixer.n_heads=3"], "d_model={d_model} must be divisible by n_heads={n_heads}; change"),
        (["model.layer.norm=my_parts:Norm"], "{reference} would import the module {module}"),
        (
            ["schedule.kind=cosine", "schedule.peak=0.1", "schedule.warmup=100000"],
            "schedule.warmup={warmup} must be smaller",
        ),
    ],
)
def test_messages_of_wrong_recipes_are_listed(overrides, beginning):
    text = raised_by(read_recipe, "phrasebook-de", overrides)
    (template,) = {message.text for message in messages() if message.text.startswith(beginning)}
    assert re.search(pattern(template), text), text


def test_messages_of_wrong_folders_are_listed(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "none", tmp_path / "file", tmp_path):
        text = raised_by(load, path)
        listed = [
            m for m in messages() if m.module.startswith("artifacts/") and re.match(pattern(m.text), text)
        ]
        assert listed, text


CODE = """
LIMIT = "10"
def helper(path, problem):
    return RequestError(f"{path}: {problem}; help")
def text(n):
    return f"{n} of them" if n else "none of them"
def check(path, n, error):
    hint = " (hint)"
    if n == 1:
        raise RequestError(f"{path.name}: at most {LIMIT}, got {n - 1:,}" + hint)
    if n == 2:
        raise helper(path, "is broken")
    if n == 3:
        raise DataError(text(n))
    if n == 4:
        raise DataError(f"no {'row' if n else 'column'}{' at all' * bool(n)}") from error
    if n == 5:
        raise DataError("\\n  ".join(["two lines", *problems]))
    raise RequestError(str(error))
"""


def test_templates_are_those_made_by_hand(tmp_path):
    (tmp_path / "code.py").write_text(CODE, encoding="utf-8")
    found = [(message.error, message.text) for message in Package(tmp_path).messages()]
    assert found == [
        ("RequestError", "{path}: at most 10, got {n} (hint)"),
        ("RequestError", "{path}: is broken; help"),
        ("DataError", "{n} of them"),
        ("DataError", "none of them"),
        ("DataError", "no [row / column][ at all]"),
        ("DataError", "two lines {problems}"),
    ]


def test_messages_are_sorted_by_their_words_and_named_once():
    listed = generated(
        [
            Message("{path}: zebra", "DataError", "data/a.py"),
            Message("apple", "_OwnError", "data/b.py"),
            Message("apple", "DataError", "data/c.py"),
        ]
    )
    assert re.findall(r"^#### `(.+)` ", listed, re.MULTILINE) == ["apple", "{path}: zebra"]
    assert "`OwnError` or `DataError` of `data/b.py`, `data/c.py`" in listed
