"""Helpers for trainings that are killed and resumed, and for comparing their outcomes."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import Command, Started

SIZES = [
    "training.max_updates=24",
    "training.validate_every=6",
    "training.save_every=3",
    "validation.decode=3",
]

Outcome = tuple[str, list[dict[str, Any]]]

# Reached only if a checkpoint is written twice; covered by the unit tests of checkpoints.
ELSEWHERE = {"while-replacing"}


def outcome(run: Path) -> Outcome:
    """Return what must not depend on interruptions: the hash of the weights, and metrics without times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    events = [line for line in lines if line["event"] in ("updated", "validated")]
    measured = [{key: line[key] for key in line if key not in ("seconds", "elapsed")} for line in events]
    return hashlib.sha256((run / "weights.safetensors").read_bytes()).hexdigest(), measured


@pytest.fixture(scope="module")
def whole(heedful: Command, transformer: Path) -> Outcome:
    """Return the outcome of an uninterrupted training of 24 updates."""
    folder = transformer.parent
    done = heedful("train", "tiny.yaml", *SIZES, "--out", "undisturbed", cwd=folder)
    assert done.status == 0, done.err
    weights, measured = outcome(folder / "undisturbed")
    assert [x["update"] for x in measured if x["event"] == "updated"] == list(range(1, 25))
    assert [x["update"] for x in measured if x["event"] == "validated"] == [6, 12, 18, 24]
    assert measured[-1]["metrics"].keys() >= {"loss", "bleu"}
    assert max(x.get("epoch", 0) for x in measured) > 1
    return weights, measured


def begin(heedful: Command, corpus: Path, changes: Sequence[str] = SIZES, **settings: Any) -> Started:
    """Start the training, or resume it if its folder exists."""
    resume = ["--resume"] if (corpus / "run" / "recipe.yaml").exists() else []
    return heedful.start("train", "tiny.yaml", *changes, "--out", "run", *resume, cwd=corpus, **settings)


def finish(heedful: Command, corpus: Path) -> Outcome:
    """Resume a run to its end; return its outcome."""
    process = begin(heedful, corpus).wait()
    assert process.status == 0, process.err
    assert leftovers(corpus / "run") == []
    return outcome(corpus / "run")


def leftovers(run: Path, temporary: Path | None = None) -> list[Path]:
    """Return what killed trainings left half written in a run, and in the system's temporary folder."""
    scratch = [] if temporary is None else [*temporary.glob("heedful-*")]
    return [*run.rglob(".*"), *run.rglob("*.tmp"), *run.rglob("*.replaced"), *scratch]


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timeout: condition not met"
        time.sleep(0.001)
