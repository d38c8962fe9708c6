import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.decoding.probabilities import best, log_probabilities
from heedful.errors import WorkError

NONE = torch.zeros(0, dtype=torch.int64)


def test_forbidden_tokens_are_taken_out_after_the_normalisation():
    logits = torch.tensor([[0.0, 1.0, 2.0], [3.0, -math.inf, 1.0]])
    got = log_probabilities(logits, torch.tensor([2]), 0)
    z = [math.log(1 + math.e + math.e**2), math.log(math.e**3 + math.e)]
    never = -math.inf
    torch.testing.assert_close(got, torch.tensor([[-z[0], 1 - z[0], never], [3 - z[1], never, never]]))


def test_half_precision_logits_are_normalised_in_32_bits_and_left_as_they_were():
    logits = torch.randn(3, 7, generator=torch.Generator().manual_seed(1)).bfloat16()
    before = logits.clone()
    got = log_probabilities(logits, torch.tensor([0]), 0)
    assert got.dtype == torch.float32
    assert torch.equal(logits, before)
    assert torch.equal(got[:, 1:], before.float().log_softmax(1)[:, 1:])


@pytest.mark.parametrize("column", [0, 1, 4])
@pytest.mark.parametrize("value, named", [(math.nan, "NaN"), (math.inf, "infinity")])
def test_what_is_no_distribution_is_named(column, value, named):
    logits = torch.zeros(3, 5)
    logits[1, column] = value
    with pytest.raises(WorkError, match=rf"token 8 contain {named} \(in 1 of"):
        log_probabilities(logits, NONE, 7)


def test_nothing_possible_is_named():
    with pytest.raises(WorkError, match=r"only -infinity \(in 2 of"):
        log_probabilities(torch.full((2, 5), -math.inf), NONE, 0)


@given(
    st.integers(1, 6),
    st.lists(
        st.lists(st.sampled_from([-math.inf, -2.0, -1.0, 0.5]), min_size=5, max_size=5),
        min_size=1, max_size=4,
    ),
)  # fmt: skip
def test_best_takes_the_lowest_tokens_among_equals(k, rows):
    values, ids = best(torch.tensor(rows), k)
    for row, row_values, row_ids in zip(rows, values.tolist(), ids.tolist(), strict=True):
        order = sorted(range(5), key=lambda i: (-row[i], i))[:k]
        assert row_values == [row[i] for i in order]
        possible = [i for i in order if row[i] > -math.inf]
        assert row_ids[: len(possible)] == possible
        assert len(set(row_ids)) == min(k, 5)
