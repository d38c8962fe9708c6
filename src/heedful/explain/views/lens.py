"""View ``lens``: the output layer applied to the hidden states of every layer ("logit lens")."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.errors import RequestError
from heedful.explain.view import Explanation
from heedful.explain.views.shared import probability, questions_of, refuse_numbers, rounded
from heedful.nn.blocks import DecoderStack, EncoderStack
from heedful.nn.taps import capture
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.runs.run import Run

STACKS = {"decoder": "target_embedding", "stack": "embedding"}
"""Stacks of models that the heads read, and the embedding of each."""


def has(run: "Run") -> bool:
    """Whether the model has a stack of blocks, and its answer a probability."""
    is_number = run.recipe.task.kind == "regression"
    return not is_number and any(
        isinstance(getattr(run.model, name, None), EncoderStack | DecoderStack) for name in STACKS
    )


def compute(run: "Run", prepared: ModelInput, explanations: Sequence[Explanation]) -> JsonObject:
    """Return `lens` with its default options."""
    return lens(run, prepared)


@torch.no_grad()
def lens(run: "Run", prepared: ModelInput, *, top: int = 5) -> JsonObject:
    """Apply the output layer to the hidden states at every depth ("logit lens").

        p_l = softmax(head(norm(h_l)))      h_0 = embeddings,  h_l = output of block l,  l = 1 … L

    norm is the norm after the last block; it is the identity in post-norm stacks, whose blocks end with their
    own norm. So p_L is the model's distribution. Classification heads read a pooled vector, which is pooled
    at the same depth. Only the last depth was trained to be read by the head; lower depths are less reliable,
    particularly in post-norm stacks.

    Source: nostalgebraist 2020, "interpreting GPT: the logit lens"; Geva et al. 2022, section 2, justify it
    by the sums in the residual stream.

    Args:
        run: its model has a stack of blocks.
        prepared: the input in the form the model reads.
        top: number of most probable answers returned for each depth.

    Returns:
        ``side``, ``places`` and ``answers`` of the questions (`Questions`), and ``depths``: for each, from 0,
        the ``log_probs`` of the answers, and the ``top`` answers of each question, best first.

    Raises:
        RequestError: the model has no blocks, or its answer is a number.
    """
    name, stack = _stack(run.model)
    refuse_numbers(prepared)
    batch, questions = prepared.batch, prepared.questions
    stages = [STACKS[name], *(f"{name}.blocks.{i}" for i in range(len(stack.blocks)))]
    outputs = [f"{stage}.output" for stage in stages]
    with capture(run.model, dict.fromkeys(outputs)) as seen:
        run.model(batch.inputs, batch.source)
    hidden = [seen[output][-1] for output in outputs]
    return {
        **questions_of(prepared),
        "depths": [_read_out(prepared, stack.norm(states), top) for states in hidden]
        if len(questions)
        else [],
    }


def _read_out(prepared: ModelInput, states: Float[Tensor, "T d"], top: int) -> JsonObject:
    log_probs, best, at = [], [], 0
    for logits in prepared.questions.logits(states):
        found = logits.float().log_softmax(-1)
        wanted = prepared.questions.answers[at : at + len(found)].to(found.device)
        log_probs += found.gather(1, wanted[:, None])[:, 0].tolist()
        values, numbers = found.topk(min(top, found.shape[1]))
        for i, (row, own) in enumerate(zip(values.tolist(), numbers.tolist(), strict=True), at):
            pairs = zip(own, row, strict=True)
            named = [(prepared.questions.name(i, number), value) for number, value in pairs]
            best.append([{"answer": answer, "log_prob": rounded(value)} for answer, value in named])
        at += len(found)
    return {"log_probs": [rounded(value) for value in log_probs], "top": best}


def _stack(model: nn.Module) -> tuple[str, EncoderStack | DecoderStack]:
    """Return the stack that the heads read, and its name.

    Raises:
        RequestError: there is none.
    """
    for name in STACKS:
        found = getattr(model, name, None)
        if isinstance(found, EncoderStack | DecoderStack):
            return name, found
    raise RequestError("view lens needs a stack of blocks, which this model does not have; use another view")


def lines(explanation: Explanation, values: JsonMapping) -> list[str]:
    """Return a line per depth: the most probable answer to every question."""
    output = ["logit lens: most probable answer at each depth (0: embeddings)"]
    for number, depth in enumerate(values["depths"]):
        best = " ".join(top[0]["answer"] for top in depth["top"])
        mean = sum(depth["log_probs"]) / max(1, len(depth["log_probs"]))
        output.append(f"  {number:>3}  mean log-probability {mean:8.3f}  {best}")
    return output


def drawings(explanation: Explanation, values: JsonMapping) -> list[JsonObject]:
    """Return a table with a row per depth: the most probable answer to each question."""
    if not values.get("depths"):
        return []
    rows = [
        [name, *([one["answer"], probability(one["log_prob"])] for one in best)]
        for name, best in _depths(values)
    ]
    columns = ["after", *values["answers"]]
    return [
        {
            "title": "Logit lens: most probable answer after each layer",
            "kind": "table",
            "columns": columns,
            "rows": rows,
        }
    ]


def figure(explanation: Explanation, values: JsonMapping) -> "Figure":
    """Draw a table: a row per answer, a column per depth, with the most probable answer in each cell.

    Raises:
        RequestError: there are no answers, or too many.
    """
    from heedful.explain.token_drawings import check_rows, depth_table

    answers, depths = values["answers"], list(_depths(values))
    if not depths:
        raise RequestError("the answer is empty, so there is nothing to draw")
    check_rows(len(answers))
    places = range(len(answers))
    return depth_table(
        answers,
        [name for name, _ in depths],
        [[best[i]["answer"] for _, best in depths] for i in places],
        [[probability(best[i]["log_prob"]) for _, best in depths] for i in places],
        title=str(explanation.answer.get("text", "")),
        note="most probable answer at each depth, coloured by probability; bold: equal to the final answer",
    )


def _depths(values: JsonMapping) -> Iterator[tuple[str, list[JsonObject]]]:
    """Yield the name of each depth, and the most probable answer to each question."""
    for depth, each in enumerate(values["depths"]):
        yield f"layer {depth}" if depth else "embeddings", [top[0] for top in each["top"]]
