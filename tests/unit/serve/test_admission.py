import math

import pytest

from heedful.serve.admission import START_RATE, Admission, RefusedError


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_requests_and_tokens_are_bounded_and_a_refusal_says_when_to_come_back():
    admission = Admission(most_requests=3, most_seconds=1.0, least_tokens=100, clock=Clock())
    admission.rate = 10.0
    counted = [admission.admit(45) for _ in range(2)]
    with pytest.raises(RefusedError) as refused:
        admission.admit(11)
    assert (refused.value.status, refused.value.reason, refused.value.retry_after) == (429, "tokens", 9)
    counted.append(admission.admit(10))
    with pytest.raises(RefusedError) as refused:
        admission.admit(0)
    assert (refused.value.status, refused.value.reason) == (429, "requests")
    assert counted == [45, 45, 10]
    for tokens in counted:
        admission.release(tokens, 1)
    assert (admission.requests, admission.tokens) == (0, 0)


def test_a_very_long_request_leaves_room_for_short_ones_and_for_no_other_of_its_kind():
    """Limits of a single request are another matter (413); here it would be refused forever."""
    admission = Admission(most_requests=9, most_seconds=1.0, least_tokens=100, clock=Clock())
    admission.rate = 10.0
    counted = [admission.admit(5000), admission.admit(30)]
    with pytest.raises(RefusedError) as refused:
        admission.admit(5000)
    assert refused.value.retry_after == 8
    counted.append(admission.admit(20))
    assert counted == [50, 30, 20]
    with pytest.raises(RefusedError):
        admission.admit(1)
    admission.release(counted[0], 5000)
    assert admission.tokens == 50
    admission.admit(5000)


def test_requests_that_are_computed_at_once_are_let_in_whatever_their_tokens_are():
    admission = Admission(most_requests=9, most_seconds=1.0, least_tokens=100, clock=Clock())
    admission.rate = 10.0
    for _ in range(4):
        admission.admit(500, at_least=4)
    with pytest.raises(RefusedError):
        admission.admit(1, at_least=4)


def test_the_bound_may_change_between_admission_and_release():
    admission = Admission(most_requests=9, most_seconds=1.0, least_tokens=1, clock=Clock())
    admission.rate = 100.0
    long, short = admission.admit(10**6), admission.admit(10)
    admission.rate = 7.0
    admission.release(long, 0)
    assert admission.tokens == short
    admission.release(short, 10)
    assert admission.tokens == 0


@pytest.mark.parametrize("rate", [300.0, 40_000.0])
def test_the_bound_follows_the_measured_rate(rate):
    clock = Clock()
    admission = Admission(most_requests=9, most_seconds=2.0, least_tokens=1, clock=clock)
    assert admission.rate == START_RATE
    for _ in range(40):
        counted = admission.admit(round(rate))
        clock.now += 1.0
        admission.release(counted, round(rate))
        clock.now += 50.0  # in which it has nothing to do, and is not slower for it
    assert admission.rate == pytest.approx(rate, rel=1e-3)
    assert admission.most_tokens == pytest.approx(2 * rate, rel=1e-2)


def test_what_was_abandoned_does_not_count_for_the_rate():
    clock = Clock()
    admission = Admission(most_requests=9, most_seconds=2.0, least_tokens=1, clock=clock)
    counted = admission.admit(10**9)
    clock.now += 1.0
    admission.release(counted, 0)
    assert admission.rate == START_RATE


def test_the_time_that_requests_take_may_be_without_bound():
    """As of explanations, which are bounded by their number."""
    admission = Admission(most_requests=2, most_seconds=math.inf, least_tokens=0, clock=Clock())
    admission.admit(10**6)
    admission.admit(10**6)
    with pytest.raises(RefusedError) as refused:
        admission.admit(1)
    assert refused.value.reason == "requests"
