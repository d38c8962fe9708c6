import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.decoding import probabilities
from heedful.decoding.probabilities import NATIVE_MOST, ranked
from heedful.engine import native
from heedful.errors import WorkError

NEVER = -math.inf


def by_hand(row, forbidden, k):
    """Log-probabilities in 64 bits, sorted by value, then by token."""
    row = np.asarray(row, np.float64)
    greatest = row.max()
    log_probs = row - greatest - np.log(np.exp(row - greatest).sum())
    order = sorted(
        (i for i in range(len(row)) if i not in forbidden and row[i] > NEVER), key=lambda i: (-row[i], i)
    )
    return [(log_probs[i], i) for i in order[:k]]


def check(found, rows, forbidden, k):
    values, ids = found
    assert values.shape == ids.shape == (len(rows), k)
    for got, tokens, row in zip(values, ids, rows, strict=True):
        expected = by_hand(row, forbidden, k)
        n = len(expected)
        assert tokens[:n].tolist() == [i for _, i in expected]
        np.testing.assert_allclose(
            got[:n], [x for x, _ in expected], rtol=0, atol=2e-6 * max(1, n and -expected[-1][0])
        )
        assert (got[:n] <= 0).all()
        assert (got[n:] == NEVER).all()


@pytest.mark.slow
@settings(deadline=None)
@given(data=st.data(), size=st.integers(1, 53), n=st.integers(1, 7))
def test_it_sorts_by_probability_then_by_token(library, data, size, n):
    number = st.sampled_from([NEVER, -2.0, -1.0, 0.0, 0.5]) | st.floats(-90, 90, width=32)
    rows = data.draw(st.lists(st.lists(number, min_size=size, max_size=size), min_size=n, max_size=n))
    for row in rows:
        row[data.draw(st.integers(0, size - 1))] = 1.0
    forbidden = sorted(data.draw(st.sets(st.integers(0, size - 1), max_size=5)))
    k = data.draw(st.integers(1, 9))
    logits = torch.tensor(rows, dtype=torch.float32)
    found = library.rank(logits.numpy(), np.array(forbidden, np.int64), k, 1 + n % 2)
    check(found, rows, forbidden, k)


def test_a_vocabulary_of_usual_size(library):
    logits = 3 * torch.randn(5, 10_007, generator=torch.Generator().manual_seed(1))
    found = library.rank(logits.numpy(), np.array([0, 7], np.int64), 9, 2)
    check(found, logits.tolist(), [0, 7], 9)


@pytest.mark.parametrize("column", [0, 5, 31, 32])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_row_without_a_distribution_is_told(library, column, value):
    logits = torch.zeros(3, 33)
    logits[1, column] = value
    assert library.rank(logits.numpy(), np.zeros(0, np.int64), 1, 1) is None
    assert library.rank(torch.full((2, 33), NEVER).numpy(), np.zeros(0, np.int64), 1, 1) is None


# The function that decoders call, with and without the library ------------------------------------------


@pytest.fixture(params=["native", "plain"])
def path(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(probabilities, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("no C compiler here")


@pytest.mark.parametrize("k", [1, 3, 29, NATIVE_MOST + 7])
def test_both_paths_rank_alike(path, k):
    logits = torch.randn(4, 97, generator=torch.Generator().manual_seed(2))
    values, ids = ranked(logits, torch.tensor([3, 5]), k, 0)
    check((values, ids), logits.tolist(), [3, 5], k)


def test_more_are_asked_for_than_there_are(path):
    values, ids = ranked(torch.zeros(2, 5), torch.tensor([1]), 11, 0)
    assert ids[:, :4].tolist() == [[0, 2, 3, 4]] * 2
    assert (values[:, 4:] == NEVER).all()
    assert values.shape == (2, 5)


def test_what_is_no_distribution_is_named_on_both_paths(path):
    with pytest.raises(WorkError, match=r"token 8 contain NaN \(in 1 of"):
        ranked(torch.tensor([[0.0, 1.0], [math.nan, 0.0]]), torch.zeros(0, dtype=torch.int64), 1, 7)


def test_logits_that_are_not_contiguous_or_of_other_types(path):
    logits = torch.randn(7, 11, generator=torch.Generator().manual_seed(3))
    none = torch.zeros(0, dtype=torch.int64)
    values, ids = ranked(logits.T.contiguous().T, none, 3, 0)
    check((values, ids), logits.tolist(), [], 3)
    check(ranked(logits.double(), none, 3, 0), logits.double().tolist(), [], 3)
