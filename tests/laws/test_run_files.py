"""Files of a run: modes, and readers."""

import os
from pathlib import Path

import pytest
from tiers import sampled
from tiny_runs import make

from heedful.api.training import train_into
from heedful.artifacts.run_folder import RunFolder
from heedful.recipes.resolve import overrides_tree
from heedful.runs.reading import saved_recipe


@pytest.mark.slow
@pytest.mark.parametrize("umask", sampled([0o022, 0o027, 0o002], [0o027]))
def test_every_file_has_the_mode_that_the_umask_allows(umask, tmp_path):
    """Of a finished run, of one that ended early, and of a resumed one: checkpoints and caches too."""
    before = os.umask(umask)
    try:
        make("translation", tmp_path / "runs")
        resumed = RunFolder(tmp_path / "runs" / "unfinished")
        recipe = saved_recipe(resumed, overrides_tree(["training.max_updates=4"]))
        train_into(recipe, resumed.path, resume=True, device="cpu", progress=False)
    finally:
        os.umask(before)
    paths = [*Path(tmp_path / "runs").rglob("*")]
    names = {path.name for path in paths}
    assert {"weights.safetensors", "optimizer.safetensors", "header.json", "alignment.json"} <= names
    wrong = {
        str(path): oct(path.stat().st_mode & 0o777)
        for path in paths
        if path.stat().st_mode & 0o777 != (0o777 if path.is_dir() else 0o666) & ~umask
    }
    assert wrong == {}
