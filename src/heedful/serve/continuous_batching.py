"""Continuous batching of the requests of a language model: they join and leave between two steps.

It decodes what `heedful.tasks.language_modelling.slots` supports: greedily, or one sample of each input, on
the native engine. Each answer is bit for bit that of its request alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from heedful.serve.answering import Answering, Prepared
from heedful.serve.jobs import Job
from heedful.tasks.language_modelling.continuing import Completer
from heedful.tasks.language_modelling.slots import Completion, Generation, Slots, fits
from heedful.tasks.language_modelling.task import LanguageModelling
from heedful.tasks.prediction import as_text
from heedful.typing import JsonObject

Outcome = list[JsonObject] | Exception
"""The objects of an answer, or the error of its request."""


@dataclass(eq=False)
class _Decoded:
    """A request that is decoded.

    Args:
        job: the request.
        prepared: its inputs and options.
        on_text: called with the pieces of its first output; None: it is not a stream.
        completions: of the inputs that were begun, in order.
        n_running: how many of them have a slot.
        is_written: whether pieces were passed on.
    """

    job: Job
    prepared: Prepared
    on_text: Callable[[str], None] | None
    completions: list[Completion] = field(default_factory=list)
    n_running: int = 0
    is_written: bool = False
    next: Completion | None = None
    """The completion of the next input, if it was made and waits for a slot."""

    @property
    def is_waiting(self) -> bool:
        """Whether an input has not begun."""
        return len(self.completions) < len(self.prepared.inputs)

    def completion(self) -> Completion:
        """Return the completion of the next input.

        Raises:
            RequestError: it has constraints that need a beam search.
        """
        if self.next is None:
            i, own = len(self.completions), self.prepared
            constraints = {"constraints": own.constraints[i]} if own.constraints else {}
            on_text = None if self.on_text is None else self.pass_on
            text = as_text(own.inputs[i])
            self.next = Completion(own.predictor, text, ordinal=i, on_text=on_text, **constraints)
        return self.next

    def pass_on(self, piece: str) -> None:
        """Pass a piece of the output on."""
        assert self.on_text is not None
        if piece:
            self.is_written = True
            self.on_text(piece)

    def answer(self) -> list[JsonObject]:
        """Return the objects of the answer, when all its inputs are decoded."""
        return self.prepared.to_json([completion.prediction() for completion in self.completions])


class ContinuousBatching:
    """Decodes requests in slots. It belongs to the thread of the model.

    A free slot goes to the request that has the fewest, among equals to the one that came first: a request of
    many inputs does not keep the others waiting.

    Args:
        slots: what decodes.
    """

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._requests: dict[int, _Decoded] = {}
        self._owners: dict[Generation, _Decoded] = {}
        """The requests of the generations in slots."""

    @classmethod
    def of(cls, answering: Answering, max_bytes: int | None) -> "ContinuousBatching | None":
        """Return that of a language model on the native engine; None: the run has none.

        Args:
            answering: with the run.
            max_bytes: limit of the memory of keys and values; None: none.
        """
        if not isinstance(answering.run.task, LanguageModelling):
            return None
        completer = answering.run.predictor(precision=answering.precision)
        assert isinstance(completer, Completer)
        slots = Slots.of(completer, max_bytes=max_bytes)
        return None if slots is None else cls(slots)

    @staticmethod
    def supports(prepared: Prepared) -> bool:
        """Return whether slots decode a request."""
        own = prepared.predictor
        is_decoded = isinstance(own, Completer) and fits(own.decoding) and not own.options.attention
        return is_decoded and len(prepared.inputs) > 0

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, job: Job, prepared: Prepared, on_text: Callable[[str], None] | None) -> None:
        """Add a request that is supported; it begins in one of the next steps."""
        self._requests[job.number] = _Decoded(job, prepared, on_text)

    def remove(self, number: int) -> None:
        """Remove a request that nobody waits for; nothing happens if it is not here."""
        if (request := self._requests.pop(number, None)) is not None:
            for generation in [g for g, owner in self._owners.items() if owner is request]:
                self.slots.remove(generation)
                del self._owners[generation]

    def clear(self) -> list[tuple[Job, bool]]:
        """Remove all requests; return them, and whether pieces of them were passed on."""
        found = [(request.job, request.is_written) for request in self._requests.values()]
        self._requests, self._owners = {}, {}
        self.slots.reset()
        return found

    def begin(self) -> tuple[list[int], list[tuple[Job, Outcome]]]:
        """Fill the free slots.

        Returns:
            The numbers of the requests that begin, and the outcomes of those that need no slot.
        """
        begun: list[int] = []
        outcomes: list[tuple[Job, Outcome]] = []
        while self.slots.n_free:
            waiting = (request for request in self._requests.values() if request.is_waiting)
            request = min(waiting, key=lambda own: own.n_running, default=None)
            if request is None:
                break
            is_first = not request.completions
            try:
                if not self._enter(request):
                    break
            except Exception as error:
                outcomes.append(self._ended(request, error))
            if is_first:
                begun.append(request.job.number)
            outcomes += self._answered(request)
        return begun, outcomes

    def _enter(self, request: _Decoded) -> bool:
        """Give a slot to the next input of a request, if it needs one; return whether there was memory."""
        completion = request.completion()
        if completion.refused is None:
            if not self.slots.accepts(completion.generation):
                return False
            self.slots.add(completion.generation)
            self._owners[completion.generation] = request
            request.n_running += 1
        request.completions.append(completion)
        request.next = None
        return True

    def step(self) -> list[tuple[Job, Outcome]]:
        """Choose the next token of each output; return the outcomes of the requests that end by it.

        If it raises, `clear` must follow.
        """
        outcomes: list[tuple[Job, Outcome]] = []
        for generation in self.slots.step():
            if (request := self._owners.pop(generation, None)) is None:
                continue  # another output of its request had an error in this step
            request.n_running -= 1
            if generation.error is not None:
                outcomes.append(self._ended(request, generation.error))
            else:
                outcomes += self._answered(request)
        return outcomes

    def _answered(self, request: _Decoded) -> Iterator[tuple[Job, Outcome]]:
        """Yield the answer of a request if all its inputs are decoded."""
        if request.job.number in self._requests and not request.n_running and not request.is_waiting:
            try:
                outcome: Outcome = request.answer()
            except Exception as error:
                outcome = error
            yield self._ended(request, outcome)

    def _ended(self, request: _Decoded, outcome: Outcome) -> tuple[Job, Outcome]:
        self.remove(request.job.number)
        return request.job, outcome
