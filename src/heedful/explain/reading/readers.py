"""Table of the functions that prepare inputs, by task."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from heedful.explain.reading.answering import read_answer
from heedful.explain.reading.captioning import read_caption
from heedful.explain.reading.classification import read_class, read_image, read_number
from heedful.explain.reading.language_modelling import read_prompt
from heedful.explain.reading.masking import read_gaps
from heedful.explain.reading.questions import ITS_BEST, AnswerOptions, ModelInput
from heedful.explain.reading.tagging import read_tags
from heedful.explain.reading.translation import read_pair

if TYPE_CHECKING:
    from heedful.runs.run import Run

READERS: dict[str, Callable[["Run", Any, AnswerOptions], ModelInput]] = {
    "translation": read_pair,
    "summarisation": read_pair,
    "language-modelling": read_prompt,
    "masked-language-modelling": read_gaps,
    "classification": read_class,
    "image-classification": read_image,
    "tagging": read_tags,
    "question-answering": read_answer,
    "regression": read_number,
    "captioning": read_caption,
}
"""Functions that prepare inputs, by kind of task."""


def read(run: "Run", input: Any, asked: AnswerOptions = ITS_BEST) -> ModelInput:
    """Prepare and answer one input; see `heedful.explain.explaining.explain_input`.

    Raises:
        RequestError: the input is empty, too long or of the wrong type, or the requested answer does not
            exist.
    """
    reading = READERS[run.recipe.task.kind](run, input, asked)
    device = next(run.model.parameters()).device
    return replace(reading, batch=reading.batch.to(device))
