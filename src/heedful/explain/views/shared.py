"""Helpers for several views."""

import math
from typing import Any

import numpy as np
from torch import nn

from heedful.errors import RequestError
from heedful.tasks.model_input import INPUT, PREFIX, SOURCE, ModelInput
from heedful.typing import JsonObject

DIGITS = 6
"""Decimal places of rounded numbers."""

EMBEDDINGS = {"embedding": INPUT, "source_embedding": SOURCE, "target_embedding": PREFIX}
"""Attributes of models with embeddings, and the side that each embeds."""


def rounded(value: float) -> float:
    """Round to 6 decimal places."""
    return round(value, DIGITS)


def rounded_all(values: Any, digits: int = DIGITS) -> Any:
    """Return an array as nested lists of rounded numbers in fp64; fp32 has no short decimal form."""
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()


def probability(log_prob: float | None) -> float:
    """Return a probability with 6 significant digits; 0 for None, the logarithm of 0."""
    return 0.0 if log_prob is None else float(f"{math.exp(min(log_prob, 0.0)):.{DIGITS}g}")


def questions_of(prepared: ModelInput) -> JsonObject:
    """Return the questions of an input, JSON-ready."""
    questions = prepared.questions
    return {"side": questions.axis, "places": list(questions.places), "answers": questions.names}


def embeddings_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return the embedding modules of a model by side."""
    return {side: getattr(model, name) for name, side in EMBEDDINGS.items() if hasattr(model, name)}


def refuse_numbers(prepared: ModelInput) -> None:
    """Check that the answer has a probability.

    Raises:
        RequestError: the answer is a number.
    """
    if prepared.questions.numbers is not None:
        raise RequestError("the answer is a number, which has no probability; use view gradients")


def headline(text: str) -> str:
    """Return a line of the terminal as a title for the page, in sentence case."""
    return text[:1].upper() + text[1:]
