"""Further views of an explanation, as drawings.

What says its ``kind`` is drawn as it is, and has a ``title`` besides:

| kind | has |
|---|---|
| tokens | ``side`` and ``values``, one for each of its tokens, None where there is no number |
| table | ``columns`` and ``rows`` of cells: a text, a number, None, a pair of a text and a probability, or a cell with a ``text`` and, as it may be, a ``share`` from 0 to 1 that tints it and ``tap`` and ``head``, which it opens |
| patches | ``side``, an image, and ``images``: of each a ``label`` and ``values``, one for each patch, or for each cell of its own ``grid`` (rows and columns); all on one scale, or each ``apart``; of attention, ``among`` how many tokens it is shared |
| heat | ``size`` and ``levels`` of numbers from -1 to 1 (`heedful.explain.page.packing.signed`) |
| image | ``image``, a data address, the ``text`` that says what it shows, and its ``width`` in pixels |

The views that heedful makes itself have a form of their own (theirs is that of a result, this of an image),
which their modules turn into these. Others are left out.
"""  # noqa: E501

from typing import Any

from heedful.explain.view import Explanation
from heedful.explain.views import VIEWS, maker

Drawing = dict[str, Any]

KINDS = ("tokens", "table", "patches", "heat", "image")
_OF_SIDES = ("tokens", "patches")


def drawings(explanation: Explanation) -> list[Drawing]:
    """All that can be drawn of ``explanation.more``, in its order."""
    found: list[Drawing] = []
    for name, view in explanation.more.items():
        if view.get("kind") in KINDS:
            found.append(dict(view))
        elif name in VIEWS:
            found += maker(name).drawings(explanation, view)
    return [each for each in found if each["kind"] not in _OF_SIDES or each["side"] in explanation.sides]
