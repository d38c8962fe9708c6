"""One run that many threads use at the same time answers each of them as it would alone."""

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from tiers import sampled

from heedful.api.run import load
from heedful.data.sources import LocatedRow, Location
from heedful.errors import RequestError
from heedful.explain.attention_sites import Selection
from heedful.explain.capture import EVERY_MAP, explain_input
from heedful.explain.drawing.heat_map import figure_of, save
from heedful.explain.json_format import json_pieces
from heedful.explain.page.build import page
from heedful.explain.views import ALL
from heedful.tasks.evaluation import EvaluationOptions

from .conftest import BLIND, RUNS

N_THREADS = 8
DRAWN = ("translation", "images")
"""Runs of which images are saved too, one thread after the other."""

KEPT = ("translation", "language model", "masked", "answers", "images")
"""For `make test`; the whole sweep runs all."""

SWITCH = 1e-5
"""Seconds after which Python lets another thread run: 5e-3 by itself, in which a tiny model is done."""


def jobs(run, name, given, folder):
    """What users do with a run: functions of it that return comparable values."""
    numbers = itertools.count()
    rows = [LocatedRow(dict(row), Location("rows", number)) for number, row in enumerate(RUNS[name][1], 1)]

    def predicted():
        return [each.to_dict() for each in run.predict([given, given])]

    def streamed():
        try:
            return list(run.stream(given, beam=1))
        except RequestError as error:
            return str(error)

    def scored():
        found = run.task.evaluate(run.model, run.predict, "own", iter(rows), EvaluationOptions())
        return found.to_dict(), [*found.rows()]

    def explained():
        seen = explain_input(
            run, given, maps=Selection(kinds=[]) if name in BLIND else EVERY_MAP, views=[ALL]
        )
        return "".join(json_pieces(seen)), page(seen)

    def drawn():
        path = folder / f"{next(numbers)}.svg"
        save(figure_of(explain_input(run, given)), path)
        return path.read_bytes()

    return [predicted, streamed, scored, explained, *([drawn] if name in DRAWN else [])]


@pytest.fixture
def quick_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(RUNS, KEPT))
def test_eight_threads_get_what_one_gets(name, explained, tmp_path, quick_switches):
    alone, given = explained(name)
    expected = [job() for job in jobs(alone, name, given, tmp_path)]
    shared = load(alone.folder.path, device="cpu")  # nothing is prepared in it yet
    work, barrier = jobs(shared, name, given, tmp_path), Barrier(N_THREADS)

    def use(thread):
        barrier.wait()
        order = [(thread + i) % len(work) for i in range(len(work))]
        return {i: work[i]() for i in order}

    with ThreadPoolExecutor(N_THREADS) as pool:
        for found in pool.map(use, range(N_THREADS)):
            for i, value in found.items():
                assert value == expected[i], work[i].__name__
