"""Retrieval against a plain sort; correlations against scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from heedful.errors import RequestError
from heedful.tasks.metrics.similarity import retrieval_ranks, retrieval_scores, similarity_scores


def units(draw, n, d=3):
    vectors = draw.standard_normal((n, d)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 12), n_different=st.integers(1, 12))
def test_ranks_are_those_of_a_plain_sort(seed, n, n_different):
    """Equal texts have equal vectors; the best right answer counts, and wrong ones win ties."""
    draw = np.random.default_rng(seed)
    all_texts, all_answers = units(draw, n_different), units(draw, n_different)
    texts, answers = (draw.integers(0, n_different, n) for _ in range(2))
    names, answer_names = [f"t{i}" for i in texts], [f"a{i}" for i in answers]
    ranks = retrieval_ranks(names, all_texts[texts], answer_names, all_answers[answers])
    for row in range(n):
        right = {answers[i] for i in range(n) if texts[i] == texts[row]}
        order = sorted(
            set(answers),
            key=lambda i: (-float(all_texts[texts[row]].astype(float) @ all_answers[i]), i in right),
        )
        assert ranks[row] == 1 + len([i for i in order[: min(map(order.index, right))] if i not in right])


def test_scores_by_hand():
    """The second text is nearer to the answer of the first."""
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1]], dtype=np.float32)
    answers = np.array([[1, 0], [0, -1], [0, 1]], dtype=np.float32)
    accuracy, reciprocal = retrieval_scores(["a", "b", "c"], vectors, ["x", "y", "z"], answers)
    assert (accuracy.name, reciprocal.name) == ("accuracy@1", "MRR")
    assert accuracy.value == pytest.approx(2 / 3)
    assert reciprocal.value == pytest.approx((1 + 1 / 3 + 1) / 3)
    assert accuracy.counts == {"queries": 3, "candidates": 3}
    assert accuracy.signature == "retrieval:text-to-pair|similarity:cosine|ties:last|candidates:3"


def test_if_all_answers_are_equally_similar_the_right_one_is_last():
    vectors = np.ones((4, 1), dtype=np.float32)
    accuracy, reciprocal = retrieval_scores(list("abcd"), vectors, list("wxyz"), vectors)
    assert (accuracy.value, reciprocal.value) == (0, 0.25)


def test_correlations_are_those_of_scipy():
    draw = np.random.default_rng(1)
    x, y = draw.standard_normal(50).round(1), draw.integers(0, 6, 50)
    pearson, spearman = similarity_scores(x.tolist(), y.tolist())
    assert pearson.value == pytest.approx(stats.pearsonr(x, y).statistic)
    assert spearman.value == pytest.approx(stats.spearmanr(x, y).statistic)


def test_of_nothing_there_are_no_scores():
    with pytest.raises(RequestError):
        retrieval_scores([], np.zeros((0, 2)), [], np.zeros((0, 2)))
    with pytest.raises(RequestError):
        similarity_scores([1.0], [])
