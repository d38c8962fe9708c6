"""Costly experiments with trainings too short to learn: they return finite, valid results of any value."""

import json
import math
import sys

import pytest
from jsonschema import Draft202012Validator
from sweep import COSTLY, SCHEMA, numbers

from heedful.lab.experiment import as_dict
from heedful.lab.registry import experiment
from heedful.lab.seeds import shifted

SHORTER = {"UPDATES": 12, "PRETRAINED": 3, "SEEDS": 1, "REPEATS": 1, "LABELS": (4, 8)}
"""Ends of the names of constants that set updates, runs and labels.

12 updates, as the mean of the last ten losses is read.
"""


def shorter(value, n):
    if isinstance(value, dict):
        return {key: shorter(each, n) for key, each in value.items()}
    return range(n) if isinstance(value, range) else n


@pytest.mark.slow
@pytest.mark.parametrize("own", [experiment(name) for name in sorted(COSTLY)], ids=lambda own: own.name)
def test_something_comes_out_of_a_short_training(own, monkeypatch):
    module = sys.modules[own.measure.__module__]
    for name, value in list(vars(module).items()):
        for end, n in SHORTER.items():
            if name.isupper() and name.endswith(end):
                monkeypatch.setattr(module, name, shorter(value, n))
    with shifted(99):  # cached results belong to their seeds: the tests of the experiment get none of these
        both = [own.run("short", control=control) for control in (False, True)]
    value = json.loads(json.dumps(as_dict([own], both), allow_nan=False))
    Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(value)
    for found in both:
        assert found.measured
        assert found.panels
        assert all(any(map(math.isfinite, numbers(panel))) for panel in found.panels)
