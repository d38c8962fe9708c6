"""A user's file: its format, the names of its fields, and records that do not affect each other."""

import gzip
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.annotated import ConllSource, SquadSource
from heedful.data.delimited import TsvSource
from heedful.data.folders import FolderSource
from heedful.data.json_lines import JsonlSource
from heedful.data.lines import File, Stream, ValueList
from heedful.data.sources import BesideSource, ChainSource, open_source
from heedful.data.user_files import form_of, input_records, is_user_table, user_source, user_table
from heedful.data.user_tables import Wanted, field_names
from heedful.errors import DataError


def test_a_table_of_one_s_own_with_another_separator(tmp_path):
    (tmp_path / "a.csv").write_text("source|target\na|b\n")
    with pytest.raises(DataError, match=r"a\.csv:1: expected a header .*; replace '\|', or use JSON lines"):
        user_table(tmp_path / "a.csv", ["source", "target"])
    (tmp_path / "b.csv").write_text("a;b\n")
    with pytest.raises(
        DataError, match=r"b\.csv:1: has the columns a, b, but the run reads source and target"
    ):
        user_table(tmp_path / "b.csv", ["source", "target"])


LIKE = {
    "tabs": TsvSource(paths="x", columns={"label": 0, "text": 1}),
    "quoted commas": TsvSource(
        paths="x", columns={"text": "Text", "label": "Class"}, header=True, separator=",", quotes=True
    ),
    "lines": None,
}


@pytest.mark.parametrize(
    ("like", "content"),
    [
        ("tabs", "good\ta, b\n"),
        ("tabs", "n\ttext\tlabel\n1\ta, b\tgood\n"),
        ("quoted commas", 'Class,n,Text\ngood,1,"a, b"\n'),
        ("quoted commas", 'label,"text"\ngood,"a, b"\n'),
        ("quoted commas", "text\tlabel\na, b\tgood\n"),
        ("lines", "text\tlabel\na, b\tgood\n"),
        ("lines", 'label,text\ngood,"a, b"\n'),
        ("tabs", 'label,text\ngood,"a, b"\n'),
    ],
)
def test_a_users_own_table_is_read_by_its_names_or_as_the_runs_own(tmp_path, like, content):
    path = tmp_path / "own.txt"
    path.write_text(content)
    source = user_table(path, ("text", "label"), LIKE[like])
    assert [row for row, _ in open_source(source, tmp_path)] == [{"text": "a, b", "label": "good"}]


NAMED = {
    "jsonl": JsonlSource(paths="x", columns={"text": "review", "label": "rating.stars"}, skip=1, limit=1),
    "header": TsvSource(paths="x", columns={"text": "review", "label": "rating.stars"}, header=True),
}
NAMED["chain"] = ChainSource(sources=[NAMED["jsonl"], NAMED["header"]])
NAMED["beside"] = BesideSource(
    sources=[
        JsonlSource(paths="x", columns={"text": "review"}),
        JsonlSource(paths="y", columns={"label": "rating.stars"}),
    ]
)


@pytest.mark.parametrize("like", NAMED)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("own.jsonl", '{"review": "a, b", "rating": {"stars": 5}, "text": "other", "label": "other"}\n'),
        ("own.jsonl", '{"text": "a, b", "label": "5"}\n'),
        ("own.csv", 'rating.stars,text,review,label\n5,other,"a, b",other\n'),
        ("own.csv", 'label;text\n5;"a, b"\n'),
        ("own.tsv", "text\treview\tlabel\trating.stars\nother\ta, b\tother\t5\n"),
        ("own.tsv", "text\tlabel\na, b\t5\n"),
    ],
)
def test_a_users_own_table_has_the_recipes_names_or_the_tasks(tmp_path, like, name, content):
    path = tmp_path / name
    path.write_text(content)
    source = user_table(path, ("text", "label"), NAMED[like])
    assert [row for row, _ in open_source(source, tmp_path)] == [{"text": "a, b", "label": "5"}]


