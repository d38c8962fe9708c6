"""One update of the weights: forward and backward passes of the micro-batches, clipping, an optimizer step.

The samples of an update are split into numbered micro-batches, as many as there are ranks times micro-batches
per rank, and torch's generator is seeded with (seed, update, micro-batch) before each. A resumed run
therefore needs no saved generator state, and two ranks compute the same as one rank with twice the
micro-batches, including dropout.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from heedful.data.batch import Batch
from heedful.data.plan import Cursor, Lengths, Samples, plan, split, updates
from heedful.errors import WorkError
from heedful.files import write_text
from heedful.nn.layout import Tokens
from heedful.training import distribution
from heedful.training.model_with_loss import ModelWithLoss, own_parts
from heedful.training.optimizers import clip, gradient_norm, set_lr
from heedful.training.settings import TrainingConfig
from heedful.typing import JsonMapping


@dataclass(frozen=True)
class PlannedData:
    """Samples of known lengths, grouped into updates by `heedful.data.plan`.

    Args:
        lengths: ``[N]`` or ``[N, columns]``, number of tokens of each sample on each side.
        make: builds a batch from sample indices and an epoch.
        tokens_per_update: the token budget of an update.
        seed: seed of the sample order.
        sampling: returns the samples of an epoch; None: each sample once.
    """

    lengths: Lengths
    make: Callable[[Sequence[int], int], Batch]
    tokens_per_update: int
    seed: int
    sampling: Callable[[int], Samples] | None = None

    def epoch(self, number: int) -> list[Samples]:
        """Return all updates of an epoch."""
        samples = None if self.sampling is None else self.sampling(number)
        budget, seed = self.tokens_per_update, self.seed
        return plan(self.lengths, tokens_per_update=budget, seed=seed, epoch=number, remaining=samples)

    def updates(self, cursor: JsonMapping | None) -> Iterator[tuple[Sequence[int], JsonMapping]]:
        """Yield the samples of each update from ``cursor`` on (None: the beginning), and the cursor after it.

        A cursor is a JSON object with an ``epoch``; after the last update of an epoch it is the start of the
        next one. No update has samples of two epochs. Resuming from a cursor yields the same updates as an
        uninterrupted iteration.

        Raises:
            DataError: the cursor is not one of these data.
        """
        start = Cursor() if cursor is None else Cursor.from_dict(cursor)
        planned = updates(self.lengths, start, self.tokens_per_update, self.seed, self.sampling)
        return ((samples.tolist(), next_cursor.to_dict()) for samples, next_cursor in planned)

    def split(self, samples: Sequence[int], n_parts: int) -> Sequence[Sequence[int]]:
        """Split the samples of an update into micro-batches; some are empty if there are too few samples."""
        # numpy also accepts a list of sample indices.
        return [part.tolist() for part in split(samples, self.lengths, n_parts)]  # type: ignore[arg-type]

    def collate(self, samples: Sequence[int], epoch: int) -> Batch:
        """Build a batch on the CPU; its randomness depends only on seed, epoch and sample."""
        return self.make(samples, epoch)


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


@dataclass(frozen=True)
class MicroBatch:
    """The samples of one forward pass.

    Args:
        number: number of the micro-batch in the update, over all ranks.
        batch: the samples.
        share: 1; or 0 for a placeholder on a rank without samples, so that the other ranks do not block.
    """

    number: int
    batch: Batch
    share: int = 1


def update_weights(
    forward: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: PlannedData,
    settings: TrainingConfig,
    samples: Sequence[int],
    *,
    epoch: int,
    update: int,
    lr: float,
    run: Path,
    frozen: Mapping[nn.Parameter, int] | None = None,
) -> UpdateStats:
    """Update the weights once on ``samples`` and return the statistics.

    Args:
        forward: the `ModelWithLoss`, or its wrapper for distributed training.
        optimizer: over the parameters of the model.
        data: splits and collates samples.
        settings: ``accumulate``, ``seed`` and ``clip_norm`` are used here.
        samples: the samples of the update, over all ranks.
        epoch: number of completed passes over the data.
        update: number of the update, from 1.
        lr: the learning rate.
        run: the run folder.
        frozen: for each frozen parameter, the number of first updates in which it does not change.

    Raises:
        WorkError: the loss or the gradients are not finite. The weights are unchanged, and the samples are
            saved to ``bad_batch.json`` in the run folder.
    """
    module = forward.module if isinstance(forward, DistributedDataParallel) else forward
    micro_batches = _micro_batches(data, samples, epoch, settings.accumulate)
    assert isinstance(module, ModelWithLoss)
    counts = _counts(module, micro_batches)
    sums, weights = _accumulate_gradients(forward, micro_batches, counts, settings.seed, update)
    for parameter, n_updates in (frozen or {}).items():
        if update <= n_updates:
            parameter.grad = None  # optimizers skip parameters without a gradient
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = gradient_norm(parameters)
    stats = _stats(sums, norm, weights, counts)
    if is_finite := math.isfinite(stats.loss) and math.isfinite(stats.norm):
        if settings.clip_norm is not None:
            clip(parameters, settings.clip_norm, norm)
        set_lr(optimizer, lr)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if not is_finite:
        own = own_parts(forward) if update == 1 else []
        raise _non_finite_error(stats, update, samples, data.collate(samples, epoch), run, own)
    return stats


def _micro_batches(
    data: PlannedData, samples: Sequence[int], epoch: int, accumulate: int
) -> list[MicroBatch]:
    """Return this rank's non-empty micro-batches, or a placeholder if there are none."""
    world, rank = distribution.world(), distribution.rank()
    parts = list(enumerate(data.split(samples, world * accumulate)))[rank::world]
    micro_batches = [MicroBatch(n, data.collate(part, epoch)) for n, part in parts if len(part)]
    return micro_batches or [MicroBatch(parts[0][0], data.collate(samples[:1], epoch), share=0)]


