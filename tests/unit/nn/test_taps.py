"""Taps: off unless somebody listens, seen in order, replaced, and always let go again."""

import pytest
import torch
from torch import nn

from heedful.nn.taps import Tap, listening, recording, taps


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inner = Tap(), nn.ModuleDict({"second": Tap()})

    def forward(self, x):
        return self.inner["second"](self.first(x) + 1)


def test_a_tap_hands_on_the_very_tensor():
    tap, x = Tap(), torch.randn(3)
    assert tap(x) is x
    assert not tap.active


def test_taps_are_known_by_their_dotted_names():
    model = Two()
    assert taps(model) == {"first": model.first, "inner.second": model.inner["second"]}


def test_recording_keeps_one_tensor_for_each_run():
    model, x, y = Two(), torch.randn(2), torch.randn(2)
    with recording(model, ["inner.second", "first"]) as seen:
        assert model.first.active
        model(x)
        model(y)
    assert seen.keys() == {"inner.second", "first"}
    assert seen["first"][0] is x
    assert seen["first"][1] is y
    assert torch.equal(torch.stack(seen["inner.second"]), torch.stack([x + 1, y + 1]))
    assert not model.first.active
    model(x)
    assert len(seen["first"]) == 2


def test_what_a_listener_returns_replaces_the_value_for_those_after_it():
    model, seen = Two(), []
    with (
        listening(model, {"first": lambda x: 10 * x}),
        listening(model, {"first": seen.append, "inner.second": lambda x: -x}),
    ):
        assert torch.equal(model(torch.tensor([2.0])), torch.tensor([-21.0]))
    assert torch.equal(seen[0], torch.tensor([20.0]))
    assert torch.equal(model(torch.tensor([2.0])), torch.tensor([3.0]))


def test_listeners_go_when_the_model_fails():
    model = Two()
    with pytest.raises(RuntimeError), listening(model, {"first": print, "inner.second": _fail}):
        model(torch.zeros(1))
    assert not any(tap.active for tap in taps(model).values())


def _fail(x):
    raise RuntimeError


def test_an_unknown_name_is_refused_and_nothing_is_attached():
    model = Two()
    with pytest.raises(KeyError, match=r"no tap named 'third'; there are \['first', 'inner.second'\]"):  # noqa: SIM117
        with listening(model, {"first": print, "third": print}):
            pass
    assert not model.first.active


def test_the_same_function_may_listen_twice():
    model, seen = Two(), []
    with listening(model, {"first": seen.append}), listening(model, {"first": seen.append}):
        model(torch.zeros(1))
    assert len(seen) == 2
    assert not model.first.active
