"""Convert the views of an explanation into drawings for the page.

A view with a ``kind`` is drawn as it is. It has a ``title``, and:

| kind | keys |
|---|---|
| tokens | ``side`` and ``values``: a number per token, or None |
| table | ``columns`` and ``rows`` of cells: a text, a number, None, a pair of a text and a probability, or an object with a ``text`` and optionally a ``share`` from 0 to 1 (background colour) and a ``tap`` and ``head`` (the head that a click opens) |
| patches | ``side``, an image, and ``images``: each has a ``label`` and ``values``, one per patch, or one per cell of its own ``grid`` (rows and columns); all on one scale, or each on its own if ``apart`` is true; for attention, ``among`` is the number of tokens that each row sums over |
| heat | ``size`` and ``levels`` of numbers from -1 to 1 (`heedful.explain.page.packing.signed`) |
| image | ``image``, a data URL, ``text``, its description, and ``width`` in pixels |

The views in `heedful.explain.views` have no ``kind``; their modules convert them. Other views are ignored.
"""  # noqa: E501

from heedful.explain.view import Explanation
from heedful.explain.views import VIEWS, view_module
from heedful.typing import JsonObject

Drawing = JsonObject

KINDS = ("tokens", "table", "patches", "heat", "image")
_OF_SIDES = ("tokens", "patches")


def drawings(explanation: Explanation) -> list[Drawing]:
    """Return the drawings of all views in ``explanation.views``, in order."""
    found: list[Drawing] = []
    for name, view in explanation.views.items():
        if view.get("kind") in KINDS:
            found.append(dict(view))
        elif name in VIEWS:
            found += view_module(name).drawings(explanation, view)
    return [each for each in found if each["kind"] not in _OF_SIDES or each["side"] in explanation.axes]
