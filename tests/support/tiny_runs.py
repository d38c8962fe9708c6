"""Tiny runs of several tasks, finished and unfinished, whose files tests damage or look at."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import heedful
from heedful.api.training import train_into
from heedful.explain.alignment.best_head import store_best_head
from heedful.explain.alignment.word_alignment import HeadChoice
from heedful.recipes.trees import Mark, Tree
from heedful.runs import train as training
from heedful.runs.reading import recipe_from

TEXTS = ["a b c", "c c a", "b", "a a b b"]
MODEL = {"d_model": 8, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 11}}}
ENCODER = {"kind": "encoder", "max_length": 19, **MODEL}


def _rows(**columns: str) -> dict:
    source = {"kind": "jsonl", "paths": "rows.jsonl", "columns": columns}
    return {"train": source, "valid": source}


TASKS = {
    "translation": {
        "data": _rows(source="x", target="y"),
        "tokenizer": {"subwords": {"kind": "bpe", "merges": 5}},
        "model": {"kind": "transformer", **MODEL},
        "decoding": {"kind": "beam", "beam": 3},
        "validation": {"decode": None},
        "schedule": {"kind": "plateau", "peak": 3e-2, "factor": 0.5, "patience": 1},
    },
    "classification": {
        "data": _rows(text="x", label="y"),
        "tokenizer": {"subwords": {"kind": "wordpiece", "vocab_size": 40}},
        "model": ENCODER,
    },
    "multilabel-classification": {
        "task": {"threshold": "tuned", "separator": " "},
        "data": _rows(text="x", label="y"),
        "tokenizer": {"subwords": {"kind": "character"}},
        "model": ENCODER,
    },
    "regression": {
        "data": _rows(text="x", label="z"),
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": ENCODER,
    },
    "tagging": {
        "data": _rows(words="x", tags="t"),
        "tokenizer": {"subwords": {"kind": "unigram", "vocab_size": 300}},
        "model": ENCODER,
    },
    "language-modelling": {
        "data": _rows(text="x"),
        "tokenizer": {"subwords": {"kind": "byte-bpe", "merges": 5}},
        "model": {"kind": "language-model", "context": 11, **MODEL},
    },
    "image-classification": {
        "data": _rows(image="i", label="y"),
        "model": {"kind": "vision", "image_size": 8, "patch_size": 4, "channels": 1, **MODEL},
    },
}


def make(kind: str, folder: Path, **task: object) -> None:
    """Train a run, finished, and one whose training was killed as it ended; both below ``folder``.

    Args:
        kind: of the task.
        folder: it does not exist.
        task: further settings of the task.
    """
    folder.mkdir(parents=True)
    for number in range(len(TEXTS)):
        Image.fromarray(np.full((8, 8), 60 * number, np.uint8)).save(folder / f"{number}.png")
    rows = [
        {
            "x": text,
            "y": text[::-1],
            "t": " ".join("AB"[word == "a"] for word in text.split()),
            "z": len(text),
            "i": f"{n}.png",
        }
        for n, text in enumerate(TEXTS)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    settings = {
        "root": str(folder),
        "schedule": {"kind": "constant", "peak": 3e-2},
        "training": {"max_updates": 3, "validate_every": 2, "save_every": 1, "precision": "fp32"},
    }
    tree = {**settings, **TASKS[kind]}
    recipe = recipe_from(
        Tree.of({**tree, "task": {"kind": kind, **tree.get("task", {}), **task}}, Mark("here"))
    )
    train_into(recipe, folder / "finished", device="cpu", progress=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "finish", lambda *arguments: None)
        train_into(recipe, folder / "unfinished", device="cpu", progress=False)
    if kind == "translation":
        run = heedful.load(folder / "finished", device="cpu")
        assert store_best_head(run, [SimpleNamespace(choice=HeadChoice(0, 1), rate=0.25)], 30)
