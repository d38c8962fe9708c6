"""Laws of constrained outputs: each is held, marked, or refused by a checker of its own before decoding.

Tasks × tokenizers × decoders × constraints that are drawn independently of the model.
"""

import json
import re

import numpy as np
import pytest
from jsonschema import validate
from predictors import DECODERS, PATHS, PREDICTORS, completer, made, recurrent, streamed, tokenizer
from tiers import sampled

from heedful.decoding.config import BeamConfig, MaxLength, SampleConfig
from heedful.errors import RequestError
from heedful.tasks.generation.output_constraints import NO_CONSTRAINTS, OutputConstraints
from heedful.tasks.prediction import PredictOptions
from heedful.text.specials import SPECIALS

MAKERS = [*PREDICTORS, recurrent]
TOKENIZERS = ["bpe", "byte", "character", "word", "byte-bpe", "lowercased", "moses"]
LENGTH = MaxLength(ratio=0.0, extra=24)
PAIRS = [(make, kind) for make in MAKERS for kind in TOKENIZERS]
every_case = pytest.mark.parametrize(
    "case",
    sampled(PAIRS, [(MAKERS[0], kind) for kind in TOKENIZERS] + [(make, "bpe") for make in MAKERS]),
    ids=lambda case: f"{case[0].__name__}-{case[1]}",
)
BEAMS = {
    "beam": BeamConfig(beam=4, n_best=2),
    "beam, unfinished kept": BeamConfig(beam=3, unfinished="keep"),
    "beam of one": BeamConfig(beam=1),
}
SEARCHES = {**DECODERS, **BEAMS, "samples": SampleConfig(n=3, seed=2)}
WORDS = ["the", "cat", "tea", "at", "a", "rat that", "e", " ", "Zug", "漢字", "sat at tea", "The", "mat, the"]


def random_constraints(rng, required):
    draw = lambda most: tuple(str(w) for w in rng.choice(WORDS, rng.integers(0, most + 1)) if w.strip())  # noqa: E731
    prefix = " ".join(rng.choice(WORDS, rng.integers(0, 3)))
    return OutputConstraints(draw(2) if required else (), draw(3), prefix if rng.random() < 0.5 else "")


def repeats(ids, n):
    ngrams = [ids[i : i + n] for i in range(len(ids) - n + 1)]
    return len({*ngrams}) < len(ngrams)


def unheld(answer, wanted, decoding, tokenizer):
    """The constraints that an answer does not hold, by the text and the ids that a caller gets."""
    form = lambda text: tokenizer.preprocessing.undo(tokenizer.preprocessing.apply(text))  # noqa: E731
    names = [phrase for phrase in wanted.must if form(phrase).strip() not in answer.text]
    names += [phrase for phrase in wanted.must_not if form(phrase).strip() in answer.text]
    if not answer.text.startswith(form(wanted.target_prefix).rstrip()):
        names.append(wanted.target_prefix)
    if len(answer.ids) < decoding.min_length:
        names.append("min_length")
    if decoding.no_repeat_ngram and repeats(answer.ids, decoding.no_repeat_ngram):
        names.append("no_repeat_ngram")
    return names


def check(predictions, wanted, decoding, own):
    n_held = 0
    for prediction, constraints in zip(predictions, wanted, strict=True):
        if prediction.error is not None:
            assert prediction.text == ""
            continue
        for answer in (prediction, *prediction.alternatives):
            if unheld(answer, constraints, decoding, own):
                assert answer.finished is False
                assert any("constraints not satisfied: " in note for note in answer.notes)
            else:
                n_held += 1
    return n_held


@every_case
@pytest.mark.parametrize("decoder", SEARCHES)
def test_constraints_are_held_marked_or_refused(case, decoder):
    make, kind = case
    rng, config, own = np.random.default_rng([len(decoder), len(kind)]), SEARCHES[decoder], tokenizer(kind)
    n_held = 0
    for min_length, ngram in ((0, None), (3, 2), (7, 1)):
        predictor, inputs = made(
            make, config, kind=kind, max_length=LENGTH, min_length=min_length, no_repeat_ngram=ngram
        )
        wanted = [random_constraints(rng, config.kind == "beam") for _ in inputs]
        predictions = predictor.predict(inputs, constraints=wanted)
        n_held += check(predictions, wanted, predictor.decoding, own)
    assert n_held


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("decoder", BEAMS)
def test_phrases_that_fit_are_written(make, decoder):
    predictor, inputs = made(make, BEAMS[decoder], max_length=LENGTH)
    wanted = [OutputConstraints(must=("tea", "rat"), must_not=("the",))] * len(inputs)
    for prediction in predictor.predict(inputs, constraints=wanted):
        assert "tea" in prediction.text
        assert "rat" in prediction.text
        assert "the" not in prediction.text


