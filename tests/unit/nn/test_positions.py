"""Positions: the formula number by number, and the properties that the lectures claim or ask about."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import RequestError
from heedful.nn.positions import (
    Added,
    Concatenated,
    ConstantPositions,
    GridPositions,
    LearnedPositions,
    NoPositions,
    OneHotPositions,
    SinusoidalPositions,
)

SHUFFLED = torch.tensor([4, 0, 3, 3, 11, 1])


def _double(d=512, **settings):
    part = SinusoidalPositions(d, **settings)
    part.table = part.table.double()
    return part


def _all_parts():
    return [
        SinusoidalPositions(6),
        GridPositions(3, 4, 8, before=1),
        LearnedPositions(13, 6),
        OneHotPositions(13),
        ConstantPositions(6),
        NoPositions(6),
    ]


# Sinusoids


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("offset", [0, 2])
def test_sinusoids_by_loop(interleaved, offset):
    d, base = 14, 500.0
    part = SinusoidalPositions(d, base=base, interleaved=interleaved, offset=offset)
    expected = torch.zeros(len(SHUFFLED), d)
    for row, p in enumerate(SHUFFLED.tolist()):
        for i in range(d // 2):
            angle = (p + offset) / base ** (2 * i / d)
            sine, cosine = (2 * i, 2 * i + 1) if interleaved else (i, d // 2 + i)
            expected[row, sine], expected[row, cosine] = math.sin(angle), math.cos(angle)
    torch.testing.assert_close(part(SHUFFLED), expected)


def test_the_first_position_is_zero_one_zero_one():
    assert SinusoidalPositions(512)(torch.tensor([0]))[0].tolist() == [0.0, 1.0] * 256


def test_wavelengths_run_from_two_pi_to_60611_at_width_512():
    wavelengths = SinusoidalPositions(512).wavelengths()
    assert wavelengths.shape == (256,)
    assert wavelengths[0].item() == pytest.approx(2 * math.pi, rel=1e-14)
    assert round(wavelengths[-1].item()) == 60_611
    assert wavelengths[-1].item() == pytest.approx(2 * math.pi * 10000 ** (510 / 512), rel=1e-12)
    ratios = wavelengths[1:] / wavelengths[:-1]
    torch.testing.assert_close(ratios, torch.full((255,), 10000 ** (2 / 512), dtype=torch.float64))


def test_a_base_of_1000_does_not_reach_the_wavelengths_that_are_claimed_for_it():
    longest = SinusoidalPositions(512, base=1000.0).wavelengths()[-1].item()
    assert longest < 2 * math.pi * 1000 < 2 * math.pi * 10000


@settings(max_examples=30, deadline=None)
@given(p=st.integers(0, 5000), k=st.integers(0, 500), interleaved=st.booleans())
def test_products_depend_on_the_offset_alone(p, k, interleaved):
    part = _double(64, interleaved=interleaved)
    a, b = part(torch.tensor([p, p + k]))
    expected = sum(math.cos(k * 10000 ** (-2 * i / 64)) for i in range(32))
    assert (a @ b).item() == pytest.approx(expected, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(p=st.integers(0, 5000), k=st.integers(0, 500))
def test_a_shift_is_a_rotation_of_each_pair(p, k):
    d = 10
    part = _double(d)
    rotation = torch.zeros(d, d, dtype=torch.float64)
    for i in range(d // 2):
        angle = k * 10000 ** (-2 * i / d)
        c, s = math.cos(angle), math.sin(angle)
        rotation[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[c, s], [-s, c]], dtype=torch.float64)
    before, after = part(torch.tensor([p, p + k]))
    torch.testing.assert_close(after, rotation @ before, atol=1e-9, rtol=0)


def test_distances_are_symmetric_and_grow_up_to_an_offset_of_43_at_width_512():
    vectors = _double(512)(torch.arange(120))
    distances = torch.cdist(vectors, vectors)
    torch.testing.assert_close(distances, distances.T)
    from_start = distances[0]
    falls = [k for k in range(1, 120) if from_start[k] < from_start[k - 1]]
    assert falls[0] == 44
    # The same from a position in the middle, in both directions.
    torch.testing.assert_close(distances[60, 60:], from_start[:60], atol=1e-6, rtol=0)
    torch.testing.assert_close(distances[60, :61].flip(0), from_start[:61], atol=1e-6, rtol=0)


def test_far_positions_keep_their_precision():
    p = 1_000_003
    row = SinusoidalPositions(8)(torch.tensor([p]))[0]
    expected = [f(p / 10000 ** (2 * i / 8)) for i in range(4) for f in (math.sin, math.cos)]
    torch.testing.assert_close(row, torch.tensor(expected))


def test_the_table_grows_without_changing_what_it_held_and_is_not_saved():
    part = SinusoidalPositions(6)
    before = part(torch.arange(200))
    part(torch.tensor([1000]))
    assert torch.equal(part(torch.arange(200)), before)
    assert part.state_dict() == {}


def test_a_model_in_bf16_has_its_table_in_bf16_however_far_it_grows():
    part = SinusoidalPositions(6).to(torch.bfloat16)
    exact = SinusoidalPositions(6)
    for last in (5, 700):
        y = part(torch.tensor([last]))
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(y, exact(torch.tensor([last])).to(torch.bfloat16))


@pytest.mark.parametrize("settings", [{"d": 7}, {"d": 0}, {"d": 8, "base": 1.0}, {"d": 8, "offset": -1}])
def test_sinusoids_refuse_impossible_settings(settings):
    with pytest.raises(ValueError, match=r"must be even|base must be above 1"):
        SinusoidalPositions(**settings)


# A grid


def test_places_of_a_grid_by_loop():
    rows, columns, d, before = 3, 5, 12, 2
    table = GridPositions(rows, columns, d, before)(torch.arange(before + rows * columns))
    assert not table[:before].any()
    for row in range(rows):
        for column in range(columns):
            found = table[before + row * columns + column].tolist()
            for half, place in enumerate((row, column)):
                for i in range(d // 4):
                    angle = place / 10000 ** (2 * i / (d // 2))
                    at = half * d // 2 + 2 * i
                    assert found[at : at + 2] == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-6)


def test_places_of_a_grid_know_how_they_lie_to_each_other_and_no_more():
    rows, columns, d = 7, 11, 20
    grid = (
        GridPositions(rows, columns, d)(torch.arange(rows * columns)).double().unflatten(0, (rows, columns))
    )
    for down, right in [(0, 1), (1, 0), (2, 3), (3, -2)]:
        moved = grid.roll((-down, -right), (0, 1))
        inside = moved[: rows - down, max(0, -right) : columns - max(0, right)]
        here = grid[: rows - down, max(0, -right) : columns - max(0, right)]
        products = (here * inside).sum(-1)
        torch.testing.assert_close(products, products[:1, :1].expand_as(products), rtol=0, atol=1e-5)
    alike = (grid[0, 0] * grid).sum(-1)
    assert alike.argmax() == 0
    assert (alike.flatten()[1:] < alike[0, 0] - 0.01).all()


def test_a_grid_needs_a_width_of_two_pairs():
    with pytest.raises(ValueError, match="a multiple of 4, got 6"):
        GridPositions(2, 3, 6)
    with pytest.raises(RequestError, match="position 6 is out of range: the model has 6 positions"):
        GridPositions(2, 3, 8)(torch.tensor([6]))


# The others


def test_learned_positions_are_rows_of_the_table_and_learn():
    part = LearnedPositions(13, 5)
    assert part.weight.shape == (13, 5)
    y = part(SHUFFLED)
    assert torch.equal(y, part.weight[SHUFFLED])
    y.sum().backward()
    counts = [SHUFFLED.tolist().count(p) for p in range(13)]
    assert torch.equal(part.weight.grad, torch.tensor(counts).float()[:, None].expand(13, 5))
    assert part.weight.abs().max().item() <= math.sqrt(6 / (13 + 5))


def test_a_position_that_many_sequences_have_gets_the_whole_of_its_gradient():
    """Adding 1 in bf16 ends at 256."""
    part = LearnedPositions(3, 5).bfloat16()
    part(torch.tensor([0, 2] * 2048)).sum().backward()
    assert part.weight.grad.tolist() == [[2048.0] * 5, [0.0] * 5, [2048.0] * 5]


@pytest.mark.parametrize("part", [LearnedPositions(13, 5), OneHotPositions(13)])
def test_a_position_beyond_the_table_is_refused_by_name(part):
    part(torch.tensor([12]))
    with pytest.raises(RequestError, match=r"position 13 .* 13 positions .*max_length of at least 14"):
        part(torch.tensor([2, 13, 4]))


def test_one_hot_positions_are_unit_vectors_all_equally_far_apart():
    vectors = OneHotPositions(13)(torch.arange(13))
    assert torch.equal(vectors, torch.eye(13))
    distances = torch.cdist(vectors, vectors)
    torch.testing.assert_close(distances, math.sqrt(2) * (1 - torch.eye(13)))


def test_constant_positions_hold_the_position_in_every_element():
    assert ConstantPositions(3)(torch.tensor([0, 4, 9])).tolist() == [[0.0] * 3, [4.0] * 3, [9.0] * 3]
    assert ConstantPositions(2, scale=1 / 8)(torch.tensor([2])).tolist() == [[0.25, 0.25]]


def test_no_positions_are_zero():
    assert torch.equal(NoPositions(5)(SHUFFLED), torch.zeros(6, 5))


@pytest.mark.parametrize("part", _all_parts(), ids=lambda part: type(part).__name__)
def test_the_contract(part):
    limits = {GridPositions: 13, LearnedPositions: 13, OneHotPositions: 13}
    assert part.max_length == limits.get(type(part))
    y = part(SHUFFLED)
    assert y.shape == (len(SHUFFLED), part.d)
    assert torch.equal(y[2], y[3])  # one position, one vector
    for row, p in zip(y, SHUFFLED, strict=True):
        assert torch.equal(part(p[None])[0], row)
    assert part(torch.empty(0, dtype=torch.int64)).shape == (0, part.d)


# Joining them to embeddings


@pytest.mark.parametrize("part", _all_parts(), ids=lambda part: type(part).__name__)
def test_added_and_concatenated(part):
    x = torch.randn(len(SHUFFLED), part.d)
    added, joined = Added(part), Concatenated(part)
    torch.testing.assert_close(added(x, SHUFFLED), x + part(SHUFFLED))
    assert added.output_width(part.d) == part.d
    wide = joined(x[:, :5], SHUFFLED)
    assert wide.shape[1] == joined.output_width(5) == 5 + part.d
    assert torch.equal(wide[:, :5], x[:, :5])
    assert torch.equal(wide[:, 5:], part(SHUFFLED))


def test_added_refuses_another_width_and_does_not_broadcast():
    part = Added(ConstantPositions(1))
    with pytest.raises(ValueError, match="width of added positions must be 5, got 1"):
        part.output_width(5)
    with pytest.raises(ValueError, match="width of added positions must be 5, got 1"):
        part(torch.randn(6, 5), SHUFFLED)


@pytest.mark.parametrize("join", [Added, Concatenated])
def test_embeddings_keep_their_type(join):
    x = torch.randn(6, 6, dtype=torch.bfloat16)
    for part in _all_parts():
        if part.d == 6:
            assert join(part)(x, SHUFFLED).dtype == torch.bfloat16


def test_another_thread_may_replace_the_table_at_any_time(monkeypatch):
    """Between the check of its size and the look-up, by a smaller one."""
    part, small = SinusoidalPositions(6), SinusoidalPositions(6)
    small(torch.arange(3))
    positions = torch.tensor([1999, 0, 700])
    wanted = SinusoidalPositions(6)(positions)
    table_for = part._table_for

    def interrupted(n):
        table = table_for(n)
        part.table = small.table
        return table

    monkeypatch.setattr(part, "_table_for", interrupted)
    for _ in range(2):
        assert torch.equal(part(positions), wanted)
