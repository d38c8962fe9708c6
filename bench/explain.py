"""Looking inside: what `heedful explain` costs, from the command to the drawn page.

The command on a run of the phrasebook, the whole process as people wait for it. Then a page of many weights:
an encoder of BERT-base's shape with random weights, 12 layers of 12 heads over 512 tokens; a process of its
own looks and makes the page, and tells its peak memory. The pages are then opened in a headless Chromium, if
one and its driver are installed: from the beginning of the navigation to the second frame after loading.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness.machine import describe
from harness.report import grid, number, write
from harness.turns import Lock, log

SENTENCE = "I enjoyed the film transformers"
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "dog", "lay", "by", "red", "log")
_HEADS = {"n_heads": 12}
SHAPE = {"d_model": 768, "n_layers": 12, "layer": {"mixer": _HEADS, "channels": {"d_ff": 3072}}}
QUICK = {"d_model": 48, "n_layers": 2, "layer": {"mixer": _HEADS, "channels": {"d_ff": 64}}}
DRIVER = Path(__file__).parents[1] / "tests" / "support" / "browser.py"
DRAWN = """addEventListener("load", () => requestAnimationFrame(() => requestAnimationFrame(
    () => { window.drawnAfter = performance.now(); })));"""


def heedful(*arguments: str) -> float:
    """Run the command; its seconds."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "heedful", *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def phrasebook(folder: Path, updates: int) -> Path:
    """A run of the built-in phrasebook."""
    run = folder / "phrasebook"
    settings = [f"training.{name}={updates}" for name in ("max_updates", "validate_every", "save_every")]
    heedful("train", "phrasebook-ta", "--out", str(run), "validation.decode=10", *settings)
    return run


def encoder(folder: Path, shape: dict[str, Any]) -> Path:
    """A classifier with random weights, as training leaves one."""
    import torch

    from heedful.artifacts.run_folder import RunFolder, write_json, write_text
    from heedful.data.sources import LocatedRow, Location
    from heedful.recipes.trees import Mark, Tree
    from heedful.recipes.yaml import dump_yaml
    from heedful.runs.reading import recipe_from
    from heedful.runs.train import seal
    from heedful.tasks.registry import task_for

    rows = [{"text": " ".join(WORDS), "label": label} for label in ("yes", "no")]
    source = {"kind": "jsonl", "paths": "x", "columns": {"text": "x", "label": "x"}}
    recipe = recipe_from(
        Tree.of(
            {
                "task": {"kind": "classification"},
                "data": {"train": source, "valid": source},
                "tokenizer": {"subwords": {"kind": "word", "min_frequency": 1}},
                "model": {"kind": "encoder", "max_length": 512, **shape},
                "training": {"max_updates": 1},
            },
            Mark(Path(__file__).name),
        )
    )
    task, run = task_for(recipe), RunFolder(folder / "encoder")
    task.fit_processor(lambda: (LocatedRow(dict(row), Location("x", 1)) for row in rows))
    run.path.mkdir()
    write_json(run.environment, {})
    write_text(run.recipe, dump_yaml(recipe.model_dump(mode="json")))
    task.save(run)
    torch.manual_seed(1)
    seal(run, recipe, task.build_model(), {})
    return run.path


def looked(run: Path, n_tokens: int, out: Path) -> dict[str, float]:
    """Look at so many tokens and write the page: seconds of each, MiB at the peak and before."""
    from harness.memory import current, peak, reset
    from heedful.explain.capture import explain_input
    from heedful.explain.page import page
    from heedful.runs.run import load

    # <cls> and <sep> stand around the words.
    text = " ".join(WORDS[n * 7 % len(WORDS)] for n in range(n_tokens - 2))
    loaded = load(run, device="cpu")
    loaded.predict([text])
    reset()
    before, begin = current(), time.perf_counter()
    seen = explain_input(loaded, text)
    middle = time.perf_counter()
    out.write_text(page(seen), encoding="utf-8")
    end = time.perf_counter()
    return {
        "explain_input": middle - begin,
        "page": end - middle,
        "weights": sum(each.weights.nbytes for each in seen.maps) / 2**20,
        "before": before / 2**20,
        "peak": peak() / 2**20,
        "size": out.stat().st_size / 2**20,
    }


