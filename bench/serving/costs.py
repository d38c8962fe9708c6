"""What the service costs beside the computation itself: time, throughput, memory, its start."""

import statistics
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from importlib.util import find_spec
from typing import Any

from serving.bench import Bench
from serving.clients import Exchange, closed_loop, post, quantile
from serving.figures import Section
from serving.reference import Reference
from serving.service import Service, processor_seconds, serving

TINY_INPUTS = 16
"""Inputs of a request of many."""

WRITTEN = 20
"""Tokens of each output where heedful and CTranslate2 are compared: the latter has one length for a batch."""

COMPUTE_TYPES = ("int8", "float32")
DECODINGS = {
    "greedy": {"kind": "greedy"},
    "beam 4": {"kind": "beam", "beam": 4},
}


def rate(exchanges: list[Exchange]) -> float:
    """Return the requests answered in a second.

    Raises:
        RuntimeError: one was not answered.
    """
    if failed := [each.status for each in exchanges if each.status != 200]:
        raise RuntimeError(f"{len(failed)} of {len(exchanges)} requests failed, the first with {failed[0]}")
    begun, done = min(each.sent for each in exchanges), max(each.done for each in exchanges)
    return len(exchanges) / (done - begun)


def measure_cost(bench: Bench) -> Section:
    """Measure what the front and the way to the engine cost, and the throughput."""
    section = Section("Cost")
    section.notes.append(
        f"Tiny is {bench.described('tiny')}, base {bench.described('base')}. `Run.predict` runs in a process "
        "of one thread with the same precision, already loaded; rounds alternate, and ratios are of the same "
        "round."
    )
    with ExitStack() as stack:
        service = stack.enter_context(serving({"tiny": bench.path("tiny")}, "--precision", bench.precision))
        library = stack.enter_context(Reference(bench.path("tiny"), bench.precision))
        section.notes.append(f"Precision: {service.described('tiny')['precision']}.")
        _add_front(bench, section, service, "tiny", "")
        _add_alone(bench, section, service, library)
        _add_throughput(bench, section, service, library, "tiny", 1, at_least=0.45)
        _add_throughput(bench, section, service, library, "tiny", TINY_INPUTS, at_least=0.85)
    with serving({"tiny": bench.path("tiny")}, stand_in="no-op") as service:
        _add_front(bench, section, service, "tiny", ", with an engine that computes nothing")
    with ExitStack() as stack:
        service = stack.enter_context(serving({"base": bench.path("base")}, "--precision", bench.precision))
        library = stack.enter_context(Reference(bench.path("base"), bench.precision))
        _add_throughput(bench, section, service, library, "base", 1, at_least=0.85)
    return section


def _warm(bench: Bench, service: Service, name: str, size: int = 1) -> float:
    """Send requests until the rate that admission measures is right; return the requests per second."""
    requests = bench.requests(name, 64, size, seed=9)
    seconds = bench.amounts.round_seconds / 2
    return rate(closed_loop(service.port, requests, bench.amounts.clients, seconds=seconds, repeats=True))


def _add_front(bench: Bench, section: Section, service: Service, name: str, which: str) -> None:
    """Add the processor time of the front for each request of one input, of one client and of all."""
    for clients in (1, bench.amounts.clients):
        _warm(bench, service, name)
        requests, times, rates = bench.requests(name, 512, seed=1), [], []
        for _ in range(bench.amounts.rounds):
            before = processor_seconds(service.front)
            exchanges = closed_loop(
                service.port, requests, clients, seconds=bench.amounts.round_seconds, repeats=True
            )
            times.append(1000 * (processor_seconds(service.front) - before) / len(exchanges))
            rates.append(rate(exchanges))
        plural = "client" if clients == 1 else "clients"
        aim = 0.25 if not which else None
        section.add(
            f"processor time of the front for a request of one input, {clients} {plural}{which}",
            times, "ms", at_most=aim,
        )  # fmt: skip
        if which and clients > 1:
            section.add(f"requests per second, {clients} clients{which}", rates, "1/s")


def _add_alone(bench: Bench, section: Section, service: Service, library: Reference) -> None:
    """Add the time of a request when there is no other, compared with a call."""
    calls, requests, added = [], [], []
    for n in range(bench.amounts.rounds):
        texts = bench.inputs("tiny", bench.amounts.alone, seed=20 + n)
        called = statistics.median(library.ask(each=texts))
        sent = bench.requests("tiny", bench.amounts.alone, seed=20 + n)
        answered = statistics.median(each.seconds for each in closed_loop(service.port, sent, 1))
        calls.append(1000 * called)
        requests.append(1000 * answered)
        added.append(1000 * (answered - called))
    section.add("Tiny alone, p50: a call of `Run.predict([text])`", calls, "ms")
    section.add("Tiny alone, p50: a request", requests, "ms")
    section.add("Tiny alone, p50: what the service adds", added, "ms", at_most=2.0)


