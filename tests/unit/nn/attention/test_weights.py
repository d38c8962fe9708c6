"""Weights and weighted sums, against plain loops and in their limits."""

import math

import pytest
import torch

from heedful.nn.attention.weights import attention_weights, weighted_sum
from heedful.nn.layout import Layout
from heedful.nn.visibility import Visibility

B, H, D_V = 2, 3, 7
QUERIES, KEYS = Layout.of([5, 2]), Layout.of([11, 4])


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_rows_are_positive_and_sum_to_one():
    weights = attention_weights(drawn(B, H, 5, 11), Visibility.of(QUERIES, KEYS))
    for row, (n, m) in enumerate(zip(QUERIES.lengths, KEYS.lengths, strict=True)):
        own = weights[row, :, :n]
        assert (own[..., :m] > 0).all()
        assert not own[..., m:].any()
        torch.testing.assert_close(own.sum(-1), torch.ones(H, n))


def test_the_sum_runs_over_the_allowed_keys_alone():
    """Lecture S4: exp(e_ij) over the sum of exp(e_ir) for r in S_i, and z_i of the values of S_i."""
    allowed = torch.rand(5, 11, generator=torch.Generator().manual_seed(1)) < 0.4
    allowed[:, 2] = True  # every query sees one key at least, in both rows
    assert not allowed.all()
    scores, values = drawn(B, H, 5, 11), drawn(B, H, 11, D_V, seed=2)
    weights = attention_weights(scores, Visibility.of(QUERIES, KEYS, allowed=allowed))
    mixed = weighted_sum(weights, values)
    for b, (n, m) in enumerate(zip(QUERIES.lengths, KEYS.lengths, strict=True)):
        for h in range(H):
            for i in range(n):
                seen = [j for j in range(m) if allowed[i, j]]
                total = sum(math.exp(scores[b, h, i, r]) for r in seen)
                wanted = {j: math.exp(scores[b, h, i, j]) / total for j in seen}
                assert weights[b, h, i].tolist() == pytest.approx(
                    [wanted.get(j, 0.0) for j in range(11)], rel=1e-5
                )
                z = sum(a * values[b, h, j] for j, a in wanted.items())
                torch.testing.assert_close(mixed[b, h, i], z)


def test_ever_larger_scores_are_a_lookup_of_the_best_key():
    """A table of keys and values (lecture S3) is the limit at temperature 0; at infinity all are equal."""
    generator = torch.Generator().manual_seed(3)
    ranks = (
        torch.stack([torch.randperm(11, generator=generator) for _ in range(H * 5)]).view(1, H, 5, 11).float()
    )
    values, view = drawn(1, H, 11, D_V), Visibility.of(Layout.of([5]), Layout.of([11]))
    best = ranks.argmax(-1)
    sharpness = []
    for temperature in (10.0, 1.0, 0.1):
        weights = attention_weights(ranks / temperature, view)
        assert torch.equal(weights.argmax(-1), best)
        sharpness.append(weights.amax(-1).min().item())
    assert sharpness == sorted(sharpness)
    # Neighbouring ranks are now a thousand apart, and e^-1000 is zero in fp32.
    found = weighted_sum(attention_weights(ranks / 1e-3, view), values)
    looked_up = values.gather(2, best[..., None].expand(-1, -1, -1, D_V))
    assert torch.equal(found, looked_up)
    even = weighted_sum(attention_weights(0.0 * ranks, view), values)
    torch.testing.assert_close(even, values.mean(2, keepdim=True).expand(-1, -1, 5, -1))


def test_equal_keys_share_their_weight():
    """Where a table must choose between two entries for one key, attention gives the mean of both."""
    scores = torch.tensor([3.0, 1.0, 3.0, 2.0]).view(1, 1, 1, 4) * 1e3
    weights = attention_weights(scores, Visibility.of(Layout.of([1]), Layout.of([4])))
    assert weights.flatten().tolist() == [0.5, 0.0, 0.5, 0.0]
    values = drawn(1, 1, 4, D_V)
    torch.testing.assert_close(
        weighted_sum(weights, values)[0, 0, 0], (values[0, 0, 0] + values[0, 0, 2]) / 2
    )
