"""Registry of experiments by name: each joins a claim of ``claims/*.yaml`` with a function that measures it.

A file holds the claims of one heading of the lab, by the names of their experiments, and the modules of
`heedful.lab.experiments` that measure them. Files are read in the order of their names.
"""

from functools import cache
from importlib import import_module
from pathlib import Path

from heedful.config import Config
from heedful.errors import RequestError, nearest
from heedful.lab.claims import Claim, Text
from heedful.lab.experiment import MEASUREMENTS, Experiment
from heedful.recipes.problems import validate
from heedful.recipes.yaml import read_yaml


class Heading(Config):
    """A heading of the lab.

    Args:
        heading: the heading.
        modules: modules of `heedful.lab.experiments` with the measurements.
        claims: claims by the names of their experiments.
    """

    heading: Text
    modules: tuple[Text, ...]
    claims: dict[Text, Claim]


@cache
def headings() -> tuple[Heading, ...]:
    """Read all headings, in order."""
    paths = sorted(Path(__file__).with_name("claims").glob("*.yaml"))
    return tuple(validate(read_yaml(path.read_text(encoding="utf-8"), path.name), Heading) for path in paths)


@cache
def experiments() -> dict[str, Experiment]:
    """Return all experiments in order; their modules are imported on the first call.

    Raises:
        ValueError: two claims have one name, or a claim and a measurement do not belong together.
    """
    names = [name for heading in headings() for name in heading.claims]
    for module in (name for heading in headings() for name in heading.modules):
        import_module(f"heedful.lab.experiments.{module}")
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"experiment names must be unique, but two claims are named {duplicates[0]}")
    if unmatched := MEASUREMENTS.keys() ^ set(names):
        raise ValueError(
            f"each claim must have one measurement, but {min(unmatched)} has only one of the two"
        )
    return {
        name: Experiment(name, claim, *MEASUREMENTS[name], heading.heading)
        for heading in headings()
        for name, claim in heading.claims.items()
    }


def experiment(name: str) -> Experiment:
    """Return the experiment with this name.

    Raises:
        RequestError: no experiment has this name.
    """
    by_name = experiments()
    if name not in by_name:
        raise RequestError(f"unknown experiment {name!r}{nearest(name, by_name)}; heedful lab lists them")
    return by_name[name]
