"""Drawn scenes, each with a caption: "two small red circles above a large blue square".

An image shows one or two groups of objects. The objects of a group have the same size, colour and shape. Two
groups differ in colour or shape, and one is above or beside the other: a straight line separates them in one
direction and none does in the other, so a caption is either true or false. The same images have masks: the
shape that each pixel belongs to.

The caption is a function of the image. It begins with the group of larger objects; if the sizes are equal,
with the group of more objects; if these are equal too, with the upper or left group.

Splits. Validation and test hold out *combinations*: `HELD_OUT` lists colours and shapes that are frequent in
training, but never occur in the same object there. Every test image contains a test combination and no
validation combination, and vice versa.

Each image of a split is drawn from its own stream of choices, so any image can be drawn by itself.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.corpora.grammar import SPLITS, Draw
from heedful.data.images import LazyImage
from heedful.typing import JsonObject

Pixels = NDArray[np.uint8]
Colour = tuple[int, int, int]

SIDE = 48
"""Pixels along each side of an image."""

N_IMAGES = {"train": 10_000, "valid": 500, "test": 1_000}

NUMBERS = {1: "a", 2: "two", 3: "three"}
SIZES = {"small": (6, 7), "large": (12, 13)}  # pixels along a side, one is drawn
COLOURS = {
    "red": (200, 30, 30),
    "green": (30, 150, 40),
    "blue": (30, 60, 200),
    "yellow": (225, 205, 30),
    "purple": (140, 40, 160),
    "black": (25, 25, 25),
}
SHAPES = {"circle": "circles", "square": "squares", "triangle": "triangles", "cross": "crosses"}
CLASSES = ("background", *SHAPES)  # of the pixels of masks, in the order of their numbers
LIGHTEST, GREYS, SHADES = 255, 56, 16  # number of greys of the background; maximum change of a colour

HELD_OUT = {
    "valid": {("green", "circle"), ("purple", "square")},
    "test": {("red", "triangle"), ("blue", "circle"), ("black", "cross")},
}
"""Combinations of colour and shape that no training image contains."""

SINGLE = 0.2  # the share of images with one group

MOSTLY = 0.5  # the share of a pixel from which on it belongs to a shape
POINTS = 4  # sample points along each side of a pixel: antialiasing with 16 points per pixel
INSIDE: dict[str, Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.bool_]]] = {
    "circle": lambda u, v: u**2 + v**2 <= 1,
    "square": lambda u, v: np.maximum(abs(u), abs(v)) <= 1,
    "triangle": lambda u, v: 2 * abs(u) <= v + 1,
    "cross": lambda u, v: np.minimum(abs(u), abs(v)) <= 1 / 3,
}
"""Which points of the square from -1 to 1 belong to a shape; u runs to the right, v downwards."""


class Box(NamedTuple):
    """The square that an object fills, in pixels from the image's upper left corner."""

    left: int
    top: int
    side: int


class Group(NamedTuple):
    """Objects that differ only in their positions."""

    size: str
    colour: str
    shape: str
    shade: Colour
    boxes: tuple[Box, ...]


class Scene(NamedTuple):
    """One or two groups, the upper or left one first, on a grey background."""

    groups: tuple[Group, ...]
    grey: int


def rows(split: str, seed: int = 0) -> Iterator[JsonObject]:
    """Return the rows of a split: ``image``, a `LazyImage` of 48 x 48 pixels in colour, and ``caption``.

    Args:
        split: ``train``, ``valid`` or ``test``.
        seed: the seed of the corpus.
    """
    return ({"image": image, "caption": caption(s)} for s, image in _drawn(split, seed))


def masked_rows(split: str, seed: int = 0) -> Iterator[JsonObject]:
    """Return the images of `rows` with their masks, ``mask``, whose numbers are those of `CLASSES`."""
    drawn = _drawn(split, seed)
    return ({"image": image, "mask": LazyImage(mask(s), f"the mask of {image.name}")} for s, image in drawn)


def _drawn(split: str, seed: int) -> Iterator[tuple[Scene, LazyImage]]:
    """Yield each scene of a split with its image."""
    for number in range(N_IMAGES[split]):
        s = scene(split, number, seed)
        yield s, LazyImage(pixels(s), f"scenes/{split}:{number + 1}")


def scene(split: str, number: int, seed: int = 0) -> Scene:
    """Return scene ``number`` of a split, counted from 0."""
    draw = Draw(3 * (seed * 1_000_000 + number) + SPLITS.index(split))
    while True:
        candidate = _draw_scene(draw)
        if split_of(candidate) == split:
            return candidate


def split_of(s: Scene) -> str | None:
    """Return the split whose combinations a scene contains; None if it contains some of both."""
    splits = {split for g in s.groups for split, pairs in HELD_OUT.items() if (g.colour, g.shape) in pairs}
    if len(splits) > 1:
        return None
    return splits.pop() if splits else "train"


def pixels(s: Scene) -> Pixels:
    """Return the pixels of a scene, ``[48, 48, 3]``."""
    image = np.full((SIDE, SIDE, 3), s.grey, np.uint8)
    for group in s.groups:
        for box in group.boxes:
            draw_shape(image, group.shape, group.shade, *box)
    return image


