"""Record what heedful computes, and compare a later version with the record.

    python tests/golden/golden.py check                  compare everything; exit status 1 if anything differs
    python tests/golden/golden.py check runs phrasebook  compare the entries of `runs` named like "phrasebook"
    python tests/golden/golden.py record                 write the records again

Refactoring must not change any number. A change of a number is a separate commit that states the reason.
Everything runs through the command, so the records survive changes of the Python API. There are three:
`runs` (20 updates of a recipe for each task and family, then predict, evaluate and explain), `models`
(parameters and FLOPs of every preset and recipe) and `lab` (verdict and values of every experiment).

Results depend on the instruction set in their last digits. The script therefore restarts itself with the
baseline instruction set of x86-64, and keeps six significant digits.
"""

import argparse
import contextlib
import gzip
import io
import itertools
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from ruamel.yaml import YAML
from safetensors.torch import load_file

FOLDER = Path(__file__).parent
RECORDS = FOLDER / "records"
BASELINE = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "COLUMNS": "100",
}
TRAINING = [
    "training.max_updates=20",
    "training.validate_every=20",
    "training.save_every=20",
    "training.log_every=1",
    "training.tokens_per_update=500",
    "training.average=1",
    "training.precision=fp32",
    "training.compile=off",
    "training.threads=1",
    "training.processes=1",
]
RELATIVE, ABSOLUTE = 2e-5, 1e-7
TEXTS = (
    "The old doctor reads a book .",
    "I enjoyed the film transformers",
    "a man is riding a horse",
    "we see the bird in the garden",
    "so long and thanks for all",
    "A dull , lifeless and predictable film .",
    "two dogs play in the snow",
    "she gives the child a red apple",
    "",
    "Who wrote the report ?",
)


def command(*arguments: str) -> str:
    """Run the command in this process, and return its standard output."""
    from heedful.cli.main import app

    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()) as errors:
            app(arguments, standalone_mode=False)
    except Exception as error:
        error.add_note(f"heedful {' '.join(arguments)}\n{errors.getvalue()}")
        raise
    return printed.getvalue()


# Numbers ----------------------------------------------------------------------------------------------


def digest(value: Any, folder: str = "\0") -> Any:
    """Return JSON with six significant digits, long arrays as shape and sums, paths without the folder."""
    if isinstance(value, str):
        return value.replace(folder, "").replace(os.environ.get("HEEDFUL_DATA", "\0"), "$HEEDFUL_DATA")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return rounded(value)
    if isinstance(value, dict):
        return {key: digest(each, folder) for key, each in sorted(value.items()) if key not in UNSTABLE}
    numbers, shape = flat(value)
    if numbers is not None and len(numbers) > 8:
        return {"shape": shape, "sums": summary(numbers)}
    return [digest(each, folder) for each in value]


UNSTABLE = {
    "seconds",
    "minutes",
    "hash",
    "hashes",
    "version",
    "heedful",
    "torch",
    "data_seconds",
    "measured_on",
}


def rounded(value: float) -> float | int | str:
    """Round to six significant digits; non-finite numbers become text."""
    if isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)


def flat(value: Any) -> tuple[list[float] | None, list[int]]:
    """Return the numbers of a rectangular nested list and its shape, or None."""
    if not isinstance(value, list) or not value:
        return None, []
    if all(isinstance(entry, int | float) and not isinstance(entry, bool) for entry in value):
        return value, [len(value)]
    children = [flat(entry) for entry in value]
    if any(numbers is None for numbers, _ in children) or len({tuple(shape) for _, shape in children}) > 1:
        return None, []
    return [n for numbers, _ in children for n in numbers or []], [len(value), *children[0][1]]


