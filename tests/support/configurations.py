"""Sample random values of typed configurations from the annotations of their fields."""

import copy
import random
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from heedful.config import ChangesOf, CustomSection, Section, as_section

INTEGERS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16)
FLOATS = (0.0, 0.1, 0.5, 0.9, 1.0, 2.0)
EXTREME_INTEGERS = (-1, 1000, 2**31, 2**63, 10**30)
EXTREME_FLOATS = (-1.0, 1e-300, 1e-30, 1e30, 1e300)

SMALL: dict[str, Sequence[Any]] = {
    "d_model": (3, 4, 6, 8, 9, 12),
    "n_heads": (1, 2, 3),
    "n_layers": (1, 2),
    "n_decoder_layers": (1, 2),
    "d_ff": (4, 5),
    "d_embedding": (3, 4, 6),
    "d_hidden": (4, 5, 6),
    "width": (4, 5, 6),
    "image_size": (8, 12, 16),
    "patch_size": (3, 4),
    "n": (3, 4, 5),
}
"""Small sizes, always set, so that models are quick to build; sections that may have one are set too."""

OWN = ("no_such_package:Name", "os:system", "torch.nn:Linear")
"""Import paths of packages that are not registered as plugins."""

Place = tuple[tuple[str, ...], Any]
"""The path of a field, and its annotation."""


class Drawing:
    """Samples settings of configurations.

    Args:
        rng: the source of randomness.
        choices: values to choose from, by field name; default any value of its type.
        extreme: probability that a number is extreme.
    """

    def __init__(
        self, rng: random.Random, choices: Mapping[str, Sequence[Any]] | None = None, extreme: float = 0.0
    ) -> None:
        self.rng, self.choices, self.extreme = rng, {**SMALL, **(choices or {})}, extreme

    def value(self, kind: Any, key: str = "") -> Any:
        """Return a random value of the type, often at a limit of what a configuration accepts."""
        rng, origin, parts = self.rng, get_origin(kind), get_args(kind)
        if key in self.choices and not configurations(kind):
            return copy.deepcopy(rng.choice(self.choices[key]))
        if origin is Annotated:
            changes_config = next((each.config for each in parts[1:] if isinstance(each, ChangesOf)), None)
            return self.changes(changes_config) if changes_config else self.value(parts[0], key)
        if origin is Literal:
            return rng.choice(parts)
        if origin in (Union, types.UnionType):
            # Prefer the first kind of a section that is always set: other kinds are often incompatible.
            prefers_first = _is_sized(parts[0]) and rng.random() < 0.65
            chosen = parts[0] if prefers_first else rng.choice(parts)
            is_own = any(issubclass(each, CustomSection) for each in configurations(chosen))
            return self.value(rng.choice(parts) if is_own else chosen, key)
        if origin in (list, tuple):
            return [self.value(parts[0], key) for _ in range(rng.randint(0, 3))]
        if origin is dict:
            return {f"{n}": self.value(parts[1], key) for n in range(rng.randint(0, 2))}
        if kind is bool:
            return rng.random() < 0.5
        if kind is int:
            return rng.choice(EXTREME_INTEGERS if rng.random() < self.extreme else INTEGERS)
        if kind is float:
            return rng.choice(EXTREME_FLOATS if rng.random() < self.extreme else FLOATS)
        if kind is str:
            return rng.choice(("", "x", "en", "a b"))
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            settings = self.settings(kind, 0.2 if _is_sized(kind) else 0.5)
            is_text = issubclass(kind, Section) and rng.random() < 0.1
            return settings["kind"] if is_text else settings
        return None

    def settings(self, config: type[BaseModel], share: float = 0.25) -> dict[str, Any]:
        """Return settings of a configuration: all small sizes, and a share of the other fields."""
        settings: dict[str, Any] = {}
        for key, field in config.model_fields.items():
            if key == "kind":
                settings[key] = _kind_of(config) or self.rng.choice(OWN)
            elif key in SMALL or _is_needed(field) or self.rng.random() < share:
                settings[key] = self.value(_type_of(field), key)
        return settings

    def changes(self, config: type[BaseModel]) -> dict[str, Any]:
        """Return changes of a configuration: a few settings, some of them within a section of its kind."""
        changes = {
            key: self.value(_type_of(field), key)
            for key, field in config.model_fields.items()
            if self.rng.random() < 0.4
        }
        for value in changes.values():
            if isinstance(value, dict) and self.rng.random() < 0.3:
                value.pop("kind", None)
        return changes

    def mutated(self, base: Mapping[str, Any], config: type[BaseModel], n: int) -> dict[str, Any]:
        """Return a copy of the settings with ``n`` fields resampled, each in a random section."""
        settings = copy.deepcopy(dict(base))
        for _ in range(n):
            sections: dict[str, list[Place]] = {}
            for path, kind in places(config, settings):
                sections.setdefault(path[0], []).append((path, kind))
            path, kind = self.rng.choice(self.rng.choice(list(sections.values())))
            _put(settings, path, self.value(kind, path[-1]))
        return settings


def configurations(kind: Any) -> list[type[BaseModel]]:
    """Return the configurations that a type allows."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    if get_origin(kind) in (Annotated, Union, types.UnionType):
        parts = get_args(kind)[:1] if get_origin(kind) is Annotated else get_args(kind)
        return [config for part in parts for config in configurations(part)]
    return []


def places(config: type[BaseModel], settings: Any, prefix: tuple[str, ...] = ()) -> Iterator[Place]:
    """Yield every field that can be set, also in sections that are set or have a default."""
    for key, field in config.model_fields.items():
        if key == "kind":
            continue
        yield (*prefix, key), _type_of(field)
        section = settings.get(key) if isinstance(settings, Mapping) else None
        if section is None and (key in settings or field.default is None or field.is_required()):
            continue
        section = as_section(section) if configurations(field.annotation) else section
        default_kind = getattr(field.default, "kind", None)
        kind = section.get("kind", default_kind) if isinstance(section, Mapping) else default_kind
        configs = configurations(field.annotation)
        matching_configs = [each for each in configs if len(configs) == 1 or _kind_of(each) == kind]
        for each in matching_configs[:1]:
            yield from places(each, {} if section is None else section, (*prefix, key))


def _type_of(field: FieldInfo) -> Any:
    """Return the annotation with its metadata, which pydantic stores separately."""
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def _is_needed(field: FieldInfo) -> bool:
    return field.is_required() or _is_sized(type(field.default))


def _is_sized(kind: Any) -> bool:
    """Return whether a section of this type may have one of the `SMALL` sizes, at any depth."""
    fields = [each for config in configurations(kind) for each in config.model_fields.items()]
    return any(key in SMALL or _is_sized(field.annotation) for key, field in fields)


def _kind_of(config: type[BaseModel]) -> str | None:
    """Return its kind; None if it has none, or accepts any import path."""
    field = config.model_fields.get("kind")
    return None if field is None or issubclass(config, CustomSection) else get_args(field.annotation)[0]


def _put(settings: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        section = as_section(settings.get(key))
        settings[key] = section if isinstance(section, dict) else {}
        settings = settings[key]
    settings[path[-1]] = value