def mask(s: Scene) -> Pixels:
    """Return the class of each pixel of a scene, ``[48, 48]``: that of a shape that covers half of it."""
    numbers = np.zeros((SIDE, SIDE), np.uint8)
    for group in s.groups:
        for left, top, side in group.boxes:
            window = numbers[top : top + side, left : left + side]
            window[_coverage(group.shape, side) >= MOSTLY] = CLASSES.index(group.shape)
    return numbers


def draw_shape(image: Pixels, shape: str, colour: Colour, left: int, top: int, side: int) -> None:
    """Draw a shape onto ``image [H, W, 3]``, into the square of ``side`` pixels at (left, top).

    Shapes are drawn from their inequalities, so results are identical on every machine. A pixel at the edge
    is a mix of both colours, weighted by the share of its points inside the shape.
    """
    coverage = _coverage(shape, side)
    window = image[top : top + side, left : left + side]
    window[...] = np.floor(window + coverage[:, :, None] * (np.asarray(colour) - window.astype(float)) + 0.5)


@cache
def _coverage(shape: str, side: int) -> NDArray[np.float64]:
    """Return the share of each pixel that the shape covers, ``[side, side]``."""
    coordinates = (2 * np.arange(side * POINTS) + 1) / (side * POINTS) - 1
    inside = INSIDE[shape](coordinates[None, :], coordinates[:, None])
    return (
        np.broadcast_to(inside, (len(coordinates), len(coordinates)))
        .reshape(side, POINTS, side, POINTS)
        .mean((1, 3))
    )


def caption(s: Scene) -> str:
    """Return the caption of a scene."""
    groups = sorted(s.groups, key=lambda g: (g.size != "large", -len(g.boxes)))
    if len(groups) == 1:
        return _phrase(groups[0])
    return f"{_phrase(groups[0])} {relation(*groups)} {_phrase(groups[1])}"


def _phrase(group: Group) -> str:
    """Return number, size, colour and shape of a group."""
    number = len(group.boxes)
    noun = group.shape if number == 1 else SHAPES[group.shape]
    return f"{NUMBERS[number]} {group.size} {group.colour} {noun}"


def relation(one: Group, other: Group) -> str | None:
    """Return where one group is relative to the other; None unless exactly one line separates them."""
    (left, right), (above, below) = (_separation(one, other, axis) for axis in (0, 1))
    relations = {"above": above, "below": below, "to the left of": left, "to the right of": right}
    valid = [words for words, holds in relations.items() if holds]
    return valid[0] if len(valid) == 1 else None


def _separation(one: Group, other: Group, axis: int) -> tuple[bool, bool]:
    """Return whether one group is entirely before the other along an axis, and whether entirely after."""
    (begin, end), (other_begin, other_end) = (
        (min(b[axis] for b in group.boxes), max(b[axis] + b.side for b in group.boxes))
        for group in (one, other)
    )
    return end <= other_begin, other_end <= begin


# Random choices

Cell = tuple[int, int, int, int]  # left, top, width, height


def _draw_scene(draw: Draw) -> Scene:
    grey = LIGHTEST - draw.below(GREYS)
    if draw.chance(SINGLE):
        return Scene((_place_group(draw, *_draw_group(draw), _cells((0, 0), (SIDE, SIDE), 3, 2)),), grey)
    first = second = _draw_group(draw)
    while second[0][1:3] == first[0][1:3]:  # colour and shape
        second = _draw_group(draw)
    half = SIDE // 2
    if draw.chance(0.5):  # upper and lower, with three cells side by side each
        halves = [_cells((0, top), (SIDE, half), 3, 1) for top in (0, half)]
    else:
        halves = [_cells((left, 0), (half, SIDE), 1, 3) for left in (0, half)]
    while True:
        one, other = (_place_group(draw, *t, cells) for t, cells in zip((first, second), halves, strict=True))
        if relation(one, other):
            return Scene((one, other), grey)


def _draw_group(draw: Draw) -> tuple[Group, int]:
    """Draw size, colour and shape of a group, without positions, and the number of objects."""
    size, colour, shape = draw.pick(tuple(SIZES)), draw.pick(tuple(COLOURS)), draw.pick(tuple(SHAPES))
    red, green, blue = (min(255, max(0, c - SHADES + draw.below(2 * SHADES + 1))) for c in COLOURS[colour])
    return Group(size, colour, shape, (red, green, blue), ()), 1 + draw.below(len(NUMBERS))


def _cells(corner: tuple[int, int], size: tuple[int, int], columns: int, rows: int) -> list[Cell]:
    (left, top), width, height = corner, size[0] // columns, size[1] // rows
    return [
        (left + width * column, top + height * row, width, height)
        for row in range(rows)
        for column in range(columns)
    ]


def _place_group(draw: Draw, group: Group, number: int, cells: list[Cell]) -> Group:
    """Place each object in its own cell, at least one pixel from the edges."""
    free, boxes = list(cells), []
    for _ in range(number):
        left, top, width, height = free.pop(draw.below(len(free)))
        side = draw.pick(SIZES[group.size])
        x, y = 1 + draw.below(width - side - 1), 1 + draw.below(height - side - 1)
        boxes.append(Box(left + x, top + y, side))
    return group._replace(boxes=tuple(boxes))
