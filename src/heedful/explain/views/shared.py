"""What several views have in common."""

import math
from typing import Any

import numpy as np
from torch import nn

from heedful.errors import RequestError
from heedful.explain.reading import ModelInput
from heedful.explain.view import INPUT, PREFIX, SOURCE

DIGITS = 6
"""To which numbers are rounded."""

EMBEDDINGS = {"embedding": INPUT, "source_embedding": SOURCE, "target_embedding": PREFIX}
"""The parts of models that embed what they read, and the side that each reads."""


def rounded(value: float) -> float:
    """To 6 digits behind the point."""
    return round(value, DIGITS)


def rounded_all(values: Any, digits: int = DIGITS) -> Any:
    """An array as lists of rounded numbers; as doubles, for the digits of a single precision number go on."""
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()


def probability(log_prob: float | None) -> float:
    """Short enough for a page; 0 for None, which is the logarithm of 0."""
    return 0.0 if log_prob is None else float(f"{math.exp(min(log_prob, 0.0)):.{DIGITS}g}")


def questions_of(reading: ModelInput) -> dict[str, Any]:
    """The questions that were answered."""
    questions = reading.questions
    return {"side": questions.side, "places": list(questions.places), "answers": questions.names}


def embeddings_of(model: nn.Module) -> dict[str, nn.Module]:
    """The parts of a model that embed, by the side that each reads."""
    return {side: getattr(model, name) for name, side in EMBEDDINGS.items() if hasattr(model, name)}


def refuse_numbers(reading: ModelInput) -> None:
    """Refuse a view of probabilities where the answer is a number.

    Raises:
        RequestError: it is one.
    """
    if reading.questions.numbers is not None:
        raise RequestError("the answer is a number and has no probability: take the view gradients")


def headline(text: str) -> str:
    """A line of the terminal as the title of a drawing on the page."""
    return text[:1].upper() + text[1:]
