"""Integrated gradients: the gradient of the answer along a straight path from a baseline to the input.

    IG_t = (e_t - b_t) · ∫_0^1 dv(b + α (e - b)) / de_t dα

e is the output of the embedding, positions included. The baseline b has the mean of all token embeddings in
place of each word, at the word's own position; special tokens are kept. Of an image, e are the pixels and b
is the mean of the training data.

The integral is a Clenshaw-Curtis sum, whose points are halved intervals of an angle: those of n intervals are
among those of 2n, and include both ends. n is doubled until the attributions sum to v(e) - v(b)
(completeness) and differ little from those of n / 2, both relative to the sum of their magnitudes.

Source: Sundararajan et al. 2017, equation 1 and proposition 1 (completeness); Clenshaw and Curtis 1960.
"""

from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.errors import RequestError
from heedful.explain.attribution.features import Features
from heedful.explain.attribution.measure import Measured
from heedful.explain.attribution.variants import make_variants, patch_slices, target_values
from heedful.nn.embeddings import SegmentedEmbedding, TokenEmbedding
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.taps import intervene
from heedful.tasks.model_input import INPUT

FEWEST, MOST = 16, 512
"""Numbers of intervals of the path, powers of 2."""

TOLERANCE = 0.02
"""Largest gap of completeness, relative to the sum of the magnitudes of all attributions."""

CHANGE = 0.1
"""Largest sum of the differences from the attributions of half as many intervals, relative to the same.

Errors of opposite signs leave no gap, so that the gap alone is not enough. The difference is nearly the error
of half as many intervals, thus far more than that of all of them.
"""

SMALLEST = 1e-3
"""Sum of magnitudes below which attributions are those of rounding errors."""

