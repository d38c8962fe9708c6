"""Captioning: the source is the squares of a picture."""

from typing import TYPE_CHECKING, Any

from heedful.data.pictures import Picture
from heedful.explain.reading.questions import AnswerOptions, ModelInput
from heedful.explain.reading.translation import answered, two_sides
from heedful.explain.sides import squares_side

if TYPE_CHECKING:
    from heedful.runs.run import Run


def read_caption(run: "Run", given: Any, asked: AnswerOptions) -> ModelInput:
    """Captioning: the source is the squares of a picture."""
    pairing = run.recipe.pairing
    pixels = pairing.reader.pixels(Picture.of(given))
    tokenizer = run.processor.tokenizer
    answer, target = answered(run, given, asked, tokenizer, pairing.n_tokens)
    side = squares_side(pairing.grid, 0, pixels)
    return two_sides(run, pixels.reshape(-1), target, answer, asked, side, tokenizer)
