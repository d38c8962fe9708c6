"""Laws of the requests that are decoded in slots: each has the answer that it has alone."""

import json
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from tiny_runs import make

from heedful.api.run import load
from heedful.engine.native import library
from heedful.errors import HeedfulError
from heedful.serve.answering import Answering, Body
from heedful.serve.continuous_batching import ContinuousBatching
from heedful.serve.engine import Content, Engine
from heedful.serve.frames import Unpacker
from heedful.serve.jobs import Job

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler here")

PROMPTS = ["a b c", "", "c", "a a b b c c a", "zzz", "b c " * 20]
SAMPLE = {"kind": "sample", "temperature": 1.2}
OPTIONS = [
    {},
    {"decoding": {**SAMPLE, "seed": 3}},
    {"decoding": {**SAMPLE, "seed": 4, "top_p": 0.9}},
    {"decoding": {"kind": "greedy", "min_length": 4, "repetition_penalty": 1.3}},
    {"stop": ["b"]},
    {"prefix": "a b "},
    {"must_not": ["a"]},
    {"must_not": ["a"], "decoding": {**SAMPLE, "seed": 5}},
    {"n_best": 1},
]
UNSUPPORTED = [{"decoding": {"kind": "beam", "beam": 2}}, {"decoding": {**SAMPLE, "n": 2}, "n_best": 2}]
INVALID = [{"must": ["a"]}, {"max_new_tokens": 0}, {"stop": "b"}, {"threshold": 0.5}, {"prefix": 3}]


@pytest.fixture(scope="module")
def answering(tmp_path_factory):
    make("language-modelling", folder := tmp_path_factory.mktemp("run") / "it")
    return Answering(load(folder / "finished"), "auto", lambda: ())


def drawn(rng, number):
    """A request that slots decode."""
    verb = ("predict", "complete", "stream")[rng.integers(3)]
    options = dict(OPTIONS[rng.integers(len(OPTIONS))]) | {"max_new_tokens": int(rng.integers(5, 30))}
    if verb == "complete":
        options = {k: v for k, v in options.items() if k in ("decoding", "stop", "max_new_tokens")}
        options |= {"n_candidates": 2} if rng.random() < 0.3 else {}
    n = 1 if verb == "stream" else int(rng.integers(1, 8))
    inputs = [PROMPTS[i] for i in rng.integers(len(PROMPTS), size=n)]
    return job_of(number, verb, inputs, options)


def job_of(number, verb, inputs, options):
    is_stream = verb == "stream"
    return Job(number, 1, None, Content("predict" if is_stream else verb, Body(inputs, options), is_stream))


def alone(answering, job):
    """The answer to a request, or its error."""
    asked, pieces = job.content, []
    try:
        if asked.is_stream:
            return [answering.stream(asked.body, pieces.append)], "".join(pieces)
        return answering.answers(asked.verb, [asked.body])[0], ""
    except HeedfulError as error:
        return str(error), ""


def outcome_of(found):
    return str(found) if isinstance(found, Exception) else found


@pytest.mark.parametrize("seed", range(12))
def test_every_answer_is_that_of_its_request_alone(answering, seed):
    rng = np.random.default_rng(seed)
    jobs = [drawn(rng, number) for number in range(25)]
    jobs[7] = replace(jobs[7], content=Content("predict", Body(["a"], {"must": ["a"]}), False))
    batching = ContinuousBatching.of(answering, None)
    batching.slots.n = int(rng.integers(1, 9))
    arrived, removed, outcomes, begun, pieces = [*jobs], set(), {}, [], {job.number: [] for job in jobs}
    for _ in range(3000):
        for _ in range(rng.integers(4)):
            if arrived and rng.random() < 0.5:
                job = arrived.pop(0)
                prepared = answering.prepared("stream" if job.content.is_stream else job.content.verb,
                                              job.content.body)  # fmt: skip
                assert batching.supports(prepared)
                batching.add(job, prepared, pieces[job.number].append if job.content.is_stream else None)
        if rng.random() < 0.05:
            removed.add(number := int(rng.integers(len(jobs))))
            batching.remove(number)
        new, ended = batching.begin()
        begun += new
        assert len(batching.slots.running) <= batching.slots.n
        for job, outcome in [*ended, *batching.step()]:
            assert job.number not in outcomes
            outcomes[job.number] = outcome_of(outcome)
        if not arrived and not len(batching):
            break
    assert not len(batching)
    assert len(begun) == len({*begun})
    assert {*outcomes} | removed == {job.number for job in jobs}
    assert {*outcomes} - {7} <= {*begun}
    for job in jobs:
        if job.number in outcomes:
            expected, text = alone(answering, job)
            assert outcomes[job.number] == expected
            assert "".join(pieces[job.number]) == text
            assert "" not in pieces[job.number]


