"""Fuzzed input lines: N inputs have N outputs in order, and the good ones exactly those that they have alone.

Every line is drawn with what it must come to, so nothing here repeats how lines are read. Most lines go
through a run that answers with its input, which shows any mix-up; some through a small run.
"""

import gzip
import json
import math
import random
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from heedful.api import run as runs
from heedful.cli import input_streams, main
from heedful.tasks.prediction import Prediction
from heedful.tasks.task_info import Columns

# Some keys of `docs/schemas/prediction.schema.json`, which inputs may have too.
ANSWER = {"version", "input", "output", "score", "tokens", "log_probs", "alternatives", "notes", "error"}
LINES = 230  # of one file, at most


@dataclass(frozen=True)
class Line:
    """A line without its newline, and what it must come to.

    Args:
        raw: its bytes.
        texts: its texts by key; None if it must be refused.
        record: all of its object, in JSON.
        unsure: whether it may be refused or not.
    """

    raw: bytes
    texts: dict[str, str] | None
    record: dict[str, Any] = field(default_factory=dict)
    unsure: bool = False


# Texts -----------------------------------------------------------------------------------------------------

PIECES = [
    *(
        "a",
        "red dog",
        " ",
        "  ",
        "\u0000",
        "\u001b[31m",
        "\u0007",
        "\r",
        "\u000b",
        "\u000c",
        "\u0085",
        "\u2028",
    ),
    *(
        "\u2029",
        "\u202e",
        "\u2066",
        "\ufeff",
        "\\",
        "\\n",
        "\\\\",
        "\\r",
        "நாய்",
        "👩‍🔬",
        "e\u0301",
        "\U0010ffff",
    ),
    *("\ufffd", "\ue000", "\u00a0", "{", '"', "'", "[MASK]", "<unk>", "</s>", "?", "ß", "İ", "\u0378"),
]


def text(draw: random.Random, *, tabs: bool = True, newlines: bool = False) -> str:
    """A text of odd pieces; a few are long."""
    pieces = [*PIECES, *["\t"] * tabs, *["\n", "\r\n"] * newlines]
    if draw.random() < 0.01:
        return draw.choice(pieces) * 5000
    return "".join(draw.choices(pieces, k=draw.choice([0, 1, 1, 2, 3, 5, 9, 30])))


NOT_UTF8 = [
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf5\x80\x80\x80",
    b"\xe2\x82",
    b"\x80",
    b"d\xf6g",
    b"\xf0\x9f\x98",
]


def not_utf8(draw: random.Random) -> bytes:
    """Bytes that are not UTF-8, among some that are."""
    if draw.random() < 0.5:
        bad = draw.choice(NOT_UTF8)
    else:
        while is_utf8(bad := draw.randbytes(draw.randint(1, 40)).replace(b"\n", b"")):
            pass
    return text(draw).encode() + bad + b" " + text(draw).encode()


def is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


# Plain lines -----------------------------------------------------------------------------------------------


def plain(draw: random.Random, keys: tuple[str, ...]) -> Line:
    """A line of texts with tabs between; or of another number of texts, or not in UTF-8."""
    if draw.random() < 0.2:
        return Line(not_utf8(draw), None)
    single = len(keys) == 1
    texts = [text(draw, tabs=single) for _ in keys]
    if not single and draw.random() < 0.2:
        texts = texts[:-1] if draw.random() < 0.5 else [*texts, ""]
        return Line("\t".join(texts).encode(), None)
    raw = "\t".join(texts)
    texts[-1] = texts[-1].removesuffix("\r")  # a newline comes after it
    return Line(raw.encode(), dict(zip(keys, texts, strict=True)))


# JSON lines ------------------------------------------------------------------------------------------------

ODD_KEYS = [
    *("id", "", "\u0000", "\ud800", "\u202e", "x" * 3000, "sourc", "__class__", "ids", "weight", "\n"),
    *sorted(ANSWER),
]


def value(draw: random.Random, depth: int = 0) -> Any:
    """Anything that JSON can hold, and that can be written again."""
    kind = draw.randrange(10 if depth < 4 else 8)
    if kind == 8:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind == 9:
        return {draw.choice(ODD_KEYS): value(draw, depth + 1) for _ in range(draw.randrange(4))}
    return draw.choice(
        [
            None,
            True,
            0,
            -1,
            10**4299,
            -(2**64),
            0.1,
            -0.0,
            1e308,
            5e-324,
            "",
            "\ud800",
            "\udc00 x",
            text(draw),
        ]
    )


def deep(n: int) -> str:
    """So many lists in each other."""
    return "[" * n + "]" * n