def _add_throughput(
    bench: Bench,
    section: Section,
    service: Service,
    library: Reference,
    name: str,
    size: int,
    at_least: float,
) -> None:
    """Add the throughput of many clients, compared with one call for all inputs."""
    n = max(bench.amounts.clients, int(_warm(bench, service, name, size) * bench.amounts.round_seconds))
    library.ask(all=bench.inputs(name, 64, seed=9))
    served, called, ratios, refusals = [], [], [], 0
    for number in range(bench.amounts.rounds):
        seed = 40 + number
        exchanges = closed_loop(service.port, bench.requests(name, n, size, seed), bench.amounts.clients)
        refusals += sum(each.refusals for each in exchanges)
        seconds = library.ask(all=bench.inputs(name, n * size, seed))
        served.append(rate(exchanges) * size)
        called.append(n * size / seconds)
        ratios.append(served[-1] / called[-1])
    what = f"{name.capitalize()}, {size} input{'s' * (size > 1)} a request, {bench.amounts.clients} clients"
    section.add(f"{what}: inputs per second", served, "1/s")
    section.add(f"{what}: `Run.predict` of the same inputs", called, "1/s")
    section.add(f"{what}: ratio", ratios, at_least=at_least)
    if refusals:
        section.add(f"{what}: refusals (429), after which the client tried again", refusals)


def measure_contender(bench: Bench) -> Section:
    """Compare with CTranslate2 behind the same front."""
    section = Section("Compared with CTranslate2")
    if find_spec("ctranslate2") is None:
        section.notes.append("Not measured: ctranslate2 is not installed (`make bench` installs it).")
        return section
    clients = bench.amounts.clients
    section.notes.append(
        "The front and the engine process are heedful's; the model in the engine is heedful's, or one of the "
        f"same shape in CTranslate2, with one thread each: {bench.described('base')}. One input a request, "
        f"{clients} clients, {WRITTEN} tokens a translation. The ratio is that of heedful's best precision "
        "to CTranslate2's best, in the same round."
    )
    names = (*COMPUTE_TYPES, *(f"ctranslate2:{each}" for each in COMPUTE_TYPES))
    with ExitStack() as stack:
        services = {name: stack.enter_context(_contender(bench, name)) for name in names}
        for label, decoding in DECODINGS.items():
            _add_contenders(bench, section, services, label, decoding)
    return section


def _contender(bench: Bench, name: str) -> AbstractContextManager[Service]:
    """Run a service with an engine of this name; the others do nothing meanwhile."""
    precision = {"int8": "int8", "float32": "fp32"}.get(name, "auto")
    stand_in = name if ":" in name else None
    return serving({"base": bench.path("base")}, "--precision", precision, stand_in=stand_in)


def _add_contenders(
    bench: Bench, section: Section, services: Mapping[str, Service], label: str, decoding: dict[str, Any]
) -> None:
    """Add the throughput of each engine, round by round."""
    clients = bench.amounts.clients
    options = {"decoding": {**decoding, "min_length": WRITTEN, "max_length": {"ratio": 0, "extra": WRITTEN}}}
    rates: dict[str, list[float]] = {name: [] for name in services}
    n = {}
    for name, service in services.items():
        requests = bench.requests("base", 64, seed=9, **options)
        seconds = bench.amounts.round_seconds / 2
        warm = rate(closed_loop(service.port, requests, clients, seconds=seconds, repeats=True))
        n[name] = max(clients, int(warm * bench.amounts.round_seconds))
    for number in range(bench.amounts.rounds):
        for name, service in services.items():
            requests = bench.requests("base", n[name], seed=60 + number, **options)
            rates[name].append(rate(closed_loop(service.port, requests, clients)))
    for name, values in rates.items():
        library, _, kind = name.rpartition(":")
        section.add(f"{label}: {'CTranslate2' if library else 'heedful'}, {kind}", values, "1/s")
    ours, theirs = (
        max((v for name, v in rates.items() if (":" in name) == peer), key=statistics.median)
        for peer in (False, True)
    )
    section.add(f"{label}: ratio", [a / b for a, b in zip(ours, theirs, strict=True)], at_least=1.0)


