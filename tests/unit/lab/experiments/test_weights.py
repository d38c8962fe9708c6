"""Experiments on the softmax and on lookups: as printed against numpy, corrected against torch."""

import math

import numpy as np
import pytest
import torch
from sweep import Laws, curve, hold_what_is_expected, judged, made, value, verdict_of
from torch.nn import functional

from heedful.lab.experiments import weights
from heedful.nn.visibility import Visibility


class TestExperiments(Laws):
    family = "weights"


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
    q, k = (weights._draw_vectors(weights._N, seed).double().numpy() for seed in (1, 2))
    e = np.exp(q @ k.T)
    np.testing.assert_allclose(sums, (e / (math.sqrt(16) * e.sum(-1, keepdims=True))).sum(-1), rtol=1e-5)


def test_one_softmax_is_torchs_and_two_are_flat():
    q, k, v = (weights._draw_vectors(weights._N, seed) for seed in (1, 2, 3))
    result, _ = weights._attend_masked_once(q, k, v)
    torch.testing.assert_close(
        result, functional.scaled_dot_product_attention(*(x[None] for x in (q, k, v)), is_causal=True)[0]
    )
    _, twice = weights._attend_masked_twice(q, k, v)
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


def test_cross_attention_sees_the_whole_source_and_causal_attention_what_came_before():
    n = weights._N
    for control, wanted in ((False, np.ones((n, n))), (True, np.tril(np.ones((n, n))))):
        (panel,) = made("masked-cross-attention", control).panels
        np.testing.assert_array_equal(panel.values, wanted)
    assert value("masked-cross-attention", "words that are seen before") == n * (n - 1) / 2
    hold_what_is_expected("masked-cross-attention", True)


def test_a_mask_in_cross_attention_would_be_found(monkeypatch):
    of = Visibility.of
    monkeypatch.setattr(Visibility, "of", lambda queries, keys, **_: of(queries, keys, causal=True))
    assert (
        judged("masked-cross-attention", weights.find_visible_words("short", cross=True)).verdict == "holds"
    )


def test_what_is_expected_of_controls_is_measured():
    for name in ("score-over-width", "scale-outside-softmax", "double-softmax"):
        hold_what_is_expected(name, True, abs=0.15)


def test_what_is_expected_is_measured():
    hold_what_is_expected("soft-lookup", rel=1e-6, abs=1e-4)
    for control in (False, True):
        hold_what_is_expected("parameter-free", control, rel=0.1, abs=0.1)


def test_a_layer_with_parameters_is_not_parameter_free():
    assert verdict_of("parameter-free", home=100.0, parameters=0.0) == "holds"
    assert verdict_of("parameter-free", home=100.0, parameters=64.0) == "is wrong"


def test_the_colder_the_nearer_to_the_best_key():
    coldness, differences = curve("soft-lookup", 0, "")
    assert list(coldness) == sorted(coldness)
    assert differences[-1] < 1e-6 < differences[0]


def test_the_query_decides_whose_value_comes_out():
    name = "summary-without-count"
    assert value(name, "answers that are nearest") > 90
    for row in made(name, True).table:  # all answers are one
        assert row["nearest to the one asked for"] == pytest.approx(1 / row["values"])
    for control in (False, True):
        hold_what_is_expected(name, control, abs=1e-5)


def test_a_sum_grows_with_the_table_and_a_mean_does_not():
    times, sizes = curve("summary-without-count", 1, "sum, not divided")
    assert sizes == pytest.approx(times)
    _, sizes = curve("summary-without-count", 1, "weighted mean")
    assert sizes == pytest.approx([1] * len(times))


@pytest.mark.parametrize(
    "least, change, verdict",
    [(0.95, 1e-6, "holds with conditions"), (0.95, 0.1, "holds"), (0.5, 1e-6, "is wrong")],
)
def test_the_verdict_on_a_summary(least, change, verdict):
    assert verdict_of("summary-without-count", n_widths=1, least=least, change=change) == verdict
    assert verdict_of("summary-without-count", n_widths=2, least=least, change=change) == "is wrong"


def test_of_weights_that_are_not_divided_a_summary_is_counted(monkeypatch):
    """What is measured of repeated rows can come out the other way."""
    monkeypatch.setattr(
        weights, "_soft_lookup", lambda q, k, v: (q @ k.mT).exp() @ v / (q @ k.mT).exp().max()
    )
    outcome = judged(
        "summary-without-count", weights.measure_answers_by_table_size_and_repetition("short", asking=True)
    )
    assert outcome.measured[3].value > 1
    assert outcome.verdict != "holds with conditions"
