"""The registry: names, and that every module of experiments is held to the laws."""

import re
from pathlib import Path

import pytest

from heedful.errors import RequestError
from heedful.lab import experiment as experiment_module
from heedful.lab import registry
from heedful.lab.experiment import MEASUREMENTS, Experiment, Measured, Series, measures
from heedful.lab.registry import experiment, experiments, headings
from heedful.lab.text import by_heading

HERE = Path(__file__).parent


@pytest.mark.parametrize("module", [module for heading in headings() for module in heading.modules])
def test_a_file_of_tests_holds_it_to_the_laws(module):
    text = (HERE / "experiments" / f"test_{module}.py").read_text(encoding="utf-8")
    assert f'class TestExperiments(Laws):\n    family = "{module}"\n' in text


@pytest.mark.parametrize("path", sorted(HERE.rglob("test_*.py")), ids=lambda path: path.stem)
def test_experiments_are_made_in_the_sweep_alone(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\bexperiment\([^)]*\)\.run\(", text)


def test_names_are_the_keys_and_an_unknown_one_names_the_nearest():
    assert all(each.name == name for name, each in experiments().items())
    with pytest.raises(RequestError, match="order-blindness"):
        experiment("order-blindnes")


def test_every_experiment_stands_under_one_heading():
    groups = by_heading(experiments().values())
    found = {heading: [each.name for each in own] for heading, own in groups.items()}
    assert found == {each.heading: list(each.claims) for each in headings()}


def test_headings_are_read_in_order():
    found = [each.heading for each in headings()]
    assert found[0] == "Scores and weights"
    assert found[-1] == "Counting"


def test_two_claims_of_one_name_are_refused(monkeypatch):
    read = headings()
    monkeypatch.setattr(registry, "headings", lambda: (*read, read[0]))
    with pytest.raises(ValueError, match="two claims are named dot-product-scale"):
        experiments.__wrapped__()


@pytest.mark.parametrize("n", [0, 2])
def test_a_claim_has_one_measurement(n, monkeypatch):
    monkeypatch.setattr(registry, "MEASUREMENTS", dict(MEASUREMENTS))
    read = headings()
    if n:
        registry.MEASUREMENTS["unclaimed"] = MEASUREMENTS["order-blindness"]
    else:
        monkeypatch.setattr(registry, "headings", lambda: read[:-1])
    name = "unclaimed" if n else "autograd-quiz"
    with pytest.raises(ValueError, match=f"one measurement, but {name} has only one of the two"):
        experiments.__wrapped__()


def test_two_measurements_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two functions measure order-blindness"):
        measures("order-blindness")(lambda size: Series({}))


def test_the_control_measures_with_the_second_arguments(monkeypatch):
    claim, made = experiment("order-blindness").claim, {}
    monkeypatch.setattr(experiment_module, "MEASUREMENTS", made)

    @measures("order-blindness", change=(0.0, 1.0))
    def measure(size, change):
        return Series({"change": Measured(f"the change, {size}", change)})

    own = Experiment("order-blindness", claim, *made["order-blindness"])
    for control, size, verdict in ((False, "short", "holds"), (True, "long", "is wrong")):
        result = own.run(size, control=control)
        assert (result.verdict, result.control, result.size) == (verdict, control, size)
        assert result.measured == [Measured(f"the change, {size}", float(control))]
