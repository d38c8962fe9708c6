"""View ``losses``: loss and probability of each answer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from heedful.errors import RequestError
from heedful.explain.view import Explanation
from heedful.explain.views.shared import questions_of, refuse_numbers, rounded
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.runs.run import Run


def has(run: "Run") -> bool:
    """Whether the answer has a probability."""
    return run.recipe.task.kind != "regression"


def compute(run: "Run", prepared: ModelInput, explanations: Sequence[Explanation]) -> JsonObject:
    """Return `losses`."""
    return losses(run, prepared)


@torch.no_grad()
def losses(run: "Run", prepared: ModelInput) -> JsonObject:
    """Return the probability and loss of each answer: ``loss_i = -log p_i``, in nats.

    A language model has a question for every token but the first, including those of the prompt; these are
    ``given``, and excluded from the ``mean`` and its exponential, the ``perplexity``.

    Returns:
        ``side``, ``places`` and ``answers`` of the questions, and for each ``given``, ``probabilities`` and
        ``losses``; ``mean`` and ``perplexity`` are None if nothing was predicted.

    Raises:
        RequestError: the answer is a number.
    """
    refuse_numbers(prepared)
    batch, given = prepared.batch, prepared.questions.given
    scores = prepared.questions.scores(run.model(batch.inputs, batch.source)).double()
    own = scores[given:]
    mean = -own.mean() if len(own) else None
    return {
        **questions_of(prepared),
        "given": [i < given for i in range(len(scores))],
        "probabilities": [rounded(value) for value in scores.exp().tolist()],
        "losses": [rounded(-value) for value in scores.tolist()],
        "mean": None if mean is None else rounded(mean.item()),
        "perplexity": None if mean is None else rounded(mean.exp().item()),
    }


def lines(explanation: Explanation, values: JsonMapping) -> list[str]:
    """Return a line per answer."""
    output = [
        "loss and probability of each answer" + ("; given tokens in parentheses" * any(values["given"]))
    ]
    rows = (values[name] for name in ("answers", "given", "losses", "probabilities"))
    for answer, given, loss, probability in zip(*rows, strict=True):
        shown = f"({answer})" if given else answer
        output.append(f"  {loss:8.3f}  {probability:8.4f}  {shown}")
    if values["mean"] is not None:
        output.append(f"  mean loss {values['mean']:.4f}, perplexity {values['perplexity']:.4g}")
    return output


def drawings(explanation: Explanation, values: JsonMapping) -> list[JsonObject]:
    """Return the loss of each token, or a table if the questions are about the whole input."""
    if values["side"] not in explanation.axes:
        return []
    if not values["places"]:
        columns = {"answers": "answer", "probabilities": "probability", "losses": "loss (nats)"}
        rows = [list(row) for row in zip(*(values[name] for name in columns), strict=True)]
        table = {
            "title": "Loss of the answer",
            "kind": "table",
            "columns": [*columns.values()],
            "rows": rows,
        }
        return [table] if rows else []
    token_losses: list[float | None] = [None] * len(explanation.axes[values["side"]].tokens)
    for place, loss in zip(values["places"], values["losses"], strict=True):
        token_losses[place] = loss
    title = f"Loss of each {values['side']} token, in nats"
    if values.get("perplexity") is not None:
        title += f" (perplexity {values['perplexity']:.4g})"
    return [{"title": title, "kind": "tokens", "side": values["side"], "values": token_losses}]


def figure(explanation: Explanation, values: JsonMapping) -> "Figure":
    """Draw a bar per answer.

    Raises:
        RequestError: there are no answers, or too many.
    """
    from heedful.explain.token_drawings import check_rows, loss_bars

    answers, mean = values["answers"], values["mean"]
    if not answers:
        raise RequestError("the answer is empty, so there is nothing to draw")
    check_rows(len(answers))
    note = "" if mean is None else f"perplexity {values['perplexity']:.4g}"
    title = str(explanation.answer.get("text", ""))
    line = mean if len(answers) > 1 else None
    return loss_bars(answers, values["losses"], values["given"], mean=line, title=title, note=note)
