"""Measure time and memory of an update on this machine.

No formula predicts either within a few percent for every chip and model, and a few updates take seconds. They
use the code of ``heedful train``, and their weights are discarded. The data are those of the recipe, since
their vocabulary and lengths determine both; or random tokens if there are no data, or sizes are given.

Updates take about half a minute at most: of slow ones, only every n-th row is used.
"""

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np
import torch

from heedful.artifacts.environment import choose_device
from heedful.artifacts.run_folder import RunFolder
from heedful.data.batch import Batch
from heedful.data.plan import Lengths, Samples
from heedful.errors import DataError, RequestError
from heedful.files import scratch_folder
from heedful.memory import keep_freed_memory
from heedful.recipes.schema import Recipe
from heedful.runs.memory_budget import rehearse, too_wide
from heedful.runs.prepare import prepare
from heedful.runs.train import choose_fast_path, new_module
from heedful.runs.warm_start import rate_shares
from heedful.tasks.base import PreparedData
from heedful.tasks.registry import task_for
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import build_optimizer
from heedful.training.update import PlannedData, update_weights
from heedful.typing import JsonObject

WARM_UP = 2
FEWEST, SECONDS = 3, 3.0
"""Minimum number of timed updates, and of seconds in which they are made."""

ENOUGH, PATIENCE = 20, 12.0
"""Number of slow updates to time, if they take at most so many seconds: the speed of a machine varies."""

LIMIT = 30.0
"""Number of seconds that the fewest updates may take together, timed or not, without compilation."""

LONG_ENOUGH = 1.0
"""Number of seconds of an update from whose time that of a whole one is estimated."""

RATE = 1e-6
"""Learning rate: the weights do not matter, but they should stay finite."""


@dataclass(frozen=True)
class Timing:
    """Time and memory of updates.

    Args:
        device, precision, threads, compiled: as in training.
        own_data: whether the data are those of the recipe, not random tokens.
        tokens: mean number of target tokens of an update.
        seconds: median time of an update.
        updates_timed: number of timed updates.
        row_stride: n, if only every n-th row of these was used, and their times were scaled by the tokens; 1:
            all rows.
        memory: peak of the bytes of model, optimizer and updates, without Python and torch themselves; None
            if the system does not report it, or only a part of the rows was used.
        process: peak of the bytes of the whole process, with Python, torch and compilation, without the
            memory of a GPU; None likewise.
        max_updates: as in the recipe.
        max_epochs: likewise; the number of updates of an epoch depends on the data.
        max_minutes: likewise.
    """

    device: str
    precision: str
    threads: int
    compiled: bool
    own_data: bool
    tokens: int
    seconds: float
    updates_timed: int
    row_stride: int
    memory: int | None
    process: int | None
    max_updates: int | None
    max_epochs: int | None
    max_minutes: float | None

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second."""
        return self.tokens / self.seconds

    @property
    def training_seconds(self) -> float | None:
        """Seconds of all updates, without validations; None if the recipe does not limit them."""
        limits = [] if self.max_updates is None else [self.max_updates * self.seconds]
        limits += [] if self.max_minutes is None else [60 * self.max_minutes]
        return min(limits, default=None)

    def to_dict(self) -> JsonObject:
        """Return the JSON object, a part of ``ledger.schema.json``."""
        return {
            **asdict(self),
            "tokens_per_second": self.tokens_per_second,
            "training_seconds": self.training_seconds,
        }


@contextmanager
def own_data(recipe: Recipe, log: Callable[[str], None]) -> Iterator[PreparedData | None]:
    """Yield the recipe's data, in a temporary folder; if there are none, log why and yield None."""
    with scratch_folder() as folder:
        try:
            prepared = prepare(recipe, RunFolder(folder), log)
        except (DataError, RequestError) as error:
            log(f"{error}\nso the tokens of the timed updates are made up")
            prepared = None
        yield prepared