@pytest.mark.parametrize("options", UNSUPPORTED)
def test_what_slots_do_not_decode_is_not_supported(answering, options):
    assert not ContinuousBatching.supports(answering.prepared("predict", Body(["a"], options)))


def test_a_request_of_many_inputs_does_not_keep_the_others_waiting(answering):
    """The slots are full with its outputs; another request has the first slot that becomes free."""
    batching = ContinuousBatching.of(answering, None)
    batching.slots.n = 4
    options = {"max_new_tokens": 9, "decoding": {"kind": "greedy", "min_length": 9}}
    for number, n in ((1, 40), (2, 1), (3, 2)):
        job = job_of(number, "predict", ["a b"] * n, options)
        batching.add(job, answering.prepared("predict", job.content.body), None)
    begun, steps, answered = [], 0, {}
    while len(batching):
        begun += batching.begin()[0]
        steps += 1
        answered |= {job.number: steps for job, _ in batching.step()}
    assert begun == [1, 2, 3]
    assert answered[2] == 9
    assert answered[3] <= 18
    assert answered[1] == steps


def test_the_memory_of_keys_and_values_is_bounded(answering):
    """Outputs wait for memory, and every request is answered."""
    free = ContinuousBatching.of(answering, None)
    options = {"max_new_tokens": 8, "decoding": {"kind": "greedy", "min_length": 8}}
    job = job_of(1, "predict", ["a b c"] * 9, options)
    prepared = answering.prepared("predict", job.content.body)
    free.add(job, prepared, None)
    free.begin()
    needed = 0
    while len(free):
        free.step()
        needed = max(needed, free.slots.cache_bytes)
    limit = needed // 16  # caches begin with 64 positions, of which this run uses 11
    batching = ContinuousBatching.of(answering, limit)
    batching.add(job, prepared, None)
    most = 0
    while len(batching):
        batching.begin()
        outcomes = batching.step()
        most = max(most, len(batching.slots.running))
        assert batching.slots.cache_bytes <= 2 * limit
    assert 1 < most < 9
    assert outcome_of(outcomes[0][1]) == alone(answering, job)[0]


@pytest.fixture
def engine(answering):
    """An engine that is not started."""
    own, other = socket.socketpair()
    with own, other:
        other.setblocking(False)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        made = Engine(own)
        made.continuous = ContinuousBatching.of(answering, None)
        made.received = other, Unpacker()
        yield made


def sent(engine):
    """The frames that it has sent since the last call."""
    connection, unpacker = engine.received
    frames = []
    with suppress(BlockingIOError):
        while True:
            frames += unpacker.feed(connection.recv(1 << 20))
    return frames


def test_what_ends_before_a_step_that_fails_is_answered(answering, engine, monkeypatch):
    def failing():
        raise MemoryError

    monkeypatch.setattr(engine.continuous.slots, "step", failing)
    engine.arrived = [job_of(1, "predict", ["a"], {"must": ["a"]}), job_of(2, "predict", ["a"], {})]
    engine._step(answering, engine.continuous)
    (refused,) = [frame.header for frame in sent(engine) if "refused" in frame.header]
    assert (refused["refused"], refused["status"]) == (1, 422)
    assert len(engine.queue) == 1


