"""The command and Python give equal answers, or both refuse: every task, every option of predictions."""

import json

import pytest
from tiny_runs import TASKS, make
from typer.testing import CliRunner

import heedful
from heedful.cli.main import app
from heedful.errors import HeedfulError
from heedful.runs.loading import RunOptions
from heedful.runs.output_constraints import ConstraintOptions

TEXTS = ["a b c", "c", "b b a"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}

# The arguments of Python, and those of the command.
CASES = {
    "nothing": ({}, []),
    "beam": ({"beam": 2}, ["--beam", 2]),
    "n_best": ({"n_best": 2}, ["--n-best", 2]),
    "beam and n_best": ({"beam": 3, "n_best": 3}, ["--beam", 3, "--n-best", 3]),
    "decoding": ({"decoding": {"kind": "greedy"}}, ["--decoding", "kind=greedy"]),
    "a sample": (
        {"decoding": {"kind": "sample", "seed": 3, "temperature": 0.7}},
        ["--decoding", "kind=sample", "--decoding", "seed=3", "--temperature", 0.7],
    ),
    "alignment": ({"alignment": True}, ["--alignment"]),
    "alignment_head": (
        {"alignment": True, "alignment_head": (0, 0)},
        ["--alignment", "--alignment-head", "1.1"],
    ),
    "attention": ({"attention": True}, ["--attention"]),
    "max_new_tokens": ({"max_new_tokens": 4}, ["--max-new-tokens", 4]),
    "stop": ({"stop": ["b", "ca"]}, ["--stop", "b", "--stop", "ca"]),
    "prefix": ({"prefix": "a b"}, ["--prefix", "@a b"]),
    "regex": ({"regex": "[ab ]+", "max_new_tokens": 6}, ["--regex", "[ab ]+", "--max-new-tokens", 6]),
    "json_schema": ({"json_schema": SCHEMA}, ["--json-schema", "@" + json.dumps(SCHEMA)]),
    "gap": ({"gap": "_"}, ["--gap", "_"]),
    "words": ({"words": "split"}, ["--words", "split"]),
    "threshold": ({"threshold": 0.5}, ["--threshold", 0.5]),
    "threshold and otherwise": (
        {"threshold": 0.99, "otherwise": "?"},
        ["--threshold", 0.99, "--otherwise", "?"],
    ),
    "otherwise": ({"otherwise": "?"}, ["--otherwise", "?"]),
    "must": ({"must": ["a"]}, ["--must", "a"]),
    "must_not": ({"must_not": ["a"]}, ["--must-not", "a"]),
    "target_prefix": ({"target_prefix": "b"}, ["--target-prefix", "b"]),
    "terminology": ({"terminology": {"a": "b"}}, ["--terminology", "@a\tb\n"]),
    "precision": ({"precision": "fp32"}, ["--precision", "fp32"]),
}


def test_every_option_is_among_them():
    used = {name for python, _ in CASES.values() for name in python}
    assert used >= {*RunOptions.__annotations__, *ConstraintOptions.__annotations__}


@pytest.fixture(scope="module", params=TASKS)
def run(request, tmp_path_factory):
    """The kind of a task, and a run of it."""
    make(request.param, folder := tmp_path_factory.mktemp("runs") / "it")
    return request.param, folder / "finished"


@pytest.fixture(scope="module")
def loaded(run):
    return heedful.load(run[1], device="cpu")


def inputs_of(kind, folder):
    if kind == "image-classification":
        return [str(path) for path in sorted(folder.parent.glob("*.png"))[:3]]
    return TEXTS


def by_command(kind, folder, arguments, tmp_path):
    """The lines of JSON that the command prints, or the reason why it refuses."""
    given = []
    for i, argument in enumerate(map(str, arguments)):
        if argument.startswith("@"):  # the content of a file
            (file := tmp_path / f"{i}.txt").write_text(argument[1:], "utf-8")
            argument = str(file)
        given.append(argument)
    inputs = inputs_of(kind, folder)
    (tmp_path / "in.txt").write_text("".join(f"{value}\n" for value in inputs), "utf-8")
    command = ["predict", str(folder), str(tmp_path / "in.txt"), "--to", "jsonl", "--device", "cpu", *given]
    if kind == "image-classification":
        command[2:3] = inputs
    outcome = CliRunner().invoke(app, command)
    if outcome.exit_code == 2 or isinstance(outcome.exception, HeedfulError):
        return outcome.stderr or str(outcome.exception)
    assert outcome.exit_code == 0, outcome.output
    return [json.loads(line) for line in outcome.stdout.splitlines()]


def by_python(kind, folder, run, options):
    try:
        predictions = run.predict(inputs_of(kind, folder), **options)
    except HeedfulError as error:
        return str(error)
    return [json.loads(json.dumps(prediction.to_dict())) for prediction in predictions]


@pytest.mark.parametrize("case", CASES)
def test_answers_are_equal_or_refused(run, loaded, case, tmp_path):
    kind, folder = run
    options, arguments = CASES[case]
    python, command = by_python(kind, folder, loaded, options), by_command(kind, folder, arguments, tmp_path)
    if isinstance(python, str):
        assert isinstance(command, str), (python, command)
        assert case not in ("nothing", "precision")
        return
    assert not isinstance(command, str), command
    for row in command:
        row.pop("input", None)
    assert command == python
