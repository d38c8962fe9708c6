"""View ``gradients``: gradient x input of the answer's log-probability."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.errors import RequestError
from heedful.explain.flow import Numbers
from heedful.explain.patches import block_sums, on_grid
from heedful.explain.view import Explanation
from heedful.explain.views.shared import EMBEDDINGS, rounded
from heedful.nn.patches import Images
from heedful.nn.taps import intervene
from heedful.tasks.model_input import INPUT, SOURCE, Axis, ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.runs.run import Run

DIGITS = 6
"""Significant digits; for a nearly certain answer all gradients are small."""

SMALL = 1e-2
"""Below this maximum, numbers are shown in scientific notation."""

STRONGEST = 4
"""Number of patches with positive and negative values in the terminal."""

MEANS = "blue raises the score of the answer, red lowers it"


def has(run: "Run") -> bool:
    """Whether the model embeds its input or reads pixels."""
    return bool(run.task.columns.images) or any(hasattr(run.model, name) for name in EMBEDDINGS)


def compute(run: "Run", prepared: ModelInput, explanations: Sequence[Explanation]) -> JsonObject:
    """Return `gradients` of the predicted answer."""
    return gradients(run, prepared)


def gradients(run: "Run", prepared: ModelInput, *, of: int | None = None) -> JsonObject:
    """Return the gradient of the answer's log-probability with respect to each input token: gradient x input.

        S = log p(answer),      g_t = dS / de_t,      products_t = g_t · e_t,      norms_t = |g_t|

    e_t is the output of the embedding for token t, including its position (and after the norm, if the
    embedding has one). The sum of ``products`` is the derivative of S along e, the rate at which S grows when
    all inputs are scaled up; a positive product supports the answer. ``norms`` measure how much a small
    change of a token can change S, without direction. Neither is the effect of removing the token.

    For images, the same is computed for each pixel: e_t is the vector of its normalised channels, which is 0
    at the mean of the training data, so that a pixel of that value has product 0.

    Source: Simonyan et al. 2014, section 3 (norms; they use the largest component); Denil et al. 2014 and
    Shrikumar et al. 2017, section 1 (products).

    Args:
        run: its model embeds the input or reads pixels.
        prepared: the input in the form the model reads.
        of: index of the question whose answer is differentiated; None: the sum over all questions that were
            not given.

    Returns:
        ``score`` S, its ``answers``, and ``sides``: for each embedded side its name, ``products`` and
        ``norms``. If the model reads pixels, ``images`` contains the same for pixels, by row.

    Raises:
        RequestError: the question does not exist, there are no questions, or the input is not differentiable.
    """
    embeddings = [name for name in EMBEDDINGS if hasattr(run.model, name)]
    questions = prepared.questions
    numbers = list(range(questions.given, len(questions))) if of is None else [of]
    if not numbers:
        raise RequestError("the answer is empty, so there is no score to differentiate")
    if not 0 <= numbers[0] < len(questions):
        raise RequestError(f"answer must be between 0 and {len(questions) - 1}, got {numbers[0]}")
    batch, pixels = _with_pixels(prepared.batch)
    if not embeddings and not pixels:
        raise RequestError("view gradients needs an embedding or pixels; use another view")
    with torch.enable_grad(), _inner(run.model, embeddings) as inner:
        hidden = run.model(batch.inputs, batch.source)
        score = questions.scores(hidden)[numbers].sum()
        read = [*(inner[name] for name in embeddings), *pixels.values()]
        found = torch.autograd.grad(score, read)
    names = questions.names
    values = {"score": rounded(score.item()), "answers": [names[i] for i in numbers]}
    values["sides"] = [
        {"name": EMBEDDINGS[name], **_products(gradient, inner[name])}
        for name, gradient in zip(embeddings, found, strict=False)
    ]
    if pixels:
        rows = zip(pixels.items(), found[len(embeddings) :], strict=True)
        values["images"] = [
            {"name": side, **_products(gradient[0].movedim(0, -1), given[0].movedim(0, -1))}
            for (side, given), gradient in rows
        ]
    return values


def _products(gradient: Float[Tensor, "... d"], given: Float[Tensor, "... d"]) -> JsonObject:
    """Return ``products`` and ``norms`` as nested lists, with the shape of all axes but the last."""
    return {
        "products": _significant((gradient * given.detach()).sum(-1).tolist()),
        "norms": _significant(gradient.norm(dim=-1).tolist()),
    }


def _significant(values: Any) -> Any:
    if isinstance(values, list):
        return [_significant(each) for each in values]
    return float(f"{values:.{DIGITS}g}")


def _with_pixels(batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
    """Return the batch with differentiable pixels, and the pixels by side."""
    found: dict[str, Tensor] = {}

    def leaf(part: Any, side: str) -> Any:
        if not isinstance(part, Images):
            return part
        found[side] = part.pixels.detach().clone().requires_grad_()
        return replace(part, pixels=found[side])

    batch = replace(batch, inputs=leaf(batch.inputs, INPUT), source=leaf(batch.source, SOURCE))
    return batch, found


@contextmanager
def _inner(model: nn.Module, embeddings: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Capture the outputs of embeddings as part of the graph, or as leaves if they need no gradient."""
    inner: dict[str, Tensor] = {}

    def seen(name: str, output: Tensor) -> Tensor:
        inner[name] = output if output.requires_grad else output.detach().requires_grad_()
        return inner[name]

    with intervene(model, {f"{name}.output": partial(seen, name) for name in embeddings}):
        yield inner