@every_case
@pytest.mark.parametrize("decoder", ["beam", "greedy", "samples"])
def test_an_output_depends_on_its_own_constraints_alone(case, decoder):
    """Batch equals single, any order gives the same, and outputs without constraints are as ever."""
    make, kind = case
    rng, config = np.random.default_rng(5), SEARCHES[decoder]
    predictor, inputs = made(make, config, kind=kind, max_length=LENGTH)
    own = [random_constraints(rng, config.kind == "beam") for _ in inputs[1:]]
    wanted = [NO_CONSTRAINTS, *own]
    together = predictor.predict(inputs, constraints=wanted)
    (free,) = predictor.predict(inputs[:1])
    assert together[0].ids == free.ids
    assert together[0].log_probs == free.log_probs
    for i, given in enumerate(inputs):
        (alone,) = predictor.predict([given], first=i, constraints=[wanted[i]])
        assert (alone.text, alone.ids, alone.notes) == (together[i].text, together[i].ids, together[i].notes)
        assert alone.log_probs == pytest.approx(together[i].log_probs, abs=1e-5)
    if decoder != "samples":  # whose draws depend on the number of the input
        turned = predictor.predict(inputs[::-1], constraints=wanted[::-1])[::-1]
        assert [p.ids for p in turned] == [p.ids for p in together]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("decoder", SEARCHES)
@pytest.mark.parametrize("path", PATHS)
def test_without_constraints_nothing_changes(make, decoder, path):
    """Bit for bit: no constraints at all, empty ones, and rules that block nothing."""
    predictor, inputs = made(make, SEARCHES[decoder], path, max_length=LENGTH)
    plain = predictor.predict(inputs)
    for predictions in (
        predictor.predict(inputs, constraints=[NO_CONSTRAINTS] * len(inputs)),
        made(make, SEARCHES[decoder], path, max_length=LENGTH, min_length=0)[0].predict(inputs),
    ):
        assert [(p.ids, p.log_probs, p.score) for p in predictions] == [
            (p.ids, p.log_probs, p.score) for p in plain
        ]
    idle, _ = made(make, SEARCHES[decoder], path, max_length=LENGTH, no_repeat_ngram=999)
    for prediction, other in zip(idle.predict(inputs), plain, strict=True):
        assert prediction.ids == other.ids
        assert prediction.log_probs == pytest.approx(other.log_probs, abs=1e-5)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("decoder", ["greedy", "beam of one", "sample"])
def test_streamed_text_is_that_of_the_prediction(make, decoder):
    predictor, inputs = made(make, SEARCHES[decoder], max_length=LENGTH, min_length=4)
    wanted = OutputConstraints(must_not=("e", "at"), target_prefix="a ra")
    (prediction,) = predictor.predict(inputs[:1], constraints=[wanted])
    streamed_prediction = streamed(predictor, inputs[0], 0, constraints=wanted)
    assert streamed_prediction.text == prediction.text
    assert streamed_prediction.notes == prediction.notes
    assert list(streamed_prediction.ids) == list(prediction.ids)


REFUSED = [
    (OutputConstraints(must=("the cat",), must_not=("cat",)), "must and must_not contradict"),
    (OutputConstraints(target_prefix="the cat", must_not=("cat",)), "target_prefix and must_not contradict"),
    (OutputConstraints(must=("漢字",)), "cannot write"),
    (OutputConstraints(target_prefix="漢字"), "cannot write"),
    (OutputConstraints(must=(" ".join(["cat"] * 40),)), "more tokens .* than the maximum length"),
    (OutputConstraints(target_prefix=" ".join(["cat"] * 40)), "more than the maximum length"),
]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "wanted, problem", REFUSED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_no_output_can_hold_is_refused_before_decoding(make, wanted, problem, monkeypatch):
    predictor, inputs = made(make, BEAMS["beam"], kind="word", max_length=LENGTH)
    monkeypatch.setattr(predictor.inference, "ready", lambda **_: pytest.fail("decoded"))
    predictions = predictor.predict(inputs, constraints=[wanted] * len(inputs))
    for prediction in predictions:
        assert re.search(problem, prediction.error)
        assert prediction.text == ""


def test_a_minimum_above_the_maximum_length_is_refused():
    predictor, inputs = made(MAKERS[0], BEAMS["beam"], max_length=LENGTH, min_length=25)
    assert all("min_length must be at most" in p.error for p in predictor.predict(inputs))
    with pytest.raises(RequestError, match=r"decoding\.min_length must be at most max_new_tokens"):
        made(completer, BEAMS["beam"], max_length=LENGTH, min_length=25)


