"""Recipes of imported encoders: they say what the model is, and leave room for a user's own data."""

from collections.abc import Sequence
from typing import Any

_NOT_TRAINED = "It was not trained on these data: whoever trains such a model anew puts their own here."

# Devlin et al. 2019, appendix A.3: Adam, 2e-5 to 5e-5 for fine-tuning.
_CAREFUL = {
    "optimizer": {"kind": "adamw", "weight_decay": 0.01},
    "schedule": {"kind": "linear", "peak": 3e-5, "warmup": 100},
    "training": {"max_updates": 1000},
}


def filling(
    description: str, subwords: dict[str, Any], model: dict[str, Any], *, next_sentence: bool
) -> dict[str, Any]:
    """Of a masked language model, plain.

    Args:
        description: what it is.
        subwords: the configuration of its tokenizer.
        model: its own.
        next_sentence: whether it tells a text's continuation from another text.
    """
    return {
        "description": f"{description} {_NOT_TRAINED}",
        "task": {"kind": "masked-language-modelling", "next_sentence": next_sentence},
        "data": {part: {"kind": "text", "paths": f"{part}.txt"} for part in ("train", "valid")},
        "tokenizer": {"subwords": subwords},
        "model": model,
        **_CAREFUL,
    }


def classifying(
    description: str, subwords: dict[str, Any], model: dict[str, Any], labels: Sequence[str], pairs: bool
) -> dict[str, Any]:
    """Of a classifier, plain.

    Args:
        description: what it is.
        subwords: the configuration of its tokenizer.
        model: its own.
        labels: in the order of their numbers.
        pairs: whether two texts have a label together.
    """
    columns = {column: column for column in ("text", *(["pair"] if pairs else []), "label")}
    return {
        "description": f"{description} {_NOT_TRAINED}",
        "task": {"kind": "classification", "pairs": pairs, "labels": list(labels)},
        "data": {
            part: {"kind": "jsonl", "paths": f"{part}.jsonl", "columns": columns}
            for part in ("train", "valid")
        },
        "tokenizer": {"subwords": subwords},
        "model": model,
        **_CAREFUL,
    }
