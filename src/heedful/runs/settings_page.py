"""The page `docs/settings.md`: every key of every recipe.

Nothing of it but the words is written by hand: keys, values and defaults are those of the classes that
validate recipes, and what a key means is in their docstrings, under ``Args:``. The page is made anew by

    python -m heedful.runs.settings_page > docs/settings.md
"""

import inspect
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from heedful.config import Config, CustomSection
from heedful.tasks.registry import TASKS
from heedful.typing import JsonMapping

# Decoding before validation, which also decodes: so its tables are where readers expect them.
SECTIONS = (
    "task", "data", "augmentation", "tokenizer", "pretrained", "model", "start", "windows", "objective",
    "optimizer", "schedule", "training", "decoding", "completion", "answering", "validation", "evaluation",
    "expected",
)  # fmt: skip
"""The keys of recipes that have keys of their own, in the order of the page."""

WORDS = """# Settings

<!-- Made by: python -m heedful.runs.settings_page > docs/settings.md -->

Every key of every recipe, section by section. How recipes are read, and what they begin with, is in
[Recipes](recipes.md); `heedful recipes NAME` prints one with comments, `heedful train NAME --print` one with
all its defaults.

On the command line, dots lead into a section: `training.max_updates=500`. If a key has several tables,
its `kind` selects one of them; text in place of a section is its kind (`norm: rms`). A kind may also be a
class of your own, by its import path ([Change one part](tutorials/change-one-part.md)). Keys without a
default (–) are required. Any other key is an error that names the file, the line and the nearest key.
"""


@dataclass(frozen=True)
class Table:
    """A class of configurations on the page.

    Args:
        config: the class.
        path: of the first key that holds one.
        tasks: those whose recipes may have it.
        is_only: whether no other class has that path.
    """

    config: type[Config]
    path: str
    tasks: tuple[str, ...]
    is_only: bool

    @property
    def title(self) -> str:
        """Of its heading: the key with the kind, or with the tasks where others have another class."""
        if chosen := discriminator(self.config):
            return f"{self.path}: {' or '.join(get_args(self.config.model_fields[chosen].annotation))}"
        return self.path if self.is_only else f"{self.path} ({', '.join(self.tasks)})"

    @property
    def link(self) -> str:
        """To its heading."""
        word = self.title.partition(": ")[2]
        return f"[{f'`{word}`' if word else 'keys'}](#{anchor(self.title)})"


def discriminator(config: type[Config]) -> str | None:
    """The key that selects a class among others in its place, if there are some."""
    return "kind" if "kind" in config.model_fields else None


def tables() -> list[Table]:
    """Every class with its keys, where it is first reached, in the order of the page."""
    paths: dict[type[Config], str] = {}
    tasks: dict[type[Config], list[str]] = {}
    for section in SECTIONS:
        waiting = [
            (section, config, name)
            for name, task in TASKS.items()
            if section in task.Recipe.model_fields
            for config in configs(task.Recipe.model_fields[section].annotation)
        ]
        for path, config, name in waiting:  # grows: keys of one level come before those below
            if name in tasks.setdefault(config, []):
                continue
            paths.setdefault(config, path)
            tasks[config].append(name)
            for key, field in config.model_fields.items():
                waiting += ((f"{path}.{key}", inner, name) for inner in configs(field.annotation))
    classes = Counter(paths.values())
    return [Table(config, path, tuple(tasks[config]), classes[path] == 1) for config, path in paths.items()]


def configs(annotation: Any) -> Iterator[type[Config]]:
    """The classes of configurations in a type; those of a user's own parts have no settings to list."""
    if (
        isinstance(annotation, type)
        and issubclass(annotation, Config)
        and not issubclass(annotation, CustomSection)
    ):
        yield annotation
    for inner in get_args(annotation):
        yield from configs(inner)


def meanings(config: type[Config]) -> dict[str, str]:
    """The description of each key under ``Args:``, of the class itself or the nearest of its bases."""
    found: dict[str, str] = {}
    for base in reversed(config.__mro__):
        if issubclass(base, Config):
            found |= _arguments(inspect.cleandoc(base.__doc__ or ""))
    return found


def _arguments(doc: str) -> dict[str, str]:
    block = doc.partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^ {4}(\w[\w, ]*): (.+(?:\n {8}.+)*)", block, re.MULTILINE)
    return {key: " ".join(words.split()) for keys, words in entries for key in keys.split(", ")}


def page() -> str:
    """The whole page."""
    known = tables()
    return "\n".join([WORDS, _recipe(), *(_section(section, known) for section in SECTIONS)])


