"""Constraints on outputs in Python, in JSON lines and as options of the command."""

import json
import re

import pytest
from typer.testing import CliRunner

import heedful
from heedful.cli.main import app
from heedful.errors import DataError, RequestError
from heedful.tasks.generation.output_constraints import OutputConstraints, Terminology

ROWS = [{"source": "a b c", "target": "x y z"}, {"source": "c the house", "target": "z w"}] * 3
RECIPE = {
    "task": {"kind": "translation"},
    "tokenizer": {"subwords": {"kind": "word"}},
    "model": {"kind": "transformer", "d_model": 6, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}}},
}
LABELS = {
    "task": {"kind": "classification"},
    "tokenizer": {"subwords": {"kind": "word"}},
    "model": {"kind": "encoder", "d_model": 6, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}}},
}
LABEL_ROWS = [{"text": "a b", "label": "x"}, {"text": "b c", "label": "y"}]


@pytest.fixture(scope="module")
def folder(make_run, tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("translation") / "run", RECIPE, ROWS)


@pytest.fixture(scope="module")
def run(folder):
    return heedful.load(folder, device="cpu")


def predict(*arguments, stdin=None):
    return CliRunner().invoke(app, ["predict", *map(str, arguments)], input=stdin)


def test_phrases_for_all_inputs_and_for_each(run):
    for answer in run.predict(["a b", "c"], must=["w", "y z"], must_not=["x"]):
        assert "w" in answer.text
        assert "y z" in answer.text
        assert "x" not in answer.text
    first, second, third = run.predict(["a", "a", "a"], must=[["w"], None, []], target_prefix=["", "y", None])
    assert "w" in first.text
    assert second.text.startswith("y")
    assert third.text == run.predict(["a"])[0].text
    assert run.predict(["a"], must="w w")[0].text.find("w w") >= 0


def test_streams_have_prefixes_and_blocked_phrases(run):
    pieces = [*run.stream("a b", beam=1, target_prefix="w y", must_not=["x", "z"])]
    assert "".join(pieces).startswith("w y")
    assert not {*"xz"} & {*"".join(pieces)}


def test_an_input_whose_constraints_contradict_each_other_has_an_error(run):
    wrong, right = run.predict(["a", "a"], must=[["w y"], ["w"]], must_not=["y"])
    assert wrong.error == "must and must_not contradict each other: 'w y' contains 'y'"
    assert right.error is None
    assert run.predict(["a"], must=["nonsense"])[0].error == (
        "must: 'nonsense' has characters or words that the run's vocabulary cannot write"
    )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"must": 3}, "must: expected texts, or a list"),
        ({"must": [["w"]]}, r"must: expected 2 entries, one for each input, got 1"),
        ({"must": [["w"], [3]]}, r"inputs\[1\]: must: expected a list of texts"),
        ({"must_not": [" "]}, r"inputs\[0\]: must_not: texts must not be empty"),
        ({"target_prefix": ["a", 1]}, r"inputs\[1\]: target_prefix: expected a text, got"),
        ({"target_prefix": "\ud800"}, r"inputs\[0\]: target_prefix: not valid Unicode"),
        (
            {"must": ["w"], "decoding": {"kind": "greedy"}},
            "must: requires a beam search, got",
        ),
        ({"terminology": ["a"]}, "terminology: expected a mapping of terms or the path of a file"),
        ({"terminology": {"a": ""}}, "terminology: expected texts that are not empty, got ''"),
    ],
)
def test_wrong_constraints_are_refused(run, options, message):
    with pytest.raises(RequestError, match=message):
        run.predict(["a", "b"], **options)


def test_other_tasks_have_no_constraints(make_run, tmp_path):
    folder = make_run(tmp_path / "run", LABELS, LABEL_ROWS)
    run = heedful.load(folder)
    with pytest.raises(RequestError, match="must: not supported for task classification, which generates no"):
        run.predict(["a"], must=["x"])
    done = predict(folder, "--must-not", "x", stdin="a\n")
    assert "--must-not: not supported for task classification" in str(done.exception)
    record = json.dumps({"text": "a", "must": ["x"]})
    assert json.loads(predict(folder, "--jsonl", stdin=record).stdout)["input"]["must"] == ["x"]


