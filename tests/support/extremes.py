"""Recipes with one absurd number each, run in a process that memory and time limits end."""

import copy
import inspect
import json
import random
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from select import select
from typing import Annotated, Any, Self, Union, get_args, get_origin

from configurations import Drawing, _kind_of, _put, _type_of, configurations
from pydantic import BaseModel

from heedful.config import ChangesOf, CustomSection, as_section

ABSURD = (10**9, 10**18, -1, 65_537, float("inf"), float("nan"))
"""Values of every number of a recipe."""

NEEDED: dict[str, dict[str, Any]] = {
    "bpe": {"merges": 9},
    "byte-bpe": {"merges": 9},
    "unigram": {"vocab_size": 300},
    "wordpiece": {"vocab_size": 60},
    "power": {"warmup": 0},
    "built-in": {"name": "phrasebook-de", "split": "train", "columns": {}, "limit": 20},
}
"""Settings that sections of a kind need to be valid."""


@dataclass(frozen=True)
class Number:
    """A number of a recipe.

    Args:
        setting: the configuration that defines it, and its key: ``StackConfig.n_layers``.
        base: the name of the recipe.
        settings: the recipe.
        path: its path in the recipe.
        types: the types of the numbers that it accepts, ``int`` and ``float``.
        forms: what it accepts: a number (``one``), a ``list`` of some, a ``map`` of some.
    """

    setting: str
    base: str
    settings: dict[str, Any]
    path: tuple[str, ...]
    types: frozenset[type]
    forms: frozenset[str] = frozenset({"one"})

    @property
    def absurd(self) -> list[Any]:
        """The values to try, in the types and forms that it accepts."""
        numbers = [value if int in self.types else float(value) for value in ABSURD]
        made: list[Any] = [*numbers] if "one" in self.forms else []
        if "list" in self.forms:
            made += [[number] * n for number in numbers for n in (1, 2)]
        return made + [{"text": number} for number in numbers if "map" in self.forms]

    def changed(self, value: object) -> dict[str, Any]:
        """Return the recipe with another value."""
        settings = copy.deepcopy(self.settings)
        _put(settings, self.path, value)
        return settings


def number_types(annotation: Any) -> frozenset[type]:
    """Return the types of the numbers in a type: ``int``, ``float``, both or none."""
    if annotation in (int, float):
        return frozenset({annotation})
    parts = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return frozenset() if any(isinstance(p, ChangesOf) for p in parts[1:]) else number_types(parts[0])
    if get_origin(annotation) in (Union, types.UnionType, list, dict):
        return frozenset().union(*(number_types(part) for part in parts))
    return frozenset()


def number_forms(annotation: Any) -> frozenset[str]:
    """Return the forms of the numbers in a type (`Number.forms`)."""
    parts = get_args(annotation)
    if annotation in (int, float):
        return frozenset({"one"})
    if get_origin(annotation) is Annotated:
        return number_forms(parts[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return frozenset().union(*(number_forms(part) for part in parts))
    form = {list: "list", dict: "map"}.get(get_origin(annotation) or object)
    return frozenset({form}) if form and number_types(annotation) else frozenset()


def numbers(base: str, recipe: type[BaseModel], settings: dict[str, Any]) -> Iterator[Number]:
    """Yield every number of a recipe, and of the recipes with another kind in one of its sections.

    Sections of a new kind have the fewest settings, and may not suit the recipe.
    """
    yield from _numbers(base, recipe, settings, settings, (), Drawing(random.Random(0)))


def _numbers(
    base: str,
    config: type[BaseModel],
    whole: dict[str, Any],
    section: Any,
    prefix: tuple[str, ...],
    draw: Drawing,
) -> Iterator[Number]:
    for key, field in config.model_fields.items():
        if key == "kind":
            continue
        path, annotation = (*prefix, key), _type_of(field)
        if found := number_types(annotation):
            yield Number(
                f"{owner_of(config, key).__name__}.{key}", base, whole, path, found, number_forms(annotation)
            )
        given = section.get(key) if isinstance(section, Mapping) else None
        given = as_section(given) if isinstance(given, str) else given
        default = None if given is not None else getattr(field.default, "kind", None)
        kind = given.get("kind", default) if isinstance(given, Mapping) else default
        for other in configurations(annotation):
            if issubclass(other, CustomSection):
                continue
            if isinstance(given, Mapping) and kind in (None, _kind_of(other)):
                yield from _numbers(base, other, whole, given, path, draw)
            elif prefix.count(key) == 0:
                new = {**draw.settings(other, 0.0), **NEEDED.get(_kind_of(other) or "", {})}
                changed = copy.deepcopy(whole)
                _put(changed, path, new)
                yield from _numbers(base, other, changed, new, path, draw)


def owner_of(config: type[BaseModel], key: str) -> type:
    """Return the class that defines a field."""
    return next(each for each in reversed(config.__mro__) if key in inspect.get_annotations(each))


class Worker:
    """A process that runs functions of a module on JSON values, with limited memory; started when needed.

    Args:
        module: its file.
        arguments: further arguments of the command.
        seconds: how long a call may take before the process is killed.
    """

    def __init__(self, module: Path, arguments: Sequence[str], seconds: float) -> None:
        self.command = [sys.executable, str(module), *arguments]
        self.seconds = seconds
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Kill the process."""
        if self.process is not None:
            self.process.kill()
            with suppress(BrokenPipeError):
                self.process.communicate()
            self.process = None

    def call(self, value: object) -> Any:
        """Return the answer to a value: an object; its ``result`` is ``died`` without one."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert self._line(120.0) == "ready\n"
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()
        line = self._line(self.seconds)
        if line:
            return json.loads(line)
        message = f"no answer in {self.seconds} s"
        if line is not None:
            message = f"the process ended with {self.process.wait(self.seconds)}"
        self.end()
        return {"result": "died", "message": message}

    def _line(self, seconds: float) -> str | None:
        """Return the next line of the process, nothing if it has ended, None if there is none in time."""
        assert self.process is not None
        assert self.process.stdout is not None
        readable, _, _ = select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline() if readable else None
