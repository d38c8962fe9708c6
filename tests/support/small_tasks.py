"""Build tasks with a small recipe; their data files need not exist."""

from heedful.recipes.trees import Mark, Tree
from heedful.runs.reading import recipe_from
from heedful.tasks.registry import task_for

LAYER = {"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}}
ENCODER = {"kind": "encoder", "d_model": 14, "n_layers": 1, "max_length": 9, "layer": LAYER}


def task_of(kind, processor, columns, *, model=None, **sections):
    """Return the task of a recipe with these columns; ``model`` updates `ENCODER`, or replaces it."""
    source = {"kind": "tsv", "paths": "rows.tsv", "columns": {name: i for i, name in enumerate(columns)}}
    tree = {
        "data": {"train": source, "valid": source, **sections.pop("data", {})},
        "model": model if model and "kind" in model else {**ENCODER, **(model or {})},
        "training": {"max_updates": 1, "tokens_per_update": 160},
        "task": {"kind": kind, **sections.pop("task", {})},
        **sections,
    }
    if "image" not in columns or "caption" in columns:
        tree["tokenizer"] = {"subwords": {"kind": "word"}}
    return task_for(recipe_from(Tree.of(tree, Mark("recipe"))), processor)
