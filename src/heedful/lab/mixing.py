"""Mixing positions without attention: its cost, its abilities and its limits.

Items 84 (depthwise separable convolution), 86 (FNet) and 87 (MLP-Mixer) of the lectures.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.errors import RequestError
from heedful.lab.costs import flops_of
from heedful.lab.drawing import Bars, Curves
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import Training, n_parameters, train
from heedful.models import encoder
from heedful.models.encoder import EncoderConfig, class_head
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.layout import Layout
from heedful.nn.mixers import Convolution, DepthwiseSeparableConvolution, FourierMixer, PositionMLP
from heedful.objectives.classification import SequenceClass, class_logits
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Cosine

# Depthwise separable and full convolution


def _cost(kernel: int, size: Size) -> Outcome:
    """Count parameters and operations of both convolutions with one kernel size."""
    d, n = (64, 32) if size == "short" else (512, 512)
    with seeded(0):
        parts: dict[str, nn.Module] = {
            "separable": DepthwiseSeparableConvolution(d, kernel, bias=False),
            "full": Convolution(d, kernel, bias=False),
        }
    parameters = {name: n_parameters(part) for name, part in parts.items()}
    flops = {name: _flops(part, torch.zeros(n, d)) for name, part in parts.items()}
    cheaper = parameters["separable"] < parameters["full"] and flops["separable"] < flops["full"]
    kernels = [1, 3, 5, 9, 15, 31]
    return Outcome(
        "holds" if cheaper else "is wrong",
        "Mixing positions feature by feature, and then features position by position, takes k d + d² "
        "parameters, while a full convolution takes k d²: nearly k times fewer if k is much smaller than d. "
        "With k = 1 there is nothing to separate, and it takes d more.",
        [
            Measured(
                f"parameters, separable, k = {kernel}", parameters["separable"], expected=kernel * d + d**2
            ),
            Measured(f"parameters, full, k = {kernel}", parameters["full"], expected=kernel * d**2),
            Measured(
                "operations for each token, separable",
                flops["separable"] / n,
                "FLOPs",
                2 * (kernel * d + d**2),
            ),
            Measured("operations for each token, full", flops["full"] / n, "FLOPs", 2 * kernel * d**2),
        ],
        [{"k": k, "separable": k * d + d**2, "full": k * d**2, "ratio": k * d / (k + d)} for k in kernels],
        [
            Curves(
                f"Parameters of a convolution, d = {d}",
                "kernel size k",
                "parameters",
                {
                    "full: k d²": (kernels, [k * d**2 for k in kernels]),
                    "separable: k d + d²": (kernels, [k * d + d**2 for k in kernels]),
                },
                log="xy",
            )
        ],
    )


@torch.no_grad()
def _flops(part: nn.Module, x: Float[Tensor, "n d"]) -> int:
    return flops_of(lambda: part(x, Layout.of([len(x)])))


# Mixers with equal budgets

D, SYMBOLS, LENGTH = 32, 16, 11
CLASSIFY, SEPARATE, FIRST = 0, 1, 2  # ids
KINDS = 2
"""Number of symbols, the lowest ids, that occur at the ends; all others occur in between."""
COMPARABLE = 0.9
"""Share of attention's accuracy that counts as comparable; FNet's paper reports 92 % and more."""
LEARNED = 0.75
"""Half-way from chance to 1: accuracy from which on a mixer has learned the task, whatever attention does."""


def ends(n: int, generator: torch.Generator) -> Batch:
    """Draw sequences of symbols; the class tells whether the first and the last symbol are the same.

    Neither of the two is informative without the other, nor are the symbols between them, which differ.
    """
    rows = torch.randint(KINDS, SYMBOLS, (n, LENGTH), generator=generator)
    outer = torch.randint(KINDS, (n, 2), generator=generator)
    rows[:, 0], rows[:, -1] = outer.unbind(1)
    parts = [[(row + FIRST).tolist()] for row in rows]
    classes = (outer[:, 0] == outer[:, 1]).long()
    return Batch.labelled(parts, classes.tolist(), classify=CLASSIFY, separate=SEPARATE)


def config_of(mixer: str, d_ff: int) -> EncoderConfig:
    """Configure two blocks of a mixer and feed-forward layers, with mean pooling.

    The mean covers the whole sequence, whatever the mixer does. But a linear layer on a mean is a sum over
    tokens, so a function of two tokens must be computed before pooling.
    """
    return EncoderConfig(
        mixer=mixer,
        d_model=D,
        d_ff=d_ff,
        n_heads=4,
        n_layers=2,
        norm_placement="pre",
        max_length=LENGTH + 2,
        kernel=3,
        dropout=0.0,
        attention_dropout=0.0,
        segments=0,
        pooling="mean",
        pooler=False,
    )


def _model(mixer: str, d_ff: int) -> Any:
    with seeded(0):
        model = encoder.build(config_of(mixer, d_ff), SYMBOLS + FIRST)
        model.heads["class"] = class_head(D, 2, dropout=0.0)
    return model


def at_budget(mixer: str, parameters: int) -> Any:
    """Build the model whose feed-forward width brings its parameters nearest to a number."""
    one, two = (n_parameters(_model(mixer, d_ff)) for d_ff in (1, 2))
    return _model(mixer, max(1, 1 + round((parameters - one) / (two - one))))


@dataclass(frozen=True)
class Learned:
    """A trained model.

    Args:
        model: the model.
        training: losses by update.
        right: accuracy on new sequences.
    """

    model: Any
    training: Training
    right: float


@cache
def learned(mixer: str, parameters: int, size: Size) -> Learned:
    """Train a model with this many parameters."""
    model = at_budget(mixer, parameters)
    updates, test = (160, 256) if size == "short" else (600, 2048)
    rate = Cosine(peak=6e-3, warmup=20, updates=updates)
    generator = generator_from(3)
    batches = (ends(32, generator) for _ in range(updates))
    training = train(model, SequenceClass(), batches, AdamConfig(), rate)
    batch = ends(test, generator_from(4))
    assert batch.classes is not None
    with torch.no_grad():
        layout = batch.inputs.layout
        logits = class_logits(model(batch.inputs), model.heads, layout)
    return Learned(model, training, (logits.argmax(-1) == batch.classes).float().mean().item())


def _compared(judged: tuple[str, ...], size: Size) -> Outcome:
    """Train attention and other mixers with as many parameters on one task."""
    budget = n_parameters(_model("attention", 64))
    results = {mixer: learned(mixer, budget, size) for mixer in ("attention", *judged)}
    right = {mixer: each.right for mixer, each in results.items()}
    wanted = max(LEARNED, COMPARABLE * right["attention"])
    comparable = all(right[mixer] > wanted for mixer in judged)
    return Outcome(
        "holds with conditions" if comparable else "is wrong",
        (
            "If two distant tokens at fixed positions must be compared, mixers that span the whole sequence "
            "do as well as attention with as many parameters. The task does not require a token to choose by "
            "content where to attend, which these mixers cannot do: nothing follows for tasks that require "
            "it."
            if comparable
            else "Convolutions of few layers reach only their neighbours. Information on two distant tokens "
            "is first combined by the mean pooling, too late for a comparison."
        ),
        [
            *(Measured(f"right classes, {mixer}", right[mixer]) for mixer in (*judged, "attention")),
            Measured(
                f"parameters, {judged[0]}", n_parameters(results[judged[0]].model), expected=float(budget)
            ),
        ],
        [
            {
                "mixer": mixer,
                "right classes": right[mixer],
                "parameters": n_parameters(each.model),
                "of its mixers": n_parameters(*(block.mixer.part for block in each.model.stack.blocks)),
                "d_ff": each.model.stack.blocks[0].feed_forward.part.up.out_features,
            }
            for mixer, each in results.items()
        ],
        [
            Curves(
                "Training loss (task: are both ends the same?)",
                "update",
                "nats per sequence",
                {mixer: each.training.curve for mixer, each in results.items()},
            ),
            Bars("Accuracy on new sequences", "", "accuracy", right, levels={"chance": 0.5}),
        ],
    )


# Limits of use

_N = 8

PARTS: dict[str, Callable[[], nn.Module]] = {
    "Fourier": FourierMixer,
    "network along positions": lambda: PositionMLP(D, _N, 2 * _N),
    "causal self-attention": lambda: SelfAttention(D, 4, causal=True),
    "causal separable convolution": lambda: DepthwiseSeparableConvolution(D, 3, causal=True),
}


@torch.no_grad()
def change_of_earlier(part: nn.Module) -> float:
    """Return the largest change of all other tokens if the last one changes."""
    with seeded(1):
        x = torch.randn(_N, D)
    other = x.clone()
    other[-1] += 1.0
    layout = Layout.of([_N])
    return (part(x, layout) - part(other, layout))[:-1].abs().max().item()


@torch.no_grad()
def takes_longer(part: nn.Module) -> bool:
    """Return whether a part accepts longer sequences than it was built for."""
    try:
        part(torch.zeros(2 * _N, D), Layout.of([2 * _N]))
    except RequestError:
        return False
    return True


def _stands(judged: tuple[str, ...], size: Size) -> Outcome:
    """Test whether parts leave earlier tokens unchanged and accept sequences of any length."""
    with seeded(0):
        parts = {name: make().eval() for name, make in PARTS.items()}
    change = {name: change_of_earlier(part) for name, part in parts.items()}
    longer = {name: takes_longer(part) for name, part in parts.items()}
    anywhere = all(change[name] == 0 and longer[name] for name in judged)
    verdict: Verdict = "holds" if anywhere else "holds with conditions"
    return Outcome(
        verdict,
        "They can if whole sequences are read, as in an encoder. They cannot in a decoder: a Fourier "
        "transform mixes every token with every other, including later ones, and the weights of a network "
        "along positions belong to positions, whose number is fixed.",
        [
            *(Measured(f"change of earlier tokens by the last, {name}", change[name]) for name in judged),
            *(Measured(f"reads longer sequences, {name}", float(longer[name])) for name in judged),
        ],
        [
            {
                "part": name,
                "change of earlier tokens": change[name],
                "reads longer sequences": "yes" if longer[name] else "no",
                "parameters": n_parameters(part),
            }
            for name, part in parts.items()
        ],
        [Bars("Change of earlier tokens by the last one", "", "largest change", change)],
    )


_LEE_THORP = "Lee-Thorp et al. 2021 (which S1 calls Lee-Thorpe)"
_TOLSTIKHIN = "Tolstikhin et al. 2021"

EXPERIMENTS = [
    Experiment(
        "separable-convolution",
        "Savings of a depthwise separable convolution",
        "Filtering each feature plane separately and then each position by a 1 x 1 convolution is cheaper "
        "than a full convolution.",
        "S1, Transformers and depthwise separable ConvNets; Chollet 2017, section 1",
        (84,),
        run=partial(_cost, 5),
        control=partial(_cost, 1),
        changed="The kernel size is 1.",
    ),
    Experiment(
        "mixers-at-equal-budget",
        "Mixers without attention",
        "Other ways of processing vector sequences in a non-local fashion (a Fourier transform, a network "
        "along positions) have a performance that is comparable to Transformers.",
        f"S1, end of the section on depthwise separable ConvNets; {_LEE_THORP}; {_TOLSTIKHIN}",
        (84, 86, 87),
        run=partial(_compared, ("fourier", "mlp")),
        control=partial(_compared, ("separable",)),
        changed="The other mixer is local: a depthwise separable convolution of 3 tokens.",
        expected=("holds with conditions", "is wrong"),
    ),
    Experiment(
        "mixers-in-place-of-attention",
        "Where attention cannot be replaced",
        "A Fourier transform, or a network along positions, can be used instead of self-attention.",
        f"S1, end of the section on depthwise separable ConvNets; {_LEE_THORP}; {_TOLSTIKHIN}",
        (86, 87),
        run=partial(_stands, ("Fourier", "network along positions")),
        control=partial(_stands, ("causal separable convolution", "causal self-attention")),
        changed="They are replaced by causal parts whose weights depend on offsets or on contents.",
        expected=("holds with conditions", "holds"),
    ),
]
