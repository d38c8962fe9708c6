"""Which words decided, of texts whose deciding words are known."""

import pytest
import torch
from sweep import Laws, value

from heedful.lab.experiments import attributing
from heedful.lab.seeds import generator_from


class TestExperiments(Laws):
    family = "attributing"


def test_each_text_has_two_words_for_its_class_and_one_against_it():
    words, classes = attributing.draw_texts(97, generator_from(1))
    for row, label in zip(words, classes.tolist(), strict=True):
        sides = attributing.sides_of(row, label).tolist()
        assert (sides.count(1), sides.count(-1)) == (2, 1)
    # Every word of the vocabulary occurs, and a class is no more frequent than others.
    assert set(words.flatten().tolist()) == set(range(attributing.N_WORDS))
    assert torch.bincount(classes).min() > 97 / 3 / 2


def test_the_classifier_has_learned_the_rule():
    assert value("weights-as-reasons", "accuracy of the classifier") > 99


@pytest.mark.parametrize("name", attributing.METHODS)
def test_a_method_gives_a_number_for_each_word(name):
    model, _ = attributing.train_classifier("short")
    measured = attributing.measured_input(model, [0, 30, 5, 17], 0)
    assert attributing.METHODS[name](measured).shape == (4,)


def test_weights_name_words_against_the_answer_and_integrated_gradients_none():
    attention, gradients = "first word by attention weights", "first word by integrated gradients"
    assert value("weights-as-reasons", f"{attention} speaks against it") > 10
    assert value("weights-as-reasons", f"{gradients} speaks against it", control=True) < 2
