"""Copying in context: sequences and weights by plain loops, and what one layer cannot do."""

import pytest
import torch
from sweep import Laws, curve, made, value

from heedful.lab.experiments import copying


class TestExperiments(Laws):
    family = "copying"


def rows_of(n, seed):
    return copying.draw_sequences(n, torch.Generator().manual_seed(seed))


def test_a_stretch_of_different_symbols_comes_again_from_any_of_several_places():
    begins = set()
    for row in rows_of(300, 1).tolist():
        first, again = row[: copying.FIRST], row[copying.FIRST :]
        assert len(set(first)) == copying.FIRST
        begin = first.index(again[0])
        assert again == first[begin : begin + copying.AGAIN]
        begins.add(begin)
    assert begins == set(range(copying.FIRST - copying.AGAIN + 1))


def test_orders_are_drawn_anew():
    # Any symbol follows any other one as often: nothing is there for weights to know.
    rows = rows_of(20000, 2)
    counts = torch.zeros(16, 16).index_put_((rows[:, 0], rows[:, 1]), torch.ones(len(rows)), accumulate=True)
    expected = len(rows) / (16 * 15) * (1 - torch.eye(16))
    torch.testing.assert_close(counts, expected, atol=5 * expected.max().item() ** 0.5, rtol=0)


def test_wanted_is_what_followed_the_symbol_before():
    rows = rows_of(5, 3)
    batch = copying.batch_of(rows)
    read = batch.inputs.ids.tolist()
    for place, wanted in zip(batch.rows.tolist(), batch.targets.tolist(), strict=True):
        sequence, query = divmod(place, copying.LENGTH - 1)
        first = rows[sequence, : copying.FIRST].tolist()
        assert first[first.index(read[place]) + 1] == wanted
        assert query >= copying.FIRST
    assert len(batch.targets) == 5 * copying.PREDICTED


def test_the_weight_on_what_followed_before_is_that_of_a_loop():
    rows, n = rows_of(4, 4), copying.LENGTH - 1
    seen = torch.rand(4, 3, n, n, generator=torch.Generator().manual_seed(5))
    found = copying.induction_scores(seen, rows)
    for head in range(3):
        own = [
            seen[i, head, query, row[: copying.FIRST].index(row[query]) + 1].item()
            for i, row in enumerate(rows.tolist())
            for query in range(copying.FIRST, n)
        ]
        assert found[head].item() == pytest.approx(sum(own) / len(own), abs=1e-6)


def test_two_layers_copy_by_looking_at_what_followed_and_one_does_not():
    two, one = (value("copying-in-context", f"right when symbols come again, {n}") for n in ("2", "1"))
    assert two > 90
    assert one < 60
    assert value("copying-in-context", "weight on what followed before, best head, 2") > 0.5
    _, by_place = curve("copying-in-context", 0, "2 layers")
    assert len(by_place) == copying.PREDICTED
    assert 100 * sum(by_place) / len(by_place) == pytest.approx(two)


def test_the_control_judges_the_same_models():
    assert {each.name: each.value for each in made("copying-in-context").measured} == {
        each.name: each.value for each in made("copying-in-context", control=True).measured
    }
