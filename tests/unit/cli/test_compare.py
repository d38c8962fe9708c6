"""Runs can be plotted whatever their folders are called."""

import pytest

from heedful.cli import main

NAMES = [b"na\xffme", b"a\x01b", b"$a_$", b"$a$ and \\$b$"]
RECIPE = "task: {kind: classification}\ntraining: {metric: loss, max_updates: 7}\n"
VALIDATED = '"event": "validated", "update": 3, "elapsed": 2.0, "best": true, "metrics": {"loss": 1.5}'
EVENTS = f'{{"version": 1, {VALIDATED}}}\n'


@pytest.mark.slow
@pytest.mark.parametrize("form", ["svg", "png"])
@pytest.mark.parametrize("name", NAMES)
def test_any_run_name_can_be_plotted(name, form, tmp_path):
    for folder in (tmp_path / "plain", tmp_path / name.decode("utf-8", "surrogateescape")):
        folder.mkdir()
        (folder / "recipe.yaml").write_text(RECIPE)
        (folder / "metrics.jsonl").write_text(EVENTS)
    runs = [str(path) for path in tmp_path.iterdir()]
    main._run(["compare", *runs, "--json", "--out", str(tmp_path / f"x.{form}")])
    assert (tmp_path / f"x.{form}").stat().st_size > 1000
