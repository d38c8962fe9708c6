"""Measure training and translation while other programs run, relative to the speed on an idle machine.

Each contender does the same work in subprocesses, which run in turn; the other programs are busy loops.
"""

import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.machine import describe
from harness.report import grid, number, write
from harness.training import options
from harness.turns import log

LOADS = (0, 1, 2)
TURN, QUICK_TURN = 2.0, 0.5
"""Seconds of a turn on an idle machine."""

WARM_UP = 3
CORES = str(os.cpu_count() or 1)
ONE = {"OMP_NUM_THREADS": "1"}
TRAINING = {
    f"{CORES} threads": (1, {}),
    "a process for each core": (int(CORES), ONE),
    "1 thread": (1, ONE),
    f"{CORES} threads that do not spin": (1, {"GOMP_SPINCOUNT": "0"}),
}
TRANSLATING = {name: how for name, how in TRAINING.items() if how[0] == 1}
OPEN = ExitStack()
"""Contexts that a worker keeps open until it exits."""

CASES = {
    "Transformer-Tiny (`multi30k-ende-tiny`), target tokens/s": ("train", "multi30k-ende-tiny"),
    "RNN with attention (`multi30k-ende-rnn`), target tokens/s": ("train", "multi30k-ende-rnn"),
    "Language model (`shakespeare-char-cpu`), tokens/s": ("train", "shakespeare-char-cpu"),
    "Transformer-base, target tokens/s": ("train", "multi30k-ende-tiny model.preset=transformer-base"),
    "Translating, Transformer-Tiny, 32 sentences, greedy, fp32, tokens/s": ("translate", "fp32"),
    "Translating, Transformer-Tiny, 32 sentences, greedy, int8, tokens/s": ("translate", "int8"),
}


@dataclass
class ContenderProcesses:
    """A contender that runs in one process, or in several with data-parallel training.

    Args:
        processes: each reads the number of pieces of work to do, and writes the seconds.
        tokens: tokens per piece of work.
        pieces: pieces of work per turn.
        rates: tokens per second of each turn, by the number of other programs.
    """

    processes: list[subprocess.Popen[str]]
    tokens: int
    pieces: int = 1
    rates: dict[int, list[float]] = field(default_factory=dict)

    def turn(self, pieces: int) -> float:
        """Run ``pieces`` pieces of work; return the seconds of the slowest process."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{pieces}\n")
            process.stdin.flush()
        return max(float(_read_answer(process)) for process in self.processes)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def start_contender(
    kind: str, spec: str, n: int, environment: dict[str, str], seconds: float
) -> ContenderProcesses:
    """Start and warm up a contender, and determine the pieces of work per turn."""
    shared = {**os.environ, **environment, "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if n > 1:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(sock.getsockname()[1])}
        shared |= {"WORLD_SIZE": str(n), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-W", "ignore", __file__, "--worker", kind, spec]
    processes = [
        subprocess.Popen(
            command,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(n)
    ]
    tokens = [int(_read_answer(process)) for process in processes]
    contender = ContenderProcesses(processes, tokens[0])
    contender.turn(WARM_UP)
    contender.pieces = max(1, round(seconds / contender.turn(1)))
    return contender


def _read_answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("a contender ended")
    return line


def measure(case: str, rounds: int, seconds: float) -> dict[str, ContenderProcesses]:
    """Measure every contender in turn, alone and beside other programs."""
    kind, spec = CASES[case]
    environments = TRAINING if kind == "train" else TRANSLATING
    running = {name: start_contender(kind, spec, n, env, seconds) for name, (n, env) in environments.items()}
    busy: list[subprocess.Popen[bytes]] = []
    try:
        for load in LOADS:
            while len(busy) < load:
                busy.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            for _ in range(rounds):
                for contender in running.values():
                    time.sleep(0.3)  # until spinning threads of the previous contender sleep
                    pieces = max(1, contender.pieces // (1 + load))
                    rate = pieces * contender.tokens / contender.turn(pieces)
                    contender.rates.setdefault(load, []).append(rate)
            log(f"{case}: beside {load}")
    finally:
        for process in busy:
            process.kill()
            process.wait()
        for contender in running.values():
            contender.close()
    return running


def table(case: str, contenders: dict[str, ContenderProcesses]) -> str:
    """Return a table of median rates, and their share of the first contender's rate alone."""
    alone = statistics.median(next(iter(contenders.values())).rates[0])
    rows = []
    for name, contender in contenders.items():
        medians = [statistics.median(contender.rates[load]) for load in LOADS]
        rows.append([name, *(f"{number(rate)} ({rate / alone:.0%})" for rate in medians)])
    heads = ["contender", "alone", "beside one program", "beside two"]
    return f"## {case}\n\n{grid(heads, rows)}"


