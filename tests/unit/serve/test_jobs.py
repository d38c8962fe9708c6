from hypothesis import given
from hypothesis import strategies as st

from heedful.serve.jobs import Job, JobQueue

JOBS = st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["a", "b", None])), max_size=30)


@given(JOBS, st.integers(1, 60))
def test_every_job_is_answered_once_with_its_equals_within_the_budget(jobs, budget):
    queue = JobQueue(budget)
    for number, (cost, key) in enumerate(jobs):
        queue.add(Job(number, cost, key))
    done = []
    while len(queue):
        oldest = min({*range(len(jobs))} - {*done})
        batch = queue.next_batch()
        assert batch[0].number == oldest, "the oldest request waits no longer"
        assert len({job.key for job in batch}) == 1
        if len(batch) > 1:
            assert batch[0].key is not None
            assert sum(job.cost for job in batch) <= budget
        same = [number for number, (_, key) in enumerate(jobs) if key == batch[0].key and number not in done]
        if batch[0].key is not None:
            assert [job.number for job in batch] == same[: len(batch)], "none overtakes an equal one"
        done += [job.number for job in batch]
    assert sorted(done) == [*range(len(jobs))]
    assert queue.next_batch() == []


def test_an_abandoned_job_is_not_answered():
    queue = JobQueue(10)
    for number in range(3):
        queue.add(Job(number, 1, "a"))
    assert queue.remove(1)
    assert not queue.remove(1)
    assert [job.number for job in queue.next_batch()] == [0, 2]
