"""Figures of experiments against what is known by formula, and the constructions against plain loops."""

import math
import statistics

import pytest
import torch
from torch.nn import functional

from heedful.lab import filters, heads, positions, scores
from heedful.lab.registry import experiment
from heedful.lab.result import perform
from heedful.lab.seeds import seeded
from heedful.nn.attention.scores import DotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.positions import SinusoidalPositions


def figures(name, control=False):
    measured = perform(experiment(name), "short", control=control).outcome.measured
    return {each.name: each for each in measured}


def figure(name, beginning, control=False):
    (found,) = [each for key, each in figures(name, control).items() if key.startswith(beginning)]
    return found.value


# What is expected, by a formula or a paper, is what was measured; statistics may differ by a tenth.
EXACT = (
    "heads-are-free", "wavelengths", "first-position", "position-distances", "one-hot-distances",
    "position-shift", "residual-paths", "pixels-as-tokens", "soft-lookup", "additive-is-concat",
    "attention-is-linear", "permutation-invariant", "constant-positions", "cosine-score",
    "attention-as-filter", "learned-positions",
)  # fmt: skip
MEASURED = ("dot-product-scale", "scale-by-words", "parameter-free")


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("name", [*EXACT, *MEASURED])
def test_what_is_expected_is_measured(name, control):
    compared = 0
    for each in figures(name, control).values():
        if each.expected is None or (name, control) in _CONTRADICTED:
            continue
        compared += 1
        tolerance = {"rel": 1e-6, "abs": 1e-4} if name in EXACT else {"rel": 0.1, "abs": 0.1}
        assert each.value == pytest.approx(each.expected, **tolerance), each.name
    assert compared or control


# Controls that show just that what is expected does not come out.
_CONTRADICTED = {
    ("dot-product-scale", True),
    ("soft-lookup", True),
    ("additive-is-concat", True),
    ("residual-paths", True),
}


def test_the_longest_wavelength_is_60611():
    (row,) = [
        row
        for row in perform(experiment("wavelengths"), "short").outcome.table
        if row["base of"] == "S0 and the paper"
    ]
    assert round(row["longest wavelength"]) == 60_611
    assert "60,611" in perform(experiment("wavelengths"), "short").outcome.says


def test_the_first_offset_with_a_smaller_distance_is_44():
    assert figure("position-distances", "first offset") == 44


def test_eight_full_heads_have_eight_times_the_parameters():
    assert figure("heads-are-free", "parameters of 8 heads") == 1_048_576
    assert figure("heads-are-free", "parameters of 8 heads", control=True) == 8 * 1_048_576


def test_one_head_leaves_half_and_two_leave_little():
    assert figure("two-lookups", "not explained, one head") == pytest.approx(50, abs=5)
    assert figure("two-lookups", "not explained, two heads") < 10
    assert figure("two-lookups", "not explained, one head", control=True) < 10


def test_the_gradient_of_the_softmax_is_its_jacobians_norm():
    with seeded(5):
        found = scores._softmax_of(DotScore(), 7, 3)
    with seeded(5):
        drawn = [torch.randn(n, 7) for _ in range(3) for n in (scores.N_QUERIES, scores.N_KEYS)]
    norms, tops, values = [], [], []
    for q, k in zip(drawn[::2], drawn[1::2], strict=True):
        for row in (q @ k.T).double():
            jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(0), row)
            norms.append(jacobian.norm().item())
            tops.append(row.softmax(0).max().item())
            values += row.tolist()
    # torch's median of an even number of values is the lower of the middle two.
    assert found.gradient == pytest.approx(statistics.median_low(norms), rel=1e-6)
    assert found.top == pytest.approx(statistics.mean(tops), rel=1e-6)
    assert found.variance == pytest.approx(statistics.variance(values), rel=1e-6)


def test_s0s_formula_is_built_as_printed():
    rows, d = positions._as_printed(5), positions.SHIFTED_WIDTH
    for j in range(5):
        for i in range(d // 2):
            assert rows[j, 2 * i].item() == pytest.approx(math.sin(j / 10000 ** (2 * i / d)), abs=1e-12)
            assert rows[j, 2 * i + 1].item() == pytest.approx(
                math.cos(j / 10000 ** ((2 * i + 1) / d)), abs=1e-12
            )


def test_unevenness_is_seen():
    distances = positions._distances(SinusoidalPositions(8), 20)
    assert positions._uneven(distances) < 1e-9
    distances[3, 7] += 0.25
    assert positions._uneven(distances) == pytest.approx(0.25)


@pytest.mark.parametrize("values, fall", [([0, 1, 2], None), ([0, 1, 1], None), ([0, 2, 1, 3, 0], 2)])
def test_the_first_fall(values, fall):
    assert positions._first_fall(values) == fall


def test_as_many_heads_as_places_convolve_and_one_less_does_not():
    generator = torch.Generator().manual_seed(1)
    picture = torch.randn(filters.CHANNELS_IN, 5, 6, generator=generator)
    shape = filters.CHANNELS_OUT, filters.CHANNELS_IN, 3, 3
    kernel = torch.randn(shape, generator=generator)
    wanted = torch.zeros(filters.CHANNELS_OUT, 5, 6)
    padded = functional.pad(picture, (1, 1, 1, 1))
    for row in range(5):
        for column in range(6):
            window = padded[:, row : row + 3, column : column + 3]
            wanted[:, row, column] = torch.einsum("oikl,ikl->o", kernel, window)
    with torch.no_grad():
        nine = filters._applied(filters.convolving_attention(kernel, 128.0, 9), picture)
        eight = filters._applied(filters.convolving_attention(kernel, 128.0, 8), picture)
    torch.testing.assert_close(nine, wanted, rtol=0, atol=1e-4)
    assert (eight - wanted).abs().max() > 0.1


def test_many_heads_share_the_width_that_one_has():
    one, two = (
        sum(p.numel() for p in SelfAttention(heads.FEATURES + heads.PLACES, h).parameters()) for h in (1, 2)
    )
    assert one == two == figure("two-lookups", "parameters")


def test_a_seed_gives_the_same_numbers_and_leaves_the_generator_alone():
    state = torch.get_rng_state()
    with seeded(3):
        first = torch.rand(5)
    assert torch.equal(torch.get_rng_state(), state)
    with seeded(3):
        assert torch.equal(torch.rand(5), first)
    with seeded(4):
        assert not torch.equal(torch.rand(5), first)
