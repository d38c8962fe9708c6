"""Which training data replace words, and what an explanation is without them."""

import json
import re

import pytest
from typer.testing import CliRunner

from heedful.cli.main import app
from heedful.errors import DataError, RequestError, WorkError
from heedful.explain.attribution import replacements
from heedful.explain.capture import explain_input
from heedful.explain.json_format import json_pieces

PATH = "/of/this/machine/rows.jsonl"
REASON = "which cannot be read here"


@pytest.fixture(params=[DataError, WorkError, OSError])
def missing(monkeypatch, request):
    """No run can read its training data."""

    def read(run):
        raise request.param(f"{PATH}: no such file")

    replacements._READ.clear()
    monkeypatch.setattr(replacements, "_training_inputs", read)


@pytest.mark.parametrize("name", ["classification", "tagging", "translation", "images"])
@pytest.mark.usefixtures("missing")
def test_only_the_view_that_needs_training_data_is_missing(explained, name):
    run, given = explained(name)
    expected = explain_input(run, given, views=["losses", "occlusion"])
    found = explain_input(run, given, views=["replacement", "losses", "occlusion"])
    assert found.views == expected.views
    assert list(found.unavailable) == ["replacement"]
    assert REASON in found.unavailable["replacement"]
    with pytest.raises(RequestError, match=f"replacement is not available: .*{REASON}"):
        found.word_scores("replacement")
    assert found.unavailable["replacement"] in found.page()
    text = "".join(json_pieces(found))
    assert json.loads(text)["unavailable"] == found.unavailable
    assert PATH not in found.page() + text


@pytest.mark.usefixtures("missing")
def test_a_view_that_was_asked_for_alone_is_an_error(explained):
    run, given = explained("classification")
    with pytest.raises(RequestError, match=REASON) as raised:
        explain_input(run, given, views=["replacement"])
    assert PATH not in str(raised.value)


@pytest.mark.usefixtures("missing")
def test_the_command_names_the_view_that_is_missing(explained, tmp_path):
    run, given = explained("classification")
    arguments = ["explain", str(run.folder.path), given, "--device", "cpu", "--view", "replacement"]
    outcome = CliRunner().invoke(app, arguments)
    assert isinstance(outcome.exception, RequestError)
    outcome = CliRunner().invoke(app, [*arguments, "--view", "occlusion"])
    assert outcome.exit_code == 0
    assert re.search(f"view replacement is not available: .*{REASON}", outcome.stderr)
    assert "Fall of the log-odds" in outcome.stdout
    assert PATH not in outcome.stderr
    outcome = CliRunner().invoke(app, [*arguments, "--view", "occlusion", "--out", str(tmp_path / "w.csv")])
    assert isinstance(outcome.exception, RequestError)
    assert not (tmp_path / "w.csv").exists()


def test_what_is_missing_is_in_the_schema(explained, published):
    run, given = explained("classification")
    found = explain_input(run, given, views=["all"])
    assert found.unavailable
    published("explanation", json.loads("".join(json_pieces(found))))


def test_of_long_texts_fewer_are_read_evenly_spaced(monkeypatch):
    monkeypatch.setattr(replacements, "CHARACTERS", 1000)
    short = [f"{n} words" for n in range(120)]
    assert replacements.bounded_texts(short) == short
    long = [f"{n:03}" + " words" * 40 for n in range(120)]
    numbers = [int(text[:3]) for text in replacements.bounded_texts(long)]
    assert len(numbers) >= 3
    assert numbers == [*range(0, 120, numbers[1])]
    assert sum(len(long[n]) for n in numbers) <= 1000
    assert replacements.bounded_texts(["x" * 5000, "y"]) == ["x" * 1000]
    lists = [["word"] * 50] * 20
    assert len(replacements.bounded_texts(lists)) == 5


@pytest.mark.parametrize(("n", "most", "expected"), [(0, 3, 0), (3, 3, 3), (4, 3, 2), (7, 0, 1)])
def test_spaced_inputs(n, most, expected):
    assert len(replacements.spaced(list(range(n)), most)) == expected
