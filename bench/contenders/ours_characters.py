"""How heedful reaches the plain loop's loss on characters, with each means by itself."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from contenders.characters import BATCH, HEADS, LAYERS, LENGTH, UPDATES, WIDTH, Course, Text, rate, validate


@dataclass(frozen=True)
class Means:
    """One way to train.

    Args:
        name: what it adds to the one before it.
        batch: windows an update.
        updates: how many.
        muon: Muon instead of AdamW.
        peak: the highest rate (Muon's, of which AdamW has a fifth); None: the plain loop's schedule.
        warmup: updates up to the highest rate.
    """

    name: str
    batch: int
    updates: int
    muon: bool = False
    peak: float | None = None
    warmup: int = 50

    @property
    def characters(self) -> int:
        """Read in all."""
        return self.batch * LENGTH * self.updates


STEP = Means("heedful's step at its own precision, all else as in the plain loop", BATCH, UPDATES)
SCHEDULE = Means("and twice the windows an update, a higher rate that falls to 0", 24, 900, peak=4e-3)
MUON = Means("and Muon", 24, 275, muon=True, peak=0.05, warmup=20)


def characters(text: Text, seed: int, means: Means = MUON) -> Course:
    """Train as ``means`` says; the model is the plain loop's."""
    from heedful.data.batch import Batch
    from heedful.models.language_model import LanguageModelConfig, build
    from heedful.objectives.cross_entropy import NextToken
    from heedful.training.fast_paths import choose_precision
    from heedful.training.model_with_loss import ModelWithLoss
    from heedful.training.optimizers import (
        AdamWConfig,
        MuonConfig,
        build_optimizer,
        clip,
        gradient_norm,
        set_lr,
    )

    torch.manual_seed(seed)
    draw = np.random.default_rng(seed)
    train = text.train.numpy()
    begin = time.perf_counter()
    model = build(
        LanguageModelConfig(
            d_model=WIDTH,
            n_layers=LAYERS,
            context=LENGTH,
            dropout=0.0,
            layer={"mixer": {"n_heads": HEADS, "bias": False}},
        ),
        len(text.characters),
    )
    step = ModelWithLoss(model.train(), NextToken(), choose_precision("auto", "cpu"))
    config = MuonConfig(weight_decay=0.1) if means.muon else AdamWConfig(beta2=0.99, weight_decay=0.1)
    optimizer = build_optimizer(config, model)
    parameters = list(model.parameters())
    for update in range(means.updates):
        first = draw.integers(len(train) - LENGTH, size=(means.batch, 1))
        batch = Batch.windows(train[first + np.arange(LENGTH + 1)])
        loss, _ = step(batch, step.counts(batch))
        loss.backward()
        clip(parameters, 1.0, gradient_norm(parameters))
        set_lr(optimizer, _rate(means, update))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    seconds = time.perf_counter() - begin
    return Course(seconds, _loss(model.eval(), text))


def _rate(means: Means, update: int) -> float:
    """Up in the first updates, then straight down to 0; or as in the plain loop."""
    if means.peak is None:
        return rate(update, means.updates)
    return means.peak * min((update + 1) / means.warmup, 1.0) * (1 - update / means.updates)


def _loss(model: Any, text: Text) -> float:
    from heedful.nn.layout import Tokens

    def logits(x: torch.Tensor) -> torch.Tensor:
        tokens = Tokens.from_padded(x, [x.shape[1]] * x.shape[0])
        return model.heads["token"](model(tokens)).view(*x.shape, -1)

    return validate(logits, text.valid)