def test_lists_of_the_recipe_stay_lists_in_a_users_own_lines(tmp_path):
    (tmp_path / "own.jsonl").write_text('{"q": "x", "a": "y"}\n')
    like = JsonlSource(paths="x", columns={"question": "q"}, lists={"answer": "a"})
    source = user_table(tmp_path / "own.jsonl", ("question", "answer"), like)
    assert [row for row, _ in open_source(source, tmp_path)] == [{"question": "x", "answer": ["y"]}]


@pytest.mark.parametrize("name", ["OWN.JSONL", "own.Jsonl.GZ", "OWN.CSV", "own.csv.Gz"])
def test_a_users_own_file_may_be_named_in_upper_case(tmp_path, name):
    lines = "text,label\n" + '"a, b",5\n' if "CSV" in name.upper() else '{"text": "a, b", "label": "5"}\n'
    content = lines.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.upper().endswith("GZ") else content)
    assert is_user_table(name)
    source = user_table(tmp_path / name, ("text", "label"), LIKE["tabs"])
    assert [row for row, _ in open_source(source, tmp_path)] == [{"text": "a, b", "label": "5"}]


def test_names_that_the_user_gives_take_precedence(tmp_path):
    (tmp_path / "own.csv").write_text("review,body,label\nother,right,5\n")
    source = user_table(tmp_path / "own.csv", ("text", "label"), NAMED["jsonl"], {"text": "body"})
    assert [row for row, _ in open_source(source, tmp_path)] == [{"text": "right", "label": "5"}]
    with pytest.raises(
        DataError, match=r"own\.csv:1: no column 'bdy' \(did you mean 'body'\?\); it has review"
    ):
        user_table(tmp_path / "own.csv", ("text",), LIKE["tabs"], {"text": "bdy"})


def test_lines_without_any_of_the_names_are_refused_by_the_recipes(tmp_path):
    (tmp_path / "own.jsonl").write_text('{"body": "x", "label": "5"}\n')
    with pytest.raises(DataError, match=r"own\.jsonl:1: no field 'review'.*; to name its columns: "):
        user_table(tmp_path / "own.jsonl", ("text", "label"), NAMED["jsonl"])


@pytest.mark.parametrize("content", ["good\ta\n", "text,lable\na,good\n", '"text\tlabel\na\tgood\n'])
def test_a_users_own_table_without_names_is_refused_without_another_format(tmp_path, content):
    path = tmp_path / "own.txt"
    path.write_text(content)
    with pytest.raises(
        DataError,
        match=r"own\.txt:1: .* (text and label(, .*\.jsonl|; to name its columns: .* if this line is a row, )"
        r"|also reads label; to name its columns: --column label=NAME)",
    ):
        user_table(path, ("text", "label"))


def test_a_quote_in_the_first_line_of_a_users_own_table_is_text(tmp_path):
    path = tmp_path / "own.tsv"
    path.write_text('good\t"a\n')
    source = user_table(path, ("text", "label"), LIKE["tabs"])
    assert [row for row, _ in open_source(source, tmp_path)] == [{"text": '"a', "label": "good"}]


