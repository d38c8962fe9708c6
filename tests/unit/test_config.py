"""Every number of every configuration is finite, in 32 bits too."""

import math
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import ValidationError

import heedful
from heedful.config import LARGEST, Config


def classes(base: type = Config) -> Iterator[type[Config]]:
    for each in base.__subclasses__():
        if each.__module__.startswith("heedful."):
            yield each
        yield from classes(each)


def holding(kind: Any, number: float) -> Iterator[Any]:
    """Values of this type that hold the number at each place where it takes a float."""
    if kind is float:
        yield number
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        yield from holding(arguments[0], number)
    elif origin in (Union, UnionType):
        for each in arguments:
            yield from holding(each, number)
    elif origin in (tuple, list):
        own = [each for each in arguments if each is not Ellipsis]
        yield from ([value] for each in own for value in holding(each, number))
    elif origin is dict:
        yield from ({"a": value} for value in holding(arguments[1], number))


for module in pkgutil.walk_packages(heedful.__path__, "heedful."):
    if not module.name.endswith("__main__"):
        import_module(module.name)
FIELDS = [
    (each, name, field.rebuild_annotation())
    for each in sorted(set(classes()), key=lambda c: (c.__module__, c.__name__))
    for name, field in each.model_fields.items()
    if list(holding(field.rebuild_annotation(), 1.0))
]


def errors(owner: type[Config], name: str, value: Any) -> list[str]:
    """The types of the errors at the field."""
    try:
        owner.model_validate({name: value}, strict=False)
    except ValidationError as error:
        return [each["type"] for each in error.errors() if each["loc"][:1] == (name,)]
    return []


def test_there_are_numbers_in_many_configurations():
    assert len(FIELDS) > 60


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_no_configuration_takes_what_is_not_finite(number):
    taken = [
        f"{owner.__name__}.{name}"
        for owner, name, kind in FIELDS
        for value in holding(kind, number)
        if "finite_number" not in errors(owner, name, value)
    ]
    assert taken == []


def test_no_configuration_takes_what_32_bits_do_not_hold():
    def refused(owner, name, value):
        found = errors(owner, name, value)
        return any("less_than" in each or each in ("value_error", "too_short") for each in found)

    taken = [
        f"{owner.__name__}.{name}"
        for owner, name, kind in FIELDS
        for value in holding(kind, 1.001 * LARGEST)
        if not refused(owner, name, value)
    ]
    assert taken == []


class Some(Config):
    one: float = 0.0
    several: tuple[float, ...] = ()
    named: dict[str, float] = {}  # noqa: RUF012


def test_what_32_bits_hold_is_taken():
    given = {"one": LARGEST, "several": (-LARGEST, 1e-300), "named": {"a": LARGEST}}
    assert Some.model_validate(given).model_dump() == given
