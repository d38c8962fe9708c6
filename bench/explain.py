"""Measure the cost of `heedful explain`, from the command to the rendered page.

First the command on a run of the phrasebook, the whole process. Then a large explanation: an encoder of
BERT-base's shape with random weights, 12 layers of 12 heads over 512 tokens; a subprocess computes the
explanation, writes the page and reports its peak memory. If Chromium and its driver are installed, the pages
are opened in it: from the start of the navigation to the second frame after loading.
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
from harness.untrained import write_untrained

SENTENCE = "I enjoyed the film transformers"
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "dog", "lay", "by", "red", "log")
_HEADS = {"n_heads": 12}
SHAPE = {"d_model": 768, "n_layers": 12, "layer": {"mixer": _HEADS, "channels": {"d_ff": 3072}}}
QUICK = {"d_model": 48, "n_layers": 2, "layer": {"mixer": _HEADS, "channels": {"d_ff": 64}}}
DRIVER = Path(__file__).parents[1] / "tests" / "support" / "browser.py"
DRAWN = """addEventListener("load", () => requestAnimationFrame(() => requestAnimationFrame(
    () => { window.drawnAfter = performance.now(); })));"""


def time_command(*arguments: str) -> float:
    """Run the command; return its seconds."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "heedful", *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def train_phrasebook(folder: Path, updates: int) -> Path:
    """Train on the built-in phrasebook; return the run folder."""
    run = folder / "phrasebook"
    settings = [f"training.{name}={updates}" for name in ("max_updates", "validate_every", "save_every")]
    time_command("train", "phrasebook-ta", "--out", str(run), "validation.decode=10", *settings)
    return run


def random_encoder(folder: Path, shape: dict[str, Any]) -> Path:
    """Write the run folder of a classifier with random weights; return its path."""
    rows = [{"text": " ".join(WORDS), "label": label} for label in ("yes", "no")]
    source = {"kind": "jsonl", "paths": "x", "columns": {"text": "x", "label": "x"}}
    settings = {
        "task": {"kind": "classification"},
        "data": {"train": source, "valid": source},
        "tokenizer": {"subwords": {"kind": "word", "min_frequency": 1}},
        "model": {"kind": "encoder", "max_length": 512, **shape},
        "training": {"max_updates": 1},
    }
    return write_untrained(folder / "encoder", settings, rows)


def measure_explain(run: Path, n_tokens: int, out: Path) -> dict[str, float]:
    """Explain an input of ``n_tokens`` tokens and write the page; return seconds and memory in MiB."""
    from harness.machine import peak_resident
    from harness.memory import current, reset
    from heedful.api.run import load
    from heedful.explain.capture import explain_input
    from heedful.explain.page.build import page

    # <cls> and <sep> stand around the words.
    text = " ".join(WORDS[n * 7 % len(WORDS)] for n in range(n_tokens - 2))
    loaded = load(run, device="cpu")
    loaded.predict([text])
    reset()
    bytes_before, start = current(), time.perf_counter()
    explanation = explain_input(loaded, text)
    explained = time.perf_counter()
    out.write_text(page(explanation), encoding="utf-8")
    end = time.perf_counter()
    return {
        "explain_input": explained - start,
        "page": end - explained,
        "weights": sum(each.weights.nbytes for each in explanation.maps) / 2**20,
        "before": bytes_before / 2**20,
        "peak": peak_resident() / 2**20,
        "size": out.stat().st_size / 2**20,
    }


def measure_in_subprocess(run: Path, n_tokens: int, out: Path) -> dict[str, float]:
    """Run `measure_explain` in a subprocess."""
    command = [sys.executable, __file__, "--measure", str(run), str(n_tokens), str(out)]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measurements: dict[str, float] = json.loads(process.stdout)
    return measurements


def browser_driver() -> Any:
    """Return the browser module of the tests, or None if it, Chromium or its driver is missing."""
    if not DRIVER.exists():
        return None
    spec = importlib.util.spec_from_file_location("browser", DRIVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return None if module.missing() else module


def drawing_times(module: Any, page: Path, rounds: int) -> list[float]:
    """Measure the seconds from opening a page to its rendering, each time in a new browser."""
    times = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            browser = module.Browser(Path(folder))
            try:
                browser.show()
                browser.devtools("Page.addScriptToEvaluateOnNewDocument", source=DRAWN)
                browser.open(page.read_text(encoding="utf-8"))
                while (milliseconds := browser.execute("return window.drawnAfter ?? null")) is None:
                    time.sleep(0.02)
            finally:
                browser.close()
        times.append(milliseconds / 1000)
    return times


def options() -> argparse.Namespace:
    """Parse the command-line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one round with a small model: check that it runs"
    )
    parser.add_argument("--rounds", type=int, default=5, help="number of measurements (5)")
    parser.add_argument("--lock", type=Path, help="a file to lock while measuring, on a shared machine")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    if args.quick:
        args.rounds = 1
    return args


def measure(args: argparse.Namespace, folder: Path) -> dict[str, list[float]]:
    """Measure everything, round by round."""
    shape, n_tokens, updates = (QUICK, 64, 3) if args.quick else (SHAPE, 512, 200)
    small, large = train_phrasebook(folder, updates), random_encoder(folder, shape)
    measurements: dict[str, list[float]] = {}
    lock, out = Lock(args.lock), folder / "page.html"
    for round_number in range(1, args.rounds + 1):
        with lock.held():
            command = time_command("explain", str(small), SENTENCE, "--out", str(folder / "small.html"))
            explain_measurements = measure_in_subprocess(large, n_tokens, out)
        for name, measurement in {"command": command, **explain_measurements}.items():
            measurements.setdefault(name, []).append(measurement)
        log(f"round {round_number}: {explain_measurements}")
    module = browser_driver()
    if module is None:
        log("Chromium or its driver is missing: skipping the rendering times")
        return measurements
    for name, page in (("opened, small", folder / "small.html"), ("opened, large", out)):
        with lock.held():
            measurements[name] = drawing_times(module, page, args.rounds)
    return measurements


ROWS = {
    "command": ("`heedful explain RUN INPUT --out page.html`, phrasebook", "s"),
    "opened, small": ("its page: from opening to rendered", "s"),
    "explain_input": ("`explain_input`: forward pass and all attention weights", "s"),
    "page": ("creating and writing the page", "s"),
    "weights": ("attention weights in memory", "MiB"),
    "before": ("memory before: the process with the model", "MiB"),
    "peak": ("peak memory", "MiB"),
    "size": ("size of the page", "MiB"),
    "opened, large": ("the page: from opening to rendered", "s"),
}
"""Label and unit of each measurement."""


def main() -> None:
    """Measure, and write the table."""
    args = options()
    with tempfile.TemporaryDirectory() as folder:
        measurements = measure(args, Path(folder))
    rows = [
        [label, f"{number(statistics.median(measurements[name]))} {unit}", _spread(measurements[name])]
        for name, (label, unit) in ROWS.items()
        if name in measurements
    ]
    size = "2 layers, 64 tokens" if args.quick else "12 layers of 12 heads, 512 tokens, BERT-base's shape"
    parts = [f"From the third row on: {size}.", grid(["what", "median", "spread"], rows)]
    write(
        "explain",
        "`heedful explain`: from the command to the rendered page",
        parts,
        measurements,
        describe(),
        args.out,
    )


def _spread(values: list[float]) -> str:
    return f"{number(min(values))}–{number(max(values))}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        run, n_tokens, out = sys.argv[2:]
        print(json.dumps(measure_explain(Path(run), int(n_tokens), Path(out))), flush=True)
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        main()