def test_a_users_own_table_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "own.tsv"
    path.write_bytes("text\tlabel\n".encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16"):
        user_table(path, ("text", "label"), LIKE["quoted commas"])


@pytest.mark.slow
@pytest.mark.parametrize("like", [None, *NAMED.values()], ids=str)
def test_fields_of_parquet_are_found_by_the_runs_names_or_the_columns(tmp_path, like):
    import pandas

    texts, labels = ["a", 'b\n"c"'], ["x", "y"]
    own = {"text": texts, "label": labels}
    named = {field_names(like).get(column, column): values for column, values in own.items()}
    for number, fields in enumerate((own, named)):
        path = tmp_path / f"{number}.parquet"
        pandas.DataFrame({"other": [1, 2], **fields}).to_parquet(path)
        source = user_table(path, ("text", "label"), like)
        rows = [row.row for row in open_source(source, tmp_path / "elsewhere")]
        assert rows == [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    pandas.DataFrame({"text": texts, "labels": labels}).to_parquet(tmp_path / "wrong.parquet")
    with pytest.raises(
        DataError,
        match=r"expected the fields .* and .*, got text, labels; to name its columns: ",
    ):
        user_table(tmp_path / "wrong.parquet", ("text", "label"), like)


def test_what_is_not_parquet_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_text("text\n")
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read as Parquet: "):
        user_table(path, ("text",))


# Records, one by one ----------------------------------------------------------------------------------------

PAIR, EITHER = Wanted(("a", "b")), Wanted(("a",), ("b",))
GOOD = b'{"a": "x", "b": "y"}'


def records(wanted, *lines, form="jsonl"):
    raw = [line if isinstance(line, bytes) else line.encode() for line in lines]
    return list(input_records(Stream.of("in", [line + b"\n" for line in raw]), wanted, form))


def error_of(record):
    return None if record.error is None else str(record.error)


SCALARS = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    st.none() | SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def is_text(value):
    """Whether a value is a text or number, or a list of these."""
    parts = value if isinstance(value, list) else [value]
    return all(isinstance(part, str | int | float) for part in parts)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES) | VALUES, max_size=7))
def test_every_line_gives_a_record_and_only_valid_ones_have_no_error(values):
    found = records(PAIR, GOOD, *map(json.dumps, values))
    assert len(found) == 1 + len(values)
    for number, (value, own) in enumerate(zip(values, found[1:], strict=True), 2):
        fits = isinstance(value, dict) and all(is_text(value.get(key, {})) for key in "ab")
        assert (own.error is None) == fits
        assert own.fields == (value if isinstance(value, dict) else {})
        assert fits or error_of(own).startswith(f"in:{number}: ")


@pytest.mark.parametrize(
    ("wanted", "line", "error"),
    [
        (PAIR, '{"b": "y"}', "no field 'a'; there are b"),
        (PAIR, '{"a": "x", "bb": "y"}', "no field 'b' (did you mean 'bb'?); there are a, bb"),
        (PAIR, '{"a": "x", "b": null}', "field 'b' must be text, got null"),
        (PAIR, '{"a": {}, "b": "y"}', "got an object"),
        (PAIR, '["x", "y"]', "one JSON array"),
        (PAIR, '"x"', "not a JSON object"),
        (PAIR, '{"a": "x", "b": "y"', "invalid JSON: Expecting ',' delimiter at column 20"),
        (PAIR, '{"a": "x", "b": "\\udc00"}', "field 'b' contains half of a surrogate pair at character 1"),
        (PAIR, '{"a": "x", "b": "y", "c": 1e999}', "in:2: value out of range: 1e999"),
        (PAIR, f'{{"a": "x", "b": "y", "c": 1{"0" * 99}e999}}', f"out of range: 1{'0' * 59}…"),
        (
            PAIR,
            f'{{"a": "x", "b": "y", "c": [-{"1" * 5000}]}}',
            "out of range: integers must have at most 4,300 digits, got 5,000",
        ),
        (PAIR, '{"a": "x", "b": "y", "a": "z"}', 'in:2: duplicate key "a" in an object; keep one'),
        (PAIR, '{"a": "x", "b": "y", "c": [{"d": 1, "d": 1}]}', 'in:2: duplicate key "d"'),
        (PAIR, f'{{"a": "x", "b": "y", "c": {"[" * 200}{"]" * 200}}}', "nested at most 200 deep"),
        (
            PAIR,
            f'{{"a": "x", "b": "y", "c": {"[" * 99999}{"]" * 99999}}}',
            "lists and objects must be nested",
        ),
        (PAIR, b'{"a": "\xff"}', "byte 8 of the line is not UTF-8"),
        (EITHER, '{"a": "x", "b": {}}', "field 'b' must be text, got an object"),
        (EITHER, '{"a": ["x", null]}', "field 'a.1' must be text, got null"),
    ],
)
def test_error_names_the_problem(wanted, line, error):
    first, bad, last = records(wanted, GOOD, line, GOOD)
    assert (first.error, last.error) == (None, None)
    assert error_of(bad).startswith("in:2: ") or error == "one JSON array"
    assert error in error_of(bad) or error == "one JSON array"


