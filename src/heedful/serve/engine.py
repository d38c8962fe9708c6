"""The process that computes: one run, one thread for answers and one for explanations.

    python -m heedful.serve.engine DESCRIPTOR NAME     (started by `heedful.serve.engines`, never by hand)

| frame to the engine | |
|---|---|
| ``{"start": {run, precision, device, cache_memory}}`` | the first one: load the run |
| ``{"request": n, "verb", "cost", "stream"}`` + body | answer a request |
| ``{"cancel": n}`` | nobody waits for it any more |

| frame of the engine | |
|---|---|
| ``{"ready": {…}}``, ``{"failed": message}`` | the run is loaded: what it can do; or it cannot be loaded |
| ``{"beat": n, "explained": s}`` | twice a second: steps made, and processor time of the other thread |
| ``{"taken": [n, …]}`` | these requests begin together |
| ``{"piece": n}`` + text | of a stream |
| ``{"answer": n, "written": k}`` + body | the answer, and how many tokens the model wrote for it |
| ``{"refused": n, "status", "message"}`` | the request is invalid (422), or failed (500) |

Requests of a language model are decoded in slots (`heedful.serve.continuous_batching`), all others in
batches. While both wait, a batch is answered between two steps, and steps get as much time as batches.

The process ends as soon as the front does, whatever it is computing.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from heedful.api.run import load
from heedful.errors import HeedfulError, RequestError
from heedful.serve.answering import Answering, Body
from heedful.serve.continuous_batching import ContinuousBatching, Outcome
from heedful.serve.description import description_of
from heedful.serve.frames import ENTRIES, Frame, Unpacker
from heedful.serve.jobs import Job, JobQueue
from heedful.serve.protection import FAILED, log_error
from heedful.tasks.prediction import BATCH_TOKENS
from heedful.typing import JsonObject

BEAT = 0.5
"""Seconds between two frames that say how far an engine is."""


@dataclass
class Steps:
    """The number of steps that a thread has made, and the inputs of its batch that nobody waits for."""

    made: int = 0
    unwanted: Collection[int] = ()

    def __call__(self) -> Collection[int]:
        """Count a step; return the numbers of the inputs that leave (`heedful.decoding.protocol.OnStep`)."""
        self.made += 1
        return self.unwanted


@dataclass(frozen=True)
class Content:
    """What a job asks for.

    Args:
        verb: that of the answer; a stream is a prediction.
        body: the request.
        is_stream: whether its text is sent piece by piece.
    """

    verb: str
    body: Body
    is_stream: bool

    def answer(self, found: list[JsonObject]) -> JsonObject:
        """Return the body of the answer: that of a stream is the answer to its only input."""
        return found[0] if self.is_stream else {ENTRIES[self.verb]: found}


class Engine:
    """Reads requests from a socket, answers them, and writes the answers.

    Args:
        connection: connected with the front.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.changed = threading.Condition()
        self.queue, self.explanations = JobQueue(BATCH_TOKENS), JobQueue(1)
        self.arrived: list[Job] = []
        """Requests of a language model that may be decoded in slots."""
        self.gone: set[int] = set()
        """Numbers of requests in slots that nobody waits for any more."""
        self.continuous: ContinuousBatching | None = None
        self.steps = Steps()
        self.in_hand: set[int] = set()
        """Numbers of the requests of the batch that the first thread has taken from the queue."""
        self.abandoned: set[int] = set()
        """Those of them that nobody waits for any more."""
        self.running: dict[int, range] = {}
        """The inputs of the batch that is computed now, by request."""
        self._writing = threading.Lock()

    def write(self, header: JsonObject, payload: bytes = b"") -> None:
        """Write a frame; any thread may. If nobody reads it, the process ends."""
        data = Frame(header, payload).packed()
        try:
            with self._writing:
                self.connection.sendall(data)
        except OSError:
            os._exit(0)

    # Threads -----------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Load the run that the first frame names, then answer until the front closes the connection."""
        unpacker = Unpacker()
        frames: list[Frame] = []
        while not frames:
            if not (data := self.connection.recv(1 << 16)):
                return
            frames = [*unpacker.feed(data)]
        start = frames.pop(0).header["start"]
        try:
            answering = self._load(start)
        except HeedfulError as error:
            self.write({"failed": str(error)})
            return
        self.continuous = ContinuousBatching.of(answering, start["cache_memory"])
        for frame in frames:
            self._receive(frame)
        slots = 0 if self.continuous is None else self.continuous.slots.n
        self.write({"ready": description_of(answering, slots)})
        threading.Thread(target=self._read, args=(unpacker,), daemon=True).start()
        explaining = threading.Thread(target=self._explain, args=(answering,), daemon=True)
        explaining.start()
        threading.Thread(target=self._beat, args=(explaining,), daemon=True).start()
        self._compute(answering)

    def _load(self, start: JsonObject) -> Answering:
        torch.set_num_threads(1)
        run = load(start["run"], device=start["device"])
        run.inference(start["precision"])
        return Answering(run, start["precision"], self.steps)

    def _read(self, unpacker: Unpacker) -> None:
        try:
            while data := self.connection.recv(1 << 16):
                for frame in unpacker.feed(data):
                    self._receive(frame)
        finally:
            os._exit(0)  # whatever the other threads are computing: nobody waits for it

    def _receive(self, frame: Frame) -> None:
        header = frame.header
        with self.changed:
            if "request" in header:
                self._add(header, frame.payload)
            elif "cancel" in header:
                self._cancel(header["cancel"])
            self.changed.notify_all()

    def _add(self, header: JsonObject, payload: bytes) -> None:
        number, verb = header["request"], header["verb"]
        try:
            body = Body.parsed(payload)
        except (RequestError, ValueError) as error:
            self._refuse(number, 422, str(error))
            return
        is_explanation = verb in ("explain", "page")
        options = json.dumps(body.options, sort_keys=True)
        key = None if is_explanation or header.get("stream") else (verb, options)
        job = Job(number, header["cost"], key, Content(verb, body, bool(header.get("stream"))))
        if self.continuous is not None and verb in ("predict", "complete"):
            self.arrived.append(job)
        else:
            (self.explanations if is_explanation else self.queue).add(job)

    def _cancel(self, number: int) -> None:
        if self.queue.remove(number) or self.explanations.remove(number):
            return
        if number in self.in_hand:
            self.abandoned.add(number)
            self._mark_unwanted()
        elif self.continuous is not None:
            self.gone.add(number)

    def _beat(self, explaining: threading.Thread) -> None:
        """Say how far the threads are; an explanation has no steps, so its thread by its processor time."""
        pause = threading.Event()
        while not pause.wait(BEAT):
            self.write({"beat": self.steps.made, "explained": _processor_time(explaining)})

    def _mark_unwanted(self) -> None:
        inputs = (self.running.get(number, ()) for number in self.abandoned)
        self.steps.unwanted = {i for own in inputs for i in own}

    # Answers -----------------------------------------------------------------------------------------------

    def _compute(self, answering: Answering) -> None:
        """Answer batches, and between them decode in slots, for as long as the last batch took."""
        ahead = 0.0  # seconds that batches have had more than slots
        while True:
            batch = self._next_batch(is_due=ahead <= 0)
            begun = time.monotonic()
            if batch:
                self._answer(answering, batch)
                ahead += time.monotonic() - begun
            elif self.continuous is not None:
                self._step(answering, self.continuous)
                ahead = max(0.0, ahead - (time.monotonic() - begun)) if len(self.continuous) else 0.0

    def _next_batch(self, *, is_due: bool) -> list[Job]:
        """Wait for requests; return the batch to answer next; empty: it is the turn of the slots.

        Args:
            is_due: whether a batch may be next while outputs are in slots.
        """
        with self.changed:
            while not (len(self.queue) or self._has_slots_to_fill):
                self.changed.wait()
            jobs = self.queue.next_batch() if is_due or not self._has_slots_to_fill else []
            self.in_hand, self.abandoned = {job.number for job in jobs}, set()
            return jobs

    @property
    def _has_slots_to_fill(self) -> bool:
        """Whether requests are in slots, or wait for one."""
        return bool(self.arrived) or (self.continuous is not None and len(self.continuous) > 0)

    def _answer(self, answering: Answering, jobs: Sequence[Job]) -> None:
        """Answer the requests of a batch."""
        self.write({"taken": [job.number for job in jobs]})
        if jobs[0].content.is_stream:
            self._stream(answering, jobs[0])
        else:
            self._answer_batch(answering, jobs[0].content.verb, jobs)

    def _step(self, answering: Answering, continuous: ContinuousBatching) -> None:
        """Let requests in slots, and choose a token of each output there."""
        with self.changed:
            arrived, gone = self.arrived, self.gone
            self.arrived, self.gone = [], set()
        for number in gone:
            continuous.remove(number)
        for job in arrived:
            if job.number not in gone:
                self._enter(answering, continuous, job)
        try:
            begun, outcomes = continuous.begin()
            if begun:
                self.write({"taken": begun})
            self._end(outcomes)
            self._end(continuous.step())
        except Exception as error:
            log_error(error, "an engine")
            self._answer_alone(continuous)
            return
        self.steps()

    def _enter(self, answering: Answering, continuous: ContinuousBatching, job: Job) -> None:
        """Add a request to those in slots; to the queue, if they do not support it."""
        asked = job.content
        try:
            prepared = answering.prepared("stream" if asked.is_stream else asked.verb, asked.body)
        except Exception as error:
            self._fail(job.number, error)
            return
        if continuous.supports(prepared):
            on_text = partial(self._piece, job.number) if asked.is_stream else None
            continuous.add(job, prepared, on_text)
            return
        with self.changed:
            if job.number not in self.gone:
                self.queue.add(job)

    def _answer_alone(self, continuous: ContinuousBatching) -> None:
        """After an error that all requests in slots share, answer each by itself; not what was begun."""
        for job, is_written in continuous.clear():
            if is_written:
                self._refuse(job.number, 500, FAILED)
            else:
                with self.changed:
                    self.queue.add(replace(job, key=None))

    def _end(self, outcomes: Sequence[tuple[Job, Outcome]]) -> None:
        """Send the answers of requests, or their errors."""
        for job, outcome in outcomes:
            try:
                if isinstance(outcome, Exception):
                    raise outcome
                self._send_answers([job], [outcome])
            except Exception as error:
                self._fail(job.number, error)

    def _send_answers(self, jobs: Sequence[Job], found: Sequence[list[JsonObject]]) -> None:
        """Send the answers of requests; an error in one of them comes before any is sent."""
        pairs = list(zip(jobs, found, strict=True))
        answers = [_json(job.content.answer(own)) for job, own in pairs]
        for (job, own), answer in zip(pairs, answers, strict=True):
            self.write({"answer": job.number, "written": n_written(own)}, answer)

    def _answer_batch(self, answering: Answering, verb: str, jobs: Sequence[Job]) -> None:
        """Answer requests together; each by itself if they cannot be joined, or one of them fails."""
        bodies = [job.content.body for job in jobs]
        try:
            if len(jobs) == 1 or answering.joins(verb, bodies[0]):
                self._begin(jobs)
                self._send_answers(jobs, answering.answers(verb, bodies))
                return
        except Exception as error:
            if len(jobs) == 1:
                self._fail(jobs[0].number, error)
                return
        finally:
            self._begin(())
        for job in jobs:
            self._answer_batch(answering, verb, [job])

    def _begin(self, jobs: Sequence[Job]) -> None:
        """Note which inputs of the batch belong to which request."""
        with self.changed:
            self.running, n = {}, 0
            for job in jobs:
                self.running[job.number] = range(n, n + len(job.content.body.inputs))
                n = self.running[job.number].stop
            self._mark_unwanted()

    def _stream(self, answering: Answering, job: Job) -> None:
        self._begin([job])
        try:
            answer = answering.stream(job.content.body, partial(self._piece, job.number))
            self._send_answers([job], [[answer]])
        except Exception as error:
            self._fail(job.number, error)
        finally:
            self._begin(())

    def _piece(self, number: int, piece: str) -> None:
        if piece:
            self.write({"piece": number}, piece.encode())

    def _explain(self, answering: Answering) -> None:
        while True:
            with self.changed:
                while not len(self.explanations):
                    self.changed.wait()
                (job,) = self.explanations.next_batch()
            try:
                self.write({"taken": [job.number]})
                text = answering.explanation(job.content.body, page=job.content.verb == "page")
                self.write({"answer": job.number}, text.encode())
            except Exception as error:
                self._fail(job.number, error)

    def _refuse(self, number: int, status: int, message: str) -> None:
        self.write({"refused": number, "status": status, "message": message})

    def _fail(self, number: int, error: Exception) -> None:
        """Say why a request has no answer: only what the library says to its users, of its own errors."""
        if isinstance(error, HeedfulError):
            self._refuse(number, 422, str(error))
            return
        log_error(error, "an engine")
        self._refuse(number, 500, FAILED)


def n_written(answers: Sequence[JsonObject]) -> int:
    """Return the number of tokens that the model wrote in the best answers."""
    return sum(a.get("completion_tokens") or len(a.get("tokens") or ()) for a in answers)


def _processor_time(thread: threading.Thread) -> float:
    if not hasattr(time, "pthread_getcpuclockid"):  # not on every system: then it counts as advancing
        return time.monotonic()
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def main() -> None:
    """Serve on the socket whose file descriptor is the first argument; the second is the name of the run."""
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        Engine(connection).serve()


if __name__ == "__main__":
    main()
