"""View ``lens``: the output layer applied to the hidden states of every layer ("logit lens")."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.explain.drawings import Cell, CellLike, Drawing, Table
from heedful.explain.views.shared import (
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

TITLE = "Logit lens: most probable answer at each depth"

NOTE = "coloured by probability; bold: equal to the final answer"


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


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return a table with a row per answer and a column per depth: the most probable answer there.

    Those that are equal to the final one are bold. The last row has the mean log-probability of the answers.
    """
    if not values["depths"]:
        return []
    rows: list[list[CellLike]] = [[answer] for answer in values["answers"]]
    means: list[CellLike] = ["mean log-probability"]
    for depth in values["depths"]:
        for row, top in zip(rows, depth["top"], strict=True):
            best = top[0]
            is_final = best["answer"] == row[0]
            row.append(
                Cell(best["answer"], probability=probability(best["log_prob"]), is_emphasised=is_final)
            )
        log_probs = [-math.inf if value is None else value for value in depth["log_probs"]]
        means.append(f"{sum(log_probs) / len(log_probs):.3f}")
    names = [f"layer {depth}" if depth else "embeddings" for depth in range(len(values["depths"]))]
    return [Table(TITLE, ["answer", *names], [*rows, means], note=NOTE)]
