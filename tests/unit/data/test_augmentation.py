"""Changed images: each a function of seed, epoch and sample, and each change what it says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heedful.data.augmentation import (
    CROPS,
    Augmentation,
    Crop,
    augmented,
    augmented_with_masks,
    resized_crops,
    uniforms,
)

N, C, H, W = 101, 2, 7, 11
PIXELS = np.random.default_rng(2).integers(1, 256, (N, C, H, W), dtype=np.uint8)
FILL = np.zeros(C, dtype=np.uint8)  # no pixel has this level


def changed(pixels=PIXELS, samples=range(N), seed=5, epoch=3, **how):
    samples = list(samples)
    return augmented(pixels, samples, Augmentation(**how), seed=seed, epoch=epoch, fill=FILL)


ALL = {"crop": Crop(area=[0.3, 1.0]), "shift": 2, "flip": True, "erase": 0.5}


def test_augmentation_does_not_depend_on_the_rest_of_the_batch():
    whole = changed(**ALL)
    order = np.random.default_rng(0).permutation(N)[:17]
    assert np.array_equal(changed(PIXELS[order], order, **ALL), whole[order])
    assert np.array_equal(changed(PIXELS[4:5], [4], **ALL), whole[4:5])


def test_epochs_and_seeds_change_the_augmentation():
    whole = changed(**ALL)
    for other in (changed(epoch=4, **ALL), changed(seed=6, **ALL)):
        alike = (other == whole).all(axis=(1, 2, 3)).mean()
        assert alike < 0.3
    assert np.array_equal(changed(**ALL), whole)


def test_the_default_changes_nothing():
    before = PIXELS.copy()
    assert np.array_equal(changed(), PIXELS)
    changed(**ALL)
    assert np.array_equal(PIXELS, before)


def test_a_flip_exchanges_left_and_right_in_half_of_the_cases():
    flipped = changed(flip=True)
    mirrored = (flipped == PIXELS[..., ::-1]).all(axis=(1, 2, 3))
    assert (mirrored | (flipped == PIXELS).all(axis=(1, 2, 3))).all()
    assert 30 < mirrored.sum() < 71


def test_a_shift_moves_whole_images_and_continues_their_edges():
    moved = changed(shift=2)
    padded = np.pad(PIXELS, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="edge")
    steps = set()
    for image, wide in zip(moved, padded, strict=True):
        found = [
            (y, x) for y in range(5) for x in range(5) if np.array_equal(image, wide[:, y : y + H, x : x + W])
        ]
        assert len(found) == 1
        steps |= set(found)
    assert len(steps) > 20
    assert {y for y, _ in steps} == {x for _, x in steps} == set(range(5))


# A ramp across and one down, of 8 levels a pixel: they tell where a piece was cut from.
SIDE, STEP = 32, 8
RAMPS = np.stack(np.broadcast_arrays(np.arange(SIDE), np.arange(SIDE)[:, None])).astype(np.uint8) * STEP


def found(n, **how):
    """Begins and lengths, across and down, as shares of the image: read off the ramps, ``[n, 2]`` each."""
    cropped = augmented(
        np.broadcast_to(RAMPS, (n, *RAMPS.shape)),
        range(n),
        Augmentation(crop=Crop(**how)),
        seed=5,
        epoch=3,
        fill=FILL,
    )
    lines = np.stack([cropped[:, 0, SIDE // 2], cropped[:, 1, :, SIDE // 2]], axis=1) / STEP
    inner = np.arange(3, SIDE - 3)
    slope, place = np.polyfit(inner, lines[:, :, inner].reshape(2 * n, -1).T, 1).reshape(2, n, 2)
    return (place - slope / 2 + 0.5) / SIDE, slope


def farthest_from_even(numbers):
    """Kolmogorov and Smirnov's distance of numbers from the even distribution over [0, 1], times √n."""
    n = len(numbers)
    return np.abs(np.sort(numbers) - (np.arange(n) + 0.5) / n).max() * np.sqrt(n)


def test_the_share_of_a_piece_is_drawn_evenly():
    for least, most in ((0.08, 1.0), (0.2, 0.6)):
        begins, sides = found(3000, area=[least, most])
        share = (sides.prod(1) - least) / (most - least)
        assert share.min() > -0.01 * most / (most - least)
        assert share.max() < 1 + 0.01 * most / (most - least)
        assert farthest_from_even(share) < 1.63  # which one of a hundred even samples exceeds
        assert begins.min() > -0.01
        assert (begins + sides).max() < 1.01


def test_the_shape_of_a_piece_is_drawn_evenly_on_a_logarithmic_scale():
    """As far as it fits; what has less than 3/4 of the image fits in every shape."""
    _, sides = found(3000, area=[0.2, 0.74])
    shape = np.log(sides[:, 0] / sides[:, 1]) / np.log(4 / 3)
    assert np.abs(shape).max() < 1.05
    assert farthest_from_even((shape + 1) / 2) < 1.63
    assert abs(np.corrcoef(shape, sides.prod(1))[0, 1]) < 0.06
    _, sides = found(500, area=[0.9, 0.9], aspect=[0.5, 2.0])
    shape = sides[:, 0] / sides[:, 1]
    assert 0.89 < shape.min() < 0.91
    assert 1.09 < shape.max() < 1.13
    _, sides = found(500, area=[0.5, 0.5], aspect=[1.2, 1.5])
    shape = sides[:, 0] / sides[:, 1]
    assert 1.18 < shape.min() < 1.22
    assert 1.48 < shape.max() < 1.52


