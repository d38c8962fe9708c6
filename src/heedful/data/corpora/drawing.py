"""Draw coloured shapes as pixels from their inequalities: identical results on every machine."""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Colour = tuple[int, int, int]

# Sample points along each side of a pixel: antialiasing with 16 points per pixel.
POINTS = 4

# Which points of the square from -1 to 1 belong to a shape; u runs to the right, v downwards.
SHAPES: dict[str, Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.bool_]]] = {
    "circle": lambda u, v: u**2 + v**2 <= 1,
    "square": lambda u, v: np.maximum(abs(u), abs(v)) <= 1,
    "triangle": lambda u, v: 2 * abs(u) <= v + 1,
    "cross": lambda u, v: np.minimum(abs(u), abs(v)) <= 1 / 3,
}


def ground(side: int, grey: int) -> Pixels:
    """Return a square image of one grey, ``[side, side, 3]``."""
    return np.full((side, side, 3), grey, np.uint8)


def draw(image: Pixels, shape: str, colour: Colour, left: int, top: int, side: int) -> None:
    """Draw a shape onto ``image [H, W, 3]``, into the square of ``side`` pixels at (left, top).

    A pixel at the edge is a mix of both colours, weighted by the share of its points inside the shape.
    """
    share = _coverage(shape, side)
    window = image[top : top + side, left : left + side]
    window[...] = np.floor(window + share[:, :, None] * (np.asarray(colour) - window.astype(float)) + 0.5)


@cache
def _coverage(shape: str, side: int) -> NDArray[np.float64]:
    """Return the share of each pixel that the shape covers, ``[side, side]``."""
    at = (2 * np.arange(side * POINTS) + 1) / (side * POINTS) - 1
    inside = SHAPES[shape](at[None, :], at[:, None])
    return np.broadcast_to(inside, (len(at), len(at))).reshape(side, POINTS, side, POINTS).mean((1, 3))
