"""Links that emerge: sequences and scores by plain loops, verdicts by made-up shares."""

import math

import numpy as np
import pytest
import torch
from sweep import Laws, curve, made, value

from heedful.lab import links


class TestExperiments(Laws):
    family = "links"


@pytest.mark.parametrize("back", [1, 5])
def test_a_symbol_depends_on_the_one_so_many_places_before_the_last(back):
    table = links.followers().tolist()
    assert all(len({*row}) == links.FOLLOWERS for row in table)
    rows = links.drawn(3000, back, torch.Generator().manual_seed(3)).tolist()
    assert all(row[t] in table[row[t - 1 - back]] for row in rows for t in range(back + 1, len(row)))
    # Both followers come, and the first symbols are any.
    assert {(row[0], row[back + 1]) for row in rows} == {(a, b) for a, own in enumerate(table) for b in own}
    assert {tuple(row[:2]) for row in rows} == {(a, b) for a in range(8) for b in range(8)}


@pytest.mark.parametrize("back", [1, 5])
def test_the_last_symbol_tells_nothing_of_the_next(back):
    # Any symbol may follow any other one: chains that depend on other places are independent.
    rows = links.drawn(20000, back, torch.Generator().manual_seed(4))
    last, following = rows[:, back], rows[:, back + 1]
    counts = torch.zeros(8, 8).index_put_((last, following), torch.ones(len(rows)), accumulate=True)
    alone = counts.sum(0) / len(rows)
    torch.testing.assert_close(counts / counts.sum(1, keepdim=True), alone.expand(8, 8), atol=0.04, rtol=0)


@pytest.mark.parametrize("back, blind", [(1, 1), (5, 5)])
def test_the_least_loss_counts_symbols_that_nothing_tells(back, blind):
    # Of 12 that are foretold, the first `back` have no symbol they depend on.
    expected = (blind * math.log(8) + (12 - blind) * math.log(2)) / 12
    assert links.least_loss(back) == pytest.approx(expected)


def made_up_weights(n, t):
    """Causal weights at random, ``[L, n, H, T, T]``."""
    scores = torch.randn(links.N_LAYERS, n, links.N_HEADS, t, t, generator=torch.Generator().manual_seed(5))
    hidden = torch.ones(t, t).triu(1).bool()
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)


def test_scores_are_kappas_by_a_plain_loop():
    seen, rows = made_up_weights(7, links.LENGTH), links.drawn(7, 1, torch.Generator().manual_seed(6))
    found = links.scored(rows, seen)
    assert [(head.layer, head.head) for head in found.heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for head in found.heads:
        own = seen[head.layer, :, head.head].double().numpy()
        # Query 1 sees itself and the one before; query 0 sees none before.
        mass = np.mean([each[i, i - 1] for each in own for i in range(1, links.LENGTH)])
        chance = np.mean([1 / (i + 1) for i in range(1, links.LENGTH)])
        score = head.matches[links.PREVIOUS].score
        assert score == pytest.approx((mass - chance) / (1 - chance), abs=1e-6)


def test_heads_that_are_built_for_the_token_before_are_counted():
    seen, rows = made_up_weights(7, links.LENGTH), links.drawn(7, 1, torch.Generator().manual_seed(6))
    before = torch.eye(links.LENGTH).roll(-1, 1)  # row i has its 1 in column i - 1
    before[0] = torch.eye(links.LENGTH)[0]
    seen[1, :, 0] = before
    found = links.recurrence(links.scored(rows, seen))
    assert (found.heads, found.previous) == (4, 0.25)
    offsets = links.by_offset(seen)
    torch.testing.assert_close(offsets[2], torch.eye(links.SEEN)[1])
    k, queries = 3, range(links.SEEN - 1, links.LENGTH)
    by_hand = np.mean([seen[0, n, 1, i, i - k].item() for n in range(7) for i in queries])
    assert offsets[1, k].item() == pytest.approx(by_hand, abs=1e-6)


def test_before_training_every_head_looks_everywhere_alike():
    rows = links.drawn(5, 1, torch.Generator().manual_seed(8))
    seen = links.weights(links.model_of(0).eval(), rows)
    assert seen.shape == (links.N_LAYERS, 5, links.N_HEADS, links.LENGTH, links.LENGTH)
    even = torch.ones(links.LENGTH, links.LENGTH).tril()
    even = even / even.sum(-1, keepdim=True)
    torch.testing.assert_close(seen, even.expand_as(seen), atol=0.02, rtol=0)


@pytest.mark.parametrize(
    "untrained, trained, verdict",
    [
        ([0.0, 0.0], [0.25, 0.5], "holds"),
        ([0.0, 0.0], [0.25, 0.0], "holds with conditions"),
        ([0.25, 0.0], [0.25, 0.5], "holds with conditions"),
        ([0.0, 0.0], [0.0, 0.0], "is wrong"),
    ],
)
def test_the_verdict(untrained, trained, verdict):
    assert links._verdict(untrained, trained) == verdict


def test_heads_look_where_it_is_told_what_comes_next():
    for control, back in ((False, 1), (True, 5)):
        curves = made("emerging-links", control).panels[0].lines
        sharpest = max((ys for name, (_, ys) in curves.items() if "before" not in name), key=max)
        assert np.argmax(sharpest) == back
        # Nothing better than what the data leave open, and near to it: the model has learned them.
        loss, least = (value("emerging-links", each, control) for each in ("loss at", "least loss"))
        assert least - 0.03 < loss < least + 0.15
    offsets, before = curve("emerging-links", 0, "all heads, before")
    assert [*offsets] == [*range(links.SEEN)]
    assert max(before) - min(before) < 0.02
