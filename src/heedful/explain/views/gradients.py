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
from heedful.explain.views.shared import EMBEDDINGS, Figure, rounded
from heedful.nn.patches import Images
from heedful.nn.taps import intervene
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import INPUT, SOURCE, Axis, ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

DIGITS = 6
"""Significant digits; for a nearly certain answer all gradients are small."""

SMALL = 1e-2
"""Below this maximum, numbers are shown in scientific notation."""

STRONGEST = 4
"""Number of patches with positive and negative values in the terminal."""

NOTE = "gradient \N{MULTIPLICATION SIGN} input: blue raises the score of the answer, red lowers it"


def supports(run: LoadedRun) -> bool:
    """Whether the model embeds its input or reads pixels."""
    return bool(run.task.columns.images) or any(hasattr(run.model, name) for name in EMBEDDINGS)


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
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


def lines(explanation: "Explanation", values: JsonMapping) -> list[str]:
    """Return a line per input token; for an image, the patches with the largest values."""
    output = [f"gradient x input and gradient norm, for score {values['score']:.4f}"]
    for side in values["sides"]:
        axis = explanation.axes[side["name"]]
        if axis.grid is not None:
            continue
        output.append(f"  {side['name']}")
        product_form, norm_form = _number_format(side["products"]), _number_format(side["norms"])
        rows = zip(axis.tokens, side["products"], side["norms"], strict=True)
        output += [
            f"  {product:+10{product_form}}  {norm:10{norm_form}}  {token}" for token, product, norm in rows
        ]
    for side in values.get("images", ()):
        output += _patch_lines(explanation.axes[side["name"]], side)
    return output


def _number_format(values: Iterable[float]) -> str:
    """Return the number format: 4 decimal places, or scientific notation if all values are small."""
    return ".3e" if 0 < max(map(abs, values), default=0) < SMALL else ".4f"


