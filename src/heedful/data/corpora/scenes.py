"""Drawn scenes, each with a caption: "two small red circles above a large blue square".

An image shows one or two groups of things. Those of a group are alike: a number of things of one size, one
colour and one shape. Two groups differ in colour or shape, and stand one above or beside the other: a
straight line parts them in one direction and none does in the other, so a caption is either true or false.

The caption is a function of the image. It begins with the group of larger things; where these agree with
the group of more things; and where these agree too with the upper or left one.

Splits. Validation and test hold out *combinations*: `HELD_OUT` lists colours and shapes that are frequent in
training, but never meet in one thing there. Every test image has such a thing of the test's, and none of
validation's, and the other way round.

Image n of a split is drawn from a stream of choices of its own, so any of them can be drawn by itself.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from heedful.data.corpora import drawing
from heedful.data.corpora.drawing import Colour, Pixels
from heedful.data.corpora.grammar import Draw
from heedful.data.images import LazyImage
from heedful.errors import RequestError, nearest

SIDE = 48
"""Pixels along each side of an image."""

N_IMAGES = {"train": 10_000, "valid": 500, "test": 1_000}

NUMBERS = {1: "a", 2: "two", 3: "three"}
SIZES = {"small": (6, 7), "large": (12, 13)}  # pixels along a side, of which one is drawn
COLOURS = {
    "red": (200, 30, 30),
    "green": (30, 150, 40),
    "blue": (30, 60, 200),
    "yellow": (225, 205, 30),
    "purple": (140, 40, 160),
    "black": (25, 25, 25),
}
SHAPES = {"circle": "circles", "square": "squares", "triangle": "triangles", "cross": "crosses"}
LIGHTEST, GREYS, SHADES = 255, 56, 16  # the ground is one of so many greys; colours vary by so much

HELD_OUT = {
    "valid": {("green", "circle"), ("purple", "square")},
    "test": {("red", "triangle"), ("blue", "circle"), ("black", "cross")},
}
"""Colours and shapes that no training image has in one thing."""

SINGLE = 0.2  # the share of images with one group


class Box(NamedTuple):
    """The square that a thing fills, in pixels from the image's upper left corner."""

    left: int
    top: int
    side: int


class Group(NamedTuple):
    """Things that are alike but for their places."""

    size: str
    colour: str
    shape: str
    shade: Colour
    boxes: tuple[Box, ...]


class Scene(NamedTuple):
    """One group or two, of which the upper or left one comes first, on a grey ground."""

    groups: tuple[Group, ...]
    grey: int


def rows(split: str, seed: int = 0) -> Iterator[dict[str, Any]]:
    """The rows of a split: ``image``, a `LazyImage` of 48 x 48 pixels in colour, and ``caption``.

    Args:
        split: ``train``, ``valid`` or ``test``.
        seed: which of the possible corpora.

    Raises:
        RequestError: for a split that is not there.
    """
    if split not in N_IMAGES:
        known = ", ".join(map(repr, N_IMAGES))
        raise RequestError(
            f"scenes: there is no split {split!r}{nearest(split, N_IMAGES)}; there are {known}"
        )
    return (_row(split, number, seed) for number in range(N_IMAGES[split]))


def _row(split: str, number: int, seed: int) -> dict[str, Any]:
    s = scene(split, number, seed)
    return {"image": LazyImage(pixels(s), f"scenes/{split}:{number + 1}"), "caption": caption(s)}


def scene(split: str, number: int, seed: int = 0) -> Scene:
    """Scene ``number`` of a split, from 0."""
    draw = Draw(3 * (seed * 1_000_000 + number) + list(N_IMAGES).index(split))
    while True:
        found = _scene(draw)
        if split_of(found) == split:
            return found


def split_of(s: Scene) -> str | None:
    """The split whose combinations a scene has; None where it has some of both."""
    held = {split for g in s.groups for split, pairs in HELD_OUT.items() if (g.colour, g.shape) in pairs}
    if len(held) > 1:
        return None
    return held.pop() if held else "train"


