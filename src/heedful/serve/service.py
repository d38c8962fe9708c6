"""What a service has: its runs, their engines and bounds, and what requests may need."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from heedful.artifacts.run_folder import RunFolder
from heedful.errors import nearest
from heedful.serve.admission import Admission, RefusedError
from heedful.serve.engines import Engines, Pending
from heedful.serve.metrics import Metrics, RunMetrics
from heedful.text.tokenizer import Tokenizer

SIDES = ("source", "text")
"""Tokenizers that inputs are counted with; images count as one token each."""

LEAST_TOKENS = 2048
"""Tokens that are let in for each engine, however slow it is."""

EXPLANATIONS = 4
"""Maximum number of explanations of a run that wait or are computed; each takes a slot of its own."""


@dataclass(frozen=True)
class Limits:
    """What a request, and all together, may need.

    Args:
        body: bytes of a body.
        inputs: inputs of a request.
        tokens: tokens of a request: of its inputs and the longest outputs, with all hypotheses.
        requests: requests of a run that wait or are computed.
        queue: seconds that all of them may take together, by the measured rate.
        seconds: seconds until a request is given up.
        receive_seconds: seconds in which a body must arrive.
        send_seconds: seconds that a client may leave an answer, or a piece of a stream, unread.
    """

    body: int = 4 << 20
    inputs: int = 256
    tokens: int = 1 << 18
    requests: int = 256
    queue: float = 2.0
    seconds: float = 60.0
    receive_seconds: float = 30.0
    send_seconds: float = 30.0


@dataclass(eq=False)
class Served:
    """A run as the front sees it.

    Args:
        engines: the processes that answer.
        admission, explanations: the bounds of requests.
        metrics: what is counted of it.
        tokenizer: what the tokens of inputs are counted with; None: an input counts as one.
        noted_restarts: those that are in the metrics already.
    """

    engines: Engines
    admission: Admission
    explanations: Admission
    metrics: RunMetrics
    tokenizer: Tokenizer | None = None
    noted_restarts: int = 0

    @property
    def cache_bytes(self) -> int:
        """The memory of the keys and values of a token of one hypothesis."""
        return int(self.engines.description.get("cache_bytes") or 0)

    @property
    def slots(self) -> int:
        """How many outputs its engines decode at once, each in a slot; 0: it has no slots."""
        return int(self.engines.description.get("slots") or 0) * self.engines.n

    def n_tokens(self, text: str) -> int:
        """Return the number of tokens of a text; 1 if the run has no tokenizer."""
        return 1 if self.tokenizer is None else len(self.tokenizer.encode(text))

    def fit_bounds(self) -> None:
        """Set the bound of admission that depends on the number of engines."""
        self.admission.least_tokens = LEAST_TOKENS * self.engines.n

    def bounds(self, pending: Pending) -> Admission:
        """Return the bounds that a request is let in by."""
        return self.explanations if pending.explains else self.admission

    @property
    def languages(self) -> tuple[str, str] | None:
        """Codes of the source and the target language of a translator, as far as they are known."""
        if (given := self.engines.run.languages) is not None:
            return given
        own = self.engines.description.get("languages")
        return (own["source"], own["target"]) if own else None

    @property
    def name(self) -> str:
        """Its name in addresses."""
        return self.engines.run.name


@dataclass
class Service:
    """The state of a service.

    Args:
        runs: by name.
        limits: what requests may need.
        metrics: what is counted.
        is_closing: whether it is going to stop: it is not ready, but still answers.
        is_draining: whether it takes no requests any more.
    """

    runs: Mapping[str, Served]
    limits: Limits
    metrics: Metrics = field(default_factory=Metrics)
    is_closing: bool = False
    is_draining: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether every run answers requests."""
        return not self.is_closing and all(served.engines.is_ready for served in self.runs.values())

    def find(self, name: str) -> Served:
        """Return a run.

        Raises:
            RefusedError: there is none of this name.
        """
        if served := self.runs.get(name):
            return served
        raise RefusedError(f"no run of this name{nearest(name, [*self.runs])}", 404, "unknown")


def served_run(engines: Engines, limits: Limits, metrics: Metrics) -> Served:
    """Return a run for the front, with the tokenizer that counts its inputs; see `Served`."""
    folder = RunFolder(engines.run.path)
    path = next((path for side in SIDES if (path := folder.tokenizer(side)).is_file()), None)
    served = Served(
        engines,
        Admission(limits.requests, limits.queue, least_tokens=0),
        Admission(EXPLANATIONS, math.inf, least_tokens=0),
        metrics.of(engines.run.name),
        None if path is None else Tokenizer.load(path),
    )
    served.fit_bounds()
    return served
