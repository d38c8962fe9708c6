"""The position: stopping changes nothing, and changing the budget loses and repeats nothing."""

import json
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.plan import Cursor, Segment, plan, split, updates
from heedful.errors import RequestError

LENGTHS = np.array(
    [[3, 2], [5, 7], [2, 2], [11, 13], [5, 3], [1, 1], [7, 5], [2, 3], [3, 3], [1, 2], [17, 19]]
)


def listed(stream, n):
    return [(samples.tolist(), cursor) for samples, cursor in islice(stream, n)]


def stored(cursor):
    return Cursor.from_dict(json.loads(json.dumps(cursor.to_dict())))


def test_an_epoch_is_its_plan_and_the_next_follows():
    got = listed(updates(LENGTHS, Cursor(), 13, seed=5), 40)
    expected = [
        update.tolist()
        for epoch in range(40)
        for update in plan(LENGTHS, tokens_per_update=13, seed=5, epoch=epoch)
    ]
    assert [samples for samples, _ in got] == expected[:40]


def test_the_position_counts_samples_and_turns_over_at_the_end():
    epoch = plan(LENGTHS, tokens_per_update=13, seed=5, epoch=0)
    got = listed(updates(LENGTHS, Cursor(), 13, seed=5), len(epoch) + 1)
    assert got[0][1] == Cursor(0, (Segment(13, len(epoch[0])),))
    assert got[0][1].samples == len(epoch[0])
    assert got[len(epoch) - 1][1] == Cursor(1)
    assert got[len(epoch)][1].epoch == 1


def test_resuming_anywhere_equals_never_stopping():
    whole = listed(updates(LENGTHS, Cursor(), 13, seed=5), 23)
    for stop in range(22):
        resumed = updates(LENGTHS, stored(whole[stop][1]), 13, seed=5)
        assert listed(resumed, 22 - stop) == whole[stop + 1 :]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 13), st.integers(1, 13)), min_size=1, max_size=37).map(
        np.array
    ),
    stretches=st.lists(st.tuples(st.integers(1, 61), st.integers(1, 7)), min_size=1, max_size=7),
    seed=st.integers(0, 3),
)
def test_any_budgets_and_any_stops_use_each_sample_once_an_epoch(lengths, stretches, seed):
    cursor, used = Cursor(), {}
    for budget, n in stretches:
        epoch = cursor.epoch
        for samples, after in islice(updates(lengths, cursor, budget, seed), n):
            used.setdefault(epoch, []).extend(samples.tolist())
            cursor, epoch = after, after.epoch
            assert sorted(samples.tolist()) == sorted(set(samples.tolist()))
            assert after.samples == len(used.get(epoch, []))
        cursor = stored(cursor)
    for samples, after in updates(lengths, cursor, 17, seed):  # to the end of the epoch
        used.setdefault(cursor.epoch, []).extend(samples.tolist())
        if after.epoch > cursor.epoch:
            break
    for samples in used.values():
        assert sorted(samples) == list(range(len(lengths)))


def test_a_changed_budget_counts_at_once_and_coming_back_is_a_new_stretch():
    _, cursor = listed(updates(LENGTHS, Cursor(), 13, seed=5), 1)[0]
    assert listed(updates(LENGTHS, cursor, 7, seed=5), 0) == []
    samples, cursor = listed(updates(LENGTHS, cursor, 7, seed=5), 1)[0]
    assert LENGTHS[samples, 1].sum() <= 7 or len(samples) == 1
    _, cursor = listed(updates(LENGTHS, cursor, 13, seed=5), 1)[0]
    assert [segment.tokens_per_update for segment in cursor.segments] == [13, 7, 13]


def test_a_record_of_an_older_checkpoint_is_read():
    segment = {"tokens_per_update": 13, "max_rectangle": None, "samples": 7}
    assert Cursor.from_dict({"epoch": 2, "segments": [segment]}) == Cursor(2, (Segment(13, 7),))


def test_ranks_divide_what_one_process_would_use():
    for samples, _ in islice(updates(LENGTHS, Cursor(), 23, seed=5), 9):
        for ranks in (1, 2, 3):
            parts = [split(samples, LENGTHS, ranks)[rank] for rank in range(ranks)]
            assert sorted(np.concatenate(parts).tolist()) == sorted(samples.tolist())


def test_a_position_of_other_data_is_refused():
    _, cursor = listed(updates(LENGTHS, Cursor(), 40, seed=5), 1)[0]
    with pytest.raises(RequestError, match="does not fit this corpus"):
        next(updates(LENGTHS[:3], cursor, 40, seed=5))
    other = Cursor(0, (Segment(40, cursor.samples + 1),))
    with pytest.raises(RequestError, match="does not fit this corpus"):
        next(updates(LENGTHS, other, 40, seed=5))


def test_no_samples_are_an_error():
    with pytest.raises(ValueError, match="no samples"):
        next(updates(LENGTHS[:0], Cursor(), 13, seed=5))