def time_updates(
    recipe: Recipe,
    sizes: Sequence[int],
    *,
    length: int,
    source_length: int | None = None,
    prepared: PreparedData | None = None,
    device: str = "auto",
    log: Callable[[str], None] = lambda line: None,
) -> Timing:
    """Time a few updates of the recipe's training.

    Args:
        recipe: the recipe.
        sizes: sizes of the vocabularies, and others that the data determine.
        length: mean number of tokens of a random target sentence; a language model reads its context.
        source_length: likewise, of a source sentence; ``length`` by default.
        prepared: the data; None: random tokens.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        log: called with lines about the preparation.
    """
    keep_freed_memory()
    torch_device, settings = choose_device(device), recipe.training
    peak = _Peak(torch_device)
    module = new_module(task_for(recipe), sizes, torch_device).to(torch_device).train()
    if prepared is None:
        data, updates = _synthetic_data(recipe, sizes, length, source_length or length)
    else:
        data = prepared.task.training_data(prepared)
        updates = data.epoch(0)
    log("estimating the time of an update")
    n_rows = sum(map(len, updates)) // len(updates)
    with scratch_folder() as run:
        trial = _Trial(recipe, module, data, updates, run)
        stride = trial.row_stride(trial.estimated_seconds(n_rows), n_rows)
        if stride == 1 and prepared is not None:
            message_for = partial(too_wide, recipe, prepared.longest)
            rehearse(module, data, settings.accumulate, torch_device, message_for)
        work = trial.work(stride)
        for _ in range(WARM_UP):
            work()
        memory = peak.read() if stride == 1 else None  # before compilation, whose memory is not the update's
        choose_fast_path(recipe, module, data, torch_device, log)
        part = "" if stride == 1 else f", on 1 in {stride} of their rows: whole ones would take too long"
        log(f"timing updates{part}")
        seconds = [trial.of_whole(*timed) for timed in _timed(work, torch_device)]
    return Timing(
        device=torch_device.type,
        precision=module.precision,
        threads=torch.get_num_threads(),
        compiled=module.compiled,
        own_data=prepared is not None,
        tokens=round(statistics.mean(trial.tokens[-len(seconds) :])),
        seconds=statistics.median(seconds),
        updates_timed=len(seconds),
        row_stride=stride,
        memory=memory,
        process=peak.of_process() if stride == 1 else None,
        **settings.model_dump(include={"max_updates", "max_epochs", "max_minutes"}),
    )


