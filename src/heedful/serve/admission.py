"""Which requests are let in: bounds on what is in the service at a time, and how long a refused client waits.

| refusal | |
|---|---|
| 413 | the request alone exceeds a limit; it would in an idle service, too |
| 429 | requests, or their tokens, exceed a bound together; ``Retry-After`` is tokens over the measured rate |
| 503 | no engine is ready: starting, draining, or lost |
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

START_RATE = 8000.0
"""Tokens per second before any is measured."""

WINDOW = 0.25
"""Seconds of work after which the rate is measured again."""

WEIGHT = 0.3
"""Weight of a new measurement in the rate."""


class RefusedError(Exception):
    """A request that is not answered.

    Args:
        message: why, for the client.
        status: the status of HTTP.
        reason: in one word, for the metrics.
        retry_after: seconds after which another try makes sense.
        closes: whether the connection is closed, because the rest of the request is not read.
    """

    def __init__(
        self,
        message: str,
        status: int,
        reason: str,
        retry_after: int | None = None,
        *,
        closes: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.retry_after, self.closes = status, reason, retry_after, closes


def out_of_time() -> RefusedError:
    """Return the error of a request that takes longer than the limit."""
    return RefusedError("the time for this request is over", 503, "deadline", 1)


@dataclass
class Admission:
    """What is in the hands of the engines of a run.

    Args:
        most_requests: maximum number of requests, waiting or running.
        most_seconds: maximum time, by the measured rate, that the tokens of all take together.
        least_tokens: so many tokens are let in whatever the rate is.
        clock: seconds.
    """

    most_requests: int
    most_seconds: float
    least_tokens: int
    clock: Callable[[], float] = time.monotonic
    requests: int = 0
    tokens: float = 0.0
    rate: float = START_RATE
    admitted: int = 0
    refused: int = 0
    _busy_since: float = field(default=0.0, init=False)
    _done: int = field(default=0, init=False)
    _is_measured: bool = field(default=False, init=False)

    @property
    def most_tokens(self) -> float:
        """Maximum number of tokens, waiting or running."""
        return max(self.least_tokens, self.rate * self.most_seconds)

    def admit(self, tokens: int, *, at_least: int = 1) -> float:
        """Let a request in; `release` follows.

        A request counts for at most half of the bound: a very long one leaves room for short ones, which are
        let in and wait, while a second one of its kind is refused.

        Args:
            tokens: its tokens, with all hypotheses.
            at_least: so many requests are let in whatever their tokens are: those that are computed at once.

        Returns:
            The tokens that it counts for.

        Raises:
            RefusedError: 429, there is too much in the service.
        """
        full = self.requests >= self.most_requests
        counted = min(tokens, self.most_tokens / 2)
        if full or (self.requests >= at_least and self.tokens + counted > self.most_tokens):
            self.refused += 1
            what = "requests" if full else "tokens"
            raise RefusedError(f"too many {what} at a time; try again", 429, what, self.retry_after)
        if not self.requests:
            self._busy_since, self._done = self.clock(), 0
        self.requests += 1
        self.admitted += 1
        self.tokens += counted
        return counted

    def release(self, counted: float, computed: int) -> None:
        """Note that a request is out of the service.

        Args:
            counted: what `admit` returned.
            computed: its tokens; 0 if it was not computed whole, so that it does not count for the rate.
        """
        self.requests -= 1
        self.tokens = self.tokens - counted if self.requests else 0.0
        self._done += computed
        elapsed = self.clock() - self._busy_since
        if elapsed >= WINDOW:
            if self._done:
                weight = WEIGHT if self._is_measured else 1.0
                self.rate += weight * (self._done / elapsed - self.rate)
                self._is_measured = True
            self._busy_since, self._done = self.clock(), 0

    @property
    def backlog(self) -> float:
        """Seconds that the tokens in the service take, by the measured rate."""
        return self.tokens / max(self.rate, 1.0)

    @property
    def retry_after(self) -> int:
        """Seconds in which the tokens in the service are done, at least 1."""
        return max(1, math.ceil(self.backlog))