@pytest.mark.parametrize("line", ["{}", '{"a": "x"}', '{"a": "x", "c": "y"}', "x", "3", "[]"])
def test_a_first_line_without_the_fields_is_a_wrong_request(line):
    with pytest.raises(DataError, match=r"^in:1: "):
        records(PAIR, line, GOOD)


@pytest.mark.parametrize(
    "value", ["1e999", "1" * 5000, '{"d": 1, "d": 2}', "[" * 300 + "]" * 300, "[" * 9999]
)
def test_a_first_line_with_a_value_that_is_refused_is_an_input_like_any_other(value):
    first, second = records(PAIR, f'{{"a": "x", "b": "y", "c": {value}}}', GOOD)
    assert error_of(first).startswith("in:1: ")
    assert second.error is None


@pytest.mark.parametrize("line", [b"\xff", b"\xffx\ty", b'{"a": "\xe4", "b": "y"}'])
@pytest.mark.parametrize("form", ["lines", "jsonl"])
def test_a_first_line_that_is_not_utf8_is_an_input_like_any_other(line, form):
    first, second = records(PAIR, line, GOOD if form == "jsonl" else b"x\ty", form=form)
    assert "is not UTF-8" in error_of(first)
    assert (second.error, second.row) == (None, {"a": "x", "b": "y"})


@pytest.mark.parametrize("beginning", ["x\ty".encode("utf-16"), gzip.compress(b"x\ty", mtime=0)])
@pytest.mark.parametrize("form", ["lines", "jsonl"])
def test_what_begins_as_another_format_is_a_wrong_request(beginning, form):
    with pytest.raises(DataError, match=r"^in(:1: .* it looks like UTF-16|: is a gzip file)"):
        records(PAIR, beginning, GOOD, form=form)


def test_numbers_and_nesting_that_can_be_written_again_are_read():
    values = {"big": 10**4299, "deep": json.loads("[" * 199 + "]" * 199), "wide": [[[]] for _ in range(300)]}
    (own,) = records(PAIR, json.dumps({"a": "x", "b": "y", **values}))
    assert own.error is None
    assert own.fields == {"a": "x", "b": "y", **values}


@pytest.mark.parametrize("value", ["null", "{}", "[null]"])
def test_a_first_line_with_the_fields_is_an_input_like_any_other(value):
    first, second = records(PAIR, f'{{"a": "x", "b": {value}}}', GOOD)
    assert error_of(first).startswith("in:1: field 'b")
    assert second.error is None


@pytest.mark.parametrize(
    ("value", "read"),
    [("1.50", "1.5"), ("true", "true"), ("7", "7"), ('["x", 2]', ["x", "2"]), ("[]", [])],
)
def test_values_are_read_as_in_training(value, read, tmp_path):
    (own,) = records(Wanted(("a",)), f'{{"a": {value}}}')
    assert own.row == {"a": read}
    (tmp_path / "train.jsonl").write_text(f'{{"a": {value}}}\n')
    ((row, _),) = open_source(JsonlSource(paths="train.jsonl", columns={"a": "a"}), tmp_path)
    assert row == own.row


def test_numbers_that_json_does_not_have_are_missing_values():
    (own,) = records(EITHER, '{"a": "x", "c": NaN, "d": [-Infinity, {"e": Infinity}]}')
    assert own.error is None
    assert own.fields == {"a": "x", "c": None, "d": [None, {"e": None}]}


def test_what_may_be_left_out_may_be_left_out():
    assert [own.error for own in records(EITHER, '{"a": "x"}', GOOD)] == [None, None]
    rows = [own.row for own in records(EITHER, "x", "x\ty", form="lines")]
    assert rows == [{"a": "x"}, {"a": "x", "b": "y"}]


