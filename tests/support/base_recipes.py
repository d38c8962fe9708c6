"""Small recipes of every task with every model family, and rows that they train on."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SENTENCES = ["a red dog runs", "the blue cat", "green birds eat", "dog", "a cat sleeps here", "red red bird"]
TEXTS = {"subwords": {"kind": "character"}}
LAYER = {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 5}}
ENCODER = {"kind": "encoder", "d_model": 8, "n_layers": 1, "max_length": 32, "layer": LAYER}
DECODER = {"kind": "language-model", "d_model": 8, "n_layers": 1, "context": 16, "layer": LAYER}
PATCHES = {"image_size": 8, "patch_size": 4, "channels": 1, "d_model": 8, "n_layers": 1, "layer": LAYER}
SHORT = {"kind": "greedy", "max_length": {"cap": 5}}


def rows(**columns: str) -> dict[str, Any]:
    return {"kind": "jsonl", "paths": "rows.jsonl", "columns": {key: key for key in columns or {}}}


PAIRS = {
    "columns": ("source", "target"),
    "tokenizer": TEXTS,
    "model": {"kind": "transformer", "d_model": 8, "n_layers": 1, "layer": LAYER},
    "decoding": SHORT,
}
RECURRENT = {"kind": "recurrent", "d_embedding": 8, "d_hidden": 8}
RESNET = {"kind": "resnet", "image_size": 8, "channels": 1, "n_blocks": [1, 1], "width": 4, "n_groups": 2}
_CELLS = {"kind": "resnet", "n_blocks": [1, 1], "width": 4, "n_groups": 2}
SHOW_ATTEND_TELL = {
    **RECURRENT,
    "kind": "recurrent-captioner",
    "image_size": 8,
    "channels": 1,
    "encoder": _CELLS,
}
ONE_TEXT = {
    **PAIRS,
    "tokenizer": {**TEXTS, "shared": True},
    "model": {**DECODER, "context": 64},
    "filter": {"max_length": 20},
}
BASES = {
    "translation": PAIRS,
    "translation, recurrent": {**PAIRS, "model": RECURRENT},
    "translation, language-model": ONE_TEXT,
    "summarisation": PAIRS,
    "summarisation, recurrent": {**PAIRS, "model": RECURRENT},
    "summarisation, language-model": ONE_TEXT,
    "language-modelling": {
        "columns": ("text",),
        "tokenizer": TEXTS,
        "model": DECODER,
        "completion": {"max_new_tokens": 4},
    },
    "masked-language-modelling": {"columns": ("text",), "tokenizer": TEXTS, "model": ENCODER},
    "classification": {"columns": ("text", "label"), "tokenizer": TEXTS, "model": ENCODER},
    "classification, language-model": {
        "columns": ("text", "label"),
        "tokenizer": TEXTS,
        "model": DECODER,
    },
    "multilabel-classification": {"columns": ("text", "label"), "tokenizer": TEXTS, "model": ENCODER},
    "multilabel-classification, language-model": {
        "columns": ("text", "label"),
        "tokenizer": TEXTS,
        "model": DECODER,
    },
    "regression": {"columns": ("text", "number"), "tokenizer": TEXTS, "model": ENCODER},
    "regression, language-model": {"columns": ("text", "number"), "tokenizer": TEXTS, "model": DECODER},
    "sentence-embedding": {"columns": ("text", "pair"), "tokenizer": TEXTS, "model": ENCODER},
    "sentence-embedding, language-model": {
        "columns": ("text", "pair"),
        "tokenizer": TEXTS,
        "model": DECODER,
    },
    "tagging": {"columns": ("words", "tags"), "tokenizer": TEXTS, "model": ENCODER},
    "tagging, language-model": {"columns": ("words", "tags"), "tokenizer": TEXTS, "model": DECODER},
    "question-answering": {
        "columns": ("question", "passage", "answer"),
        "tokenizer": TEXTS,
        "model": ENCODER,
        "windows": {"longest_question": 6},
    },
    "image-classification": {
        "columns": ("image", "label"),
        "model": {**PATCHES, "kind": "vision"},
    },
    "image-classification, resnet": {"columns": ("image", "label"), "model": RESNET},
    "segmentation": {"columns": ("image", "mask"), "model": {**PATCHES, "kind": "vision"}},
    "segmentation, resnet": {"columns": ("image", "mask"), "model": RESNET},
    "captioning": {
        "columns": ("image", "caption"),
        "tokenizer": TEXTS,
        "model": {**PATCHES, "kind": "captioner"},
        "decoding": SHORT,
    },
    "captioning, recurrent-captioner": {
        "columns": ("image", "caption"),
        "tokenizer": TEXTS,
        "model": SHOW_ATTEND_TELL,
        "decoding": SHORT,
    },
}
"""What a small recipe of each task, with each family that it takes, has; it is valid as it is."""


def base(name: str) -> dict[str, Any]:
    own, task = copy.deepcopy(BASES[name]), task_of(name)
    names = {"label" if name == "number" else name: name for name in own.pop("columns")}
    source = {"kind": "jsonl", "paths": "rows.jsonl", "columns": names}
    filter = {"filter": own.pop("filter")} if "filter" in own else {}
    common = {
        "task": {"kind": task},
        "data": {"train": source, "valid": {**source, "limit": 3}, **filter},
        "schedule": {"kind": "constant", "peak": 1e-3},
        "training": {"max_updates": 1, "tokens_per_update": 60, "processes": 1, "compile": "off"},
    }
    return {**common, **own}


def task_of(name: str) -> str:
    return name.partition(",")[0]


def write_rows(made: Path) -> None:
    """Write a few rows that serve every task, and other files that a recipe may name, into a folder."""
    for label in ("no", "yes"):
        (made / "images" / label).mkdir(parents=True)
    draw, lines = np.random.default_rng(0), []
    for n, text in enumerate(SENTENCES * 2):
        words, label = text.split(), ("no", "yes")[n % 2]
        image = f"images/{label}/{n}.png"
        Image.fromarray(draw.integers(0, 255, (8, 8), dtype=np.uint8)).save(made / image)
        Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) % 3).save(made / f"mask{n}.png")
        lines.append(
            {
                "source": text,
                "target": text.upper(),
                "alignment": " ".join(f"{i}-{i}" for i in range(len(words))),
                "text": text,
                "pair": text[::-1],
                "label": label,
                "number": f"{n / 2}",
                "similarity": f"{n / 2}",
                "negative": text.upper(),
                "words": words,
                "tags": ["ab"[len(word) % 2] for word in words],
                "question": f"who {words[-1]}?",
                "passage": f"{text}. {text}",
                "answer": words[0],
                "image": image,
                "caption": text,
                "mask": f"mask{n}.png",
            }
        )
    (made / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    (made / "text.txt").write_text("\n\n".join(SENTENCES), "utf-8")
    (made / "table.conll").write_text("a X\nb Y\n\nc X\n", "utf-8")
    vectors = "".join(f"{letter} " + "0.5 " * 7 + "1\n" for letter in "abcdr")
    (made / "vectors.txt").write_text(vectors, "utf-8")
