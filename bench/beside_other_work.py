"""Training and translating beside other programs: what is kept of the speed that the machine has alone.

Each contender does the same work in processes of its own, which wait for their turn; other programs are
busy loops.
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
"""Seconds of a turn, at the speed that a contender has alone."""

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
"""What a worker keeps open until it ends."""

CASES = {
    "Transformer-Tiny (`multi30k-ende-tiny`), target tokens/s": ("train", "multi30k-ende-tiny"),
    "RNN with attention (`multi30k-ende-rnn`), target tokens/s": ("train", "multi30k-ende-rnn"),
    "Language model (`shakespeare-char-cpu`), tokens/s": ("train", "shakespeare-char-cpu"),
    "Transformer-base, target tokens/s": ("train", "multi30k-ende-tiny model.preset=transformer-base"),
    "Translating, Transformer-Tiny, 32 sentences, greedy, fp32, tokens/s": ("translate", "fp32"),
    "Translating, Transformer-Tiny, 32 sentences, greedy, int8, tokens/s": ("translate", "int8"),
}


@dataclass
class Seat:
    """A contender at work, in one process or several that train together.

    Args:
        processes: they are told how many pieces of work to do, and answer with the seconds.
        tokens: of a piece of work.
        pieces: in a turn.
        rates: tokens a second of each turn, by the number of other programs.
    """

    processes: list[subprocess.Popen[str]]
    tokens: int
    pieces: int = 1
    rates: dict[int, list[float]] = field(default_factory=dict)

    def turn(self, pieces: int) -> float:
        """Seconds of so many pieces of work."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{pieces}\n")
            process.stdin.flush()
        return max(float(_answer(process)) for process in self.processes)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def seat(kind: str, what: str, n: int, environment: dict[str, str], seconds: float) -> Seat:
    """Start a contender, warm it up and find how many pieces fill a turn."""
    shared = {**os.environ, **environment, "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if n > 1:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(sock.getsockname()[1])}
        shared |= {"WORLD_SIZE": str(n), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-W", "ignore", __file__, "--worker", kind, what]
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
    tokens = [int(_answer(process)) for process in processes]
    made = Seat(processes, tokens[0])
    made.turn(WARM_UP)
    made.pieces = max(1, round(seconds / made.turn(1)))
    return made


def _answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("a contender ended")
    return line


def measure(case: str, rounds: int, seconds: float) -> dict[str, Seat]:
    """Let every contender take its turns, alone and beside other programs."""
    kind, what = CASES[case]
    contenders = TRAINING if kind == "train" else TRANSLATING
    seats = {name: seat(kind, what, n, env, seconds) for name, (n, env) in contenders.items()}
    busy: list[subprocess.Popen[bytes]] = []
    try:
        for load in LOADS:
            while len(busy) < load:
                busy.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            for _ in range(rounds):
                for each in seats.values():
                    time.sleep(0.3)  # the threads of the one before fall asleep
                    pieces = max(1, each.pieces // (1 + load))
                    rate = pieces * each.tokens / each.turn(pieces)
                    each.rates.setdefault(load, []).append(rate)
            log(f"{case}: beside {load}")
    finally:
        for process in busy:
            process.kill()
            process.wait()
        for each in seats.values():
            each.close()
    return seats


def table(case: str, seats: dict[str, Seat]) -> str:
    """Median rates, and their share of the first contender's rate alone."""
    alone = statistics.median(next(iter(seats.values())).rates[0])
    rows = []
    for name, each in seats.items():
        medians = [statistics.median(each.rates[load]) for load in LOADS]
        rows.append([name, *(f"{number(rate)} ({rate / alone:.0%})" for rate in medians)])
    heads = ["contender", "alone", "beside one program", "beside two"]
    return f"## {case}\n\n{grid(heads, rows)}"


def worker(kind: str, what: str) -> None:
    """Do pieces of work as they are asked for on standard input."""
    from contenders.ours import prepare

    prepare()
    tokens, work = {"train": _training, "translate": _translating}[kind](what)
    print(tokens, flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        for _ in range(int(line)):
            work()
        print(time.perf_counter() - begin, flush=True)


def _training(recipe: str) -> tuple[int, Callable[[], Any]]:
    """Updates of a recipe on made-up data, by all the processes that the environment names."""
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
    draw, vocabulary, budget = np.random.default_rng(0), 9_500, read.training.tokens_per_update
    if read.task.kind == "translation":
        lengths = draw.integers(6, 22, size=(budget // 14, 2))
        rows = [[draw.integers(10, vocabulary, n).tolist() for n in pair] for pair in lengths]

        def make(samples: Sequence[int], epoch: int) -> Batch:
            sides = ([rows[i][side] for i in samples] for side in (0, 1))
            return Batch.teacher_forced(*sides, start=1, end=2)

        sizes, lengths = [vocabulary, vocabulary], lengths + 1
    else:
        vocabulary, context = 80, read.model.context
        text = draw.integers(10, vocabulary, size=(budget // context, context + 1))

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


def _translating(precision: str) -> tuple[int, Callable[[], Any]]:
    """Batches of 32 made-up sentences."""
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
    chosen = options(__doc__, rounds=5)
    sections, record = [], {}
    for case in (name for name in CASES if re.search(chosen.only or "", name)):
        seats = measure(case, chosen.rounds, QUICK_TURN if chosen.quick else TURN)
        sections.append(table(case, seats))
        record[case] = {name: each.rates for name, each in seats.items()}
        words = (
            "Medians, and in brackets the share of what all threads of one process make alone. The other "
            "programs are busy loops of equal priority: a fair scheduler leaves two thirds of two cores "
            "beside one of them, and half beside two."
        )
        # After each, for whoever has no time for all.
        title = "Beside other work"
        write("beside_other_work", title, [words, *sections], record, describe(), chosen.out)
