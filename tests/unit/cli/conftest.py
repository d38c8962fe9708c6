"""A run that several verbs are tried on."""

from pathlib import Path

import pytest


@pytest.fixture
def letters(make_run, tmp_path) -> Path:
    """A classifier of one-letter texts, which knows the words "a" and "b"."""
    recipe = {
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
    return make_run(tmp_path / "run", recipe, [{"text": x, "label": x} for x in "ab"])
