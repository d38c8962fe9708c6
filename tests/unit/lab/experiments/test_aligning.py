"""Alignment and the "it" of the lectures: links and sums by hand, the corpus, what two heads see."""

import pytest
import torch
from sweep import Laws, judged, made, value

from heedful.data.corpora.grammar import Pair
from heedful.lab.experiments import aligning
from heedful.lab.seeds import seeded
from heedful.nn.attention.scores import DotScore
from heedful.nn.attention.self_attention import SelfAttention


class TestExperiments(Laws):
    family = "aligning"


def pair(source, target, *links):
    return Pair(source, target, links, (), ())


def test_the_heaviest_weight_of_each_row_is_a_link():
    weights = torch.tensor([[0.1, 0.6, 0.3], [0.8, 0.1, 0.1]])
    assert aligning.links_of_largest_weights(weights) == {(1, 0), (0, 1)}


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
    assert aligning.links_in_order(pair(source, target)) == links


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
    for each, found in zip(
        pairs, aligning.cross_attention_weights(aligning.translator(name, 0, seed=0), pairs), strict=True
    ):
        assert found.shape == (len(each.target.split()), len(each.source.split()))
        assert (found.sum(1) <= 1 + 1e-6).all()


def test_words_stand_in_another_order_and_training_finds_it():
    trained = value("attention-as-alignment", "alignment error rate, Transformer")
    assert trained < 0.8 * value("attention-as-alignment", "alignment error rate, word by word")
    assert value("attention-as-alignment", "alignment error rate, before training", control=True) > trained


def test_the_image_shows_the_weights_of_a_sentence():
    drawn = made("attention-as-alignment").panels[0]
    own = aligning.corpus().test[0]
    assert own.source.split() == list(drawn.columns)
    assert own.target.split() == list(drawn.rows)
    assert len(drawn.values) == len(drawn.rows)


def test_the_table_of_it():
    wanted = {"The": 0.96, "animal": 0.93, "didn't": 0.98, "it": 0.96}
    for word, total in wanted.items():
        assert value("table-of-it", f"sum of the row of “{word}”") == pytest.approx(total)
    assert max(aligning.TABLE["it"]) == aligning.TABLE["it"][1]  # animal
    assert value("table-of-it", "furthest from 1: the row of “animal”") == pytest.approx(0.07)
    assert value("table-of-it", "furthest", control=True) <= 8 * 0.005 + 1e-9


def test_weights_of_the_control_are_those_of_a_softmax_in_hundredths():
    rows = aligning._rounded_weights()
    assert rows.shape == (4, 8)
    assert (rows * 100 % 1).abs().max() < 1e-9
    assert rows.std(-1).min() > 0.02  # a head that looks somewhere
    with seeded(0):
        part, words = SelfAttention(16, 1, score=DotScore()), torch.randn(8, 16)
    q, k, _ = part.qkv(words).split(16, dim=-1)
    weights = (q @ k.mT).softmax(-1)[[0, 1, 2, 7]]
    torch.testing.assert_close(rows, weights.double(), atol=0.00501, rtol=0)


def test_attention_whose_rows_do_not_sum_to_1_is_found(monkeypatch):
    monkeypatch.setattr(aligning, "_rounded_weights", lambda: torch.full((4, 8), 0.11, dtype=torch.float64))
    assert judged("table-of-it", aligning.measure_row_sums("short", printed=False)).verdict == "is wrong"


def test_sentences_have_two_different_nouns_an_adjective_and_words_of_their_own():
    with seeded(1):
        ids = aligning.draw_sentences(500)
    first, second, last = (
        ids[:, place] for place in (aligning.NOUN, aligning.SECOND_NOUN, aligning.ADJECTIVE)
    )
    assert (first != second).all()
    assert set(first.tolist()) == set(second.tolist()) == set(range(aligning.NOUNS))
    assert set(last.tolist()) == set(range(aligning.NOUNS, aligning.ANSWERS))
    others = ids[
        :,
        [
            i
            for i in range(ids.shape[1])
            if i not in {aligning.NOUN, aligning.SECOND_NOUN, aligning.ADJECTIVE}
        ],
    ]
    assert (others == others[0]).all()
    assert others[0].tolist().count(ids[0, 0].item()) == 2  # "the"
    assert others.min() >= aligning.ANSWERS


def test_what_a_reader_reports_is_what_it_does():
    with seeded(2):
        found = aligning.train_reader(2, (aligning.NOUN,), updates=30)
    assert len(found.losses) == 30
    assert found.losses[-1] < found.losses[0]
    assert found.weights.shape == (2, len(aligning.WORDS))
    torch.testing.assert_close(found.weights.sum(1), torch.ones(2))


def test_a_training_ends_once_its_reader_is_sure():
    with seeded(2):
        found = aligning.train_reader(2, (aligning.NOUN,), updates=400)
    last = aligning.LAST_LOSSES
    means = [sum(found.losses[i - last : i]) / last for i in range(last, len(found.losses) + 1)]
    assert found.sure
    assert means[-1] < aligning.SURE <= min(means[:-1])
    assert found.accuracy > 0.9


@pytest.mark.full
def test_one_head_cannot_see_both_words_as_two_do():
    name, least = "heads-on-it", "weight of the word that is seen least"
    one, two = (value(name, f"{least}, {n}") for n in ("one head", "two heads"))
    assert one < 0.5 < two  # the weights of one head sum to 1
    sure = "updates until sure (at most 600)"
    slower, faster = (value(name, f"{sure}, {n}") for n in ("one head", "two heads"))
    assert slower > faster
    for heads in ("one head", "two heads"):  # so one head does not need a second
        assert value(name, f"trainings that became sure, {heads}") > 50
        assert value(name, f"sentences with all words predicted correctly, {heads}") > 75
    became_sure = value(name, "trainings that became sure, one head")
    assert (f"{became_sure:.0f} % became sure" in made(name).statement) == (became_sure < 100)
    one, two = (value(name, f"{least}, {n}", control=True) for n in ("one head", "two heads"))
    assert one > two > 0.5


def test_its_weights_are_drawn_as_measured():
    drawn = made("heads-on-it").panels[0]
    row = dict(zip(drawn.columns, drawn.values[0], strict=True))
    assert row["animal"] == pytest.approx(value("heads-on-it", "weight of “it” on “animal”, one head"))
    assert len(drawn.rows) == len(drawn.values) == 3
