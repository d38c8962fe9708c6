"""Experiments in their short form, each made once in a process, and the laws that hold for all of them.

Every module of experiments has a file of tests here, which holds them to the laws by a class of its own::

    class TestExperiments(Laws):
        family = "warmup"

Tests are handed to processes file by file, so the work is spread and nothing is made twice.
"""

import json
import math
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from jsonschema import Draft202012Validator

from heedful.lab.drawing import Bars, Curves, Dots, draw
from heedful.lab.experiment import as_dict
from heedful.lab.registry import experiment, experiments

# Two seconds or more in their short form: the whole sweep makes them, `make test` tries them
# with trainings of a few updates (`test_costly.py`).
COSTLY = {
    "attention-as-alignment",
    "attention-distance",
    "copying-in-context",
    "emerging-links",
    "experts-at-equal-operations",
    "heads-on-it",
    "layer-or-batch-norm",
    "mixers-at-equal-budget",
    "one-vector",
    "patterns-of-heads",
    "images-to-learn-from",
    "post-norm-needs-warm-up",
    "pretrained-or-scratch",
    "warm-up-and-optimizer",
}

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "lab.schema.json"


@dataclass(frozen=True)
class Made:
    """An attempt: what came out, or what went wrong; and whether anybody's random numbers were touched."""

    result: object
    error: Exception | None
    touched: bool


_started = set()


@cache
def _attempt(name, control):
    assert (name, control) not in _started, f"{name} is made a second time"
    _started.add((name, control))
    before = _generators()
    try:
        result, error = experiment(name).run("short", control=control), None
    except Exception as failure:
        result, error = None, failure
    return Made(result, error, _generators() != before)


def _generators():
    """The states of the global generators; that of Python is drawn from by what checks types in tests."""
    kind, keys, *rest = np.random.get_state()
    return torch.get_rng_state().tolist(), kind, keys.tolist(), rest


def made(name, control=False):
    """What came out of an experiment, or of its control; made when it is first asked for."""
    attempt = _attempt(name, control)
    if attempt.error is not None:
        raise attempt.error
    return attempt.result


def measured(name, beginning, control=False):
    """The one figure whose name begins so."""
    (found,) = [each for each in made(name, control).measured if each.name.startswith(beginning)]
    return found


def value(name, beginning, control=False):
    return measured(name, beginning, control).value


def curve(name, panel, label, control=False):
    """x and y of a curve in the image."""
    return made(name, control).panels[panel].lines[label]


def hold_what_is_expected(name, control=False, **tolerance):
    """Assert that every figure of which it is known what it is expected to be is that."""
    known = [each for each in made(name, control).measured if each.expected is not None]
    assert known
    for each in known:
        assert each.value == pytest.approx(each.expected, **tolerance), each.name


def judged(name, series):
    """The result that the rules of an experiment's claim make of a measurement."""
    return replace(experiment(name), measure=lambda **_: series).run("short")


def verdict_of(name, **values):
    """The verdict that the rules make of made-up values."""
    return experiment(name).claim.judge(values)[0]


def statement_of(name, **values):
    """The statement on made-up values."""
    return experiment(name).claim.judge(values)[1]


class Laws:
    """What holds for every experiment of a module, ``family``."""

    family = ""

    def pytest_generate_tests(self, metafunc):
        if "name" in metafunc.fixturenames:
            module = f"heedful.lab.experiments.{self.family}"
            names = [name for name, own in experiments().items() if own.measure.__module__ == module]
            assert names, f"no experiment is measured in {module}"
            metafunc.parametrize("name", names)
        if "control" in metafunc.fixturenames:
            metafunc.parametrize("control", [False, True], ids=["run", "control"])

    def test_the_verdict_is_the_one_that_must_come_out(self, name, control):
        found = made(name, control)
        assert found.verdict == found.expected, found.to_dict()

    def test_the_control_has_another_verdict(self, name):
        assert len(set(experiment(name).claim.expected)) == 2

    def test_the_same_comes_out_whatever_was_drawn_before(self, name, control):
        # It draws from generators of its own, or from torch's within `seeded`, which leaves no trace.
        assert not _attempt(name, control).touched

    def test_there_is_something_to_see_in_every_panel_and_room_for_it(self, name, control):
        panels = made(name, control).panels
        figure = draw(*panels)
        if control:  # whose panels are as large, and to lay them out takes long
            figure.set_layout_engine("none")
        figure.draw_without_rendering()  # warns, and so fails, where there is no room
        shown = [axes.get_title(loc="left") for axes in figure.axes[: len(panels)]]
        assert shown == [panel.title for panel in panels]
        for panel in panels:
            assert panel.title
            assert any(map(math.isfinite, numbers(panel)))

    def test_json_holds_the_schema(self, name):
        both = as_dict([experiment(name)], [made(name), made(name, True)])
        value = json.loads(json.dumps(both, allow_nan=False))
        Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(value)
        assert [each["control"] for each in value["experiments"][0]["results"]] == [False, True]

    def test_it_says_what_it_is_about(self, name):
        own = experiment(name)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", own.name)
        assert own.claim.title
        assert own.claim.claim.endswith((".", "?", ".)", "?)"))
        assert re.search(r"\bS[0-4]\b", own.claim.source)
        assert own.claim.items
        assert all(1 <= item <= 97 for item in own.claim.items)
        assert own.claim.control.endswith(".")
        for control in (False, True):
            assert made(name, control).statement.endswith((".", ".)"))
            assert made(name, control).measured


def numbers(panel):
    """What a panel shows."""
    if isinstance(panel, Curves):
        return [y for _, ys in panel.lines.values() for y in ys]
    if isinstance(panel, Dots):
        return [y for points in panel.points.values() for _, y in points.values()]
    return panel.heights.values() if isinstance(panel, Bars) else [x for row in panel.values for x in row]
