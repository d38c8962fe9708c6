"""Recurrent layers: packed against single, chunked against whole, and nothing leaks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.nn.cells import ElmanCell, GRUCell, LSTMCell, ResetAfterGRUCell
from heedful.nn.layout import Layout
from heedful.nn.recurrent import Bidirectional, Recurrence, RecurrentCache, RecurrentStack, ResidualRecurrence
from heedful.nn.taps import intervene, recording

D_X, D_H = 5, 7
CELLS = [ElmanCell, LSTMCell, GRUCell, ResetAfterGRUCell]
LENGTHS = [3, 11, 0, 2, 5]


def both_ways(kind, d_in=D_X):
    return Bidirectional(Recurrence(kind(d_in, D_H)), Recurrence(kind(d_in, D_H), reverse=True))


def layers():
    torch.manual_seed(11)
    one_way = [Recurrence(kind(D_X, D_H), reverse=r) for kind in CELLS for r in (False, True)]
    return [*one_way, both_ways(LSTMCell), ResidualRecurrence(Recurrence(GRUCell(D_X, D_X)))]


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: type(layer).__name__)
def test_batched_equals_single_outputs_and_final_states(layer):
    layout = Layout.of(LENGTHS)
    x = torch.randn(layout.n_tokens, D_X)
    outputs, final = layer.run(x, layout)
    for row, own in enumerate(x.split(LENGTHS)):
        alone, ends = layer.run(own, Layout.of([len(own)]))
        torch.testing.assert_close(outputs.split(LENGTHS)[row], alone)
        for got, wanted in zip(final, ends, strict=True):
            torch.testing.assert_close(got[row], wanted[0])


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: type(layer).__name__)
def test_packed_in_any_order_equals_any_other(layer):
    x = [torch.randn(n, D_X) for n in LENGTHS]
    order = [4, 2, 0, 3, 1]
    straight = layer(torch.cat(x), Layout.of(LENGTHS)).split(LENGTHS)
    moved = layer(torch.cat([x[i] for i in order]), Layout.of([LENGTHS[i] for i in order]))
    torch.testing.assert_close(moved, torch.cat([straight[i] for i in order]))


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: type(layer).__name__)
def test_nothing_leaks_between_sequences_not_even_nan(layer):
    layout = Layout.of(LENGTHS)
    x = torch.randn(layout.n_tokens, D_X)
    clean = layer(x, layout)
    poisoned = x.clone()
    poisoned[3:14] = torch.nan  # all of the second sequence
    x_bad = poisoned.requires_grad_()
    out = layer(x_bad, layout)
    others = [*range(3), *range(14, 21)]
    assert torch.equal(out[others], clean[others])
    (gradient,) = torch.autograd.grad(out[others].sum(), x_bad)
    assert gradient[others].isfinite().all()


CHUNKED = [3, 6, 1, 4]
cuts_of = st.tuples(*(st.lists(st.integers(0, n), min_size=2, max_size=2).map(sorted) for n in CHUNKED))


@pytest.mark.parametrize("kind", CELLS)
@settings(max_examples=15)
@given(cuts=cuts_of)
def test_cached_in_ragged_chunks_equals_whole(kind, cuts):
    torch.manual_seed(13)
    layer = Recurrence(kind(D_X, D_H))
    x = [torch.randn(n, D_X) for n in CHUNKED]
    whole = layer(torch.cat(x), Layout.of(CHUNKED)).split(CHUNKED)
    cache = RecurrentCache()
    bounds = [(0, *cut, n) for cut, n in zip(cuts, CHUNKED)]
    for begin, end in ((0, 1), (1, 2), (2, 3)):
        spans = [slice(b[begin], b[end]) for b in bounds]
        n, before = [s.stop - s.start for s in spans], [s.start for s in spans]
        out = layer(torch.cat([own[s] for own, s in zip(x, spans)]), Layout.of(n, before), cache)
        torch.testing.assert_close(out, torch.cat([own[s] for own, s in zip(whole, spans)]))


def test_a_selected_cache_continues_the_selected_sequences():
    torch.manual_seed(17)
    layer = Recurrence(LSTMCell(D_X, D_H))
    x, more = torch.randn(3, 4, D_X), torch.randn(3, D_X)
    cache = RecurrentCache()
    layer(x.flatten(0, 1), Layout.of([4, 4, 4]), cache)
    rows = torch.tensor([2, 0, 2])
    got = layer(more, Layout.of([1, 1, 1], [4, 4, 4]), cache.select(rows))
    whole = torch.cat([x[rows], more[:, None]], dim=1)
    wanted = layer(whole.flatten(0, 1), Layout.of([5, 5, 5])).view(3, 5, D_H)[:, -1]
    torch.testing.assert_close(got, wanted)
    assert RecurrentCache().select(rows).state is None


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_token_changes_nothing_on_the_side_that_was_read_before(kind, reverse):
    torch.manual_seed(19)
    layer = Recurrence(kind(D_X, D_H), reverse=reverse)
    x = torch.randn(11, D_X, requires_grad=True)
    out = layer(x, Layout.of([11]))
    for t in (0, 4, 10):
        (gradient,) = torch.autograd.grad(out[t].sum(), x, retain_graph=True)
        unread = range(t) if reverse else range(t + 1, 11)
        assert not gradient[list(unread)].any()
        assert gradient[[i for i in range(11) if i not in unread]].abs().sum(-1).gt(0).all()


def test_reading_backwards_is_reading_reversed_sequences():
    torch.manual_seed(23)
    cell, layout = GRUCell(D_X, D_H), Layout.of(LENGTHS)
    x = torch.randn(layout.n_tokens, D_X)
    backwards, last = Recurrence(cell, reverse=True).run(x, layout)
    onwards, same = Recurrence(cell).run(x[layout.backwards], layout)
    assert torch.equal(backwards, onwards[layout.backwards])
    assert torch.equal(last[0], same[0])


def test_a_bidirectional_layer_concatenates_and_sums_up_at_the_first_token():
    torch.manual_seed(29)
    layer, layout = both_ways(LSTMCell), Layout.of([4, 2])
    x = torch.randn(6, D_X)
    outputs, final = layer.run(x, layout)
    assert torch.equal(outputs[:, :D_H], layer.left_to_right(x, layout))
    assert torch.equal(outputs[:, D_H:], layer.right_to_left(x, layout))
    assert torch.equal(layer.output(final), outputs[[0, 4], D_H:])
    assert torch.equal(final[0], outputs[[3, 5], :D_H])


def test_a_stack_runs_its_layers_in_order_with_and_without_caches():
    torch.manual_seed(31)
    first, second = Recurrence(GRUCell(D_X, D_H)), Recurrence(LSTMCell(D_H, 3))
    stack, layout = (
        RecurrentStack([first, ResidualRecurrence(Recurrence(ElmanCell(D_H, D_H))), second]),
        Layout.of([3, 2]),
    )
    x = torch.randn(5, D_X)
    low = first(x, layout)
    wanted = second(low + stack.layers[1].layer(low, layout), layout)
    out, finals = stack.run(x, layout)
    assert torch.equal(out, wanted)
    assert torch.equal(stack(x, layout), wanted)
    assert torch.equal(stack.summary(finals), wanted[[2, 4]])
    assert stack.n_states == [1, 1, 2]
    assert stack.d_out == 3
    caches = [RecurrentCache() for _ in range(3)]
    stepped = [stack(x[[t, 3 + t]], Layout.of([1, 1], [t, t]), caches) for t in range(2)]
    torch.testing.assert_close(torch.stack(stepped, 1).flatten(0, 1), wanted[[0, 1, 3, 4]])


def test_dropout_lies_between_layers_only():
    torch.manual_seed(37)
    stack = RecurrentStack([Recurrence(ElmanCell(D_X, D_H)), Recurrence(ElmanCell(D_H, D_H))], dropout=0.5)
    x, layout = torch.randn(5, D_X), Layout.of([5])
    noisy, quiet = stack.run(x, layout), stack.eval().run(x, layout)
    assert torch.equal(noisy[1][0][0], quiet[1][0][0])
    assert not torch.equal(noisy[0], quiet[0])
    alone = RecurrentStack([Recurrence(ElmanCell(D_X, D_H))], dropout=0.5)
    assert torch.equal(alone(x, layout), alone.eval()(x, layout))


def test_no_tokens_at_all_leave_every_state_as_it_was():
    layer, layout = Recurrence(LSTMCell(D_X, D_H)), Layout.of([0, 0])
    state = (torch.randn(2, D_H), torch.randn(2, D_H))
    outputs, after = layer.run(torch.zeros(0, D_X), layout, state)
    assert outputs.shape == (0, D_H)
    assert all(torch.equal(a, b) for a, b in zip(after, state, strict=True))


def test_what_reads_backwards_cannot_continue():
    x, layout = torch.randn(2, D_X), Layout.of([2], [3])
    with pytest.raises(ValueError, match="cannot continue"):
        Recurrence(GRUCell(D_X, D_H), reverse=True)(x, layout)
    with pytest.raises(ValueError, match="cannot continue"):
        both_ways(GRUCell).run(x, Layout.of([2]), (torch.zeros(1, D_H), torch.zeros(1, D_H)))
    with pytest.raises(ValueError, match="reverse=True"):
        Bidirectional(Recurrence(GRUCell(D_X, D_H)), Recurrence(GRUCell(D_X, D_H)))
    with pytest.raises(ValueError, match="must be equal, got 5 and 7"):
        ResidualRecurrence(Recurrence(GRUCell(D_X, D_H)))
    with pytest.raises(ValueError, match="at least one layer"):
        RecurrentStack([])


@pytest.mark.parametrize("kind", CELLS)
def test_half_precision_products_keep_empty_rows_and_caches_usable(kind):
    torch.manual_seed(41)
    layer, x = Recurrence(kind(D_X, D_H)), torch.randn(21, D_X)
    wanted = layer(x, Layout.of(LENGTHS))
    with torch.autocast("cpu", torch.bfloat16):
        cache = RecurrentCache()
        out = layer(x, Layout.of(LENGTHS), cache)
        more = layer(x[:1], Layout.of([0, 0, 1, 0, 0], LENGTHS), cache)
    torch.testing.assert_close(out.float(), wanted, atol=0.05, rtol=0)
    torch.testing.assert_close(more.float(), layer(x[:1], Layout.of([1])), atol=0.05, rtol=0)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_tap_sees_the_states_of_all_tokens(reverse):
    torch.manual_seed(3)
    layer, layout = Recurrence(LSTMCell(D_X, D_H), reverse=reverse), Layout.of(LENGTHS)
    x = torch.randn(layout.n_tokens, D_X)
    with recording(layer, ["states"]) as seen:
        outputs, final = layer.run(x, layout)
    assert seen["states"][0] is outputs
    last = 3 if reverse else 13  # of the second sequence, the token that is read last
    assert torch.equal(outputs[last], final[0][1])
    with intervene(layer, {"states": torch.zeros_like}):
        replaced, after = layer.run(x, layout)
    assert not replaced.any()
    assert torch.equal(after[0], final[0])
