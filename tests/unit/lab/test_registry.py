"""The registry: names, and that every module of experiments is held to the laws."""

import re
from pathlib import Path

import pytest

from heedful.errors import RequestError
from heedful.lab import registry
from heedful.lab.registry import PARTS, experiment, experiments, parts

HERE = Path(__file__).parent


@pytest.mark.parametrize("module", [module for modules in PARTS.values() for module in modules])
def test_a_file_of_tests_holds_it_to_the_laws(module):
    text = (HERE / f"test_{module}.py").read_text(encoding="utf-8")
    assert f'class TestExperiments(Laws):\n    family = "{module}"\n' in text


@pytest.mark.parametrize("path", sorted(HERE.glob("test_*.py")), ids=lambda path: path.stem)
def test_experiments_are_made_in_the_sweep_alone(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r'perform\(experiment|\.(run|control)\("', text)


def test_names_are_the_keys_and_an_unknown_one_names_the_nearest():
    assert all(each.name == name for name, each in experiments().items())
    with pytest.raises(RequestError, match="order-blindness"):
        experiment("order-blindnes")


def test_every_experiment_stands_under_one_heading():
    assert [name for names in parts().values() for name in names] == list(experiments())


def test_two_experiments_of_one_name_are_refused(monkeypatch):
    monkeypatch.setattr(registry, "PARTS", {**PARTS, "Again": ("scores",)})
    with pytest.raises(ValueError, match="one name"):
        experiments()
