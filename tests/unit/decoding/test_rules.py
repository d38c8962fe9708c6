"""Minimum length, repetition penalty and repeated sequences, against definitions in plain Python."""

import itertools

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from heedful.decoding.config import DecodingConfig, decode
from heedful.decoding.rules import NoRepeatedNgram, RepetitionPenalty
from heedful.errors import WorkError

READ = TypeAdapter(DecodingConfig).validate_python
KINDS = [
    {"kind": "greedy"},
    {"kind": "beam", "beam": 1},
    {"kind": "beam", "beam": 3, "n_best": 3},
    {"kind": "sample", "n": 3, "seed": 5},
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))


def has_repeated(ids, n):
    ngrams = [ids[i : i + n] for i in range(len(ids) - n + 1)]
    return len({*ngrams}) < len(ngrams)


def blocked_by(constraint, ids, size):
    state = constraint.start()
    for token in ids:
        state = constraint.advance(state, token)
    blocked = np.zeros(size, bool)
    constraint.block(state, blocked)
    return {*np.flatnonzero(blocked).tolist()}


@pytest.mark.parametrize("n", [1, 2, 3])
def test_exactly_the_tokens_that_would_repeat_are_blocked(n):
    for ids in itertools.product(range(3), repeat=5):
        if not has_repeated(ids, n):
            expected = {token for token in range(3) if has_repeated((*ids, token), n)}
            assert blocked_by(NoRepeatedNgram(n), ids, 3) == expected


def test_the_penalty_by_hand():
    penalty = RepetitionPenalty(2.0)
    logits = torch.tensor([4.0, -4.0, 4.0, -4.0, float("-inf")])
    state = penalty.advance(penalty.advance(penalty.start(), 0), 1)
    penalty.adjust(logits, penalty.advance(state, 4))
    assert logits.tolist() == [2.0, -8.0, 4.0, -4.0, float("-inf")]


@pytest.mark.parametrize("penalty", [1e-38, 1e38])
def test_an_absurd_penalty_leaves_a_distribution(penalty):
    logits = torch.tensor([4.0, -4.0, 1.0])
    rule = RepetitionPenalty(penalty)
    rule.adjust(logits, frozenset({0, 1}))
    assert logits.isfinite().all()


@every_kind
@pytest.mark.parametrize("seed", range(6))
def test_outputs_hold_the_rules(toy, kind, seed):
    model = toy(6, seed, bias=2.0)
    config = READ({**kind, "min_length": 4, "no_repeat_ngram": 2})
    for hypotheses in decode(config, model.request([0, 1, 2], [9, 5, 7], forbidden=[0])):
        for hypothesis in hypotheses:
            assert not has_repeated(hypothesis.ids, 2)
            assert len(hypothesis.ids) >= 4 or hypothesis.violated
            assert not hypothesis.violated or not hypothesis.finished


@every_kind
def test_rules_that_change_nothing_are_no_constraints(toy, kind):
    model = toy(6, 2)
    neutral = READ({**kind, "min_length": 0, "repetition_penalty": 1, "no_repeat_ngram": None})
    assert neutral.constraints() == []
    request = model.request([0, 1], [9, 5])
    assert decode(READ(kind), request) == decode(neutral, request)


@every_kind
def test_the_log_probabilities_are_the_models_unless_a_penalty_changes_them(toy, kind):
    model = toy(6, 3, bias=1.0)
    for penalty in (1.0, 1.7):
        config = READ({**kind, "min_length": 2, "no_repeat_ngram": 3, "repetition_penalty": penalty})
        for key, hypotheses in enumerate(decode(config, model.request([0, 1], [8, 6]))):
            for h in hypotheses:
                ids = [*h.ids, *([model.end] if h.finished else [])]
                for t, token in enumerate(ids):
                    logits = model.logits_of(key, tuple(ids[:t])).astype(np.float64).copy()
                    for used in {*ids[:t]}:
                        logits[used] *= 1 / penalty if logits[used] >= 0 else penalty
                    expected = logits[token] - np.log(np.exp(logits).sum())
                    assert h.log_probs[t] == pytest.approx(expected, abs=1e-5)


@every_kind
def test_what_leaves_no_token_is_cut_and_named(toy, kind):
    """Four tokens, none twice, but six are required."""
    model = toy(4, 1)
    config = READ({**kind, "min_length": 6, "no_repeat_ngram": 1})
    for hypothesis in itertools.chain(*decode(config, model.request([0, 1], [9, 9]))):
        assert len(hypothesis.ids) == 3
        assert not hypothesis.finished
        assert hypothesis.violated == ("min_length=6",)
    config = READ({**kind, "min_length": 3, "no_repeat_ngram": 1})
    for hypothesis in itertools.chain(*decode(config, model.request([0, 1], [9, 9], forbidden=[model.end]))):
        assert hypothesis.violated == ("min_length=3", "no_repeat_ngram=1")


@every_kind
def test_a_penalty_alone_does_not_hide_that_a_model_has_no_token(toy, kind):
    model = toy(3, 1)
    with pytest.raises(WorkError, match="no token is possible"):
        decode(READ({**kind, "repetition_penalty": 2}), model.request([0], [3], forbidden=[0, 1, 2]))


@pytest.mark.parametrize(
    "wrong, key",
    [
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": -1.0}, "repetition_penalty"),
        ({"min_length": -1}, "min_length"),
        ({"no_repeat_ngram": 0}, "no_repeat_ngram"),
        ({"min_length": 9, "max_length": {"cap": 8}}, r"min_length must be at most max_length.cap \(8\)"),
    ],
)
def test_wrong_rules_are_refused_by_name(wrong, key):
    for kind in ("greedy", "beam", "sample"):
        with pytest.raises(ValidationError, match=key):
            READ({"kind": kind, **wrong})
