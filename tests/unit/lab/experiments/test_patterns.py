"""Patterns of heads: sequences, gaps and scores by plain loops, heads that are built to be named."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sweep import Laws, curve, made, value, verdict_of

from heedful.data.batch import Batch
from heedful.explain.patterns.census import recurrence
from heedful.lab.experiments import patterns
from heedful.lab.tiny import attention_weights


class TestExperiments(Laws):
    family = "patterns"


def generator(seed):
    return torch.Generator().manual_seed(seed)


def test_a_symbol_leaves_few_choices_for_its_neighbours_on_both_sides():
    table = patterns.draw_followers().tolist()
    rows = patterns.draw_sequences(2000, True, generator(1)).tolist()
    after, before = ({symbol: set() for symbol in range(12)} for _ in range(2))
    for row in rows:
        for left, right in pairwise(row):
            assert right in table[left]
            after[left].add(right)
            before[right].add(left)
    assert {len(own) for own in after.values()} == {len(own) for own in before.values()} == {2}


def test_in_the_control_any_symbol_follows_any():
    rows = patterns.draw_sequences(4000, False, generator(2))
    assert len({*zip(rows[:, 0].tolist(), rows[:, 1].tolist(), strict=True)}) == 12 * 12


def test_symbols_are_wanted_where_gaps_are():
    rows = patterns.draw_sequences(50, True, generator(3))
    batch = patterns.batch_of(rows, generator(4))
    read = batch.inputs.ids.view(50, patterns.N).tolist()
    wanted = dict(zip(batch.rows.tolist(), batch.targets.tolist(), strict=True))
    for i, row in enumerate(rows.tolist()):
        assert (read[i][0], read[i][-1]) == (patterns.CLASSIFY, patterns.SEPARATE)
        for t, symbol in enumerate(row, 1):
            place = i * patterns.N + t
            assert read[i][t] == (patterns.GAP if place in wanted else symbol)
            assert wanted.get(place, symbol) == symbol
    assert 0.25 < len(wanted) / rows.numel() < 0.35


def test_a_head_that_looks_at_the_word_after_is_shown_and_named_so():
    n = patterns.N
    after = torch.eye(n).roll(1, 1)
    even = torch.full((n, n), 1 / n)
    seen = torch.stack([after, even]).expand(1, 3, 2, n, n)
    offsets = patterns.encoder_weights_by_offset(seen)
    assert offsets[0].tolist() == [float(k == 1) for k in range(-patterns.SEEN, patterns.SEEN + 1)]
    torch.testing.assert_close(offsets[1], torch.full((2 * patterns.SEEN + 1,), 1 / n))
    rows = patterns.draw_sequences(3, True, generator(5)).tolist()
    found = patterns.Observed(seen, patterns.census_of(map(patterns._with_special_names, rows), "self", seen))
    assert found.patterns == ["next token"]


def test_patterns_come_by_training_where_neighbours_tell_something():
    for control, heads in ((False, True), (True, False)):
        assert (value("patterns-of-heads", "heads with a pattern, trained", control) > 0) == heads
        assert value("patterns-of-heads", "heads with a pattern, untrained", control) == 0
    both = [value("patterns-of-heads", f"heads that look so: {side}") for side in ("next", "previous")]
    assert min(both) > 0
    # Two followers, and twelve symbols: between one choice and ignorance.
    assert value("patterns-of-heads", "loss at the end") < 1.5
    assert value("patterns-of-heads", "loss at the end", control=True) == pytest.approx(2.485, abs=0.1)
    offsets, before = curve("patterns-of-heads", 0, "all heads, before")
    assert [*offsets] == [*range(-4, 5)]
    assert max(before) - min(before) < 0.02
    assert {row["pattern, untrained"] for row in made("patterns-of-heads").table} == {"broad"}


# Links that emerge


@pytest.mark.parametrize("back", [1, 5])
def test_a_symbol_depends_on_the_one_so_many_places_before_the_last(back):
    table = patterns.draw_choices().tolist()
    assert all(len({*row}) == patterns.N_CHOICES for row in table)
    rows = patterns.draw_causal_sequences(3000, back, torch.Generator().manual_seed(3)).tolist()
    assert all(row[t] in table[row[t - 1 - back]] for row in rows for t in range(back + 1, len(row)))
    # Both followers come, and the first symbols are any.
    assert {(row[0], row[back + 1]) for row in rows} == {(a, b) for a, own in enumerate(table) for b in own}
    assert {tuple(row[:2]) for row in rows} == {(a, b) for a in range(8) for b in range(8)}


@pytest.mark.parametrize("back", [1, 5])
def test_the_last_symbol_tells_nothing_of_the_next(back):
    # Any symbol may follow any other one: chains that depend on other places are independent.
    rows = patterns.draw_causal_sequences(20000, back, torch.Generator().manual_seed(4))
    last, following = rows[:, back], rows[:, back + 1]
    counts = torch.zeros(8, 8).index_put_((last, following), torch.ones(len(rows)), accumulate=True)
    alone = counts.sum(0) / len(rows)
    torch.testing.assert_close(counts / counts.sum(1, keepdim=True), alone.expand(8, 8), atol=0.04, rtol=0)


@pytest.mark.parametrize("back, blind", [(1, 1), (5, 5)])
def test_the_least_loss_counts_symbols_that_nothing_tells(back, blind):
    # Of 12 that are foretold, the first `back` have no symbol they depend on.
    expected = (blind * math.log(8) + (12 - blind) * math.log(2)) / 12
    assert patterns.least_loss(back) == pytest.approx(expected)


def made_up_weights(n, t):
    """Causal weights at random, ``[L, n, H, T, T]``."""
    shape = patterns.N_LAYERS, n, patterns.N_HEADS, t, t
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    hidden = torch.ones(t, t).triu(1).bool()
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)


def test_scores_are_kappas_by_a_plain_loop():
    seen = made_up_weights(7, patterns.READ)
    rows = patterns.draw_causal_sequences(7, 1, torch.Generator().manual_seed(6))
    found = patterns.causal_census(rows, seen)
    assert [(head.layer, head.head) for head in found.heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for head in found.heads:
        own = seen[head.layer, :, head.head].double().numpy()
        # Query 1 sees itself and the one before; query 0 sees none before.
        mass = np.mean([each[i, i - 1] for each in own for i in range(1, patterns.READ)])
        chance = np.mean([1 / (i + 1) for i in range(1, patterns.READ)])
        score = head.matches[patterns.PREVIOUS].score
        assert score == pytest.approx((mass - chance) / (1 - chance), abs=1e-6)


def test_heads_that_are_built_for_the_token_before_are_counted():
    seen = made_up_weights(7, patterns.READ)
    rows = patterns.draw_causal_sequences(7, 1, torch.Generator().manual_seed(6))
    before = torch.eye(patterns.READ).roll(-1, 1)  # row i has its 1 in column i - 1
    before[0] = torch.eye(patterns.READ)[0]
    seen[1, :, 0] = before
    found = recurrence(patterns.causal_census(rows, seen))
    assert (found.heads, found.previous) == (4, 0.25)
    offsets = patterns.causal_weights_by_offset(seen)
    torch.testing.assert_close(offsets[2], torch.eye(patterns.SEEN_BACK)[1])
    k, queries = 3, range(patterns.SEEN_BACK - 1, patterns.READ)
    by_hand = np.mean([seen[0, n, 1, i, i - k].item() for n in range(7) for i in queries])
    assert offsets[1, k].item() == pytest.approx(by_hand, abs=1e-6)


def test_before_training_every_head_looks_everywhere_alike():
    rows = patterns.draw_causal_sequences(5, 1, torch.Generator().manual_seed(8))
    seen = attention_weights(patterns.causal_model(0).eval(), Batch.windows(rows.numpy()).inputs)
    assert seen.shape == (patterns.N_LAYERS, 5, patterns.N_HEADS, patterns.READ, patterns.READ)
    even = torch.ones(patterns.READ, patterns.READ).tril()
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
    assert verdict_of("emerging-links", untrained=untrained, trained=trained) == verdict


def test_heads_look_where_it_is_told_what_comes_next():
    for control, back in ((False, 1), (True, 5)):
        curves = made("emerging-links", control).panels[0].lines
        sharpest = max((ys for name, (_, ys) in curves.items() if "before" not in name), key=max)
        assert np.argmax(sharpest) == back
        # Nothing better than what the data leave open, and near to it: the model has learned them.
        loss, least = (value("emerging-links", each, control) for each in ("loss at", "least loss"))
        assert least - 0.03 < loss < least + 0.15
    offsets, before = curve("emerging-links", 0, "all heads, before")
    assert [*offsets] == [*range(patterns.SEEN_BACK)]
    assert max(before) - min(before) < 0.02
