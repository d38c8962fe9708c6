"""The choices of ``evaluate`` match the library; what it writes to which stream."""

import json
from typing import get_args, get_type_hints

import pytest
from typer.testing import CliRunner

from heedful.cli.evaluate import AlignmentOptions, Sources
from heedful.cli.main import app
from heedful.errors import RequestError
from heedful.explain.alignment.word_alignment import STEPS, Direction
from heedful.objectives.guided import DecoderStep


def test_links_and_steps_match_the_library():
    offered = get_type_hints(AlignmentOptions)
    assert offered["links"] == Direction
    assert offered["step"] == DecoderStep | None
    assert get_args(DecoderStep) == STEPS


def test_files_may_be_given_in_every_way_but_one(tmp_path):
    files = [tmp_path / "a", tmp_path / "b"]
    ways = [Sources(file=files), Sources(data=files), Sources(data=files[:1], file=files[1:])]
    assert [way.files() for way in ways] == [files] * 3
    for name in ("text", "table", "folder"):
        assert Sources(**{name: files}).files() == files
        with pytest.raises(RequestError, match=f"FILE and --{name}: expected only one of these"):
            Sources(data=files[:1], **{name: files}).files()


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
        assert record["output"] == max(probabilities, key=probabilities.get)


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
    matrix = start + 3 + len(["", "heads"])
    assert [list(map(int, line[1:])) for line in lines[matrix : matrix + 2]] == details["confusion"]


def test_tables_of_probabilities_have_the_numbers_of_json(evaluate):
    text = evaluate("--accuracy", "0.5").stdout
    scores = {
        score["name"]: score["details"]
        for score in json.loads(evaluate("--json").stdout)["splits"][0]["scores"]
    }
    assert "The probabilities are not calibrated" in text
    for entry in scores["calibration error"]["bins"]:
        assert f"{entry['confidence']:.3f}     {entry['accuracy']:.3f}" in text
    whole = scores["AURC"]["coverage"][-1]
    assert f"100.0%      {whole['threshold']:.3f}     {whole['accuracy']:.3f}" in text
    assert ("accuracy 0.5: answers with a probability of at least" in text) == any(
        point["accuracy"] >= 0.5 for point in scores["AURC"]["coverage"]
    )
