"""What the lectures print wrongly: formulas against numpy and torch, and that nothing is left out."""

import math

import numpy as np
import pytest
import torch
from outcomes import curve, made, measured, value
from torch.nn import functional

from heedful.lab import arithmetic, errors, mixing, norms, recurrence, training_forms, warmup

MODULES = (norms, warmup, recurrence, training_forms, mixing, arithmetic, errors)
# Items with an error or a gap that these modules speak of; those of positions and scores are elsewhere too.
ERRING = {2, 4, 14, 20, 22, 24, 28, 32, 37, 42, 43, 44, 47, 51, 54, 74, 96}


def test_every_error_has_an_experiment_or_a_sentence():
    wrong = {
        item
        for module in MODULES
        for each in module.EXPERIMENTS
        if each.expected[0] == "is wrong"
        for item in each.items
    }
    told = wrong | {slip.item for slip in errors.NAMES}
    assert not ERRING - told


def test_sentences_differ_and_name_their_lecture():
    assert len({(slip.item, slip.printed) for slip in errors.NAMES}) == len(errors.NAMES)
    for slip in errors.NAMES:
        assert slip.lecture in {"S0", "S1", "S2", "S3", "S4"}
        assert slip.printed != slip.correct


@pytest.mark.parametrize("d_k", [4, 256])
def test_scores_have_the_variance_of_their_width(d_k):
    generator = torch.Generator().manual_seed(d_k)
    q, k = (torch.randn(512, d_k, generator=generator).double().numpy() for _ in range(2))
    products = q @ k.T
    control = value("score-over-width", f"variance of the scores, d_k = {d_k}", control=True)
    assert control == pytest.approx(products.var(ddof=1) / d_k, rel=1e-4)
    run = value("score-over-width", f"variance of the scores, d_k = {d_k}")
    assert run == pytest.approx(products.var(ddof=1) / d_k**2, rel=1e-4)
    assert value("score-over-width", "variance of heedful's") == pytest.approx(1, abs=0.1)


def test_a_scale_outside_leaves_rows_that_are_too_small():
    assert value("scale-outside-softmax", "sum of a row") == pytest.approx(1 / 4)
    assert value("scale-outside-softmax", "sum of a row", control=True) == pytest.approx(1)
    _, sums = curve("scale-outside-softmax", 0, "as computed")
    q, k = (errors._vectors(errors._N, seed).double().numpy() for seed in (1, 2))
    e = np.exp(q @ k.T)
    np.testing.assert_allclose(sums, (e / (math.sqrt(16) * e.sum(-1, keepdims=True))).sum(-1), rtol=1e-5)


def test_the_table_of_it():
    wanted = {"The": 0.96, "animal": 0.93, "didn't": 0.98, "it": 0.96}
    for word, total in wanted.items():
        assert value("table-of-it", f"sum of the row of “{word}”") == pytest.approx(total)
        assert value("table-of-it", f"sum of the row of “{word}”", control=True) == pytest.approx(1)
        assert errors.TABLE[word]
    assert max(errors.TABLE["it"]) == errors.TABLE["it"][1]  # animal


def test_one_softmax_is_torchs_and_two_are_flat():
    q, k, v = (errors._vectors(errors._N, seed) for seed in (1, 2, 3))
    result, _ = errors._masked_once(q, k, v)
    torch.testing.assert_close(
        result, functional.scaled_dot_product_attention(*(x[None] for x in (q, k, v)), is_causal=True)[0]
    )
    _, twice = errors._masked_twice(q, k, v)
    a = np.exp(q.double().numpy() @ k.double().numpy().T)
    a /= a.sum(-1, keepdims=True)
    e = np.tril(np.exp(a))
    np.testing.assert_allclose(twice, e / e.sum(-1, keepdims=True), rtol=1e-4, atol=1e-7)
    assert value("double-softmax", "greatest weight to smallest") <= math.e + 1e-5
    assert value("double-softmax", "greatest weight to smallest", control=True) > math.e
    assert value("double-softmax", "largest change", control=True) == 0
    assert value("double-softmax", "largest change") > 1e-3


def test_padding_changes_nothing_where_it_is_hidden():
    assert value("padding-in-cross-attention", "change of a sentence by", control=True) < 1e-6
    assert value("padding-in-cross-attention", "change of a sentence by") > 0.01
    for control in (False, True):
        assert value("padding-in-cross-attention", "result over an empty source", control) == 0
        assert value("padding-in-cross-attention", "softmax of minus infinity", control) == 0
    assert made("padding-in-cross-attention").table[0]["largest change"] < 1e-6  # no pads, no change


def test_a_causal_mask_hides_the_source():
    _, seen = curve("masked-cross-attention", 0, "seen")
    assert list(seen) == list(range(1, errors._N + 1))
    assert value("masked-cross-attention", "source words that the first", control=True) == errors._N


def test_s0s_sinusoids_are_built_as_printed():
    rows, d = errors.as_printed(6, 8), 8
    assert rows.shape == (6, 10)
    for j in range(6):
        for i in range(5):
            assert rows[j, 2 * i].item() == pytest.approx(math.sin(j / 10_000 ** (2 * i / d)), abs=1e-12)
            assert rows[j, 2 * i + 1].item() == pytest.approx(
                math.cos(j / 10_000 ** ((2 * i + 1) / d)), abs=1e-12
            )


def test_columns_and_products_of_positions():
    assert value("sinusoid-columns", "columns") == 514
    assert value("sinusoid-columns", "columns", control=True) == 512
    wanted = sum(math.cos(16 / 10_000 ** (2 * i / 512)) for i in range(256))
    assert value("sinusoid-columns", "p_0 · p_16", control=True) == pytest.approx(wanted, rel=1e-6)
    assert value("sinusoid-columns", "spread", control=True) < 1e-6 < value("sinusoid-columns", "spread")


@pytest.mark.parametrize("shape", errors.SHAPES, ids=lambda shape: f"{shape.lecture} {shape.printed}")
def test_shapes_do_not_fit_as_printed_and_do_corrected(shape):
    assert errors.shape_of(shape.as_printed) != shape.wanted
    assert errors.shape_of(shape.corrected) == shape.wanted


def test_what_is_expected_of_controls_is_measured():
    for name in ("score-over-width", "scale-outside-softmax", "double-softmax", "printed-shapes"):
        for each in made(name, control=True).measured:
            if each.expected is not None:
                assert each.value == pytest.approx(each.expected, abs=0.15)
    assert measured("printed-shapes", "formulas that give").expected == len(errors.SHAPES)
