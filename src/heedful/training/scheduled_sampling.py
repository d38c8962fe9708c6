"""Scheduled sampling: in training, a decoder reads some of its own predictions in place of the reference.

Teacher forcing trains on correct prefixes, but in use a model reads its own output (exposure bias). Here the
input token that follows position t is, independently for each token of update i,

    y_t                  with probability epsilon_i
    argmax_v p_t(v)      with probability 1 - epsilon_i

Targets and loss are those of teacher forcing; only inputs change, and only in training.

The predictions p_t come from a first, teacher-forced pass without gradient and in evaluation mode; the
second pass, which is trained, reads the mixed tokens at all positions at once (Mihaylova and Martins 2019;
Duckworth et al. 2019, with one sampling pass). Bengio et al. 2015 generate token by token, so that each
prediction is made from a mixed prefix; here it is made from the correct one, also in recurrent decoders. No
gradient passes through predictions.

The two-pass form costs one forward pass without gradient, if at least one token of the batch is replaced.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Int
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn

from heedful.config import Config
from heedful.data.batch import Batch
from heedful.data.plan import INPUTS, Draw
from heedful.nn.layout import Tokens
from heedful.nn.modes import evaluating

# Decays (Bengio et al. 2015, section 2.4) -------------------------------------------------------------------


class LinearDecay(Config):
    """At update i, an input is the reference's token with probability ``max(floor, offset - slope i)``.

    Args:
        offset: k in the paper; above 1, the decay starts later.
        slope: c in the paper, by how much the probability falls at each update; 0: constant.
        floor: the lowest probability.
    """

    kind: Literal["linear"] = "linear"
    offset: NonNegativeFloat = 1.0
    slope: NonNegativeFloat
    floor: float = Field(default=0.0, ge=0, le=1)

    def probability(self, update: int) -> float:
        """Return the probability of the reference's token at an update, counted from 1."""
        return min(1.0, max(self.floor, self.offset - self.slope * update))


class ExponentialDecay(Config):
    """At update i, an input is the reference's token with probability ``base^i``.

    Args:
        base: k in the paper, slightly below 1: the probability is halved every ``-ln 2 / ln base`` updates.
    """

    kind: Literal["exponential"] = "exponential"
    base: float = Field(gt=0, lt=1)

    def probability(self, update: int) -> float:
        """Return the probability of the reference's token at an update, counted from 1."""
        return self.base**update


class InverseSigmoidDecay(Config):
    """At update i, an input is the reference's token with probability ``k / (k + exp(i / k))``.

    Args:
        k: of the formula; the probability is 1/2 at update ``k ln k``, and falls from 88 to 12 % in the
            ``4 k`` updates around it.
    """

    kind: Literal["inverse-sigmoid"] = "inverse-sigmoid"
    k: float = Field(ge=1)

    def probability(self, update: int) -> float:
        """Return the probability of the reference's token at an update, counted from 1."""
        falling = self.k * math.exp(-update / self.k)  # cannot overflow, unlike exp(i / k)
        return falling / (falling + 1.0)


DecayConfig = Annotated[LinearDecay | ExponentialDecay | InverseSigmoidDecay, Field(discriminator="kind")]


# Mixed inputs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScheduledSampling:
    """Replace inputs of training batches by predictions.

    Which tokens are replaced depends only on (seed, update, sample), so that a resumed run, accumulated
    micro-batches and several processes replace the same ones.

    Args:
        decay: the probability of the reference's token, by update.
        seed: of the training.
        unread: tokens that a model in use never reads back (special tokens); the best other one is read.
        chunk: number of tokens whose logits exist at one time.
    """

    decay: LinearDecay | ExponentialDecay | InverseSigmoidDecay
    seed: int
    unread: Sequence[int] = ()
    chunk: int = 1024

    def mixed(self, model: nn.Module, batch: Batch, update: int) -> Batch:
        """Return the batch with mixed inputs; the same batch if no token is replaced.

        Args:
            model: has a head ``token``.
            batch: each sequence ends with the input that predicts its last target.
            update: number of the update, from 1.
        """
        rows = self.replaced(batch, update)
        if not len(rows):
            return batch
        assert isinstance(batch.inputs, Tokens)
        ids = batch.inputs.ids.clone()
        ids[rows + 1] = self._predictions(model, batch, rows)
        return replace(batch, inputs=replace(batch.inputs, ids=ids))

    def replaced(self, batch: Batch, update: int) -> Int[Tensor, " n"]:
        """Return the positions in ``[T]`` whose prediction becomes the next input of the same sequence.

        The last target of a sequence is never read.
        """
        epsilon = self.decay.probability(update)
        counts = batch.n_answers
        drawn = [
            np.append(Draw(self.seed, update, sample, stream=INPUTS).floats(n - 1) >= epsilon, [False])
            for sample, n in zip(batch.samples or range(len(counts)), counts, strict=True)
            if n
        ]
        chosen = np.flatnonzero(np.concatenate([np.zeros(0, bool), *drawn]))
        chosen_rows = torch.from_numpy(chosen).to(batch.targets.device)
        return chosen_rows if batch.rows is None else batch.rows[chosen_rows]

    @torch.no_grad()
    def _predictions(self, model: nn.Module, batch: Batch, rows: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """Return the most probable token that follows each position, given the correct ones before it."""
        device, heads = batch.targets.device, model.heads
        assert isinstance(heads, nn.ModuleDict)
        unread = torch.tensor(self.unread, dtype=torch.int64, device=device)
        autocast = torch.is_autocast_enabled(device.type)
        # Some versions of torch use weights that autocast converted without gradient again with gradient.
        with evaluating(model), torch.autocast(device.type, enabled=autocast, cache_enabled=False):
            hidden = model(batch.inputs, batch.source)
            logits = map(heads["token"], hidden[rows].split(self.chunk))
            best = [part.index_fill(1, unread, float("-inf")).argmax(-1) for part in logits]
        return torch.cat(best)
