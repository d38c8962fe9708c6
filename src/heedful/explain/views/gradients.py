"""How the answer changes with what is read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from heedful.explain.reading import ModelInput
from heedful.explain.view import INPUT, SOURCE, Axis, Explanation
from heedful.explain.views.shared import EMBEDDINGS, rounded
from heedful.nn.patches import Images
from heedful.nn.taps import intervene

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.runs.run import Run

DIGITS = 6
"""Significant ones: where the answer is nearly certain, all numbers are small."""

SMALL = 1e-2
"""Below it four places behind the point are not enough."""

STRONGEST = 4
"""Patches that the terminal names, for the answer and against it."""

MEANS = "blue speaks for the answer, red against it"


def has(run: "Run") -> bool:
    """Whether the model embeds what it reads, or reads pixels."""
    return bool(run.task.columns.images) or any(hasattr(run.model, name) for name in EMBEDDINGS)


def compute(run: "Run", reading: ModelInput, seen: Sequence[Explanation]) -> dict[str, Any]:
    """See `gradients`."""
    return gradients(run, reading)


def gradients(run: "Run", reading: ModelInput, *, of: int | None = None) -> dict[str, Any]:
    """How the answer's log-probability changes with what is read, token by token: gradient × input.

        S = log p(answer),      g_t = dS / de_t,      products_t = g_t · e_t,      norms_t = |g_t|

    e_t is what the embedding hands to the model for token t, its position included (and after the norm,
    where the embedding has one). ``products`` sum to the derivative of S along all e: how fast S grows when
    everything that is read grows alike; one above 0 speaks for the answer. ``norms`` say how much a small
    change of a token could do, and have no direction. Neither is what leaving the token out would do.

    Of an image the same is told of each pixel: e_t is then the vector of its channels as the model reads
    them, which are 0 at the mean of the training data: a pixel of that level says nothing.

    Source: Simonyan et al. 2014, section 3 (norms, there the greatest component); Denil et al. 2014 and
    Shrikumar et al. 2017, section 1 (products).

    Args:
        run: whose model embeds what it reads, or reads pixels.
        reading: of the input.
        of: which question's answer; None: all that were not given, whose log-probabilities are summed.

    Returns:
        ``score`` S, the ``answers`` that it is of, and ``sides``: of each side that is embedded its name,
        ``products`` and ``norms``. Where pixels are read, ``images`` has the same of them, in rows.

    Raises:
        RequestError: there is no such question, none at all, or nothing can be differentiated.
    """
    embeddings = [name for name in EMBEDDINGS if hasattr(run.model, name)]
    questions = reading.questions
    numbers = list(range(questions.given, len(questions))) if of is None else [of]
    if not numbers:
        raise RequestError("nothing was answered, so there is nothing to differentiate")
    if not 0 <= numbers[0] < len(questions):
        raise RequestError(f"there is no answer {numbers[0]}: there are {len(questions)}")
    batch, pixels = _with_pixels(reading.batch)
    if not embeddings and not pixels:
        raise RequestError("the view gradients needs an embedding or pixels: take another view")
    with torch.enable_grad(), _inner(run.model, embeddings) as inner:
        hidden = run.model(batch.inputs, batch.source)
        score = questions.scores(hidden)[numbers].sum()
        read = [*(inner[name] for name in embeddings), *pixels.values()]
        found = torch.autograd.grad(score, read)
    names = questions.names
    told = {"score": rounded(score.item()), "answers": [names[i] for i in numbers]}
    told["sides"] = [
        {"name": EMBEDDINGS[name], **_told(gradient, inner[name])}
        for name, gradient in zip(embeddings, found, strict=False)
    ]
    if pixels:
        rows = zip(pixels.items(), found[len(embeddings) :], strict=True)
        told["images"] = [
            {"name": side, **_told(gradient[0].movedim(0, -1), given[0].movedim(0, -1))}
            for (side, given), gradient in rows
        ]
    return told


def _told(gradient: Float[Tensor, "... d"], given: Float[Tensor, "... d"]) -> dict[str, Any]:
    """``products`` and ``norms``, as nested lists of the shape in front of d."""
    return {
        "products": _significant((gradient * given.detach()).sum(-1).tolist()),
        "norms": _significant(gradient.norm(dim=-1).tolist()),
    }


def _significant(values: Any) -> Any:
    if isinstance(values, list):
        return [_significant(each) for each in values]
    return float(f"{values:.{DIGITS}g}")


def _with_pixels(batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
    """The batch with pixels that can be differentiated, and these by the side that they are."""
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
    """What embeddings hand on, part of the graph: leaves of it where nothing below is differentiated."""
    inner: dict[str, Tensor] = {}

    def seen(name: str, output: Tensor) -> Tensor:
        inner[name] = output if output.requires_grad else output.detach().requires_grad_()
        return inner[name]

    with intervene(model, {f"{name}.output": partial(seen, name) for name in embeddings}):
        yield inner


# What is shown -------------------------------------------------------------------------------------------


def lines(seen: Explanation, values: Mapping[str, Any]) -> list[str]:
    """A line for each token that was read; of an image, the patches that say most."""
    told = [f"gradient x input, and the gradient's norm, for the score {values['score']:.4f}"]
    for each in values["sides"]:
        side = seen.sides[each["name"]]
        if side.grid is not None:
            continue
        told.append(f"  {each['name']}")
        form, other = _form(each["products"]), _form(each["norms"])
        rows = zip(side.tokens, each["products"], each["norms"], strict=True)
        told += [f"  {product:+10{form}}  {norm:10{other}}  {token}" for token, product, norm in rows]
    for each in values.get("images", ()):
        told += _of_patches(seen.sides[each["name"]], each)
    return told


def _form(values: Iterable[float]) -> str:
    """Places behind the point, or powers of ten where these would be nearly all zeros (of a sure answer)."""
    return ".3e" if 0 < max(map(abs, values), default=0) < SMALL else ".4f"


def _of_patches(side: Axis, values: Mapping[str, Any]) -> list[str]:
    """Sums over the pixels of each patch: the greatest and the least."""
    assert side.grid is not None
    sums = block_sums(np.asarray(values["products"], dtype=float), side.grid)
    order = np.argsort(-sums, axis=None, kind="stable")
    rows = {"for": order[:STRONGEST], "against": order[::-1][:STRONGEST]}
    rows_by_columns = " x ".join(map(str, sums.shape))
    told = [f"  the pixels of {rows_by_columns} patches, summed (row,column); {sums.sum():+.4g} in all"]
    for name, places in rows.items():
        found = [(np.unravel_index(int(n), sums.shape), float(sums.flat[int(n)])) for n in places]
        kept = [(at, value) for at, value in found if (value > 0) == (name == "for") and value]
        patches = "   ".join(f"{row + 1},{column + 1} {value:+.4g}" for (row, column), value in kept)
        told.append(f"  {name:<9} {patches or 'none'}")
    return told


def drawings(seen: Explanation, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What of each side speaks for the answer, and what against it; of images, pixel by pixel too."""
    images: dict[str, list[dict[str, Any]]] = {}
    for name, label, grid in _panels(seen, values):
        made = {"label": label, "values": grid.ravel().tolist(), "grid": [*grid.shape]}
        images.setdefault(name, []).append(made)
    drawn: list[dict[str, Any]] = [
        {"title": _title(name), "kind": "patches", "side": name, "images": found, "apart": True}
        for name, found in images.items()
    ]
    for each in values["sides"]:
        side = seen.sides.get(each["name"])
        if side is not None and side.grid is None:
            title = _title(each["name"])
            drawn.append({"title": title, "kind": "tokens", "side": each["name"], "values": each["products"]})
    return drawn


