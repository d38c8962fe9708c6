"""Attention distances of the heads of a small Vision Transformer by layer, compared with convolutions.

Item 81 of the lectures. Images and classes are those of `heedful.lab.data_size`: the class is the sign on the
left. Distances are those of the paper's figure 7: pixels between the centres of patches, weighted by
attention.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.explain.flow import Numbers, image_distance, patch_distances
from heedful.lab.data_size import SIDE, answers, drawn, network
from heedful.lab.drawing import Curves, Matrix
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import attention_taps, train
from heedful.models.vision import VisionConfig
from heedful.nn.convolutional import StandardisedConvolution
from heedful.nn.patches import Images
from heedful.nn.taps import Hook, capture, intervene
from heedful.objectives.classification import SequenceClass
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Cosine

# The network, and restricted attention

PATCH, N_LAYERS, N_HEADS, D = 6, 3, 4, 48
CONFIG = VisionConfig(
    image_size=SIDE, channels=1, patch_size=PATCH, d_model=D, d_ff=2 * D, n_heads=N_HEADS,
    n_layers=N_LAYERS, dropout=0.0, pooling="mean",
)  # fmt: skip
N_PATCHES = CONFIG.n_tokens


def touching() -> Bool[Tensor, "n n"]:
    """Return which patches share a side or a corner, or are the same: the 3 x 3 around each."""
    far = torch.from_numpy(patch_distances(CONFIG.grid, 1))
    return far < 1.5


def restriction(model: nn.Module, *, confined: bool) -> AbstractContextManager[None]:
    """Within the context, restrict attention to adjacent patches; if not ``confined``, change nothing."""
    near = touching()

    def confine(scores: Tensor) -> Tensor:
        return scores.masked_fill(~near, torch.finfo(scores.dtype).min)

    hooks: dict[str, Hook] = dict.fromkeys(attention_taps("scores", N_LAYERS), confine) if confined else {}
    return intervene(model, hooks)


# Training and measuring

KNOWN, WATCHED, BATCH, RATE = 8192, 64, 32, 4e-3
UPDATES: dict[Size, int] = {"short": 400, "long": 800}
SEEDS: dict[Size, int] = {"short": 1, "long": 2}


@dataclass(frozen=True)
class Observed:
    """Attention of the heads of a network, averaged over images, and its predictions.

    Args:
        far: attention distances in pixels, ``[layers, heads]``.
        around: ``[layers, heads, 2 r - 1, 2 c - 1]``, see `by_offset`.
        classes: predicted class of each image.
    """

    far: Numbers
    around: Numbers
    classes: Int[Tensor, " n"]


@dataclass(frozen=True)
class Trained:
    """Attention of a network on new images, before and after training.

    Args:
        before, after: averages over these images.
        accuracy: accuracy of the trained network on these images.
    """

    before: Observed
    after: Observed
    accuracy: float


def _batches(updates: int, seed: int) -> Iterator[Batch]:
    known = drawn(KNOWN, 2 * seed + 1)
    generator = generator_from(seed)
    for _ in range(updates):
        chosen = torch.randint(KNOWN, (BATCH,), generator=generator)
        images = Images.of(known.pixels[chosen], N_PATCHES)
        yield Batch.of_images(images, known.left[chosen].tolist())


@cache
def trained(updates: int, seed: int, *, confined: bool) -> Trained:
    """Train a network, and observe its heads before and after."""
    model, new = network(CONFIG, seed).eval(), drawn(WATCHED, 2 * seed + 2)
    images = Images.of(new.pixels, N_PATCHES)
    with restriction(model, confined=confined):
        before = observed(model, images)
        rate = Cosine(peak=RATE, warmup=50, updates=updates)
        train(model, SequenceClass(), _batches(updates, seed), AdamConfig(beta2=0.999), rate)
        after = observed(model, images)
    return Trained(before, after, (after.classes == new.left).float().mean().item())


def observed(model: nn.Module, images: Images) -> Observed:
    """Run a network on images of one size, and measure the attention of its heads."""
    names = attention_taps("weights", N_LAYERS)
    with capture(model, dict.fromkeys(names)) as seen:
        found = answers(model, images)
    weights = [seen[name][0].numpy() for name in names]
    far = [np.mean([image_distance(one, CONFIG.grid, PATCH) for one in each], axis=0) for each in weights]
    around = [by_offset(each.mean(axis=0), CONFIG.grid) for each in weights]
    return Observed(np.stack(far), np.stack(around), found)


def by_offset(weights: Numbers, grid: tuple[int, int]) -> Numbers:
    """Return the mean weight for each offset between query and key patch, relative to uniform attention.

    Args:
        weights: ``[heads, n, n]``, of queries for keys.
        grid: rows r and columns c of patches, n = r c.

    Returns:
        ``[heads, 2 r - 1, 2 c - 1]``: rows of the key below the query, from 1 - r, and columns to its right,
        from 1 - c. 1 is uniform attention.
    """
    rows, columns = (place.ravel() for place in np.indices(grid))
    down = rows[None] - rows[:, None] + grid[0] - 1
    right = columns[None] - columns[:, None] + grid[1] - 1
    summed = np.zeros((len(weights), 2 * grid[0] - 1, 2 * grid[1] - 1))
    pairs = np.zeros(summed.shape[1:])
    np.add.at(pairs, (down, right), 1)
    for head, own in enumerate(weights):
        np.add.at(summed[head], (down, right), own)
    return summed / pairs * len(rows)


# Convolutions

CONVOLUTIONS = 10
"""Number of convolutions shown."""


@cache
def convolution_reach(n_layers: int) -> tuple[float, ...]:
    """Return the greatest distance on which a pixel in the middle depends, after each 3 x 3 convolution.

    It is determined by gradients: the pixels that change some output. In pixels, up to the border.
    """
    middle = SIDE // 2
    with seeded():
        layers = [StandardisedConvolution(1 if not i else 4, 4, 3).double() for i in range(n_layers)]
        x = pixels = torch.randn(1, 1, SIDE, SIDE, dtype=torch.float64, requires_grad=True)
    reach = []
    for layer in layers:
        x = layer(x)
        (gradient,) = torch.autograd.grad(x[0, :, middle, middle].sum(), pixels, retain_graph=True)
        rows, columns = gradient[0, 0].nonzero().unbind(1)
        reach.append(torch.hypot((rows - middle).double(), (columns - middle).double()).max().item())
    return tuple(reach)


# The verdict

EVEN = float(patch_distances(CONFIG.grid, PATCH).mean())
"""Attention distance of uniform attention."""
FAR = 0.9
"""Share of `EVEN` from which on a distance counts as far."""
FARTHER = 0.1
"""Share of `EVEN` by which later layers must exceed the first."""


def judge(after: Numbers) -> Verdict:
    """Judge by distances ``[layers, heads]`` after training: the first layer far, later layers farther."""
    first, *later = after.mean(axis=1)
    if after[0].max() < FAR * EVEN or after[0].min() < convolution_reach(1)[0]:
        return "is wrong"
    return "holds" if min(later) > first + FARTHER * EVEN else "holds with conditions"


def _by_depth(size: Size, *, confined: bool) -> Outcome:
    several = [trained(UPDATES[size], seed, confined=confined) for seed in range(SEEDS[size])]
    before = np.concatenate([each.before.far for each in several], axis=1)
    after = np.concatenate([each.after.far for each in several], axis=1)
    around = np.concatenate([each.after.around for each in several], axis=1)[0]
    reach = convolution_reach(CONVOLUTIONS)
    verdict, means = judge(after), after.mean(axis=1)
    return Outcome(
        verdict,
        _statement(verdict),
        [
            Measured("farthest head of the first layer, after training", after[0].max(), "pixels", EVEN),
            Measured("nearest head of the first layer", after[0].min(), "pixels"),
            Measured("mean of the first layer's heads", means[0], "pixels"),
            Measured("mean of the last layer's heads", means[-1], "pixels"),
            Measured("farthest head of the first layer, before training", before[0].max(), "pixels"),
            Measured("most that the first convolution of 3 x 3 reaches", reach[0], "pixels", 2**0.5),
            Measured(
                "convolutions of 3 x 3 until they reach as far as even attention looks",
                next(n for n, far in enumerate(reach, 1) if far >= EVEN),
                "layers",
                math.ceil(EVEN / 2**0.5),
            ),
            Measured("accuracy", sum(each.accuracy for each in several) / len(several)),
        ],
        [
            {
                "layer": layer + 1,
                "before training": before[layer].mean(),
                "after": means[layer],
                "nearest head": after[layer].min(),
                "farthest head": after[layer].max(),
                "convolutions": reach[layer],
            }
            for layer in range(N_LAYERS)
        ],
        [
            _panel("Attention distance", before, after, reach),
            _around("Nearest head of the first layer", around[after[0].argmin()]),
            _around("Farthest head of the first layer", around[after[0].argmax()]),
        ],
    )


def _statement(verdict: Verdict) -> str:
    if verdict == "is wrong":
        return (
            "If patches attend only to adjacent patches, the heads of the first layer have short attention "
            "distances, like a convolution."
        )
    later = (
        "Later layers have longer distances still."
        if verdict == "holds"
        else "Longer distances in later layers do not occur in this small network: to within a tenth they "
        "equal those of the first. (In the paper, some heads of the first layers have short distances.)"
    )
    return (
        "The attention distances of the first layer's heads are about those of uniform attention. They were "
        "so before training, since nothing restricts them; a first convolution of 3 x 3 reaches only the "
        f"adjacent pixels, whatever it learns. {later}"
    )


def _around(title: str, weights: Numbers) -> Matrix:
    """Draw the weights of a head around the query patch in the middle; 1 is uniform attention."""
    rows, columns = (range(1 - n, n) for n in CONFIG.grid)
    return Matrix(
        title,
        "patches to the right",
        "patches below",
        weights.tolist(),
        limits=(0.0, 2.0),
        columns=[str(n) for n in columns],
        rows=[str(n) for n in rows],
    )


def _panel(title: str, before: Numbers, far: Numbers, reach: tuple[float, ...]) -> Curves:
    """Draw the mean, nearest and farthest head of each layer, and the convolutions."""
    layers = range(1, N_LAYERS + 1)
    lines: Mapping[str, Numbers] = {
        "farthest head": far.max(axis=1),
        "mean of the heads": far.mean(axis=1),
        "nearest head": far.min(axis=1),
        "mean before training": before.mean(axis=1),
    }
    return Curves(
        title,
        "layer",
        "pixels",
        {name: (layers, ys.tolist()) for name, ys in lines.items()}
        | {"3 x 3 convolutions, at most": (range(1, len(reach) + 1), reach)},
        levels={"even attention": EVEN},
        limits=(0.0, 1.6 * EVEN),
        inches=(5.2, 3.8),
    )


EXPERIMENTS = [
    Experiment(
        "attention-distance",
        "Attention distance by depth",
        "Early layers already attend to all distances, later ones to larger distances; a convolution starts "
        "near.",
        "S1, vision Transformers (figure 32); Dosovitskiy et al. 2021, section 4.5 and figure 7",
        (81,),
        run=partial(_by_depth, confined=False),
        control=partial(_by_depth, confined=True),
        changed="Patches attend only to adjacent patches: 3 x 3 of them.",
        expected=("holds with conditions", "is wrong"),
    ),
]