def pixels(s: Scene) -> Pixels:
    """A scene as it is drawn, ``[48, 48, 3]``."""
    drawn = drawing.ground(SIDE, s.grey)
    for group in s.groups:
        for box in group.boxes:
            drawing.draw(drawn, group.shape, group.shade, *box)
    return drawn


def caption(s: Scene) -> str:
    """What is to be seen."""
    groups = sorted(s.groups, key=lambda g: (g.size != "large", -len(g.boxes)))
    if len(groups) == 1:
        return phrase(groups[0])
    return f"{phrase(groups[0])} {relation(*groups)} {phrase(groups[1])}"


def phrase(group: Group) -> str:
    """Number, size, colour and shape."""
    number = len(group.boxes)
    noun = group.shape if number == 1 else SHAPES[group.shape]
    return f"{NUMBERS[number]} {group.size} {group.colour} {noun}"


def relation(one: Group, other: Group) -> str | None:
    """Where one group is, seen from the other; None where no line, or more than one, parts them."""
    (left, right), (above, below) = (_apart(one, other, axis) for axis in (0, 1))
    found = {"above": above, "below": below, "to the left of": left, "to the right of": right}
    true = [words for words, holds in found.items() if holds]
    return true[0] if len(true) == 1 else None


def _apart(one: Group, other: Group, axis: int) -> tuple[bool, bool]:
    """Whether all of one group is before all of the other along an axis, and whether it is behind."""
    (begin, end), (other_begin, other_end) = _span(one, axis), _span(other, axis)
    return end <= other_begin, other_end <= begin


def _span(group: Group, axis: int) -> tuple[int, int]:
    return min(b[axis] for b in group.boxes), max(b[axis] + b.side for b in group.boxes)


# Drawing lots ---------------------------------------------------------------------------------------------


def _scene(draw: Draw) -> Scene:
    grey = LIGHTEST - draw.below(GREYS)
    if draw.chance(SINGLE):
        return Scene((_placed(draw, *_things(draw), _cells((0, 0), (SIDE, SIDE), 3, 2)),), grey)
    first = second = _things(draw)
    while second[0][1:3] == first[0][1:3]:  # colour and shape
        second = _things(draw)
    halves = _halves(upright=draw.chance(0.5))
    while True:
        one, other = (_placed(draw, *t, half) for t, half in zip((first, second), halves, strict=True))
        if relation(one, other):
            return Scene((one, other), grey)


def _things(draw: Draw) -> tuple[Group, int]:
    """What the things of a group are like, without their places, and how many there are."""
    size, colour, shape = draw.pick(tuple(SIZES)), draw.pick(tuple(COLOURS)), draw.pick(tuple(SHAPES))
    red, green, blue = (min(255, max(0, c - SHADES + draw.below(2 * SHADES + 1))) for c in COLOURS[colour])
    return Group(size, colour, shape, (red, green, blue), ()), 1 + draw.below(len(NUMBERS))


Cell = tuple[int, int, int, int]  # left, top, width, height


def _halves(*, upright: bool) -> tuple[list[Cell], list[Cell]]:
    """The cells of two halves: upper and lower, each three beside each other; or left and right."""
    half = SIDE // 2
    if upright:
        return _cells((0, 0), (SIDE, half), 3, 1), _cells((0, half), (SIDE, half), 3, 1)
    return _cells((0, 0), (half, SIDE), 1, 3), _cells((half, 0), (half, SIDE), 1, 3)


def _cells(corner: tuple[int, int], size: tuple[int, int], columns: int, rows: int) -> list[Cell]:
    width, height = size[0] // columns, size[1] // rows
    return [
        (corner[0] + width * column, corner[1] + height * row, width, height)
        for row in range(rows)
        for column in range(columns)
    ]


def _placed(draw: Draw, things: Group, number: int, cells: list[Cell]) -> Group:
    """Each thing in a cell of its own, a pixel or more from its edges."""
    free, boxes = list(cells), []
    for _ in range(number):
        left, top, width, height = free.pop(draw.below(len(free)))
        side = draw.pick(SIZES[things.size])
        x, y = 1 + draw.below(width - side - 1), 1 + draw.below(height - side - 1)
        boxes.append(Box(left + x, top + y, side))
    return things._replace(boxes=tuple(boxes))
