"""Going on from a run that was imported: a few updates on rows of one's own, and what they began with."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from heedful.api.run import Run, load
from heedful.runs.reading import read_recipe
from heedful.runs.train import build_module, train_run
from heedful.training.callbacks import Event, Updated


@dataclass(frozen=True)
class FineTuned:
    """A run that started from another.

    Args:
        run: as it was left.
        first: the model that its first update found.
        losses: of the updates.
        said: the lines that it told before them.
    """

    run: Run
    first: Any
    losses: list[float]
    said: list[str]


def fine_tune(folder: Path, source: dict[str, Any], **sections: Any) -> FineTuned:
    """Three updates, each on all rows of ``source``, from ``folder / "run"``."""
    recipe = {
        "start": {"run": "run"},
        "data": {"train": source, "valid": source},
        "schedule": {"kind": "constant", "peak": 1e-3},
        "training": {"max_updates": 3, "tokens_per_update": 10**4, "precision": "fp32"},
        **sections,
    }
    (folder / "fine.yaml").write_text(json.dumps(recipe), "utf-8")
    read, _ = read_recipe(str(folder / "fine.yaml"))
    events: list[Event] = []
    said: list[str] = []
    train_run(read, folder / "fine", device="cpu", callbacks=lambda _: [events.append], log=said.append)
    run = load(folder / "fine", device="cpu")
    first = build_module(run.task, torch.device("cpu"), lambda line: None).model
    return FineTuned(run, first, [e.loss for e in events if isinstance(e, Updated)], said)


def token_losses(logits: Tensor, wanted: Tensor, n_specials: int) -> Tensor:
    """Of their logits, where heedful has so many tokens besides: their rows are the mean of all others'."""
    mean = logits.mean(-1, keepdim=True).expand(-1, n_specials)
    return functional.cross_entropy(torch.cat([logits, mean], dim=-1), wanted, reduction="none")
