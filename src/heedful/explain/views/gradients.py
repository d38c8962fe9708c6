"""View ``gradients``: gradient x input of the answer's log-probability."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.errors import RequestError
from heedful.explain.drawing.matrix import Numbers, on_grid
from heedful.explain.drawings import Drawing, PatchPanel, PatchValues, TokenValues
from heedful.explain.views.shared import EMBEDDINGS, rounded
from heedful.nn.patches import Images
from heedful.nn.taps import intervene
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import INPUT, SOURCE, ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

DIGITS = 6
"""Significant digits; for a nearly certain answer all gradients are small."""

NOTE = (
    "magnitude of gradient \N{MULTIPLICATION SIGN} input: how sensitive the answer is; it has no sign, since "
    "that would be no evidence for or against the answer"
)


def supports(run: LoadedRun) -> bool:
    """Whether the model embeds its input or reads pixels."""
    return bool(run.task.columns.images) or any(hasattr(run.model, name) for name in EMBEDDINGS)


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return the gradient of the answer's log-probability with respect to each input token: gradient x input.

        S = log p(answer),      g_t = dS / de_t,      products_t = g_t · e_t,      norms_t = |g_t|

    e_t is the output of the embedding for token t, including its position (and after the norm, if the
    embedding has one). The sum of ``products`` is the derivative of S along e, the rate at which S grows when
    all inputs are scaled up; the sign of one product is not evidence. ``norms`` measure how much a small
    change of a token can change S, without direction. Neither is the effect of removing the token.

    For images, the same is computed for each pixel: e_t is the vector of its normalised channels, which is 0
    at the mean of the training data, so that a pixel of that value has product 0.

    Source: Simonyan et al. 2014, section 3 (norms; they use the largest component); Denil et al. 2014 and
    Shrikumar et al. 2017, section 1 (products).

    Returns:
        ``score``, S for all answers that were not given together; these ``answers``; and ``sides``: for each
        embedded axis its name, ``products`` and ``norms``. If the model reads pixels, ``images`` contains the
        same for pixels, by row.

    Raises:
        RequestError: there are no targets, or the input is not differentiable.
    """
    embeddings = [name for name in EMBEDDINGS if hasattr(run.model, name)]
    targets = prepared.targets
    if targets.n_given == len(targets):
        raise RequestError("the answer is empty, so there is no score to differentiate")
    batch, pixels = _with_pixels(prepared.batch)
    if not embeddings and not pixels:
        raise RequestError("view gradients needs an embedding or pixels; use another view")
    with torch.enable_grad(), _capture_embeddings(run.model, embeddings) as embedded:
        hidden = run.model(batch.inputs, batch.source)
        score = targets.scores(hidden, batch)[targets.n_given :].sum()
        inputs = [*(embedded[name] for name in embeddings), *pixels.values()]
        gradients = torch.autograd.grad(score, inputs)
    values = {"score": rounded(score.item()), "answers": targets.names[targets.n_given :]}
    values["sides"] = [
        {"name": EMBEDDINGS[name], **_products(gradient, embedded[name])}
        for name, gradient in zip(embeddings, gradients, strict=False)
    ]
    if pixels:
        rows = zip(pixels.items(), gradients[len(embeddings) :], strict=True)
        values["images"] = [
            {"name": axis, **_products(gradient[0].movedim(0, -1), image[0].movedim(0, -1))}
            for (axis, image), gradient in rows
        ]
    return values


def _products(gradient: Float[Tensor, "... d"], inputs: Float[Tensor, "... d"]) -> JsonObject:
    """Return ``products`` and ``norms`` as nested lists, with the shape of all axes but the last."""
    return {
        "products": _round_significant((gradient * inputs.detach()).sum(-1).tolist()),
        "norms": _round_significant(gradient.norm(dim=-1).tolist()),
    }


def _round_significant(values: object) -> object:
    if isinstance(values, list):
        return [_round_significant(each) for each in values]
    return float(f"{values:.{DIGITS}g}")


