"""Integrated gradients: the gradient of the answer along a straight path from a baseline to the input.

    IG_t = (e_t - b_t) · ∫_0^1 dv(b + α (e - b)) / de_t dα

e is the output of the embedding, positions included. The baseline b has the mean of all token embeddings in
place of each word, at the word's own position; special tokens are kept. Of an image, e are the pixels and b
is the mean of the training data. The integral is a Gauss-Legendre sum, whose points are doubled until the
attributions sum to v(e) - v(b) (completeness) within a tolerance.

Source: Sundararajan et al. 2017, equation 1 and proposition 1 (completeness).
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
"""Numbers of points of the path."""

TOLERANCE = 0.01
"""Largest gap, relative to the sum of the magnitudes of all attributions."""

BATCH_TOKENS = 4096
"""Maximum number of tokens of a batch; gradients take more memory than predictions."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """Integrated gradients of an input.

    Args:
        scores: of each feature and answer.
        gap: v(e) - v(b) minus the sum of the attributions of each answer.
        steps: number of points of the path.
    """

    scores: Float[Tensor, "features answers"]
    gap: Float[Tensor, " answers"]
    steps: int


def integrated_gradients(
    measured: Measured, *, most: int = MOST, tolerance: float = TOLERANCE
) -> Attribution:
    """Return the integrated gradients of each feature for each answer.

    Args:
        measured: the input.
        most: maximum number of points of the path.
        tolerance: the number of points is doubled until the gap is smaller.

    Raises:
        RequestError: the model has no embedding whose output can be replaced.
    """
    path = _Path.of(measured)
    steps = min(FEWEST, most)
    while True:
        attribution = _attribution(path, steps)
        largest = attribution.scores.abs().sum(0).clamp(min=1e-6)
        if steps >= most or bool((attribution.gap.abs() <= tolerance * largest).all()):
            return attribution
        steps = min(2 * steps, most)


def gradient_times_input(measured: Measured) -> Float[Tensor, "features answers"]:
    """Return the gradient of each answer at the input times the input, summed over each feature.

    Raises:
        RequestError: as of `integrated_gradients`.
    """
    path = _Path.of(measured)
    one = torch.ones(1, device=path.end.device)
    _, gradients = path.at(one, one)
    return torch.stack([path.by_feature(each) for each in (gradients * path.end).double()], dim=1)


def _attribution(path: "_Path", steps: int) -> Attribution:
    points, weights = np.polynomial.legendre.leggauss(steps)
    alphas = torch.from_numpy((points + 1) / 2).float().to(path.end.device)
    shares = torch.from_numpy(weights / 2).float().to(path.end.device)
    n_answers = len(path.measured.answers)
    gradients = path.end.new_zeros(n_answers, *path.end.shape)
    size = max(1, BATCH_TOKENS // path.measured.length)
    for part, share in zip(alphas.split(size), shares.split(size), strict=True):
        _, batch_gradients = path.at(part, share)
        gradients += batch_gradients
    ends, _ = path.at(torch.tensor([0.0, 1.0], device=path.end.device), None)
    products = (gradients * (path.end - path.start)).double()
    scores = torch.stack([path.by_feature(each) for each in products], dim=1)
    return Attribution(scores, ends[1] - ends[0] - products.flatten(1).sum(1), steps)


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

    def at(self, alphas: Float[Tensor, " k"], shares: Float[Tensor, " k"] | None) -> tuple[Tensor, Tensor]:
        """Return the values ``[k, answers]`` at points of the path, and the sum of gradients times shares.

        The gradients, ``[answers, ...]``, have the shape of the input; None as shares gives none.
        """
        measured, k = self.measured, len(alphas)
        points = self.start + alphas.view(-1, *[1] * self.end.dim()) * (self.end - self.start)
        points = points.detach().requires_grad_(shares is not None)
        with torch.set_grad_enabled(shares is not None):
            variants = make_variants(measured.prepared, measured.features, [{}] * k)
            batch = variants.batch
            if self.tap is None:
                side = "inputs" if measured.features.axis == INPUT else "source"
                images = replace(getattr(batch, side), pixels=points.flatten(0, 1))
                variants = replace(variants, batch=replace(batch, **{side: images}))
            hooks = {} if self.tap is None else {self.tap: lambda old: points.flatten(0, 1)}
            with intervene(measured.model, hooks):
                targets, as_log_odds = measured.prepared.targets, measured.is_of_classes
                values = target_values(measured.model, targets, variants, as_log_odds=as_log_odds)
            values = measured.answers.sums(values)
        if shares is None:
            return values.double(), points
        totals = (values * shares[:, None]).sum(0)
        gradients = [
            torch.autograd.grad(total, points, retain_graph=True)[0].sum(0) for total in totals.unbind()
        ]
        return values.detach().double(), torch.stack(gradients)

    def by_feature(self, products: Tensor) -> Float[Tensor, " features"]:
        """Return the sum of products of values over each feature."""
        features = self.measured.features
        if self.tap is not None:
            by_token = products.sum(-1)
            return torch.stack([by_token[list(tokens)].sum() for tokens in features.tokens])
        grid = self.measured.prepared.axes[features.axis].grid
        assert grid is not None
        by_pixel = products[0].sum(0)
        patches = [by_pixel[patch_slices(i, grid, by_pixel.shape)] for i in range(len(features))]
        return torch.stack([patch.sum() for patch in patches])


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
