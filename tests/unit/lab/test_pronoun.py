"""Experiments on the lectures' "it": the table's sums, the task, and what two heads see of it."""

import pytest
import torch
from sweep import Laws, made, value

from heedful.lab import pronoun
from heedful.lab.seeds import seeded
from heedful.nn.attention.scores import DotScore
from heedful.nn.attention.self_attention import SelfAttention


class TestExperiments(Laws):
    family = "pronoun"


def test_the_table_of_it():
    wanted = {"The": 0.96, "animal": 0.93, "didn't": 0.98, "it": 0.96}
    for word, total in wanted.items():
        assert value("table-of-it", f"sum of the row of “{word}”") == pytest.approx(total)
    assert max(pronoun.TABLE["it"]) == pronoun.TABLE["it"][1]  # animal
    assert value("table-of-it", "furthest from 1: the row of “animal”") == pytest.approx(0.07)
    assert value("table-of-it", "furthest", control=True) <= 8 * 0.005 + 1e-9


def test_weights_of_the_control_are_those_of_a_softmax_in_hundredths():
    rows = pronoun._rounded_weights()
    assert rows.shape == (4, 8)
    assert (rows * 100 % 1).abs().max() < 1e-9
    assert rows.std(-1).min() > 0.02  # a head that looks somewhere
    with seeded(0):
        part, words = SelfAttention(16, 1, score=DotScore()), torch.randn(8, 16)
    q, k, _ = part.qkv(words).split(16, dim=-1)
    weights = (q @ k.mT).softmax(-1)[[0, 1, 2, 7]]
    torch.testing.assert_close(rows, weights.double(), atol=0.00501, rtol=0)


def test_attention_whose_rows_do_not_sum_to_1_is_found(monkeypatch):
    monkeypatch.setattr(pronoun, "_rounded_weights", lambda: torch.full((4, 8), 0.11, dtype=torch.float64))
    assert pronoun._table("short", printed=False).verdict == "is wrong"


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
    assert found.weights.shape == (2, len(pronoun.WORDS))
    torch.testing.assert_close(found.weights.sum(1), torch.ones(2))


def test_a_training_ends_once_its_reader_is_sure():
    with seeded(2):
        found = pronoun.read(2, (pronoun.FIRST,), updates=400)
    last = pronoun.LAST_LOSSES
    means = [sum(found.losses[i - last : i]) / last for i in range(last, len(found.losses) + 1)]
    assert found.sure
    assert means[-1] < pronoun.SURE <= min(means[:-1])
    assert found.right > 0.9


def test_one_head_cannot_see_both_words_as_two_do():
    name, least = "heads-on-it", "weight of the word that is seen least"
    one, two = (value(name, f"{least}, {n}") for n in ("one head", "two heads"))
    assert one < 0.5 < two  # the weights of one head sum to 1
    sure = "updates until sure (at most 600)"
    slower, faster = (value(name, f"{sure}, {n}") for n in ("one head", "two heads"))
    assert slower > faster
    for heads in ("one head", "two heads"):  # so one head does not need a second
        assert value(name, f"trainings that became sure, {heads}") > 50
        assert value(name, f"sentences of which all that is asked is told, {heads}") > 75
    one, two = (value(name, f"{least}, {n}", control=True) for n in ("one head", "two heads"))
    assert one > two > 0.5


def test_its_weights_are_drawn_as_measured():
    drawn = made("heads-on-it").panels[0]
    row = dict(zip(drawn.columns, drawn.values[0], strict=True))
    assert row["animal"] == pytest.approx(value("heads-on-it", "weight of “it” on “animal”, one head"))
    assert len(drawn.rows) == len(drawn.values) == 3
