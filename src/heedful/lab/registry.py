"""All experiments by name: a module of experiments is one line here."""

from importlib import import_module

from heedful.errors import RequestError, nearest
from heedful.lab.experiment import Experiment

PARTS: dict[str, tuple[str, ...]] = {
    "Scores and weights": ("scores", "weights", "lookup", "aligning", "pronoun"),
    "Order, heads and depth": ("order", "heads", "depth"),
    "Positions": ("sinusoids", "positions", "filters"),
    "Norms and the first updates": ("norms", "norms_compared", "learning_rates", "warmup"),
    "Recurrence, and what waits for what": ("recurrence", "contexts", "waiting", "prefixes"),
    "What is shared, carried over, copied": ("tying", "transfer", "copying"),
    "What trained heads do": ("patterns", "links"),
    "Other mixers, experts and images": (
        *("mixing", "convolutions", "experts", "memories", "data_size", "distances"),
    ),
    "Counting": ("shapes", "arithmetic", "tables", "backward"),
}
"""Modules below `heedful.lab`, by headings in the order of the lectures; each has a list ``EXPERIMENTS``."""


def _inside(module: str) -> list[Experiment]:
    """The experiments of a module, which is imported now."""
    return list(import_module(f"heedful.lab.{module}").EXPERIMENTS)


def experiments() -> dict[str, Experiment]:
    """All of them, in their order; what they need is imported now."""
    found = [each for modules in PARTS.values() for module in modules for each in _inside(module)]
    if len({each.name for each in found}) < len(found):
        raise ValueError("two experiments have one name")
    return {each.name: each for each in found}


def parts() -> dict[str, list[str]]:
    """The names of experiments by the heading that they stand under."""
    return {
        part: [each.name for module in modules for each in _inside(module)] for part, modules in PARTS.items()
    }


def experiment(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        RequestError: there is none.
    """
    known = experiments()
    if name not in known:
        raise RequestError(f"unknown experiment {name!r}{nearest(name, known)}; heedful lab lists them")
    return known[name]
