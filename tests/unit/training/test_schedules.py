import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from heedful.errors import RequestError
from heedful.training.schedules import (
    Constant,
    Cosine,
    CosineConfig,
    InverseSqrt,
    Linear,
    LinearConfig,
    Plateau,
    ScheduleConfig,
    Warmup,
    build_schedule,
    is_better,
)

READ = TypeAdapter(ScheduleConfig).validate_python


def test_warmup_peaks_where_the_paper_says():
    schedule = Warmup(512)
    assert schedule.rate(4000) == pytest.approx(6.987712429686844e-4, rel=1e-12)
    assert schedule.rate(1) == pytest.approx(1.746928107421711e-7, rel=1e-12)
    assert schedule.rate(16000) == pytest.approx(schedule.rate(4000) / 2, rel=1e-12)
    assert max(range(1, 20001), key=schedule.rate) == 4000


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.integers(1, 4096))
def test_warmup_is_the_smaller_of_the_two_attempts(step, warmup, d_model):
    first, second = 1 / math.sqrt(step), step / warmup**1.5
    wanted = 2.0 * min(first, second) / math.sqrt(d_model)
    assert Warmup(d_model, warmup, 2.0).rate(step) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    "schedule, rates",
    [
        (InverseSqrt(0.8, 4, 0.4), {1: 0.5, 2: 0.6, 4: 0.8, 16: 0.4, 64: 0.2}),
        (Constant(0.3), {1: 0.3, 1000: 0.3}),
        (Constant(0.3, 3), {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.3}),
        (Linear(0.8, 10, 2, 0.0), {1: 0.4, 2: 0.8, 6: 0.4, 10: 0.0, 11: 0.0}),
        (Linear(0.8, 10, 2, 0.4), {2: 0.8, 6: 0.6, 10: 0.4, 99: 0.4}),
        (Cosine(0.8, 10, 2, 0.0), {1: 0.4, 2: 0.8, 6: 0.4, 10: 0.0, 11: 0.0}),
        (Cosine(1.0, 7, 1, 0.2), {1: 1.0, 3: 0.8, 4: 0.6, 5: 0.4, 7: 0.2, 8: 0.2}),
    ],
)
def test_rates_by_hand(schedule, rates):
    assert {step: schedule.rate(step) for step in rates} == pytest.approx(rates, rel=1e-12, abs=1e-15)


def test_plateau_reduces_after_more_than_patience_bad_ones_and_counts_anew():
    schedule = Plateau(0.8, 0.5, 1, "lower", floor=0.15)
    seen = []
    for metric in [5.0, 4.0, 4.0, 4.5, 6.0, 3.0, float("nan"), 3.5, 9.0, 9.0, 9.0, 9.0]:
        schedule.observe(metric)
        seen.append(schedule.rate(7))
    assert seen == [0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.15, 0.15, 0.15]


def test_plateau_goes_on_from_its_state():
    def observed(metrics, schedule):
        rates = []
        for metric in metrics:
            schedule.observe(metric)
            rates.append(schedule.rate(9))
        return rates

    metrics = [1.0, 2.0, 1.5, 1.2, 3.0, 2.9, 2.8, 4.0]
    whole = observed(metrics, Plateau(1.0, 0.5, 1, "higher"))
    for cut in range(len(metrics)):
        first = Plateau(1.0, 0.5, 1, "higher")
        start = observed(metrics[:cut], first)
        second = Plateau(1.0, 0.5, 1, "higher")
        second.load_state_dict(first.state_dict())
        assert start + observed(metrics[cut:], second) == whole


def test_better():
    assert is_better(1.0, None, "lower")
    assert is_better(1.0, 2.0, "lower")
    assert is_better(2.0, 1.0, "higher")
    assert not is_better(1.0, 1.0, "lower")
    assert not is_better(2.0, 1.0, "lower")
    assert not is_better(math.nan, None, "lower")
    assert not is_better(-math.inf, 1.0, "lower")


@pytest.mark.parametrize("kind", ["warmup", "inverse-sqrt", "cosine", "linear", "constant", "plateau"])
def test_every_kind_is_built_and_only_plateau_observes(kind):
    schedule = build_schedule(READ({"kind": kind}), d_model=512, max_updates=100)
    assert schedule.rate(1) >= 0
    assert schedule.rate(50) > 0
    rate = schedule.rate(50)
    for metric in range(9):  # no improvement after the first
        schedule.observe(float(metric))
    assert (schedule.rate(50) < rate) == bool(schedule.state_dict()) == (kind == "plateau")


def test_the_built_schedule_has_the_configured_values():
    read = READ({"kind": "warmup", "factor": 2, "warmup": 8})
    assert build_schedule(read, d_model=16) == Warmup(16, 8, 2.0)
    assert build_schedule(CosineConfig(peak=0.1, warmup=2), d_model=1, max_updates=9) == Cosine(0.1, 9, 2)
    assert build_schedule(LinearConfig(peak=0.1, updates=5), d_model=1, max_updates=9) == Linear(0.1, 5)


def test_errors():
    with pytest.raises(
        RequestError, match=r"schedule\.updates, training\.max_updates or training\.max_epochs"
    ):
        build_schedule(CosineConfig(), d_model=8)
    with pytest.raises(
        RequestError, match=r"schedule\.warmup=9 must be smaller than training\.max_updates=9"
    ):
        build_schedule(LinearConfig(warmup=9), d_model=8, max_updates=9)
    with pytest.raises(ValidationError):
        READ({"kind": "warmup", "peak": 0.1})
    with pytest.raises(ValidationError):
        READ({"kind": "plateau", "factor": 1.0})


def test_a_warm_up_may_be_a_share_of_all_updates():
    share = READ({"kind": "cosine", "peak": 0.1, "warmup": 0.25})
    assert build_schedule(share, d_model=1, max_updates=40) == Cosine(0.1, 40, 10)
    assert build_schedule(share, d_model=1, max_updates=4) == Cosine(0.1, 4, 1)
    linear = READ({"kind": "linear", "peak": 0.1, "warmup": 0.25, "updates": 80})
    assert build_schedule(linear, d_model=1, max_updates=40) == Linear(0.1, 80, 20)
    for wrong in (1.0, 1.5, 0.0, -0.1):
        with pytest.raises(ValidationError):
            READ({"kind": "cosine", "warmup": wrong})
