"""Evaluation mode for the duration of a computation."""

import threading

import pytest
from torch import nn

from heedful.nn.modes import evaluating


@pytest.fixture
def model():
    """A model in training mode, but for a frozen norm."""
    built = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)).train()
    built[1].eval()
    return built


def modes(model):
    return [module.training for module in model.modules()]


def test_each_module_has_its_former_mode_afterwards(model):
    with evaluating(model):
        with evaluating(model):
            assert not any(modes(model))
        assert not any(modes(model))
    assert modes(model) == [True, True, False, True]
    with evaluating(model.eval()):
        model.train()
    assert all(modes(model))


def test_overlapping_threads_compute_in_evaluation_mode(model):
    entered, leave = threading.Event(), threading.Event()

    def compute():
        with evaluating(model):
            entered.set()
            leave.wait(9)
            found.append(modes(model))

    found = []
    thread = threading.Thread(target=compute)
    with evaluating(model):
        thread.start()
        entered.wait(9)
    assert not any(modes(model))
    leave.set()
    thread.join()
    assert found == [[False] * 4]
    assert modes(model) == [True, True, False, True]