def looked_apart(run: Path, n_tokens: int, out: Path) -> dict[str, float]:
    """`looked` in a process of its own."""
    command = [sys.executable, __file__, "--look", str(run), str(n_tokens), str(out)]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    values: dict[str, float] = json.loads(found.stdout)
    return values


def driver() -> Any:
    """The module that drives the browser in the tests; None where it, Chromium or its driver is missing."""
    if not DRIVER.exists():
        return None
    spec = importlib.util.spec_from_file_location("browser", DRIVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return None if module.missing() else module


def drawn(module: Any, page: Path, rounds: int) -> list[float]:
    """Seconds from opening a page to seeing it, each time in a browser of its own."""
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            browser = module.Browser(Path(folder))
            try:
                browser.show()
                browser.devtools("Page.addScriptToEvaluateOnNewDocument", source=DRAWN)
                browser.open(page.read_text(encoding="utf-8"))
                while (after := browser.execute("return window.drawnAfter ?? null")) is None:
                    time.sleep(0.02)
            finally:
                browser.close()
        found.append(after / 1000)
    return found


def options() -> argparse.Namespace:
    """Of this script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of small ones: does it run at all?")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument("--lock", type=Path, help="a file to lock while measuring, on a shared machine")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds = 1
    return chosen


def measured(chosen: argparse.Namespace, folder: Path) -> dict[str, list[float]]:
    """Everything, round by round."""
    shape, n_tokens, updates = (QUICK, 64, 3) if chosen.quick else (SHAPE, 512, 200)
    small, large = phrasebook(folder, updates), encoder(folder, shape)
    found: dict[str, list[float]] = {}
    lock, out = Lock(chosen.lock), folder / "page.html"
    for number_of_round in range(1, chosen.rounds + 1):
        with lock.held():
            command = heedful("explain", str(small), SENTENCE, "--out", str(folder / "small.html"))
            values = looked_apart(large, n_tokens, out)
        for name, value in {"command": command, **values}.items():
            found.setdefault(name, []).append(value)
        log(f"round {number_of_round}: {values}")
    module = driver()
    if module is None:
        log("no Chromium with its driver: nothing is opened")
        return found
    for name, page in (("opened, small", folder / "small.html"), ("opened, large", out)):
        with lock.held():
            found[name] = drawn(module, page, chosen.rounds)
    return found


ROWS = {
    "command": ("`heedful explain RUN INPUT --out page.html`, phrasebook", "s"),
    "opened, small": ("its page, from opening to drawn", "s"),
    "explain_input": ("looking: the forward pass and all weights", "s"),
    "page": ("making and writing the page", "s"),
    "weights": ("all weights in memory", "MiB"),
    "before": ("memory before looking: the process with the model", "MiB"),
    "peak": ("memory at the peak", "MiB"),
    "size": ("the page", "MiB"),
    "opened, large": ("the page, from opening to drawn", "s"),
}
"""What is told of each figure, and its unit."""


def main() -> None:
    """Measure, and write the table."""
    chosen = options()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(chosen, Path(folder))
    rows = [
        [says, f"{number(statistics.median(found[name]))} {unit}", _spread(found[name])]
        for name, (says, unit) in ROWS.items()
        if name in found
    ]
    size = "2 layers, 64 tokens" if chosen.quick else "12 layers of 12 heads, 512 tokens, BERT-base's shape"
    parts = [f"From the third row on: {size}.", grid(["what", "median", "spread"], rows)]
    write(
        "explain", "Looking inside: from the command to the drawn page", parts, found, describe(), chosen.out
    )


def _spread(values: list[float]) -> str:
    return f"{number(min(values))}–{number(max(values))}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--look"]:
        run, n_tokens, out = sys.argv[2:]
        print(json.dumps(looked(Path(run), int(n_tokens), Path(out))), flush=True)
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        main()
