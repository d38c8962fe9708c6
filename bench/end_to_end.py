"""Compare a whole training with its bare steps: Multi30k with data, validation, checkpoints and logging.

Both are measured in the same training: a bare step lasts from the start of the first forward pass of an
update to the end of its optimizer step.
"""

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contenders import ours
from harness.machine import describe
from harness.quiet import Watch
from harness.report import grid, write
from harness.training import options
from harness.turns import log

UPDATES, QUICK = 200, 6
CHANGES = ("training.patience=null", "training.average=0", "schedule.warmup=1")


@dataclass
class BareSteps:
    """Seconds between the beginning of the forward pass and the end of the optimizer's step."""

    updates: list[float] = field(default_factory=list)
    start: float | None = None

    def begin(self, *_: Any) -> None:
        """Record the start; called before every forward pass."""
        self.start = time.perf_counter()

    def end(self, *_: Any) -> None:
        """Record the duration; called after every optimizer step."""
        if self.start is not None:
            self.updates.append(time.perf_counter() - self.start)
        self.start = None


def short_recipe(updates: int) -> Any:
    """Return the Multi30k recipe, limited to ``updates`` updates with two validations."""
    from heedful.runs.reading import read_recipe

    half = max(1, updates // 2)
    lengths = {"max_updates": updates, "validate_every": half, "save_every": half}
    changes = (f"training.{name}={value}" for name, value in lengths.items())
    return read_recipe("multi30k-ende-tiny", [*CHANGES, *changes])[0]


def train_and_time(recipe: Any, run: Path) -> tuple[BareSteps, list[tuple[Any, float]]]:
    """Train; return the bare steps, and the events with their times."""
    from heedful.runs import train

    bare, events = BareSteps(), []
    build_module, build_optimizer = train.build_module, train.build_optimizer

    def watched_step(*arguments: Any) -> Any:
        step = build_module(*arguments)
        step.register_forward_pre_hook(bare.begin)
        return step

    def watched_optimizer(*arguments: Any) -> Any:
        optimizer = build_optimizer(*arguments)
        optimizer.register_step_post_hook(bare.end)
        return optimizer

    train.build_module, train.build_optimizer = watched_step, watched_optimizer
    train.train_run(
        recipe,
        run,
        callbacks=lambda run_folder: [
            *_command_callbacks(recipe, run_folder),
            lambda event: events.append((event, time.perf_counter())),
        ],
        log=log,
    )
    return bare, events


def _command_callbacks(recipe: Any, run: Any) -> list[Any]:
    from heedful.training.callbacks import JsonLines, Progress

    return [JsonLines(run.metrics, recipe.training.log_every), Progress(stream=sys.stderr)]


def real_token_share(recipe: Any, run: Path) -> float:
    """Return the share of real tokens (not padding) in the batches of an epoch."""
    from heedful.artifacts.run_folder import RunFolder
    from heedful.runs.prepare import prepare

    # Reads what the training has prepared already.
    prepared = prepare(recipe, RunFolder(run), log)
    data = prepared.task.training_data(prepared)
    slots = sum(len(s) * data.lengths[s].max(axis=0).sum() for s in data.epoch(0))
    return float(data.lengths.sum() / slots)


if __name__ == "__main__":
    args = options(__doc__, rounds=1)
    ours.prepare()
    watch, recipe = Watch(), short_recipe(QUICK if args.quick else UPDATES)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        bare, events = train_and_time(recipe, run)
        share = real_token_share(recipe, run)
    times = {type(event).__name__: at for event, at in events}
    whole = times["Stopped"] - times["Started"]
    updated = [event for event, _ in events if type(event).__name__ == "Updated"]
    in_updates, stripped = sum(event.seconds for event in updated), sum(bare.updates)
    validations = sum(type(event).__name__ == "Validated" for event, _ in events)
    rows = [
        ("forward, backward, update: the bare step", stripped),
        ("making batches, counting, logging", in_updates - stripped),
        (f"{validations} validations and checkpoints, and the rest", whole - in_updates),
        ("the whole training", whole),
    ]
    tokens = sum(event.tokens for event in updated)
    middle = 1000 * statistics.median(bare.updates)
    words = (
        f"{len(updated)} updates, {tokens / whole:,.0f} tokens/s of both sides in all, "
        f"{tokens / stripped:,.0f} in the bare steps (median {middle:,.0f} ms): **{stripped / whole:.1%} of "
        f"the bare throughput**. Real tokens in the rectangles of an epoch's batches: **{share:.1%}**. "
        f"Other processes used {watch.others():.2f} cores meanwhile."
    )
    table = grid(["", "seconds", "share"], [(name, f"{s:.1f}", f"{s / whole:.1%}") for name, s in rows])
    record = {"rows": dict(rows), "tokens": tokens, "real": share, "bare": bare.updates}
    write("end_to_end", "A whole training and its bare steps", [table, words], record, describe(), args.out)
