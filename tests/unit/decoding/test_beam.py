import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.decoding.beam import BeamConfig, beam_search
from heedful.decoding.greedy import greedy
from heedful.decoding.protocol import Request, StepOutput
from heedful.decoding.scoring import AverageLength, GnmtLength, NoPenalty, score
from heedful.errors import RequestError, WorkError
from heedful.nn.state import KeyValueCache, State

PENALTIES = [
    NoPenalty(),
    *(AverageLength(alpha=alpha) for alpha in (1.0, 2.5)),
    *(GnmtLength(alpha=alpha) for alpha in (0.6, 3.0)),
]
DIVISORS = {
    NoPenalty: lambda p, n: 1,
    AverageLength: lambda p, n: n**p.alpha,
    GnmtLength: lambda p, n: ((5 + n) / 6) ** p.alpha,
}


def value_of(model, key, ids, finished, length, beta):
    """Log-probability, coverage term and score of a sequence, from the equations."""
    sequence = (*ids, model.end) if finished else ids
    total = sum(model.log_probs_of(key, sequence[:t])[token] for t, token in enumerate(sequence))
    attended = sum(model.attention_of(key, sequence[:t]) for t in range(len(sequence)))
    coverage = beta * np.log(np.minimum(attended, 1)).sum() if beta else 0.0
    return total / DIVISORS[type(length)](length, len(sequence)) + coverage, coverage


def every_sequence(model, most, forbidden=()):
    tokens = [i for i in range(model.size) if i not in (model.end, *forbidden)]
    for n in range(most + 1):
        for ids in itertools.product(tokens, repeat=n):
            if n < most:
                yield ids, True
            else:
                yield ids, False


UNFINISHED = ["drop", "keep"]


def best_of(scored, n_best, unfinished):
    """The best of some (not finished, -score, ids, coverage)."""
    if unfinished == "keep":
        return sorted(scored, key=lambda each: (each[1], each[0], each[2]))[:n_best]
    return sorted(scored)[:n_best]


def brute_force(model, key, most, length, beta, n_best, forbidden=(), unfinished="drop"):
    """The best of all sequences there are."""
    scored = []
    for ids, finished in every_sequence(model, most, forbidden):
        value, coverage = value_of(model, key, ids, finished, length, beta)
        if value > -math.inf:
            scored.append((not finished, -value, ids, coverage))
    return best_of(scored, n_best, unfinished)


def plain_beam_search(model, key, most, beam, length, beta, n_best, unfinished="drop"):
    """One sentence, with lists, never stopping before the maximum length."""
    running, finished = [(0.0, ())], []
    for _ in range(most):
        candidates = []
        for total, ids in running:
            row = model.log_probs_of(key, ids)
            candidates += [(total + row[i], (*ids, i)) for i in range(model.size) if row[i] > -math.inf]
        candidates.sort(key=lambda c: -c[0])
        finished += [ids[:-1] for _, ids in candidates[:beam] if ids[-1] == model.end]
        running = [c for c in candidates if c[1][-1] != model.end][:beam]
    hypotheses = [(ids, True) for ids in finished] + [(ids, False) for _, ids in running]
    scored = []
    for ids, done in hypotheses:
        value, coverage = value_of(model, key, ids, done, length, beta)
        scored.append((not done, -value, ids, coverage))
    return best_of(scored, n_best, unfinished)


