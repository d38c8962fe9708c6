"""What each answer costs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from heedful.errors import RequestError
from heedful.explain.reading import ModelInput
from heedful.explain.view import Explanation
from heedful.explain.views.shared import questions_of, refuse_numbers, rounded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.runs.run import Run


def has(run: "Run") -> bool:
    """Whether the answer has a probability."""
    return run.recipe.task.kind != "regression"


def compute(run: "Run", reading: ModelInput, seen: Sequence[Explanation]) -> dict[str, Any]:
    """See `losses`."""
    return losses(run, reading)


@torch.no_grad()
def losses(run: "Run", reading: ModelInput) -> dict[str, Any]:
    """How probable each answer is, and what it costs: ``loss_i = -log p_i``, in nats.

    A language model is asked for every token but the first, the prompt's too: those are ``given``, and not
    part of the ``mean`` and its exponential, the ``perplexity``.

    Returns:
        ``side``, ``places`` and ``answers`` of the questions, and for each ``given``, ``probabilities`` and
        ``losses``; ``mean`` and ``perplexity`` are None where nothing was written.

    Raises:
        RequestError: the answer is a number.
    """
    refuse_numbers(reading)
    batch, given = reading.batch, reading.questions.given
    scores = reading.questions.scores(run.model(batch.inputs, batch.source)).double()
    own = scores[given:]
    mean = -own.mean() if len(own) else None
    return {
        **questions_of(reading),
        "given": [i < given for i in range(len(scores))],
        "probabilities": [rounded(value) for value in scores.exp().tolist()],
        "losses": [rounded(-value) for value in scores.tolist()],
        "mean": None if mean is None else rounded(mean.item()),
        "perplexity": None if mean is None else rounded(mean.exp().item()),
    }


def lines(seen: Explanation, values: Mapping[str, Any]) -> list[str]:
    """A line for each answer."""
    told = ["loss and probability of each answer" + ("; given ones in brackets" * any(values["given"]))]
    rows = (values[name] for name in ("answers", "given", "losses", "probabilities"))
    for answer, given, loss, probability in zip(*rows, strict=True):
        shown = f"({answer})" if given else answer
        told.append(f"  {loss:8.3f}  {probability:8.4f}  {shown}")
    if values["mean"] is not None:
        told.append(f"  mean loss {values['mean']:.4f}, perplexity {values['perplexity']:.4g}")
    return told


def drawings(seen: Explanation, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each token cost; where the questions are about the whole input, what each answer did."""
    if values["side"] not in seen.sides:
        return []
    if not values["places"]:
        columns = {"answers": "answer", "probabilities": "probability", "losses": "cost in nats"}
        rows = [list(row) for row in zip(*(values[name] for name in columns), strict=True)]
        table = {
            "title": "What the answer cost",
            "kind": "table",
            "columns": [*columns.values()],
            "rows": rows,
        }
        return [table] if rows else []
    costs: list[float | None] = [None] * len(seen.sides[values["side"]].tokens)
    for place, loss in zip(values["places"], values["losses"], strict=True):
        costs[place] = loss
    title = f"What each token of the {values['side']} cost, in nats"
    if values.get("perplexity") is not None:
        title += f" (perplexity {values['perplexity']:.4g})"
    return [{"title": title, "kind": "tokens", "side": values["side"], "values": costs}]


def figure(seen: Explanation, values: Mapping[str, Any]) -> "Figure":
    """A bar for each answer.

    Raises:
        RequestError: there are no answers, or too many.
    """
    from heedful.explain.token_drawings import check_rows, cost_bars

    answers, mean = values["answers"], values["mean"]
    if not answers:
        raise RequestError("nothing was answered, so there is nothing to draw")
    check_rows(len(answers))
    note = "" if mean is None else f"perplexity {values['perplexity']:.4g}"
    title = str(seen.answer.get("text", ""))
    line = mean if len(answers) > 1 else None
    return cost_bars(answers, values["losses"], values["given"], mean=line, title=title, note=note)
