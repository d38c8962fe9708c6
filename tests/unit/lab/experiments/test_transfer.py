"""Shared weights and pretraining: counts by formula, gradients as sums, words by a loop, splits by hand."""

import math
from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch
from sweep import Laws, hold_what_is_expected, made, measured, statement_of, value, verdict_of
from torch import nn

from heedful.data.corpora.grammar import Clause, Nominal, Sentence
from heedful.lab.experiments import transfer
from heedful.lab.seeds import seeded
from heedful.nn.cells import ElmanCell
from heedful.nn.recurrent import Recurrence


class TestExperiments(Laws):
    family = "transfer"


# Shared weights


def test_the_base_model_with_one_two_and_three_matrices():
    assert value("tied-embeddings", "parameters of the base", control=True) == 63_045_632
    assert value("tied-embeddings", "of which one matrix") == 18_944_000
    assert value("tied-embeddings", "parameters of the base") == 63_045_632 + 2 * 18_944_000
    for beginning in ("saved by tying three", "saved by tying the target"):
        figure = measured("tied-embeddings", beginning)
        assert figure.value == figure.expected


def test_parameters_of_a_recurrence_do_not_grow_with_its_length():
    one = 32 * 32 + 32 * 32 + 32
    for steps, tied, own in ((1, one, one), (5, one, 5 * one), (25, one, 25 * one)):
        row = next(row for row in made("tied-over-time").table if row["steps"] == steps)
        assert (row[transfer.TIED], row[transfer.OWN]) == (tied, own)
    assert value("tied-over-time", "parameters behind state 25") == one
    assert value("tied-over-time", "parameters behind state 25", control=True) == 25 * one
    hold_what_is_expected("tied-over-time", abs=1e-5)


def test_weights_behind_a_result_are_those_it_depends_on():
    a, b, c = nn.Linear(3, 5), nn.Linear(5, 3), nn.Linear(3, 7)
    x = torch.ones(2, 3)
    assert transfer._parameters_behind(a(x)) == 20
    assert transfer._parameters_behind(a(b(a(x)))) == 20 + 18
    assert transfer._parameters_behind(a(x) * c(x).sum().detach()) == 20


def test_tied_gradients_are_sums_over_steps():
    with seeded(3):
        cell, x = ElmanCell(5, 7), torch.randn(4, 5)
    assert transfer._gradient_difference(cell, x) < 1e-5


def test_another_order_of_steps_has_another_gradient(monkeypatch):
    scanned = Recurrence.forward
    monkeypatch.setattr(Recurrence, "forward", lambda self, x, layout: scanned(self, x.flip(0), layout))
    with seeded(3):
        cell, x = ElmanCell(5, 7), torch.randn(4, 5)
    assert transfer._gradient_difference(cell, x) > 0.1


def test_words_drown_without_the_factor():
    assert value("embedding-scale", "words that can be told") < 0.5
    assert value("embedding-scale", "words that can be told", control=True) == 1
    for beginning in ("size of the embeddings", "size of the positions"):
        figure = measured("embedding-scale", beginning)
        assert figure.value == pytest.approx(figure.expected, rel=0.02)


def test_what_the_embedding_adds_is_what_was_measured():
    with seeded(0):
        table = torch.randn(1000, 64) * 64**-0.5
        words = torch.randint(1000, (256,))
    found = 0
    for place, word in enumerate(words.tolist()):
        p = place % 64
        angles = [p / 10_000 ** (2 * i / 64) for i in range(32)]
        position = np.array([f(angle) for angle in angles for f in (math.sin, math.cos)])
        x = table[word].numpy() + position
        found += int((table.numpy() @ x).argmax() == word)
    assert value("embedding-scale", "words that can be told") == pytest.approx(found / 256, abs=0.01)


# Pretraining


