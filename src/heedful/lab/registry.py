"""Registry of experiments by name. To register a module of experiments, add its name to `PARTS`."""

from importlib import import_module

from heedful.errors import RequestError, nearest
from heedful.lab.experiment import Experiment

PARTS: dict[str, tuple[str, ...]] = {
    "Scores and weights": ("scores", "weights", "lookup", "aligning", "pronoun"),
    "Order, heads and depth": ("order", "heads", "depth"),
    "Positions": ("sinusoids", "positions", "filters"),
    "Norms and the first updates": ("norms", "norms_compared", "learning_rates", "warmup"),
    "Recurrence and sequential dependencies": ("recurrence", "contexts", "waiting", "prefixes"),
    "Sharing, transfer and copying": ("tying", "transfer", "copying"),
    "What trained heads do": ("patterns", "links"),
    "Other mixers, experts and images": (
        *("mixing", "convolutions", "experts", "memories", "data_size", "distances"),
    ),
    "Counting": ("shapes", "arithmetic", "tables", "backward"),
}
"""Modules of `heedful.lab` by heading, in the order of the lectures; each has a list ``EXPERIMENTS``."""


def _inside(module: str) -> list[Experiment]:
    """Import a module and return its experiments."""
    return list(import_module(f"heedful.lab.{module}").EXPERIMENTS)


def experiments() -> dict[str, Experiment]:
    """Return all experiments in order; their modules are imported on the first call."""
    found = [each for modules in PARTS.values() for module in modules for each in _inside(module)]
    if len({each.name for each in found}) < len(found):
        raise ValueError("experiment names must be unique, but two experiments have one name")
    return {each.name: each for each in found}


def parts() -> dict[str, list[str]]:
    """Return the names of experiments by heading."""
    return {
        part: [each.name for module in modules for each in _inside(module)] for part, modules in PARTS.items()
    }


def experiment(name: str) -> Experiment:
    """Return the experiment with this name.

    Raises:
        RequestError: no experiment has this name.
    """
    known = experiments()
    if name not in known:
        raise RequestError(f"unknown experiment {name!r}{nearest(name, known)}; heedful lab lists them")
    return known[name]