def structured(draw: random.Random, keys: tuple[str, ...]) -> Line:
    """An object with texts under the keys; or something else."""
    texts = {key: text(draw, newlines=True) for key in keys}
    own = {draw.choice(ODD_KEYS): value(draw) for _ in range(draw.choice([0, 0, 1, 2, 5]))}
    pairs = [*own.items(), *texts.items()]
    draw.shuffle(pairs)
    record = dict(pairs)
    way = draw.random()
    if way < 0.35:
        return json_line(draw, record, texts)
    if way < 0.45:
        return mutated(draw, json_line(draw, record, texts).raw)
    if way < 0.5:
        return as_text(draw, record, texts, keys[-1])
    if way < 0.6:
        raw = json_line(draw, record, texts).raw
        return Line(raw[:-1] + b', "bad": "' + not_utf8(draw) + b'"}', None)
    return Line(draw.choice(WRONG)(draw, record, keys).encode("utf-8", "surrogatepass"), None)


def json_line(draw: random.Random, record: dict[str, Any], texts: dict[str, str]) -> Line:
    """The object as programs write it: escaped or not, close together or not."""
    written = json.dumps(record, ensure_ascii=draw.random() < 0.5, separators=draw.choice([None, (",", ":")]))
    if not all(map(is_character, written)):
        written = json.dumps(record)
    if draw.random() < 0.1:
        written = f" \t{written}\r "
    return Line(written.encode(), texts, record)


def as_text(draw: random.Random, record: dict[str, Any], texts: dict[str, str], key: str) -> Line:
    """An object with a number or a truth value as text; another key may have NaN, which becomes null."""
    number = draw.choice([3, -0.5, 1e308, 2**70, True, False])
    record = {**record, key: number}
    texts = {**texts, key: json.dumps(number)}
    if draw.random() < 0.7:
        return Line(json.dumps(record).encode(), texts, record)
    raw = ends(record, draw.choice(["NaN", "Infinity", "-Infinity"]))
    return Line(raw.encode(), texts, {**record, "more": None})


def is_character(sign: str) -> bool:
    return unicodedata.category(sign) != "Cs"


def mutated(draw: random.Random, raw: bytes) -> Line:
    """Some bytes replaced, left out or doubled."""
    found = bytearray(raw)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(found))
        found[at : at + draw.randrange(3)] = draw.choice(
            [b"", b"x", b'"', b"}", b"\\", b"\x00", b"9", b"\xc3", b","]
        )
        found = found or bytearray(b"{")
    return Line(bytes(found), None, unsure=True)


def without(record: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: each for name, each in record.items() if name != key}


def ends(record: dict[str, Any], written: str) -> str:
    """The object, with one more key and what is written under that."""
    return json.dumps(record)[:-1] + f', "more": {written}}}'


WRONG: list[Callable[[random.Random, dict[str, Any], tuple[str, ...]], str]] = [
    lambda draw, record, keys: json.dumps(without(record, keys[0])),
    lambda draw, record, keys: json.dumps({**record, keys[-1]: draw.choice([None, {}, "\ud800"])}),
    lambda draw, record, keys: json.dumps({**record, keys[0]: {"a": [text(draw)]}}),
    lambda draw, record, keys: json.dumps(draw.choice([None, 3, "x", [], [record], {}, True])),
    lambda draw, record, keys: json.dumps(record)[: -draw.randint(1, 9)],
    lambda draw, record, keys: json.dumps(record) + draw.choice(["}", "{}", " x", "\u0000", "\ufeff", ","]),
    lambda draw, record, keys: "\ufeff" + json.dumps(record),
    lambda draw, record, keys: ends(record, draw.choice(["nan", "1e999", "-1e400"])),
    lambda draw, record, keys: json.dumps({**record, keys[-1]: draw.choice([math.nan, math.inf])}),
    lambda draw, record, keys: ends(record, draw.choice(["", "-"]) + "7" * draw.choice([4301, 5000, 99_999])),
    lambda draw, record, keys: ends(record, deep(draw.choice([200, 201, 500, 990, 1000, 5000, 100_000]))),
    lambda draw, record, keys: ends(record, draw.choice(["[", '{"a":']) * draw.choice([1, 199, 5000])),
    lambda draw, record, keys: ends(record, '"a", "more": "b"'),
    lambda draw, record, keys: ends(record, f'"a", {json.dumps(keys[0])}: "b"'),
    lambda draw, record, keys: ends(record, '[{"": 1, "": 1}]'),
    lambda draw, record, keys: ends(
        record, draw.choice(['"\u0001"', '"\t"', "'x'", "01", "+1", ".5", "0x1", "1_0"])
    ),
    lambda draw, record, keys: draw.choice(
        ["", " ", "\r", "\u0000", "red dog", "// x", deep(100_000), "[" * 100_000]
    ),
]


# A run that answers with its input -------------------------------------------------------------------------


