"""A run that several verbs are tried on."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def classifier() -> dict[str, Any]:
    """The recipe of a small classifier of texts."""
    return {
        "task": {"kind": "classification"},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {
            "kind": "encoder",
            "d_model": 8,
            "n_layers": 1,
            "max_length": 9,
            "layer": {
                "mixer": {"kind": "attention", "n_heads": 2},
                "channels": {"kind": "feed-forward", "d_ff": 9},
            },
        },
    }


@pytest.fixture
def letters(make_run, classifier, tmp_path) -> Path:
    """A classifier of one-letter texts, which knows the words "a" and "b"."""
    return make_run(tmp_path / "run", classifier, [{"text": x, "label": x} for x in "ab"])
