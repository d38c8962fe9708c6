"""What is timed and what is not, by a clock made by hand; operations by their formula."""

import torch

from heedful.lab import costs


def test_the_shortest_time_of_the_work_alone(monkeypatch):
    now = 0.0
    taken = []

    def advance(seconds):
        nonlocal now
        now += seconds

    def given():
        advance(100)
        return len(taken)

    def work(number):
        taken.append(number)
        # The first is longest, as where memory and kernels are still to be found; the shortest is the fourth.
        advance({0: 50, 3: 2}.get(number, 3 + number))

    monkeypatch.setattr(costs.time, "perf_counter", lambda: now)
    assert costs.milliseconds(work, given) == 2000
    assert taken == list(range(costs.REPEATS + 1))


def test_the_first_time_is_not_taken(monkeypatch):
    durations = iter([1.0] + [5.0] * costs.REPEATS)
    now = 0.0

    def work(_):
        nonlocal now
        now += next(durations)

    monkeypatch.setattr(costs.time, "perf_counter", lambda: now)
    assert costs.milliseconds(work, lambda: None) == 5000


def test_operations_are_two_for_each_term_of_a_product():
    a, b = torch.ones(3, 5), torch.ones(5, 7)
    assert costs.flops_of(lambda: a @ b + 1) == 2 * 3 * 5 * 7