class Echo:
    """Answers with its input, and a note for some."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        data = SimpleNamespace(train=None)
        self.keys, self.recipe = keys, SimpleNamespace(data=data, decoding=None)
        columns = Columns(keys, keys)
        info = SimpleNamespace(options=(), writes=False)
        self.task = SimpleNamespace(columns=columns, info=info, known_tags=frozenset())

    def predictor(self, **asked: Any) -> "Echo":
        return self

    def predict(self, texts: Any, *, first: int) -> list[Prediction]:
        inputs = [given if isinstance(given, tuple) else (given,) for given in texts]
        return [
            Prediction(answer(given), notes=("strange",) if "?" in given[0] else (), tokens=[*given])
            for given in inputs
        ]


def answer(given: tuple[str, ...]) -> str:
    """Of these texts, and of no others."""
    return "|".join(f"{len(each)} {each}" for each in given)


@dataclass(frozen=True)
class Asked:
    """How the command is asked, and what it said."""

    predict: Callable[..., tuple[int, str, str]]
    keys: tuple[str, ...]
    jsonl: bool

    def __call__(self, draw: random.Random, lines: list[Line]) -> tuple[int, list[str], str]:
        """Status, outputs and messages."""
        content = b"".join(line.raw + b"\n" for line in lines)
        if lines and lines[-1].raw and not lines[-1].raw.endswith(b"\r") and draw.random() < 0.5:
            content = content[:-1]  # the last line has no end
        status, out, err = self.predict(content, jsonl=self.jsonl, packed=draw.random() < 0.2)
        assert "Traceback" not in err
        assert not steering(err)
        assert out == "" or out.endswith("\n")
        return status, out.split("\n")[:-1], err


def steering(shown: str) -> set[str]:
    return {sign for sign in shown if unicodedata.category(sign) in ("Cc", "Cs")} - {"\t", "\n"}


@pytest.fixture
def command(tmp_path, capsys, monkeypatch):
    """Runs ``heedful predict`` in this process: content of the input → status, output, messages."""
    monkeypatch.setattr(input_streams, "BLOCK", 7)

    def predict(content: bytes, *, jsonl: bool, packed: bool, run: str = "run") -> tuple[int, str, str]:
        path = tmp_path / f"in.{'jsonl' if jsonl else 'txt'}{'.gz' * packed}"
        path.write_bytes(gzip.compress(content, 1) if packed else content)
        capsys.readouterr()
        status = main._status_of(lambda: main._run(["predict", run, str(path), "--device", "cpu"]))
        return status, *capsys.readouterr()

    return predict


def is_refused_whole(status: int, err: str) -> bool:
    """Whether a file is refused for its first bytes: many control characters, or zeros as in UTF-16."""
    return status == 2 and bool(
        re.match(r"heedful: \S*in\.(txt|jsonl)\b.* is (a binary file|UTF-16[BL]E without) ", err)
    )


def file_of(draw: random.Random, line: Callable[..., Line], keys: tuple[str, ...]) -> list[Line]:
    """Some lines of which the first does not show that the whole request is wrong."""
    first = Line(b"\xc3 first", None)
    while draw.random() < 0.7 and (first := line(draw, keys)).texts is None:
        first = Line(not_utf8(draw), None)
        if first.raw[:2] not in (b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b"):
            break
    lines = [first, *(line(draw, keys) for _ in range(draw.randint(0, LINES)))]
    if first.raw.startswith(b"\xef\xbb\xbf") or draw.random() < 0.3:  # a byte order mark is dropped once
        lines[0] = Line(b"\xef\xbb\xbf" + first.raw, first.texts, first.record)
    return lines


def read_back(line: str) -> str:
    """As the documentation says."""
    return re.sub(r"\\([nr\\])", lambda found: {"n": "\n", "r": "\r"}.get(found[1], "\\"), line)


def plain_is_right(line: Line, shown: str, keys: tuple[str, ...]) -> bool:
    """Whether an output is the answer; an error has an empty line."""
    if line.texts is None:
        assert shown == ""
        return False
    assert read_back(shown) == answer(tuple(line.texts.values()))
    return True


def structured_is_right(line: Line, shown: str, keys: tuple[str, ...]) -> bool:
    """Whether an output is the answer beside the own keys; an error has its reason in its place."""
    found = json.loads(shown)
    assert found["version"] == 2
    if line.texts is None and (not line.unsure or "error" in found):
        assert "output" not in found, line
        assert re.match(r"\S*in\.jsonl(\.gz)?:\d+: .", found["error"]), found
        return False
    record = line.record or json.loads(line.raw)
    texts = tuple(each if isinstance(each := record[key], str) else json.dumps(each) for key in keys)
    assert found["output"] == answer(texts), found
    assert found["tokens"] == [*texts]
    assert found["input"] == record
    return True


def rows(lines: list[Line], *, jsonl: bool) -> list[Line]:
    """The lines that are inputs: of JSON lines, those that are not blank."""
    return [line for line in lines if line.raw.strip() or not jsonl]


FORMS = {
    "plain": (plain, plain_is_right, ("source",)),
    "plain pairs": (plain, plain_is_right, ("source", "second")),
    "json": (structured, structured_is_right, ("source",)),
    "json pairs": (structured, structured_is_right, ("source", "second")),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_line_has_its_output_and_the_good_ones_their_own(form, command, monkeypatch, draw, amount):
    draw_line, is_right, keys = FORMS[form]
    monkeypatch.setattr(runs, "load", lambda *given, **how: Echo(keys))
    asked = Asked(command, keys, form.startswith("json"))
    done = 0
    while done < amount(300, 20_000):
        lines = file_of(draw, draw_line, keys)
        done += len(lines)
        status, shown, err = asked(draw, lines)
        if is_refused_whole(status, err):
            assert not all(is_utf8(line.raw) for line in lines)
            continue
        lines = rows(lines, jsonl=asked.jsonl)
        assert len(shown) == len(lines), err[-1000:]
        right = [is_right(line, one, keys) for line, one in zip(lines, shown, strict=True)]
        failed = right.count(False)
        assert status == (1 if failed else 0)
        if failed:
            assert err.endswith(f"heedful: {failed} of {len(lines)} inputs could not be read\n")
        good = [line for line, is_good in zip(lines, right, strict=True) if is_good]
        if good and right[0] and not good[-1].raw.endswith(b"\r"):
            status, alone, _ = asked(draw, good)
            assert status == 0
            assert alone == [one for one, is_good in zip(shown, right, strict=True) if is_good]


@pytest.mark.parametrize("form", FORMS)
def test_a_first_line_that_is_wrong_is_refused_with_one_message_or_costs_itself_alone(
    form, command, monkeypatch, draw, amount
):
    draw_line, is_right, keys = FORMS[form]
    monkeypatch.setattr(runs, "load", lambda *given, **how: Echo(keys))
    asked = Asked(command, keys, form.startswith("json"))
    for _ in range(amount(60, 4000)):
        while (first := draw_line(draw, keys)).texts is not None:
            pass
        while (second := draw_line(draw, keys)).texts is None:
            pass
        status, shown, err = asked(draw, [first, second])
        if status == 2:
            assert shown == []
            assert re.match(r"heedful: \S*in\.(txt|jsonl)(\.gz)?:1: ", err) or is_refused_whole(status, err)
        else:
            assert len(shown) == len(rows([first, second], jsonl=asked.jsonl))
            assert is_right(second, shown[-1], keys)


# A real run ------------------------------------------------------------------------------------------------

TRANSLATION = {
    "task": {"kind": "translation"},
    "tokenizer": {"subwords": {"kind": "bpe", "merges": 40}},
    "model": {
        "kind": "transformer",
        "n_layers": 1,
        "d_model": 16,
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 2},
            "channels": {"kind": "feed-forward", "d_ff": 32},
        },
    },
    "decoding": {"kind": "beam", "beam": 2, "max_length": {"cap": 9}},
}
WORDS = ["red dog", "blue cat", "a green bird sleeps", "நாய்"]


@pytest.mark.parametrize("jsonl", [False, True])
def test_a_real_run_answers_the_good_ones_as_alone(jsonl, command, make_run, tmp_path, draw, amount):
    run = make_run(tmp_path / "run", TRANSLATION, [{"source": x, "target": x.upper()} for x in WORDS])
    line, keys = structured if jsonl else plain, ("source",)
    lines = [line(draw, keys) for _ in range(amount(100, 2000))]
    lines = [Line(b'{"source": "red"}' if jsonl else b"red", {"source": "red"}, {"source": "red"})] + [
        each for each in lines if len(each.raw) < 2000 and not each.unsure
    ]

    def ask(some: list[Line]) -> tuple[int, list[str]]:
        content = b"".join(each.raw + b"\n" for each in some)
        status, out, err = command(content, jsonl=jsonl, packed=False, run=str(run))
        assert "Traceback" not in err
        return status, out.split("\n")[:-1]

    status, shown = ask(lines)
    lines = rows(lines, jsonl=jsonl)
    assert (status, len(shown)) == (1, len(lines))
    good = [each for each in lines if each.texts is not None]
    status, alone = ask(good)
    own = [one for each, one in zip(lines, shown, strict=True) if each.texts is not None]
    assert status == 0
    assert [text_of(one, jsonl) for one in alone] == [text_of(one, jsonl) for one in own]
    assert all(
        text_of(one, jsonl) == "" for each, one in zip(lines, shown, strict=True) if each.texts is None
    )


def text_of(shown: str, jsonl: bool) -> str:
    return (json.loads(shown).get("output") or "") if jsonl else shown
