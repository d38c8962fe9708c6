"""Amount of data needed by a convolutional network, and by a Vision Transformer of the same size.

Item 79 of the lectures. Every image contains two signs, far apart and each at a random height; the class is
the sign on the left. A sign consists of neighbouring pixels and looks the same at every position. A
convolution has this built in, and a Transformer must learn it. If the pixels of all images are shuffled by
the same permutation, the built-in knowledge is useless, and nothing else changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.lab.drawing import Curves
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import n_parameters, train
from heedful.models.encoder import class_head
from heedful.models.registry import build_model
from heedful.models.resnet import ResNetConfig
from heedful.models.vision import VisionConfig
from heedful.nn.patches import Images
from heedful.objectives.classification import SequenceClass, class_logits
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
class Drawn:
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


def drawn(n: int, seed: int) -> Drawn:
    """Draw ``n`` images."""
    with seeded(seed):
        pixels = NOISE * torch.randn(n, 1, SIDE, SIDE)
        left = torch.randint(SIGNS, (n,))
        right = (left + torch.randint(1, SIGNS, (n,))) % SIGNS
        images, along = torch.arange(n)[:, None, None], torch.arange(SIGN)
        for kinds, columns in ((left, LEFT), (right, RIGHT)):
            rows = torch.randint(SIDE - SIGN + 1, (n,))[:, None, None] + along[:, None]
            begins = torch.randint(columns.start, columns.stop, (n,))[:, None, None] + along
            pixels[images, 0, rows, begins] += signs()[kinds]
    return Drawn(pixels, left, right)


def shuffled(pixels: Float[Tensor, "n 1 s s"]) -> Float[Tensor, "n 1 s s"]:
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
        image_size=SIDE, channels=1, patch_size=8, d_model=64, d_ff=128, n_heads=4, n_layers=1, dropout=0.0,
        pooling="mean",
    ),
}  # fmt: skip
"""Networks of comparable size: their parameters differ by less than a third, and both see the whole image."""


def network(config: ResNetConfig | VisionConfig, seed: int) -> nn.Module:
    """Build a network with initial weights, with a classification head for the signs."""
    with seeded(seed):
        model = build_model(config)
        heads = model.heads
        assert isinstance(heads, nn.ModuleDict)
        heads["class"] = class_head(config.d_model, SIGNS, 0.0)
    return model


@torch.no_grad()
def answers(model: nn.Module, images: Images) -> Int[Tensor, " n"]:
    """Return the predicted sign of each image."""
    heads = model.heads
    assert isinstance(heads, nn.ModuleDict)
    return class_logits(model(images), heads, images.layout).argmax(-1)


# Training

UPDATES, BATCH = 256, 32
RATES = {"ResNet": 2e-2, "ViT": 3e-3}
"""Peak learning rates."""


def _batches(name: str, known: Drawn, classes: Int[Tensor, " n"], seed: int) -> Iterator[Batch]:
    """Yield batches that go through the images repeatedly, each time in a new order."""
    n_tokens, n = NETWORKS[name].n_tokens, len(classes)
    order = torch.zeros(0, dtype=torch.int64)
    generator = generator_from(seed)
    for _ in range(UPDATES):
        while len(order) < BATCH:
            order = torch.cat([order, torch.randperm(n, generator=generator)])
        chosen, order = order[:BATCH], order[BATCH:]
        yield Batch.of_images(Images.of(known.pixels[chosen], n_tokens), classes[chosen].tolist())


@cache
def accuracy(name: str, n: int, *, shuffle: bool, seed: int = 0) -> float:
    """Return the accuracy on new images after training on ``n``.

    Args:
        name: name of the network.
        n: number of training images.
        shuffle: whether the pixels of all images, including new ones, are shuffled.
        seed: seed of images and weights.
    """
    known, new = drawn(n, 2 * seed + 1), drawn(TESTED, 2 * seed + 2)
    if shuffle:
        known, new = (replace(each, pixels=shuffled(each.pixels)) for each in (known, new))
    model = network(NETWORKS[name], seed)
    rate = Cosine(peak=RATES[name], warmup=50, updates=UPDATES)
    train(model, SequenceClass(), _batches(name, known, known.left, seed), AdamConfig(beta2=0.999), rate)
    found = answers(model, Images.of(new.pixels, NETWORKS[name].n_tokens))
    return (found == new.left).float().mean().item()


# The verdict

COUNTS: dict[Size, tuple[int, ...]] = {"short": (64, 8192), "long": (64, 256, 1024, 4096, 8192)}
AHEAD = 0.05
"""Difference in accuracy above which one network counts as better."""


def judge(leads: Sequence[float]) -> Verdict:
    """Judge by the lead of the ResNet, from the fewest images to the most.
    The claim has two halves: the ResNet leads with the fewest images, and the ViT with the most. If only the
    first half is true, the claim holds with conditions.
    """
    if leads[0] <= AHEAD:
        return "is wrong"
    return "holds" if leads[-1] < -AHEAD else "holds with conditions"


def _statement(verdict: Verdict, most: int) -> str:
    if verdict == "is wrong":
        return (
            "If neighbouring pixels are unrelated, the built-in assumptions of a ResNet are useless: it has "
            "no lead with few images."
        )
    few = (
        "With few images the ResNet is better: it need not learn that objects consist of neighbouring pixels "
        "and look the same everywhere. The lead disappears with more images."
    )
    if verdict == "holds":
        return f"{few} With the most, the ViT is better."
    return (
        f"{few} With {most:,} images both, of comparable size, classify nearly every sign correctly: they "
        "are equal, and the ViT does not overtake. A task this easy cannot show whether it would; in the "
        "paper they are equal after 14 million images, and the ViT is better after 303 million."
    )


def _by_number(*, shuffle: bool, size: Size) -> Outcome:
    """Test whether the ResNet is better with the fewest images, and the ViT with the most."""
    counts = COUNTS[size]
    if shuffle and size == "short":
        counts = counts[:1]  # the only count at which there is a lead to lose
    reached = {name: [accuracy(name, n, shuffle=shuffle) for n in counts] for name in NETWORKS}
    leads = [r - v for r, v in zip(reached["ResNet"], reached["ViT"], strict=True)]
    verdict = judge(leads)
    sizes = {name: n_parameters(network(config, 0)) for name, config in NETWORKS.items()}
    return Outcome(
        verdict,
        _statement(verdict, counts[-1]),
        [
            *(
                Measured(f"accuracy of {name}, {n:,} images", reached[name][k])
                for k, n in enumerate(counts)
                if n in (counts[0], counts[-1])
                for name in NETWORKS
            ),
            *(Measured(f"parameters of {name}", n) for name, n in sizes.items()),
        ],
        [
            {"images": n, **{name: reached[name][k] for name in NETWORKS}, "ResNet ahead by": leads[k]}
            for k, n in enumerate(counts)
        ],
        [
            Curves(
                "Class: the sign on the left" + (", pixels shuffled" if shuffle else ""),
                "training images",
                "accuracy on new images",
                {f"{name}, {n:,} parameters": (counts, reached[name]) for name, n in sizes.items()},
                levels={"guessing": 1 / SIGNS},
                log="x",
                limits=(0.0, 1.02),
            )
        ],
    )


EXPERIMENTS = [
    Experiment(
        "images-to-learn-from",
        "ResNet and ViT by number of training images",
        "With few training images ResNets are better than Vision Transformers, with many ViTs are better.",
        "S1, vision Transformers (figures 30 and 31); Dosovitskiy et al. 2021, section 4.3, figures 3 and 4",
        (79,),
        run=lambda size: _by_number(shuffle=False, size=size),
        control=lambda size: _by_number(shuffle=True, size=size),
        changed="The pixels are shuffled by the same permutation in all images, so neighbours are unrelated.",
        expected=("holds with conditions", "is wrong"),
    ),
]
