"""Laws 4 and 6: accumulated micro-batches equal one batch, and every parameter learns."""

from functools import partial

import pytest
import torch
from cases import (
    batch_for,
    configuration,
    every_model,
    keeping,
    model_of,
    same,
    source_of,
    vocabularies,
)
from torch import nn

from heedful.nn.declarations import without_gradient
from heedful.nn.feedforward import FeedForward, GatedFeedForward
from heedful.nn.layout import Tokens
from heedful.nn.readouts import MaxoutReadout
from heedful.objectives.cross_entropy import NextToken
from heedful.training.model_with_loss import ModelWithLoss

PAIRS = [([3, 4, 5], [6, 7]), ([8, 9], [10, 11, 12, 13]), ([14], []), ([15, 16, 17, 18], [19, 20, 21])]


def batch_of(model, pairs):
    sources, targets = zip(*pairs, strict=True)
    return batch_for(model, sources, targets)


def gradients(model, parts):
    """Of one update whose micro-batches are ``parts``."""
    step, batches = ModelWithLoss(model, NextToken(smoothing=0.1)), [batch_of(model, part) for part in parts]
    each = [step.counts(batch) for batch in batches]
    counts = {name: sum(count[name] for count in each) for name in each[0]}
    model.zero_grad()
    losses = []
    for batch in batches:
        loss, _ = step(batch, counts)
        loss.backward()
        losses.append(loss.detach())
    return sum(losses), [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("name", keeping("couples_batch", "draws_noise", "balances_batch"))
def test_accumulated_micro_batches_equal_one_large_step(name):
    model = model_of(name).train()
    whole = gradients(model, [PAIRS])
    parts = gradients(model, [PAIRS[:1], PAIRS[1:3], PAIRS[3:]])
    one_by_one = gradients(model, [[pair] for pair in PAIRS[::-1]])
    same(parts, whole)
    same(one_by_one, whole)


def many(size, longest, seed):
    """Sequences of every length up to the longest, in which every id occurs."""
    ids = torch.randint(size, (23, longest), generator=torch.Generator().manual_seed(seed)).tolist()
    flat = iter(range(size))
    return [[next(flat, i) for i in row[row_number % longest :]] for row_number, row in enumerate(ids)]


def with_smooth_rectifiers(model):
    """Whether some token opens a rectifier depends on the data; a GELU is never quite shut.

    So does which of a pair is the maximum; the logarithm of a sum of exponentials reads both.
    """
    for part in model.modules():
        if isinstance(part, FeedForward | GatedFeedForward):
            part.activation = nn.GELU()
        if isinstance(part, MaxoutReadout):
            part.forward = partial(smooth_maxout, part)
    return model


def smooth_maxout(readout, s, y, c):
    summed = readout.state(s) + readout.token(y) + readout.context(c)
    return summed.unflatten(-1, (-1, 2)).logsumexp(dim=-1)


@every_model
def test_every_parameter_gets_a_gradient_unless_declared(name):
    """In double precision, where zero and small are far apart: both ways, row by row."""
    model = with_smooth_rectifiers(model_of(name)).double().train()
    config = configuration(name)
    longest = getattr(config, "max_length", getattr(config, "context", 7))
    sequences = [many(size, longest, seed) for seed, size in enumerate(vocabularies(config))]
    hidden = model(Tokens.of(sequences[-1]), source_of(model, sequences[0]))
    log_probs = model.heads["token"](hidden).log_softmax(-1)
    wanted = torch.randint(
        log_probs.shape[1], (len(log_probs), 1), generator=torch.Generator().manual_seed(1)
    )
    (-log_probs.gather(1, wanted).mean()).backward()
    zeros = {}
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        rows = parameter.grad.reshape(len(parameter) if parameter.dim() else 1, -1).abs().amax(1)
        found = set((rows < 1e-12).nonzero().flatten().tolist())
        if found:
            zeros[parameter_name] = found
    assert zeros == without_gradient(model)
