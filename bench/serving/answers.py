"""Whether the service answers as the command does, whatever else it is doing."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from serving.bench import Bench
from serving.clients import Exchange, closed_loop, post
from serving.figures import Section
from serving.reference import Reference
from serving.service import serving

TOLERANCE = 1e-5
"""By how much numbers of models that are not on the native engine may differ."""

SAMPLE = {"kind": "sample", "max_length": {"ratio": 1.0, "extra": 2}}


@dataclass(frozen=True)
class Case:
    """Options that requests have.

    Args:
        run: which run answers.
        options: those of the service.
        arguments: the same for the command; None: it would draw other samples, for it numbers all inputs of a
            file, so the library is called once for each request instead.
        streamed: whether requests of one input are streamed.
    """

    run: str
    options: dict[str, Any] = field(default_factory=dict)
    arguments: tuple[str, ...] | None = ()
    streamed: bool = False


CASES = (
    Case("tiny"),
    Case("tiny", {"beam": 1}, ("--beam", "1"), streamed=True),
    Case("tiny", {"beam": 4, "n_best": 3}, ("--beam", "4", "--n-best", "3")),
    Case("tiny", {"decoding": {**SAMPLE, "seed": 3}}, None, streamed=True),
    Case("lm", {"max_new_tokens": 24, "decoding": {"kind": "greedy"}},
         ("--max-new-tokens", "24", "--decoding", "kind=greedy"), streamed=True),
    Case("lm", {"max_new_tokens": 17, "decoding": {"kind": "sample", "seed": 5}}, None, streamed=True),
    Case("labels"),
    Case("labels", {"n_best": 3}, ("--n-best", "3")),
)  # fmt: skip
COLUMNS = {"tiny": "source", "lm": "prompt", "labels": "text"}


@dataclass
class Asked:
    """A request.

    Args:
        case: its options.
        rows: its inputs, each with a number of its own.
        streamed: whether its answer is streamed.
    """

    case: Case
    rows: list[dict[str, Any]]
    streamed: bool

    def sent(self) -> bytes:
        """Return it as it is sent."""
        verb = "stream" if self.streamed else "predict"
        return post(self.case.run, verb, {"inputs": self.rows, **self.case.options})


def cases(bench: Bench) -> Sequence[Case]:
    """Return the kinds of requests; the command takes seconds for each."""
    return (CASES[1], CASES[3], CASES[6]) if bench.amounts.small else CASES


def made(bench: Bench) -> list[Asked]:
    """Return the requests, in an order in which all kinds are mixed."""
    kinds = cases(bench)
    sizes, found, number = (1, 1, 3, 1, 8), [], 0
    texts = {run: bench.inputs(run, 8 * bench.amounts.requests, seed=7) for run in COLUMNS}
    for n in range(bench.amounts.requests):
        case, size = kinds[n % len(kinds)], sizes[n // len(kinds) % len(sizes)]
        streamed = case.streamed and size == 1 and n // len(kinds) % 2 == 0
        column = COLUMNS[case.run]
        rows = [{column: texts[case.run][number + i], "id": number + i} for i in range(size)]
        found.append(Asked(case, rows, streamed))
        number += size
    return found


def expected(bench: Bench, asked: list[Asked], references: dict[str, Reference]) -> dict[int, Any]:
    """Return the predictions of the command by the number of the input."""
    found: dict[int, Any] = {}
    for case in cases(bench):
        own = [each for each in asked if each.case is case]
        if case.arguments is None:
            answers = references[case.run].ask(
                answers=[each.rows for each in own], column=COLUMNS[case.run], options=case.options
            )
            predictions = [prediction for answer in answers for prediction in answer]
        else:
            predictions = [*_command(bench, case, [row for each in own for row in each.rows])]
        found.update({prediction["input"]["id"]: prediction for prediction in predictions})
    return found


def _command(bench: Bench, case: Case, rows: list[dict[str, Any]]) -> Iterator[Any]:
    file = bench.folder / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    command = [sys.executable, "-m", "heedful", "predict", str(bench.path(case.run)), str(file), "--jsonl"]
    command += ["--precision", bench.precision, *(case.arguments or ())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return map(json.loads, done.stdout.splitlines())


def is_equal(found: Any, wanted: Any, tolerance: float) -> bool:
    """Return whether two predictions are the same: byte for byte as JSON, or but for numbers, nearly so."""
    if not tolerance:
        return json.dumps(found) == json.dumps(wanted)
    if isinstance(wanted, dict) and isinstance(found, dict):
        return found.keys() == wanted.keys() and all(is_equal(found[k], wanted[k], tolerance) for k in wanted)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(is_equal, found, wanted, [tolerance] * len(wanted)))
    if isinstance(wanted, float) and isinstance(found, float):
        return abs(found - wanted) <= tolerance
    return bool(found == wanted)


def compare(asked: list[Asked], exchanges: list[Exchange], wanted: dict[int, Any]) -> dict[str, int]:
    """Count what differs."""
    counted = Counter(dict.fromkeys(("failed", "different", "others", "lost", "doubled", "streamed"), 0))
    numbers: Counter[int] = Counter()
    for exchange in exchanges:
        own = asked[exchange.number]
        if exchange.status != 200:
            counted["failed"] += 1
            continue
        try:
            predictions = exchange.predictions()
        except (ValueError, KeyError, TypeError):
            counted["failed"] += 1
            continue
        counted["streamed"] += own.streamed
        if [prediction["input"] for prediction in predictions] != own.rows:
            counted["others"] += 1
        tolerance = TOLERANCE if own.case.run == "labels" else 0.0
        for prediction in predictions:
            number = prediction["input"]["id"]
            numbers[number] += 1
            counted["different"] += not is_equal(prediction, wanted[number], tolerance)
    counted["lost"] = sum(1 for own in asked for row in own.rows if not numbers[row["id"]])
    counted["doubled"] = sum(1 for n in numbers.values() if n > 1)
    return counted


def measure_equal(bench: Bench) -> Section:
    """Compare the answers to many clients with those of the command."""
    asked, clients = made(bench), 2 * bench.amounts.clients
    runs = {case.run: bench.path(case.run) for case in cases(bench)}
    with ExitStack() as stack:
        references = {
            case.run: stack.enter_context(Reference(bench.path(case.run), bench.precision))
            for case in cases(bench)
            if case.arguments is None
        }
        wanted = expected(bench, asked, references)
    with serving(runs, "--precision", bench.precision) as service:
        exchanges = closed_loop(service.port, [each.sent() for each in asked], clients)
    counted = compare(asked, exchanges, wanted)
    section = Section("Equal to the command")
    n_inputs = sum(len(each.rows) for each in asked)
    section.notes.append(
        f"{len(asked):,} requests of {clients} clients at a time, with {n_inputs:,} inputs: "
        f"{len(cases(bench))} kinds of options (beam, greedy, n best, sampling) of a translator, a language "
        f"model and a classifier, 1 to 8 inputs each, {counted['streamed']:,} of them streamed. The answers "
        "are compared with those of `heedful predict --jsonl` (for sampling, of `Run.predict`, once for each "
        f"request): byte for byte, those of the classifier with a tolerance of {TOLERANCE:g}."
    )
    section.add("requests without an answer", counted["failed"], at_most=0)
    section.add("inputs whose answer is different", counted["different"], at_most=0)
    section.add("requests that got the answer to another", counted["others"], at_most=0)
    section.add("inputs without an answer", counted["lost"], at_most=0)
    section.add("inputs with several", counted["doubled"], at_most=0)
    section.add("refusals (429), after which the client tried again", sum(e.refusals for e in exchanges))
    return section
