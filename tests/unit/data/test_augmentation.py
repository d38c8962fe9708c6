"""Changed pictures: each a function of seed, epoch and sample, and each change what it says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.augmentation import Augmentation, augmented, uniforms

N, C, H, W = 101, 2, 7, 11
PIXELS = np.random.default_rng(2).integers(1, 256, (N, C, H, W), dtype=np.uint8)
FILL = np.zeros(C, dtype=np.uint8)  # no pixel has this level


def changed(pixels=PIXELS, samples=range(N), seed=5, epoch=3, **how):
    samples = list(samples)
    return augmented(pixels, samples, Augmentation(**how), seed=seed, epoch=epoch, fill=FILL)


ALL = {"shift": 2, "flip": True, "erase": 0.5}


def test_a_picture_changes_alike_whatever_stands_beside_it():
    whole = changed(**ALL)
    order = np.random.default_rng(0).permutation(N)[:17]
    assert np.array_equal(changed(PIXELS[order], order, **ALL), whole[order])
    assert np.array_equal(changed(PIXELS[4:5], [4], **ALL), whole[4:5])


def test_every_epoch_and_seed_changes_them_in_another_way():
    whole = changed(**ALL)
    for other in (changed(epoch=4, **ALL), changed(seed=6, **ALL)):
        alike = (other == whole).all(axis=(1, 2, 3)).mean()
        assert alike < 0.3
    assert np.array_equal(changed(**ALL), whole)


def test_nothing_asked_for_is_nothing_done():
    before = PIXELS.copy()
    assert np.array_equal(changed(), PIXELS)
    changed(**ALL)
    assert np.array_equal(PIXELS, before)


def test_a_flip_exchanges_left_and_right_in_half_of_the_cases():
    flipped = changed(flip=True)
    mirrored = (flipped == PIXELS[..., ::-1]).all(axis=(1, 2, 3))
    assert (mirrored | (flipped == PIXELS).all(axis=(1, 2, 3))).all()
    assert 30 < mirrored.sum() < 71


def test_a_shift_moves_whole_pictures_and_continues_their_edges():
    moved = changed(shift=2)
    padded = np.pad(PIXELS, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="edge")
    steps = set()
    for picture, wide in zip(moved, padded, strict=True):
        found = [
            (y, x)
            for y in range(5)
            for x in range(5)
            if np.array_equal(picture, wide[:, y : y + H, x : x + W])
        ]
        assert len(found) == 1
        steps |= set(found)
    assert len(steps) > 20
    assert {y for y, _ in steps} == {x for _, x in steps} == set(range(5))


def test_an_erased_part_is_a_rectangle_of_bounded_size():
    erased = (changed(erase=1.0) == 0).all(axis=1)
    assert np.array_equal(erased, (changed(erase=1.0) == 0).any(axis=1))
    for one in erased:
        rows, columns = np.flatnonzero(one.any(1)), np.flatnonzero(one.any(0))
        assert one[np.ix_(rows, columns)].all()
        assert (np.diff(rows) == 1).all()
        assert (np.diff(columns) == 1).all()
        # Rounded sides make it a little larger or smaller than asked for.
        assert 1 <= one.sum() <= 0.5 * H * W
    assert 0.05 < erased.mean() < 0.3
    untouched = (changed(erase=0.25) == PIXELS).all(axis=(1, 2, 3))
    assert 60 < untouched.sum() < 92


def test_what_is_erased_takes_the_level_of_its_channel():
    fill = np.array([3, 200], dtype=np.uint8)
    blank = np.full((1, C, H, W), 77, dtype=np.uint8)
    after = augmented(blank, [0], Augmentation(erase=1.0), seed=0, epoch=0, fill=fill)
    assert set(np.unique(after[0, 0])) == {3, 77}
    assert set(np.unique(after[0, 1])) == {77, 200}


def test_the_random_numbers_are_those_of_a_plain_loop():
    key = int(np.random.SeedSequence([5, 3], spawn_key=(3,)).generate_state(1, np.uint64)[0])
    mask = 2**64 - 1

    def one(place):
        z = (key + place * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        return ((z ^ z >> 31) >> 11) * 2.0**-53

    expected = [[one(sample * 4 + j + 1) for j in range(4)] for sample in (0, 17, 2**40)]
    assert uniforms(5, 3, [0, 17, 2**40], 4).tolist() == expected


@given(st.integers(0, 2**31), st.integers(0, 10_000))
def test_the_random_numbers_are_uniform(seed, epoch):
    found = uniforms(seed, epoch, range(500), 8)
    assert found.min() >= 0
    assert found.max() < 1
    assert found.mean() == pytest.approx(0.5, abs=0.03)
    assert np.histogram(found, 4, (0, 1))[0].min() > 800