def test_after_an_error_of_a_step_each_request_is_answered_by_itself(answering, engine, monkeypatch, capsys):
    """A stream that has begun ends with an error."""
    rng = np.random.default_rng(3)
    jobs = [drawn(rng, number) for number in range(9)]
    jobs.append(job_of(9, "stream", ["a b"], {"max_new_tokens": 20, "decoding": {"kind": "greedy"}}))
    jobs[9] = replace(jobs[9], content=replace(jobs[9].content, body=Body(["a b"], {
        "max_new_tokens": 20, "decoding": {"kind": "greedy", "min_length": 20}})))  # fmt: skip
    engine.arrived = [*jobs]
    for _ in range(3):
        engine._step(answering, engine.continuous)
    frames = sent(engine)
    begun = {frame.header["piece"] for frame in frames if "piece" in frame.header}
    assert 9 in begun

    def failing():
        raise MemoryError("".join(("plan", "ted")))

    answered = {frame.header["answer"] for frame in frames if "answer" in frame.header}
    monkeypatch.setattr(engine.continuous.slots, "step", failing)
    engine._step(answering, engine.continuous)
    monkeypatch.undo()
    assert "planted" not in capsys.readouterr().err
    frames = sent(engine)
    refused = {frame.header["refused"]: frame.header["status"] for frame in frames}
    assert refused == dict.fromkeys(begun - answered, 500)
    left = {job.number for job in jobs} - answered - {*refused}
    assert len(engine.queue) == len(left) > 2
    while len(engine.queue):
        engine._answer(answering, engine.queue.next_batch())
    frames += sent(engine)
    answers = {f.header["answer"]: json.loads(f.payload) for f in frames if "answer" in f.header}
    assert answers.keys() == left
    for number, answer in answers.items():
        assert answer == jobs[number].content.answer(alone(answering, jobs[number])[0])
    assert not len(engine.continuous)
    engine.arrived = [jobs[0]]
    while engine.arrived or len(engine.continuous):
        engine._step(answering, engine.continuous)
    assert [f.header["answer"] for f in sent(engine) if "answer" in f.header] == [0]


@pytest.mark.parametrize("options", INVALID)
def test_an_invalid_request_is_refused_and_the_others_go_on(answering, engine, options):
    engine.arrived = [job_of(1, "predict", ["a"], options), job_of(2, "predict", ["b"], {})]
    while engine.arrived or len(engine.continuous):
        engine._step(answering, engine.continuous)
    frames = sent(engine)
    (refused,) = [frame.header for frame in frames if "refused" in frame.header]
    assert (refused["refused"], refused["status"]) == (1, 422)
    assert [frame.header["answer"] for frame in frames if "answer" in frame.header] == [2]


def test_batches_and_slots_take_turns(answering, engine):
    """While outputs are in slots, a batch is answered when the steps have had as much time."""
    long = {"max_new_tokens": 400, "decoding": {"kind": "greedy", "min_length": 400}}
    engine.arrived = [job_of(1, "stream", ["a"], long)]
    for number in range(2, 42):
        engine.queue.add(Job(number, 1, None, Content("score", Body(["a b"], {}), False)))

    class Ended(Exception):
        pass

    def next_batch(**settings):
        if not len(engine.queue) and not engine.arrived and not len(engine.continuous):
            raise Ended
        return Engine._next_batch(engine, **settings)

    engine._next_batch = next_batch
    with pytest.raises(Ended):
        engine._compute(answering)
    frames = [frame.header for frame in sent(engine)]
    kinds = Counter("piece" if "piece" in header else "answer" for header in frames if "taken" not in header)
    assert kinds["answer"] == 41
    order = ["piece" if "piece" in header else "answer" for header in frames if "taken" not in header]
    first, last = order.index("piece"), len(order) - order[::-1].index("piece")
    assert order[first:last].count("answer") >= 20


def test_abandoned_requests_leave_before_the_next_step(answering, engine):
    long = {"max_new_tokens": 30, "decoding": {"kind": "greedy", "min_length": 30}}
    engine.arrived = [job_of(n, "stream", ["a b"], long) for n in range(1, 5)]
    engine._step(answering, engine.continuous)
    engine._cancel(2)
    engine._step(answering, engine.continuous)
    assert len(engine.continuous.slots.running) == 3
    sent(engine)
    engine._step(answering, engine.continuous)
    assert 2 not in {frame.header.get("piece") for frame in sent(engine)}


def test_a_request_that_is_abandoned_as_it_arrives_does_not_begin(answering, engine):
    for number, options in ((1, {"max_new_tokens": 5}), (2, UNSUPPORTED[0])):
        engine.arrived = [job_of(number, "predict", ["a b"], options)]
        engine._cancel(number)
        engine._step(answering, engine.continuous)
        assert not len(engine.continuous)
        assert not len(engine.queue)
    assert sent(engine) == []
