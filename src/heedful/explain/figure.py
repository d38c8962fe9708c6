"""Draw an explanation as one figure: the requested view, or the attention."""

from matplotlib.figure import Figure

from heedful.explain.canvas import check_size
from heedful.explain.heat_map import attention_panels, heat_map
from heedful.explain.summary import AttentionMatrix, mean_of, over_patches
from heedful.explain.view import Explanation
from heedful.explain.views import VIEWS, check_image, view_module


def figure_of(explanation: Explanation, *, tokens: bool = False) -> Figure:
    """Draw the requested view; without a view, the mean attention or the head with the best known alignment.

    Args:
        explanation: the explanation.
        tokens: draw attention between tokens instead of words.

    Raises:
        RequestError: there are several views, or neither a view nor attention, or the figure would be too
            large to read.
    """
    drawn = [name for name in explanation.views if name in VIEWS]
    check_image(drawn)
    if drawn:
        return view_module(drawn[0]).figure(explanation, explanation.views[drawn[0]])
    shown = mean_of(explanation)
    shown = shown if tokens else shown.in_words()
    if shown.keys.grid is not None:
        return _in_image(shown, explanation.text)
    check_size(*shown.weights.shape)
    return heat_map(
        shown.keys.tokens, shown.queries.tokens, shown.weights, title=explanation.text, note=shown.title
    )


def _in_image(shown: AttentionMatrix, answer: str) -> Figure:
    """Draw attention to image patches: one panel, or one per word of a text that attends to the image.

    Raises:
        RequestError: there are too many words.
    """
    side = shown.keys
    if shown.queries.grid is not None:
        name = "class token" if shown.queries.before else "mean of all patches"
        maps = [(name, over_patches(shown))]
    else:
        check_size(len(shown.queries.tokens), 1)
        maps = [(word, over_patches(shown, n)) for n, word in enumerate(shown.queries.tokens)]
    return attention_panels(maps, side.image, among=len(side.tokens), title=answer, note=shown.title)