def test_fields_are_separated_by_tabs():
    first, second, third, fourth = records(PAIR, "x\ty", "x", b"\xe4\ty", "\t", form="lines")
    assert (first.row, first.error) == ({"a": "x", "b": "y"}, None)
    assert error_of(second) == "in:2: expected 2 texts separated by tabs (a, b), got 1"
    assert error_of(third) == "in:3: byte 1 of the line is not UTF-8; convert it to UTF-8"
    assert (fourth.row, fourth.error) == ({"a": "", "b": ""}, None)
    with pytest.raises(DataError, match=r"expected 1 or 2 texts separated by tabs \(a, b\), got 3"):
        records(EITHER, "x\ty\tz", form="lines")


def test_a_single_text_may_have_tabs():
    (own,) = records(Wanted(("a",)), "x\ty", form="lines")
    assert own.row == {"a": "x\ty"}


def test_the_first_line_that_is_an_object_decides_on_the_names():
    wanted = Wanted(("a",), like=JsonlSource(paths="x", columns={"a": "r"}))
    _, second, third = records(wanted, b"\xff", '{"r": "x", "a": "y"}', '{"a": "y"}')
    assert second.row["a"] == "x"
    assert error_of(third) == "in:3: no field 'r'; there are a"


def test_a_column_may_have_another_name_in_the_training_data():
    like = JsonlSource(paths="x", columns={"text": "doc.body"})
    wanted = Wanted(("prompt",), like=like, trained_as={"prompt": "text"})
    for line in ('{"doc": {"body": "x"}, "prompt": 1}', '{"prompt": "x", "text": "z"}', '{"text": "x"}'):
        assert [own.row for own in records(wanted, line)] == [{"prompt": "x"}]


def inputs_of(path, columns=("text",), like=None, optional=()):
    wanted = Wanted(columns, optional, like)
    return list(input_records(File(path, path.name), wanted, "table"))


def test_a_table_without_a_header_is_read_like_that_of_the_recipe(tmp_path):
    (tmp_path / "in.tsv").write_text("good\ta\tx\nbad\tb\ty\n")
    like = TsvSource(paths="x", columns={"label": 0, "text": -2})
    first, second = inputs_of(tmp_path / "in.tsv", like=like)
    assert first.fields == {"label": "good", "text": "a", "2": "x"}
    assert second.row["text"] == "b"


@pytest.mark.parametrize(
    ("record", "text", "own"),
    [
        ("1,a", "a", {"id": "1", "text": "a"}),
        ("1,2,a", "a", {"id": "1", "text": "2", "x": "a"}),
        ("1,2,3,", "", {"id": "1", "text": "2", "x": "3", "3": ""}),
    ],
)
def test_numbers_from_the_end_count_the_fields_of_the_record(tmp_path, record, text, own):
    (tmp_path / "in.csv").write_text(f"id,text,x\n{record}\n")
    like = TsvSource(paths="x", columns={"body": -1}, separator=",", header=True)
    (read,) = inputs_of(tmp_path / "in.csv", ("body",), like)
    assert (read.row["body"], read.fields) == (text, own)


def test_blank_fields_after_those_of_the_header_are_dropped(tmp_path):
    (tmp_path / "in.csv").write_text("id,text\n1,a,,\n")
    (own,) = inputs_of(tmp_path / "in.csv")
    assert own.fields == {"id": "1", "text": "a"}


def test_repeated_names_are_kept_apart_as_pandas_does(tmp_path):
    (tmp_path / "in.csv").write_text("text,x,x,x.1\na,1,2,3\n")
    (own,) = inputs_of(tmp_path / "in.csv")
    assert list(own.fields.values()) == ["a", "1", "2", "3"]


def test_an_optional_column_is_read_if_the_header_has_it(tmp_path):
    (tmp_path / "in.csv").write_text("pair,text\nb,a\n")
    (own,) = inputs_of(tmp_path / "in.csv", optional=("pair",))
    assert own.row == {"text": "a", "pair": "b"}