# Output --------------------------------------------------------------------------------------------------


def lines(explanation: Explanation, values: JsonMapping) -> list[str]:
    """Return a line per input token; for an image, the patches with the largest values."""
    output = [f"gradient x input and gradient norm, for score {values['score']:.4f}"]
    for each in values["sides"]:
        side = explanation.axes[each["name"]]
        if side.grid is not None:
            continue
        output.append(f"  {each['name']}")
        form, other = _form(each["products"]), _form(each["norms"])
        rows = zip(side.tokens, each["products"], each["norms"], strict=True)
        output += [f"  {product:+10{form}}  {norm:10{other}}  {token}" for token, product, norm in rows]
    for each in values.get("images", ()):
        output += _of_patches(explanation.axes[each["name"]], each)
    return output


def _form(values: Iterable[float]) -> str:
    """Return the number format: 4 decimal places, or scientific notation if all values are small."""
    return ".3e" if 0 < max(map(abs, values), default=0) < SMALL else ".4f"


def _of_patches(side: Axis, values: JsonMapping) -> list[str]:
    """Return the largest and smallest sums over the pixels of a patch."""
    assert side.grid is not None
    sums = block_sums(np.asarray(values["products"], dtype=float), side.grid)
    order = np.argsort(-sums, axis=None, kind="stable")
    rows = {"positive": order[:STRONGEST], "negative": order[::-1][:STRONGEST]}
    rows_by_columns = " x ".join(map(str, sums.shape))
    output = [f"  sums over the pixels of {rows_by_columns} patches (row,column); total {sums.sum():+.4g}"]
    for name, places in rows.items():
        found = [(np.unravel_index(int(n), sums.shape), float(sums.flat[int(n)])) for n in places]
        kept = [(at, value) for at, value in found if (value > 0) == (name == "positive") and value]
        patches = "   ".join(f"{row + 1},{column + 1} {value:+.4g}" for (row, column), value in kept)
        output.append(f"  {name:<9} {patches or 'none'}")
    return output


def drawings(explanation: Explanation, values: JsonMapping) -> list[JsonObject]:
    """Return the products of each side; for images also those of pixels."""
    images: dict[str, list[JsonObject]] = {}
    for name, label, grid in _panels(explanation, values):
        made = {"label": label, "values": grid.ravel().tolist(), "grid": [*grid.shape]}
        images.setdefault(name, []).append(made)
    drawn: list[JsonObject] = [
        {"title": _title(name), "kind": "patches", "side": name, "images": found, "apart": True}
        for name, found in images.items()
    ]
    for each in values["sides"]:
        side = explanation.axes.get(each["name"])
        if side is not None and side.grid is None:
            title = _title(each["name"])
            drawn.append({"title": title, "kind": "tokens", "side": each["name"], "values": each["products"]})
    return drawn


def _title(side: str) -> str:
    return f"Gradient \N{MULTIPLICATION SIGN} input of the {side}"


def _panels(explanation: Explanation, values: JsonMapping) -> Iterator[tuple[str, str, Numbers]]:
    """Yield the side, a label and values ``[rows, columns]`` of each image: of pixels, then of patches."""
    for each in values.get("images", ()):
        yield each["name"], "each pixel", np.asarray(each["products"], dtype=float)
    for each in values["sides"]:
        side = explanation.axes.get(each["name"])
        if side is not None and side.grid is not None:
            products = np.asarray(each["products"], dtype=float)
            own = [
                f"; {token} {value:+.3g}"
                for token, value in zip(side.tokens, products[: side.before], strict=False)
            ]
            yield each["name"], f"each embedded patch{''.join(own)}", on_grid(products, side)


def figure(explanation: Explanation, values: JsonMapping) -> "Figure":
    """Draw maps beside the image; for texts, a bar per token.

    Raises:
        RequestError: the text has too many tokens.
    """
    from heedful.explain.drawings import signed_panels
    from heedful.explain.token_drawings import check_rows, signed_bars

    title, note = str(explanation.answer.get("text", "")), f"gradient \N{MULTIPLICATION SIGN} input: {MEANS}"
    panels = list(_panels(explanation, values))
    if panels:
        image = explanation.axes[panels[0][0]].image
        return signed_panels([(label, grid) for _, label, grid in panels], image, title=title, note=note)
    sides = [
        (each["name"], explanation.axes[each["name"]].tokens, each["products"]) for each in values["sides"]
    ]
    check_rows(max(len(tokens) for _, tokens, _ in sides))
    return signed_bars(sides, title=title, note=note)
