"""Experiments on the lectures' "it": the table's sums, the task, and what two heads do that one cannot."""

import pytest
import torch
from sweep import Laws, made, value

from heedful.lab import pronoun
from heedful.lab.seeds import seeded


class TestExperiments(Laws):
    family = "pronoun"


def test_the_table_of_it():
    wanted = {"The": 0.96, "animal": 0.93, "didn't": 0.98, "it": 0.96}
    for word, total in wanted.items():
        assert value("table-of-it", f"sum of the row of “{word}”") == pytest.approx(total)
        assert value("table-of-it", f"sum of the row of “{word}”", control=True) == pytest.approx(1)
        assert pronoun.TABLE[word]
    assert max(pronoun.TABLE["it"]) == pronoun.TABLE["it"][1]  # animal


def test_sentences_have_two_different_nouns_an_adjective_and_words_of_their_own():
    with seeded(1):
        ids = pronoun.sentences(500)
    first, second, last = (ids[:, place] for place in (pronoun.FIRST, pronoun.SECOND, pronoun.LAST))
    assert (first != second).all()
    assert set(first.tolist()) == set(second.tolist()) == set(range(pronoun.NOUNS))
    assert set(last.tolist()) == set(range(pronoun.NOUNS, pronoun.ANSWERS))
    others = ids[
        :, [i for i in range(ids.shape[1]) if i not in {pronoun.FIRST, pronoun.SECOND, pronoun.LAST}]
    ]
    assert (others == others[0]).all()
    assert others[0].tolist().count(ids[0, 0].item()) == 2  # "the"
    assert others.min() >= pronoun.ANSWERS


def test_what_a_reader_reports_is_what_it_does():
    with seeded(2):
        found = pronoun.read(2, (pronoun.FIRST,), updates=30)
    assert len(found.losses) == 30
    assert found.losses[-1] < found.losses[0]
    assert found.looks.shape == (2, len(pronoun.WORDS))
    torch.testing.assert_close(found.looks.sum(1), torch.ones(2))


def test_one_head_is_unsure_which_noun_is_which_and_two_are_not():
    left, right = (value("heads-on-it", f"loss at the end, {n}") for n in ("one head", "two heads"))
    assert left > pronoun.UNSURE > right
    assert value("heads-on-it", "sentences of which both words are told, one head") < 95
    assert value("heads-on-it", "sentences of which both words are told, two heads") > 95
    assert value("heads-on-it", "sentences of which both words are told, one head", control=True) > 95


def test_the_end_is_the_mean_of_the_last_losses():
    readings = [
        pronoun.Read(1.0, torch.ones(1, 1), [9.0] * 5 + [x] * pronoun.LAST_LOSSES) for x in (1.0, 2.0)
    ]
    assert pronoun.end(readings) == 1.5


def test_its_weights_are_drawn_as_measured():
    drawn = made("heads-on-it").panels[0]
    row = dict(zip(drawn.columns, drawn.values[0], strict=True))
    assert row["animal"] == pytest.approx(value("heads-on-it", "weight of “it” on “animal”, one head"))
    assert len(drawn.rows) == len(drawn.values) == 3