def _patch_lines(axis: Axis, values: JsonMapping) -> list[str]:
    """Return the largest and smallest sums over the pixels of a patch."""
    assert axis.grid is not None
    sums = block_sums(np.asarray(values["products"], dtype=float), axis.grid)
    order = np.argsort(-sums, axis=None, kind="stable")
    rows = {"positive": order[:STRONGEST], "negative": order[::-1][:STRONGEST]}
    rows_by_columns = " x ".join(map(str, sums.shape))
    output = [f"  sums over the pixels of {rows_by_columns} patches (row,column); total {sums.sum():+.4g}"]
    for name, indices in rows.items():
        patch_sums = [(np.unravel_index(int(n), sums.shape), float(sums.flat[int(n)])) for n in indices]
        selected = [
            (position, value)
            for position, value in patch_sums
            if (value > 0) == (name == "positive") and value
        ]
        patches = "   ".join(f"{row + 1},{column + 1} {value:+.4g}" for (row, column), value in selected)
        output.append(f"  {name:<9} {patches or 'none'}")
    return output


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


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return the products of each axis; for images also those of pixels."""
    images: dict[str, list[PatchPanel]] = {}
    for name, label, grid in _panels(explanation, values):
        images.setdefault(name, []).append(PatchPanel(label, grid, is_of_patches=False))
    title = "Gradient \N{MULTIPLICATION SIGN} input of the"
    entries: list[Drawing] = [
        PatchValues(f"{title} {name}", name, panels, apart=True) for name, panels in images.items()
    ]
    for side in values["sides"]:
        name, axis = side["name"], explanation.axes.get(side["name"])
        if axis is not None and axis.grid is None:
            entries.append(TokenValues(f"{title} {name}", name, side["products"]))
    return entries


def _panels(explanation: "Explanation", values: JsonMapping) -> Iterator[tuple[str, str, Numbers]]:
    """Yield the axis, a label and values ``[rows, columns]`` of each image: of pixels, then of patches."""
    for side in values.get("images", ()):
        yield side["name"], "each pixel", np.asarray(side["products"], dtype=float)
    for side in values["sides"]:
        axis = explanation.axes.get(side["name"])
        if axis is not None and axis.grid is not None:
            products = np.asarray(side["products"], dtype=float)
            leading = zip(axis.tokens[: axis.before], products, strict=False)
            suffix = "".join(f"; {token} {value:+.3g}" for token, value in leading)
            yield side["name"], f"each embedded patch{suffix}", on_grid(products, axis)


def figure(explanation: "Explanation", values: JsonMapping) -> Figure:
    """Draw maps beside the image, each on its own scale; for texts, a bar per token on one scale.

    Raises:
        RequestError: the text has too many tokens.
    """
    panels = list(_panels(explanation, values))
    if panels:
        return _draw_maps(panels, explanation.axes[panels[0][0]].image, explanation.text)
    return _draw_bars(explanation, values["sides"])


def _draw_maps(panels: Sequence[tuple[str, str, Numbers]], image: bytes | None, title: str) -> Figure:
    """Draw positive (blue) and negative (red) values on grids beside an image."""
    from heedful.explain.drawing.canvas import (
        SIGNED,
        draw_photo,
        finish_figure,
        new_figure,
        set_title_without_ticks,
    )

    _, _, first_grid = panels[0]
    n_columns, height = len(panels) + (image is not None), 3.0
    width = max(height * first_grid.shape[1] / first_grid.shape[0], 1.6)
    fig = new_figure(n_columns * (width + 0.15), height + 1.3)
    axes, bars = fig.subplots(2, n_columns, squeeze=False, height_ratios=[height, 0.12])
    if image is not None:
        draw_photo(axes[0], image, *first_grid.shape)
        bars[0].set_axis_off()
    panel_axes, scale_axes = axes[n_columns - len(panels) :], bars[n_columns - len(panels) :]
    for panel, scale, (_, label, grid) in zip(panel_axes, scale_axes, panels, strict=True):
        limit = float(np.abs(grid).max()) or 1.0
        drawing = panel.imshow(grid, cmap=SIGNED, vmin=-limit, vmax=limit, interpolation="nearest")
        set_title_without_ticks(panel, label)
        bar = fig.colorbar(drawing, cax=scale, orientation="horizontal")
        bar.set_ticks([-limit, 0, limit], labels=[f"{-limit:.2g}", "0", f"{limit:.2g}"])
        for tick, alignment in zip(scale.get_xticklabels(), ("left", "center", "right"), strict=True):
            tick.set_horizontalalignment(alignment)
        bar.outline.set_visible(False)
    return finish_figure(fig, title, NOTE)


def _draw_bars(explanation: "Explanation", sides: Sequence[JsonMapping]) -> Figure:
    """Draw a value per token as a bar: positive (blue) to the right, negative (red) to the left."""
    import matplotlib

    from heedful.explain.drawing.canvas import (
        ROW_HEIGHT,
        SIGNED,
        check_rows,
        finish_figure,
        label_rows,
        new_figure,
    )

    longest = max(len(side["products"]) for side in sides)
    check_rows(longest)
    limit = max((abs(value) for side in sides for value in side["products"]), default=0.0) or 1.0
    fig = new_figure(4.0 * len(sides), ROW_HEIGHT * longest + 1.4)
    for panel, side in zip(fig.subplots(1, len(sides), squeeze=False)[0], sides, strict=True):
        values = side["products"]
        shades = matplotlib.colormaps[SIGNED](0.5 + 0.5 * np.asarray(values, dtype=float) / limit)
        panel.barh(range(len(values)), values, color=shades, edgecolor="0.6", linewidth=0.4)
        panel.axvline(0, color="0.6", linewidth=0.8)
        panel.set_xlim(-1.05 * limit, 1.05 * limit)
        panel.set_ylim(longest - 0.4, -0.6)
        label_rows(panel, explanation.axes[side["name"]].tokens)
        panel.set_title(side["name"], fontsize=10)
    return finish_figure(fig, explanation.text, NOTE)