def worker(kind: str, spec: str) -> None:
    """Read numbers of pieces of work from standard input, do them, and print the seconds."""
    from contenders.ours import prepare

    prepare()
    tokens, work = {"train": _training_work, "translate": _translating_work}[kind](spec)
    print(tokens, flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            work()
        print(time.perf_counter() - start, flush=True)


def _training_work(recipe: str) -> tuple[int, Callable[[], Any]]:
    """Return tokens and work: an update of a recipe on synthetic data, in all processes."""
    import numpy as np

    from heedful.data.batch import Batch
    from heedful.runs.reading import read_recipe
    from heedful.runs.train import new_module
    from heedful.tasks.registry import task_for
    from heedful.training import distribution
    from heedful.training.optimizers import build_optimizer
    from heedful.training.update import PlannedData, update_weights

    name, *changes = recipe.split()
    read, _ = read_recipe(name, ["training.compile=off", *changes])
    device = OPEN.enter_context(distribution.process_group("cpu"))
    rng, vocabulary, budget = np.random.default_rng(0), 9_500, read.training.tokens_per_update
    if read.task.kind == "translation":
        lengths = rng.integers(6, 22, size=(budget // 14, 2))
        rows = [[rng.integers(10, vocabulary, n).tolist() for n in pair] for pair in lengths]

        def make(samples: Sequence[int], epoch: int) -> Batch:
            sides = ([rows[i][side] for i in samples] for side in (0, 1))
            return Batch.teacher_forced(*sides, start=1, end=2)

        sizes, lengths = [vocabulary, vocabulary], lengths + 1
    else:
        vocabulary, context = 80, read.model.context
        text = rng.integers(10, vocabulary, size=(budget // context, context + 1))

        def make(samples: Sequence[int], epoch: int) -> Batch:
            return Batch.windows(text[list(samples)])

        sizes, lengths = [vocabulary], np.full((len(text), 1), context)
    module = new_module(task_for(read), sizes, device).train()
    forward = distribution.wrap(module)
    optimizer = build_optimizer(read.optimizer, module.model, {})
    data = PlannedData(lengths, make, budget, seed=1)
    samples = list(range(len(lengths)))

    def work() -> None:
        update_weights(
            forward, optimizer, data, read.training, samples,
            epoch=0, update=1, lr=1e-6, run=Path("bad-batch-of-the-bench"),
        )  # fmt: skip

    return int(lengths[:, -1].sum()), work


def _translating_work(precision: str) -> tuple[int, Callable[[], Any]]:
    """Return tokens and work: translating a batch of 32 synthetic sentences."""
    from contenders import ours
    from contenders.decoding import Job
    from decode import SHAPES

    job = Job(SHAPES["Transformer-Tiny"], 32, 32, 1)
    (contender,) = [c for c in ours.decoding(job, "cpu") if c.name == f"heedful, {precision}"]
    work = contender.build()
    return job.sentences * job.new_tokens, lambda: work(0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
        sys.exit()
    args = options(__doc__, rounds=5)
    sections, record = [], {}
    for case in (name for name in CASES if re.search(args.only or "", name)):
        seats = measure(case, args.rounds, QUICK_TURN if args.quick else TURN)
        sections.append(table(case, seats))
        record[case] = {name: each.rates for name, each in seats.items()}
        words = (
            "Medians, and in brackets the share of the rate of all threads of one process alone. The other "
            "programs are busy loops of equal priority: a fair scheduler leaves two thirds of two cores "
            "beside one of them, and half beside two."
        )
        # After each case, so that an interrupted run keeps the cases so far.
        title = "Beside other work"
        write("beside_other_work", title, [words, *sections], record, describe(), args.out)
