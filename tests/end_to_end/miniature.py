"""Every shipped recipe in miniature: data of the kinds that it names, a tiny model, a few updates.

A new kind of source is a line in `WRITERS`, a new family of models one in `SMALL`, a column that is no free
text one in `DERIVED`.
"""

import gzip
import io
import json
import math
import os
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from torch import nn

from heedful.models.registry import SIZES
from heedful.models.stacks import StackConfig
from heedful.recipes.schema import Recipe
from heedful.runs.building import on_device
from heedful.runs.reading import read_recipe
from heedful.tasks.registry import task_for

N_ROWS = 24
IMAGE = "image.png"
WORDS = ["the", "a", "red", "blue", "small", "old", "dog", "cat", "bird", "runs", "sleeps", "eats", "near"]

Row = Mapping[str, str]
Write = Callable[[Any, Path, Sequence[Row]], None]

SMALL: dict[str, dict[str, Any]] = {
    "transformer": {"d_model": 16, "n_layers": 1},
    "recurrent": {"d_embedding": 12, "d_hidden": 14, "d_readout": 12},
    "language-model": {"d_model": 16, "n_layers": 1},
    "encoder": {"d_model": 16, "n_layers": 1},
    "vision": {"d_model": 16, "n_layers": 1},
    "resnet": {"width": 8, "n_blocks": [2, 1]},
    "captioner": {"d_model": 16, "n_layers": 1},
    "recurrent-captioner": {"d_embedding": 12, "d_hidden": 14, "d_readout": 12, "encoder.width": 8},
}
# In the sections of layers, wherever these have them; blocks of a size that short texts fill.
SMALL_LAYER = {"n_heads": 2, "n_kv_heads": 1, "d_ff": 24, "size": 8}
# An epoch is more than two updates.
SHORT = {"max_updates": 4, "validate_every": 2, "save_every": 2, "log_every": 1, "tokens_per_update": 48}


@dataclass(frozen=True)
class Miniature:
    """A shipped recipe, and what makes it small.

    Args:
        name: of the recipe.
        recipe: as it is shipped.
        overrides: what is given to the command behind it.
        rows: what its data are made of.
    """

    name: str
    recipe: Recipe
    overrides: list[str]
    rows: list[Row]

    @property
    def split(self) -> str:
        """What it can be scored on."""
        return "test" if self.recipe.data.sets.test else "valid"

    def inputs(self) -> list[dict[str, str]]:
        """What it may be asked: the inputs of some rows, with gaps where they may be filled; and nothing.

        Where a second text may stand beside an input, some have one.
        """
        task = task_for(self.recipe)
        keys, more = task.columns.inputs, task.columns.optional_inputs
        gap = " [MASK]" if "gap" in task.info.options else ""
        rows = [{key: row[key] + gap for key in keys} for row in self.rows[:3]]
        both = [dict.fromkeys((*keys, *more), row[keys[0]]) for row in rows[:2]] if more else []
        return rows if "image" in keys else [*rows, *both, dict.fromkeys(keys, "")]


def miniature(name: str, folder: Path) -> Miniature:
    """Write the data of a recipe below ``folder``, where ``$HEEDFUL_DATA`` is ``data``."""
    recipe, _ = read_recipe(name)
    rows = list(_rows(recipe))
    if "image" in rows[0]:
        _write(folder, IMAGE, _png(0))
    for source in _sources(recipe):
        WRITERS[source.kind](source, folder, rows)
    return Miniature(name, recipe, list(overrides(recipe)), rows)


def _parts(recipe: Recipe) -> dict[str, Any]:
    """Every source by its key."""
    tests = {f"data.test.{name}": source for name, source in recipe.data.test.items()}
    valid = {} if recipe.data.valid is None else {"data.valid": recipe.data.valid}
    return {"data.train": recipe.data.train, **valid, **tests}


def _sources(recipe: Recipe) -> list[Any]:
    """Those that stand beside each other one by one."""
    return [one for source in _parts(recipe).values() for one in getattr(source, "sources", [source])]


