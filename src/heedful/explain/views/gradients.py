"""How the answer changes with what is read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from heedful.errors import RequestError
from heedful.explain.reading import Reading
from heedful.explain.view import Explanation
from heedful.explain.views.shared import EMBEDDINGS, rounded
from heedful.nn.taps import listening

if TYPE_CHECKING:
    from heedful.runs.run import Run


def has(run: "Run") -> bool:
    """Whether the model embeds what it reads."""
    return any(hasattr(run.model, name) for name in EMBEDDINGS)


def compute(run: "Run", reading: Reading, seen: Sequence[Explanation]) -> dict[str, Any]:
    """See `gradients`."""
    return gradients(run, reading)


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
            "products": [rounded(v) for v in (gradient * leaves[name].detach()).sum(-1).tolist()],
            "norms": [rounded(v) for v in gradient.norm(dim=-1).tolist()],
        }
        for name, gradient in zip(embeddings, found, strict=True)
    ]
    names = questions.names
    return {"score": rounded(score.item()), "answers": [names[i] for i in numbers], "sides": sides}


@contextmanager
def _leaves(model: nn.Module, embeddings: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """What embeddings hand on, as leaves of the graph: nothing below them is differentiated."""
    leaves: dict[str, Tensor] = {}

    def cut(name: str, output: Tensor) -> Tensor:
        leaves[name] = output.detach().requires_grad_()
        return leaves[name]

    with listening(model, {f"{name}.output": partial(cut, name) for name in embeddings}):
        yield leaves


def lines(seen: Explanation, values: Mapping[str, Any]) -> list[str]:
    """A line for each token that was read."""
    told = [f"gradient x input, and the gradient's norm, for the score {values['score']:.4f}"]
    for side in values["sides"]:
        told.append(f"  {side['name']}")
        rows = zip(seen.sides[side["name"]].tokens, side["products"], side["norms"], strict=True)
        told += [f"  {product:+10.4f}  {norm:10.4f}  {token}" for token, product, norm in rows]
    return told


def drawings(seen: Explanation, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What of each side speaks for the answer, and what against it."""
    return [
        {
            "title": f"Gradient times input, {each['name']}",
            "kind": "tokens",
            "side": each["name"],
            "values": each["products"],
        }
        for each in values["sides"]
    ]
