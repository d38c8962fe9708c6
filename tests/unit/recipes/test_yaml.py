import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import RequestError
from heedful.recipes.trees import Tree
from heedful.recipes.yaml import MAX_DEPTH, dump_yaml, plain_scalar, read_value, read_yaml

NUMBERS = {
    "5e-4": 5e-4, "1e-9": 1e-9, ".5": 0.5, ".5e3": 500.0, "1.": 1.0, "1.e3": 1000.0, "1e5": 1e5, "1E+3": 1e3,
    "-5e-4": -5e-4, "+1.5": 1.5, "0": 0, "-0": 0, "+5": 5, "017": 17, "0o17": 15, "0x1F": 31,
    ".inf": math.inf, "-.inf": -math.inf, "+.Inf": math.inf,
}  # fmt: skip
TEXTS = ["no", "yes", "on", "off", "y", "n", "1_000", "12:30", "2020-01-01", "0b11", "1e", "e5", ".", "-",
         "+", "tRue", "nuLL", "1.2.3", "0x", "0o8", "inf", "nan", "1e5.0", "=", "٣"]  # fmt: skip
CONSTANTS = {"": None, "~": None, "null": None, "Null": None, "true": True, "True": True, "FALSE": False}


def same(a, b):
    """Equal, and equal in type too: 1 is not 1.0, nor True."""
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_of_the_core_schema(text):
    assert same(read_yaml(f"a: {text}\n", "r.yaml").data["a"], NUMBERS[text])
    assert same(read_yaml(f"a: [{text}]\n", "r.yaml").data["a"][0], NUMBERS[text])


@pytest.mark.parametrize("text", TEXTS)
def test_what_looks_like_a_number_or_a_boolean_elsewhere_is_text(text):
    assert plain_scalar(text) == text


@pytest.mark.parametrize("text", CONSTANTS)
def test_constants(text):
    assert same(read_yaml(f"a: {text}\n", "r.yaml").data["a"], CONSTANTS[text])


def test_nan_is_a_number():
    assert math.isnan(read_yaml("a: .nan", "r.yaml").data["a"])


@pytest.mark.parametrize("quoted", ["'5e-4'", '"5e-4"'])
def test_quoted_numbers_are_text(quoted):
    assert read_yaml(f"a: {quoted}", "r.yaml").data == {"a": "5e-4"}


def test_every_value_knows_its_line():
    text = "a: 1\nb:\n  c: two\n  d:\n    - x\n    - e: {f: 3,\n          g: 4}\n"
    tree = read_yaml(text, "r.yaml")
    lines = {".".join(map(str, path)): item.mark.line for path, item in tree.walk()}
    expected = {"": 1, "a": 1, "b": 2, "b.c": 3, "b.d": 4, "b.d.0": 5, "b.d.1": 6, "b.d.1.e": 6}
    assert lines == {**expected, "b.d.1.e.f": 6, "b.d.1.e.g": 7}
    assert str(tree.mark_of(("b", "d", 1, "e", "g"))) == "r.yaml:7"
    assert str(tree.mark_of(("b", "nothing", "here"))) == "r.yaml:2"


def test_aliases_share_what_their_anchor_holds():
    tree = read_yaml("a: &x {b: 1}\nc: *x\nd: [*x, &y 2, *y]\n", "r.yaml")
    assert tree.data == {"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}, 2, 2]}
    assert tree.mark_of(("c",)).line == 2


BILLION = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdef", "bcdefg", strict=True)
)

