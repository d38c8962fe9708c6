"""Windows of a ring of tokens, and spans for scoring: what is read, what counts, and how often."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.windows import Windows, circular_sections, spans

sizes = st.integers(1, 60)


@given(sizes, sizes, st.integers(0, 5), st.integers(0, 4))
def test_an_epoch_predicts_each_token_once_except_less_than_a_window(n, context, seed, epoch):
    windows = Windows(np.arange(n), context, seed)
    rows = windows.rows(range(len(windows.lengths)), epoch)
    length = min(n, context)
    assert rows.shape == (n // length, length + 1)
    assert windows.lengths.tolist() == [length] * (n // length)
    # Tokens are numbered by their place, so each must follow the one before, round the ring.
    assert (rows[:, 1:] == (rows[:, :-1] + 1) % n).all()
    predicted = Counter(rows[:, 1:].flatten().tolist())
    assert max(predicted.values()) == 1
    assert n - len(predicted) == n % length


def test_a_row_depends_on_seed_epoch_and_sample_alone():
    windows = Windows(np.arange(97), 11, 3)
    whole = windows.rows(range(8), 2)
    assert (windows.rows([5, 0, 5], 2) == whole[[5, 0, 5]]).all()
    assert windows.rows([], 2).shape == (0, 12)
    assert (Windows(np.arange(97), 11, 3).rows(range(8), 2) == whole).all()


def test_epochs_begin_at_places_all_over_the_stream():
    starts = [Windows(np.zeros(101), 7, seed=1).start(epoch) for epoch in range(4000)]
    counts = Counter(starts)
    assert len(counts) == 101
    # Binomial with mean 39.6 and deviation 6.3: five deviations either way.
    assert min(counts.values()) > 8
    assert max(counts.values()) < 72
    assert [Windows(np.zeros(101), 7, seed=2).start(epoch) for epoch in range(10)] != starts[:10]


def test_a_ring_continues_at_its_beginning():
    got = circular_sections(np.array([7, 8, 9], dtype=np.uint16), np.array([-1, 2, 4]), 5)
    assert got.tolist() == [[9, 7, 8, 9, 7], [9, 7, 8, 9, 7], [8, 9, 7, 8, 9]]
    assert got.dtype == np.int64


@given(st.integers(0, 80), st.integers(1, 20), st.data())
def test_spans_count_every_token_once_with_enough_before_it(n, context, data):
    stride = data.draw(st.integers(1, context))
    counted = []
    for number, span in enumerate(found := list(spans(n, context, stride))):
        assert 0 < span.end - span.begin <= context
        assert span.begin <= span.scored < span.end
        if number:
            assert span.scored - span.begin >= min(context - stride, span.scored)
            assert span.end - span.scored == stride or span is found[-1]
        counted += range(span.scored, span.end)
    assert counted == list(range(n))


def test_a_stride_of_the_whole_context_makes_spans_that_do_not_overlap():
    assert list(spans(7, 3, 3)) == [(0, 0, 3), (3, 3, 6), (6, 6, 7)]
    assert list(spans(6, 3, 3)) == [(0, 0, 3), (3, 3, 6)]
    assert list(spans(7, 3, 1)) == [(0, 0, 3), (1, 3, 4), (2, 4, 5), (3, 5, 6), (4, 6, 7)]


@pytest.mark.parametrize("stride", [0, 4])
def test_other_strides_are_refused(stride):
    with pytest.raises(ValueError, match=f"stride must be within 1 and the context 3, got {stride}"):
        list(spans(7, 3, stride))
