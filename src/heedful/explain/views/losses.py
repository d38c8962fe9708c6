"""View ``losses``: loss and probability of each answer."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from heedful.errors import RequestError
from heedful.explain.drawings import Drawing, Table, TokenValues
from heedful.explain.views.shared import Figure, check_has_probability, questions_of, rounded, rounded_or_none
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from matplotlib.artist import Artist

    from heedful.explain.explanation import Explanation

PREDICTED, GIVEN = "#2f6ca6", "#c8ccd2"
"""Colours of the bars of predicted and of given tokens."""


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


def lines(explanation: "Explanation", values: JsonMapping) -> list[str]:
    """Return a line per answer."""
    output = [
        "loss and probability of each answer" + ("; given tokens in parentheses" * any(values["given"]))
    ]
    rows = (values[name] for name in ("answers", "given", "losses", "probabilities"))
    for answer, given, loss, probability in zip(*rows, strict=True):
        text = f"({answer})" if given else answer
        output.append(f"  {_loss(loss):8.3f}  {probability:8.4f}  {text}")
    if not all(values["given"]):
        mean, perplexity = _loss(values["mean"]), _loss(values["perplexity"])
        output.append(f"  mean loss {mean:.4f}, perplexity {perplexity:.4g}")
    return output


def _loss(value: float | None) -> float:
    """Return a number of the view: None stands for infinity."""
    return math.inf if value is None else value


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return the loss of each token, or a table if the targets are about the whole input."""
    if values["side"] not in explanation.axes:
        return []
    if not values["places"]:
        columns = {"answers": "answer", "probabilities": "probability", "losses": "loss (nats)"}
        rows = [list(row) for row in zip(*(values[name] for name in columns), strict=True)]
        return [Table("Loss of the answer", [*columns.values()], rows)] if rows else []
    losses: list[float | None] = [None] * len(explanation.axes[values["side"]].tokens)
    for position, loss in zip(values["places"], values["losses"], strict=True):
        losses[position] = loss
    title = f"Loss of each {values['side']} token, in nats"
    if values.get("perplexity") is not None:
        title += f" (perplexity {values['perplexity']:.4g})"
    return [TokenValues(title, values["side"], losses)]


def figure(explanation: "Explanation", values: JsonMapping) -> Figure:
    """Draw a bar per answer with its loss, and a line at their mean; bars of given tokens are grey.

    The bar of an infinite loss is as long as that of the largest finite one.

    Raises:
        RequestError: there are no answers, or too many.
    """
    from matplotlib.patches import Patch

    from heedful.explain.drawing.canvas import ROW_HEIGHT, check_rows, finish_figure, label_rows, new_figure

    answers, losses, given, mean = (values[name] for name in ("answers", "losses", "given", "mean"))
    if not answers:
        raise RequestError("the answer is empty, so there is nothing to draw")
    check_rows(len(answers))
    fig = new_figure(6.0, ROW_HEIGHT * len(answers) + 1.45)
    axes = fig.add_subplot()
    shades = [GIVEN if is_given else PREDICTED for is_given in given]
    largest = max((loss for loss in losses if loss), default=1.0)
    widths = [largest if loss is None else loss for loss in losses]
    bars = axes.barh(range(len(answers)), widths, height=0.72, color=shades)
    background = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    numbers = [f"{_loss(loss):.2f}" for loss in losses]
    axes.bar_label(bars, numbers, padding=3, fontsize=8, color="0.35", bbox=background)
    legend = ((PREDICTED, "predicted", not all(given)), (GIVEN, "given", any(given)))
    handles: list["Artist"] = [Patch(facecolor=shade, label=name) for shade, name, occurs in legend if occurs]
    if mean is not None and len(answers) > 1:
        line = axes.axvline(mean, color="0.4", linewidth=1, linestyle="--", zorder=0)
        line.set_label(f"mean {mean:.2f}")
        handles.append(line)
    axes.set_xlim(0, 1.12 * largest)
    axes.set_ylim(len(answers) - 0.4, -0.6)
    label_rows(axes, answers)
    axes.set_xlabel("loss (nats)", fontsize=9)
    axes.legend(
        handles=handles,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        borderaxespad=0.2,
        ncols=len(handles),
        fontsize=8,
        frameon=False,
    )
    note = "" if mean is None else f"perplexity {_loss(values['perplexity']):.4g}"
    return finish_figure(fig, explanation.text, note)
