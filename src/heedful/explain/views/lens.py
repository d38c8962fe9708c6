"""View ``lens``: the output layer applied to the hidden states of every layer ("logit lens")."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from heedful.errors import RequestError
from heedful.explain.drawings import Cell, CellLike, Drawing, Table
from heedful.explain.views.shared import (
    Figure,
    check_has_probability,
    hidden_states,
    probability,
    questions_of,
    rounded_or_none,
    stacks_of,
)
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

TOP = 5
"""Number of most probable answers at each depth."""

LONGEST = 14
"""Maximum characters of an answer in a cell of the figure."""


def supports(run: LoadedRun) -> bool:
    """Whether the model has a stack of blocks that the heads read, and its answer a probability."""
    return not run.task.info.predicts_numbers and bool(stacks_of(run.model).keys() - {"encoder"})


@torch.no_grad()
def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Apply the output layer to the hidden states at every depth ("logit lens").

        p_l = softmax(head(norm(h_l)))      h_0 = embeddings,  h_l = output of block l,  l = 1 … L

    norm is the norm after the last block; it is the identity in post-norm stacks, whose blocks end with their
    own norm. So p_L is the model's distribution. Classification heads read a pooled vector, which is pooled
    at the same depth. Only the last depth was trained to be read by the head; lower depths are less reliable,
    particularly in post-norm stacks.

    Source: nostalgebraist 2020, "interpreting GPT: the logit lens"; Geva et al. 2022, section 2, justify it
    by the sums in the residual stream.

    Returns:
        ``side`` (name of the axis), ``places`` and ``answers`` of the targets
        (`heedful.tasks.model_input.PredictionTargets`), and ``depths``: for each, from 0, the
        ``log_probs`` of the answers, and the ``top`` answers of each target, best first. The logarithm of
        probability 0 is None.

    Raises:
        RequestError: the answer is a number.
    """
    check_has_probability(prepared)
    ((name, stack),) = ((name, stack) for name, stack in stacks_of(run.model).items() if name != "encoder")
    depths = hidden_states(run.model, prepared, [name])[name] if len(prepared.targets) else []
    read_outs = [_read_out(prepared, stack.norm(hidden)) for hidden in depths]
    return {**questions_of(prepared), "depths": read_outs}


def _read_out(prepared: ModelInput, hidden: Float[Tensor, "T d"]) -> JsonObject:
    targets = prepared.targets
    log_probs: list[float] = []
    top = []
    for logits in targets.logits(hidden, prepared.batch):
        chunk, start = logits.float().log_softmax(-1), len(log_probs)
        answers = targets.answers[start : start + len(chunk)].to(chunk.device)
        log_probs += chunk.gather(1, answers[:, None])[:, 0].tolist()
        top_log_probs, top_indices = (tensor.tolist() for tensor in chunk.topk(min(TOP, chunk.shape[1])))
        for i, pairs in enumerate(map(zip, top_indices, top_log_probs), start):
            named = [(targets.name(i, number), value) for number, value in pairs]
            top.append([{"answer": answer, "log_prob": rounded_or_none(value)} for answer, value in named])
    return {"log_probs": [rounded_or_none(value) for value in log_probs], "top": top}


def lines(explanation: "Explanation", values: JsonMapping) -> list[str]:
    """Return a line per depth: the most probable answer to every question."""
    output = ["logit lens: most probable answer at each depth (0: embeddings)"]
    for number, depth in enumerate(values["depths"]):
        answers = " ".join(top[0]["answer"] for top in depth["top"])
        log_probs = [-math.inf if value is None else value for value in depth["log_probs"]]
        mean = sum(log_probs) / max(1, len(log_probs))
        output.append(f"  {number:>3}  mean log-probability {mean:8.3f}  {answers}")
    return output


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return a table with a row per depth: the most probable answer to each question."""
    rows: list[list[CellLike]] = [
        [name, *(Cell(entry["answer"], probability=probability(entry["log_prob"])) for entry in best)]
        for name, best in _depths(values)
    ]
    title, columns = "Logit lens: most probable answer after each layer", ["after", *values["answers"]]
    return [Table(title, columns, rows)] if rows else []


def figure(explanation: "Explanation", values: JsonMapping) -> Figure:
    """Draw a table: a row per answer, a column per depth, with the most probable answer in each cell.

    Cells are coloured by probability; answers that are equal to the final one are bold.

    Raises:
        RequestError: there are no answers, or too many.
    """
    from heedful.explain.drawing.canvas import (
        check_rows,
        colours,
        finish_figure,
        label_rows,
        new_figure,
        shorten,
        text_colour,
    )

    answers, depths = values["answers"], list(_depths(values))
    if not depths:
        raise RequestError("the answer is empty, so there is nothing to draw")
    check_rows(len(answers))
    probabilities = np.array([[probability(entry["log_prob"]) for entry in best] for _, best in depths]).T
    cells = [[shorten(best[i]["answer"], LONGEST) for _, best in depths] for i in range(len(answers))]
    names, rows = [name for name, _ in depths], [shorten(answer, 2 * LONGEST) for answer in answers]
    longest = max(len(text) for text in [*names, *(entry for row in cells for entry in row)])
    width = len(names) * (0.078 * longest + 0.2) + 0.085 * max(map(len, rows)) + 0.3
    fig = new_figure(max(width, 4.2), 0.26 * len(rows) + 1.7)
    axes, scale_axes = fig.subplots(2, 1, height_ratios=[0.26 * len(rows), 0.09])
    image = axes.imshow(probabilities, cmap=colours(), vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for (row, column), share in np.ndenumerate(probabilities):
        axes.text(
            column,
            row,
            cells[row][column],
            ha="center",
            va="center",
            fontsize=8.5,
            color=text_colour(colours()(share)),
            weight="bold" if depths[column][1][row]["answer"] == answers[row] else "normal",
            parse_math=False,
        )
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(names)), names, fontsize=9)
    axes.set_xticks([i + 0.5 for i in range(len(names) - 1)], minor=True)
    axes.set_yticks([i + 0.5 for i in range(len(rows) - 1)], minor=True)
    axes.grid(which="minor", color="0.85", linewidth=0.6)
    label_rows(axes, rows)
    bar = fig.colorbar(image, cax=scale_axes, orientation="horizontal", ticks=[0, 0.5, 1], format="%g")
    bar.outline.set_visible(False)
    scale_axes.tick_params(labelsize=8, length=0)
    note = "most probable answer at each depth, coloured by probability; bold: equal to the final answer"
    return finish_figure(fig, explanation.text, note)


def _depths(values: JsonMapping) -> Iterator[tuple[str, list[JsonObject]]]:
    """Yield the name of each depth, and the most probable answer to each question."""
    for depth, entry in enumerate(values["depths"]):
        yield f"layer {depth}" if depth else "embeddings", [top[0] for top in entry["top"]]
