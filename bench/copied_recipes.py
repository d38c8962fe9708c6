"""Which optimizer gets the recipes that users copy (``my-own-…``) to a quality soonest.

    python bench/copied_recipes.py labels tags        these kinds of tasks; without names, all
    python bench/copied_recipes.py files --updates 0.5    half of the updates
    python bench/copied_recipes.py --jobs 8               eight trainings at a time

For each kind, the recipe is trained on up to three data sets of two sizes with every setting of `SETTINGS`,
on one thread, for as many updates. The table has the best validation metric, and in brackets the share
of the first setting's processor time until its best metric after which a setting was as good. Reads
``$HEEDFUL_DATA``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.machine import describe
from harness.report import grid
from harness.turns import log

Overrides = Mapping[str, object]

ADAMW: Overrides = {"optimizer": "adamw", "optimizer.weight_decay": 0.01, "schedule": "cosine"}
MUON: Overrides = {"optimizer": "muon", "schedule": "cosine"}

SETTINGS: Mapping[str, Overrides] = {
    "adam, inverse-sqrt 2e-3": {"optimizer": "adam", "schedule": "inverse-sqrt", "schedule.peak": 2e-3},
    "adamw, cosine 1e-3": {**ADAMW, "schedule.peak": 1e-3},
    "adamw, cosine 3e-3": {**ADAMW, "schedule.peak": 3e-3},
    "muon, cosine 0.01": {**MUON, "schedule.peak": 0.01},
    "muon, cosine 0.02": {**MUON, "schedule.peak": 0.02},
}
"""Optimizers and schedules; the warm-up is a tenth of the training."""


@dataclass(frozen=True)
class Case:
    """A data set: the section ``data`` of the recipe, with the training rows to be limited.

    Args:
        data: training and validation sources.
        sizes: numbers of training rows, each with its number of updates; a size of 0 is all rows.
        changes: further overrides.
    """

    data: Mapping[str, Any]
    sizes: Mapping[int, int]
    changes: Overrides | None = None


def _tsv(name: str, columns: Mapping[str, int | str], valid: str = "valid", **keys: object) -> dict[str, Any]:
    def source(split: str, **limits: object) -> dict[str, Any]:
        path = f"$HEEDFUL_DATA/{name}/{split}.tsv.gz"
        return {"kind": "tsv", "paths": path, "columns": dict(columns), **keys, **limits}

    return {"train": source("train"), "valid": source(valid, limit=1000)}


def _files(name: str, source: str, target: str, valid: str = "valid") -> dict[str, Any]:
    def files(split: str, **limits: object) -> dict[str, Any]:
        folder = f"$HEEDFUL_DATA/{name}"
        columns = {"source": f"{folder}/{split}.{source}.gz", "target": f"{folder}/{split}.{target}.gz"}
        return {"kind": "files", "columns": columns, **limits}

    return {"train": files("train"), "valid": files(valid, limit=500)}


def _built_in(name: str, **keys: object) -> dict[str, Any]:
    return {split: {"kind": "built-in", "name": name, "split": split, **keys} for split in ("train", "valid")}


def _trec() -> dict[str, Any]:
    train = _tsv("trec", {"label": 0, "text": 2})["train"]
    return {"train": train, "valid": {**train, "skip": 4952}}


def _text(name: str, suffix: str, valid: str = "valid") -> dict[str, Any]:
    def lines(split: str, **limits: object) -> dict[str, Any]:
        path = f"$HEEDFUL_DATA/{name}/{split}.{suffix}.gz"
        return {"kind": "text", "paths": path, "documents": "line", **limits}

    return {"train": lines("train"), "valid": lines(valid, limit=1000)}


def _fashion() -> dict[str, Any]:
    folder = "$HEEDFUL_DATA/fashion_mnist"
    columns = {
        "image": f"{folder}/train-images-idx3-ubyte.gz",
        "label": f"{folder}/train-labels-idx1-ubyte.gz",
    }
    return {
        "train": {"kind": "idx", "columns": columns},
        "valid": {"kind": "idx", "columns": columns, "skip": 59_000},
    }


SICK = {"text": "sentence_A", "pair": "sentence_B", "label": "relatedness_score"}
TAGGED = {"words": "source", "tags": "source_tags"}
SMALL: Overrides = {"training.tokens_per_update": 2048}
SMALL_LM: Overrides = {**SMALL, "model.d_model": 192, "model.n_layers": 4, "model.layer.mixer.n_heads": 6}
SIZES = {"all": slice(None), "small": slice(1), "large": slice(1, None)}
PAIRS: Overrides = {"task.pairs": True, "model.segments": 2}

CASES: Mapping[str, Mapping[str, Case]] = {
    "files": {
        "multi30k en-de": Case(_files("multi30k", "en", "de", "val"), {5000: 400, 29_000: 500}, SMALL),
        "tatoeba en-de": Case(_files("tatoeba_en_de", "en", "de"), {5000: 400, 50_000: 500}, SMALL),
        "tanaka en-ja": Case(_files("tanaka_en_ja", "en", "ja", "dev"), {5000: 400, 50_000: 500}, SMALL),
    },
    "text": {
        "shakespeare": Case(_text("tinyshakespeare", "txt"), {5000: 300, 0: 300}, SMALL_LM),
        "wikitext2": Case(_text("wikitext2", "txt"), {3000: 300, 0: 300}, SMALL_LM),
        "multi30k de": Case(_text("multi30k", "de", "val"), {5000: 300, 0: 300}, SMALL_LM),
    },
    "labels": {
        "sst2": Case(_tsv("sst2", {"label": 0, "text": 1}, "dev"), {1000: 200, 5000: 500}),
        "trec": Case(_trec(), {1000: 200, 4952: 500}),
        "agnews": Case(_tsv("agnews", {"label": 0, "text": 1}), {1000: 200, 5000: 500}),
    },
    "numbers": {
        "sick": Case(_tsv("sick", SICK, "trial", header=True), {1000: 200, 4439: 500}, PAIRS),
        "sst5": Case(_tsv("sst5", {"label": 0, "text": 1}, "dev"), {1000: 200, 5000: 500}),
    },
    "tags": {
        "phrasebook": Case(_built_in("phrasebook-de", columns=TAGGED), {1000: 200, 5000: 500}),
    },
    "images": {
        "fashion": Case(_fashion(), {1000: 300, 5000: 600}, {"model.image_size": 28, "model.channels": 1,
                        "model.patch_size": 4, "augmentation.shift": 2}),
        "digits": Case(_built_in("digits"), {500: 300, 1400: 600}, {"model.image_size": 8,
                       "model.channels": 1, "model.patch_size": 2, "augmentation.shift": 1,
                       "augmentation.flip": False}),
    },
    "captions": {
        "scenes": Case(_built_in("scenes"), {1000: 300, 5000: 600},
                       {"model.image_size": 48, "model.patch_size": 8}),
    },
}  # fmt: skip


def settings_of(kind: str) -> dict[str, Overrides]:
    """Return the settings to compare for a kind of task; only translation began with the paper's schedule."""
    first = "adamw" if kind == "files" else "adam,"
    return {name: setting for name, setting in SETTINGS.items() if not name.startswith(first)}


