"""Contenders of benchmarks end between their turns where memory is short."""

import pytest

from harness.contender import Contender
from harness.seats import SPARE, Seats

GIB = 1 << 30


class Machine:
    """A machine with some memory, and runners that use it."""

    def __init__(self, total, needs):
        self.total, self.needs = total, needs
        self.running, self.history = [], []

    def available(self):
        return self.total - sum(self.needs[name] for name in self.running)

    def runner(self, contender):
        return Runner(self, contender.name)


class Runner:
    def __init__(self, machine, name):
        self.machine, self.name = machine, name

    def warm_up(self, times):
        self.machine.running.append(self.name)
        self.machine.history.append(f"build {self.name}")
        assert self.machine.available() >= 0, "the machine is full"
        return 3.0, 2.0

    def peak(self):
        return self.machine.needs[self.name]

    def turn(self, number, patience):
        assert self.name in self.machine.running
        self.machine.history.append(f"{self.name}{number}")
        return 1.0, False

    def close(self):
        self.machine.running.remove(self.name)


def played(total, needs, limit=None):
    """The history of two rounds of contenders with these needs."""
    machine = Machine(total * GIB + SPARE, {name: n * GIB for name, n in needs.items()})
    seats = Seats(machine.runner, 1, machine.available, None if limit is None else limit * GIB + SPARE)
    contenders = [Contender(name, "", lambda: lambda number: None) for name in needs]
    machine.needs = {c.name: n * GIB for c, n in zip(contenders, needs.values(), strict=True)}
    for contender in contenders:
        seats.start(contender)
    for number in range(2):
        for contender in contenders:
            seats.turn(contender, number, 0)
    seats.close()
    assert not machine.running
    return [entry.replace(", ", "") for entry in machine.history], seats


def test_contenders_that_fit_are_built_once():
    history, seats = played(8, {"a": 2, "b": 2, "c": 2})
    assert history == ["build a", "build b", "build c", "a0", "b0", "c0", "a1", "b1", "c1"]
    assert not seats.ended


@pytest.mark.parametrize("memory", [{"total": 4}, {"total": 100, "limit": 4}])
def test_others_end_where_memory_is_short_and_every_turn_is_played(memory):
    history, seats = played(needs={"a": 2, "b": 2, "c": 2}, **memory)
    assert [entry for entry in history if "build" not in entry] == ["a0", "b0", "c0", "a1", "b1", "c1"]
    assert history.count("build a") > 1
    assert seats.ended


def test_a_large_contender_leaves_room_for_the_others_by_turns():
    history, _ = played(5, {"a": 4, "b": 1, "c": 1})  # the machine is never full
    assert [entry for entry in history if "build" not in entry] == ["a0", "b0", "c0", "a1", "b1", "c1"]


def test_a_failure_leaves_nothing_running():
    machine = Machine(8 * GIB, {"a, ": 1})

    class Failing(Runner):
        def peak(self):
            raise RuntimeError("no")

    seats = Seats(lambda contender: Failing(machine, contender.name), 1, machine.available)
    with pytest.raises(RuntimeError, match="no"):
        seats.start(Contender("a", "", lambda: lambda number: None))
    assert machine.running == []
