"""The process that computes: one run, one thread for answers and one for explanations.

    python -m heedful.serve.engine DESCRIPTOR     (started by `heedful.serve.engines`, never by hand)

| frame to the engine | |
|---|---|
| ``{"start": {run, precision, device}}`` | the first one: load the run |
| ``{"request": n, "verb", "cost", "stream"}`` + body | answer a request |
| ``{"cancel": n}`` | nobody waits for it any more |

| frame of the engine | |
|---|---|
| ``{"ready": {…}}``, ``{"failed": message}`` | the run is loaded: what it can do; or it cannot be loaded |
| ``{"beat": n, "explained": s}`` | twice a second: steps made, and processor time of the other thread |
| ``{"taken": [n, …]}`` | a batch begins |
| ``{"piece": n}`` + text | of a stream |
| ``{"answer": n, "written": k}`` + body | the answer, and how many tokens the model wrote for it |
| ``{"refused": n, "status", "message"}`` | the request is invalid (422), or failed (500) |

The process ends as soon as the front does, whatever it is computing.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from heedful.api.run import load
from heedful.errors import HeedfulError, RequestError
from heedful.explain.views import OVER_INPUTS, VIEWS, views_of
from heedful.nn.attention.heads import MultiHead
from heedful.recipes.schema import Recipe
from heedful.serve.answering import Answering, Body
from heedful.serve.frames import ENTRIES, Frame, Unpacker
from heedful.serve.jobs import Job, JobQueue
from heedful.serve.protection import log_error
from heedful.tasks.language_modelling.task import LanguageModellingRecipe
from heedful.tasks.prediction import BATCH_TOKENS
from heedful.tasks.text_scoring import TextScoring
from heedful.tasks.translation import TranslationRecipe
from heedful.typing import JsonObject

BEAT = 0.5
"""Seconds between two frames that say how far an engine is."""


FAILED = "the request failed; the log of the service has the reason"
"""The message for an error in the code; its text may have parts of other requests."""


@dataclass
class Steps:
    """The number of steps that a thread has made, and the inputs of its batch that nobody waits for."""

    made: int = 0
    unwanted: Collection[int] = ()

    def __call__(self) -> Collection[int]:
        """Count a step; return the numbers of the inputs that leave (`heedful.decoding.protocol.OnStep`)."""
        self.made += 1
        return self.unwanted


class Engine:
    """Reads requests from a socket, answers them, and writes the answers.

    Args:
        connection: connected with the front.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.changed = threading.Condition()
        self.queue, self.explanations = JobQueue(BATCH_TOKENS), JobQueue(1)
        self.steps = Steps()
        self.in_hand: set[int] = set()
        """Numbers of the requests that the first thread has taken from the queue."""
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
        try:
            answering = self._load(frames.pop(0).header["start"])
        except HeedfulError as error:
            self.write({"failed": str(error)})
            return
        for frame in frames:
            self._receive(frame)
        self.write({"ready": description_of(answering)})
        threading.Thread(target=self._read, args=(unpacker,), daemon=True).start()
        explaining = threading.Thread(target=self._explain, args=(answering,), daemon=True)
        explaining.start()
        threading.Thread(target=self._beat, args=(explaining,), daemon=True).start()
        self._answer(answering)

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
        content = (verb, body, bool(header.get("stream")))
        queue = self.explanations if is_explanation else self.queue
        queue.add(Job(number, header["cost"], key, content))

    def _cancel(self, number: int) -> None:
        if self.queue.remove(number) or self.explanations.remove(number):
            return
        if number in self.in_hand:
            self.abandoned.add(number)
            self._mark_unwanted()

    def _beat(self, explaining: threading.Thread) -> None:
        """Say how far the threads are; an explanation has no steps, so its thread by its processor time."""
        pause = threading.Event()
        while not pause.wait(BEAT):
            self.write({"beat": self.steps.made, "explained": _processor_time(explaining)})

    def _mark_unwanted(self) -> None:
        inputs = (self.running.get(number, ()) for number in self.abandoned)
        self.steps.unwanted = {i for own in inputs for i in own}

    def _next(self, queue: JobQueue) -> list[Job]:
        """Wait for requests; return those to answer next."""
        with self.changed:
            while not len(queue):
                self.changed.wait()
            jobs = queue.next_batch()
            if queue is self.queue:
                self.in_hand, self.abandoned = {job.number for job in jobs}, set()
            return jobs

    # Answers -----------------------------------------------------------------------------------------------

    def _answer(self, answering: Answering) -> None:
        while True:
            jobs = self._next(self.queue)
            self.write({"taken": [job.number for job in jobs]})
            verb, body, is_stream = jobs[0].content
            if is_stream:
                self._stream(answering, jobs[0], body)
            else:
                self._answer_batch(answering, verb, jobs)

    def _answer_batch(self, answering: Answering, verb: str, jobs: Sequence[Job]) -> None:
        """Answer requests together; each by itself if they cannot be joined, or one of them fails."""
        bodies = [job.content[1] for job in jobs]
        try:
            if len(jobs) == 1 or answering.joins(verb, bodies[0]):
                self._begin(jobs)
                found = answering.answers(verb, bodies)
                answers = [_json({ENTRIES[verb]: own}) for own in found]
                for job, own, answer in zip(jobs, found, answers, strict=True):
                    self.write({"answer": job.number, "written": n_written(own)}, answer)
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
                self.running[job.number] = range(n, n + len(job.content[1].inputs))
                n = self.running[job.number].stop
            self._mark_unwanted()

    def _stream(self, answering: Answering, job: Job, body: Body) -> None:
        self._begin([job])
        try:
            answer = answering.stream(body, lambda piece: self._piece(job.number, piece))
            self.write({"answer": job.number, "written": n_written([answer])}, _json(answer))
        except Exception as error:
            self._fail(job.number, error)
        finally:
            self._begin(())

    def _piece(self, number: int, piece: str) -> None:
        if piece:
            self.write({"piece": number}, piece.encode())

    def _explain(self, answering: Answering) -> None:
        while True:
            (job,) = self._next(self.explanations)
            verb, body, _ = job.content
            try:
                self.write({"taken": [job.number]})
                text = answering.explanation(body, page=verb == "page")
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


