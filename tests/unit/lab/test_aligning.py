"""Attention as alignment: links by hand, the error rate by counting, the corpus as the phrasebook has it."""

import pytest
import torch
from sweep import Laws, made, value

from heedful.data.corpora.grammar import Pair
from heedful.lab import aligning


class TestExperiments(Laws):
    family = "aligning"


def pair(source, target, *links):
    return Pair(source, target, links, (), ())


def test_the_heaviest_weight_of_each_row_is_a_link():
    weights = torch.tensor([[0.1, 0.6, 0.3], [0.8, 0.1, 0.1]])
    assert aligning.heaviest(weights) == {(1, 0), (0, 1)}


@pytest.mark.parametrize(
    "source, target, links",
    [
        ("a b c", "x y z", {(0, 0), (1, 1), (2, 2)}),
        ("a b c", "x y", {(0, 0), (2, 1)}),
        ("a", "x y z", {(0, 0), (0, 1), (0, 2)}),
        ("a b c", "x", {(0, 0)}),
    ],
)
def test_word_by_word_in_order(source, target, links):
    assert aligning.in_order(pair(source, target)) == links


def test_the_error_rate_counts_what_is_missing_and_what_is_too_much():
    pairs = [pair("a b", "x y", (0, 1), (1, 0)), pair("a", "x", (0, 0))]
    assert aligning.error_rate([frozenset({(0, 1), (1, 0)}), frozenset({(0, 0)})], pairs) == 0
    # One of three right, three found, three gold: 1 - 2 · 1 / (3 + 3).
    assert aligning.error_rate([frozenset({(0, 0), (1, 1)}), frozenset({(0, 0)})], pairs) == pytest.approx(
        2 / 3
    )


def test_the_corpus_is_of_the_phrasebook_and_the_lectures_sentence_is_not_trained():
    corpus = aligning.corpus()
    pairs = [*corpus.train, *corpus.test]
    assert len({each.source for each in pairs}) == len(pairs) == 552
    assert len(corpus.test) == aligning.TESTED
    assert corpus.test[0].source == "I enjoyed the film transformers"
    assert set(corpus.target) == set(" ".join(each.target for each in corpus.train).split())
    for each in pairs:
        assert {j for _, j in each.alignment} == set(range(len(each.target.split())))


@pytest.mark.parametrize("name", list(aligning.CONFIGS))
def test_weights_are_those_of_words_alone(name):
    pairs = aligning.corpus().test[:5]
    for each, found in zip(pairs, aligning.weights(aligning.translator(name, 0, seed=0), pairs), strict=True):
        assert found.shape == (len(each.target.split()), len(each.source.split()))
        assert (found.sum(1) <= 1 + 1e-6).all()


def test_words_stand_in_another_order_and_training_finds_it():
    trained = value("attention-as-alignment", "alignment error rate, Transformer")
    assert trained < aligning.BETTER * value("attention-as-alignment", "alignment error rate, word by word")
    assert value("attention-as-alignment", "alignment error rate, before training", control=True) > trained


def test_the_image_shows_the_weights_of_a_sentence():
    drawn = made("attention-as-alignment").panels[0]
    own = aligning.corpus().test[0]
    assert own.source.split() == list(drawn.columns)
    assert own.target.split() == list(drawn.rows)
    assert len(drawn.values) == len(drawn.rows)
