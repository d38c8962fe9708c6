"""What ``describe --time`` foretells, and what a training then takes: seconds of an update, memory.

Both are the real command in processes of their own, one after the other.
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
UPDATES, QUICK, WARM = 60, 6, 10
MIB = 2**20


def predicted(name: str) -> dict[str, Any]:
    """What ``describe --time`` says, in the part ``timing`` of its JSON."""
    command = [sys.executable, "-m", "heedful", "describe", name, "--time", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    timing: dict[str, Any] = json.loads(done.stdout)["timing"]
    return timing


def trained(name: str, compiled: bool, run: Path, updates: int) -> tuple[float, int]:
    """Median seconds of an update, and bytes of the process at its peak."""
    limits = {"max_updates": updates, "validate_every": 10**6, "save_every": 10**6, "average": 0}
    limits |= {"patience": "null", "compile": "on" if compiled else "off"}
    settings = [f"training.{key}={value}" for key, value in limits.items()]
    command = [sys.executable, "-m", "heedful", "train", name, *settings, "schedule.warmup=1"]
    with subprocess.Popen(
        [*command, "--out", str(run)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as p:
        assert p.stderr is not None
        said = p.stderr.read()
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        raise RuntimeError(f"{name}: the training failed: {said.decode()}")
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seconds = [event["seconds"] for event in events if event["event"] == "updated"]
    return statistics.median(seconds[WARM if updates > WARM else 0 :]), used.ru_maxrss * 1024


if __name__ == "__main__":
    chosen = options(__doc__, rounds=1)
    updates = QUICK if chosen.quick else UPDATES
    watch, rows, record = Watch(), [], {}
    for name in CASES:
        log(f"{name}: foretelling")
        said = predicted(name)
        log(f"{name}: training")
        with tempfile.TemporaryDirectory() as folder:
            seconds, memory = trained(name, said["compiled"], Path(folder) / "run", updates)
        took, held = said["seconds"] / seconds, said["process"] / memory
        record[name] = {"predicted": said, "seconds": seconds, "memory": memory}
        rows.append(
            (
                name,
                f"{said['seconds']:.3f}",
                f"{seconds:.3f}",
                f"{took - 1:+.0%}",
                f"{said['process'] / MIB:.0f}",
                f"{memory / MIB:.0f}",
                f"{held - 1:+.0%}",
            )
        )
        log(" ".join(rows[-1]))
    heads = ["recipe", "seconds predicted", "measured", "off by", "MiB predicted", "measured", "off by"]
    words = (
        f"The median of {updates - WARM if updates > WARM else updates} updates of a real training, on its "
        "own data, and its process at the peak, with Python, torch and what compiling takes. Other processes "
        f"used {watch.others():.2f} cores meanwhile."
    )
    title = "What is predicted of a training, and what it takes"
    write("predicted", title, [grid(heads, rows), words], record, describe(), chosen.out)
