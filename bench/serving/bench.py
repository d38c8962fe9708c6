"""What all measurements of the service share: amounts, runs, texts."""

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from serving import models
from serving.clients import post

MULTI30K = "multi30k/test_2016_flickr.en.gz"


@dataclass(frozen=True)
class Amounts:
    """How much is measured.

    Args:
        rounds: repeats of what is compared.
        requests: of ``equal``.
        clients: that send at a time; ``equal`` has twice as many.
        round_seconds: about how long a round of load takes.
        alone: requests of one client in a round.
        streams: streams of a round with all clients; an eighth of them one by one.
        overload_seconds: of overload; the load of 80 % takes half as long.
        leavers: clients that leave, by each way.
        silent: clients that stop reading.
        send_timeout: of the service whose clients stop reading.
        memory_requests: ordinary requests between two measurements of memory.
        kills, hangs, ends: engines that are killed and stopped, and services that get SIGTERM.
        together: services that get it at a time.
        starts: of a service.
        small: whether the models are much smaller.
    """

    rounds: int = 3
    requests: int = 1000
    clients: int = 32
    round_seconds: float = 3.0
    alone: int = 60
    streams: int = 64
    overload_seconds: float = 30.0
    leavers: int = 100
    silent: int = 3
    send_timeout: float = 5.0
    memory_requests: int = 20_000
    kills: int = 20
    hangs: int = 5
    ends: int = 20
    together: int = 4
    starts: int = 5
    small: bool = False


QUICK = Amounts(
    rounds=2, requests=60, clients=6, round_seconds=0.4, alone=8, streams=12, overload_seconds=1.5, leavers=5,
    silent=1, send_timeout=1.0, memory_requests=100, kills=1, hangs=1, ends=1, starts=1, small=True,
)  # fmt: skip


@dataclass
class Bench:
    """Amounts, runs and texts.

    Args:
        amounts: how much is measured.
        folder: for the runs that are made.
        run: a trained translator in place of the Tiny one with random weights; None: none.
        texts: its inputs, a file with one in each line; None: Multi30k, from ``$HEEDFUL_DATA``.
        precision: of all models, the service's and the library's.
    """

    amounts: Amounts
    folder: Path
    run: Path | None = None
    texts: Path | None = None
    precision: str = "auto"
    _made: dict[str, Path] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """Return the folder of a run (`serving.models.KINDS`)."""
        if name == "tiny" and self.run is not None:
            return self.run
        if name not in self._made:
            self._made[name] = models.make(name, self.folder, small=self.amounts.small)
        return self._made[name]

    def described(self, name: str) -> str:
        """Say which model a run is."""
        if name == "tiny" and self.run is not None:
            return f"the trained run {self.run.name}"
        if self.amounts.small:
            return "a model far smaller, to try the script"
        return {
            "tiny": "Transformer-Tiny (4 + 4 layers of 128, 10,000 words), random weights, beam 4",
            "base": "Transformer-base (6 + 6 layers of 512, 10,000 words), random weights, beam 4",
            "lm": "a language model of 4 layers of 128, 10,000 words, random weights, greedy",
            "labels": "an encoder of 4 layers of 128, random weights",
        }[name]

    @cached_property
    def _given(self) -> list[str]:
        path = self.texts
        if path is None:
            path = Path(os.environ.get("HEEDFUL_DATA", "")) / MULTI30K
            if not path.is_file():
                raise SystemExit("--run: give its inputs with --texts FILE, or set HEEDFUL_DATA")
        return models.read_texts(path)

    def inputs(self, name: str, n: int, seed: int = 0) -> list[str]:
        """Return inputs for a run."""
        if name != "tiny" or self.run is None:
            return models.random_texts(n, seed)
        start = seed * 101
        return [self._given[(start + i) % len(self._given)] for i in range(n)]

    def requests(self, name: str, n: int, size: int = 1, seed: int = 0, **options: Any) -> list[bytes]:
        """Return requests of ``size`` inputs each."""
        texts = self.inputs(name, n * size, seed)
        return [
            post(name, "predict", {"inputs": texts[i : i + size], **options})
            for i in range(0, len(texts), size)
        ]

    def changed(self, **amounts: Any) -> "Bench":
        """Return the same with other amounts; None: leave one as it is."""
        given = {name: value for name, value in amounts.items() if value is not None}
        return replace(self, amounts=replace(self.amounts, **given))
