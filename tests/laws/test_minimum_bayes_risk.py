"""Laws of minimum Bayes risk decoding, with all predictors: its oracle compares all samples by sacrebleu."""

from collections import Counter

import pytest
from predictors import LONG, MaxLength, completer, every_path, every_predictor, made, recurrent, tokenizer
from sacrebleu import sentence_chrf

from heedful.decoding.config import MbrConfig, SampleConfig
from heedful.errors import RequestError
from heedful.tasks.generation import minimum_bayes_risk
from heedful.tasks.generation.output_constraints import OutputConstraints

LENGTH = MaxLength(ratio=0.0, extra=9)
DRAWN = {"n": 12, "seed": 5, "temperature": 0.5, "epsilon": 0.03, "top_k": 5}


@pytest.fixture
def drawn(monkeypatch):
    """The texts of all samples of each input, in the order in which predictions are made."""
    whole, texts = minimum_bayes_risk.by_expected_utility, []

    def kept(detokenizer, samples):
        texts.append([detokenizer.prediction(sample).text for sample in samples])
        return whole(detokenizer, samples)

    monkeypatch.setattr(minimum_bayes_risk, "by_expected_utility", kept)
    return texts


def by_utility(samples):
    """The different texts and the mean chrF of each against all samples, best first."""
    scored = [
        (sum(sentence_chrf(text, [other]).score for other in samples) / len(samples), text)
        for text in dict.fromkeys(samples)
    ]
    return sorted(scored, key=lambda pair: -pair[0])


@every_predictor
@every_path
def test_the_answer_has_the_greatest_mean_chrf_against_all_samples(make, path, drawn):
    predictor, inputs = made(make, MbrConfig(**DRAWN, n_best=4), path, max_length=LENGTH)
    predictions = [predictor.predict([given], first=i)[0] for i, given in enumerate(inputs)]
    sampler, _ = made(make, SampleConfig(**DRAWN), path, max_length=LENGTH)
    for prediction, samples, sampled in zip(predictions, drawn, sampler.predict(inputs), strict=True):
        assert len(samples) == DRAWN["n"]
        expected = by_utility(samples)[:4]
        answers = [prediction, *prediction.alternatives]
        assert [answer.score for answer in answers] == pytest.approx([utility for utility, _ in expected])
        assert [answer.text for answer in answers] == [text for _, text in expected]
        of_text = {answer.text: answer for answer in (sampled, *sampled.alternatives)}
        assert list(of_text) == list(dict.fromkeys(samples))
        for answer in answers:
            assert (answer.ids, answer.finished) == (of_text[answer.text].ids, of_text[answer.text].finished)
            assert answer.log_probs == pytest.approx(of_text[answer.text].log_probs, abs=1e-5)


def test_equal_texts_count_as_often_as_they_were_drawn(drawn):
    """Otherwise a text drawn often would have no more support than one drawn once."""
    n_repeated = 0
    for seed in range(12):
        config = MbrConfig(n=15, seed=seed, temperature=0.4, epsilon=0.1)
        predictor, inputs = made(recurrent, config, max_length=MaxLength(ratio=0.0, extra=3))
        predictor.predict(inputs)
    for samples in drawn:
        (utility, best), *_ = by_utility(samples)
        distinct = list(dict.fromkeys(samples))
        n_repeated += by_utility(distinct)[0][1] != best
        assert Counter(samples).total() == 15
        assert 0 <= utility <= 100.0001
    assert n_repeated


@every_predictor
def test_the_same_seed_gives_the_same_answer_beside_any_others(make):
    predictor, inputs = made(make, MbrConfig(n=8), max_length=LENGTH)
    together = predictor.predict(inputs, first=3)
    for _ in range(2):
        for i, given in enumerate(inputs):
            (alone,) = predictor.predict([given], first=3 + i)
            assert alone.text == together[i].text
            assert alone.score == pytest.approx(together[i].score)
    other, _ = made(make, MbrConfig(n=8, seed=9), max_length=LONG)
    assert [p.text for p in other.predict(inputs, first=3)] != [p.text for p in together]


@every_predictor
def test_it_is_not_streamed(make):
    predictor, inputs = made(make, MbrConfig(n=8))
    with pytest.raises(RequestError, match="streaming is not supported by minimum Bayes risk decoding"):
        next(predictor.stream(inputs[0]))


def test_samples_that_hold_their_constraints_come_first():
    config = MbrConfig(n=30, n_best=30, epsilon=0.0, temperature=2.0)
    predictor, inputs = made(completer, config, max_length=MaxLength(ratio=0.0, extra=6), min_length=6)
    wanted = OutputConstraints(target_prefix="the cat", must_not=("s",))
    form = tokenizer().preprocessing.undo
    n_marked = 0
    for prediction in predictor.predict(inputs, constraints=[wanted] * len(inputs)):
        answers = [prediction, *prediction.alternatives]
        marked = [not answer.text.startswith(form("the cat")) for answer in answers]
        assert marked == sorted(marked)
        for group in (False, True):
            scores = [answer.score for answer, own in zip(answers, marked, strict=True) if own is group]
            assert scores == sorted(scores, reverse=True)
        n_marked += sum(marked)
    assert n_marked
