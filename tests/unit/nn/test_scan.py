"""The order of steps against plain sorting, and the scan against one loop for each sequence."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.nn.layout import Layout
from heedful.nn.scan import TimeMajor, scan

lengths_of = st.lists(st.integers(0, 6), min_size=1, max_size=5)


@given(lengths_of, st.booleans())
def test_the_order_is_step_by_step_with_the_longest_first(lengths, reverse):
    layout = Layout.of(lengths)
    order = TimeMajor.of(layout, reverse=reverse)
    rows = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    begins = [sum(lengths[:row]) for row in range(len(lengths))]
    wanted = [
        begins[row] + (lengths[row] - 1 - t if reverse else t)
        for t in range(max(lengths))
        for row in rows
        if lengths[row] > t
    ]
    assert order.rows.tolist() == rows
    assert order.tokens.tolist() == wanted
    assert list(order.sizes) == [sum(n > t for n in lengths) for t in range(max(lengths))]
    x = torch.randn(layout.n_tokens, 2)
    assert torch.equal(order.to_packed(order.to_time_major(x)), x)
    assert torch.equal(order.rows[order.ranks], torch.arange(len(lengths)))


@given(lengths_of.filter(any))
def test_a_scan_equals_one_loop_for_each_sequence(lengths):
    layout = Layout.of(lengths)
    order = TimeMajor.of(layout)
    x, start = torch.randn(layout.n_tokens), torch.randn(len(lengths))

    def step(now, carry):
        (x_t,) = now
        total = 0.5 * carry[0] + x_t
        return (total.exp(), None), (total, None)

    (outputs, nothing), (final, none) = scan(step, order, (order.to_time_major(x),), (start, None))
    wanted, ends = [], []
    for total, own in zip(start, x.split(lengths)):
        for value in own:
            total = 0.5 * total + value
            wanted.append(total.exp())
        ends.append(total)
    assert torch.equal(order.to_packed(outputs), torch.stack(wanted))
    assert torch.equal(final, torch.stack(ends))
    assert nothing is None
    assert none is None


@given(lengths_of.filter(any), st.booleans())
def test_the_gradient_of_the_order_is_the_way_back(lengths, reverse):
    layout = Layout.of(lengths)
    order = TimeMajor.of(layout, reverse=reverse)
    x = torch.randn(layout.n_tokens, 3, requires_grad=True)
    probe = torch.randn(layout.n_tokens, 3)
    (got,) = torch.autograd.grad((order.to_time_major(x) * probe).sum(), x)
    (wanted,) = torch.autograd.grad((x[order.tokens] * probe).sum(), x)
    assert torch.equal(got, wanted)


def test_only_running_sequences_are_computed():
    layout = Layout.of([2, 0, 5, 3])
    order = TimeMajor.of(layout)
    seen = []

    def step(now, carry):
        (x_t,) = now
        seen.append(len(x_t))
        return carry, carry

    scan(step, order, (torch.zeros(10),), (torch.zeros(4),))
    assert seen == [3, 3, 2, 1, 1]
