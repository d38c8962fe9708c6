"""One optimizer update over several micro-batches and ranks.

The samples of an update are split into (ranks times micro-batches) numbered parts, and torch's generator
is seeded with (seed, update, part) before each. A resumed run therefore needs no saved generator state, and
two ranks compute the same as one rank with twice the micro-batches, including dropout.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

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
from heedful.typing import JsonObject


@dataclass(frozen=True)
class MicroBatch:
    """The part of an update that one forward pass processes.

    Args:
        number: number of the part, over all ranks.
        batch: the samples of the part.
        share: 1; or 0 for a placeholder on a rank without samples, so that the other ranks do not block.
    """

    number: int
    batch: Batch
    share: int = 1


@dataclass(frozen=True)
class UpdateStats:
    """Statistics of an update, over all ranks.

    Args:
        loss: the weighted sum of the means of the terms.
        terms: the mean of each loss term.
        norm: the gradient norm before clipping.
        tokens: number of tokens the model processed.
    """

    loss: float
    terms: dict[str, float]
    norm: float
    tokens: int

    @property
    def finite(self) -> bool:
        """Return whether the loss and the gradient norm are both finite."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


@dataclass(frozen=True)
class Updater:
    """Callable that makes one update of the weights.

    Args:
        step: the model and its objective.
        forward: ``step``, or its wrapper for distributed training.
        optimizer: over the parameters of the step's model.
        data: splits and collates samples.
        accumulate: number of micro-batches per rank.
        seed: seed of the model's randomness.
        clip_norm: the largest gradient norm, or None for no clipping.
        device: the model's device.
        frozen: for each frozen parameter, the number of first updates in which it does not change.
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
        """Update the weights once on ``samples`` and return the statistics.

        Raises:
            WorkError: the loss or the gradients are not finite. The weights are unchanged, and the samples
                are saved to ``bad_batch.json`` in the folder ``run``.
        """
        micros = self._micro_batches(samples, epoch)
        counts = distribution.sum_counts(_counts(self.step, micros))
        sums, weights = self._backward(micros, counts, update)
        for parameter, updates in self.frozen.items():
            if update <= updates:
                parameter.grad = None  # optimizers skip parameters without a gradient
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = gradient_norm(parameters)
        stats = _stats(sums, norm, weights, counts)
        if stats.finite:
            if self.clip_norm is not None:
                clip(parameters, self.clip_norm, norm)
            set_rate(self.optimizer, rate)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if not stats.finite:
            raise _non_finite_error(stats, update, samples, self.data.collate(samples, epoch), run)
        return stats

    def _micro_batches(self, samples: Sequence[int], epoch: int) -> list[MicroBatch]:
        """Return this rank's non-empty parts, or a placeholder if there are none."""
        world, rank = distribution.world(), distribution.rank()
        parts = list(enumerate(self.data.split(samples, world * self.accumulate)))[rank::world]
        micros = [MicroBatch(n, self.data.collate(part, epoch)) for n, part in parts if len(part)]
        return micros or [MicroBatch(parts[0][0], self.data.collate(samples[:1], epoch), share=0)]

    def _backward(
        self, micros: Sequence[MicroBatch], counts: dict[str, int], update: int
    ) -> tuple[Tensor, dict[str, float]]:
        """Run forward and backward on every micro-batch; gradients are summed over micro-batches and ranks.

        Returns:
            The sums of the terms in the order of their names, followed by the number of tokens, over all
            ranks, in fp64; and the weight of each term.
        """
        sums = {name: torch.zeros((), dtype=torch.float64, device=self.device) for name in sorted(counts)}
        weights: dict[str, float] = {}
        for micro in micros:
            torch.manual_seed(seed_of(self.seed, update, micro.number))
            last = micro is micros[-1]
            with nullcontext() if last else distribution.without_sync(self.forward):
                loss, terms = self.forward(micro.batch.to(self.device), counts)
                # DistributedDataParallel averages gradients over ranks; this makes it a sum.
                (loss * (micro.share * distribution.world())).backward()
            for term in terms:
                sums[term.name] += term.sum.double() * micro.share
                weights[term.name] = term.weight
        tokens = sum(micro.batch.n_tokens * micro.share for micro in micros)
        row = torch.stack([*sums.values(), torch.tensor(float(tokens), dtype=torch.float64).to(self.device)])
        return distribution.sum_over_ranks(row), weights


def seed_of(*numbers: int) -> int:
    """Return a 63-bit seed that depends on all of the numbers and their order."""
    text = ",".join(str(number) for number in numbers).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def _counts(step: Step, micros: Sequence[MicroBatch]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for micro in micros:
        for name, count in step.counts(micro.batch).items():
            counts[name] += count * micro.share
    return dict(counts)


def _stats(sums: Tensor, norm: Tensor, weights: dict[str, float], counts: dict[str, int]) -> UpdateStats:
    # Transfer all values from the device at once.
    *parts, tokens, norm_value = torch.cat([sums, norm.double().to(sums.device)[None]]).tolist()
    terms = {name: part / max(counts[name], 1) for name, part in zip(sorted(counts), parts, strict=True)}
    loss = sum(weights.get(name, 0.0) * mean for name, mean in terms.items() if weights.get(name))
    return UpdateStats(float(loss), terms, norm_value, int(tokens))


def _non_finite_error(
    stats: UpdateStats, update: int, samples: Sequence[int], batch: Batch, run: Path
) -> WorkError:
    """Save the batch of an update with a non-finite loss or gradient, and return the error to raise."""
    path = run / "bad_batch.json"
    record = {
        "version": 1,
        "update": update,
        "loss": str(stats.loss),
        "terms": {name: str(value) for name, value in stats.terms.items()},
        "norm": str(stats.norm),
        "samples": [int(sample) for sample in samples],
        "ids": _ids(batch),
    }
    if distribution.is_first():
        write_text(path, json.dumps(record, indent=1) + "\n")
    problem = f"loss is {stats.loss}" if not math.isfinite(stats.loss) else f"gradient norm is {stats.norm}"
    return WorkError(
        f"update {update}: the {problem}; the update was not made, and its {len(samples)} samples were saved "
        f"to {path}. Inspect them, or set training.clip_norm or training.precision=fp32, or start a new run "
        "(--resume keeps the schedule) with a lower learning rate or more warm-up"
    )


def _ids(batch: Batch) -> JsonObject:
    """Return the token ids of every sequence of a batch, by side."""
    ids: JsonObject = {"targets": batch.targets.tolist()}
    for side in ("inputs", "source"):
        tokens = getattr(batch, side)
        if isinstance(tokens, Tokens):
            ids[side] = tokens.split()
    return ids
