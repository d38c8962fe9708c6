"""Experiments in their short form, each made once; and what must hold of every one of them."""

from functools import cache

import numpy as np

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


def check(each):
    """Both verdicts come out; the picture can be drawn, and is the same when drawn again."""
    for control in (False, True):
        outcome = made(each.name, control)
        assert outcome.verdict == each.expected[control], (each.name, control, outcome.measured)
        assert outcome.draw is not None
    first, second = (pixels(made(each.name).draw()) for _ in range(2))
    assert np.array_equal(first, second)
    assert len(np.unique(first.reshape(-1, 4), axis=0)) > 10
    assert each.expected[0] != each.expected[1]


def pixels(figure):
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba()).copy()


def curve(name, panel, label, control=False):
    """x and y of a curve as drawn."""
    axes = made(name, control).draw().axes[panel]
    (found,) = [line for line in axes.lines if line.get_label() == label]
    return found.get_xdata(), found.get_ydata()
