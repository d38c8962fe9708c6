"""Trainings of a second or two, and what else several experiments need.

Models are made of the parts, objectives, optimizers and schedules that large ones are trained with.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.explain.patterns import Census, census
from heedful.explain.view import INPUT, Axis, Explanation, Kind, Map
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.taps import capture
from heedful.objectives.terms import Objective
from heedful.training.optimizers import OptimizerConfig, build_optimizer, gradient_norm, set_rate
from heedful.training.schedules import Schedule
from heedful.training.step import Step


@dataclass(frozen=True)
class Training:
    """What a training came to, update by update; it ends early with a loss that is no number.

    Args:
        losses: of each batch, in nats for an item, before the update it led to.
        norms: of all gradients taken as one vector.
    """

    losses: Sequence[float]
    norms: Sequence[float]

    @property
    def curve(self) -> tuple[Sequence[float], Sequence[float]]:
        """The losses over the updates, from 1, to be drawn."""
        return range(1, len(self.losses) + 1), self.losses

    @property
    def end(self) -> float:
        """The mean of the last ten losses; infinite where one is no number."""
        last = [loss if math.isfinite(loss) else math.inf for loss in self.losses[-10:]]
        return sum(last) / len(last)


def attention_taps(name: str, n_layers: int) -> list[str]:
    """The taps of self-attention, "scores" or "weights" or others, of the layers of a stack."""
    return [f"stack.blocks.{layer}.mixer.part.{name}" for layer in range(n_layers)]


@torch.no_grad()
def attention_weights(model: Any, inputs: Tokens | Images) -> Float[Tensor, "L n H T T"]:
    """Of all layers of a model, what every token of sequences of one length gives to every other."""
    names = attention_taps("weights", len(model.stack.blocks))
    with capture(model, dict.fromkeys(names)) as seen:
        model(inputs)
    return torch.stack([seen[name][-1] for name in names])


def census_of(texts: Iterable[Sequence[str]], kind: Kind, seen: Float[Tensor, "L n H T T"]) -> Census:
    """What heads do (`heedful.explain.patterns`), by their weights for so many texts."""
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
    """Train on one batch after the other, and leave the model in evaluation."""
    step = Step(model.train(), objective)
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
    """Of the straight line that is nearest to the points, by least squares."""
    return float(np.polyfit(np.asarray(xs, float), np.asarray(ys, float), 1)[0])


def n_parameters(*modules: nn.Module) -> int:
    """Numbers that are learned; what modules share is counted once."""
    held: dict[Any, int] = {p: p.numel() for module in modules for p in module.parameters()}
    return sum(held.values())