def _with_pixels(batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
    """Return the batch with differentiable pixels, and the pixels by axis."""
    pixels: dict[str, Tensor] = {}
    if isinstance(inputs := batch.inputs, Images):
        pixels[INPUT] = inputs.pixels.detach().clone().requires_grad_()
        batch = replace(batch, inputs=replace(inputs, pixels=pixels[INPUT]))
    if isinstance(source := batch.source, Images):
        pixels[SOURCE] = source.pixels.detach().clone().requires_grad_()
        batch = replace(batch, source=replace(source, pixels=pixels[SOURCE]))
    return batch, pixels


@contextmanager
def _capture_embeddings(model: nn.Module, embeddings: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Capture the outputs of embeddings as part of the graph, or as leaves if they need no gradient."""
    captured: dict[str, Tensor] = {}

    def hook(name: str, output: Tensor) -> Tensor:
        captured[name] = output if output.requires_grad else output.detach().requires_grad_()
        return captured[name]

    with intervene(model, {f"{name}.output": partial(hook, name) for name in embeddings}):
        yield captured


# Output --------------------------------------------------------------------------------------------------


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return the magnitudes of the products of each axis.

    For images these are those of pixels, in the terminal summed over patches.
    """
    note = f"{NOTE}; score (log-probability of the answer): {values['score']:.4f}"
    title = "Gradient \N{MULTIPLICATION SIGN} input of the"
    images: dict[str, list[PatchPanel]] = {}
    for name, label, grid in _panels(explanation, values):
        images.setdefault(name, []).append(PatchPanel(label, grid, is_of_patches=False))
    output: list[Drawing] = [
        PatchValues(f"{title} {name}", name, panels, apart=True, note=note, media={"page", "image"})
        for name, panels in images.items()
    ]
    for side in values.get("images", ()):
        name, patches = side["name"], explanation.axes[side["name"]].grid
        assert patches is not None
        sums = block_sums(np.abs(np.asarray(side["products"], dtype=float)), patches)
        panels = [PatchPanel(f"sum of magnitudes over the pixels of a patch; total {sums.sum():.4g}", sums)]
        output.append(PatchValues(f"{title} {name}", name, panels, note=note, media={"terminal"}))
    texts = [side for side in values["sides"] if _is_text(explanation, side["name"])]
    for side in texts:
        output.append(
            TokenValues(
                f"{title} {side['name']}",
                side["name"],
                [abs(product) for product in side["products"]],
                name="magnitude",
                others={"gradient norm": side["norms"]},
                note=note if side is texts[-1] else "",
            )
        )
    return output


def _is_text(explanation: "Explanation", name: str) -> bool:
    return name in explanation.axes and explanation.axes[name].grid is None


def _panels(explanation: "Explanation", values: JsonMapping) -> Iterator[tuple[str, str, Numbers]]:
    """Yield the axis, a label and values ``[rows, columns]`` of each image: of pixels, then of patches."""
    for side in values.get("images", ()):
        yield side["name"], "each pixel", np.abs(np.asarray(side["products"], dtype=float))
    for side in values["sides"]:
        axis = explanation.axes.get(side["name"])
        if axis is not None and axis.grid is not None:
            products = np.abs(np.asarray(side["products"], dtype=float))
            leading = zip(axis.tokens[: axis.before], products, strict=False)
            suffix = "".join(f"; {token} {value:.3g}" for token, value in leading)
            yield side["name"], f"each embedded patch{suffix}", on_grid(products, axis)


def block_sums(values: Numbers, grid: tuple[int, int]) -> Numbers:
    """Sum pixels ``[H, W]`` over the patches of a grid, ``[rows, columns]``.

    Patch i of n covers the pixels from ``floor(i H / n)`` up to ``floor((i + 1) H / n)``: all patches have
    the same size if n divides H.

    Raises:
        ValueError: the grid has more rows or columns than there are pixels.
    """
    if any(n > size for n, size in zip(grid, values.shape, strict=True)):
        raise ValueError(f"the grid must not exceed the image of {values.shape} pixels, got {grid} patches")
    down, across = (np.arange(n) * size // n for n, size in zip(grid, values.shape, strict=True))
    return np.add.reduceat(np.add.reduceat(values, down, axis=0), across, axis=1)
