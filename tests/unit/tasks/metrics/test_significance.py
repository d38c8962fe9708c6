"""Statistics of rows give the scores of any selection of rows; tests of significance beside naive ones."""

import pickle

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest as SacrebleuTest
from scipy import stats

from heedful.errors import RequestError
from heedful.tasks.metrics.answering import answer_scores
from heedful.tasks.metrics.classification import classification_scores, label_set_scores
from heedful.tasks.metrics.regression import regression_scores
from heedful.tasks.metrics.significance import paired_test
from heedful.tasks.metrics.similarity import similarity_scores
from heedful.tasks.metrics.spans import SCHEMES
from heedful.tasks.metrics.statistics import mean, ratio
from heedful.tasks.metrics.summarisation import rouge_scores
from heedful.tasks.metrics.tagging import tagging_scores
from heedful.tasks.metrics.translation import exact_match, tokenised_bleu, translation_scores

RANDOM = np.random.default_rng(5)
N = 40
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "house", "today"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC"]


def sentences(n=N):
    return [" ".join(RANDOM.choice(WORDS, RANDOM.integers(4, 9))) for _ in range(n)]


def tags():
    return [[str(tag) for tag in RANDOM.choice(TAGS, size)] for size in range(1, N + 1)]


def numbers():
    return RANDOM.normal(size=N).round(1).tolist()


def labels():
    return [str(label) for label in RANDOM.choice(list("abcd"), N)]


def label_sets():
    return [{*RANDOM.choice(list("abcd"), RANDOM.integers(0, 4))} for _ in range(N)]


def of_classes(predictions, targets):
    return classification_scores(predictions, targets, list("abcd")).values()


def of_sets(predictions, targets):
    return label_set_scores(predictions, targets, list("abcd"))


def of_tags(predictions, targets):
    return tagging_scores(predictions, targets, TAGS, scheme=SCHEMES["bio"])


def of_texts(predictions, targets):
    return [
        *translation_scores(predictions, targets).values(),
        tokenised_bleu(predictions, targets),
        exact_match(predictions, targets),
        *rouge_scores(predictions, targets).values(),
        *answer_scores(predictions, [[target] for target in targets]),
    ]


def of_numbers(predictions, targets):
    return [*regression_scores(predictions, targets), *similarity_scores(predictions, targets)]


KINDS = [
    (of_classes, labels), (of_sets, label_sets), (of_tags, tags), (of_texts, sentences),
    (of_numbers, numbers),
]  # fmt: skip


@pytest.mark.parametrize(("scores_of", "make"), KINDS)
def test_statistics_give_the_score_of_all_rows_and_of_any_selection(scores_of, make):
    predictions, targets = make(), make()
    scores = {(s.name, s.signature): s for s in scores_of(predictions, targets)}
    rows = [*RANDOM.integers(0, N, 25)]
    selected = scores_of([predictions[i] for i in rows], [targets[i] for i in rows])
    for score in selected:
        statistics = scores[score.name, score.signature].statistics()
        assert len(statistics) == N
        assert statistics.value == pytest.approx(scores[score.name, score.signature].value)
        assert statistics.of_rows(rows).value == pytest.approx(score.value), score.name
        weights = np.bincount(rows, minlength=N)[None].astype(float)
        if statistics.is_summed:
            sums = np.tensordot(weights, statistics.values, 1)
            assert statistics.score(sums)[0] == pytest.approx(score.value)
    assert pickle.loads(pickle.dumps(scores)).keys() == scores.keys()


@pytest.mark.parametrize(("scores_of", "make"), KINDS)
def test_equal_systems_have_p_1_and_no_difference(scores_of, make):
    predictions, targets = make(), make()
    for score in scores_of(predictions, targets):
        test = paired_test(score.statistics(), score.statistics(), samples=50)
        assert (test.difference, test.low, test.high, test.p, test.rows) == (0, 0, 0, 1, N)
        assert not test.is_significant


def planted(n, better):
    """Targets, and two systems of which the second is right where the first is and in some rows more."""
    targets = [str(i % 3) for i in range(n)]
    first = [target if i % 2 else "x" for i, target in enumerate(targets)]
    second = [target if i % 2 or i < better else "x" for i, target in enumerate(targets)]
    return [
        classification_scores(system, targets, ["0", "1", "2", "x"])["accuracy"].statistics()
        for system in (first, second)
    ]


