"""All experiments by name: a module of experiments is one line here."""

from importlib import import_module

from heedful.errors import RequestError, nearest
from heedful.lab.experiment import Experiment

MODULES: tuple[str, ...] = (
    "scores",
    "weights",
    "lookup",
    "aligning",
    "pronoun",
    "order",
    "heads",
    "depth",
    "sinusoids",
    "positions",
    "filters",
    "norms",
    "norms_compared",
    "learning_rates",
    "warmup",
    "recurrence",
    "contexts",
    "waiting",
    "prefixes",
    "tying",
    "transfer",
    "copying",
    "patterns",
    "links",
    "mixing",
    "convolutions",
    "experts",
    "data_size",
    "distances",
    "shapes",
    "arithmetic",
    "tables",
    "backward",
)
"""Modules below `heedful.lab`, each with a list ``EXPERIMENTS``, in the order of the lectures."""


def experiments() -> dict[str, Experiment]:
    """All of them, in their order; what they need is imported now."""
    found = [each for name in MODULES for each in import_module(f"heedful.lab.{name}").EXPERIMENTS]
    if len({each.name for each in found}) < len(found):
        raise ValueError("two experiments have one name")
    return {each.name: each for each in found}


def experiment(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        RequestError: there is none.
    """
    known = experiments()
    if name not in known:
        raise RequestError(f"unknown experiment {name!r}{nearest(name, known)}; heedful lab lists them")
    return known[name]
