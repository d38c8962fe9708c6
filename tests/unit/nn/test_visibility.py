"""The dense form against a loop over every query and key; hints against the dense form."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.nn.layout import Layout
from heedful.nn.visibility import Visibility


@st.composite
def cases(draw):
    n = draw(st.integers(1, 4))
    row = lambda lo, hi: draw(st.lists(st.integers(lo, hi), min_size=n, max_size=n))  # noqa: E731
    return {
        "starts": row(0, 4),
        "lengths": row(0, 5),
        "keys": row(0, 7),
        "own": draw(st.booleans()),
        "causal": draw(st.booleans()),
        "window": draw(st.sampled_from([None, 1, 3])),
        "block": draw(st.sampled_from([None, 2, 3])),
        "earlier_blocks": draw(st.sampled_from([0, 0, 1, 2])),
        "key_stride": draw(st.sampled_from([1, 1, 2, 3])),
    }


def view_of(case):
    queries = Layout.of(case["lengths"], case["starts"])
    keys = queries.with_past if case["own"] else Layout.of(case["keys"])
    names = ("causal", "window", "block", "earlier_blocks", "key_stride")
    return Visibility.of(queries, keys, **{name: case[name] for name in names})


def blocks_back(view, p, r):
    return p // view.block - r // view.block


def loop(view):
    seen = torch.zeros(len(view.queries.lengths), view.queries.max_length, view.keys.max_length).bool()
    for b in range(seen.shape[0]):
        for i in range(seen.shape[1]):
            for j in range(view.keys.lengths[b]):
                p, r = view.queries.starts[b] + i, view.key_stride * (view.keys.starts[b] + j)
                seen[b, i, j] = (
                    (not view.causal or r <= p)
                    and (view.window is None or abs(p - r) < view.window)
                    and (view.block is None or blocks_back(view, p, r) in range(view.earlier_blocks + 1))
                )
    return seen


@given(cases())
def test_the_mask_equals_a_plain_loop(case):
    view = view_of(case)
    assert torch.equal(view.visible, loop(view))


@given(cases())
def test_hints_and_promises_agree_with_the_mask(case):
    view = view_of(case)
    real_queries = view.queries.real
    mask, real = view.visible, view.keys.real[:, None, :].expand(view.visible.shape)
    if view.hint == "all":
        assert mask[real_queries].all()
    if view.hint == "causal":
        lower = torch.ones(mask.shape[1:]).tril().bool().expand(mask.shape)
        assert torch.equal(mask[real_queries], lower[real_queries])
    if not view.masks_real_keys:
        assert torch.equal(mask[real_queries], real[real_queries])
    if view.every_query_sees_a_key:
        assert mask[real_queries].any(-1).all()


def test_an_arbitrary_set_of_keys_is_cut_with_the_rest():
    layout = Layout.of([3, 2])
    allowed = torch.tensor([[True, False, True], [False, True, True], [True, True, False]])
    view = Visibility.of(layout, layout, causal=True, allowed=allowed)
    wanted = torch.ones(3, 3).tril().bool() & allowed & layout.real[:, None]
    assert torch.equal(view.visible, wanted)


def test_both_readings_of_local_attention_at_the_edges_of_blocks():
    """Blocks of 3, a sequence of 8: first within the block, then its own and the one before."""
    layout = Layout.of([8])
    within = Visibility.of(layout, layout, causal=True, block=3)
    keys = [[0], [0, 1], [0, 1, 2], [3], [3, 4], [3, 4, 5], [6], [6, 7]]
    assert [row.nonzero().flatten().tolist() for row in within.visible[0]] == keys
    before = Visibility.of(layout, layout, causal=True, block=3, earlier_blocks=1)
    earlier = [[], [], [], [0, 1, 2], [0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5]]
    wanted = [a + b for a, b in zip(earlier, keys)]
    assert [row.nonzero().flatten().tolist() for row in before.visible[0]] == wanted
    # A query that continues a sequence: position 6 begins a block.
    later = Layout.of([1], [6])
    seen = Visibility.of(later, later.with_past, causal=True, block=3, earlier_blocks=1)
    assert seen.visible[0, 0].nonzero().flatten().tolist() == [3, 4, 5, 6]


def test_a_view_is_made_once():
    layout = Layout.of([3, 2])
    assert Visibility.of(layout, layout, causal=True) is Visibility.of(layout, layout, causal=True)
    assert Visibility.of(layout, layout, causal=True) is not Visibility.of(layout, layout)
