"""Further views of an explanation, as drawings of two kinds: a number for each token, or a table.

What says its ``kind`` is drawn as it is: ``{"title", "kind": "tokens", "side", "values"}``, with None where
there is no number, or ``{"title", "kind": "table", "columns", "rows"}``, where a cell is a text, a number,
None, or a pair of a text and a probability. The views that heedful makes itself have a form of their own
(theirs is that of a result, this of a picture), which their modules turn into these. Others are left out.
"""

from typing import Any

from heedful.explain.view import Explanation
from heedful.explain.views import VIEWS, maker

Drawing = dict[str, Any]


def drawings(explanation: Explanation) -> list[Drawing]:
    """All that can be drawn of ``explanation.more``, in its order."""
    found: list[Drawing] = []
    for name, view in explanation.more.items():
        if view.get("kind") in ("tokens", "table"):
            found.append(dict(view))
        elif name in VIEWS:
            found += maker(name).drawings(explanation, view)
    return [each for each in found if each["kind"] == "table" or each["side"] in explanation.sides]
