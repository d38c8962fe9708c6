"""Runs with random weights, for measurements in which the answers do not matter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write_untrained(path: Path, settings: dict[str, Any], rows: Sequence[dict[str, str]]) -> Path:
    """Write the folder of a run with random weights, without training it; return its path.

    Args:
        path: of the folder; it does not exist.
        settings: of the recipe.
        rows: what the tokenizers and labels are fitted on.
    """
    import torch

    from heedful.artifacts.run_folder import RunFolder, write_json, write_text
    from heedful.data.sources import LocatedRow, Location
    from heedful.recipes.trees import Mark, Tree
    from heedful.recipes.yaml import dump_yaml
    from heedful.runs.reading import recipe_from
    from heedful.runs.train import seal
    from heedful.tasks.registry import task_for

    recipe = recipe_from(Tree.of(settings, Mark(path.name)))
    task, run = task_for(recipe), RunFolder(path)
    task.fit_processor(lambda: (LocatedRow(dict(row), Location("x", 1)) for row in rows))
    run.path.mkdir()
    write_json(run.environment, {})
    write_text(run.recipe, dump_yaml(recipe.model_dump(mode="json")))
    task.save(run)
    torch.manual_seed(1)
    seal(run, recipe, task.build_model(), {})
    return run.path
