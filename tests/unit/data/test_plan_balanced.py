"""Balanced sampling: equal classes in every epoch, rounds through each class, and positions as without it."""

import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.plan import BalancedSampling, Cursor, plan, split, updates

classes_of_samples = st.lists(st.integers(0, 4), min_size=1, max_size=61).map(np.array)
CLASSES = np.repeat([0, 1, 3], [53, 7, 1])
LENGTHS = np.random.default_rng(0).integers(1, 13, len(CLASSES))


def stored(cursor):
    return Cursor.from_dict(json.loads(json.dumps(cursor.to_dict())))


@settings(max_examples=100, deadline=None)
@given(classes=classes_of_samples, seed=st.integers(0, 3), epoch=st.integers(0, 50))
def test_each_class_that_occurs_is_drawn_equally_often(classes, seed, epoch):
    drawn = Counter(classes[BalancedSampling(classes, seed)(epoch)].tolist())
    assert set(drawn) == set(classes.tolist())
    assert set(drawn.values()) == {-(-len(classes) // len(drawn))}


@settings(max_examples=100, deadline=None)
@given(classes=classes_of_samples, seed=st.integers(0, 3), n_epochs=st.integers(1, 20))
def test_no_sample_is_drawn_again_before_all_others_of_its_class(classes, seed, n_epochs):
    """From the first epoch on, the numbers of draws of two samples of a class differ by at most one."""
    sampling = BalancedSampling(classes, seed)
    counts = np.bincount(np.concatenate([sampling(e) for e in range(n_epochs)]), minlength=len(classes))
    for number in set(classes.tolist()):
        of_class = counts[classes == number]
        assert of_class.max() - of_class.min() <= 1


def test_every_sample_of_a_frequent_class_is_seen_over_epochs():
    sampling = BalancedSampling(CLASSES, seed=1)
    seen = [set(sampling(epoch).tolist()) for epoch in range(3)]
    assert len(seen[0]) < len(CLASSES)
    assert set.union(*seen) == set(range(len(CLASSES)))  # 53 samples, 21 draws in an epoch


def test_it_depends_on_seed_and_epoch_alone():
    def drawn(seed, epoch):
        return tuple(BalancedSampling(CLASSES, seed)(epoch).tolist())

    first = drawn(1, 2)
    np.random.seed(3)
    assert drawn(1, 2) == first
    assert len({first, drawn(1, 3), drawn(2, 2)}) == 3


def test_equal_classes_are_what_they_are_without_it():
    assert BalancedSampling(np.arange(21) % 3, 5)(4).tolist() == list(range(21))


def test_an_epoch_of_updates_is_the_plan_of_its_samples():
    sampling = BalancedSampling(CLASSES, 5)
    found = iter(updates(LENGTHS, Cursor(), 29, 5, sampling))
    for epoch in range(4):
        expected = plan(LENGTHS, tokens_per_update=29, seed=5, epoch=epoch, remaining=sampling(epoch))
        for update in expected:
            samples, cursor = next(found)
            assert samples.tolist() == update.tolist()
            assert len(samples) == 1 or LENGTHS[samples].sum() <= 29
        assert cursor == Cursor(epoch + 1)
        assert sorted(np.concatenate(expected).tolist()) == sampling(epoch).tolist()


def test_resuming_anywhere_equals_never_stopping():
    sampling = BalancedSampling(CLASSES, 5)
    whole = [*islice(updates(LENGTHS, Cursor(), 29, 5, sampling), 50)]
    assert whole[-1][1].epoch > 1
    for stop in range(49):
        resumed = islice(updates(LENGTHS, stored(whole[stop][1]), 29, 5, sampling), 49 - stop)
        expected = [(samples.tolist(), cursor) for samples, cursor in whole[stop + 1 :]]
        assert [(samples.tolist(), cursor) for samples, cursor in resumed] == expected


@settings(max_examples=40, deadline=None)
@given(
    classes=classes_of_samples,
    budgets=st.lists(st.tuples(st.integers(1, 61), st.integers(1, 5)), min_size=1, max_size=5),
)
def test_another_budget_neither_repeats_nor_skips_a_draw(classes, budgets):
    lengths, sampling = np.arange(len(classes)) % 11 + 1, BalancedSampling(classes, 2)
    cursor, used = Cursor(), {}
    for budget, n in [*budgets, (17, 40)]:
        for samples, after in islice(updates(lengths, cursor, budget, 2, sampling), n):
            used.setdefault(cursor.epoch, []).extend(samples.tolist())
            cursor = after
        cursor = stored(cursor)
    for epoch in range(cursor.epoch):
        assert sorted(used[epoch]) == sampling(epoch).tolist()


@pytest.mark.parametrize("n_parts", [1, 2, 3, 4])
def test_ranks_divide_what_one_process_would_use(n_parts):
    """Also samples that are repeated in an update: the parts together are the update, for any number."""
    for samples, _ in islice(updates(LENGTHS, Cursor(), 97, 5, BalancedSampling(CLASSES, 5)), 7):
        parts = split(samples, LENGTHS, n_parts)
        assert sorted(np.concatenate(parts).tolist()) == sorted(samples.tolist())
        assert all(len(part) for part in parts)
