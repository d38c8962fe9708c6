"""Decoding state against plain lists."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.nn.layout import Layout
from heedful.nn.state import Cache, KeyValueCache, Memory, State

G, D_K, D_V = 2, 3, 5


@dataclass
class Rows:
    """A cache or memory that is one tensor."""

    values: torch.Tensor

    def select(self, rows):
        return Rows(self.values[rows])


# Keys and values ------------------------------------------------------------------------------------------


def numbered(first, n):
    """Keys and values of tokens ``first`` ... whose entries are the token's number, and negated."""
    ids = torch.arange(first, first + n, dtype=torch.float32)[None, :, None]
    return ids.expand(G, n, D_K), -ids.expand(G, n, D_V)


@settings(max_examples=40)
@given(chunks=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=7))
def test_appending_ragged_chunks_equals_lists(chunks):
    cache, lengths = KeyValueCache(), [0, 0, 0]
    for chunk in chunks:
        if not any(chunk):
            continue
        layout = Layout.of(chunk, lengths)
        keys, values = torch.full((3, G, max(chunk), D_K), 99.0), torch.full((3, G, max(chunk), D_V), 99.0)
        for row, (start, n) in enumerate(zip(lengths, chunk)):
            keys[row, :, :n], values[row, :, :n] = numbered(100 * row + start, n)
        seen = cache.append(keys, values, layout)
        lengths = [a + b for a, b in zip(lengths, chunk)]
        assert seen[0].shape == (3, G, max(lengths), D_K)
        assert seen[1].shape == (3, G, max(lengths), D_V)
        for row, n in enumerate(lengths):
            for got, wanted in zip(seen, numbered(100 * row, n)):
                assert torch.equal(got[row, :, :n], wanted)


def operations_of_appending(n_rows):
    class Counting(TorchDispatchMode):
        n = 0

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            self.n += 1
            return operation(*args, **(kwargs or {}))

    lengths = [1 + row % 2 for row in range(n_rows)]
    layout = Layout.of(lengths, lengths)
    with Counting() as counting:
        KeyValueCache().append(torch.ones(n_rows, G, 2, D_K), torch.ones(n_rows, G, 2, D_V), layout)
    return counting.n


def test_appending_ragged_rows_takes_as_many_operations_for_few_rows_as_for_many():
    assert operations_of_appending(3) == operations_of_appending(17)


def test_room_is_doubled_and_what_was_written_stays():
    cache, capacities = KeyValueCache(), []
    for t in range(40):
        key, value = numbered(t, 1)
        keys, _ = cache.append(key[None], value[None], Layout.of([1], [t]))
        capacities.append(cache.keys.shape[2])
        assert torch.equal(keys[0, 0, :, 0], torch.arange(t + 1.0))
    assert capacities == [16] * 16 + [32] * 16 + [64] * 8


def test_a_long_prefix_gets_the_room_it_needs():
    cache = KeyValueCache()
    cache.append(*(x[None] for x in numbered(0, 53)), Layout.of([53]))
    assert cache.keys.shape[2] == cache.values.shape[2] == 53


def test_selected_rows_may_repeat_and_are_copies():
    cache = KeyValueCache()
    keys, values = torch.randn(3, G, 4, D_K), torch.randn(3, G, 4, D_V)
    cache.append(keys, values, Layout.of([4, 4, 4]))
    picked = cache.select(torch.tensor([2, 0, 2, 2]))
    assert torch.equal(picked.keys[:, :, :4], keys[[2, 0, 2, 2]])
    assert torch.equal(picked.values[:, :, :4], values[[2, 0, 2, 2]])
    one = torch.ones(4, G, 1, D_K), torch.ones(4, G, 1, D_V)
    picked.append(*one, Layout.of([1] * 4, [4] * 4))
    assert torch.equal(cache.keys[:, :, :4], keys)
    assert not cache.keys[:, :, 4].any()


def test_an_empty_cache_can_be_selected_from():
    picked = KeyValueCache().select(torch.tensor([0, 0]))
    assert picked.keys is None
    assert picked.values is None


# State ----------------------------------------------------------------------------------------------------


def state(sentences=3, width=1):
    n = sentences * width
    caches = [Rows(torch.arange(n)), Rows(torch.arange(n) + 100)]
    lengths = tuple(range(5, 5 + n))
    return State([Rows(torch.arange(sentences))], caches, lengths, width)


def check(state, sentences, rows):
    """The state holds these rows and sentences of the one it was made from."""
    assert state.memories[0].values.tolist() == sentences
    assert state.caches[0].values.tolist() == rows
    assert state.caches[1].values.tolist() == [r + 100 for r in rows]
    assert state.lengths == tuple(5 + r for r in rows)


def test_selecting_reorders_hypotheses_and_leaves_sentences():
    picked = state(2, 3).select(torch.tensor([2, 2, 0, 5, 3, 3]))
    check(picked, [0, 1], [2, 2, 0, 5, 3, 3])
    assert picked.width == 3


def test_widening_repeats_hypotheses_side_by_side():
    wide = state().expand(2)
    check(wide, [0, 1, 2], [0, 0, 1, 1, 2, 2])
    assert wide.width == 2
    again = wide.expand(3)
    check(again, [0, 1, 2], [0] * 6 + [1] * 6 + [2] * 6)
    assert again.width == 6


def test_keeping_drops_the_other_sentences_from_both_halves():
    kept = state(4, 3).keep([3, 1])
    check(kept, [3, 1], [9, 10, 11, 3, 4, 5])
    assert kept.width == 3
    check(kept.keep([]), [], [])


@given(
    width=st.integers(1, 4),
    kept=st.lists(st.integers(0, 3), unique=True, min_size=1),
    data=st.data(),
)
def test_any_sequence_of_changes_equals_lists(width, kept, data):
    wide = state(4).expand(width)
    rows = [r for r in range(4) for _ in range(width)]
    beams = data.draw(st.lists(st.integers(0, width - 1), min_size=4 * width, max_size=4 * width))
    parents = [width * (n // width) + beam for n, beam in enumerate(beams)]
    left = wide.select(torch.tensor(parents)).keep(kept)
    rows = [rows[p] for p in parents]
    check(left, kept, [rows[s * width + b] for s in kept for b in range(width)])


def test_lengths_advance_and_give_the_next_layout():
    before = state()
    layout = before.next_layout([2, 0, 1])
    assert (layout.lengths, layout.starts) == ((2, 0, 1), (5, 6, 7))
    after = before.advanced([2, 0, 1])
    assert after.lengths == (7, 6, 8)
    assert before.lengths == (5, 6, 7)
    with pytest.raises(ValueError):
        before.advanced([1])


def test_the_device_is_that_of_its_tensors_and_the_cpu_before_there_are_any():
    assert State([], [KeyValueCache()], (0,)).device == torch.device("cpu")
    on_meta = Rows(torch.empty(1, device="meta"))
    assert State([on_meta], [KeyValueCache()], (0,)).device == torch.device("meta")


def test_caches_and_memories_are_known_by_their_contract():
    assert isinstance(KeyValueCache(), Cache)
    assert isinstance(Rows(torch.zeros(1)), Memory)
    assert not isinstance([], Cache)
    assert not isinstance([], Memory)
