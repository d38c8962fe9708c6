"""Training runs of a second or two, and other helpers shared by experiments.

Models are built from the same parts, objectives, optimizers and schedules as large ones.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from heedful.data.batch import Batch
from heedful.explain.patterns import Census, census
from heedful.explain.view import INPUT, Axis, Explanation, Kind, Map
from heedful.models.encoder import EncoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.models.mixers import AttentionConfig
from heedful.models.sections import FeedForwardConfig
from heedful.models.stacks import LayerConfig, stack
from heedful.nn.blocks import EncoderStack
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.taps import capture
from heedful.objectives.terms import Objective
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import OptimizerConfig, build_optimizer, gradient_norm, set_rate
from heedful.training.schedules import Schedule


@dataclass(frozen=True)
class Training:
    """Losses and gradient norms by update; training stops early if the loss is NaN or infinite.

    Args:
        losses: loss of each batch before its update, in nats per item.
        norms: norm of all gradients taken as one vector.
    """

    losses: Sequence[float]
    norms: Sequence[float]

    @property
    def curve(self) -> tuple[Sequence[float], Sequence[float]]:
        """Losses over updates, counted from 1, as a curve to draw."""
        return range(1, len(self.losses) + 1), self.losses

    @property
    def end(self) -> float:
        """Mean of the last ten losses; infinite if one of them is NaN or infinite."""
        last = [loss if math.isfinite(loss) else math.inf for loss in self.losses[-10:]]
        return sum(last) / len(last)


def plain_stack(
    d_model: int, n_layers: int, *, causal: bool, placement: Literal["post", "pre"] = "post"
) -> EncoderStack:
    """Build an untrained stack of attention (4 heads) and feed-forward layers (4 d_model hidden units)."""
    family = LanguageModelConfig if causal else EncoderConfig
    layer = LayerConfig(
        mixer=AttentionConfig(n_heads=4, dropout=0.0),
        channels=FeedForwardConfig(d_ff=4 * d_model, activation="relu"),
        norm_placement=placement,
    )
    return stack(family(d_model=d_model, n_layers=n_layers, dropout=0.0, layer=layer), 1)


def attention_taps(name: str, n_layers: int) -> list[str]:
    """Return the names of a self-attention tap (such as "scores" or "weights") in all layers of a stack."""
    return [f"stack.blocks.{layer}.mixer.part.{name}" for layer in range(n_layers)]


@torch.no_grad()
def attention_weights(model: Any, inputs: Tokens | Images) -> Float[Tensor, "L n H T T"]:
    """Return the self-attention weights of all layers for sequences of equal length."""
    names = attention_taps("weights", len(model.stack.blocks))
    with capture(model, dict.fromkeys(names)) as seen:
        model(inputs)
    return torch.stack([seen[name][-1] for name in names])


def census_of(texts: Iterable[Sequence[str]], kind: Kind, seen: Float[Tensor, "L n H T T"]) -> Census:
    """Take the census of attention patterns (`heedful.explain.patterns`) from the weights of texts."""
    heads = tuple(range(seen.shape[2]))
    explanations = []
    for text, own in zip(texts, seen.unbind(1), strict=True):
        maps = [Map(f"layer {n}", kind, n, INPUT, INPUT, heads, layer.numpy()) for n, layer in enumerate(own)]
        explanations.append(Explanation("lab", "heads", None, {}, {INPUT: Axis(tuple(text))}, maps))
    return census(explanations)


def train(
    model: nn.Module,
    objective: Objective,
    batches: Iterable[Batch],
    optimizer: OptimizerConfig,
    schedule: Schedule,
) -> Training:
    """Train on each batch in turn, and leave the model in evaluation mode."""
    step = ModelWithLoss(model.train(), objective)
    made = build_optimizer(optimizer, model)
    losses: list[float] = []
    norms: list[float] = []
    for number, batch in enumerate(batches, 1):
        loss, _ = step(batch, step.counts(batch))
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
        made.zero_grad(set_to_none=True)
        loss.backward()
        norms.append(gradient_norm(model.parameters()).item())
        set_rate(made, schedule.rate(number))
        made.step()
    model.eval()
    return Training(losses, norms)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the slope of the least-squares line through the points."""
    return float(np.polyfit(np.asarray(xs, float), np.asarray(ys, float), 1)[0])


def n_parameters(*modules: nn.Module) -> int:
    """Count the learned parameters; shared ones count once."""
    held: dict[Any, int] = {p: p.numel() for module in modules for p in module.parameters()}
    return sum(held.values())


# Costs: operation counts, which decide verdicts, and wall times, which are only reported

REPEATS = 7

Given = TypeVar("Given")


def flops_of(work: Callable[[], Any]) -> int:
    """Count the floating-point operations of the matrix products in ``work``."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def milliseconds(work: Callable[[Given], Any], given: Callable[[], Given]) -> float:
    """Return the shortest of `REPEATS` wall times of ``work``, after one untimed warm-up call.

    The shortest time is the one least disturbed by other processes. Operations are not counted at the same
    time, since counting takes many times longer than the computation itself.

    Args:
        work: function to time; it must not build models.
        given: makes the argument of ``work``, anew for each call; its own time is not included.
    """
    work(given())
    times = []
    for _ in range(REPEATS):
        taken = given()
        begun = time.perf_counter()
        work(taken)
        times.append(time.perf_counter() - begun)
    return 1e3 * min(times)