# Terminology ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, found",
    [
        ("the house", True),
        ("house!", True),
        ("(house)", True),
        ("houses", False),
        ("farmhouse house", True),
        ("House", False),
        ("", False),
        ("house\u0301", False),
    ],
)
def test_source_terms_are_words(source, found):
    terms = Terminology.of({"house": "Haus"})
    assert terms.constraints(source) == OutputConstraints(must=("Haus",) if found else ())


def test_terms_in_scripts_without_spaces_are_found_anywhere():
    assert Terminology.of({"漢字": "kanji"}).constraints("この漢字は").must == ("kanji",)
    assert Terminology.of({"C++": "C++"}).constraints("in C++.").must == ("C++",)


def test_a_terminology_decides_what_the_outputs_have(run, folder, tmp_path):
    file = tmp_path / "terms.tsv"
    file.write_text("\ufeffhouse\tw y\n\nc \t z\n", encoding="utf-8")
    for terminology in (file, str(file), {"house": "w y", "c": "z"}):
        one, other, neither = run.predict(["the house", "c", "a"], terminology=terminology)
        assert "w y" in one.text
        assert "z" in other.text
        assert neither.text == run.predict(["a"])[0].text
    done = predict(folder, "--terminology", file, stdin="the house\nc\n")
    first, second = done.stdout.splitlines()
    assert "w y" in first
    assert "z" in second


@pytest.mark.parametrize("line", ["a", "a\tb\tc", "\tb", "a\t"])
def test_a_line_that_is_no_pair_of_terms_is_named(tmp_path, line):
    file = tmp_path / "terms.tsv"
    file.write_text(f"a\tb\n{line}\n")
    with pytest.raises(DataError, match=r"terms.tsv:2: expected a source term, a tab and a target term"):
        Terminology.read(file)
    with pytest.raises(DataError, match="cannot read the terminology"):
        Terminology.read(tmp_path / "none.tsv")


# The command -----------------------------------------------------------------------------------------------


def test_options_concern_all_inputs(folder):
    done = predict(
        folder, "--must", "w", "--must", "y", "--must-not", "x", "--target-prefix", "z", stdin="a\nb\n"
    )
    for line in done.stdout.splitlines():
        assert {"w", "y"} <= {*line.split()}
        assert "x" not in line
        assert line.startswith("z")