def overrides(recipe: Recipe) -> Iterator[str]:
    """What makes it small, for the command line."""
    yield from (f"model.{key}={value}" for key, value in SMALL[recipe.model.kind].items())
    if isinstance(recipe.model, StackConfig):
        yield from _small_layers("model.layer", recipe.model.layer.model_dump())
        if recipe.model.pattern is not None:
            n = len(recipe.model.pattern)
            yield f"model.n_layers={n}"
            for number, layer in enumerate(recipe.model.layers[:n]):
                yield from _small_layers(f"model.pattern.{number}", layer.model_dump())
    yield from (f"training.{key}={value}" for key, value in SHORT.items())
    if getattr(recipe.schedule, "warmup", 0):
        yield "schedule.warmup=1"
    if recipe.training.average > 2:
        yield "training.average=2"
    if getattr(recipe.validation, "decode", 0) != 0:
        yield "validation.decode=3"
    if hasattr(recipe, "completion"):
        yield "completion.max_new_tokens=5"
    if recipe.data.split:  # shares that are not empty for few rows
        yield f"data.split={{{', '.join(f'{name}: 0.3' for name in recipe.data.split)}}}"
    for key, source in _parts(recipe).items():
        if source.skip:
            yield f"{key}.skip=0"
        # The whole of a built-in corpus is more than a few updates need.
        if source.kind == "built-in" and key == "data.train":
            yield f"{key}.split=valid"


def _small_layers(path: str, section: Mapping[str, Any]) -> Iterator[str]:
    """What makes the sections of a layer small, at any depth."""
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _small_layers(f"{path}.{key}", value)
        elif key in SMALL_LAYER and (key != "n_kv_heads" or value is not None):
            yield f"{path}.{key}={SMALL_LAYER[key]}"


# Parts -------------------------------------------------------------------------------------------------


def model_of(recipe: Recipe) -> nn.Module:
    """The model of a recipe, without numbers, for as many tokens as need be."""
    task = task_for(recipe)
    sizes = task.expected_sizes([101] * len(SIZES[recipe.model.kind]))
    return on_device("meta", task.build_model, sizes)


def parts(model: nn.Module) -> set[str]:
    """Every part of a model by what it is and what it is made of: its class, its parts, and how it is set.

    Sizes do not matter, nor how often a part stands in a list.
    """
    return {_told(part) for part in model.modules()}


def _told(part: nn.Module) -> str:
    facts = {name: value for name, value in vars(part).items() if isinstance(value, bool | str | None)}
    facts |= {name: "learned" for name, value in part.named_parameters(recurse=False)}
    facts["stride"] = getattr(part, "stride", None)
    facts["shared"] = getattr(part, "n_kv_heads", None) != getattr(part, "n_heads", None)
    told = {f"{name}={value}" for name, value in facts.items() if name[0] != "_"}
    told |= {_key(name) + _told(one) for name, one in part.named_children()}
    return f"{type(part).__name__}({', '.join(sorted(told))})"


def _key(name: str) -> str:
    """Of a part; its place in a list does not matter."""
    return "" if name.isdecimal() else f"{name}="


# Rows --------------------------------------------------------------------------------------------------


def _label(row: Row, number: int, recipe: Recipe) -> str:
    """Labels in turn, or numbers where one is asked for."""
    if recipe.task.kind == "regression":
        return str(1 + number % 5)
    labels = getattr(recipe.task, "labels", None) or ["one", "two"]
    return labels[number % len(labels)]


DERIVED: dict[str, Callable[[Row, int, Recipe], str]] = {
    "label": _label,
    "tags": lambda row, number, recipe: " ".join(
        "LONG" if len(w) > 3 else "SHORT" for w in row["words"].split()
    ),
    "answer": lambda row, number, recipe: row["context"].split()[-1],
    "similarity": lambda row, number, recipe: str(1 + number % 5),
    "image": lambda row, number, recipe: IMAGE,
    "mask": lambda row, number, recipe: IMAGE,
}


def _rows(recipe: Recipe) -> Iterator[Row]:
    """Words in random order under every name of a column, and what is made of them."""
    draw = random.Random(0)
    names = {column for source in _sources(recipe) for column in getattr(source, "columns", ())}
    names |= {*task_for(recipe).columns.inputs, "text", "label"}
    for number in range(N_ROWS):
        row = {name: " ".join(draw.choices(WORDS, k=draw.randint(2, 8))) for name in sorted(names)}
        yield {**row, **{name: make(row, number, recipe) for name, make in DERIVED.items() if name in names}}


# Files -------------------------------------------------------------------------------------------------


def _write(folder: Path, written: str, content: str | bytes) -> None:
    """A file under the name that a recipe has for it; a folder with the file where that has no ending."""
    path = folder / written.replace("$HEEDFUL_DATA", "data")
    if not path.suffix:
        path = path / "some.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _files(source: Any, folder: Path, rows: Sequence[Row]) -> None:
    for column, path in source.columns.items():
        _write(folder, path, "".join(f"{row[column]}\n" for row in rows))


