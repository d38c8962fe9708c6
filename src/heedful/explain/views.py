"""Views of an input besides attention, as values that are ready for JSON.

| view | what it says | needs |
|---|---|---|
| ``lens`` | what the model would answer if it ended after each of its blocks | a stack of blocks |
| ``losses`` | how probable each token that was written, or given, is to the model | probabilities |
| ``gradients`` | how much the answer hangs on each token that was read | an embedding |

They read the model as it is, without dropout, through the same forward pass that answers.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.errors import RequestError
from heedful.explain.points import INPUT, PREFIX, SOURCE
from heedful.explain.reading import Reading
from heedful.nn.blocks import DecoderStack, EncoderStack
from heedful.nn.taps import listening, watching

if TYPE_CHECKING:
    from heedful.runs.run import Run

DIGITS = 6
"""To which numbers are rounded."""

EMBEDDINGS = {"embedding": INPUT, "source_embedding": SOURCE, "target_embedding": PREFIX}
"""The parts of models that embed what they read, and the side that each reads."""

STACKS = {"decoder": "target_embedding", "stack": "embedding"}
"""The parts of models whose top the heads read, and what embeds for each."""


# The residual stream, read out at every depth ------------------------------------------------------------


@torch.no_grad()
def lens(run: "Run", reading: Reading, *, top: int = 5) -> dict[str, Any]:
    """What the model's output layer makes of the hidden states at every depth ("logit lens").

        p_l = softmax(head(norm(h_l)))      h_0 = embeddings,  h_l = output of block l,  l = 1 … L

    norm is the one behind the last block, an identity in post-norm stacks, whose blocks end in one of their
    own; so p_L is the model's own distribution. The heads of classifiers read a pooled vector, which is then
    pooled at that depth. Only what was trained to be read there is sure to mean anything: lower depths are a
    hint, and those of a post-norm stack a weaker one.

    Source: nostalgebraist 2020, "interpreting GPT: the logit lens"; Geva et al. 2022, section 2, has the
    justification by sums of residuals.

    Args:
        run: whose model has a stack of blocks.
        reading: of the input.
        top: how many of the most probable answers are told at each depth.

    Returns:
        ``side``, ``places`` and ``answers`` of the questions (`Questions`), and ``depths``: for each, from 0
        on, the ``log_probs`` of those answers and the ``top`` answers of each question, best first.

    Raises:
        RequestError: the model has no blocks, or its answer is a number.
    """
    name, stack = _stack(run.model)
    _refuse_numbers(reading)
    batch, questions = reading.batch, reading.questions
    stages = [STACKS[name], *(f"{name}.blocks.{i}" for i in range(len(stack.blocks)))]
    outputs = [f"{stage}.output" for stage in stages]
    with watching(run.model, dict.fromkeys(outputs)) as seen:
        run.model(batch.inputs, batch.source)
    hidden = [seen[output][-1] for output in outputs]
    return {
        **_questions(reading),
        "depths": [_read_out(reading, stack.norm(states), top) for states in hidden]
        if len(questions)
        else [],
    }


def _read_out(reading: Reading, states: Float[Tensor, "T d"], top: int) -> dict[str, Any]:
    log_probs, best, at = [], [], 0
    for logits in reading.questions.logits(states):
        found = logits.float().log_softmax(-1)
        wanted = reading.questions.answers[at : at + len(found)].to(found.device)
        log_probs += found.gather(1, wanted[:, None])[:, 0].tolist()
        values, numbers = found.topk(min(top, found.shape[1]))
        for i, (row, own) in enumerate(zip(values.tolist(), numbers.tolist(), strict=True), at):
            pairs = zip(own, row, strict=True)
            named = [(reading.questions.name(i, number), value) for number, value in pairs]
            best.append([{"answer": answer, "log_prob": _rounded(value)} for answer, value in named])
        at += len(found)
    return {"log_probs": [_rounded(value) for value in log_probs], "top": best}


def _stack(model: nn.Module) -> tuple[str, EncoderStack | DecoderStack]:
    """The stack whose top the heads read, and its name.

    Raises:
        RequestError: there is none.
    """
    for name in STACKS:
        found = getattr(model, name, None)
        if isinstance(found, EncoderStack | DecoderStack):
            return name, found
    raise RequestError(
        "the view lens reads what is between blocks, and this model has no stack of blocks: take another view"
    )


# Losses ----------------------------------------------------------------------------------------------------


@torch.no_grad()
def losses(run: "Run", reading: Reading) -> dict[str, Any]:
    """How probable each answer is, and what it costs: ``loss_i = -log p_i``, in nats.

    A language model is asked for every token but the first, the prompt's too: those are ``given``, and not
    part of the ``mean`` and its exponential, the ``perplexity``.

    Returns:
        ``side``, ``places`` and ``answers`` of the questions, and for each ``given``, ``probabilities`` and
        ``losses``; ``mean`` and ``perplexity`` are None where nothing was written.

    Raises:
        RequestError: the answer is a number.
    """
    _refuse_numbers(reading)
    batch, given = reading.batch, reading.questions.given
    scores = reading.questions.scores(run.model(batch.inputs, batch.source)).double()
    own = scores[given:]
    mean = -own.mean() if len(own) else None
    return {
        **_questions(reading),
        "given": [i < given for i in range(len(scores))],
        "probabilities": [_rounded(value) for value in scores.exp().tolist()],
        "losses": [_rounded(-value) for value in scores.tolist()],
        "mean": None if mean is None else _rounded(mean.item()),
        "perplexity": None if mean is None else _rounded(mean.exp().item()),
    }


# Gradients -------------------------------------------------------------------------------------------------


def gradients(run: "Run", reading: Reading, *, of: int | None = None) -> dict[str, Any]:
    """How the answer's log-probability changes with what is read, token by token: gradient × input.

        S = log p(answer),      g_t = dS / de_t,      products_t = g_t · e_t,      norms_t = |g_t|

    e_t is what the embedding hands to the model for token t, its position included (and after the norm,
    where the embedding has one). ``products`` sum to the derivative of S along all e: how fast S grows when
    everything that is read grows alike; one above 0 speaks for the answer. ``norms`` say how much a small
    change of a token could do, and have no direction. Neither is what leaving the token out would do.

    Source: Simonyan et al. 2014, section 3 (norms, there the greatest component); Denil et al. 2014 and
    Shrikumar et al. 2017, section 1 (products).

    Args:
        run: whose model embeds what it reads.
        reading: of the input.
        of: which question's answer; None: all that were not given, whose log-probabilities are summed.

    Returns:
        ``score`` S, the ``answers`` that it is of, and ``sides``: of each side that is read its name,
        ``products`` and ``norms``.

    Raises:
        RequestError: there is no such question, none at all, or nothing is embedded.
    """
    embeddings = [name for name in EMBEDDINGS if hasattr(run.model, name)]
    if not embeddings:
        raise RequestError(
            "the view gradients needs an embedding, and this model reads pixels as they are: "
            "take another view"
        )
    questions = reading.questions
    numbers = list(range(questions.given, len(questions))) if of is None else [of]
    if not numbers:
        raise RequestError("nothing was answered, so there is nothing to differentiate")
    if not 0 <= numbers[0] < len(questions):
        raise RequestError(f"there is no answer {numbers[0]}: there are {len(questions)}")
    with torch.enable_grad(), _leaves(run.model, embeddings) as leaves:
        hidden = run.model(reading.batch.inputs, reading.batch.source)
        score = questions.scores(hidden)[numbers].sum()
        found = torch.autograd.grad(score, [leaves[name] for name in embeddings])
    sides = [
        {
            "name": EMBEDDINGS[name],
            "products": [_rounded(v) for v in (gradient * leaves[name].detach()).sum(-1).tolist()],
            "norms": [_rounded(v) for v in gradient.norm(dim=-1).tolist()],
        }
        for name, gradient in zip(embeddings, found, strict=True)
    ]
    names = questions.names
    return {"score": _rounded(score.item()), "answers": [names[i] for i in numbers], "sides": sides}


@contextmanager
def _leaves(model: nn.Module, embeddings: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """What embeddings hand on, as leaves of the graph: nothing below them is differentiated."""
    leaves: dict[str, Tensor] = {}

    def cut(name: str, output: Tensor) -> Tensor:
        leaves[name] = output.detach().requires_grad_()
        return leaves[name]

    with listening(model, {f"{name}.output": partial(cut, name) for name in embeddings}):
        yield leaves


# What they share -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A view by its name.

    Args:
        compute: makes it.
        has: whether a run's model has what it needs.
    """

    compute: Callable[["Run", Reading], dict[str, Any]]
    has: Callable[["Run"], bool]


VIEWS: dict[str, View] = {
    "lens": View(lens, lambda run: _has_stack(run.model) and not _is_number(run)),
    "losses": View(losses, lambda run: not _is_number(run)),
    "gradients": View(gradients, lambda run: any(hasattr(run.model, name) for name in EMBEDDINGS)),
}


def _has_stack(model: nn.Module) -> bool:
    return any(isinstance(getattr(model, name, None), EncoderStack | DecoderStack) for name in STACKS)


def _is_number(run: "Run") -> bool:
    return run.recipe.task.kind == "regression"


def _refuse_numbers(reading: Reading) -> None:
    if reading.questions.numbers is not None:
        raise RequestError("the answer is a number and has no probability: take the view gradients")


def _questions(reading: Reading) -> dict[str, Any]:
    questions = reading.questions
    return {"side": questions.side, "places": list(questions.places), "answers": questions.names}


def _rounded(value: float) -> float:
    """To 6 digits behind the point."""
    return round(value, DIGITS)
