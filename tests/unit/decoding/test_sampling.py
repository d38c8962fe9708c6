import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from heedful.decoding.greedy import greedy
from heedful.decoding.protocol import Request, StepOutput
from heedful.decoding.sampling import (
    MbrConfig,
    SampleConfig,
    Uniforms,
    draw,
    keep_epsilon,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    sample,
    sharpen,
)
from heedful.errors import WorkError
from heedful.nn.state import State

ROWS = st.lists(
    st.lists(st.floats(-6, 6, width=16) | st.just(-math.inf), min_size=7, max_size=7).filter(
        lambda row: max(row) > -math.inf
    ),
    min_size=1,
    max_size=3,
)


def probabilities(row):
    weights = [math.exp(w - max(row)) for w in row]
    return [w / sum(weights) for w in weights]


def kept(weights):
    return [[i for i, w in enumerate(row) if w > -math.inf] for row in weights.tolist()]


@given(ROWS, st.integers(1, 9))
def test_top_k_by_hand(rows, k):
    got = keep_top_k(torch.tensor(rows), k)
    for row, left, ids in zip(rows, got.tolist(), kept(got), strict=True):
        best = sorted(range(7), key=lambda i: (-row[i], i))[:k]
        assert ids == sorted(i for i in best if row[i] > -math.inf)
        assert [left[i] for i in ids] == [row[i] for i in ids]


@given(ROWS, st.sampled_from([0.0, 0.1313, 0.5171, 0.9191, 0.9973]))
def test_top_p_by_hand(rows, p):
    got = keep_top_p(torch.tensor(rows), p)
    for row, left, ids in zip(rows, got.tolist(), kept(got), strict=True):
        chances, held, expected = probabilities(row), 0.0, []
        for i in sorted(range(7), key=lambda i: (-row[i], i)):
            if held < p - 1e-6 or not expected:
                expected.append(i)
            elif held < p + 1e-6:
                return  # too close to call in 32 bits
            held += chances[i]
        assert ids == sorted(i for i in expected if row[i] > -math.inf)
        assert [left[i] for i in ids] == [row[i] for i in ids]


@given(ROWS, st.sampled_from([0.0101, 0.1313, 0.5171, 0.9191]))
def test_min_p_by_hand(rows, p):
    got = keep_min_p(torch.tensor(rows), p)
    for row, ids in zip(rows, kept(got), strict=True):
        chances = probabilities(row)
        assert ids == [i for i in range(7) if chances[i] >= p * max(chances) and row[i] > -math.inf]


@given(ROWS, st.sampled_from([0.0101, 0.1313, 0.5171, 0.9191, 1.0]))
def test_epsilon_by_hand(rows, epsilon):
    got = keep_epsilon(torch.tensor(rows), epsilon)
    for row, left, ids in zip(rows, got.tolist(), kept(got), strict=True):
        chances = probabilities(row)
        if any(abs(chance - epsilon) < 1e-6 for chance in chances):
            return  # too close to call in 32 bits
        assert ids == [
            i for i in range(7) if (chances[i] >= epsilon or row[i] == max(row)) and row[i] > -math.inf
        ]
        assert [left[i] for i in ids] == [row[i] for i in ids]


def test_minimum_bayes_risk_needs_samples_that_differ_and_as_many_as_answers():
    with pytest.raises(ValidationError, match=r"n_best must be at most n \(4\), got 5"):
        MbrConfig(n=4, n_best=5)
    for n in (1, 3):
        with pytest.raises(ValidationError, match="temperature"):
            MbrConfig(n=n, temperature=0.0)


def test_a_min_p_of_one_keeps_the_most_probable():
    assert kept(keep_min_p(torch.tensor([[0.5, 2.0, 2.0, 1.9]]), 1.0)) == [[1, 2]]