def summary(numbers: list[float]) -> list[float | int | str]:
    """Return sum, norm, and a sum that depends on the order."""
    total = math.fsum(numbers)
    norm = math.sqrt(math.fsum(n * n for n in numbers))
    ordered = math.fsum(n * math.cos(i) for i, n in enumerate(numbers))
    return [rounded(float(x)) for x in (total, norm, ordered)]


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield a line for every difference; numbers may differ in their last digits."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key not in new:
                yield f"{path}.{key}: is missing"
            elif key not in old:
                yield f"{path}.{key}: is new"
            else:
                yield from differences(old[key], new[key], f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from differences(a, b, f"{path}[{i}]")
    elif is_number(old) and is_number(new):
        if not math.isclose(old, new, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            yield f"{path}: {old} became {new}"
    elif old != new:
        yield f"{path}: {old!r} became {new!r}"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# Runs -------------------------------------------------------------------------------------------------

SUBWORDS = ["tokenizer.subwords.vocab_size=500"]
# For each recipe: keys of its inputs, whether its explanation is recorded, and overrides.
RUNS: dict[str, tuple[tuple[str, ...], bool, list[str]]] = {
    "phrasebook-ta": (("source",), True, []),
    "phrasebook-rnn": (("source",), True, []),
    "phrasebook-rnn-heads": (("source",), False, []),
    "phrasebook-lm": (("prompt",), True, []),
    "phrasebook-lstm": (("prompt",), False, []),
    "phrasebook-tags": (("words",), True, []),
    "phrasebook-questions": (("question", "passage"), False, []),
    "digits": (("image",), True, []),
    "scenes": (("image",), True, []),
    "scene-masks": (("image",), True, []),
    "scenes-lstm": (("image",), True, []),
    "sst2": (("text",), False, []),
    "sick": (("text", "pair"), False, []),
    "sick-relatedness": (("text", "pair"), False, []),
    "sick-embeddings": (("text", "pair"), False, SUBWORDS),
    "wikitext2-masked": (("text",), True, SUBWORDS),
    "wikitext2-spans": (("text",), False, SUBWORDS),
    "wikitext2-lm": (("prompt",), False, SUBWORDS),
    "tatoeba-ende-lm": (("source",), False, SUBWORDS),
    "multi30k-ende-tiny": (("source",), False, ["tokenizer.subwords.merges=300"]),
    "scitldr-tdmca": (("source",), False, SUBWORDS),
    "fashion-mixer": (("image",), False, []),
    "fashion-resnet": (("image",), False, []),
}


def record_runs(words: list[str]) -> Iterator[tuple[str, Any]]:
    """Train, predict, evaluate and explain."""
    with tempfile.TemporaryDirectory() as temporary:
        for name, (keys, explained, changes) in RUNS.items():
            if all(word in name for word in words):
                yield name, run_record(name, keys, explained, changes, Path(temporary))


def run_record(
    name: str, keys: tuple[str, ...], explained: bool, changes: list[str], folder: Path
) -> dict[str, Any]:
    """Return the record of one run, from its recipe to its explanation."""
    out, path = folder / name, folder / f"{name}.jsonl"
    recipe = YAML(typ="safe", pure=True).load(command("train", name, "--print"))
    fewer = list(fewer_rows(recipe["data"], folder))
    inputs = list(inputs_of(keys, folder))
    path.write_text("".join(json.dumps(each) + "\n" for each in inputs), "utf-8")
    options = ["--gap", "a"] if recipe["task"]["kind"] == "masked-language-modelling" else []
    options += ["--max-new-tokens", "20"] if "prompt" in keys else []
    warm_up = ["schedule.warmup=5"] if "warmup" in recipe["schedule"] else []
    command("train", name, *fewer, *TRAINING, *warm_up, *changes, "--out", str(out))
    predicted = command("predict", str(out), str(path), *options)
    record = {
        "metrics": metrics(out),
        "weights": weights(out),
        "predictions": [json.loads(line) for line in predicted.splitlines()],
        "scores": json.loads(command("evaluate", str(out), "--json")),
    }
    if explained:
        record["explanation"] = json.loads(command("explain", str(out), inputs[0][keys[0]], "--json"))
        del record["explanation"]["provenance"]  # hashes of weights differ in their last digits
    return digest(record, str(folder))


def fewer_rows(data: dict[str, Any], folder: Path) -> Iterator[str]:
    """Yield overrides that limit each data set to its first rows, or lines for running text."""
    sources = {"train": data["train"], "valid": data["valid"]}
    sources |= {f"test.{name}": source for name, source in data["test"].items()}
    for key, source in sources.items():
        n = 300 if key == "train" else 40
        yield f"data.{key}.limit={n}"
        if source["kind"] == "text":
            path = folder / f"{key}.txt"
            (name,) = [source["paths"]] if isinstance(source["paths"], str) else source["paths"]
            with gzip.open(os.path.expandvars(name), "rt", encoding="utf-8") as file:
                path.write_text("".join(itertools.islice(file, n)), "utf-8")
            yield f"data.{key}.paths={path}"


def inputs_of(keys: tuple[str, ...], folder: Path) -> Iterator[dict[str, str]]:
    """Yield ten inputs: texts, or paths of images."""
    for i, text in enumerate(TEXTS):
        if keys == ("image",):
            path = folder / f"{i}.png"
            write_image(path, i)
            yield {"image": str(path)}
        else:
            yield dict(zip(keys, (text, TEXTS[i - 1]), strict=False))


def write_image(path: Path, i: int) -> None:
    """Write a smooth RGB pattern that depends on i."""
    y, x = np.mgrid[0:40, 0:40] / 40
    planes = [np.sin(3 * x * (i + 1) + c) * np.cos(2 * y * (c + 1) + i) for c in range(3)]
    Image.fromarray((127 * (1 + np.stack(planes, -1))).astype("uint8")).save(path)


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return the logged metrics of a training, without times."""
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    keys = ("event", "update", "epoch", "loss", "terms", "rate", "norm", "tokens", "metrics", "best")
    return [{key: value for key, value in json.loads(line).items() if key in keys} for line in lines]


def weights(run: Path) -> dict[str, Any]:
    """Return shapes, sums and norms of all tensors, without names."""
    tensors = load_file(run / "weights.safetensors").values()
    rows = [[list(each.shape), summary(each.double().flatten().tolist())[:2]] for each in tensors]
    return {"parameters": sum(each.numel() for each in tensors), "tensors": sorted(rows)}


# Models and experiments ---------------------------------------------------------------------------------


def record_models(words: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield parameters and FLOPs of every preset and recipe."""
    for name in (*presets(), *recipes()):
        if all(word in name for word in words):
            description = json.loads(command("describe", name, "--json"))
            yield name, digest({key: value for key, value in description.items() if key in COUNTED})


COUNTED = ("total", "trainable", "layers", "flops_per_token", "training_flops_per_token", "memory")


def presets() -> list[str]:
    """Return the names of the presets."""
    return (FOLDER / "presets.txt").read_text("utf-8").split()


def recipes() -> list[str]:
    """Return the names of the shipped recipes."""
    return [each["name"] for each in json.loads(command("recipes", "--json"))["recipes"]]


def record_lab(words: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield verdicts and measured values of every experiment and its control, in short form."""
    for name in experiments():
        if all(word in name for word in words):
            (report,) = json.loads(command("lab", name, "--short", "--control", "--json"))["experiments"]
            keys = ("control", "verdict", "expected", "measured")
            yield name, digest([{key: each[key] for key in keys} for each in report["results"]])


def experiments() -> list[str]:
    """Return the names of the experiments."""
    return [each["name"] for each in json.loads(command("lab", "--json"))["experiments"]]


# The command --------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[list[str]], Iterator[tuple[str, Any]]]] = {
    "models": record_models,
    "lab": record_lab,
    "runs": record_runs,
}


def check(part: str, words: list[str]) -> list[str]:
    """Return a line for every difference from the record."""
    records = json.loads((RECORDS / f"{part}.json").read_text("utf-8"))
    differing, names = [], set()
    for name, value in PARTS[part](words):
        changes = list(differences(records.get(name), value, f"{part}: {name}"))
        print(f"{part}: {name}: {'equal' if not changes else f'{len(changes)} differences'}", flush=True)
        differing += changes
        names.add(name)
    missing = [] if words else sorted(records.keys() - names)
    return differing + [f"{part}: {name}: is gone" for name in missing]


def record(part: str, words: list[str]) -> None:
    """Write the record, or only the selected entries."""
    path = RECORDS / f"{part}.json"
    entries = json.loads(path.read_text("utf-8")) if words and path.exists() else {}
    for name, value in PARTS[part](words):
        print(f"{part}: {name}", flush=True)
        entries[name] = value
    path.parent.mkdir(exist_ok=True)
    lines = [
        f"{json.dumps(name)}: {json.dumps(entries[name], ensure_ascii=False)}" for name in sorted(entries)
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def main() -> int:
    """Check or write the records."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("action", choices=("check", "record"))
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("words", nargs="*", help="only entries whose name has all of these")
    args = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in BASELINE.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **BASELINE})
    if "HEEDFUL_DATA" not in os.environ:
        parser.error("HEEDFUL_DATA must name the folder with the corpora")
    start, differing = time.monotonic(), []
    for part in [args.part] if args.part else PARTS:
        if args.action == "record":
            record(part, args.words)
        else:
            differing += check(part, args.words)
    print("\n".join([*differing, f"{len(differing)} differences, {time.monotonic() - start:.0f} s"]))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
