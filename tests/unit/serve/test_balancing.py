"""Which engines move between runs, and when."""

import pytest

from heedful.serve.admission import RefusedError
from heedful.serve.balancing import CHECKS, Balancer
from heedful.serve.engines import ENGINE_BYTES, Engines, ServedRun, StartError
from heedful.serve.metrics import Metrics
from heedful.serve.server import cache_memory_of
from heedful.serve.service import Limits, served_run


def run_of(folder, name, n):
    (folder / name).mkdir()
    (folder / name / "weights.safetensors").write_bytes(b"0" * 1000)
    return served_run(Engines(ServedRun(name, str(folder / name)), n, 30.0), Limits(), Metrics())


@pytest.fixture
def two(tmp_path):
    idle, busy = run_of(tmp_path, "idle", 2), run_of(tmp_path, "busy", 1)
    busy.admission.rate = 100.0
    for _ in range(3):
        busy.admission.admit(400)
    return idle, busy


def moves(balancer, n):
    return [balancer.check() for _ in range(n)]


def test_an_engine_moves_when_one_run_waits_and_another_is_unused_for_a_while(two):
    idle, busy = two
    balancer = Balancer([idle, busy])
    assert moves(balancer, CHECKS) == [None] * (CHECKS - 1) + [(idle, busy)]
    assert moves(balancer, CHECKS - 1) == [None] * (CHECKS - 1)


def test_a_run_that_is_used_between_checks_keeps_its_engines(two):
    idle, busy = two
    balancer = Balancer([idle, busy])
    for _ in range(3 * CHECKS):
        idle.admission.release(idle.admission.admit(1), 1)
        assert balancer.check() is None


def test_a_run_that_refuses_requests_is_busy(tmp_path):
    idle, busy = run_of(tmp_path, "idle", 2), run_of(tmp_path, "busy", 1)
    balancer = Balancer([idle, busy])
    for _ in range(2):
        busy.admission.admit(10**6)
    for _ in range(CHECKS - 1):
        with pytest.raises(RefusedError):
            busy.admission.admit(10**6)
        assert balancer.check() is None
    with pytest.raises(RefusedError):
        busy.admission.admit(10**6)
    assert balancer.check() == (idle, busy)


def test_the_last_engine_stays(two):
    idle, busy = two
    idle.engines.n = 1
    assert moves(Balancer([idle, busy]), 3 * CHECKS) == [None] * 3 * CHECKS


def test_a_run_whose_engines_are_not_full_gets_no_more(two):
    idle, busy = two
    busy.engines.n = 3
    assert moves(Balancer([idle, busy]), 3 * CHECKS) == [None] * 3 * CHECKS


def test_no_engine_moves_if_the_larger_one_does_not_fit(two):
    idle, busy = two
    needed = Balancer([idle, busy])._needed()
    with open(f"{busy.engines.run.path}/weights.safetensors", "wb") as file:
        file.truncate(ENGINE_BYTES)
    more = Balancer([idle, busy])._needed() - needed
    assert moves(Balancer([idle, busy], needed + 2 * more), CHECKS)[-1] is not None
    assert moves(Balancer([idle, busy], needed + 2 * more - 1), CHECKS)[-1] is None


def test_engines_that_do_not_fit_are_not_started(two):
    groups = [run.engines for run in two]
    assert cache_memory_of(groups, None) is None
    left = cache_memory_of(groups, 4 * ENGINE_BYTES)
    assert 0 < left < ENGINE_BYTES / 6
    with pytest.raises(StartError, match=r"--workers 3: the engines need about 1\.0 GiB, and 0\.9 GiB"):
        cache_memory_of(groups, 3 * ENGINE_BYTES)
