"""Pretrained against from scratch: kinds and splits by hand, the verdict by made-up gains."""

from collections import Counter
from itertools import chain

import pytest
import torch
from sweep import Laws, made, value

from heedful.data.corpora.grammar import Clause, Nominal, Sentence
from heedful.lab import transfer


class TestExperiments(Laws):
    family = "transfer"


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
    dealt = transfer._shuffled(sentences, torch.Generator().manual_seed(1))
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
    assert transfer._verdict({"attention": attention, "LSTM": lstm}) == verdict


def test_an_lstm_is_judged_too_in_the_short_form_where_labels_are_few():
    outcome = made("pretrained-or-scratch")
    gain = value("pretrained-or-scratch", "gain of the LSTM model with 64")
    first, second = outcome.table
    assert gain == pytest.approx(100 * (first["LSTM, pretrained"] - first["LSTM, from scratch"]))
    assert "LSTM, pretrained" not in second
    assert ("an LSTM of the same width" in outcome.statement) == (gain > 100 * transfer.HELPS)


def test_nothing_is_said_of_an_lstm_that_does_not_gain():
    assert not transfer._of_lstms({"attention": [0.3], "LSTM": [0.0]})
    assert "an LSTM of the same width" in transfer._of_lstms({"attention": [0.3], "LSTM": [0.2]})


def test_what_labels_teach_was_not_known_before():
    assert value("pretrained-or-scratch", "gain of the attention model with 64") > 100 * transfer.HELPS
    few, many = (row["attention, from scratch"] for row in made("pretrained-or-scratch").table)
    assert many > few