def test_the_place_of_a_piece_is_drawn_evenly():
    begins, sides = found(3000, area=[0.1, 0.5])
    places = begins / (1 - sides)
    for axis in (0, 1):
        assert farthest_from_even(places[:, axis]) < 1.63
    assert np.abs(np.corrcoef([*places.T, *sides.T])[:2, 2:]).max() < 0.06
    assert abs(np.corrcoef(places.T)[0, 1]) < 0.06


def test_a_piece_is_what_pillow_makes_of_that_box():
    draw = np.random.default_rng(4)
    sides = draw.uniform(0.1, 1, (N, 2))
    begins = draw.uniform(0, 1, (N, 2)) * (1 - sides)
    sides[0], begins[0] = 1, 0
    ours = resized_crops(PIXELS, begins, sides)
    assert np.array_equal(ours[0], PIXELS[0])
    for image, mine, begin, side in zip(PIXELS, ours, begins * [H, W], sides * [H, W], strict=True):
        (top, left), (bottom, right) = begin, begin + side
        box = (left, top, min(right, W), min(bottom, H))
        for plane, own in zip(image, mine, strict=True):
            theirs = Image.fromarray(plane).resize((W, H), Image.Resampling.BILINEAR, box=box)
            # It rounds between the two directions as well.
            assert np.abs(own.astype(int) - np.asarray(theirs)).max() <= 1


def test_a_crop_does_not_change_other_random_numbers():
    others = {key: value for key, value in ALL.items() if key != "crop"}
    whole = Crop(area=[1.0, 1.0])
    assert np.array_equal(changed(**others, crop=whole), changed(**others))
    assert not np.array_equal(uniforms(5, 3, range(9), 4, CROPS), uniforms(5, 3, range(9), 4))


@pytest.mark.parametrize(
    "how, message",
    [
        ({"area": [0.5, 0.2]}, r"area=\[0.5, 0.2\]: the smaller number must come first"),
        ({"aspect": [2, 0.5]}, r"aspect=\[2, 0.5\]: the smaller number must come first"),
        ({"area": [0.0, 1.0]}, "greater than 0"),
        ({"area": [0.5, 1.5]}, "less than or equal to 1"),
        ({"aspect": [-1.0, 1.0]}, "greater than 0"),
        ({"area": [0.5]}, "at least 2 items"),
        ({"area": [0.5, 0.6, 0.7]}, "at most 2 items"),
        (
            {"area": [0.2, 0.8], "aspect": [1.5, 2.0]},
            r"a crop of area 0.8 and aspect .* does not fit into a square",
        ),
        (
            {"area": [0.2, 0.8], "aspect": [0.5, 0.7]},
            r"a crop of area 0.8 and aspect .* does not fit into a square",
        ),
    ],
)
def test_impossible_crops_are_refused(how, message):
    with pytest.raises(ValueError, match=message):
        Crop(**how)


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


# Masks -----------------------------------------------------------------------------------------------------

ERASED = 255
# Each class has a level of its own in both channels of the image.
MASKS = np.random.default_rng(3).integers(0, 5, (N, H, W), dtype=np.uint8)
PAINTED = np.stack([40 * MASKS + 7, 200 - 40 * MASKS], axis=1).astype(np.uint8)


def changed_together(pixels=PAINTED, masks=MASKS, **how):
    return augmented_with_masks(
        pixels, masks, range(N), Augmentation(**how), seed=5, epoch=3, fill=FILL, erased=ERASED
    )


@pytest.mark.parametrize("how", [{}, {"shift": 2}, {"flip": True}, {"erase": 1.0}, ALL])
def test_images_with_masks_are_changed_like_those_without(how):
    before = MASKS.copy()
    pixels, masks = changed_together(**how)
    assert np.array_equal(pixels, changed(PAINTED, **how))
    assert masks.shape == MASKS.shape
    assert np.array_equal(MASKS, before)


@pytest.mark.parametrize("how", [{"shift": 2}, {"flip": True}, {"erase": 0.7, "shift": 2, "flip": True}])
def test_a_pixel_and_its_class_move_together_and_what_is_erased_has_no_class(how):
    pixels, masks = changed_together(**how)
    erased = (pixels == 0).all(1)
    assert np.array_equal(erased, masks == ERASED)
    assert erased.any() == ("erase" in how)
    kept = masks[~erased].astype(int)
    assert np.array_equal(pixels[:, 0][~erased], 40 * kept + 7)
    assert np.array_equal(pixels[:, 1][~erased], 200 - 40 * kept)
    assert not np.array_equal(masks, MASKS)


def test_a_crop_of_a_mask_has_the_class_of_the_nearest_pixel_of_the_same_crop():
    """The ramps are in the image the numbers of columns and rows, so they tell what each pixel was."""
    pixels = np.broadcast_to(RAMPS, (N, *RAMPS.shape))
    for axis in (0, 1):
        masks = np.broadcast_to(RAMPS[axis] // STEP, (N, SIDE, SIDE))
        images, cropped = changed_together(pixels, masks, crop=Crop(area=[0.2, 0.9]))
        places = images[:, axis] / STEP
        assert np.abs(places - cropped).max() <= 0.5 + 0.5 / STEP
        assert len(np.unique(cropped)) == SIDE