def measure_stream(bench: Bench) -> Section:
    """Compare streams of many clients with streams one by one."""
    section = Section("Streams")
    clients, n = bench.amounts.clients, bench.amounts.streams
    lengths = [16, 24, 32, 48, 64, 96, 128]
    prompts = bench.inputs("lm", n, seed=3)

    def requests(number: int) -> list[bytes]:
        found = []
        for i, prompt in enumerate(prompts):
            length = lengths[(i + number) % len(lengths)]
            decoding = {"kind": "greedy", "min_length": length}
            body = {"inputs": [prompt], "max_new_tokens": length, "decoding": decoding}
            found.append(post("lm", "stream", body))
        return found

    few = max(4, n // 8)
    together, single, ratios, firsts, lone_firsts, steps, excess = [], [], [], [], [], [], []
    with serving({"lm": bench.path("lm")}, "--precision", bench.precision) as service:
        closed_loop(service.port, requests(0), clients, seconds=bench.amounts.round_seconds / 2)
        for number in range(bench.amounts.rounds):
            sent = requests(number)
            alone = closed_loop(service.port, sent[:few], 1)
            many = closed_loop(service.port, sent, clients)
            for rates, exchanges in ((together, many), (single, alone)):
                rate(exchanges)  # all were answered
                seconds = max(e.done for e in exchanges) - min(e.sent for e in exchanges)
                rates.append(sum(e.pieces for e in exchanges) / seconds)
            ratios.append(together[-1] / single[-1])
            prefill = statistics.median(e.first - e.sent for e in alone)
            step = statistics.median((e.done - e.first) / max(1, e.pieces - 1) for e in many)
            lone_firsts.append(prefill)
            firsts += [e.first - e.sent for e in many]
            steps.append(step)
            excess += [_excess(each, many, prefill) / step for each in many]
    section.notes.append(
        f"{n} streams of {clients} clients, of {min(lengths)} to {max(lengths)} tokens each, and {few} of "
        f"them one by one; {bench.described('lm')}. A step is the median time between "
        "two pieces with all clients."
    )
    section.add(f"tokens per second, {clients} clients", together, "1/s")
    section.add("tokens per second, one by one", single, "1/s")
    section.add("ratio", ratios, at_least=3.0)
    section.add("first token alone, p50", [1000 * each for each in lone_firsts], "ms")
    section.add(f"first token, {clients} clients, p50", 1000 * quantile(firsts, 0.5), "ms")
    section.add(f"first token, {clients} clients, p99", 1000 * quantile(firsts, 0.99), "ms")
    section.add("a step", [1000 * each for each in steps], "ms")
    section.add(
        "first token, p99, in steps after the prompts that came before it",
        quantile(excess, 0.99),
        at_most=5.0,
    )
    return section


def _excess(own: Exchange, others: list[Exchange], prefill: float) -> float:
    """Return the seconds to the first token, without those that its prompt and the ones before it take."""
    ahead = sum(each.sent <= own.sent < each.first for each in others)  # itself among them
    return own.first - own.sent - ahead * prefill


def measure_memory(bench: Bench) -> Section:
    """Measure what memory the processes have before and after many requests."""
    section = Section("Memory")
    n = bench.amounts.memory_requests
    with serving({"tiny": bench.path("tiny")}, "--precision", bench.precision) as service:
        requests = bench.requests("tiny", 2000, seed=5, beam=1)
        closed_loop(service.port, requests[: max(50, n // 20)], bench.amounts.clients)
        before, samples = service.resident(), []
        for _ in range(4):
            done = 0
            while done < n // 4:
                part = requests[: n // 4 - done]
                closed_loop(service.port, part, bench.amounts.clients)
                done += len(part)
            samples.append(service.resident())
    section.notes.append(
        f"{n:,} requests of one input by {bench.amounts.clients} clients, after {max(50, n // 20):,} to warm "
        f"up; {bench.described('tiny')}, greedy. Resident memory."
    )
    for which in ("front", "engines"):
        section.add(f"{which}: before", before[which], "MiB")
        section.add(f"{which}: growth", samples[-1][which] - before[which], "MiB")
        section.add(f"{which}: growth in the last quarter", samples[-1][which] - samples[-2][which], "MiB")
    growth = sum(samples[-1].values()) - sum(before.values())
    section.add(f"growth of all, over {n:,} requests", growth, "MiB", at_most=50)
    return section


def measure_start(bench: Bench) -> Section:
    """Measure how long a service takes to live, and to be ready."""
    section = Section("Start")
    section.notes.append(
        "From the start of the process, its files in the system's cache. Live: `/health/live` answers; "
        "ready: the run does."
    )
    for name, live_aim, ready_aim in (("tiny", 1.0, 6.0), ("base", 1.0, None)):
        live, ready = [], []
        for _ in range(bench.amounts.starts):
            with serving({name: bench.path(name)}, "--precision", bench.precision, ready=False) as service:
                live.append(service.wait_for("/health/live"))
                ready.append(service.wait_for("/health/ready", 0.02))
        section.add(f"live, {name.capitalize()}", live, "s", at_most=live_aim)
        section.add(f"ready, {name.capitalize()}", ready, "s", at_most=ready_aim)
    return section
