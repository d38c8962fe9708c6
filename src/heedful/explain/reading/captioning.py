"""Input of captioning: the source side is the patches of an image."""

from typing import TYPE_CHECKING, Any

from heedful.data.images import LazyImage
from heedful.explain.reading.questions import AnswerOptions, ModelInput
from heedful.explain.reading.translation import answered, two_sides
from heedful.explain.sides import patches_side

if TYPE_CHECKING:
    from heedful.runs.run import Run


def read_caption(run: "Run", given: Any, asked: AnswerOptions) -> ModelInput:
    """Prepare an image and its caption."""
    pairing = run.recipe.pairing
    pixels = pairing.reader.pixels(LazyImage.of(given))
    tokenizer = run.processor.tokenizer
    answer, target = answered(run, given, asked, tokenizer, pairing.n_tokens)
    side = patches_side(pairing.grid, 0, pixels)
    return two_sides(run, pixels.reshape(-1), target, answer, asked, side, tokenizer)
