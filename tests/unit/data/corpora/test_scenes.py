"""The drawn scenes: read back from their pixels, they say what their captions say."""

import math
from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest
from scipy import ndimage

from heedful.data.corpora import open_corpus
from heedful.data.corpora.scenes import (
    CLASSES,
    COLOURS,
    HELD_OUT,
    N_IMAGES,
    SHAPES,
    Box,
    Group,
    Scene,
    caption,
    draw_shape,
    mask,
    masked_rows,
    pixels,
    relation,
    rows,
    scene,
    split_of,
)

SOME = 120


def head(split, n=SOME, seed=0):
    return list(islice(rows(split, seed), n))


# What is on an image, found without knowing how it was drawn -----------------------------------------------


def shape_of(mask):
    """By its corners: a square has all, a triangle the lower ones; a cross leaves more free than a circle."""
    if mask[0, 0] and mask[-1, -1]:
        return "square"
    if mask[-1, 0] and mask[-1, -1]:
        return "triangle"
    return "circle" if mask[len(mask) // 6, len(mask) // 6] else "cross"


def things_of(pixels):
    """Size, colour and shape of each thing, with the rows and columns that it fills."""
    apart = abs(pixels.astype(int) - pixels[:, :1, :1]).max(0)
    labels, _ = ndimage.label(apart > 60, np.ones((3, 3)))
    for number, (down, across) in enumerate(ndimage.find_objects(labels), 1):
        mask = labels[down, across] == number
        pure = pixels[:, down, across][:, mask][:, apart[down, across][mask].argmax()].astype(int)
        distances = {c: abs(pure - rgb).sum() for c, rgb in COLOURS.items()}
        size = "small" if mask.shape[1] < 10 else "large"
        what = size, min(distances, key=distances.get), shape_of(mask)
        yield what, (down.start, down.stop, across.start, across.stop)


def described(pixels):
    """The caption that this image should have."""
    groups = {}
    for what, box in things_of(pixels):
        groups.setdefault(what, []).append(box)

    def words(what):
        n = len(groups[what])
        noun = what[2] + ("" if n == 1 else "es" if what[2] == "cross" else "s")
        return " ".join([("a", "two", "three")[n - 1], *what[:2], noun])

    if len(groups) == 1:
        return words(*groups)
    one, two = groups
    top, bottom, left, right = (
        {g: pick(box[i] for box in boxes) for g, boxes in groups.items()}
        for i, pick in enumerate((min, max, min, max))
    )
    tests = {
        ("above", "below"): lambda a, b: bottom[a] < top[b],
        ("to the left of", "to the right of"): lambda a, b: right[a] < left[b],
    }
    (found,) = [
        (a, b, pair) for pair, holds in tests.items() for a, b in ((one, two), (two, one)) if holds(a, b)
    ]
    first, second, (forward, backward) = found
    rank = {g: (g[0] == "large", len(groups[g])) for g in groups}
    if rank[second] > rank[first]:
        return f"{words(second)} {backward} {words(first)}"
    return f"{words(first)} {forward} {words(second)}"


@pytest.mark.parametrize("split", N_IMAGES)
def test_a_caption_is_what_the_pixels_show(split):
    for row in head(split):
        assert described(row["image"].pixels(48, 3)) == row["caption"]


# Captions ------------------------------------------------------------------------------------------------


def group(n, size, colour, shape, left, top, step=(0, 0)):
    side = {"small": 6, "large": 12}[size]
    boxes = tuple(Box(left + i * step[0], top + i * step[1], side) for i in range(n))
    return Group(size, colour, shape, COLOURS[colour], boxes)


BLUE = group(1, "large", "blue", "square", 20, 30)


@pytest.mark.parametrize(
    "first, second, wanted",
    [
        (
            group(2, "small", "red", "circle", 15, 2, (12, 1)),
            BLUE,
            "a large blue square below two small red circles",
        ),
        (group(1, "large", "red", "circle", 15, 2), BLUE, "a large red circle above a large blue square"),
        (
            group(3, "large", "red", "cross", 2, 2, (15, 0)),
            BLUE,
            "three large red crosses above a large blue square",
        ),
        (
            group(1, "small", "blue", "cross", 2, 30),
            BLUE,
            "a large blue square to the right of a small blue cross",
        ),
        (
            group(1, "large", "black", "cross", 3, 35),
            BLUE,
            "a large black cross to the left of a large blue square",
        ),
    ],
)
def test_captions_by_hand(first, second, wanted):
    assert caption(Scene((first, second), 255)) == wanted


def test_a_relation_holds_where_one_line_direction_parts_the_groups():
    low = group(1, "small", "red", "circle", 20, 36)
    assert relation(BLUE, low) is None  # the same height
    assert relation(group(1, "small", "red", "circle", 2, 2), BLUE) is None  # above, and to the left
    assert relation(group(1, "small", "red", "circle", 22, 24), BLUE) == "above"  # they touch
    assert relation(BLUE, group(1, "small", "red", "circle", 22, 24)) == "below"


def test_every_word_and_every_relation_occurs():
    words = Counter(word for n in range(600) for word in caption(scene("train", n)).split())
    wanted = {"a", "two", "three", "small", "large", "above", "below", "left", "right", *COLOURS, *SHAPES}
    assert wanted | {*SHAPES.values()} | {"to", "the", "of"} == words.keys()
    assert min(words.values()) > 15


# Splits --------------------------------------------------------------------------------------------------


def combinations(text):
    words = text.split()
    singular = {plural: one for one, plural in SHAPES.items()} | {one: one for one in SHAPES}
    return {(a, singular[b]) for a, b in pairwise(words) if b in singular}


def test_combinations_of_colour_and_shape_are_held_out():
    for split in N_IMAGES:
        found = [combinations(caption(scene(split, n))) for n in range(300)]
        for other, held in HELD_OUT.items():
            assert [bool(pairs & held) for pairs in found] == [other == split] * 300
    assert split_of(scene("train", 0)) == "train"
    both = tuple(
        group(1, "small", *min(HELD_OUT[split]), 20, top) for split, top in (("valid", 2), ("test", 30))
    )
    assert split_of(Scene(both, 255)) is None


def test_an_image_is_a_function_of_seed_split_and_number():
    first = head("train", 3)
    assert [row["caption"] for row in first] == FIRST
    for n, row in enumerate(first):
        assert np.array_equal(pixels(scene("train", n)), row["image"].content)
        assert row["image"].name == f"scenes/train:{n + 1}"
    others = [head("valid", 3), head("test", 3), head("train", 3, seed=1)]
    assert len({tuple(row["caption"] for row in rows) for rows in [first, *others]}) == 4


FIRST = [
    "a large black triangle to the right of two small green triangles",
    "a small yellow triangle to the left of a small black square",
    "two large yellow triangles to the left of a large green triangle",
]


def test_sizes_of_splits():
    assert sum(1 for _ in open_corpus("scenes", "valid")) == 500


# Shapes have the areas and symmetries of geometry


def drawn(shape, side, colour=(0, 0, 0)):
    image = np.full((side + 4, side + 4, 3), 255, np.uint8)
    draw_shape(image, shape, colour, 3, 1, side)
    return image


def cover(shape, side):
    """The share of each pixel that is covered, from black on white."""
    return 1 - drawn(shape, side)[1 : 1 + side, 3 : 3 + side, 0] / 255


@pytest.mark.parametrize(
    "shape, area", [("circle", math.pi / 4), ("square", 1), ("triangle", 1 / 2), ("cross", 5 / 9)]
)
def test_a_shape_covers_its_area(shape, area):
    assert cover(shape, 60).mean() == pytest.approx(area, abs=0.01)


@pytest.mark.parametrize("side", [6, 7, 13])
def test_symmetries(side):
    for shape in SHAPES:
        share = cover(shape, side)
        assert np.array_equal(share, share[:, ::-1])
        upright = np.array_equal(share, share[::-1]), np.array_equal(share, share.T)
        assert upright == ((False, False) if shape == "triangle" else (True, True))
    rows = cover("triangle", side).sum(1)
    assert (np.diff(rows) >= 0).all()


def test_nothing_is_drawn_outside_of_the_square_and_all_channels_take_the_colour():
    image = drawn("square", 5, (10, 20, 30))
    assert image.shape == (9, 9, 3)
    assert [image[1:6, 3:8, c].tolist() for c in range(3)] == [[[v] * 5] * 5 for v in (10, 20, 30)]
    outside = np.ones((9, 9), bool)
    outside[1:6, 3:8] = False
    assert (image[outside] == 255).all()


def test_an_edge_is_mixed_by_what_is_covered():
    """The corner pixel of a circle of two pixels: 16 points, of which those nearer than 1 to the middle."""
    points = [(i + 0.5) / 4 - 1 for i in range(4)]
    inside = sum(u**2 + v**2 <= 1 for u in points for v in points)
    assert drawn("circle", 2, (55, 55, 55))[1, 3, 0] == math.floor(255 - 200 * inside / 16 + 0.5)


# Masks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", N_IMAGES)
def test_a_mask_has_the_shape_of_each_thing_that_the_pixels_show(split):
    for row in islice(masked_rows(split), SOME):
        numbers = row["mask"].numbers()
        found = [(what[2], box) for what, box in things_of(row["image"].pixels(48, 3))]
        of_things = {CLASSES.index(shape) for shape, _ in found}
        assert {*np.unique(numbers)} == {0, *of_things}
        covered = np.zeros_like(numbers, dtype=bool)
        for shape, (top, bottom, left, right) in found:
            window = numbers[top:bottom, left:right]
            assert {*np.unique(window)} <= {0, CLASSES.index(shape)}
            covered[top:bottom, left:right] = True
        assert not numbers[~covered].any()


def test_a_pixel_belongs_to_a_shape_that_covers_half_of_it():
    """A shape of black on white: a pixel that is at least half covered is darker than grey."""
    for number in range(SOME):
        s = scene("train", number)
        drawn = np.full((48, 48, 3), 255, np.uint8)
        for g in s.groups:
            for box in g.boxes:
                draw_shape(drawn, g.shape, (0, 0, 0), *box)
        assert np.array_equal(mask(s) > 0, drawn[..., 0] <= 128)


def test_images_with_masks_are_those_with_captions():
    for split in N_IMAGES:
        for one, other in zip(rows(split), islice(masked_rows(split), 5), strict=False):
            assert np.array_equal(one["image"].content, other["image"].content)
            assert one["image"].name == other["image"].name
