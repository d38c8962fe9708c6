"""A process that trains recipes for one update, within a limit of memory: a JSON value per line and answer.

Called with the folder of the data. A request has a ``recipe`` (its settings, or a name) and whether to
``train``; the answer has what came of it (``trained``, ``checked``, the name of an error, or ``traceback``)
and the message. Values that are not finite are written as in Python.
"""

import json
import resource
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from heedful.api.run import load
from heedful.errors import HeedfulError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.memory_budget import check_model
from heedful.runs.prepare import rows_of
from heedful.runs.reading import read_recipe
from heedful.runs.train import train_run

MEMORY = 6 << 30
"""Bytes of the address space."""


def answer(request: dict[str, Any], folder: Path) -> dict[str, str]:
    try:
        return {"result": outcome(request, folder), "message": ""}
    except HeedfulError as error:
        return {"result": type(error).__name__, "message": str(error)}
    except BaseException:
        return {"result": "traceback", "message": traceback.format_exc()[-2000:]}


def outcome(request: dict[str, Any], folder: Path) -> str:
    """Read and check the recipe; also train it for an update, and predict a row, if the request says so."""
    given = request["recipe"]
    if isinstance(given, dict):
        recipe, _ = read_recipe(Tree.of({**given, "root": str(folder)}, Mark("recipe")))
    else:
        recipe, _ = read_recipe(given, request["overrides"])
    check_model(recipe, torch.device("cpu"), is_new=True)
    if not request["train"]:
        return "checked"
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    train_run(recipe, out, device="cpu", callbacks=lambda made: [lambda event: hasattr(event, "loss")])
    run = load(out, device="cpu")
    row = next(iter(rows_of(run.recipe, run.recipe.data.valid))).row
    is_prompt = run.recipe.task.kind == "language-modelling"
    run.predict([row["text"][:5] if is_prompt else run.task.columns.input_of(row)])
    return "trained"


if __name__ == "__main__":
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), Path(sys.argv[1]))), file=answers, flush=True)