def assert_same(got, expected):
    assert [(not h.finished, h.ids) for h in got] == [(e[0], e[2]) for e in expected]
    np.testing.assert_allclose([-h.score for h in got], [e[1] for e in expected], rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(
        [h.coverage_penalty for h in got], [e[3] for e in expected], rtol=2e-5, atol=1e-5
    )


def search(model, keys, max_lengths, beta=0.0, forbidden=(), **asked):
    request = model.request(keys, max_lengths, forbidden=forbidden)
    return beam_search(request, BeamConfig(**{"length_penalty": NoPenalty(), "coverage": beta, **asked}))


@pytest.mark.parametrize("unfinished", UNFINISHED)
@pytest.mark.parametrize("length", PENALTIES, ids=repr)
@pytest.mark.parametrize("beta, impossible", [(0.0, 0.5), (0.4, 0.0)])
def test_an_exhaustive_beam_equals_brute_force(toy, length, beta, impossible, unfinished):
    model, keys, most = toy(4, 17, impossible), [0, 1, 2, 3, 6], [4, 3, 1, 4, 2]
    got = search(model, keys, most, beta, beam=4**4, n_best=7, length_penalty=length, unfinished=unfinished)
    for key, n, hypotheses in zip(keys, most, got, strict=True):
        assert_same(hypotheses, brute_force(model, key, n, length, beta, 7, unfinished=unfinished))


def test_an_unfinished_hypothesis_with_a_better_score_is_dropped_or_kept():
    """Two tokens and the end token, with the same probabilities at every position."""
    row = torch.tensor([[0.0, -3.0, -1.0]]).log_softmax(-1)
    flat = lambda ids, state, parents: StepOutput(row.expand(len(ids), 3), state)  # noqa: E731

    def found(unfinished):
        first = StepOutput(row, State([], [KeyValueCache()], (0,)))
        request = Request(first, flat, end=2, max_lengths=[2])
        return beam_search(
            request, BeamConfig(beam=2, length_penalty=AverageLength(), unfinished=unfinished)
        )[0][0]

    log_probs = row[0].tolist()
    assert (found("drop").ids, found("drop").finished) == ((0,), True)
    assert found("drop").score == pytest.approx((log_probs[0] + log_probs[2]) / 2)
    assert (found("keep").ids, found("keep").finished) == ((0, 0), False)
    assert found("keep").score == pytest.approx(log_probs[0])


def test_an_exhaustive_beam_equals_brute_force_with_forbidden_tokens(toy):
    model = toy(5, 2)
    (got,) = search(model, [3], [3], beam=125, n_best=11, forbidden=[0, 2])
    assert_same(got, brute_force(model, 3, 3, NoPenalty(), 0.0, 11, forbidden=(0, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("unfinished", UNFINISHED)
@pytest.mark.parametrize("length", PENALTIES, ids=repr)
@pytest.mark.parametrize("beam, n_best, beta", [(2, 1, 0.0), (3, 3, 0.4), (5, 2, 0.0), (7, 4, 0.4)])
def test_stopping_early_changes_nothing(toy, length, beam, n_best, beta, unfinished):
    model, keys, most = toy(7, 29, 0.2, bias=0.5), list(range(5)), [5, 11, 3, 7, 8]
    got = search(
        model, keys, most, beta, beam=beam, n_best=n_best, length_penalty=length, unfinished=unfinished
    )
    for key, n, hypotheses in zip(keys, most, got, strict=True):
        expected = plain_beam_search(model, key, n, beam, length, beta, n_best, unfinished)
        assert_same(hypotheses, expected)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(2, 7),
    beam=st.integers(2, 6),
    most=st.integers(1, 7),
    length=st.sampled_from(PENALTIES),
    impossible=st.sampled_from([0.0, 0.4, 0.8]),
    unfinished=st.sampled_from(UNFINISHED),
)
def test_any_search_equals_plain_loops(toy, seed, size, beam, most, length, impossible, unfinished):
    model = toy(size, seed, impossible)
    asked = {"beam": beam, "n_best": beam, "length_penalty": length, "unfinished": unfinished}
    (got,) = search(model, [seed % 5], [most], **asked)
    assert_same(got, plain_beam_search(model, seed % 5, most, beam, length, 0.0, beam, unfinished))


@pytest.mark.parametrize("unfinished", UNFINISHED)
@pytest.mark.parametrize("length", PENALTIES, ids=repr)
@pytest.mark.parametrize("bias", [-1.0, 1.0])
def test_a_beam_of_one_is_greedy(toy, length, bias, unfinished):
    model, keys, most = toy(7, 31, bias=bias), list(range(11)), [13, 1, 0, 5, 7, 2, 13, 11, 3, 3, 5]
    got = search(model, keys, most, beam=1, length_penalty=length, unfinished=unfinished)
    expected = greedy(model.request(keys, most))
    assert any(h.finished for h in expected)
    for (h,), g in zip(got, expected, strict=True):
        assert (h.ids, h.log_probs, h.finished) == (g.ids, g.log_probs, g.finished)
        assert h.score == score(g.log_probs, length)


@pytest.mark.parametrize("length", PENALTIES, ids=repr)
def test_batched_equals_single_in_any_order(toy, length):
    model, keys, most = toy(7, 37, 0.1), [5, 0, 3, 3, 8, 2], [7, 11, 0, 4, 1, 7]
    others = {"beam": 3, "n_best": 3, "length_penalty": length}
    got = search(model, keys, most, 0.3, **others)
    single = [search(model, [k], [m], 0.3, **others)[0] for k, m in zip(keys, most, strict=True)]
    assert got == single
    assert search(model, keys[::-1], most[::-1], 0.3, **others) == single[::-1]


@pytest.mark.parametrize("length", PENALTIES, ids=repr)
@pytest.mark.parametrize("unfinished", UNFINISHED)
def test_asking_for_more_does_not_change_the_first(toy, length, unfinished):
    model, keys, most = toy(7, 41, bias=1.0), list(range(5)), [9] * 5
    asked = {"beam": 5, "length_penalty": length, "unfinished": unfinished}
    runs = [search(model, keys, most, n_best=k, **asked) for k in range(1, 6)]
    for k, run in enumerate(runs, 1):
        assert run == [hypotheses[:k] for hypotheses in runs[-1]]


@pytest.mark.parametrize("length", PENALTIES, ids=repr)
@pytest.mark.parametrize("beta", [0.0, 0.2])
def test_the_score_is_recomputable_from_what_is_returned(toy, length, beta):
    model = toy(7, 43)
    got = search(model, [0, 1, 2], [9, 5, 7], beta, beam=4, n_best=4, length_penalty=length)
    assert any(h.coverage_penalty for hypotheses in got for h in hypotheses) == (beta > 0)
    for hypotheses in got:
        assert len(hypotheses) == 4
        for h in hypotheses:
            assert h.score == score(h.log_probs, length, h.coverage_penalty)
            assert len(h.log_probs) == len(h.ids) + h.finished
            assert model.end not in h.ids
            assert h.coverage_penalty == 0.0 or (h.coverage_penalty < 0 and beta > 0)


def test_finished_sentences_leave_the_batch(toy):
    model, keys = toy(7, 47, bias=3.0), list(range(11))
    search(model, keys, [31] * 11, beam=3)
    assert all(n % 3 == 0 for n in model.rows)
    assert model.rows == sorted(model.rows, reverse=True)
    assert len(set(model.rows)) > 2
    assert len(model.rows) < 30


def test_the_end_of_a_search_takes_no_step(toy):
    model = toy(7, 5)
    search(model, [1, 2], [1, 1], beam=3)
    assert model.rows == []
    certain = toy(5, bias=100.0)
    assert [h.ids for (h,) in search(certain, [1, 2], [9, 9], beam=3)] == [(), ()]
    assert certain.rows == []


def test_the_state_of_the_models_serves(toy, with_real_state):
    model, keys, most = toy(7, 6), [3, 8, 1, 5, 5], [9, 4, 0, 19, 6]
    asked = {"beam": 3, "n_best": 2, "length_penalty": AverageLength()}
    assert beam_search(with_real_state(model, keys, most), BeamConfig(**asked)) == search(
        model, keys, most, **asked
    )


def test_nothing_in_nothing_out(toy):
    model = toy(5)
    assert search(model, [], [], beam=3) == []
    ((empty,),) = search(model, [2], [0], beam=3, n_best=2)
    assert (empty.ids, empty.log_probs, empty.finished, empty.score) == ((), (), False, 0.0)


def test_an_end_token_must_be_among_the_best_of_the_beam():
    """Log-probabilities fall with the token's number; the end token is third of four."""
    row = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    flat = lambda ids, state, parents: StepOutput(row.expand(len(ids), 4), state)  # noqa: E731
    first = lambda: StepOutput(row, State([], [KeyValueCache()], (0,)))  # noqa: E731
    run = lambda beam: beam_search(  # noqa: E731
        Request(first(), flat, end=2, max_lengths=[1]), BeamConfig(beam=beam, n_best=beam)
    )[0]
    assert [(h.ids, h.finished) for h in run(2)] == [((0,), False), ((1,), False)]
    assert [(h.ids, h.finished) for h in run(3)] == [((), True), ((0,), False), ((1,), False)]


def test_equals_are_decided_for_the_lowest():
    flat = lambda ids, state, parents: StepOutput(torch.zeros(len(ids), 11), state)  # noqa: E731
    first = StepOutput(torch.zeros(1, 11), State([], [KeyValueCache()], (0,)))
    (got,) = beam_search(
        Request(first, flat, end=10, max_lengths=[3], forbidden=[0]), BeamConfig(beam=5, n_best=5)
    )
    assert [h.ids for h in got] == [(1, 1, i) for i in range(1, 6)]


def test_only_possible_hypotheses_are_continued(toy):
    """Places of the beam that nothing can fill must not lead a model where it never was."""
    model, n_idle = toy(5, 3, impossible=0.7), 0

    def step(ids, state, parents):
        nonlocal n_idle
        output = model.step(ids, state, parents)
        for n, prefix in enumerate(output.state.prefixes):
            key = state.keys[n // state.width]
            assert model.log_probs_of(key, prefix[:-1])[prefix[-1]] > -math.inf
            assert model.end not in prefix
        n_idle += len(ids) - len({(n // state.width, p) for n, p in enumerate(output.state.prefixes)})
        return output

    beam_search(replace(model.request([0, 1, 2], [5, 7, 3]), step=step), BeamConfig(beam=11, n_best=11))
    assert n_idle > 0


def test_fewer_than_asked_for_where_fewer_are_possible():
    """Token 0 is certain to lead to the end; nothing else is possible."""
    never = -math.inf
    after = lambda ids, state, parents: StepOutput(  # noqa: E731
        torch.tensor([[never, never, 0.0]]).expand(len(ids), 3), state
    )
    first = StepOutput(torch.tensor([[0.0, never, never]]), State([], [KeyValueCache()], (0,)))
    (got,) = beam_search(Request(first, after, end=2, max_lengths=[9]), BeamConfig(beam=4, n_best=4))
    assert [(h.ids, h.finished, h.score) for h in got] == [((0,), True, 0.0)]


def test_nan_is_named_and_so_is_a_dead_end(toy):
    model = toy(5, bias=-50.0)
    broken = lambda *a: model.step(*a)._replace(logits=torch.full((6, 5), math.nan))  # noqa: E731
    with pytest.raises(WorkError, match="token 2 contain NaN"):
        beam_search(replace(model.request([1, 2], [9, 9]), step=broken), BeamConfig(beam=3))
    only_start = StepOutput(torch.tensor([[0.0, -math.inf, -math.inf]]), State([], [], (0,)))
    with pytest.raises(WorkError, match=r"position 1: .*forbidden"):
        beam_search(Request(only_start, broken, end=2, max_lengths=[5], forbidden=[0]), BeamConfig(beam=3))


def test_coverage_needs_attention_and_lengths(toy):
    blind, seeing = (toy(5, attends=attends).request([1], [5]) for attends in (False, True))
    config = BeamConfig(beam=2, coverage=0.2)
    with pytest.raises(RequestError, match="requires attention"):
        beam_search(blind, config)
    with pytest.raises(RequestError, match="requires attention"):
        beam_search(replace(seeing, step=blind.step), config)
    with pytest.raises(ValueError, match="requires source_lengths"):
        beam_search(replace(seeing, source_lengths=None), config)
    with pytest.raises(ValueError, match="must cover 6 source positions, got 5"):
        beam_search(replace(seeing, source_lengths=[6]), config)


@pytest.mark.parametrize(
    "beam, n_best, why",
    [
        (0, 1, r"beam\n.*greater than or equal to 1"),
        (2, 3, r"n_best must be at most beam \(2\), got 3"),
        (2, 0, r"n_best\n.*greater than or equal to 1"),
    ],
)
def test_impossible_widths_are_refused(beam, n_best, why):
    with pytest.raises(ValueError, match=why):
        BeamConfig(beam=beam, n_best=n_best)


def test_a_beam_that_nothing_moves_in_is_not_copied(toy):
    model, given = toy(7, 31), []

    def step(ids, state, parents):
        given.append(parents)
        return model.step(ids, state, parents)

    beam_search(replace(model.request([1, 2], [9, 9]), step=step), BeamConfig(beam=1))
    assert given
    assert all(parents is None for parents in given)