def _text(source: Any, folder: Path, rows: Sequence[Row]) -> None:
    """Long enough for the windows of several updates."""
    _write(folder, source.paths, "".join(f"{row['text']}\n" for row in rows) * 20)


def _tsv(source: Any, folder: Path, rows: Sequence[Row]) -> None:
    """Fields by their number, or by their name behind a header."""
    fields = list(source.columns.values()) if source.header else range(max(source.columns.values()) + 1)
    columns = {field: column for column, field in source.columns.items()}
    lines = [[row.get(columns.get(field, ""), "more") for field in fields] for row in rows]
    head = [[str(field) for field in fields]] if source.header else []
    _write(folder, source.paths, "".join(source.separator.join(line) + "\n" for line in [*head, *lines]))


def _jsonl(source: Any, folder: Path, rows: Sequence[Row]) -> None:
    """``a.0`` is the first entry of the list ``a``, ``a.b`` the field b of the object a."""

    def record(row: Row) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for column, path in source.columns.items():
            first, *rest = path.split(".")
            value: Any = row[column]
            for part in reversed(rest):
                value = [value] if part == "0" else {part: value}
            found[first] = value
        return found

    _write(folder, source.paths, "".join(json.dumps(record(row)) + os.linesep for row in rows))


def _conll(source: Any, folder: Path, rows: Sequence[Row]) -> None:
    """A word a line with its fields, and a blank line between sentences."""
    n_fields = max(*source.columns.values(), len(source.columns) - 1) + 1
    columns = {field % n_fields: column for column, field in source.columns.items()}
    fields = range(n_fields)
    sentences = []
    for row in rows:
        words = [row[columns[field]].split() if field in columns else [] for field in fields]
        sentences.append("".join("\t".join(each) + "\n" for each in zip_longest(*words, fillvalue="_")))
    _write(folder, source.paths, "\n".join(sentences))


def _squad(source: Any, folder: Path, rows: Sequence[Row]) -> None:
    """A paragraph and a question a row, whose answer is a word of the paragraph."""
    paragraphs = []
    for row in rows:
        answer = {"text": row["passage"].split()[-1]}
        answer["answer_start"] = row["passage"].rindex(answer["text"])
        asked = {"question": row["question"], "answers": [answer]}
        paragraphs.append({"context": row["passage"], "qas": [asked]})
    _write(folder, source.paths, json.dumps({"data": [{"paragraphs": paragraphs}]}))


def _idx(source: Any, folder: Path, rows: Sequence[Row]) -> None:
    """Arrays of bytes behind a header: their type, their axes, how long these are."""
    for column, path in source.columns.items():
        shape = (len(rows), 28, 28) if column == "image" else (len(rows),)
        head = bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
        content = bytes(number % 2 for number in range(math.prod(shape)))
        _write(folder, path, head + content)


def _folder(source: Any, folder: Path, rows: Sequence[Row]) -> None:
    """A folder for each class, with different images."""
    for number in range(N_ROWS):
        _write(folder, f"{source.path}/{('one', 'two')[number % 2]}/{number}.png", _png(number))


def _captioned_folder(source: Any, folder: Path, rows: Sequence[Row]) -> None:
    """Images with two captions each, in a table."""
    names = [f"{number}.png" for number in range(len(rows))]
    for number, name in enumerate(names):
        _write(folder, f"{source.path}/{name}", _png(number))
    lines = (f"{name}\t{row['text']}\n" for name, row in zip(2 * names, [*rows, *rows[::-1]], strict=True))
    _write(folder, f"{source.path}/captions.txt", "".join(lines))


def _segmented_folder(source: Any, folder: Path, rows: Sequence[Row]) -> None:
    """Images, and masks of one class each."""
    for number in range(N_ROWS):
        _write(folder, f"{source.path}/images/{number}.png", _png(number))
        _write(folder, f"{source.path}/masks/{number}.png", _png(number % 2 - 50))


def _png(number: int) -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.new("L", (28, 28), 50 + number).save(content, "png")
    return content.getvalue()


WRITERS: dict[str, Write] = {
    "files": _files,
    "text": _text,
    "tsv": _tsv,
    "jsonl": _jsonl,
    "idx": _idx,
    "folder": _folder,
    "captioned-folder": _captioned_folder,
    "segmented-folder": _segmented_folder,
    "conll": _conll,
    "squad": _squad,
    "built-in": lambda source, folder, rows: None,
}
