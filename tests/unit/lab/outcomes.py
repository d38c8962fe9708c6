"""Experiments in their short form, each made once. (Verdicts and pictures: `test_experiments.py`.)"""

from functools import cache

from heedful.lab.registry import experiment


@cache
def made(name, control=False):
    """The outcome of an experiment, or of its control."""
    found = experiment(name)
    return (found.control if control else found.run)("short")


def measured(name, beginning, control=False):
    """The one figure whose name begins so."""
    (found,) = [each for each in made(name, control).measured if each.name.startswith(beginning)]
    return found


def value(name, beginning, control=False):
    return measured(name, beginning, control).value


def curve(name, panel, label, control=False):
    """x and y of a curve as drawn."""
    axes = made(name, control).draw().axes[panel]
    (found,) = [line for line in axes.lines if line.get_label() == label]
    return found.get_xdata(), found.get_ydata()
