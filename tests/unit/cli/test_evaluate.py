"""The choices of ``evaluate`` match the library; what it writes to which stream."""

import json
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest
from typer.testing import CliRunner

from heedful.cli.evaluate import AlignmentOptions, Sources
from heedful.cli.main import app
from heedful.errors import RequestError
from heedful.explain.alignment.word_alignment import STEPS, Direction
from heedful.objectives.guided import DecoderStep
from heedful.runs.evaluate import as_options
from heedful.tasks.registry import TASKS
from heedful.tasks.task_info import OwnData


def test_links_and_steps_match_the_library():
    offered = get_type_hints(AlignmentOptions)
    assert offered["links"] == Direction
    assert offered["step"] == DecoderStep | None
    assert get_args(DecoderStep) == STEPS


def test_every_form_of_own_data_is_an_option_and_has_a_kind():
    forms = get_args(OwnData)
    assert set(forms) <= {each.name for each in fields(Sources)}
    assert set(forms) == {form for task in TASKS.values() for form in task.info.data_forms}


@pytest.mark.parametrize("form", get_args(OwnData))
def test_a_data_option_is_named_as_on_the_command_line(form):
    assert as_options([form]).split()[0] == f"--{form}"


@pytest.fixture
def evaluate(letters, tmp_path):
    """Return ``evaluate(*options)`` of a classifier on a table of two rows."""
    (tmp_path / "rows.csv").write_text("text,label\na,a\nb b,a\n")
    command = ["evaluate", str(letters), "--table", str(tmp_path / "rows.csv"), "--device", "cpu"]
    return lambda *options: CliRunner().invoke(app, [*command, *options], catch_exceptions=False)


def test_records_go_to_standard_output_and_scores_to_standard_error(evaluate, tmp_path):
    scores = evaluate("--output", str(tmp_path / "rows.jsonl")).stdout
    done = evaluate("--output", "-")
    assert done.stdout == (tmp_path / "rows.jsonl").read_text("utf-8")
    assert scores in done.stderr
    for line in done.stdout.splitlines():
        record = json.loads(line)
        probabilities = record["probabilities"]
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-6)
        assert record["prediction"] == max(probabilities, key=probabilities.get)


def test_records_and_json_do_not_share_standard_output(evaluate):
    with pytest.raises(RequestError, match="--output - is not supported with --json"):
        evaluate("--output", "-", "--json")


def test_scores_of_each_class_are_printed_below_the_others(evaluate):
    lines = [line.split() for line in evaluate().stdout.splitlines()]
    (details,) = (
        score["details"]
        for score in json.loads(evaluate("--json").stdout)["splits"][0]["scores"]
        if score["name"] == "accuracy"
    )
    start = lines.index(["class", "precision", "recall", "F1", "count"])
    assert [line[-1] for line in lines[start + 1 : start + 3]] == list(map(str, details["support"]))
    assert [list(map(int, line[1:])) for line in lines[-2:]] == details["confusion"]