class _Trial:
    """Updates as in training, whole or on every n-th of their rows, where n is the ``stride``.

    Args:
        recipe: the recipe.
        module: the model and its loss; the updates change its weights.
        data: the data.
        updates: the samples of each update, which are used one after another, again and again.
        run: a folder for what a diverged update writes.
    """

    def __init__(
        self, recipe: Recipe, module: ModelWithLoss, data: PlannedData, updates: Sequence[Samples], run: Path
    ) -> None:
        self.recipe, self.module, self.data, self.run = recipe, module, data, run
        self.order = cycle(updates)
        self.tokens: list[int] = []
        """Target tokens of the whole updates."""
        self.fixed = 0.0
        """Seconds of an update on one row, mostly those of the optimizer."""

    def work(self, stride: int) -> Callable[[], float]:
        """Return a function that makes an update, with an optimizer of its own.

        It returns the ratio of the target tokens of the whole update to those used.
        """
        model, settings = self.module.model, self.recipe.training
        optimizer = build_optimizer(self.recipe.optimizer, model, rate_shares(self.recipe, model))

        last = settings.max_updates or 1  # with scheduled sampling, the slowest update

        def update() -> float:
            rows = next(self.order)
            used = rows[::stride].tolist()
            update_weights(
                self.module, optimizer, self.data, settings, used, epoch=0, update=last, lr=RATE, run=self.run
            )
            self.tokens.append(_target_tokens(self.data.lengths[rows]))
            return self.tokens[-1] / _target_tokens(self.data.lengths[used])

        return update

    def estimated_seconds(self, n_rows: int) -> float:
        """Return about how long a whole update takes, by updates on few of its ``n_rows`` rows."""
        stride = n_rows
        self.fixed, _ = self._seconds(stride)
        while True:
            stride = max(1, stride // 4)
            seconds, ratio = self._seconds(stride)
            if stride == 1 or seconds - self.fixed > LONG_ENOUGH:
                return self.of_whole(seconds, ratio)

    def _seconds(self, stride: int) -> tuple[float, float]:
        """Return the seconds of an update, made for the second time, and what it returns.

        The first one imports what optimizers need and prepares products of new sizes.
        """
        work = self.work(stride)
        work()
        start = time.perf_counter()
        ratio = work()
        return time.perf_counter() - start, ratio

    def of_whole(self, seconds: float, ratio: float) -> float:
        """Estimate the seconds of a whole update from those of a part with 1 / ``ratio`` of its tokens."""
        return seconds if ratio == 1 else self.fixed + max(0.0, seconds - self.fixed) * ratio

    @staticmethod
    def row_stride(seconds: float, n_rows: int) -> int:
        """Return the smallest stride of updates that take `LIMIT` together; a whole one takes ``seconds``."""
        n_updates = 1 + 2 * WARM_UP + FEWEST  # the widest micro-batch may be a whole one too
        return max(1, min(math.ceil(seconds * n_updates / LIMIT), n_rows))


def _target_tokens(lengths: Lengths) -> int:
    """Return the sum of the target lengths, which are in the last column if there are several."""
    return int((lengths[:, -1] if lengths.ndim > 1 else lengths).sum())


def _synthetic_data(
    recipe: Recipe, sizes: Sequence[int], length: int, source_length: int
) -> tuple[PlannedData, list[Samples]]:
    """Return data of one update, of sequences of about these lengths, and the samples of that update."""
    task, settings = task_for(recipe), recipe.training

    def make(samples: Sequence[int], epoch: int) -> Batch:
        return task.synthetic_batch(sizes, len(samples), length, source_length)

    example = make([0], 0)
    columns = [side.layout.n_tokens for side in (example.source, example.inputs) if side is not None]
    samples = np.arange(max(1, settings.tokens_per_update // columns[-1]))
    lengths = np.tile(columns, (len(samples), 1))
    return PlannedData(lengths, make, settings.tokens_per_update, settings.seed), [samples]


def _timed(work: Callable[[], float], device: torch.device) -> Iterator[tuple[float, float]]:
    """Call ``work`` `WARM_UP` times, then repeatedly, yielding the seconds of each call and its result."""
    for _ in range(WARM_UP):
        work()
    loop_start, n = time.perf_counter(), 0
    while n < FEWEST or time.perf_counter() - loop_start < (SECONDS if n >= ENOUGH else PATIENCE):
        start = time.perf_counter()
        ratio = work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        yield time.perf_counter() - start, ratio
        n += 1


class _Peak:
    """Measures the increase of memory since its creation."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.before = device, 0
        self.earlier = _status("VmHWM")  # the process includes the preparation of data
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self.before = torch.cuda.memory_allocated(device)
        elif sys.platform == "linux":
            with suppress(OSError):  # forget the peak so far
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            self.before = _status("VmRSS")

    def read(self) -> int | None:
        """Return the bytes; None if the system does not report them."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) - self.before
        highest = _status("VmHWM")
        return max(0, highest - self.before) if self.before and highest else None

    def of_process(self) -> int | None:
        """Return the maximum of bytes of the process; None if the system does not report it."""
        return max(self.earlier, _status("VmHWM")) or None


def _status(key: str) -> int:
    """Return a size of this process in bytes, as reported by Linux; 0 if it is not."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)