@pytest.mark.parametrize("temperature", [0.3, 1.0, 7.0])
def test_sharpening_divides(temperature):
    rows = torch.randn(3, 7, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(
        sharpen(rows, temperature).softmax(1), (rows.double() / temperature).softmax(1).float()
    )


def test_sharpening_to_the_utmost_leaves_the_greatest():
    assert sharpen(torch.tensor([[-3.0, -1.0, -math.inf]]), 1e-45).tolist() == [[-math.inf, 0.0, -math.inf]]


@given(ROWS, st.floats(0, 1, exclude_max=True))
def test_draws_invert_the_cumulative_distribution(rows, u):
    got = draw(torch.tensor(rows), torch.full((len(rows),), u, dtype=torch.float64)).tolist()
    for row, token in zip(rows, got, strict=True):
        chances = probabilities(row)
        assert chances[token] > 0
        assert sum(chances[:token]) <= u + 1e-9
        assert sum(chances[: token + 1]) >= u - 1e-9


@pytest.mark.parametrize("u", [0.0, 1 - 2.0**-53])
def test_the_ends_of_the_interval_draw_possible_tokens(u):
    rows = torch.tensor([[-math.inf, 0.0, 1.0, -math.inf], [-math.inf, -math.inf, 3.0, -math.inf]])
    first_or_last = [1, 2] if u == 0 else [2, 2]
    assert draw(rows, torch.full((2,), u, dtype=torch.float64)).tolist() == first_or_last


def test_uniforms_depend_on_seed_ordinal_and_sample_alone():
    whole = Uniforms(5, [0, 1, 2, 2**33], 3).draw(11)
    assert whole.shape == (4, 3, 11)
    assert torch.equal(Uniforms(5, [2**33, 1], 2).draw(7), whole[[3, 1], :2, :7])
    every = torch.cat([whole, Uniforms(6, [0, 1, 2, 2**33], 3).draw(11)]).flatten()
    assert len(every.unique()) == every.numel()
    assert ((every >= 0) & (every < 1)).all()


def test_blocks_of_uniforms_are_one_stream():
    whole, blocks = Uniforms(5, [0, 3], 2).draw(700), Uniforms(5, [0, 3], 2)
    assert torch.equal(torch.stack([blocks.at(i) for i in range(700)], dim=2), whole)


def test_uniforms_are_uniform():
    counts = torch.histc(Uniforms(3, range(50), 1).draw(1000).float(), bins=10, min=0, max=1)
    chi_squared = ((counts - 5000) ** 2 / 5000).sum().item()
    assert chi_squared < 27.9  # 9 degrees of freedom, p = 0.001; the numbers are fixed by the seed


def test_samples_follow_the_distribution():
    first = StepOutput(torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log(), State([], [], (0,)))
    (drawn,) = sample(
        Request(first, _no_step, end=3, max_lengths=[1]), SampleConfig(seed=1).model_copy(update={"n": 2000})
    )
    share = np.bincount([h.ids[0] if h.ids else 3 for h in drawn], minlength=4) / 2000
    np.testing.assert_allclose(share, [0.1, 0.2, 0.3, 0.4], atol=0.033)  # three standard deviations


def _no_step(ids, state, parents):
    raise AssertionError("no step was due")


def test_batched_equals_single(toy):
    model, keys, most = toy(7, 3), [4, 1, 1, 9, 2], [7, 2, 0, 5, 11]
    cuts = SampleConfig(temperature=1.3, top_k=5, top_p=0.95, min_p=0.02, seed=8, n=3)
    got = sample(model.request(keys, most, ordinals=range(20, 25)), cuts)
    for i in range(5):
        (single,) = sample(model.request([keys[i]], [most[i]], ordinals=[20 + i]), cuts)
        assert got[i] == single


def test_the_state_of_the_models_serves(toy, with_real_state):
    model, keys, most = toy(7, 6), [3, 8, 1, 5], [9, 4, 19, 6]
    got = sample(with_real_state(model, keys, most), SampleConfig(n=3, seed=2))
    assert got == sample(model.request(keys, most), SampleConfig(n=3, seed=2))


def test_the_same_seed_gives_the_same_and_another_another(toy):
    model, keys, most = toy(11, 3), [4, 1, 9], [13, 13, 13]
    run = lambda seed, n=1: sample(model.request(keys, most), SampleConfig(seed=seed, n=n))  # noqa: E731
    assert run(1) == run(1)
    assert run(1) != run(2)
    assert run(1) == [samples[:1] for samples in run(1, n=4)]
    assert all(len(set(samples)) > 1 for samples in run(1, n=4))


@pytest.mark.parametrize(
    "cut",
    [{"temperature": 0.0}, {"temperature": 1e-9}, {"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}],
    ids=str,
)
def test_the_sharpest_sampling_is_greedy(toy, cut):
    model, keys, most = toy(7, 5), list(range(7)), [9, 3, 0, 7, 9, 1, 5]
    request = model.request(keys, most, forbidden=[2])
    for (sampled,), best in zip(sample(request, SampleConfig(**cut)), greedy(request), strict=True):
        assert (sampled.ids, sampled.finished) == (best.ids, best.finished)
        # The normaliser is summed up in another order.
        np.testing.assert_allclose(sampled.log_probs, best.log_probs, rtol=1e-6, atol=1e-7)


def test_log_probs_are_the_models_own(toy):
    model, keys = toy(7, 11), [3, 1]
    for key, samples in zip(
        keys,
        sample(model.request(keys, [6, 8], forbidden=[0]), SampleConfig(temperature=3.0, top_k=4, n=5)),
        strict=True,
    ):
        for h in samples:
            sequence = (*h.ids, model.end) if h.finished else h.ids
            expected = [model.log_probs_of(key, sequence[:t])[i] for t, i in enumerate(sequence)]
            np.testing.assert_allclose(h.log_probs, expected, rtol=1e-5, atol=1e-6)
            assert 0 not in sequence
            assert h.score == sum(h.log_probs[1:], h.log_probs[0])


def test_a_sentence_leaves_when_all_its_samples_have_ended(toy):
    model, keys = toy(7, 13, bias=1.5), list(range(5))
    got = sample(model.request(keys, [23] * 5), SampleConfig(n=3))
    longest = [max(len(h.log_probs) for h in samples) for samples in got]
    assert model.rows == [3 * sum(n > t for n in longest) for t in range(1, max(longest))]


def test_impossible_requests_are_refused(toy):
    request = toy(5).request([1], [5], on_token=lambda s, i: None)
    for wrong in (
        {"temperature": -1.0}, {"temperature": math.nan}, {"top_k": 0}, {"top_p": 1.1}, {"min_p": -0.1},
        {"seed": -1}, {"n": 0}, {"n": 2},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            sample(request, SampleConfig(**wrong))


def test_only_forbidden_tokens_possible():
    first = StepOutput(torch.tensor([[0.0, -math.inf]]), State([], [], (0,)))
    with pytest.raises(WorkError, match="forbidden"):
        sample(Request(first, _no_step, end=1, max_lengths=[1], forbidden=[0]), SampleConfig(top_p=0.9))


def test_nothing_in_nothing_out(toy):
    assert sample(toy(5).request([], []), SampleConfig(n=2)) == []
