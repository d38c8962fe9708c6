"""Models from names and settings as Python code gives them: what is wrong is told in words."""

from types import SimpleNamespace

import pytest
import torch

import heedful
from heedful.api.run import Run
from heedful.errors import RequestError
from heedful.memory import memory_errors_as
from heedful.model_summary.summary import describe
from heedful.models.registry import build_model

SMALL = {"n_layers": 1, "d_model": 8, "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 8}}}


@pytest.mark.parametrize("size", ["10", 10.0, True, 0, -3])
def test_a_size_is_a_whole_number(size):
    with pytest.raises(
        RequestError, match=f"vocab_size: expected a whole number of at least 1, got {size!r}"
    ):
        heedful.build("gpt2", vocab_size=size, **SMALL)


def test_a_model_that_does_not_fit_is_told():
    with pytest.raises(RequestError, match=r"fit in memory: its weights take [\d,.]+ GiB, and"):
        heedful.build("transformer-base", vocab_size=11, d_model=65_536)


def test_the_weights_of_a_model_that_does_not_fit_are_not_allocated(monkeypatch):
    devices = []

    def recorded(*args):
        devices.append(str(torch.get_default_device()))
        return build_model(*args)

    n_bytes = 4 * sum(p.numel() for p in heedful.build("gpt2", vocab_size=13, **SMALL).parameters())
    monkeypatch.setattr("heedful.runs.building.build_model", recorded)
    monkeypatch.setattr("heedful.runs.building.machine_memory", lambda: n_bytes - 1)
    with pytest.raises(RequestError, match="does not fit in memory: its weights take"):
        heedful.build("gpt2", vocab_size=13, **SMALL)
    assert devices == ["meta"]
    monkeypatch.setattr("heedful.runs.building.machine_memory", lambda: n_bytes)
    heedful.build("gpt2", vocab_size=13, **SMALL)
    assert devices == ["meta", "meta", "cpu"]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("Storage size calculation overflowed")])
def test_what_says_that_memory_is_short(error):
    with pytest.raises(RequestError, match=r"^too large$"), memory_errors_as("too large"):
        raise error


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="shapes"), memory_errors_as("too large"):
        raise RuntimeError("shapes do not agree")


def test_a_run_is_described_by_its_model():
    model = heedful.build("gpt2", vocab_size=13, **SMALL)
    run = Run(SimpleNamespace(), SimpleNamespace(), model)
    assert describe(run).parameters == describe(model).parameters


@pytest.mark.parametrize("thing", [None, 3, ["phrasebook-ta"]])
def test_what_can_be_described_is_said(thing):
    with pytest.raises(RequestError, match=f"a run, .* got {type(thing).__name__}"):
        describe(thing)


def test_settings_that_are_no_recipe_say_what_is_missing():
    with pytest.raises(RequestError, match=r"^recipe: task: required key is missing"):
        describe({"kind": "transformer"})
