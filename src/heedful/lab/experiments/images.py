"""Images: the amount of data that networks need, and the attention distances of a Vision Transformer.

Items 79 and 81 of the lectures. Every image contains two signs, far apart and each at a random height; the
class is the sign on the left. A sign consists of neighbouring pixels and looks the same at every position.
A convolution has this built in, and a Transformer must learn it. If the pixels of all images are shuffled
by the same permutation, the built-in knowledge is useless, and nothing else changes. Distances are those of
the paper's figure 7: pixels between the centres of patches, weighted by attention.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.explain.drawing.matrix import Numbers
from heedful.explain.views.distances import image_distance, patch_distances
from heedful.lab.drawing import Curves, Matrix, curves_over, numbered_curves
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, table_of
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import attention_taps, class_accuracy, n_parameters, predicted_classes, train
from heedful.models.base import Model
from heedful.models.encoder import class_head
from heedful.models.mixers import AttentionConfig
from heedful.models.registry import build_model
from heedful.models.resnet import ResNetConfig
from heedful.models.sections import FeedForwardConfig
from heedful.models.stacks import LayerConfig
from heedful.models.vision import VisionConfig
from heedful.nn.convolutional import StandardisedConvolution
from heedful.nn.patches import Images
from heedful.nn.taps import Hook, capture, intervene
from heedful.objectives.classification import SequenceClass
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Cosine

# Images

SIDE, SIGN = 24, 3
LEFT, RIGHT = range(4, 6), range(16, 18)
"""Columns at which signs can start."""
SIGNS = 4
NOISE = 0.05
TESTED = 1000


@dataclass(frozen=True)
class SignImages:
    """Images with two different signs.

    Args:
        pixels: 1 for signs, 0 for the background, plus noise.
        left, right: class of the sign on each side.
    """

    pixels: Float[Tensor, "n 1 s s"]
    left: Int[Tensor, " n"]
    right: Int[Tensor, " n"]


@cache
def signs() -> Float[Tensor, "k 3 3"]:
    """Return the signs, of five pixels each; no two share more than three."""
    rows = ("010111010", "101010101", "111001001", "100100111")
    return torch.tensor([[float(pixel) for pixel in row] for row in rows]).view(-1, SIGN, SIGN)


def draw_images(n: int, seed: int) -> SignImages:
    """Draw ``n`` images."""
    with seeded(seed):
        pixels = NOISE * torch.randn(n, 1, SIDE, SIDE)
        left = torch.randint(SIGNS, (n,))
        right = (left + torch.randint(1, SIGNS, (n,))) % SIGNS
        images, offsets = torch.arange(n)[:, None, None], torch.arange(SIGN)
        for kinds, columns in ((left, LEFT), (right, RIGHT)):
            rows = torch.randint(SIDE - SIGN + 1, (n,))[:, None, None] + offsets[:, None]
            starts = torch.randint(columns.start, columns.stop, (n,))[:, None, None] + offsets
            pixels[images, 0, rows, starts] += signs()[kinds]
    return SignImages(pixels, left, right)


def shuffle_pixels(pixels: Float[Tensor, "n 1 s s"]) -> Float[Tensor, "n 1 s s"]:
    """Permute the pixels, in the same way for all images."""
    order = torch.randperm(SIDE * SIDE, generator=generator_from(5))
    return pixels.flatten(1)[:, order].view_as(pixels)


# Networks

NETWORKS: dict[str, ResNetConfig | VisionConfig] = {
    "ResNet": ResNetConfig(
        image_size=SIDE, channels=1, n_blocks=[1, 1, 2], width=8, n_groups=4,
        root_kernel=3, root_stride=2, root_pool=False,
    ),
    "ViT": VisionConfig(
        image_size=SIDE, channels=1, patch_size=8, d_model=64, n_layers=1, dropout=0.0, pooling="mean",
        layer=LayerConfig(mixer=AttentionConfig(n_heads=4), channels=FeedForwardConfig(d_ff=128)),
    ),
}  # fmt: skip
"""Networks of comparable size: their parameters differ by less than a third, and both see the whole image."""


def network(config: ResNetConfig | VisionConfig, seed: int) -> Model:
    """Build a network with initial weights, with a classification head for the signs."""
    with seeded(seed):
        model = build_model(config)
        model.heads["class"] = class_head(config.d_model, SIGNS, 0.0)
    return model


def batch_of(pixels: Float[Tensor, "n 1 s s"], classes: Int[Tensor, " n"], n_tokens: int) -> Batch:
    """Build a batch of images and their classes, for a network that makes so many tokens of each."""
    return Batch.of_images(Images.of(pixels, n_tokens), classes.tolist())


# Training

UPDATES, BATCH = 256, 32
RATES = {"ResNet": 2e-2, "ViT": 3e-3}
"""Peak learning rates."""


def _batches(name: str, images: SignImages, classes: Int[Tensor, " n"], seed: int) -> Iterator[Batch]:
    """Yield batches that go through the images repeatedly, each time in a new order."""
    n_tokens, n = NETWORKS[name].n_tokens, len(classes)
    order = torch.zeros(0, dtype=torch.int64)
    generator = generator_from(seed)
    for _ in range(UPDATES):
        while len(order) < BATCH:
            order = torch.cat([order, torch.randperm(n, generator=generator)])
        indices, order = order[:BATCH], order[BATCH:]
        yield batch_of(images.pixels[indices], classes[indices], n_tokens)


@cache
def accuracy(name: str, n: int, *, shuffle: bool, seed: int = 0) -> float:
    """Return the accuracy on new images after training on ``n``.

    Args:
        name: name of the network.
        n: number of training images.
        shuffle: whether the pixels of all images, including new ones, are shuffled.
        seed: seed of images and weights.
    """
    train_images, test_images = draw_images(n, 2 * seed + 1), draw_images(TESTED, 2 * seed + 2)
    if shuffle:
        train_images, test_images = (
            replace(images, pixels=shuffle_pixels(images.pixels)) for images in (train_images, test_images)
        )
    model = network(NETWORKS[name], seed)
    rate = Cosine(peak=RATES[name], warmup=50, updates=UPDATES)
    train(
        model,
        SequenceClass(),
        _batches(name, train_images, train_images.left, seed),
        AdamConfig(beta2=0.999),
        rate,
    )
    return class_accuracy(model, batch_of(test_images.pixels, test_images.left, NETWORKS[name].n_tokens))


COUNTS: dict[Size, tuple[int, ...]] = {"short": (64, 8192), "long": (64, 256, 1024, 4096, 8192)}


@measures("images-to-learn-from", shuffle=(False, True))
def compare_accuracy_by_training_images(size: Size, *, shuffle: bool) -> Series:
    """Measure the accuracy of both networks by the number of training images."""
    counts = COUNTS[size]
    if shuffle and size == "short":
        counts = counts[:1]  # the only count at which there is a lead to lose
    accuracies = {name: [accuracy(name, n, shuffle=shuffle) for n in counts] for name in NETWORKS}
    leads = [resnet - vit for resnet, vit in zip(*accuracies.values(), strict=True)]
    sizes = {name: n_parameters(network(config, 0)) for name, config in NETWORKS.items()}
    accuracies_at_ends = {
        f"{name}, {counts[i]:,} images": accuracy_by_count[i]
        for i in (0, -1)
        for name, accuracy_by_count in accuracies.items()
    }
    curves = {f"{name}, {n:,} parameters": accuracies[name] for name, n in sizes.items()}
    return Series(
        {
            **measured_each("accuracy of {}", accuracies_at_ends),
            **measured_each("parameters of {}", sizes),
            "first_lead": leads[0],
            "last_lead": leads[-1],
            "most": counts[-1],
            "least_right": min(accuracy_by_count[-1] for accuracy_by_count in accuracies.values()),
        },
        table_of({"images": counts, **accuracies, "ResNet ahead by": leads}),
        [
            Curves(
                "Class: the sign on the left" + (", pixels shuffled" if shuffle else ""),
                "training images",
                "accuracy on new images",
                curves_over(counts, curves),
                levels={"guessing": 1 / SIGNS},
                log="x",
                limits=(0.0, 1.02),
            )
        ],
    )


# Attention distances: the network, and restricted attention

PATCH, N_LAYERS, N_HEADS, WIDTH = 6, 3, 4, 48
CONFIG = VisionConfig(
    image_size=SIDE, channels=1, patch_size=PATCH, d_model=WIDTH, n_layers=N_LAYERS, dropout=0.0,
    layer=LayerConfig(mixer=AttentionConfig(n_heads=N_HEADS), channels=FeedForwardConfig(d_ff=2 * WIDTH)),
    pooling="mean",
)  # fmt: skip
N_PATCHES = CONFIG.n_tokens


def restrict_attention(model: nn.Module, *, confined: bool) -> AbstractContextManager[None]:
    """Within the context, restrict attention to adjacent patches; if not ``confined``, change nothing.

    Adjacent are patches that share a side or a corner, or are the same: the 3 x 3 around each.
    """
    near = torch.from_numpy(patch_distances(CONFIG.grid, 1)) < 1.5

    def confine(scores: Tensor) -> Tensor:
        return scores.masked_fill(~near, torch.finfo(scores.dtype).min)

    hooks: dict[str, Hook] = dict.fromkeys(attention_taps("scores", N_LAYERS), confine) if confined else {}
    return intervene(model, hooks)


# Training and measuring

KNOWN, WATCHED, RATE = 8192, 64, 4e-3
VIT_UPDATES: dict[Size, int] = {"short": 400, "long": 800}
SEEDS: dict[Size, int] = {"short": 1, "long": 2}


@dataclass(frozen=True)
class Observed:
    """Attention of the heads of a network, averaged over images, and its predictions.

    Args:
        distances: attention distances in pixels, ``[layers, heads]``.
        offset_weights: ``[layers, heads, 2 r - 1, 2 c - 1]``, see `mean_weights_by_offset`.
        classes: predicted class of each image.
    """

    distances: Numbers
    offset_weights: Numbers
    classes: Int[Tensor, " n"]


@dataclass(frozen=True)
class Trained:
    """Attention of a network on new images, before and after training.

    Args:
        untrained, trained: averages over these images.
        accuracy: accuracy of the trained network on these images.
    """

    untrained: Observed
    trained: Observed
    accuracy: float


def _vit_batches(updates: int, seed: int) -> Iterator[Batch]:
    images = draw_images(KNOWN, 2 * seed + 1)
    generator = generator_from(seed)
    for _ in range(updates):
        indices = torch.randint(KNOWN, (BATCH,), generator=generator)
        yield batch_of(images.pixels[indices], images.left[indices], N_PATCHES)


@cache
def train_and_observe(updates: int, seed: int, *, confined: bool) -> Trained:
    """Train a network, and observe its heads before and after."""
    model, test_images = network(CONFIG, seed).eval(), draw_images(WATCHED, 2 * seed + 2)
    images = Images.of(test_images.pixels, N_PATCHES)
    with restrict_attention(model, confined=confined):
        untrained = observe_heads(model, images)
        rate = Cosine(peak=RATE, warmup=50, updates=updates)
        train(model, SequenceClass(), _vit_batches(updates, seed), AdamConfig(beta2=0.999), rate)
        trained = observe_heads(model, images)
    return Trained(untrained, trained, (trained.classes == test_images.left).float().mean().item())


def observe_heads(model: Model, images: Images) -> Observed:
    """Run a network on images of one size, and measure the attention of its heads."""
    names = attention_taps("weights", N_LAYERS)
    with capture(model, dict.fromkeys(names)) as captured:
        classes = predicted_classes(model, images)
    weights = [captured[name][0].numpy() for name in names]
    distances = [
        np.mean([image_distance(image, CONFIG.grid, PATCH) for image in layer], axis=0) for layer in weights
    ]
    offset_weights = [mean_weights_by_offset(layer.mean(axis=0), CONFIG.grid) for layer in weights]
    return Observed(np.stack(distances), np.stack(offset_weights), classes)


def mean_weights_by_offset(weights: Numbers, grid: tuple[int, int]) -> Numbers:
    """Return the mean weight for each offset between query and key patch, relative to uniform attention.

    Args:
        weights: ``[heads, n, n]``, of queries for keys.
        grid: rows r and columns c of patches, n = r c.

    Returns:
        ``[heads, 2 r - 1, 2 c - 1]``: rows of the key below the query, from 1 - r, and columns to its right,
        from 1 - c. 1 is uniform attention.
    """
    rows, columns = (place.ravel() for place in np.indices(grid))
    row_offsets = rows[None] - rows[:, None] + grid[0] - 1
    column_offsets = columns[None] - columns[:, None] + grid[1] - 1
    sums = np.zeros((len(weights), 2 * grid[0] - 1, 2 * grid[1] - 1))
    pairs = np.zeros(sums.shape[1:])
    np.add.at(pairs, (row_offsets, column_offsets), 1)
    for head, head_weights in enumerate(weights):
        np.add.at(sums[head], (row_offsets, column_offsets), head_weights)
    return sums / pairs * len(rows)


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


EVEN = float(patch_distances(CONFIG.grid, PATCH).mean())
"""Attention distance of uniform attention."""


def _distances_panel(lines: Mapping[str, Sequence[float]]) -> Curves:
    """Draw attention distances by layer."""
    return Curves(
        "Attention distance",
        "layer",
        "pixels",
        numbered_curves(lines),
        levels={"even attention": EVEN},
        limits=(0.0, 1.6 * EVEN),
        inches=(5.2, 3.8),
    )


@measures("attention-distance", confined=(False, True))
def measure_attention_distances_by_layer(size: Size, *, confined: bool) -> Series:
    """Measure the attention distances of heads by layer, before and after training."""
    runs = [train_and_observe(VIT_UPDATES[size], seed, confined=confined) for seed in range(SEEDS[size])]
    untrained = np.concatenate([run.untrained.distances for run in runs], axis=1)
    trained = np.concatenate([run.trained.distances for run in runs], axis=1)
    offset_weights = np.concatenate([run.trained.offset_weights for run in runs], axis=1)[0]
    reach = convolution_reach(CONVOLUTIONS)
    means_before, means = untrained.mean(axis=1), trained.mean(axis=1)
    nearest, farthest = trained.min(axis=1), trained.max(axis=1)
    lines = {
        "farthest head": farthest.tolist(),
        "mean of the heads": means.tolist(),
        "nearest head": nearest.tolist(),
        "mean before training": means_before.tolist(),
        "3 x 3 convolutions, at most": reach,
    }
    farthest_head = "farthest head of the first layer"
    n_until_uniform = next(n for n, distance in enumerate(reach, 1) if distance >= EVEN)
    accuracy = sum(run.accuracy for run in runs) / len(runs)
    return Series(
        {
            "farthest": Measured(f"{farthest_head}, after training", farthest[0], "pixels", EVEN),
            "nearest": Measured("nearest head of the first layer", nearest[0], "pixels"),
            "first": Measured("mean of the first layer's heads", means[0], "pixels"),
            "last": Measured("mean of the last layer's heads", means[-1], "pixels"),
            "before": Measured(f"{farthest_head}, before training", untrained[0].max(), "pixels"),
            "reach": Measured("most that the first convolution of 3 x 3 reaches", reach[0], "pixels", 2**0.5),
            "convolutions": Measured(
                "convolutions of 3 x 3 until they reach as far as even attention looks",
                n_until_uniform,
                "layers",
                math.ceil(EVEN / 2**0.5),
            ),
            "accuracy": Measured("accuracy", accuracy),
            "least_later": means[1:].min(),
            "even": EVEN,
        },
        table_of(
            {
                "layer": range(1, N_LAYERS + 1),
                "before training": means_before,
                "after": means,
                "nearest head": nearest,
                "farthest head": farthest,
                "convolutions": reach[:N_LAYERS],
            }
        ),
        [
            _distances_panel(lines),
            _weights_panel("Nearest head of the first layer", offset_weights[trained[0].argmin()]),
            _weights_panel("Farthest head of the first layer", offset_weights[trained[0].argmax()]),
        ],
    )


def _weights_panel(title: str, weights: Numbers) -> Matrix:
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