WRONG = {
    "duplicate": ("a: 1\nb:\n  c: 1\n  c: 2\n", "r.yaml:4:3: duplicate key 'c'; the first is on line 3"),
    "open list": ("a: [1,\n", "r.yaml:1:4: the '[' opened here is never closed\n  a: [1,\n     ^"),
    "open map": ("a: {b: 1\n", "r.yaml:1:4: the '{' opened here is never closed"),
    "open quote": ('a: "b\n', "r.yaml:1:4: the '\"' opened here is never closed"),
    "no value": ("a: [1,,2]\n", "r.yaml:1:7: expected a value, but found ','"),
    "a bracket too many": ("a: 1\n}\n", "r.yaml:2:1: expected a key or the end, but found '}'"),
    "indent": ("a: 1\n b: 2\n", "r.yaml:2:2: indented by 1 space, but the line above by 0"),
    "python tag": ("a: !!python/object:os.system x\n", "r.yaml:1:4: tags such as"),
    "core tag": ("a: !!int 3\n", "r.yaml:1:4: tags such as"),
    "own tag on a list": ("a:\n  b: !mine [1]\n", "r.yaml:2:6: tags such as"),
    "tag on a key": ("!!str a: 1\n", "r.yaml:1:1: a key must be plain text"),
    "merge key": ("a: &x {b: 1}\nc:\n  <<: *x\n", "r.yaml:3:3: merge keys (<<)"),
    "number as a key": ("a:\n  2017: x\n", "r.yaml:2:3: a key must be text: put 2017 in quotes"),
    "list as a key": ("? [1]\n: 2\n", "r.yaml:1:3: a key must be plain text"),
    "no key": ("a: 1\n: 2\n", "r.yaml:2:1: a key must be text: put it in quotes"),
    "two documents": ("a: 1\n---\nb: 2\n", "r.yaml:2:1: a second document"),
    "old version": ("%YAML 1.1\n---\na: no\n", "r.yaml:2:1: only YAML 1.2"),
    "unknown alias": ("a: *x\n", "r.yaml:1:4: undefined alias *x"),
    "alias in its anchor": ("a: &x [*x]\n", "r.yaml:1:8: undefined alias *x"),
    "billion laughs": (BILLION, "r.yaml:5:"),
    "deep": ("a: " + "[" * (MAX_DEPTH + 1), f"r.yaml:1:{3 + MAX_DEPTH + 1}: nested deeper than {MAX_DEPTH}"),
    "too large": ("a:\n  b: 1e999\n", "r.yaml:2:6: value out of range: 1e999"),
    "too long": ("a: " + "9" * 5000, "r.yaml:1:4: value out of range: a number of 5,000 digits"),
    "control character": ("a: 1\nb: x\x07y\n", "r.yaml:2:5: "),
    "surrogate": ('a: "\\uD800"\n', "r.yaml:1:4: half of a surrogate pair"),
    "empty": ("# nothing\n", "r.yaml: is empty"),
    "null": ("~\n", "r.yaml: is empty"),
    "list": ("\n- a\n", "r.yaml:2: expected keys and values ('key: value'), got a list"),
    "text": ("hello\n", "r.yaml:1: expected keys and values ('key: value'), got 'hello'"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_refusals_name_file_line_and_column(case):
    text, message = WRONG[case]
    with pytest.raises(RequestError) as caught:
        read_yaml(text, "r.yaml")
    assert str(caught.value).startswith(message)
    assert all(line.startswith("  ") for line in str(caught.value).split("\n")[1:])


@pytest.mark.slow
@given(st.text(st.sampled_from("ab1:-?[]{}&*!|>'\"%@`#,. \n\t\\~<\x00\ud800\ue000"), max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        tree = read_yaml(text, "r.yaml")
    except RequestError as error:
        message = str(error)
    else:
        message = "r.yaml:" if isinstance(tree.data, dict) else "neither a map nor refused"
    assert message.startswith("r.yaml:")


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
tricky = st.sampled_from(
    [
        *TEXTS,
        *NUMBERS,
        *CONSTANTS,
        "a: b",
        "a #b",
        " a",
        "a ",
        "<<",
        "...",
        "---",
        "- a",
        "a\n",
        "\x85",
        "\ufeff",
        "~/x",
        "/data/x y",
        "é",
    ]
)
keys = st.text() | tricky
plain = st.recursive(
    scalars | tricky,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def ordered(value):
    """With the types of scalars and the order of maps made part of equality."""
    if isinstance(value, dict):
        return [(key, ordered(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [ordered(item) for item in value]
    return type(value).__name__, repr(value)


@pytest.mark.slow
@given(st.dictionaries(keys, plain, max_size=5))
def test_what_is_written_reads_back_exactly(data):
    text = dump_yaml(data)
    assert ordered(read_yaml(text, "r.yaml").data) == ordered(data)
    assert dump_yaml(read_yaml(text, "r.yaml")) == text


@given(st.text())
def test_any_text_survives_as_the_value_of_an_override(value):
    text = dump_yaml(value).rstrip("\n")
    assert read_value(text, "here") == value


def test_the_form_of_what_is_written():
    data = {
        "lr": 5e-4,
        "eps": 1e-9,
        "b": {"on": "yes", "betas": [0.9, 0.98]},
        "c": [{"d": None, "e": {}}, [[]]],
    }
    text = """\
lr: 0.0005
eps: 1e-09
b:
  "on": "yes"
  betas: [0.9, 0.98]
c:
  - d: null
    e: {}
  - - []
"""
    assert dump_yaml(data) == text


def test_long_lists_and_texts_stay_whole():
    data = {"a": list(range(3000)), "b": [["word " * 900]], "c": {"d": "x: " * 900}}
    assert read_yaml(dump_yaml(data), "r.yaml").data == data


@pytest.mark.parametrize("value", [{1, 2}, b"x", {3: 1}, {"a": object()}])
def test_only_plain_data_is_written(value):
    with pytest.raises(TypeError):
        dump_yaml({"a": value})


def test_a_tree_is_written_as_its_data():
    tree = read_yaml("a: {b: 1}", "r.yaml")
    assert isinstance(tree, Tree)
    assert dump_yaml(tree) == "a:\n  b: 1\n"
