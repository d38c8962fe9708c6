"""Compare the predictions of ``heedful describe`` with the time and memory of real trainings.

    python bench/predicted.py            ``describe --time``: seconds of an update and memory of five recipes
    python bench/predicted.py memory     ``describe``: memory of an update, for language models of many sizes

Each recipe and each size runs in a process of its own, one after the other.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.machine import describe
from harness.quiet import Watch
from harness.report import grid, write
from harness.training import options
from harness.turns import log

CASES = ("multi30k-ende-tiny", "multi30k-ende-rnn", "phrasebook-de", "shakespeare-char-cpu", "sst2")
RECIPE = "shakespeare-char-cpu"
UPDATES, QUICK, WARM = 60, 6, 10
MIB = 2**20

GRID = (  # context, layers, vocabulary, d_model, dropout
    (128, 2, 1_000, 128, 0.0),
    (128, 8, 8_000, 128, 0.0),
    (128, 32, 1_000, 128, 0.0),
    (256, 4, 1_000, 384, 0.2),
    (256, 16, 4_000, 256, 0.0),
    (512, 8, 1_000, 128, 0.0),
    (512, 4, 64_000, 384, 0.0),
    (1024, 8, 16_000, 384, 0.0),
    (2048, 2, 32_000, 256, 0.0),
    (2048, 8, 8_000, 128, 0.0),
    (8192, 4, 1_000, 128, 0.0),
    (8192, 2, 64_000, 128, 0.0),
)
TOKENS, GRID_UPDATES = 4096, 6


def predict_timing(name: str) -> dict[str, Any]:
    """Return the part ``timing`` of the JSON of ``describe --time``."""
    command = [sys.executable, "-m", "heedful", "describe", name, "--time", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    timing: dict[str, Any] = json.loads(done.stdout)["timing"]
    return timing


def measure_training(name: str, compiled: bool, run: Path, updates: int) -> tuple[float, int]:
    """Train, and return the median seconds of an update and the peak bytes of the process."""
    limits = {"max_updates": updates, "validate_every": 10**6, "save_every": 10**6, "average": 0}
    limits |= {"patience": "null", "compile": "on" if compiled else "off"}
    settings = [f"training.{key}={value}" for key, value in limits.items()]
    command = [sys.executable, "-m", "heedful", "train", name, *settings, "schedule.warmup=1"]
    with subprocess.Popen(
        [*command, "--out", str(run)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as p:
        assert p.stderr is not None
        errors = p.stderr.read()
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        raise RuntimeError(f"{name}: the training failed: {errors.decode()}")
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seconds = [event["seconds"] for event in events if event["event"] == "updated"]
    return statistics.median(seconds[WARM if updates > WARM else 0 :]), used.ru_maxrss * 1024


def settings(context: int, layers: int, vocabulary: int, d_model: int, dropout: float) -> list[str]:
    """Return the sizes of a cell of the grid as overrides of ``shakespeare-char-cpu``."""
    return [
        *("training.precision=fp32", "training.compile=off", f"vocab_size={vocabulary}"),
        f"training.tokens_per_update={max(TOKENS, context)}",
        *(f"model.context={context}", f"model.n_layers={layers}", f"model.d_model={d_model}"),
        *(f"model.dropout={dropout}", f"model.layer.mixer.dropout={dropout}"),
    ]


def cell(overrides: list[str]) -> None:
    """Print the peak memory of updates in MiB: torch's allocator, and resident above an empty process.

    An empty process is one that has trained a model of a few numbers.
    """
    from heedful.memory import keep_freed_memory

    keep_freed_memory()
    import torch
    from torch.profiler import ProfilerActivity, profile

    from heedful.recipes.resolve import parse_override
    from heedful.runs.reading import read_recipe
    from heedful.runs.timing import _Peak
    from heedful.tasks.registry import task_for
    from heedful.training.model_with_loss import ModelWithLoss
    from heedful.training.optimizers import build_optimizer, clip, gradient_norm

    def trained(changes: list[str], updates: int) -> tuple[Any, Any, Any]:
        """Make updates of the recipe, and return an update, the model and the optimizer."""
        (size,) = (parse_override(text)[1] for text in changes if text.startswith("vocab_size"))
        recipe, _ = read_recipe(RECIPE, [text for text in changes if not text.startswith("vocab_size")])
        task = task_for(recipe)
        model = task.build_model([size])
        step, optimizer = (
            ModelWithLoss(model, task.objective()).train(),
            build_optimizer(recipe.optimizer, model),
        )
        n = recipe.training.tokens_per_update // recipe.model.context

        def update() -> None:
            batch = task.synthetic_batch([size], n, 1, 1)
            step(batch, step.counts(batch))[0].backward()
            clip(list(step.parameters()), 1.0, gradient_norm(step.parameters()))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        for _ in range(updates):
            update()
        return update, model, optimizer

    trained([*settings(128, 1, 100, 128, 0.1), "training.tokens_per_update=128"], 2)
    peak = _Peak(torch.device("cpu"))
    update, model, optimizer = trained(overrides, GRID_UPDATES)
    resident = peak.read() or 0
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        update()
    assert profiler.profiler is not None
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    current = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        current += event.nbytes()
        highest = max(highest, current)
    states = (x.nbytes for state in optimizer.state.values() for x in state.values() if torch.is_tensor(x))
    allocated = highest + sum(x.nbytes for x in (*model.parameters(), *model.buffers())) + sum(states)
    print(json.dumps({"allocated": allocated / MIB, "resident": resident / MIB}))


def run(arguments: list[str]) -> Any:
    """Return the JSON on the last line that a Python process prints."""
    done = subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def memory_table() -> str:
    """Return a table of the predicted and measured memory of all cells of the grid, in MiB."""
    rows = []
    for sizes in GRID:
        overrides = settings(*sizes)
        described = run(["-m", "heedful", "describe", RECIPE, *overrides, "--json"])
        predicted, estimated = sum(described["memory"].values()) / MIB, described["resident"] / MIB
        measured = run([__file__, "cell", *overrides])
        pairs = ((measured["allocated"], predicted), (measured["resident"], estimated))
        numbers = [
            text for n, guess in pairs for text in (f"{n:,.0f}", f"{guess:,.0f} ({guess / n - 1:+.0%})")
        ]
        rows.append((*(f"{size:,}" for size in sizes), *numbers))
        log(" | ".join(rows[-1]))
    heads = ["context", "layers", "vocabulary", "d_model", "dropout"]
    return grid([*heads, "allocated", "predicted", "resident", "estimated"], rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["cell"]:
        cell(sys.argv[2:])
        sys.exit()
    if sys.argv[1:2] == ["memory"]:
        print(memory_table())
        sys.exit()
    args = options(__doc__, rounds=1)
    updates = QUICK if args.quick else UPDATES
    watch, rows, record = Watch(), [], {}
    for name in CASES:
        log(f"{name}: predicting")
        timing = predict_timing(name)
        log(f"{name}: training")
        with tempfile.TemporaryDirectory() as folder:
            seconds, memory = measure_training(name, timing["compiled"], Path(folder) / "run", updates)
        time_ratio, memory_ratio = timing["seconds"] / seconds, timing["process"] / memory
        record[name] = {"predicted": timing, "seconds": seconds, "memory": memory}
        rows.append(
            (
                name,
                f"{timing['seconds']:.3f}",
                f"{seconds:.3f}",
                f"{time_ratio - 1:+.0%}",
                f"{timing['process'] / MIB:.0f}",
                f"{memory / MIB:.0f}",
                f"{memory_ratio - 1:+.0%}",
            )
        )
        log(" ".join(rows[-1]))
    heads = ["recipe", "seconds predicted", "measured", "off by", "MiB predicted", "measured", "off by"]
    words = (
        f"Median of {updates - WARM if updates > WARM else updates} updates of a real training on its "
        "own data, and the peak memory of its process, including Python, torch and compilation. "
        f"Other processes used {watch.others():.2f} cores meanwhile."
    )
    title = "Training: predicted and measured time and memory"
    write("predicted", title, [grid(heads, rows), words], record, describe(), args.out)
