"""Recipes with one absurd number each, run in a process that memory and time limits end."""

import copy
import json
import random
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from select import select
from typing import Annotated, Any, Self, Union, get_args, get_origin

from configurations import Drawing, _kind_of, _put, _type_of, configurations
from pydantic import BaseModel

from heedful.config import ChangesOf, CustomSection, as_section

ABSURD = (10**9, 10**18, -1, 65_537, float("inf"), float("nan"))
"""Values of every number of a recipe."""

MEMORY = 6 << 30
"""Bytes of the address space of a worker."""


@dataclass(frozen=True)
class Number:
    """A number of a recipe.

    Args:
        setting: the configuration that defines it, and its key: ``StackConfig.n_layers``.
        base: the name of the recipe.
        settings: the recipe.
        path: its path in the recipe.
        types: the types of the numbers that it accepts, ``int`` and ``float``.
    """

    setting: str
    base: str
    settings: dict[str, Any]
    path: tuple[str, ...]
    types: frozenset[type]

    @property
    def absurd(self) -> list[int | float]:
        """The values to try, in the types that it accepts."""
        as_float = float if int not in self.types else lambda value: value
        return [as_float(value) for value in ABSURD]

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
    if get_origin(annotation) in (Union, types.UnionType, list):
        return frozenset().union(*(number_types(part) for part in parts))
    return frozenset()


def numbers(base: str, recipe: type[BaseModel], settings: dict[str, Any]) -> Iterator[Number]:
    """Yield every number of a recipe, and of the recipes with another kind in one of its sections.

    Sections of a new kind have the fewest settings, and may not suit the recipe.
    """
    yield from _numbers(base, recipe, settings, settings, (), Drawing(random.Random(0)))


def _numbers(
    base: str, config: type[BaseModel], whole: dict[str, Any], section: Any, prefix: tuple[str, ...], draw: Drawing
) -> Iterator[Number]:
    for key, field in config.model_fields.items():
        if key == "kind":
            continue
        path, annotation = (*prefix, key), _type_of(field)
        if found := number_types(annotation):
            yield Number(f"{_owner(config, key).__name__}.{key}", base, whole, path, found)
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
                new = {**draw.settings(other, 0.0), **({"kind": _kind_of(other)} if _kind_of(other) else {})}
                changed = copy.deepcopy(whole)
                _put(changed, path, new)
                yield from _numbers(base, other, changed, new, path, draw)


def _owner(config: type[BaseModel], key: str) -> type:
    """Return the class that defines a field."""
    return next(each for each in reversed(config.__mro__) if key in each.__dict__.get("__annotations__", {}))


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
            self.process.wait()
            self.process = None

    def call(self, value: object) -> Any:
        """Return the answer to a value, or a text if the process died or took too long."""
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
        ended = self.process.poll()
        self.end()
        return f"no answer in {self.seconds} s" if ended is None else f"the process died ({ended})"

    def _line(self, seconds: float) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        readable, _, _ = select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline() if readable else ""