def _title(side: str) -> str:
    return f"What in the {side} speaks for the answer: gradient \N{MULTIPLICATION SIGN} input"


def _panels(seen: Explanation, values: Mapping[str, Any]) -> Iterator[tuple[str, str, Numbers]]:
    """Of each image its side, a label and ``[rows, columns]``: of its pixels, then of its patches."""
    for each in values.get("images", ()):
        yield each["name"], "each pixel", np.asarray(each["products"], dtype=float)
    for each in values["sides"]:
        side = seen.sides.get(each["name"])
        if side is not None and side.grid is not None:
            products = np.asarray(each["products"], dtype=float)
            own = [
                f"; {token} {value:+.3g}"
                for token, value in zip(side.tokens, products[: side.before], strict=False)
            ]
            yield each["name"], f"each embedded patch{''.join(own)}", on_grid(products, side)


def figure(seen: Explanation, values: Mapping[str, Any]) -> "Figure":
    """Maps beside the image; where a text is read, a bar for each token.

    Raises:
        RequestError: the text has too many tokens.
    """
    from heedful.explain.drawings import signed_panels
    from heedful.explain.token_drawings import check_rows, signed_bars

    title, note = str(seen.answer.get("text", "")), f"gradient \N{MULTIPLICATION SIGN} input: {MEANS}"
    panels = list(_panels(seen, values))
    if panels:
        image = seen.sides[panels[0][0]].image
        return signed_panels([(label, grid) for _, label, grid in panels], image, title=title, note=note)
    sides = [(each["name"], seen.sides[each["name"]].tokens, each["products"]) for each in values["sides"]]
    check_rows(max(len(tokens) for _, tokens, _ in sides))
    return signed_bars(sides, title=title, note=note)
