"""``heedful lab`` as a person meets it."""

import json
from pathlib import Path

import pytest
import typer
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from heedful.cli import lab
from heedful.errors import RequestError, WorkError
from heedful.lab import registry
from heedful.lab.claims import Case, Claim
from heedful.lab.experiment import Experiment, Measured, Series
from heedful.lab.registry import experiments, headings

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "lab.schema.json"


def invoke(*arguments):
    app = typer.Typer()
    app.callback()(lambda: None)  # with it, one command alone keeps its name
    app.command("lab")(lab.lab)
    return CliRunner().invoke(app, ["lab", *map(str, arguments)])


def answer(*arguments):
    outcome = invoke(*arguments, "--json")
    assert outcome.exception is None, outcome.exception
    assert len(outcome.stdout.splitlines()) == 1
    value = json.loads(outcome.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(value)
    return value["experiments"]


@pytest.fixture
def two(monkeypatch):
    """Two experiments and no more; the second comes out wrongly when it is told so."""
    wanted = {"sizes": []}

    def measure(size, verdict):
        wanted["sizes"].append(size)
        return Series({"verdict": wanted.get("instead", verdict), "a": Measured("a", 1.5)})

    def made(name):
        verdicts = (Case(**{"verdict": "holds", "if": "verdict == 'holds'"}), Case(verdict="is wrong"))
        texts = {"claim": "A.", "source": "S0", "control": "B.", "statement": "So it is."}
        claim = Claim(title=name.title(), items=(1,), verdicts=verdicts, **texts)
        return Experiment(name, claim, measure, ({"verdict": "holds"}, {"verdict": "is wrong"}))

    known = {name: made(name) for name in ("one", "two")}
    monkeypatch.setattr(registry, "experiments", lambda: known)
    return wanted


def test_without_a_name_they_are_listed():
    outcome = invoke()
    assert outcome.exit_code == 0
    listed = [line for line in outcome.stdout.splitlines() if line.startswith("  ")]
    assert [line.split()[0] for line in listed] == list(experiments())
    others = [line for line in outcome.stdout.splitlines() if line and line not in listed]
    assert others == [each.heading for each in headings()]


def test_the_list_as_json():
    listed = answer()
    assert [each["name"] for each in listed] == list(experiments())
    assert not any(each["results"] for each in listed)


def test_one_experiment_is_told_whole():
    outcome = invoke("wavelengths", "--short")
    assert outcome.exit_code == 0
    assert "verdict   is wrong" in outcome.stdout
    assert "60,611" in outcome.stdout
    assert "(control)" not in outcome.stdout


def test_with_its_control():
    outcome = invoke("heads-are-free", "--short", "--control")
    assert outcome.exit_code == 0
    assert "verdict   holds" in outcome.stdout
    assert "heads-are-free (control)" in outcome.stdout
    assert "verdict   is wrong" in outcome.stdout
    assert "8,388,608" in outcome.stdout


def test_json_of_one():
    (value,) = answer("one-hot-distances", "--short", "--control")
    assert [each["verdict"] for each in value["results"]] == ["holds", "is wrong"]
    assert value["results"][0]["measured"][0]["value"] == pytest.approx(2**0.5)


@pytest.mark.slow
def test_pages_of_two(tmp_path):
    outcome = invoke("one-hot-distances", "first-position", "--short", "--out", tmp_path / "site")
    assert outcome.exit_code == 0, outcome.exception
    names = {path.name for path in (tmp_path / "site").iterdir()}
    assert {"index.html", "one-hot-distances.html", "first-position.html", "lab.json"} <= names
    assert {"first-position.png", "first-position.control.svg"} <= names
    assert "index.html" in outcome.stderr


def test_all_are_made_in_the_long_form_with_a_line_for_each(two):
    outcome = invoke("--all")
    assert outcome.exit_code == 0
    assert [line.partition(" (")[0] for line in outcome.stdout.splitlines()] == ["one: holds", "two: holds"]
    assert two["sizes"] == ["long", "long"]


def test_the_short_form(two):
    assert invoke("two", "--short").exit_code == 0
    assert two["sizes"] == ["short"]


def test_one_named_twice_is_made_once(two):
    assert len(answer("one", "one")) == 1
    assert two["sizes"] == ["long"]


def test_all_as_pages(two, tmp_path):
    assert invoke("--all", "--out", tmp_path).exit_code == 0
    assert {path.name for path in tmp_path.glob("*.html")} == {
        "index.html",
        "errors.html",
        "one.html",
        "two.html",
    }
    assert two["sizes"] == ["long"] * 4


def test_pages_of_others_are_never_replaced_and_nothing_is_made_first(two, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("my own page")
    (tmp_path / "file").write_text("a file")
    for name, message in [("mine", "'index.html'"), ("file", "is a file"), ("file/below", "is a file")]:
        outcome = invoke("--all", "--out", tmp_path / name, "--json")
        assert isinstance(outcome.exception, RequestError), outcome.exception
        assert message in str(outcome.exception)
        assert str(tmp_path / name) in str(outcome.exception)
    assert two["sizes"] == []
    assert (tmp_path / "mine" / "index.html").read_text() == "my own page"
    assert len(list((tmp_path / "mine").iterdir())) == 1


def test_a_gallery_is_written_anew_over_its_own(two, tmp_path):
    for _ in range(2):
        assert invoke("one", "--out", tmp_path / "site").exit_code == 0
    (tmp_path / "site" / "lab.json").write_text('{"name": "of another program"}')
    assert isinstance(invoke("one", "--out", tmp_path / "site").exception, RequestError)


@pytest.mark.parametrize("options", [[], ["--json"], ["--control"]])
def test_another_verdict_than_expected_is_a_failure(two, options):
    two["instead"] = "is wrong"
    outcome = invoke("one", *options)
    assert isinstance(outcome.exception, WorkError)
    assert outcome.exception.exit_status == 1
    assert str(outcome.exception).endswith("one")
    assert "is wrong" in outcome.stdout


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["heads-are-fre"], "heads-are-free"),
        (["wavelengths", "--all"], "--all"),
        (["--short"], "--all"),
        (["--out", "site"], "--all"),
        (["--control"], "--all"),
    ],
)
def test_a_wrong_request_says_what_to_do(arguments, message):
    outcome = invoke(*arguments)
    assert isinstance(outcome.exception, RequestError)
    assert outcome.exception.exit_status == 2
    assert message in str(outcome.exception)