def test_a_planted_difference_is_found_and_a_small_one_is_not():
    large = paired_test(*planted(100, 30))
    assert large.difference == pytest.approx(0.15)
    assert large.is_significant
    assert large.p < 0.002
    assert 0 < large.low < 0.15 < large.high
    small = paired_test(*planted(100, 4))
    assert small.difference == pytest.approx(0.02)
    assert not small.is_significant
    # Two rows differ: the difference is as large if both have the same order, in half of all shuffles.
    assert small.p == pytest.approx(0.5, abs=0.05)


def test_p_is_that_of_the_exact_sign_test():
    """Of n rows that only one system has right, the number that are exchanged is binomial."""
    random = np.random.default_rng(1)
    a, b = random.random(60) < 0.5, random.random(60) < 0.7
    test = paired_test(mean(a), mean(b), samples=20_000)
    n_first, n_second = int((a & ~b).sum()), int((b & ~a).sum())
    assert test.p == pytest.approx(stats.binomtest(n_first, n_first + n_second).pvalue, abs=0.01)


def test_the_interval_is_that_of_a_naive_loop():
    targets, first, second = sentences(), sentences(), sentences()
    first[:20], second[:30] = targets[:20], targets[:30]
    statistics = [translation_scores(system, targets)["chrF"].statistics() for system in (first, second)]
    test = paired_test(*statistics, samples=200, seed=3)
    drawn = np.random.default_rng(3).integers(0, N, size=(200, N))
    differences = []
    for rows in drawn:
        chosen = [[texts[i] for i in rows] for texts in (first, second, targets)]
        a, b = (translation_scores(system, chosen[2])["chrF"].value for system in chosen[:2])
        differences.append(b - a)
    assert (test.low, test.high) == pytest.approx(np.percentile(differences, [2.5, 97.5]))
    assert test.difference == pytest.approx(test.second - test.first)


def test_bleu_is_that_of_the_tests_of_sacrebleu():
    targets, first, second = sentences(200), sentences(200), sentences(200)
    first[:60], second[:85] = targets[:60], targets[:85]
    test = paired_test(
        *(translation_scores(system, targets)["BLEU"].statistics() for system in (first, second)),
        samples=5000,
    )
    _, scores = SacrebleuTest(
        [("first", first), ("second", second)], {"BLEU": BLEU()}, [targets], test_type="ar", n_samples=5000
    )()
    results = scores["BLEU"]
    assert (test.first, test.second) == pytest.approx([result.score for result in results])
    assert test.p == pytest.approx(results[1].p_value, abs=0.02)


def test_the_interval_covers_the_true_difference_in_95_of_100_samples():
    """Accuracies of 0.6 and 0.7 that are positively correlated, as those of two systems are."""
    random = np.random.default_rng(2)
    covered = 0
    for seed in range(200):
        common = random.random(150)
        a, b = common < 0.6, np.where(random.random(150) < 0.5, common, random.random(150)) < 0.7
        test = paired_test(mean(a), mean(b), samples=300, seed=seed)
        covered += test.low <= 0.1 <= test.high
    assert 180 <= covered <= 199


def test_p_values_of_equally_good_systems_are_below_0_05_in_about_5_of_100():
    random = np.random.default_rng(4)
    found = sum(
        paired_test(*(mean(random.normal(size=50)) for _ in range(2)), samples=200, seed=seed).is_significant
        for seed in range(200)
    )
    assert found <= 20


def test_classes_are_matched_by_their_names():
    targets = ["a", "b", "a", "c", "b", "b"]
    first = classification_scores(["a", "b", "b", "c", "b", "a"], targets, ["a", "b", "c"])["macro_f1"]
    second = classification_scores(["a", "b", "b", "c", "b", "a"], targets, ["c", "x", "b", "a"])["macro_f1"]
    test = paired_test(first.statistics(), second.statistics(), samples=100)
    assert (test.difference, test.p) == (0, 1)


def test_a_seed_gives_the_same_numbers_and_memory_limits_none():
    statistics = planted(100, 10)
    assert paired_test(*statistics, seed=7) == paired_test(*statistics, seed=7)
    assert paired_test(*statistics, seed=7) != paired_test(*statistics, seed=8)


def test_resamples_in_parts_are_as_good(monkeypatch):
    monkeypatch.setattr("heedful.tasks.metrics.significance.AT_ONCE", 1000)
    test = paired_test(*planted(100, 30), samples=500)
    assert test.is_significant
    assert test.samples == 500


@pytest.mark.parametrize("sizes", [(3, 4), (1, 1)])
def test_rows_that_do_not_fit_are_refused(sizes):
    with pytest.raises(RequestError, match="rows"):
        paired_test(*(mean([1.0] * size) for size in sizes))


def test_of_nothing_a_ratio_is_0():
    assert ratio([0, 0], [0, 0]).value == 0