def test_required_phrases_need_a_beam():
    predictor, inputs = made(MAKERS[0], DECODERS["greedy"], max_length=LENGTH)
    with pytest.raises(RequestError, match=r"must: requires a beam search, got decoding\.kind=greedy"):
        predictor.predict(inputs, constraints=[OutputConstraints(must=("cat",))] * len(inputs))


def test_an_input_without_tokens_is_marked():
    predictor, _ = made(MAKERS[0], BEAMS["beam"], max_length=LENGTH)
    free, marked = predictor.predict(["", ""], constraints=[NO_CONSTRAINTS, OutputConstraints(must=("cat",))])
    assert (free.finished, free.notes) == (True, ("the input is empty",))
    assert (marked.finished, marked.notes[0]) == (False, "constraints not satisfied: must 'cat'")


@pytest.mark.parametrize("decoder", ["greedy", "beam"])
def test_a_stop_string_before_a_constraint_is_held_is_marked_or_avoided(decoder):
    own = tokenizer()
    make = lambda *arguments: completer(*arguments, stop=["t"])  # noqa: E731
    predictor, inputs = made(make, SEARCHES[decoder], max_length=LENGTH, min_length=9)
    predictions = predictor.predict(inputs)
    check(predictions, [NO_CONSTRAINTS] * len(inputs), predictor.decoding, own)
    assert all("t" not in p.text for p in predictions)


def test_all_ways_to_spell_a_phrase_are_blocked():
    """A byte fallback spells what the phrase's own tokens are blocked from."""
    predictor, inputs = made(MAKERS[0], SampleConfig(n=30, temperature=3.0), max_length=LENGTH)
    wanted = [OutputConstraints(must_not=("a", "t", "e", "h"))] * len(inputs)
    for prediction in predictor.predict(inputs, constraints=wanted):
        for answer in (prediction, *prediction.alternatives):
            assert not {*"ateh"} & {*answer.text}
            assert not {*answer.ids} & {*SPECIALS.never_generated}


# Grammars ----------------------------------------------------------------------------------------------

PATTERNS = ["(the|a) (cat|rat)( sat)*", "[a-z ]{3,9}", "t+(ea|at)?", "(a ?)*"]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "tea": {"enum": ["cat", "rat"]}},
    "required": ["tea"],
    "additionalProperties": False,
}


def completer_of(decoder, kind, **options):
    make = lambda *arguments: completer(*arguments, options=PredictOptions(**options))  # noqa: E731
    return made(make, SEARCHES[decoder], kind=kind, max_length=MaxLength(ratio=0.0, extra=40))


@pytest.mark.parametrize("kind", ["bpe", "byte", "character", "word", "byte-bpe"])
@pytest.mark.parametrize("decoder", ["greedy", "beam", "samples"])
def test_completions_match_a_regular_expression_or_are_marked(kind, decoder):
    for pattern in PATTERNS:
        predictor, inputs = completer_of(decoder, kind, regex=pattern)
        wanted = OutputConstraints(must_not=("cat",))
        inputs = [*inputs, ""]
        for prediction in predictor.predict(inputs, constraints=[NO_CONSTRAINTS, wanted] * 2):
            for answer in (prediction, *prediction.alternatives):
                if re.fullmatch(pattern, answer.text) is None:
                    assert answer.finished is False
                    assert any("constraints not satisfied: regex" in note for note in answer.notes)


@pytest.mark.parametrize("kind", ["bpe", "byte", "character"])
@pytest.mark.parametrize("decoder", ["greedy", "beam", "samples"])
def test_completions_follow_a_schema_or_are_marked(kind, decoder):
    predictor, inputs = completer_of(decoder, kind, json_schema=SCHEMA)
    n_valid = 0
    for prediction in predictor.predict([*inputs, ""]):
        for answer in (prediction, *prediction.alternatives):
            if answer.finished:
                validate(json.loads(answer.text), SCHEMA)
                n_valid += 1
            else:
                assert any("constraints not satisfied: json_schema" in note for note in answer.notes)
    assert n_valid


def test_a_stop_string_inside_a_match_is_marked():
    make = lambda *arguments: completer(  # noqa: E731
        *arguments, stop=["t"], options=PredictOptions(regex="a*t")
    )
    predictor, inputs = made(make, DECODERS["greedy"], max_length=LENGTH)
    for prediction in predictor.predict(inputs):
        assert prediction.finished is False
        assert any("constraints not satisfied: regex" in note for note in prediction.notes)
