"""Base classes of all typed configurations: frozen, strict, without unknown keys.

Builders and recipes use configurations. Blocks (`heedful.nn`) never see one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, Union, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Tag,
    field_validator,
    model_validator,
)

from heedful.parts import build_reference, check_part, check_settings, is_reference

LARGEST = 3.4028234663852886e38
"""The largest finite 32-bit floating-point number, the type in which models compute."""

LARGEST_WHOLE = 2**63 - 1
"""The largest signed 64-bit integer, the index type of torch and numpy."""


class Config(BaseModel):
    """Frozen record of settings; unknown keys and values of another type are errors.

    Floating-point numbers must be finite in 32 bits, and integers must fit in 64 bits.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, protected_namespaces=(), allow_inf_nan=False
    )

    @field_validator("*", mode="after")
    @classmethod
    def _finite_in_32_bits(cls, value: object) -> object:
        if (limit := _exceeded(value)) is not None:
            raise ValueError(f"expected a number of at most {limit:.2g}")
        return value

    def changed(self, /, **changes: object) -> Self:
        """Return a copy with changes, merged section by section and validated (see `merged`)."""
        return type(self).model_validate(merged(self.model_dump(), changes))


class Section(Config):
    """Configuration of one part of a model: its ``kind``, and the settings of that kind."""

    kind: str


@dataclass(frozen=True)
class ChangesOf:
    """Annotation of a map of changes of a configuration, for messages about its keys."""

    config: type[Config]


class CustomSection(Section):
    """A custom part: ``kind`` is the import path of a class, and further keys are its arguments.

    A parameter of the class that has the name of a size (``sizes``) gets it from the model.
    """

    model_config = ConfigDict(extra="allow")

    sizes: ClassVar[tuple[str, ...]] = ()
    """Names of the sizes that ``instance`` is called with."""

    contract: ClassVar[type] = object
    """Base class of its class."""

    methods: ClassVar[tuple[str, ...]] = ()
    """Names of methods that its class must define."""

    @model_validator(mode="after")
    def _has_its_settings(self) -> "CustomSection":
        if not is_reference(self.kind):
            raise ValueError(f"expected an import path such as my_package.my_module:Name, got {self.kind!r}")
        check_part(self.kind, self.contract, self.methods)
        check_settings(self.kind, self.model_extra or {}, self.sizes)
        return self

    def instance(self, **sizes: object) -> Any:
        """Return an instance of the class, with the sizes that its constructor asks for.

        Raises:
            ValueError: if it is not of the class that is expected in its place.
        """
        part = build_reference(self.kind, dict(self.model_extra or {}), sizes)
        if not isinstance(part, self.contract):
            raise ValueError(f"{self.kind}: expected a {self.contract.__name__}, got {type(part).__name__}")
        return part


class ByKind:
    """Discriminator of sections: the tag of a value is its ``kind``, by default that of the first class."""

    __name__ = "kind"  # in pydantic's errors

    def __init__(self, default: str, custom: bool) -> None:
        self.default, self.custom = default, custom

    def __call__(self, value: object) -> str:
        """Return the tag of a map or configuration."""
        kind = value.get("kind", self.default) if isinstance(value, Mapping) else getattr(value, "kind", None)
        return OWN if self.custom and is_reference(kind) else str(kind)


OWN = "package.module:Name"
"""Tag of the section of a custom class."""


def by_kind(*classes: type[Section], custom: type[CustomSection] | None = None) -> Any:
    """Return the type of a section of any of these classes; the first is that of a section without ``kind``.

    Text in place of a section is its kind: ``norm: rms`` is ``norm: {kind: rms}``.

    Args:
        classes: their ``kind`` is a literal.
        custom: the class of a section whose ``kind`` is an import path; None: import paths are not accepted.
    """
    members = [
        Annotated[section, Tag(get_args(section.model_fields["kind"].annotation)[0])] for section in classes
    ]
    if custom is not None:
        members.append(Annotated[custom, Tag(OWN)])
    if len(members) == 1:  # pydantic 2.10 refuses a discriminator without a union
        return Annotated[members[0], BeforeValidator(as_section)]
    default = str(classes[0].model_fields["kind"].default)
    tag = Discriminator(ByKind(default, custom is not None))
    return Annotated[Union[tuple(members)], tag, BeforeValidator(as_section)]  # noqa: UP007


def as_section(value: object) -> object:
    """Return ``{"kind": value}`` for text, and other values unchanged."""
    return {"kind": value} if isinstance(value, str) else value


def merged(base: object, override: object) -> object:
    """Merge plain data or configurations: maps key by key, anything else replaces what is below it.

    Text below a map is its ``kind``. A map whose ``kind`` differs replaces the map below.
    """
    base, override = _plain(base), _plain(override)
    if not isinstance(override, Mapping):
        return override
    base = as_section(base)
    if not isinstance(base, Mapping) or (
        "kind" in override and override["kind"] != base.get("kind", override["kind"])
    ):
        return override
    return {
        **base,
        **{key: merged(base[key], value) if key in base else value for key, value in override.items()},
    }


def _plain(value: object) -> object:
    """Return a configuration as a map of the keys that were set, with the kinds of its sections."""
    if not isinstance(value, Config):
        return value
    set_keys = value.model_fields_set | ({"kind"} & type(value).model_fields.keys())
    return {key: _plain(getattr(value, key)) for key in set_keys} | dict(value.model_extra or {})


def _exceeded(value: object) -> float | None:
    """Return the limit that a number in the value exceeds, or None."""
    if isinstance(value, int):
        return LARGEST_WHOLE if abs(value) > LARGEST_WHOLE else None
    if isinstance(value, float):
        return LARGEST if abs(value) > LARGEST else None
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return next((limit for part in parts if (limit := _exceeded(part)) is not None), None)
