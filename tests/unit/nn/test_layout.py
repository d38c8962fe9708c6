"""Packing: indices against plain loops, pad and unpad as inverses and as each other's gradient."""

import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.nn.layout import Layout, Tokens
from heedful.nn.visibility import Visibility

lengths_of = st.lists(st.integers(0, 7), min_size=1, max_size=5)


@st.composite
def ragged(draw):
    lengths = draw(lengths_of)
    starts = draw(st.lists(st.integers(0, 5), min_size=len(lengths), max_size=len(lengths)))
    return lengths, starts


@given(ragged())
def test_indices_equal_plain_loops(case):
    lengths, starts = case
    layout = Layout.of(lengths, starts)
    sequence = [b for b, n in enumerate(lengths) for _ in range(n)]
    within = [i for n in lengths for i in range(n)]
    positions = [s + i for n, s in zip(lengths, starts) for i in range(n)]
    assert layout.sequence.tolist() == sequence
    assert layout.within.tolist() == within
    assert layout.positions.tolist() == positions
    assert layout.slots.tolist() == [b * max(lengths) + i for b, i in zip(sequence, within)]
    assert layout.offsets.tolist() == [sum(lengths[:b]) for b in range(len(lengths) + 1)]
    assert layout.real.tolist() == [[i < n for i in range(max(lengths))] for n in lengths]
    assert layout.with_past.lengths == tuple(n + s for n, s in zip(lengths, starts))


@given(lengths_of)
def test_backwards_reverses_every_sequence(lengths):
    layout = Layout.of(lengths)
    x = torch.arange(layout.n_tokens)
    wanted = torch.cat([part.flip(0) for part in x.split(lengths)])
    assert torch.equal(x[layout.backwards], wanted)
    assert torch.equal(x[layout.backwards][layout.backwards], x)


@given(lengths_of)
def test_pad_places_tokens_and_zeros_and_unpad_inverts_it(lengths):
    layout = Layout.of(lengths)
    x = torch.randn(layout.n_tokens, 3)
    padded = layout.pad(x)
    assert padded.shape == (len(lengths), max(lengths), 3)
    for row, part in zip(padded, x.split(lengths)):
        assert torch.equal(row[: len(part)], part)
        assert torch.equal(row[len(part) :], torch.zeros(max(lengths) - len(part), 3))
    assert torch.equal(layout.unpad(padded), x)


@pytest.mark.parametrize("lengths", [[3, 5, 2], [4, 4], [0, 3]])
def test_pad_and_unpad_have_the_right_gradient(lengths):
    layout = Layout.of(lengths)
    x = torch.randn(layout.n_tokens, 2, dtype=torch.float64, requires_grad=True)
    w = torch.randn(len(lengths), max(lengths), 2, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: layout.pad(x) * w, x)
    p = torch.randn(w.shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda p: layout.unpad(p), p)


def test_what_pads_hold_never_comes_back():
    layout = Layout.of([2, 5])
    p = torch.randn(2, 5, 3)
    p[0, 2:] = float("nan")
    assert layout.unpad(p).isfinite().all()


def test_tokens_round_trip_and_read_a_rectangle_without_its_pads():
    rows = [[5, 6, 7], [8], [], [9, 10]]
    assert Tokens.of(rows).split() == rows
    padded = torch.tensor([[5, 6, 7], [8, -1, -1], [-1, -1, -1], [9, 10, -1]])
    packed = Tokens.from_padded(padded, [3, 1, 0, 2])
    assert packed.split() == rows
    with pytest.raises(ValueError, match="at most the row length 3, got 4"):
        Tokens.from_padded(padded, [4, 1, 0, 2])


def test_merge_joins_neighbours_and_refuses_a_remainder():
    layout = Layout.of([1, 2, 3, 4])
    assert layout.merge(2).lengths == (3, 7)
    assert layout.merge(2) is layout.merge(2)
    with pytest.raises(ValueError, match="divisible by 3, got 4"):
        layout.merge(3)


def test_cut_makes_sequences_of_blocks():
    layout = Layout.of([7, 0, 3, 4, 1])
    assert layout.split_blocks(3).lengths == (3, 3, 1, 3, 3, 1, 1)
    assert layout.split_blocks(3).positions.tolist() == [0, 1, 2, 0, 1, 2, 0, 0, 1, 2, 0, 1, 2, 0, 0]
    assert layout.split_blocks(3) is layout.split_blocks(3)
    assert layout.split_blocks(7) is layout
    with pytest.raises(ValueError, match="must start at position 0"):
        Layout.of([2], [1]).split_blocks(3)


@pytest.mark.parametrize("starts", [(0, 0, 0, 0), (2, 0, 5, 1)])
def test_a_layout_and_all_that_it_keeps_go_without_the_garbage_collector(starts):
    gc.disable()
    try:
        layout = Layout.of([3, 0, 5, 2], starts)
        other = Layout.of([1, 2, 3, 4])
        seen = [Visibility.of(layout, keys, causal=True) for keys in (layout, layout.with_past, other)]
        masks = [weakref.ref(view.visible) for view in seen]
        assert Visibility.of(layout.merge(2), layout.merge(2)).visible.any()
        assert layout.positions.numel() == 10
        gone = weakref.ref(layout)
        del layout, seen
        assert gone() is None
        assert [mask() for mask in masks] == [None, None, None]
    finally:
        gc.enable()


def test_wrong_layouts_are_refused():
    with pytest.raises(ValueError, match="negative"):
        Layout.of([2, -1])
    with pytest.raises(ValueError, match="got 2 lengths, 1 starts"):
        Layout.of([2, 1], [0])
    with pytest.raises(ValueError, match="no last token"):
        _ = Layout.of([2, 0]).last
