"""View ``losses``: loss and probability of each answer."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from heedful.explain.drawings import Drawing, Table, TokenValues
from heedful.explain.views.shared import check_has_probability, questions_of, rounded, rounded_or_none
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation


def supports(run: LoadedRun) -> bool:
    """Whether the answer has a probability."""
    return not run.task.info.predicts_numbers


@torch.no_grad()
def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return the probability and loss of each answer: ``loss_i = -log p_i``, in nats.

    A language model has a question for every token but the first, including those of the prompt; these are
    ``given``, and excluded from the ``mean`` and its exponential, the ``perplexity``.

    Returns:
        ``side`` (name of the axis), ``places`` and ``answers`` of the targets, and for each ``given``,
        ``probabilities`` and ``losses``; ``mean`` and ``perplexity`` are None if nothing was predicted. The
        infinite loss of probability 0, and means of it, are also None.

    Raises:
        RequestError: the answer is a number.
    """
    check_has_probability(prepared)
    batch, given = prepared.batch, prepared.targets.n_given
    scores = prepared.targets.scores(run.model(batch.inputs, batch.source), batch).double()
    predicted = scores[given:]
    mean = -predicted.mean() if len(predicted) else None
    return {
        **questions_of(prepared),
        "given": [i < given for i in range(len(scores))],
        "probabilities": [rounded(value) for value in scores.exp().tolist()],
        "losses": [rounded_or_none(-value) for value in scores.tolist()],
        "mean": None if mean is None else rounded_or_none(mean.item()),
        "perplexity": None if mean is None else rounded_or_none(mean.exp().item()),
    }


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return the loss of each answer: on the page at its token; a table if it is about the whole input."""
    axis, places, answers = explanation.axes.get(values["side"]), values["places"], values["answers"]
    if not answers:
        return []
    losses = [_loss(loss) for loss in values["losses"]]
    if not places:
        rows = [list(row) for row in zip(answers, values["probabilities"], losses, strict=True)]
        return [Table("Loss of the answer", ["answer", "probability", "loss (nats)"], rows)]
    title, note = f"Loss of each {values['side']} token, in nats", _note(values)
    of_answers = TokenValues(
        title,
        values["side"],
        losses,
        answers if axis is None else _labels(answers, [axis.tokens[place] for place in places]),
        name="loss (nats)",
        others={"probability": values["probabilities"]},
        muted=values["given"],
        note=note,
        media={"terminal", "image"},
    )
    if axis is None:
        return [of_answers]
    by_token: list[float | None] = [None] * len(axis.tokens)
    for place, loss in zip(places, losses, strict=True):
        by_token[place] = loss
    return [TokenValues(title, values["side"], by_token, note=note, media={"page"}), of_answers]


def _labels(answers: Sequence[str], tokens: Sequence[str]) -> list[str]:
    """Return the answers; with their token if that is another, such as a mask."""
    return [
        answer if answer == token else f"{token}: {answer}"
        for answer, token in zip(answers, tokens, strict=True)
    ]


def _note(values: JsonMapping) -> str:
    given = "given tokens: grey, or in parentheses" if any(values["given"]) else ""
    if all(values["given"]):
        return given
    mean, perplexity = _loss(values["mean"]), _loss(values["perplexity"])
    predicted = "predicted tokens: " if given else ""
    return "; ".join(filter(None, (given, f"{predicted}mean loss {mean:.4f}, perplexity {perplexity:.4g}")))


def _loss(value: float | None) -> float:
    """Return a number of the view: None stands for infinity."""
    return math.inf if value is None else value