def _recipe() -> str:
    """The table of the keys that a recipe itself has."""
    said = {key: words for task in TASKS.values() for key, words in meanings(task.Recipe).items()}
    lines = []
    for key in ("description", "root", *SECTIONS):
        having = [each for each, task in TASKS.items() if key in task.Recipe.model_fields]
        name = f"[`{key}`](#{key})" if key in SECTIONS else f"`{key}`"
        lines.append((name, _of(having) or "all", _cell(said.get(key, ""))))
    return "## The sections\n\n" + _table(("key", "tasks", "what it is"), lines)


def _section(section: str, known: Sequence[Table]) -> str:
    here = [table for table in known if re.match(rf"{section}\b", table.path)]
    parts = [f"## {section}\n"]
    if bare := [table for table in here if not table.config.model_fields]:
        tasks = [task for table in bare for task in table.tasks]
        parts.append(f"There is nothing to choose for {_of(sorted(tasks, key=[*TASKS].index))}.\n")
    parts += [_described(table, section, known) for table in here if table not in bare]
    return "\n".join(parts)


def _described(table: Table, section: str, known: Sequence[Table]) -> str:
    """A class: its heading, its docstring, and its keys."""
    words = inspect.cleandoc(table.config.__doc__ or "").partition("\nArgs:\n")[0].strip().replace("``", "`")
    parts = [f"### {table.title}\n"] if table.title != section else []
    if (tasks := _of(table.tasks)) and tasks not in table.title:
        parts.append(f"Tasks: {tasks}.\n")
    parts.append(f"{words}\n")
    if sections := getattr(table.config, "default_sections", {}):
        parts.append(
            f"Defaults of its sections: `{_flow(sections)}`. A section of another kind has the defaults of "
            "that kind.\n"
        )
    if lines := list(rows(table.config, known)):
        parts.append(_table(("key", "values", "default", "what it is"), lines))
    return "\n".join(parts)


def rows(config: type[Config], known: Sequence[Table]) -> Iterator[tuple[str, str, str, str]]:
    """Key, values, default and meaning of each line; ``known`` are tables that values may link to."""
    schema, said = config.model_json_schema(), meanings(config)
    sections = getattr(config, "default_sections", {})
    links = {table.config.__name__: table for table in known if table.config in _inside(config)}
    for key, value in schema["properties"].items():
        if key != discriminator(config):
            own = {"default": sections[key]} if key in sections else value
            default = "–" if key in schema.get("required", ()) else _default(own)
            yield f"`{key}`", values(value, links), default, _cell(said.get(key, ""))


def _inside(config: type[Config]) -> set[type[Config]]:
    return {inner for field in config.model_fields.values() for inner in configs(field.annotation)}


def values(schema: JsonMapping, links: Mapping[str, Table]) -> str:
    """What a JSON Schema allows, in words; other classes as links to their tables."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2].rpartition("__")[2]
        return links[name].link if name in links else "a class of your own"
    if several := schema.get("oneOf") or schema.get("anyOf"):
        return " or ".join(values(one, links) for one in several)
    if choices := schema.get("enum") or [schema[key] for key in ("const",) if key in schema]:
        return ", ".join(f"`{choice}`" for choice in choices)
    match schema["type"]:
        case "array":
            return f"a list: {values(schema['items'], links)}"
        case "object" if schema["additionalProperties"] is True:
            return "a map of settings"
        case "object":
            return f"a map of names: {values(schema['additionalProperties'], links)}"
        case kind:
            return f"{_TYPES[kind]} {_bounds(schema)}".strip()


_TYPES = {
    "integer": "whole number",
    "number": "number",
    "boolean": "`true`, `false`",
    "string": "text",
    "null": "`null`",
}
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def _bounds(schema: JsonMapping) -> str:
    return ", ".join(f"{sign} {schema[key]:g}" for key, sign in _BOUNDS.items() if key in schema)


def _flow(tree: Any) -> str:
    """Format plain data as YAML on one line."""
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key}: {_flow(value)}" for key, value in tree.items()) + "}"
    return str(tree)


def _default(schema: JsonMapping) -> str:
    """The default of a key that has one: of another class its kind, or that it has defaults itself."""
    default = schema.get("default", {})
    if default == {}:
        return "none"
    if isinstance(default, dict):
        kind = default.get("kind")
        return f"`{kind}`" if kind else "its own"
    is_plain = isinstance(default, str) and re.fullmatch(r"[\w-]+", default)
    return f"`{default if is_plain else json.dumps(default)}`"


def _of(tasks: Sequence[str]) -> str:
    """Names of tasks; empty for all of them."""
    return "" if len(tasks) == len(TASKS) else ", ".join(tasks)


def _cell(words: str) -> str:
    """Words of a docstring as Markdown, in a table."""
    return words.replace("``", "`").replace("|", r"\|")


def anchor(title: str) -> str:
    """What a heading is called in links."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *lines))


if __name__ == "__main__":
    print(page(), end="")
