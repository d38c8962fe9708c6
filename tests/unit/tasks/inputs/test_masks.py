"""Masks: numbers and their classes, the geometry of their images, files and runs."""

import io
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heedful.data.images import UNSCORED, LazyImage
from heedful.errors import DataError
from heedful.tasks.inputs.masks import (
    PALETTE,
    MaskClasses,
    as_png,
    check_size,
    collect_numbers,
    restored,
    runs_of,
)

MASK = LazyImage(np.zeros((2, 2), np.uint8), "m.png")


def array(*rows):
    return np.array(rows, dtype=np.uint8)


# Classes ---------------------------------------------------------------------------------------------------


def test_named_labels_have_the_numbers_from_0_on():
    classes = MaskClasses.of(("sky", "road", "car"), ["sky", "road", "car"], 255)
    numbers = array([2, 0], [255, 1])
    indices = classes.indices(numbers, MASK)
    assert indices.tolist() == [[2, 0], [UNSCORED, 1]]
    assert np.array_equal(classes.numbers_of(indices), numbers)


def test_numbers_without_names_are_collected_and_keep_their_values():
    masks = [array([7, 7], [255, 30]), array([7, 200], [9, 9])]
    labels = collect_numbers(masks, 255)
    assert labels == ("7", "9", "30", "200")
    classes = MaskClasses.of(labels, None, 255)
    assert classes.indices(masks[0], MASK).tolist() == [[0, 0], [UNSCORED, 2]]
    for mask in masks:
        assert np.array_equal(classes.numbers_of(classes.indices(mask, MASK)), mask)


def test_any_number_may_be_the_one_that_is_not_scored_or_none():
    assert collect_numbers([array([0, 1, 255])], None) == ("0", "1", "255")
    classes = MaskClasses.of(("other", "wall"), ["other", "wall"], 0)
    assert classes.indices(array([0, 1]), MASK).tolist() == [[UNSCORED, 1]]
    assert classes.numbers_of(array([UNSCORED, 1])).tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (["a", "b"], r"has no label: task.labels has 2 labels, for 0 to 1; add one, or set task.ignore=2 to"),
        (None, "does not occur in the training masks; list all labels in task.labels, or set task.ignore=2"),
    ],
)
def test_a_number_without_a_label_is_named_with_its_file(named, message):
    classes = MaskClasses.of(("0", "1"), named, 255)
    with pytest.raises(DataError, match=rf"m.png: the class number 2 \(2 pixels\) {message}"):
        classes.indices(array([2, 1], [5, 2]), MASK)


def test_one_number_is_no_task():
    with pytest.raises(DataError, match=r"at least two class numbers are needed in masks, got \[3\]$"):
        collect_numbers([array([3, 3])], 255)
    with pytest.raises(
        DataError,
        match=r"got \[0\], and 255, which is not scored \(if it is a class, set task.ignore to null",
    ):
        collect_numbers([array([0, 255])], 255)
    with pytest.raises(DataError, match="at most 255 class numbers, got 256"):
        collect_numbers([np.arange(256, dtype=np.uint8)[None]], None)


# Geometry --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    st.integers(1, 9),
    st.integers(0, 12),
    st.integers(0, 7),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_a_restored_mask_is_read_back_as_it_was(n, more, longer, is_wide, seed):
    """Of any image that has at least as many pixels as the model reads."""
    indices = np.random.default_rng(seed).integers(0, 5, (n, n)).astype(np.uint8)
    side = n + more
    size = (side + longer, side) if is_wide else (side, side + longer)
    full = restored(indices, size)
    assert full.shape == size[::-1]
    assert np.array_equal(LazyImage(full, "m").numbers(n), indices)
    assert (full != UNSCORED).sum() == side**2


@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 20))
def test_every_image_has_a_mask_of_its_size(n, width, height):
    full = restored(np.ones((n, n), np.uint8), (width, height))
    assert full.shape == (height, width)
    assert (full == 1).sum() == min(width, height) ** 2


def test_a_restored_mask_is_where_the_image_was_read():
    """A bright half of an image and its class have the same border."""
    pixels = np.zeros((40, 60), np.uint8)
    pixels[:, 33:] = 255
    read = LazyImage(pixels, "i").pixels(20, 1)[0]
    full = restored((read > 127).astype(np.uint8), (60, 40))
    inside = full != UNSCORED
    assert inside.sum() == 40**2
    assert (full[inside] != (pixels[inside] > 0)).mean() < 0.03


def test_a_mask_must_have_the_size_of_its_image():
    image = LazyImage(np.zeros((4, 6), np.uint8), "i.jpg")
    check_size(image, LazyImage(np.zeros((4, 6), np.uint8), "m.png"))
    with pytest.raises(
        DataError, match=r"m.png: expected 6 x 4 pixels, the size of i.jpg, got 4 x 6; resize"
    ):
        check_size(image, LazyImage(np.zeros((6, 4), np.uint8), "m.png"))


# Files and runs --------------------------------------------------------------------------------------------


def test_a_mask_is_a_palette_image_whose_indices_are_its_numbers():
    numbers = np.random.default_rng(0).integers(0, 256, (7, 11)).astype(np.uint8)
    content = as_png(numbers)
    image = Image.open(io.BytesIO(content))
    assert (image.format, image.mode, image.size) == ("PNG", "P", (11, 7))
    assert np.array_equal(np.asarray(image), numbers)
    assert np.array_equal(LazyImage(content, "m").numbers(), numbers)


def test_colours_are_those_of_pascal_voc():
    """Of its development kit: background, aeroplane, bicycle, person, TV, and the borders of objects."""
    colours = {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0), 15: (192, 128, 128), 20: (0, 64, 128)}
    colours[255] = (224, 224, 192)
    assert len(PALETTE) == 3 * 256
    for number, colour in colours.items():
        assert tuple(PALETTE[3 * number : 3 * number + 3]) == colour


@given(st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), min_size=1, max_size=4))
def test_runs_are_the_numbers_row_by_row(rows):
    runs = runs_of(array(*rows))
    assert [number for number, length in runs for _ in range(length)] == [n for row in rows for n in row]
    assert all(one[0] != other[0] for one, other in pairwise(runs))
