"""An explanation as one picture: of the view that was asked for, or of its attention."""

from typing import TYPE_CHECKING

from heedful.errors import RequestError
from heedful.explain.picture import check_size, heat_map
from heedful.explain.summary import mean_of, over_squares
from heedful.explain.view import Explanation
from heedful.explain.views import VIEWS, maker

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_of(seen: Explanation, *, tokens: bool = False) -> "Figure":
    """The view among ``more`` that makes a picture; where none does, the mean attention (or the best head).

    Args:
        seen: what is drawn.
        tokens: attention between tokens, and not between whole words.

    Raises:
        RequestError: two views make pictures, there is neither view nor attention, or it would be too large
            to be read.
    """
    drawn = [name for name in seen.more if name in VIEWS and VIEWS[name].is_drawn]
    if len(drawn) > 1:
        raise RequestError(
            f"a picture is of one view: {' and '.join(drawn)} make two; take .html, or ask for one of them"
        )
    if drawn:
        return maker(drawn[0]).figure(seen, seen.more[drawn[0]])
    shown = mean_of(seen)
    answer = str(seen.answer.get("text", ""))
    if shown.queries.grid is not None:
        weights = over_squares(shown)
        rows, columns = ([str(i + 1) for i in range(n)] for n in shown.queries.grid)
        who = "the class token looks" if shown.queries.before else "mean of all squares"
        note = f"{shown.title}; {who}; dark is {weights.max():.2g}"
        return heat_map(columns, rows, weights / weights.max(), title=answer, note=note)
    shown = shown if tokens else shown.in_words()
    check_size(*shown.weights.shape)
    return heat_map(shown.keys.tokens, shown.queries.tokens, shown.weights, title=answer, note=shown.title)
