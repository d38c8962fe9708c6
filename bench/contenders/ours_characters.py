"""heedful's training of the character model, with its improvements over the plain loop added in steps."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from contenders.characters import (
    BATCH,
    HEADS,
    LAYERS,
    LENGTH,
    UPDATES,
    WIDTH,
    Text,
    TrainingOutcome,
    rate,
    validate,
)


@dataclass(frozen=True)
class TrainingSetup:
    """Settings of a training.

    Args:
        name: what it adds to the previous one.
        batch: windows per update.
        updates: number of updates.
        muon: Muon instead of AdamW.
        peak: highest learning rate (of Muon; AdamW uses a fifth of it); None: the plain loop's schedule.
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
        """Return the number of characters of the whole training."""
        return self.batch * LENGTH * self.updates


STEP = TrainingSetup("heedful's step at its own precision, all else as in the plain loop", BATCH, UPDATES)
SCHEDULE = TrainingSetup("and twice the windows an update, a higher rate that falls to 0", 24, 900, peak=4e-3)
MUON = TrainingSetup("and Muon", 24, 275, muon=True, peak=0.05, warmup=20)


def train_heedful(text: Text, seed: int, setup: TrainingSetup = MUON) -> TrainingOutcome:
    """Train the plain loop's model with these settings."""
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
    rng = np.random.default_rng(seed)
    train = text.train.numpy()
    start = time.perf_counter()
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
    config = MuonConfig(weight_decay=0.1) if setup.muon else AdamWConfig(beta2=0.99, weight_decay=0.1)
    optimizer = build_optimizer(config, model)
    parameters = list(model.parameters())
    for update in range(setup.updates):
        offsets = rng.integers(len(train) - LENGTH, size=(setup.batch, 1))
        batch = Batch.windows(train[offsets + np.arange(LENGTH + 1)])
        loss, _ = step(batch, step.counts(batch))
        loss.backward()
        clip(parameters, 1.0, gradient_norm(parameters))
        set_lr(optimizer, _rate(setup, update))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    seconds = time.perf_counter() - start
    return TrainingOutcome(seconds, _loss(model.eval(), text))


def _rate(setup: TrainingSetup, update: int) -> float:
    """Return the learning rate: linear warm-up, then linear decay to 0; or the plain loop's."""
    if setup.peak is None:
        return rate(update, setup.updates)
    return setup.peak * min((update + 1) / setup.warmup, 1.0) * (1 - update / setup.updates)


def _loss(model: Any, text: Text) -> float:
    from heedful.nn.layout import Tokens

    def logits(x: torch.Tensor) -> torch.Tensor:
        tokens = Tokens.from_padded(x, [x.shape[1]] * x.shape[0])
        return model.heads["token"](model(tokens)).view(*x.shape, -1)

    return validate(logits, text.valid)