def test_fields_of_json_lines_concern_their_input_and_stay_in_the_answer(folder):
    records = [
        {"source": "a", "must": ["w"], "id": 1},
        {"source": "a", "must": 3},
        {"source": "a", "target_prefix": "y y", "must_not": "x"},
        {"source": "a"},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    done = predict(folder, "--jsonl", "--must-not", "z", stdin=lines)
    first, second, third, fourth = map(json.loads, done.stdout.splitlines())
    assert "w" in first["output"]
    assert first["input"] == records[0]
    assert (
        second["error"].endswith("must: expected a list of texts, got a number") or "got" in second["error"]
    )
    assert third["output"].startswith("y y")
    assert all("z" not in answer["output"] for answer in (first, third, fourth))
    assert str(done.exception) == "1 of 4 inputs could not be answered"


def test_an_input_without_a_possible_output_does_not_stop_the_others(folder):
    done = predict(folder, "--target-prefix", "nonsense", stdin="a\nb\n")
    assert done.exit_code == 1
    assert done.stdout == "\n\n"
    assert "target_prefix: 'nonsense' has characters or words" in done.stderr


def test_a_streamed_output_holds_its_constraints(folder):
    done = predict(folder, "--stream", "--beam", "1", "--target-prefix", "w", "--must-not", "x", stdin="a\n")
    assert done.stdout.startswith("w")
    assert "x" not in done.stdout


# Grammars ------------------------------------------------------------------------------------------------

COMPLETING = {
    "task": {"kind": "language-modelling"},
    "data": {part: {"kind": "text", "paths": "x"} for part in ("train", "valid")},
    "tokenizer": {"subwords": {"kind": "character", "byte_fallback": True}},
    "model": {
        "kind": "language-model",
        "d_model": 6,
        "n_layers": 1,
        "context": 9,
        "layer": {"mixer": {"n_heads": 2}},
    },
    "decoding": {"kind": "beam"},
}
SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def language_model(make_run, tmp_path_factory):
    rows = [{"text": "the cat sat on 12 mats"}] * 3
    return make_run(tmp_path_factory.mktemp("lm") / "run", COMPLETING, rows)


def test_completions_match_a_regular_expression(language_model):
    run = heedful.load(language_model, device="cpu")
    for answer in run.predict(["the cat", ""], regex="(cat|mat) [0-9]{2}", must_not=["cat"]):
        assert re.fullmatch("mat [0-9]{2}", answer.text)
        assert answer.finished
    assert "".join(run.stream("the", beam=1, regex="m(a|e)t")) in ("mat", "met")
    done = predict(language_model, "--regex", "s[aei]t", stdin="the cat\n")
    assert re.fullmatch("s[aei]t\n", done.stdout)


def test_completions_follow_a_schema(language_model, tmp_path):
    run, file = heedful.load(language_model, device="cpu"), tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    for schema in (SCHEMA, file, str(file)):
        (answer,) = run.predict(["the cat"], json_schema=schema)
        assert json.loads(answer.text) in ({"n": 1}, {"n": 2})
    done = predict(language_model, "--json-schema", file, stdin="the cat\n")
    assert json.loads(done.stdout) in ({"n": 1}, {"n": 2})


@pytest.mark.parametrize(
    "options, message",
    [
        ({"regex": "(a"}, "regex: .*unclosed group"),
        ({"regex": 3}, "regex: expected a text, got 3"),
        ({"regex": "a", "json_schema": {}}, "regex and json_schema exclude each other"),
        ({"json_schema": []}, "json_schema: expected a JSON schema, which is an object, got"),
        ({"json_schema": {"type": {1}}}, "json_schema: not JSON"),
        ({"json_schema": {"type": "x"}}, "json_schema: .*Invalid type"),
        (
            {"terminology": {"a": "b"}},
            "terminology: not supported for task .*, which has no source",
        ),
    ],
)
def test_wrong_grammars_are_refused(language_model, options, message):
    run = heedful.load(language_model, device="cpu")
    with pytest.raises(RequestError, match=message):
        run.predict(["the"], **options)


def test_a_schema_that_cannot_be_read_is_named(language_model, tmp_path):
    (tmp_path / "bad.json").write_text("{")
    run = heedful.load(language_model, device="cpu")
    for name in ("bad.json", "none.json"):
        with pytest.raises(DataError, match=f"{name}: cannot read the JSON schema"):
            run.predict(["the"], json_schema=tmp_path / name)


def test_translations_have_no_grammar(run, folder):
    with pytest.raises(RequestError, match="regex: not supported for task translation"):
        run.predict(["a"], regex="a")
    message = "--json-schema: not supported for task translation, only for language-modelling"
    assert message in str(predict(folder, "--json-schema", "x", stdin="a").exception)


def misspellings(word):
    """The word with a letter left out, doubled or changed."""
    for i in range(len(word)):
        yield from (word[:i] + word[i + 1 :], word[:i] + word[i] + word[i:], word[:i] + "#" + word[i + 1 :])


@pytest.mark.parametrize("key", ["must_not", "target_prefix"])
def test_a_misspelt_key_is_an_error_of_its_line(folder, key):
    value = {"must_not": ["x"], "target_prefix": "y"}[key]
    wrong = sorted({*misspellings(key)})
    records = [{"source": "a", name: value} for name in [*wrong, key, "id", "text"]]
    done = predict(folder, "--jsonl", stdin="".join(json.dumps(record) + "\n" for record in records))
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 1
    for i, name in enumerate(wrong):
        assert found[i]["error"] == (
            f"standard input:{i + 1}: unknown key {name!r} (did you mean {key!r}?); rename it"
        )
    assert [record.get("error") for record in found[len(wrong) :]] == [None] * 3


def test_a_key_beside_the_right_one_is_the_users_own(folder):
    record = {"source": "a", "must": ["y"], "musts": 3}
    done = predict(folder, "--jsonl", stdin=json.dumps(record) + "\n")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["input"] == record
