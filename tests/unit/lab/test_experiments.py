"""Every experiment, in its short form: its verdict, that of its control, its picture, its JSON."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from jsonschema import Draft202012Validator

from heedful.errors import RequestError
from heedful.explain.picture import save
from heedful.lab import registry
from heedful.lab.registry import experiment, experiments
from heedful.lab.result import as_dict, perform

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "lab.schema.json"
NAMES = list(experiments())


@cache
def made(name, control=False):
    return perform(experiment(name), "short", control=control)


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_is_the_one_that_must_come_out(name):
    result = made(name)
    assert result.outcome.verdict == experiment(name).expected[0], result.to_dict()
    assert result.as_expected


@pytest.mark.parametrize("name", NAMES)
def test_under_its_control_another_verdict_comes_out(name):
    result = made(name, control=True)
    assert result.outcome.verdict == experiment(name).expected[1], result.to_dict()
    assert result.outcome.verdict != made(name).outcome.verdict


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_there_is_a_picture_and_always_the_same(name, control, tmp_path):
    draw = made(name, control).outcome.draw
    files = [tmp_path / f"{i}.png" for i in range(2)]
    for file in files:
        save(draw(), file)
    content = files[0].read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 2000
    assert content == files[1].read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_json_holds_the_schema(name):
    value = as_dict([experiment(name)], [made(name), made(name, control=True)])
    value = json.loads(json.dumps(value, allow_nan=False))
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(value)
    assert [each["control"] for each in value["experiments"][0]["results"]] == [False, True]


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is_about(name):
    own = experiment(name)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", own.name)
    assert own.title
    assert own.claim.endswith((".", "?", ".)", "?)"))
    assert re.search(r"\bS[0-4]\b", own.source)
    assert own.items
    assert all(1 <= item <= 97 for item in own.items)
    assert own.changed.endswith(".")
    for control in (False, True):
        outcome = made(name, control).outcome
        assert outcome.says.endswith((".", ".)"))
        assert outcome.measured


@pytest.mark.parametrize("name", NAMES)
def test_the_same_comes_out_again_whatever_was_drawn_before(name):
    torch.rand(7)
    before = torch.get_rng_state()
    again = perform(experiment(name), "short").outcome
    assert torch.equal(torch.get_rng_state(), before)
    first = made(name).outcome
    assert again.verdict == first.verdict
    # Where memory lies may change the last digit of a matrix product.
    assert _timeless(again) == pytest.approx(_timeless(first), rel=1e-6, abs=1e-9, nan_ok=True)


def _timeless(outcome):
    """The figures, without those of a clock."""
    return {m.name: m.value for m in outcome.measured if m.unit not in {"s", "ms", "µs", "seconds"}}


def test_names_are_the_keys_and_an_unknown_one_names_the_nearest():
    assert all(each.name == name for name, each in experiments().items())
    with pytest.raises(RequestError, match="order-blindness"):
        experiment("order-blindnes")


def test_two_experiments_of_one_name_are_refused(monkeypatch):
    monkeypatch.setattr(registry, "MODULES", (*registry.MODULES, registry.MODULES[0]))
    with pytest.raises(ValueError, match="one name"):
        experiments()
