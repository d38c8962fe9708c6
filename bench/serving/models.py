"""Runs with random weights, and texts for them: what matters is the arithmetic, not the answers.

Their vocabulary has words ``w0``, ``w1`` …, one token each. An output has as many tokens as its source,
because a random model all but never chooses the end token.
"""

import gzip
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.untrained import write_untrained

TINY = {
    "d_model": 128,
    "n_layers": 4,
    "layer": {"mixer": {"n_heads": 4}, "channels": {"d_ff": 256}},
}
BASE = {
    "d_model": 512,
    "n_layers": 6,
    "layer": {"mixer": {"n_heads": 8}, "channels": {"d_ff": 2048}},
}
BEAM = {"kind": "beam", "beam": 4, "max_length": {"ratio": 1.0, "extra": 0}}
LABELS = [f"label {n}" for n in range(7)]

MOST_WORDS, MEAN_WORDS = 32, 14
"""Lengths of the texts: those of Multi30k have a mean of about 14 tokens."""


@dataclass(frozen=True)
class Kind:
    """A kind of run.

    Args:
        task: kind of the task.
        model: settings of the model.
        columns: those of its data.
        words: size of the vocabulary, without special tokens.
        more: further settings of the recipe.
    """

    task: str
    model: dict[str, Any]
    columns: tuple[str, ...]
    words: int = 10_000
    more: tuple[tuple[str, Any], ...] = ()


KINDS = {
    "tiny": Kind("translation", TINY, ("source", "target"), more=(("decoding", BEAM),)),
    "base": Kind("translation", BASE, ("source", "target"), more=(("decoding", BEAM),)),
    "lm": Kind("language-modelling", {**TINY, "context": 512}, ("text",)),
    "labels": Kind("classification", {**TINY, "max_length": 512}, ("text", "label")),
}
_FAMILIES = {
    "translation": "transformer",
    "language-modelling": "language-model",
    "classification": "encoder",
}
_SMALL = {"d_model": 24, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 31}}}


def make(name: str, folder: Path, *, small: bool = False) -> Path:
    """Write the folder of a run with random weights; return its path.

    Args:
        name: key of `KINDS`.
        folder: in which the folder of the run is made.
        small: make a much smaller one, to see whether a measurement runs.
    """
    kind = KINDS[name]
    model = {**kind.model, **_SMALL} if small else kind.model
    source = {"kind": "jsonl", "paths": "x", "columns": dict.fromkeys(kind.columns, "x")}
    tree = {
        "task": {"kind": kind.task},
        "data": {"train": source, "valid": source},
        "tokenizer": {"subwords": {"kind": "word", "min_frequency": 1}},
        "model": {"kind": _FAMILIES[kind.task], **model},
        "training": {"max_updates": 1},
        **dict(kind.more),
    }
    words = [f"w{n}" for n in range(kind.words)]
    texts = [" ".join(words[n : n + 100]) for n in range(0, len(words), 100)]
    rows = [dict.fromkeys(kind.columns, text) for text in texts]
    if "label" in kind.columns:
        rows = [{**row, "label": LABELS[n % len(LABELS)]} for n, row in enumerate(rows)]
    return write_untrained(folder / name, tree, rows)


def random_texts(n: int, seed: int = 0, words: int = 10_000) -> list[str]:
    """Return texts of different lengths; the mean is about `MEAN_WORDS`."""
    draw = random.Random(seed)
    lengths = (min(MOST_WORDS, 4 + int(draw.gammavariate(4.0, (MEAN_WORDS - 4) / 4))) for _ in range(n))
    return [" ".join(f"w{draw.randrange(words)}" for _ in range(length)) for length in lengths]


def read_texts(path: Path) -> list[str]:
    """Return the lines of a file that are not empty; of one compressed by gzip too."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]
