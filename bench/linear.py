"""Measure how costs grow with the length of a text: time at n, 2 n and 4 n characters or tokens.

For linear work the time per token is constant, so the last column is near 1; for quadratic work it is 4, as
for the normalisation of Python's ``unicodedata``. The time is CPU time of one thread.
"""

import statistics
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from harness.machine import describe
from harness.report import grid, number, write
from harness.training import options
from harness.turns import log
from heedful.tasks.generation.streaming import Detokenizer, IncrementalText
from heedful.tasks.language_modelling.continuing import SequenceTail, Stops
from heedful.text.configuration import ByteConfig, PreprocessingConfig
from heedful.text.normalisation import normalised
from heedful.text.training import train_tokenizer

FACTORS = (1, 2, 4)
CONTEXT = 256
TEXT = "The cat sat on the mat , and « naïve » dogs lay by the fire . "
TOKENIZER = train_tokenizer(ByteConfig(kind="byte"), [TEXT])


@dataclass(frozen=True)
class Workload:
    """Work on n characters or tokens.

    Args:
        n: shortest length.
        begin: creates the input of a length (not timed), and returns the work to be timed.
    """

    n: int
    begin: Callable[[int], Callable[[], object]]


def normalising(
    signs: str, function: Callable[[str], str] = lambda text: normalised(text, "nfkc")
) -> Callable[[int], Callable[[], object]]:
    """Normalise (NFKC) a text that repeats ``signs``."""

    def begin(n: int) -> Callable[[], object]:
        text = "a" + signs * (n // len(signs))
        return lambda: function(text)

    return begin


def streaming(detokenizer: Detokenizer) -> Callable[[int], Callable[[], object]]:
    """Decode an answer incrementally, token by token."""

    def begin(n: int) -> Callable[[], object]:
        ids = (TOKENIZER.encode(TEXT) * n)[:n]

        def work() -> None:
            text = IncrementalText(detokenizer, lambda text: None)
            for token in ids:
                text(0, token)
            text.end()

        return work

    return begin


def remembering(n: int) -> Callable[[], object]:
    """Update the state of a sequence in a language model with a sliding context."""

    def work() -> None:
        tail = SequenceTail((2,), 1)
        for token in range(n):
            tail = tail.with_token(token, 16)
            if len(tail.visible) > CONTEXT:
                tail = SequenceTail(tail.ids, tail.n_prompt, len(tail.ids) - CONTEXT // 2)

    return work


def workloads() -> dict[str, Workload]:
    """Return all workloads by name."""
    moses = PreprocessingConfig(moses="en")
    stops = Stops(TOKENIZER, ("the end", "\n\n"))
    plain = Detokenizer(TOKENIZER, str, str, is_local=True)
    stopping = Detokenizer(TOKENIZER, stops.before, stops.stable_prefix, is_local=True)
    detokenised = Detokenizer(TOKENIZER, moses.undo, moses.stable_prefix)
    return {
        "normalise marks of two classes in turn": Workload(100_000, normalising("\u0301\u0316")),
        "the same, by unicodedata": Workload(
            5_000, normalising("\u0301\u0316", lambda text: unicodedata.normalize("NFKC", text))
        ),
        "normalise marks made of marks": Workload(100_000, normalising("\u0344\u0316")),
        "normalise sentences": Workload(2_000_000, normalising(TEXT)),
        "stream bytes": Workload(20_000, streaming(plain)),
        "stream bytes with stop strings": Workload(20_000, streaming(stopping)),
        "stream bytes of Moses tokens": Workload(10_000, streaming(detokenised)),
        "remember a sequence with a sliding context": Workload(20_000, remembering),
    }


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    args = options(__doc__, rounds=5)
    rows, record = [], {}
    for name, work in workloads().items():
        log(name)
        n = work.n // 20 if args.quick else work.n
        ready = [work.begin(n * factor) for factor in FACTORS]
        rounds = [[cpu_seconds(each) for each in ready] for _ in range(args.rounds)]
        taken = [statistics.median(column) for column in zip(*rounds, strict=True)]
        growth = statistics.median(last / first for first, *_, last in rounds) / FACTORS[-1]
        record[name] = {"n": n, "seconds": rounds}
        each = [f"{1e9 * t / (n * factor):,.0f}" for t, factor in zip(taken, FACTORS, strict=True)]
        rows.append([name, f"{n:,}", *each, number(growth)])
    head = ["work", "n", *(f"ns each at {f} n" for f in FACTORS), "last over first"]
    write("linear", "Costs by length", [grid(head, rows)], record, describe("cpu"), args.out)
