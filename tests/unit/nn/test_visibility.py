"""The dense form against a loop over every query and key; hints against the dense form."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import RequestError
from heedful.nn.layout import Layout
from heedful.nn.visibility import (
    Blocks,
    Dilated,
    Fixed,
    GlobalTokens,
    Mask,
    Strided,
    Tree,
    Visibility,
    Window,
)

TABLE = [[(3 * i + 5 * j) % 7 < 4 for j in range(24)] for i in range(12)]


def ancestors(position, branching):
    """The position and all above it."""
    return [position] if position == 0 else [position, *ancestors((position - 1) // branching, branching)]


PATTERNS = {
    **{Window(n): lambda p, r, n=n: abs(p - r) < n for n in (1, 3, 20)},
    **{
        Blocks(b, n): lambda p, r, b=b, n=n: p // b - r // b in range(-n, n + 1)
        for b, n in ((2, 0), (3, 0), (2, 1), (3, 2))
    },
    **{Dilated(n, s): lambda p, r, n=n, s=s: abs(p - r) in range(0, n * s, s) for n, s in ((2, 2), (2, 3))},
    **{Strided(n): lambda p, r, n=n: abs(p - r) < n or (p - r) % n == 0 for n in (2, 3, 20)},
    **{
        Fixed(b, c): lambda p, r, b=b, c=c: p // b == r // b or r % b in range(b - c, b)
        for b, c in ((2, 1), (4, 2))
    },
    **{
        GlobalTokens(n, w): lambda p, r, n=n, w=w: min(p, r) < n or abs(p - r) < w
        for n, w in ((1, 2), (2, 1), (3, 9))
    },
    **{Tree(b): lambda p, r, b=b: r in ancestors(p, b) for b in (2, 3)},
    Mask.of(torch.tensor(TABLE)): lambda p, r: TABLE[p][r],
}
"""Each pattern, and what it says in plain Python."""


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
        "pattern": draw(st.sampled_from([None, *PATTERNS])),
        "key_stride": draw(st.sampled_from([1, 1, 2, 3])),
    }


def view_of(case):
    queries = Layout.of(case["lengths"], case["starts"])
    keys = queries.with_past if case["own"] else Layout.of(case["keys"])
    names = ("causal", "pattern", "key_stride")
    return Visibility.of(queries, keys, **{name: case[name] for name in names})


def loop(view):
    seen = torch.zeros(len(view.queries.lengths), view.queries.max_length, view.keys.max_length).bool()
    for b in range(seen.shape[0]):
        for i in range(seen.shape[1]):
            for j in range(view.keys.lengths[b]):
                p, r = view.queries.starts[b] + i, view.key_stride * (view.keys.starts[b] + j)
                seen[b, i, j] = (not view.causal or r <= p) and (
                    view.pattern is None or PATTERNS[view.pattern](p, r)
                )
    return seen


@given(cases())
def test_the_mask_equals_a_plain_loop(case):
    view = view_of(case)
    real_queries = view.queries.real
    assert torch.equal(view.visible[real_queries], loop(view)[real_queries])


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
    within = Visibility.of(layout, layout, causal=True, pattern=Blocks(3))
    keys = [[0], [0, 1], [0, 1, 2], [3], [3, 4], [3, 4, 5], [6], [6, 7]]
    assert [row.nonzero().flatten().tolist() for row in within.visible[0]] == keys
    before = Visibility.of(layout, layout, causal=True, pattern=Blocks(3, 1))
    earlier = [[], [], [], [0, 1, 2], [0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5]]
    wanted = [a + b for a, b in zip(earlier, keys)]
    assert [row.nonzero().flatten().tolist() for row in before.visible[0]] == wanted
    # A query that continues a sequence: position 6 begins a block.
    later = Layout.of([1], [6])
    seen = Visibility.of(later, later.with_past, causal=True, pattern=Blocks(3, 1))
    assert seen.visible[0, 0].nonzero().flatten().tolist() == [3, 4, 5, 6]


def test_a_view_is_made_once():
    layout = Layout.of([3, 2])
    assert Visibility.of(layout, layout, causal=True) is Visibility.of(layout, layout, causal=True)
    assert Visibility.of(layout, layout, causal=True) is not Visibility.of(layout, layout)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
def test_what_a_pattern_promises_holds(pattern, n):
    visible = pattern.sees(torch.arange(n)[:, None], torch.arange(n))
    if pattern.covers(n):
        assert visible.all()
    if pattern.includes_self:
        assert visible.diagonal().all()


@pytest.mark.parametrize(
    "pattern", [Window(5), Blocks(5), Blocks(3, 1), Strided(5), Fixed(5), GlobalTokens(2, 3)]
)
def test_a_pattern_that_hides_nothing_needs_no_mask(pattern):
    layout = Layout.of([5, 5])
    assert Visibility.of(layout, layout, pattern=pattern).hint == "all"
    assert Visibility.of(layout, layout, causal=True, pattern=pattern).hint == "causal"
    longer = Layout.of([9, 9])
    assert Visibility.of(longer, longer, pattern=pattern).hint == "dense"


def test_a_mask_has_a_row_and_a_column_for_every_token():
    mask = Mask(("110", "011"))
    queries, keys = Layout.of([2]), Layout.of([3])
    assert Visibility.of(queries, keys, pattern=mask).visible.tolist() == [
        [[True, True, False], [False, True, True]]
    ]
    for pair, message in (
        ((keys, keys), r"\(3 and 3\), got 2 and 3"),
        ((queries, Layout.of([4])), r"\(2 and 4\)"),
    ):
        with pytest.raises(RequestError, match=message):
            Visibility.of(*pair, pattern=mask)
