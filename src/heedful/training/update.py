"""One update: micro-batches in, one change of the weights out.

The samples of an update are split into (ranks times micro-batches) numbered parts, and the model's
generator is seeded by (seed, update, part) before each. So a resumed run needs no stored generator,
and two ranks do what one rank does with twice the micro-batches, dropout included.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.errors import WorkError
from heedful.files import write_text
from heedful.nn.layout import Tokens
from heedful.training import distribution
from heedful.training.feed import TrainingData
from heedful.training.optimizers import clip, gradient_norm, set_rate
from heedful.training.step import Step


@dataclass(frozen=True)
class MicroBatch:
    """A part of an update that is run at once.

    Args:
        number: of the part, among those of all ranks.
        batch: the part's samples.
        share: 1; or 0 for a stand-in that only takes part so that other ranks need not wait for ever.
    """

    number: int
    batch: Batch
    share: int = 1


@dataclass(frozen=True)
class UpdateStats:
    """What an update came to, over all ranks.

    Args:
        loss: the weighted sum of the terms' means.
        terms: the mean of each term.
        norm: the norm of the gradients before clipping.
        tokens: how many the model read.
    """

    loss: float
    terms: dict[str, float]
    norm: float
    tokens: int

    @property
    def finite(self) -> bool:
        """Whether both the loss and the norm are numbers."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


@dataclass(frozen=True)
class Updater:
    """Makes updates.

    Args:
        step: the model and its objective.
        forward: ``step``, or what is wrapped around it.
        optimizer: over the parameters of the step's model.
        data: splits and collates samples.
        accumulate: micro-batches of a rank.
        seed: of the model's randomness.
        clip_norm: the largest norm of the gradients, or None.
        device: where the model is.
        frozen: parameters that do not change in the first updates, and how many these are.
    """

    step: Step
    forward: nn.Module
    optimizer: torch.optim.Optimizer
    data: TrainingData
    accumulate: int
    seed: int
    clip_norm: float | None
    device: torch.device
    frozen: Mapping[nn.Parameter, int] = field(default_factory=dict)

    def __call__(
        self, samples: Sequence[int], *, epoch: int, update: int, rate: float, run: Path
    ) -> UpdateStats:
        """Change the weights by one update on ``samples``.

        Raises:
            WorkError: the loss or the gradients are not finite. The weights are as before, and
                ``bad_batch.json`` in the folder ``run`` holds the samples.
        """
        micros = self._micro_batches(samples, epoch)
        counts = distribution.sum_counts(_counts(self.step, micros))
        sums, weights = self._backward(micros, counts, update)
        for parameter, updates in self.frozen.items():
            if update <= updates:
                parameter.grad = None  # optimizers pass it over
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = gradient_norm(parameters)
        figures = _figures(sums, norm, weights, counts)
        if figures.finite:
            if self.clip_norm is not None:
                clip(parameters, self.clip_norm, norm)
            set_rate(self.optimizer, rate)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if not figures.finite:
            raise _refusal(figures, update, samples, self.data.collate(samples, epoch), run)
        return figures

    def _micro_batches(self, samples: Sequence[int], epoch: int) -> list[MicroBatch]:
        """This rank's parts, without the empty ones; a stand-in where nothing is left."""
        world, rank = distribution.world(), distribution.rank()
        parts = list(enumerate(self.data.split(samples, world * self.accumulate)))[rank::world]
        micros = [MicroBatch(n, self.data.collate(part, epoch)) for n, part in parts if len(part)]
        return micros or [MicroBatch(parts[0][0], self.data.collate(samples[:1], epoch), share=0)]

    def _backward(
        self, micros: Sequence[MicroBatch], counts: dict[str, int], update: int
    ) -> tuple[Tensor, dict[str, float]]:
        """Run every micro-batch; gradients are summed over micro-batches and ranks.

        Returns:
            The summed terms in the order of their names, then the tokens, all over all ranks, in
            fp64; and the weight of each term.
        """
        sums = {name: torch.zeros((), dtype=torch.float64, device=self.device) for name in sorted(counts)}
        weights: dict[str, float] = {}
        for micro in micros:
            torch.manual_seed(seed_of(self.seed, update, micro.number))
            last = micro is micros[-1]
            with nullcontext() if last else distribution.without_sync(self.forward):
                loss, terms = self.forward(micro.batch.to(self.device), counts)
                # The wrapper averages over ranks, and a sum is wanted.
                (loss * (micro.share * distribution.world())).backward()
            for term in terms:
                sums[term.name] += term.sum.double() * micro.share
                weights[term.name] = term.weight
        tokens = sum(micro.batch.n_tokens * micro.share for micro in micros)
        row = torch.stack([*sums.values(), torch.tensor(float(tokens), dtype=torch.float64).to(self.device)])
        return distribution.sum_over_ranks(row), weights


def seed_of(*numbers: int) -> int:
    """A seed of 63 bits that depends on every one of the numbers and on their order."""
    text = ",".join(str(number) for number in numbers).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def _counts(step: Step, micros: Sequence[MicroBatch]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for micro in micros:
        for name, count in step.counts(micro.batch).items():
            counts[name] += count * micro.share
    return dict(counts)


def _figures(sums: Tensor, norm: Tensor, weights: dict[str, float], counts: dict[str, int]) -> UpdateStats:
    # One transfer from the device for everything that is looked at.
    *parts, tokens, norm_value = torch.cat([sums, norm.double().to(sums.device)[None]]).tolist()
    terms = {name: part / max(counts[name], 1) for name, part in zip(sorted(counts), parts, strict=True)}
    loss = sum(weights.get(name, 0.0) * mean for name, mean in terms.items() if weights.get(name))
    return UpdateStats(float(loss), terms, norm_value, int(tokens))


def _refusal(figures: UpdateStats, update: int, samples: Sequence[int], batch: Batch, run: Path) -> WorkError:
    """Save the batch of an update that cannot be made; the error that says so."""
    path = run / "bad_batch.json"
    record = {
        "version": 1,
        "update": update,
        "loss": str(figures.loss),
        "terms": {name: str(value) for name, value in figures.terms.items()},
        "norm": str(figures.norm),
        "samples": [int(sample) for sample in samples],
        "ids": _ids(batch),
    }
    if distribution.is_first():
        write_text(path, json.dumps(record, indent=1) + "\n")
    what = (
        f"loss is {figures.loss}" if not math.isfinite(figures.loss) else f"gradient norm is {figures.norm}"
    )
    return WorkError(
        f"update {update}: the {what}; the update was not made, and its {len(samples)} samples are in "
        f"{path}. Look at them, or try training.clip_norm or training.precision=fp32, or in a new run "
        "(--resume keeps the schedule) a lower learning rate or more warm-up"
    )


def _ids(batch: Batch) -> dict[str, Any]:
    """The ids of every sequence of a batch, by side."""
    ids: dict[str, Any] = {"targets": batch.targets.tolist()}
    for side in ("inputs", "source"):
        tokens = getattr(batch, side)
        if isinstance(tokens, Tokens):
            ids[side] = tokens.split()
    return ids