@pytest.mark.parametrize("noun, kind", [("uncle", 0), ("cow", 1), ("tea", 2), ("song", 3), ("shirt", 4)])
def test_the_kind_is_that_of_the_thing(noun, kind):
    sentence = Sentence("plain", Clause(Nominal("i"), "see", Nominal(noun, "the")))
    assert transfer.class_of(sentence) == kind
    assert transfer.class_of(sentence._replace(other=sentence.main)) is None
    assert transfer.class_of(sentence._replace(main=sentence.main._replace(object=None))) is None


def test_what_is_tested_was_not_read_before():
    data = transfer.data()
    tested = {tuple(ids) for ids, _ in data.tested}
    assert not tested & {tuple(ids) for ids in data.plain}
    assert not tested & {tuple(ids) for ids, _ in data.labelled}
    assert {kind for _, kind in data.tested} == set(range(len(transfer.CLASSES)))
    assert len(data.labelled) >= max(transfer.LABELS["long"])
    words = {word for ids in data.plain for word in ids}
    assert min(words) == transfer.FIRST
    assert max(words) < data.n_ids


def test_words_that_are_dealt_out_are_the_same_words():
    sentences = [[2, 3, 4], [5], [6, 2]]
    dealt = transfer._shuffle_words(sentences, torch.Generator().manual_seed(1))
    assert [len(each) for each in dealt] == [3, 1, 2]
    assert Counter(chain.from_iterable(dealt)) == Counter(chain.from_iterable(sentences))
    assert dealt != sentences


def test_only_the_mixers_differ():
    attention, lstm = (transfer.model_of(mixer, seed=1) for mixer in transfer.MIXERS)
    different = {name for name, p in attention.named_parameters()} ^ {
        name for name, p in lstm.named_parameters()
    }
    assert all("mixer" in name for name in different)
    torch.testing.assert_close(attention.embedding.weight, lstm.embedding.weight)
    assert attention.heads["token"].weight is attention.embedding.weight


@pytest.mark.parametrize(
    "attention, lstm, verdict",
    [
        ([0.3, 0.2], [0.0], "holds"),
        ([0.3, 0.2], [0.2], "holds with conditions"),
        ([0.3, 0.1], [0.0], "holds with conditions"),
        ([0.0, 0.0], [0.0], "is wrong"),
        ([-0.1, 0.3], [0.3], "is wrong"),
    ],
)
def test_the_verdict(attention, lstm, verdict):
    gains = {"first": attention[0], "last": attention[-1], "of_lstm": lstm[0]}
    assert verdict_of("pretrained-or-scratch", **gains) == verdict


def test_an_lstm_is_judged_too_in_the_short_form_where_labels_are_few():
    outcome = made("pretrained-or-scratch")
    gain = value("pretrained-or-scratch", "gain of the LSTM model with 64")
    first, second = outcome.table
    assert gain == pytest.approx(100 * (first["LSTM, pretrained"] - first["LSTM, from scratch"]))
    assert "LSTM, pretrained" not in second
    assert ("an LSTM of the same width" in outcome.statement) == (gain > 5)


def test_nothing_is_said_of_an_lstm_that_does_not_gain():
    for gain, told in ((0.0, False), (0.2, True)):
        statement = statement_of("pretrained-or-scratch", first=0.3, last=0.3, of_lstm=gain)
        assert ("an LSTM of the same width" in statement) == told


@pytest.mark.parametrize("first, last, gains, halves", [(0.3, 0.3, 1, 0), (0.3, 0.1, 1, 1), (0.0, 0.0, 0, 0)])
def test_what_is_said_of_few_labels_and_of_many(first, last, gains, halves):
    statement = statement_of("pretrained-or-scratch", first=first, last=last, of_lstm=0.0)
    assert statement.count("With few labels a pretrained model is more accurate") == gains
    assert statement.count("With many labels the gain is at most half") == halves


def test_what_labels_teach_was_not_known_before():
    assert value("pretrained-or-scratch", "gain of the attention model with 64") > 5
    few, many = (row["attention, from scratch"] for row in made("pretrained-or-scratch").table)
    assert many > few