BATCH_TOKENS = 4096
"""Maximum number of tokens of a batch; gradients take more memory than predictions."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """Integrated gradients of an input.

    Args:
        scores: of each feature and answer.
        baseline: v(b) of each answer.
        gap: v(e) - v(b) minus the sum of the attributions of each answer.
        steps: number of intervals of the path.
    """

    scores: Float[Tensor, "features answers"]
    baseline: Float[Tensor, " answers"]
    gap: Float[Tensor, " answers"]
    steps: int


def integrated_gradients(
    measured: Measured, *, most: int = MOST, tolerance: float = TOLERANCE
) -> Attribution:
    """Return the integrated gradients of each feature for each answer.

    Args:
        measured: the input.
        most: maximum number of intervals of the path.
        tolerance: the relative gap up to which the number of intervals is not doubled.

    Raises:
        RequestError: the model has no embedding whose output can be replaced.
    """
    path = _Path.of(measured)
    steps = min(FEWEST, most)
    values, products = path.at(_points(steps))
    while True:
        scores = _integral(products)
        gap = values[-1] - values[0] - scores.sum(0)
        largest = scores.abs().sum(0).clamp(min=SMALLEST)
        change = (scores - _integral(products[::2])).abs().sum(0)
        is_close = (gap.abs() <= tolerance * largest) & (change <= CHANGE * largest)
        if 2 * steps > most or bool(is_close.all()):
            return Attribution(scores, values[0], gap, steps)
        steps *= 2
        new_values, new_products = path.at(_points(steps)[1::2])
        values, products = _interleaved(values, new_values), _interleaved(products, new_products)


def gradient_times_input(measured: Measured) -> Float[Tensor, "features answers"]:
    """Return the gradient of each answer at the input times the input, summed over each feature.

    Raises:
        RequestError: as of `integrated_gradients`.
    """
    path = _Path.of(measured)
    return path.by_feature(path.gradients(torch.ones(1))[1] * path.end)[0]


def _points(n: int) -> Float[Tensor, " n+1"]:
    """Return the ends of n intervals, dense near 0 and 1."""
    return ((1 - torch.cos(torch.arange(n + 1, dtype=torch.float64) * torch.pi / n)) / 2).float()


def _integral(values: Float[Tensor, "n+1 ..."]) -> Float[Tensor, "..."]:
    """Return the integral of a function, given its values at `_points`, over the path.

    With α = (1 - cos θ) / 2 and f = sum_k a_k cos kθ, which is fitted, it is sum_{k even} a_k / (1 - k²).
    """
    n = len(values) - 1
    even = np.arange(0, n + 1, 2)
    halves = np.ones(n + 1)
    halves[[0, -1]] = 0.5  # of the sums over points, and over k, the first and last terms count half
    terms = np.cos(np.outer(np.arange(n + 1), even) * np.pi / n) * halves[even] / (1.0 - even**2)
    weights = torch.from_numpy(halves * terms.sum(1) * 2 / n).to(values)
    return torch.einsum("n,n...->...", weights, values)


def _interleaved(old: Float[Tensor, "n+1 ..."], new: Float[Tensor, "n ..."]) -> Float[Tensor, "2n+1 ..."]:
    """Return old and new rows in turn."""
    rows = old.new_empty(len(old) + len(new), *old.shape[1:])
    rows[::2], rows[1::2] = old, new
    return rows


@dataclass(frozen=True, eq=False)
class _Path:
    """The straight path from the baseline to an input, of the values at a tap or of pixels.

    Args:
        measured: the input.
        tap: the name of the tap, or None for pixels.
        start: the baseline.
        end: the input.
    """

    measured: Measured
    tap: str | None
    start: Tensor
    end: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, measured: Measured) -> "_Path":
        batch, features = measured.prepared.batch, measured.features
        side = batch.inputs if features.axis == INPUT else batch.source
        if isinstance(side, Images):
            return cls(measured, None, torch.zeros_like(side.pixels), side.pixels)
        assert isinstance(side, Tokens)
        names = ["source_embedding"] if features.axis != INPUT else ["embedding", "target_embedding"]
        name = next((name for name in names if hasattr(measured.model, name)), None)
        embedding = getattr(measured.model, name) if name else None
        if not isinstance(embedding, TokenEmbedding | SegmentedEmbedding):
            raise RequestError("integrated gradients need a token embedding; use view occlusion")
        return cls(measured, f"{name}.output", _baseline(embedding, side, features), embedding(side))

    def at(self, alphas: Float[Tensor, " k"]) -> tuple[Tensor, Tensor]:
        """Return the values ``[k, answers]``, and the integrand ``[k, features, answers]``."""
        size = max(1, BATCH_TOKENS // self.measured.length)
        values, products = [], []
        for part in alphas.split(size):
            of_part, gradients = self.gradients(part)
            values.append(of_part)
            products.append(self.by_feature(gradients * (self.end - self.start)))
        return torch.cat(values), torch.cat(products)

    @torch.enable_grad()
    def gradients(self, alphas: Float[Tensor, " k"]) -> tuple[Tensor, Tensor]:
        """Return the values ``[k, answers]`` at points, and their gradients ``[answers, k, ...]``."""
        points = self._inputs(alphas).requires_grad_()
        values = self._values(points)
        gradients = [torch.autograd.grad(each, points, retain_graph=True)[0] for each in values.sum(0)]
        return values.detach().double(), torch.stack(gradients)

    def _inputs(self, alphas: Float[Tensor, " k"]) -> Float[Tensor, "k ..."]:
        shape = (-1, *[1] * self.end.dim())
        return (self.start + alphas.to(self.end.device).view(shape) * (self.end - self.start)).detach()

    def _values(self, points: Float[Tensor, "k ..."]) -> Float[Tensor, "k answers"]:
        measured = self.measured
        variants = make_variants(measured.prepared, measured.features, [{}] * len(points))
        batch = variants.batch
        if self.tap is None:
            side = "inputs" if measured.features.axis == INPUT else "source"
            images = replace(getattr(batch, side), pixels=points.flatten(0, 1))
            variants = replace(variants, batch=replace(batch, **{side: images}))
        hooks = {} if self.tap is None else {self.tap: lambda old: points.flatten(0, 1)}
        with intervene(measured.model, hooks):
            targets, as_log_odds = measured.prepared.targets, measured.is_of_classes
            values = target_values(measured.model, targets, variants, as_log_odds=as_log_odds)
        return measured.answers.sums(values)

    def by_feature(self, products: Float[Tensor, "answers k ..."]) -> Float[Tensor, "k features answers"]:
        """Return the sum of products over each feature, at each point."""
        features = self.measured.features
        if self.tap is not None:
            by_token = products.sum(-1, dtype=torch.float64)
            sums = [by_token[..., list(tokens)].sum(-1) for tokens in features.tokens]
        else:
            grid = self.measured.prepared.axes[features.axis].grid
            assert grid is not None
            by_pixel = products.sum(-3, dtype=torch.float64)[:, :, 0]
            slices = [patch_slices(i, grid, by_pixel.shape[2:]) for i in range(len(features))]
            sums = [by_pixel[(..., *patch)].sum((-1, -2)) for patch in slices]
        return torch.stack(sums, dim=-1).permute(1, 2, 0)


def _baseline(
    embedding: TokenEmbedding | SegmentedEmbedding, side: Tokens, features: Features
) -> Float[Tensor, "T d"]:
    """Return the output of an embedding for the mean token in place of each word."""
    table = torch.cat((embedding.weight, embedding.weight.mean(0, keepdim=True)))
    ids = side.ids.clone()
    ids[[token for tokens in features.tokens for token in tokens]] = len(table) - 1
    # `torch.func.functional_call` would change the module for all threads while it runs.
    with_mean = copy(embedding)
    with_mean._parameters = {**embedding._parameters, "weight": nn.Parameter(table, requires_grad=False)}
    baseline: Tensor = with_mean(replace(side, ids=ids))
    return baseline
