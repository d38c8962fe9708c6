"""The explanation of the parser's errors: the fault's own line, what it is, and the line's text."""

import pytest

from heedful.errors import RequestError
from heedful.recipes.yaml import read_yaml

FAULTS = {
    "tab": ("a:\n\tb: 1\n", "r.yaml:2:1: indented with a tab; YAML needs spaces\n   b: 1\n  ^"),
    "tab below a section": ("a:\n  b: 1\n\tc: 2\n", "r.yaml:3:1: indented with a tab; YAML needs spaces"),
    "quote": (
        'a: {separator: ";, quotes: true}\nb: {separator: ";"}\n',
        "r.yaml:1:16: the '\"' opened here is never closed\n"
        '  a: {separator: ";, quotes: true}\n'
        "                 ^",
    ),
    "quote to the end": ("a: 'b\nc: d\n", 'r.yaml:1:4: the "\'" opened here is never closed'),
    "brace": (
        "a: {b: 1\nc: {d: 1}\n",
        "r.yaml:1:4: the '{' opened here is never closed, or a comma is missing before line 2",
    ),
    "brace to the end": ("a: {b: 1\n", "r.yaml:1:4: the '{' opened here is never closed\n"),
    "wrong brackets": ("a: [1, 2}\n", "r.yaml:1:9: expected ']', for the '[' on line 1, got '}'"),
    "colon": (
        "task: kind: classification\n",
        "r.yaml:1:11: a second ': ' in a value; write {kind: classification}, or put the text in quotes",
    ),
    "colon in a text": (
        "description: Labels: my first model\n",
        "r.yaml:1:20: a second ': ' in a value; put the text in quotes: "
        'description: "Labels: my first model"',
    ),
    "colon in braces": ("a: {b: 1 c: 2}\n", "r.yaml:1:11: a second ':' in a value; write a comma"),
    "indent": (
        "model:\n  kind: encoder\n   d_model: 32\n",
        "r.yaml:3:4: indented by 3 spaces, but the line above by 2",
    ),
    "smaller indent": ("a:\n    b: 1\n  c: 2\n", "r.yaml:3:3: indented by 2 spaces, but the line above by 4"),
    "no space": (
        "model:\n  d_model:32\n  n_layers: 1\n",
        "r.yaml:2:10: 'd_model:32' needs a space after the colon\n    d_model:32\n           ^",
    ),
    "no space at the beginning": ("a:1\nb: 2\n", "r.yaml:1:2: 'a:1' needs a space after the colon"),
    "equals sign": ("a: 1\nb = 2\n", "r.yaml:2:1: expected 'b: 2', got 'b = 2'"),
    "no colon": ("a: 1\nb\n", "r.yaml:2:1: expected 'key: value', but this line has no ': '"),
    "no entry": ("a:\n  - 1\n  b: 2\n", "r.yaml:3:3: expected '- ', as in the list that begins on line 2"),
    "entry in a line": ("a: - b\n", "r.yaml:1:4: an entry ('- ') must begin a line"),
    "after a quote": ('a: "x" y\n', "r.yaml:1:8: text after the closing quote"),
    "first character": ("a: %x\n", "r.yaml:1:4: a value that begins with '%' must be in quotes"),
    "backslash": ('a: "C:\\data"\n', "r.yaml:1:8: unknown escape after a backslash in double quotes"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_explained_where_it_is(case):
    text, message = FAULTS[case]
    with pytest.raises(RequestError) as refused:
        read_yaml(text, "r.yaml")
    assert str(refused.value).startswith(message)


def test_a_comment_between_does_not_hide_the_line_above():
    with pytest.raises(RequestError, match=r"^r.yaml:4:3: indented by 2 spaces, but the line above by 0"):
        read_yaml("a: 1\n# note\n\n  b: 2\n", "r.yaml")


def test_a_long_line_is_shown_around_the_fault():
    before, after = (", ".join(f"{name}{n}: 1" for n in range(100)) for name in "xy")
    text = f"a: {{{before}, b: c: d, {after}}}\n"
    with pytest.raises(RequestError) as refused:
        read_yaml(text, "r.yaml")
    message, shown, mark = str(refused.value).split("\n")
    assert message.startswith(f"r.yaml:1:{text.index('c: d') + 2}: a second ':'")
    assert len(shown) <= 102
    assert shown[mark.index("^") - 1 :].startswith("c: d")
    assert shown[mark.index("^")] == ":"