def _counts(module: ModelWithLoss, micro_batches: Sequence[MicroBatch]) -> dict[str, int]:
    """Return the counts of the loss terms over the whole update."""
    counts: Counter[str] = Counter()
    for micro in micro_batches:
        for name, count in module.counts(micro.batch).items():
            counts[name] += count * micro.share
    return distribution.sum_counts(counts)


def _accumulate_gradients(
    forward: nn.Module, micro_batches: Sequence[MicroBatch], counts: dict[str, int], seed: int, update: int
) -> tuple[Tensor, dict[str, float]]:
    """Run forward and backward on every micro-batch; gradients are summed over micro-batches and ranks.

    Returns:
        The sums of the terms in the order of their names, followed by the number of tokens, over all
        ranks, in fp64; and the weight of each term.
    """
    device = next(forward.parameters()).device
    sums = {name: torch.zeros((), dtype=torch.float64, device=device) for name in sorted(counts)}
    weights: dict[str, float] = {}
    for micro in micro_batches:
        torch.manual_seed(seed_of(seed, update, micro.number))
        is_last = micro is micro_batches[-1]
        with nullcontext() if is_last else distribution.without_sync(forward):
            loss, terms = forward(micro.batch.to(device), counts, update)
            # DistributedDataParallel averages gradients over ranks; this makes it a sum.
            (loss * (micro.share * distribution.world())).backward()
        for term in terms:
            sums[term.name] += term.sum.double() * micro.share
            weights[term.name] = term.weight
    tokens = sum(micro.batch.n_tokens * micro.share for micro in micro_batches)
    row = torch.stack([*sums.values(), torch.tensor(float(tokens), dtype=torch.float64).to(device)])
    return distribution.sum_over_ranks(row), weights


def seed_of(*numbers: int) -> int:
    """Return a 63-bit seed that depends on all of the numbers and their order."""
    text = ",".join(str(number) for number in numbers).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def _stats(sums: Tensor, norm: Tensor, weights: dict[str, float], counts: dict[str, int]) -> UpdateStats:
    # Transfer all values from the device at once.
    *parts, tokens, norm_value = torch.cat([sums, norm.double().to(sums.device)[None]]).tolist()
    terms = {name: part / max(counts[name], 1) for name, part in zip(sorted(counts), parts, strict=True)}
    loss = sum(weights.get(name, 0.0) * mean for name, mean in terms.items() if weights.get(name))
    return UpdateStats(float(loss), terms, norm_value, int(tokens))


def _non_finite_error(
    stats: UpdateStats, update: int, samples: Sequence[int], batch: Batch, run: Path, own: Sequence[str]
) -> WorkError:
    """Save the batch of an update with a non-finite loss or gradient, and return the error to raise.

    The message names the classes ``own``, which may have computed it.
    """
    path = run / "bad_batch.json"
    sides = {"inputs": batch.inputs, "source": batch.source}
    record = {
        "version": 1,
        "update": update,
        "loss": str(stats.loss),
        "terms": {name: str(value) for name, value in stats.terms.items()},
        "norm": str(stats.norm),
        "samples": [int(sample) for sample in samples],
        "ids": {
            "targets": batch.targets.tolist(),
            **{side: tokens.split() for side, tokens in sides.items() if isinstance(tokens, Tokens)},
        },
    }
    if distribution.is_first():
        write_text(path, json.dumps(record, indent=1) + "\n")
    problem = f"loss is {stats.loss}" if not math.isfinite(stats.loss) else f"gradient norm is {stats.norm}"
    cause = f" (the model has a part of your own: {', '.join(own)}; check its values first)" if own else ""
    return WorkError(
        f"update {update}: the {problem}{cause}; the update was not made, and its {len(samples)} samples "
        f"were saved to {path}. Inspect them, or set training.clip_norm or training.precision=fp32, or start "
        "a new run (--resume, or heedful.resume, keeps the schedule) with a lower learning rate or more "
        "warm-up"
    )
