"""Walk the types of configurations: sections, unions of sections by their ``kind``, and their fields."""

import types
from typing import Annotated, Literal, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from heedful.config import ChangesOf
from heedful.recipes.trees import Part


def unwrap(annotation: object) -> tuple[object, str | None]:
    """Return a type without annotations and without ``| None``, and its discriminator key."""
    key: str | None = None
    while True:
        if isinstance(annotation, FieldInfo):
            key = annotation.discriminator if isinstance(annotation.discriminator, str) else key
            metadata, annotation = annotation.metadata, annotation.annotation
        elif get_origin(annotation) is Annotated:
            annotation, *metadata = get_args(annotation)
        elif hasattr(annotation, "__value__"):
            annotation, metadata = annotation.__value__, []
        elif is_union(annotation) and type(None) in get_args(annotation):
            arguments = [m for m in get_args(annotation) if m is not type(None)]
            annotation, metadata = Union[tuple(arguments)], []  # noqa: UP007
        else:
            return annotation, key
        annotation = next((entry.config for entry in metadata if isinstance(entry, ChangesOf)), annotation)
        keys = [getattr(entry, "discriminator", None) for entry in metadata]
        key = next((getattr(name, "__name__", name) for name in keys if name is not None), key)


def member_of(union: object, part: Part, key: str | None) -> object:
    """Return the member of a union that pydantic's location names: by its tag, or else by its class.

    None if there is none.
    """
    for member in get_args(union):
        is_match = part in tags_of(member, key) if key else part == getattr(member, "__name__", str(member))
        if is_match:
            return member
    return None


def tags_of(annotation: object, key: str) -> set[str]:
    """Return the values of ``key`` that select this type, or a member of this union."""
    bare, _ = unwrap(annotation)
    if is_model(bare):
        literal, _ = unwrap(fields_of(bare).get(key))
        return set(get_args(literal)) if get_origin(literal) is Literal else set()
    if is_union(bare):
        return set().union(*(tags_of(member, key) for member in get_args(bare)))
    return set()


def is_union(annotation: object) -> bool:
    """Whether a type is a union."""
    return get_origin(annotation) in (Union, types.UnionType)


def is_model(annotation: object) -> TypeGuard[type[BaseModel]]:
    """Whether a type is a class of configurations."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def fields_of(annotation: object) -> dict[str, FieldInfo]:
    """Return the fields of a class of configurations by key; empty for any other type."""
    bare, _ = unwrap(annotation)
    if not is_model(bare):
        return {}
    return {field.alias or name: field for name, field in bare.model_fields.items()}