@dataclass(frozen=True)
class Curve:
    """The validations of one training: (processor seconds, metric), and whether higher is better."""

    points: Sequence[tuple[float, float]]
    higher: bool

    @property
    def best(self) -> float:
        """The best metric of all validations."""
        return (max if self.higher else min)(metric for _, metric in self.points)

    def seconds_to(self, quality: float) -> float | None:
        """Processor seconds until a validation was at least as good; None if none was."""
        for seconds, metric in self.points:
            if metric >= quality if self.higher else metric <= quality:
                return seconds
        return None


def train(kind: str, case: Case, size: int, updates: int, setting: Overrides, seed: int) -> Curve:
    """Train once, and return the curve; processor time is divided by the share of updates done."""
    with tempfile.TemporaryDirectory() as folder:
        return _train(kind, case, size, updates, {"training.seed": seed, **setting}, Path(folder))


def _train(kind: str, case: Case, size: int, updates: int, setting: Overrides, folder: Path) -> Curve:
    data = {**case.data, "train": {**case.data["train"], **({"limit": size} if size else {})}, "test": None}
    every = max(updates // 10, 1)
    changes: dict[str, object] = {
        "training.max_updates": updates,
        "training.validate_every": every,
        "training.save_every": updates,
        "training.patience": "null",
        "training.average": 0,
        "training.compile": "off",
        "training.threads": 1,
        "schedule.warmup": max(updates // 10, 1),
        **(case.changes or {}),
        **setting,
    }
    if kind in {"files", "captions"}:
        changes["validation.decode"] = 0
    file = folder / "recipe.yaml"
    file.write_text(json.dumps({"base": f"my-own-{kind}", "data": data}))
    command = [
        sys.executable,
        "-m",
        "heedful",
        "train",
        str(file),
        "--out",
        str(folder / "run"),
        "--device",
        "cpu",
    ]
    command += [f"{key}={str(value).lower()}" for key, value in changes.items()]
    log_file = folder / "log"
    with log_file.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(log_file.read_text())
    spent = used.ru_utime + used.ru_stime
    return _curve(folder / "run" / "metrics.jsonl", spent, updates)


def _curve(path: Path, spent: float, updates: int) -> Curve:
    events = [json.loads(line) for line in path.read_text().splitlines()]
    validations = [event for event in events if event["event"] == "validated"]
    metric = "accuracy" if "accuracy" in validations[0]["metrics"] else "loss"
    points = [(spent * event["update"] / updates, event["metrics"][metric]) for event in validations]
    return Curve(points, metric == "accuracy")


def rows(
    kind: str, share: float, sizes: slice, names: Sequence[str], seed: int, pool: ThreadPoolExecutor
) -> Iterator[list[str]]:
    """Yield a row for each data set and size: metrics and times of all settings."""
    settings = settings_of(kind)
    jobs = []
    for name, case in CASES[kind].items():
        if names and name not in names:
            continue
        for size, n_updates in list(case.sizes.items())[sizes]:
            updates = max(int(n_updates * share), 10)
            curves = {
                label: pool.submit(train, kind, case, size, updates, setting, seed)
                for label, setting in settings.items()
            }
            jobs.append((name, size, updates, curves))
    for name, size, updates, curves in jobs:
        for label, curve in curves.items():
            log(f"{kind}, {name}, {size or 'all'}, {label}: {curve.result().best:.4f}")
        cells = _cells([curve.result() for curve in curves.values()])
        yield [name, f"{size:,}" if size else "all", str(updates), *cells]


def _cells(curves: Sequence[Curve]) -> Iterator[str]:
    first = curves[0]
    reference = first.seconds_to(first.best)
    assert reference is not None
    for curve in curves:
        seconds = curve.seconds_to(first.best)
        yield f"{curve.best:.3f} ({'–' if seconds is None else f'{seconds / reference:.2f}'})"


def main() -> None:
    """Print a table for each kind of task."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", help="kinds of tasks; all by default")
    parser.add_argument("--updates", type=float, default=1.0, help="factor of the number of updates")
    parser.add_argument("--sizes", choices=SIZES, default="all", help="which size of each data set")
    parser.add_argument("--data", nargs="*", default=[], metavar="NAME", help="only these data sets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time, each on one thread")
    arguments = parser.parse_args()
    print(describe())
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for kind in arguments.kinds or CASES:
            header = ["data", "rows", "updates", *settings_of(kind)]
            lines = list(
                rows(kind, arguments.updates, SIZES[arguments.sizes], arguments.data, arguments.seed, pool)
            )
            print(f"\n{kind}\n\n{grid(header, lines)}", flush=True)


if __name__ == "__main__":
    main()
