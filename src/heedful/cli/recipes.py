"""The command ``heedful recipes``."""

from collections.abc import Iterator

import typer

from heedful.cli.options import Json, complete_recipe
from heedful.cli.output import json_result, log, result
from heedful.tables import columns
from heedful.typing import JsonMapping, JsonObject

UNKNOWN = "–"
COLUMNS = ("name", "task", "data", "parameters", "minutes", "expected")


def recipes(
    name: str = typer.Argument(
        None,
        metavar="[NAME]",
        help="Print this recipe as YAML, including comments.",
        autocompletion=complete_recipe,
    ),
    as_json: Json = False,
) -> None:
    """List the shipped recipes with task, data, parameters, training time and expected scores."""
    from heedful.errors import RequestError, nearest
    from heedful.recipes.resolve import shipped_recipes

    shipped = shipped_recipes()
    if name is not None:
        if name not in shipped:
            raise RequestError(f"unknown recipe {name!r}{nearest(name, shipped)}; heedful recipes lists them")
        if as_json:
            raise RequestError("--json: only supported for the list; a single recipe is printed as YAML")
        result(shipped[name].read_text(encoding="utf-8").rstrip())
        return
    rows = [_row(name) for name in shipped]
    if as_json:
        json_result({"version": 1, "recipes": rows})
        return
    lines = columns(
        [COLUMNS, *map(_cells, rows)], right={COLUMNS.index("parameters"), COLUMNS.index("minutes")}
    )
    for line, description in zip(lines, ["", *(row["description"] for row in rows)], strict=True):
        result(line)
        if description:
            result(f"    {description}")
    log("minutes are measured on two CPU cores or one thread; see expected.note of each recipe")
    log("train one:  heedful train NAME      print the merged recipe:  heedful train NAME --print")


def _row(name: str) -> JsonObject:
    """Return a recipe as described by ``docs/schemas/recipes.schema.json``, without resolving presets."""
    from heedful.recipes.resolve import resolve_without_presets

    recipe = resolve_without_presets(name).data
    expected = recipe.get("expected", {})
    return {
        "name": name,
        "description": " ".join(recipe.get("description", "").split()),
        "task": recipe["task"]["kind"],
        "data": _data(recipe["data"]["train"]),
        "parameters": expected.get("parameters"),
        "minutes": expected.get("minutes"),
        "scores": expected.get("scores", {}),
        "note": " ".join(expected.get("note", "").split()),
    }


def _data(source: JsonMapping) -> str:
    """Name the data: built-in corpus, folder of ``$HEEDFUL_DATA``, data set, or "your own"."""
    if source["kind"] == "built-in":
        return f"{source['name']} (built in)"
    folders = [text.split("/")[1] for text in _texts(source) if text.startswith("$HEEDFUL_DATA/")]
    return next(iter(folders), source.get("name", "your own"))


def _texts(value: object) -> Iterator[str]:
    """Yield all strings in a tree."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _cells(row: JsonMapping) -> tuple[str, ...]:
    scores = ", ".join(f"{name} {value:g}" for name, value in row["scores"].items())
    minutes = UNKNOWN if row["minutes"] is None else f"{row['minutes']:g}"
    return row["name"], row["task"], row["data"], _size(row["parameters"]), minutes, scores or UNKNOWN


def _size(parameters: int | None) -> str:
    """Format a parameter count, such as ``2.64M``."""
    if parameters is None:
        return UNKNOWN
    return f"{parameters / 1e6:.2f}M" if parameters >= 1e6 else f"{parameters / 1e3:.0f}k"
