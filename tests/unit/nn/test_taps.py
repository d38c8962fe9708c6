"""Taps: off unless somebody is attached, seen in order, replaced, watched, and always let go again."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import nn

from heedful.nn.taps import Tap, attached, capture, intervene, recording, taps


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inner = Tap(), nn.ModuleDict({"second": Tap()})

    def forward(self, x):
        return self.inner["second"](self.first(x) + 1)


def test_a_tap_hands_on_the_very_tensor():
    tap, x = Tap(), torch.randn(3)
    assert tap(x) is x
    assert not tap.has_hooks


def test_taps_are_known_by_their_dotted_names():
    model = Two()
    assert taps(model) == {"first": model.first, "inner.second": model.inner["second"]}


def test_recording_keeps_one_tensor_for_each_run():
    model, x, y = Two(), torch.randn(2), torch.randn(2)
    with recording(model, ["inner.second", "first"]) as seen:
        assert model.first.has_hooks
        model(x)
        model(y)
    assert seen.keys() == {"inner.second", "first"}
    assert seen["first"][0] is x
    assert seen["first"][1] is y
    assert torch.equal(torch.stack(seen["inner.second"]), torch.stack([x + 1, y + 1]))
    assert not model.first.has_hooks
    model(x)
    assert len(seen["first"]) == 2


def test_what_a_listener_returns_replaces_the_value_for_those_after_it():
    model, seen = Two(), []
    with (
        intervene(model, {"first": lambda x: 10 * x}),
        intervene(model, {"first": seen.append, "inner.second": lambda x: -x}),
    ):
        assert torch.equal(model(torch.tensor([2.0])), torch.tensor([-21.0]))
    assert torch.equal(seen[0], torch.tensor([20.0]))
    assert torch.equal(model(torch.tensor([2.0])), torch.tensor([3.0]))


def test_listeners_go_when_the_model_fails():
    model = Two()
    with pytest.raises(RuntimeError), intervene(model, {"first": print, "inner.second": _fail}):
        model(torch.zeros(1))
    assert not any(tap.has_hooks for tap in taps(model).values())


def _fail(x):
    raise RuntimeError


def test_an_unknown_name_is_refused_and_nothing_is_attached():
    model = Two()
    with pytest.raises(KeyError, match=r"no tap named 'third'; available: first, inner.second"):  # noqa: SIM117
        with intervene(model, {"first": print, "third": print}):
            pass
    assert not model.first.has_hooks


def test_the_same_function_may_listen_twice():
    model, seen = Two(), []
    with intervene(model, {"first": seen.append}), intervene(model, {"first": seen.append}):
        model(torch.zeros(1))
    assert len(seen) == 2
    assert not model.first.has_hooks


# Watchers -------------------------------------------------------------------------------------------------


def test_watchers_get_copies_without_a_graph_and_replace_nothing():
    model, x = Two(), torch.randn(2, requires_grad=True)
    with capture(model, {"first": None, "inner.second": None}) as seen:
        assert model.first.has_observers
        assert not model.first.has_hooks
        out = model(x)
        model(2 * x)
    assert not attached(model)
    assert [len(values) for values in seen.values()] == [2, 2]
    assert torch.equal(out, x + 1)
    assert out.requires_grad
    for value, wanted in zip(seen["first"] + seen["inner.second"], (x, 2 * x, x + 1, 2 * x + 1)):
        assert torch.equal(value, wanted)
        assert not value.requires_grad
        assert value.data_ptr() not in (x.data_ptr(), out.data_ptr())


def test_a_watcher_keeps_no_more_than_it_asked_for():
    tap, whole = Tap(), torch.randn(2, 5, 3, 7)
    for heads, wanted in ((None, whole[:, 1:]), ([3, 0], whole[:, [4, 1]])):
        with capture(nn.Sequential(tap), {"0": heads}) as seen:
            tap(whole[:, 1:])
        (value,) = seen["0"]
        assert torch.equal(value, wanted)
        assert value.untyped_storage().nbytes() == 4 * wanted.numel()


def test_what_is_written_to_a_value_later_does_not_reach_watchers():
    tap, x = Tap(), torch.ones(3)
    with capture(nn.Sequential(tap), {"0": None}) as seen:
        tap(x)
        x.zero_()
    assert torch.equal(seen["0"][0], torch.ones(3))


def test_watchers_see_what_listeners_made_of_a_value():
    model = Two()
    with capture(model, {"first": None}) as seen, intervene(model, {"first": lambda x: 10 * x}):
        model(torch.tensor([2.0]))
    assert torch.equal(seen["first"][0], torch.tensor([20.0]))


def test_several_watchers_of_one_tap_each_get_what_they_asked_for():
    tap, x = Tap(), torch.randn(1, 3, 2, 2)
    model = nn.Sequential(tap)
    with capture(model, {"0": [2]}) as last, capture(model, {"0": [0, 1]}) as first:
        tap(x)
    assert torch.equal(last["0"][0], x[:, 2:])
    assert torch.equal(first["0"][0], x[:, :2])
    assert not tap.busy


def test_heads_of_what_has_none_are_refused():
    tap = Tap("the residual stream")
    with (
        capture(nn.Sequential(tap), {"0": [1]}),
        pytest.raises(ValueError, match="residual stream has shape"),
    ):
        tap(torch.randn(5, 7))


def test_watchers_go_when_the_model_fails():
    model = Two()
    with (
        pytest.raises(RuntimeError),
        capture(model, {"first": None}),
        intervene(model, {"inner.second": _fail}),
    ):
        model(torch.zeros(1))
    assert not attached(model)


def test_an_unknown_name_is_refused_to_watchers_too():
    model = Two()
    with pytest.raises(KeyError, match="no tap named 'third'"):  # noqa: SIM117
        with capture(model, {"first": None, "third": None}):
            pass
    assert not attached(model)


def test_what_was_already_used_can_be_read_but_not_replaced():
    tap, x = Tap("chances", read_only=True), torch.randn(2)
    with recording(nn.Sequential(tap), ["0"]) as seen:
        assert tap(x) is x
    assert seen["0"][0] is x
    with (
        intervene(nn.Sequential(tap), {"0": lambda x: x}),
        pytest.raises(ValueError, match="chances is read-only: it was already used and cannot be replaced"),
    ):
        tap(x)


# Threads --------------------------------------------------------------------------------------------------


def elsewhere(work):
    """What ``work`` gives in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_an_attachment_holds_for_its_own_thread():
    model, x = Two(), torch.tensor([2.0])
    with intervene(model, {"first": lambda x: 10 * x}), capture(model, {"inner.second": None}) as seen:
        assert attached(model)
        assert not elsewhere(lambda: attached(model))
        assert torch.equal(elsewhere(lambda: model(x)), torch.tensor([3.0]))
        assert seen == {"inner.second": []}
        assert torch.equal(model(x), torch.tensor([21.0]))
    assert torch.equal(seen["inner.second"][0], torch.tensor([21.0]))
    assert len(seen["inner.second"]) == 1


def test_two_threads_look_at_what_is_their_own():
    model, together = Two(), Barrier(2, timeout=60)

    def work(value):
        with capture(model, {"first": None}) as observed, recording(model, ["first"]) as recorded:
            together.wait()
            for step in range(3):
                model(torch.tensor([value + step]))
                together.wait()
        return observed["first"], recorded["first"]

    with ThreadPoolExecutor(2) as pool:
        for value, seen in zip((10.0, 20.0), pool.map(work, (10.0, 20.0)), strict=True):
            assert [torch.cat(values).tolist() for values in seen] == [[value, value + 1, value + 2]] * 2
    assert not any(tap.busy for tap in taps(model).values())
