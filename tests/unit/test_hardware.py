import platform

import pytest

from heedful import hardware
from heedful.hardware import identity


@pytest.mark.parametrize("name", ["model name", "flags", "Features", "CPU part", "isa"])
def test_a_processor_with_another_model_or_other_instructions_is_another(monkeypatch, name):
    own = {"model name": "A", "flags": "sse avx"}
    monkeypatch.setattr(hardware, "cpu_fields", lambda: own)
    before = identity()
    assert identity() == before
    monkeypatch.setattr(hardware, "cpu_fields", lambda: own | {name: "B"})
    assert identity() != before


def test_speeds_and_numbers_of_cores_do_not_count(monkeypatch):
    found = []
    for speed in ("2600.000", "2601.000"):
        own = {"flags": "sse", "cpu MHz": speed, "apicid": speed}
        monkeypatch.setattr(hardware, "cpu_fields", lambda own=own: own)
        found.append(identity())
    assert found[0] == found[1]


def test_a_machine_that_does_not_list_its_instructions_shares_with_no_other(monkeypatch):
    monkeypatch.setattr(hardware, "cpu_fields", dict)
    found = []
    for name in ("one", "two"):
        monkeypatch.setattr(platform, "node", lambda name=name: name)
        found.append(identity())
    assert found[0] != found[1]
