"""A small training for the tests: 23 samples, two loss terms with different denominators, dropout."""

import multiprocessing
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch._dynamo  # the first step of an optimizer imports it, which is slow in every new process
from torch import nn
from torch.nn.functional import cross_entropy

from heedful.data.batch import Batch
from heedful.nn.layout import Tokens
from heedful.objectives.terms import Term
from heedful.training.callbacks import JsonLines
from heedful.training.loop import Training, TrainingResult
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import AdamConfig, build_optimizer
from heedful.training.schedules import Plateau
from heedful.training.settings import TrainingConfig
from heedful.training.update import PlannedData

VOCAB, WIDTH = 11, 5
LENGTHS = np.array([(7 * i) % 13 + 1 for i in range(23)])


class ToyModel(nn.Module):
    """Embedding, dropout, a named head; the head shares the embedding's weight when ``tied``."""

    def __init__(self, dropout: float = 0.0, tied: bool = False, seed: int = 3) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.heads = nn.ModuleDict({"token": nn.Linear(WIDTH, VOCAB)})
        if tied:
            self.heads["token"].weight = self.embedding.weight

    def forward(self, inputs: Tokens, source: Tokens | None) -> torch.Tensor:
        return self.dropout(self.embedding(inputs.ids))


class ToyObjective:
    """Loss terms: ``token`` (all targets), ``even`` (even targets, weight 0.5), ``seen`` (only reported)."""

    def counts(self, batch: Batch) -> dict[str, int]:
        n = len(batch.targets)
        return {"token": n, "even": int((batch.targets % 2 == 0).sum()), "seen": n}

    def __call__(self, hidden: torch.Tensor, heads: nn.ModuleDict, batch: Batch) -> list[Term]:
        losses = cross_entropy(heads["token"](hidden).float(), batch.targets, reduction="none")
        counts = self.counts(batch)
        even = losses[batch.targets % 2 == 0].sum()
        return [
            Term("token", losses.sum(), counts["token"]),
            Term("even", even, counts["even"], 0.5),
            Term("seen", torch.tensor(float(len(losses))), counts["seen"], 0.0),
        ]


def make_batch(samples: Any, epoch: int) -> Batch:
    """Return a batch whose ids depend on sample and epoch, as for masked or noised data."""
    rows = [[(i * 3 + k * k + epoch) % (VOCAB - 2) + 2 for k in range(LENGTHS[i])] for i in samples]
    tokens = Tokens.of(rows)
    return Batch(tokens, (tokens.ids * 5 + 1) % VOCAB, None, tuple(samples))


def toy_data(tokens_per_update: int = 31) -> PlannedData:
    return PlannedData(LENGTHS, make_batch, tokens_per_update, seed=5)


def validate(model: nn.Module) -> dict[str, float]:
    assert not model.training
    assert not torch.is_grad_enabled()
    batch = make_batch(range(0, 23, 2), 0)
    hidden = model(batch.inputs, None)
    return {"loss": cross_entropy(model.heads["token"](hidden), batch.targets).item()}


@dataclass
class Toy:
    """Everything that a training needs, newly built."""

    run: Path
    settings: dict[str, Any] = field(default_factory=dict)
    dropout: float = 0.3
    tied: bool = True
    callbacks: list[Any] = field(default_factory=list)
    validate: Any = field(default=validate)
    data: Any = field(default_factory=toy_data)
    direction: Literal["lower", "higher"] = "lower"

    def __post_init__(self) -> None:
        self.step = ModelWithLoss(ToyModel(self.dropout, self.tied), ToyObjective())
        self.optimizer = build_optimizer(AdamConfig(), self.step.model)
        # Reduces the rate after every validation without improvement, which is common at this high rate.
        self.schedule = Plateau(peak=0.3, factor=0.5, patience=0, direction="lower", warmup=3)

    def train(self, resume: bool = False) -> TrainingResult:
        defaults = {"max_updates": 17, "validate_every": 3, "save_every": 2, "keep_last": 2}
        settings = TrainingConfig(**{**defaults, **self.settings})
        training = Training(
            self.step,
            self.data,
            self.optimizer,
            self.schedule,
            settings,
            self.run,
            validate=self.validate,
            callbacks=self.callbacks,
            direction=self.direction,
        )
        return training.fit(resume=resume)

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return {name: t.clone() for name, t in self.step.model.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Return whether two state dicts are bitwise equal."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def in_process(target: Any, *args: Any, environment: dict[str, str] | None = None) -> Any:
    """Start ``target(*args)`` in a new process, forked from one that has only imported torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["toy_training"])
    process = context.Process(target=_with_environment, args=(environment or {}, target, *args))
    process.start()
    return process


def _with_environment(environment: dict[str, str], target: Any, *args: Any) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    target(*args)


def run_toy(run: Path, settings: dict[str, Any], resume: bool, pause: float = 0.0) -> None:
    """Train in ``run`` and write metrics; runs in processes that tests kill and resume."""
    import time

    wait = [lambda event: time.sleep(pause)] if pause else []
    Toy(run, settings, callbacks=[JsonLines(run / "metrics.jsonl"), *wait]).train(resume)