CONLL_LIKE = ConllSource(paths="x", columns={"words": 0, "tags": -1})
CONLL_LINES = "Anna NE B-NP B-PER\nruns V B-VP O\n\nOslo NE B-NP B-LOC\n"


@pytest.mark.parametrize("like", [CONLL_LIKE, None])
@pytest.mark.parametrize(
    ("names", "tags"),
    [({}, ["B-PER", "O"]), ({"tags": "1"}, ["NE", "V"]), ({"tags": "-2"}, ["B-NP", "B-VP"])],
)
def test_the_number_that_a_user_names_is_the_field_of_conll(tmp_path, like, names, tags):
    path = tmp_path / "a.conll"
    path.write_text(CONLL_LINES)
    for source in (
        user_table(path, ("words", "tags"), like, names),
        user_source([path], ("words", "tags"), like, names),
    ):
        first, _ = next(source.open(tmp_path))
        assert first == {"words": ["Anna", "runs"], "tags": tags}


def test_a_name_for_a_field_without_name_is_refused(tmp_path):
    path, squad, folder = tmp_path / "a.conll", tmp_path / "a.json", tmp_path / "images"
    path.write_text(CONLL_LINES)
    squad.write_text('{"data": []}')
    folder.mkdir()
    with pytest.raises(DataError, match=r"^a\.conll: tags: expected the number .* got 'ner'; count from 0"):
        user_table(path, ("words", "tags"), CONLL_LIKE, {"tags": "ner"})
    with pytest.raises(DataError, match=r"^a\.json: columns: expected none, since SQuAD .* got 'question'"):
        user_table(squad, ("question",), SquadSource(paths="x"), {"question": "q"})
    with pytest.raises(DataError, match=r"^images: columns: expected none, since a folder .* got 'label'"):
        user_source([folder], ("image", "label"), FolderSource(path="x"), {"label": "y"})


def test_conll_u_is_read_by_its_name_if_the_recipe_counts_other_fields(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text("# id 1\n1\tAnna\tAnna\tPROPN" + "\t_" * 6 + "\n")
    for like in (CONLL_LIKE, None):
        source = user_table(path, ("words", "tags"), like)
        assert [row for row, _ in source.open(tmp_path)] == [{"words": ["Anna"], "tags": ["PROPN"]}]


def test_a_header_with_some_of_the_columns_is_a_header(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,review\n1,good\n")
    like = TsvSource(paths="x", columns={"text": "review", "label": "stars"}, header=True)
    with pytest.raises(
        DataError,
        match=r"has the columns id, review, but the run also reads stars; to name its columns: --column",
    ):
        user_table(path, ("text", "label"), like)


def test_words_without_tags_are_conll_if_the_file_says_so(tmp_path):
    path = tmp_path / "new.txt"
    path.write_text("-DOCSTART-\n\n# id 1\nAnna\nruns\n\n# id 2\nOslo\n\n")
    file, wanted = File(path, "new.txt"), Wanted(("words",), like=CONLL_LIKE)
    rows = [record.row for record in input_records(file, wanted, form_of(file, wanted))]
    assert rows == [{"words": ["Anna", "runs"]}, {"words": ["Oslo"]}]


TRAINED = Wanted(("a", "b"), like=JsonlSource(paths="x", columns={"a": "first", "b": "second"}))


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"a": "x"}, "no field 'b'; an input has a, b"),
        ({"first": "x"}, "no field 'second'; an input has first, second"),
        ({}, "no field 'a'; an input has a, b"),
        ({"aa": "x", "b": "y"}, "no field 'a'; an input has a, b"),
    ],
)
def test_a_value_without_a_field_is_told_the_names_that_it_began_with(value, error):
    """Those of the task, if it has none; names that are alike are not swapped."""
    values = ValueList.of("inputs", [f"{json.dumps(value)}\n".encode()])
    with pytest.raises(DataError, match=re.escape(f"inputs[0]: {error}")):
        [*input_records(values, TRAINED, "jsonl")]
