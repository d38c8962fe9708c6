"""Patterns of heads: sequences and gaps by plain loops, and heads that are built to be named."""

from itertools import pairwise

import pytest
import torch
from sweep import Laws, curve, made, value

from heedful.lab import patterns


class TestExperiments(Laws):
    family = "patterns"


def generator(seed):
    return torch.Generator().manual_seed(seed)


def test_a_symbol_leaves_few_choices_for_its_neighbours_on_both_sides():
    table = patterns.followers().tolist()
    rows = patterns.drawn(2000, True, generator(1)).tolist()
    after, before = ({symbol: set() for symbol in range(12)} for _ in range(2))
    for row in rows:
        for left, right in pairwise(row):
            assert right in table[left]
            after[left].add(right)
            before[right].add(left)
    assert {len(own) for own in after.values()} == {len(own) for own in before.values()} == {2}


def test_in_the_control_any_symbol_follows_any():
    rows = patterns.drawn(4000, False, generator(2))
    assert len({*zip(rows[:, 0].tolist(), rows[:, 1].tolist(), strict=True)}) == 12 * 12


def test_symbols_are_wanted_where_gaps_are():
    rows = patterns.drawn(50, True, generator(3))
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
    offsets = patterns.by_offset(seen)
    assert offsets[0].tolist() == [float(k == 1) for k in range(-patterns.SEEN, patterns.SEEN + 1)]
    torch.testing.assert_close(offsets[1], torch.full((2 * patterns.SEEN + 1,), 1 / n))
    rows = patterns.drawn(3, True, generator(5)).tolist()
    found = patterns.Observed(seen, patterns.census_of(map(patterns._shown, rows), "self", seen))
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
