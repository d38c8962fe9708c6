"""``heedful recipes``."""

import typer

from heedful.cli.output import json_result, result, say


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("recipes", short_help="List the shipped recipes.")(recipes)


def recipes(
    name: str = typer.Argument(None, metavar="[NAME]", help="Print this one, comments and all, to copy it."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """List the shipped recipes: what each trains, on what, and what it should reach."""
    from heedful.errors import RequestError, nearest
    from heedful.runs.resolve import shipped_recipes
    from heedful.runs.yaml import read_yaml

    shipped = shipped_recipes()
    if name is not None:
        if name not in shipped:
            raise RequestError(f"no recipe is called {name!r}{nearest(name, shipped)}; see heedful recipes")
        result(shipped[name].read_text(encoding="utf-8").rstrip())
        return
    rows = []
    for name, file in shipped.items():
        plain = read_yaml(file.read_text(encoding="utf-8"), file.name).data
        expected = plain.get("expected", {})
        rows.append(
            {
                "name": name,
                "description": " ".join(plain.get("description", "").split()),
                "task": plain.get("task", {}).get("kind"),
                "scores": expected.get("scores", {}),
                "minutes": expected.get("minutes"),
                "note": " ".join(expected.get("note", "").split()),
            }
        )
    if as_json:
        json_result({"version": 1, "recipes": rows})
        return
    for row in rows:
        scores = ", ".join(f"{name} {value:g}" for name, value in row["scores"].items()) or "not yet measured"
        minutes = f" ({row['minutes']:g} min on 2 CPU cores)" if row["minutes"] else ""
        result(f"{row['name']:<22} {row['description']}")
        result(f"{'':<22} {row['task']}; {scores}{minutes}")
    say("start one with:  heedful train NAME      see one whole with:  heedful train NAME --print")