def description_of(answering: Answering) -> JsonObject:
    """Return what a run can do, for the front and its clients."""
    run = answering.run
    task, decoding = run.task, run.recipe.decoding
    columns = task.columns
    return {
        "task": run.recipe.task.kind,
        "inputs": [*columns.inputs],
        "optional_inputs": [*columns.optional_inputs],
        "images": [*columns.images],
        "generates": bool(task.info.writes),
        "options": [*task.info.options],
        "decoding": None if decoding is None else decoding.model_dump(mode="json"),
        "languages": languages_of(run.recipe),
        "max_new_tokens": max_new_tokens(run.recipe),
        "scores": isinstance(task, TextScoring),
        "labels": run.labels,
        "views": {name: VIEWS[name].description for name in views_of(run) if name not in OVER_INPUTS},
        "precision": run.inference(answering.precision).description,
        "cache_bytes": cache_bytes(run.model) if task.info.writes else 0,
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
    }


def n_written(answers: Sequence[JsonObject]) -> int:
    """Return the number of tokens that the model wrote in the best answers."""
    return sum(len(answer.get("tokens") or ()) for answer in answers)


def languages_of(recipe: Recipe) -> JsonObject | None:
    """Return the codes of the languages that a recipe names; None: it names none."""
    languages = recipe.task.languages if isinstance(recipe, TranslationRecipe) else None
    return None if languages is None else languages.model_dump(mode="json")


def max_new_tokens(recipe: Recipe) -> int | None:
    """Return the maximum number of tokens that a language model writes; None: of other models."""
    return recipe.completion.max_new_tokens if isinstance(recipe, LanguageModellingRecipe) else None


def cache_bytes(model: nn.Module) -> int:
    """Return the most bytes that the keys and values of a token take in all layers, in float32."""
    return sum(4 * sum(part.sizes[1:]) for part in model.modules() if isinstance(part, MultiHead))


def _processor_time(thread: threading.Thread) -> float:
    if not hasattr(time, "pthread_getcpuclockid"):  # not on every system: then it counts as advancing
        return time.monotonic()
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def main() -> None:
    """Serve on the socket whose file descriptor is the only argument."""
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        Engine(connection).serve()


if __name__ == "__main__":
    main()
