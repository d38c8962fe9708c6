import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from heedful.decoding.greedy import greedy
from heedful.decoding.protocol import DecodingState, Request, StepOutput
from heedful.errors import WorkError
from heedful.nn.state import State


def by_hand(toy, key, most, forbidden=()):
    """Greedy decoding of one sentence with plain loops."""
    ids, log_probs = (), []
    while len(log_probs) < most:
        row = toy.log_probs_of(key, ids)
        token = max((i for i in range(toy.size) if i not in forbidden), key=lambda i: row[i])
        log_probs.append(row[token])
        if token == toy.end:
            return ids, log_probs, True
        ids = (*ids, token)
    return ids, log_probs, False


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("forbidden", [(), (0, 3)])
def test_a_batch_equals_plain_loops(toy, seed, forbidden):
    model, keys, most = toy(7, seed), list(range(11)), [3, 5, 0, 8, 13, 1, 2, 13, 5, 4, 6]
    got = greedy(model.request(keys, most, forbidden=forbidden))
    assert len(got) == 11
    for key, length, hypothesis in zip(keys, most, got, strict=True):
        ids, log_probs, finished = by_hand(model, key, length, forbidden)
        assert (hypothesis.ids, hypothesis.finished) == (ids, finished)
        np.testing.assert_allclose(hypothesis.log_probs, log_probs, rtol=1e-5, atol=1e-6)
        assert hypothesis.score == sum(hypothesis.log_probs[1:], sum(hypothesis.log_probs[:1]))


def test_batched_equals_single(toy):
    model, keys, most = toy(7, 3), [4, 1, 1, 9, 2], [7, 2, 7, 5, 11]
    single = [greedy(model.request([k], [m]))[0] for k, m in zip(keys, most, strict=True)]
    assert greedy(model.request(keys, most)) == single


def test_finished_sentences_leave_the_batch(toy):
    model, keys, most = toy(7, 5, bias=1.0), list(range(13)), [17] * 13
    got = greedy(model.request(keys, most))
    lengths = [len(h.log_probs) for h in got]
    assert model.rows == [sum(n > t for n in lengths) for t in range(1, max(lengths))]


def test_nothing_in_nothing_out(toy):
    model = toy(5)
    assert greedy(model.request([], [])) == []
    (empty,) = greedy(model.request([1], [0]))
    assert (empty.ids, empty.log_probs, empty.finished, empty.score) == ((), (), False, 0.0)
    assert model.rows == []


def test_a_certain_end_token_stops_at_once(toy):
    model = toy(5, bias=100.0)
    (h,) = greedy(model.request([1], [9]))
    assert (h.ids, h.finished, model.rows) == ((), True, [])
    assert h.log_probs == (0.0,)


def test_a_forbidden_end_token_leads_to_the_maximum_length(toy):
    model = toy(5, bias=3.0)
    (h,) = greedy(model.request([1], [9], forbidden=[4]))
    assert (len(h.ids), h.finished) == (9, False)


def test_equal_tokens_are_decided_for_the_lowest():
    flat = lambda ids, state, parents: StepOutput(torch.zeros(len(ids), 5), state)  # noqa: E731
    state = State([], [], (0,))
    (h,) = greedy(Request(StepOutput(torch.zeros(1, 5), state), flat, end=4, max_lengths=[3], forbidden=[0]))
    assert h.ids == (1, 1, 1)


def test_tokens_are_told_as_they_come(toy):
    model, keys, told = toy(7, 2), [3, 1, 4], []
    got = greedy(model.request(keys, [6, 6, 6], on_token=lambda s, i: told.append((s, i))))
    assert [tuple(i for s, i in told if s == n) for n in range(3)] == [h.ids for h in got]
    assert [s for s, _ in told[:3]] == sorted(s for s, _ in told[:3])


def test_nan_is_named(toy):
    model = toy(5, bias=-50.0)

    def step(ids, state, parents):
        output = model.step(ids, state, parents)
        return output._replace(logits=output.logits * math.nan) if len(model.rows) == 2 else output

    with pytest.raises(WorkError, match="token 3 contain NaN"):
        greedy(replace(model.request([1, 2], [9, 9]), step=step))


def test_only_forbidden_tokens_possible():
    first = StepOutput(torch.tensor([[0.0, 0.0], [0.0, -math.inf]]), State([], [], (0, 0)))
    with pytest.raises(WorkError, match="forbidden"):
        greedy(Request(first, _never, end=1, max_lengths=[1, 1], forbidden=[0]))


def _never(ids, state, parents):
    raise AssertionError("no step was due")


def test_the_state_of_the_models_serves(toy, with_real_state):
    model, keys, most = toy(7, 6), [3, 8, 1, 5], [9, 4, 19, 6]
    given = with_real_state(model, keys, most)
    assert isinstance(given.prefix_output.state, DecodingState)
    assert greedy(given) == greedy(model.request(keys, most))
