"""Sections are merged and selected by kind; every number of every configuration is finite, in 32 bits too."""

import math
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import ValidationError

import heedful
from heedful.config import LARGEST, Config, Section, by_kind, merged
from heedful.parts import METRICS, check_settings


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


# Sections ---------------------------------------------------------------------------------------------------


class Round(Section):
    kind: Literal["round"] = "round"
    radius: float = 1.0


class Flat(Section):
    kind: Literal["flat"] = "flat"
    width: int
    height: int = 3
    edge: "by_kind(Round)" = Round()  # type: ignore[valid-type]


class Body(Config):
    shape: by_kind(Round, Flat) = Round()  # type: ignore[valid-type]
    other: by_kind(Flat, Round) | None = None  # type: ignore[valid-type]
    names: list[str] = ["a"]  # noqa: RUF012
    weight: float = 2.0


def test_the_first_class_is_that_of_a_section_without_kind():
    assert Body(shape={"radius": 2.0}).shape == Round(radius=2.0)
    assert Body(other={"width": 2}).other == Flat(width=2)
    assert Body(shape={"kind": "flat", "width": 2}).shape == Flat(width=2)


def test_text_in_place_of_a_section_is_its_kind():
    assert Body(shape="round") == Body(shape={"kind": "round"}) == Body(shape=Round())
    assert Body.model_validate_json('{"shape": "round"}') == Body()
    with pytest.raises(ValidationError, match=r"shape\.flat\.width\n  Field required"):
        Body(shape="flat")


def test_keys_of_other_kinds_and_other_kinds_are_refused():
    with pytest.raises(ValidationError, match=r"shape\.flat\.radius\n  Extra inputs"):
        Body(shape={"kind": "flat", "width": 2, "radius": 2.0})
    with pytest.raises(
        ValidationError, match=r"shape\n  Input tag 'square' .* expected tags: 'round', 'flat'"
    ):
        Body(shape="square")
    with pytest.raises(ValidationError, match="shape"):
        Body(shape={"kind": 3})
    with pytest.raises(ValidationError, match=r"'package:Name' .* expected tags: 'round', 'flat'"):
        Body(shape="package:Name")


def test_of_several_wrong_settings_the_first_is_named():
    wrong = ["widht", "hieght", "depht", "lenght", "braedth"]
    metric, *_ = METRICS
    for first in wrong:
        settings = sorted(wrong, key=lambda name: name != first)
        with pytest.raises(ValueError, match=f"{metric} has no setting '{first}'"):
            check_settings(metric, settings, ())


def test_the_schema_of_a_section_lists_its_kinds():
    definitions = Body.model_json_schema()["$defs"]
    assert [definitions[name]["properties"]["kind"]["const"] for name in ("Round", "Flat")] == [
        "round",
        "flat",
    ]


MERGED = {
    "maps key by key": ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3, "d": 4}}, {"a": {"b": 1, "c": 3, "d": 4}}),
    "lists are replaced": ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
    "null replaces a map": ({"a": {"b": 1}}, {"a": None}, {"a": None}),
    "a map replaces null": ({"a": None}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    "a scalar replaces a map": ({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}),
    "the same kind": ({"kind": "x", "b": 1}, {"kind": "x", "c": 2}, {"kind": "x", "b": 1, "c": 2}),
    "another kind": ({"kind": "x", "b": 1}, {"kind": "y", "c": 2}, {"kind": "y", "c": 2}),
    "no kind below": ({"b": 1}, {"kind": "y", "c": 2}, {"b": 1, "kind": "y", "c": 2}),
    "no kind above": ({"kind": "x", "b": 1}, {"c": 2}, {"kind": "x", "b": 1, "c": 2}),
    "text below is a kind": ("x", {"c": 2}, {"kind": "x", "c": 2}),
    "text below of another kind": ("x", {"kind": "y"}, {"kind": "y"}),
    "another kind deeper": (
        {"a": {"kind": "x", "b": 1}, "d": 2},
        {"a": {"kind": "y"}},
        {"a": {"kind": "y"}, "d": 2},
    ),
    "configurations": (
        Body(weight=3.0, shape=Flat(width=2)),
        {"shape": {"height": 5}},
        {"weight": 3.0, "shape": {"kind": "flat", "width": 2, "height": 5}},
    ),
    "a configuration over a map": (
        {"kind": "flat", "width": 2, "height": 4},
        Flat(width=3),
        {"kind": "flat", "width": 3, "height": 4},
    ),
}


@pytest.mark.parametrize("case", MERGED)
def test_merging(case):
    base, over, wanted = MERGED[case]
    kept = repr((base, over))
    assert merged(base, over) == wanted
    assert repr((base, over)) == kept


def test_merging_into_a_changed_copy_keeps_both_apart():
    below = {"a": {"b": [1]}}
    assert merged(below, {"a": {"c": 2}}) is not below
    assert below == {"a": {"b": [1]}}


def test_a_changed_copy_is_merged_section_by_section_and_validated():
    body = Body(shape={"kind": "flat", "width": 2, "height": 7}, weight=5.0)
    changed = body.changed(shape={"width": 4})
    assert changed == Body(shape=Flat(width=4, height=7), weight=5.0)
    assert body.shape.width == 2
    assert body.changed(shape="round") == Body(weight=5.0)
    assert body.changed(shape={"kind": "round"}).shape == Round()
    assert body.changed(shape=Flat(width=9)).shape == Flat(width=9, height=7)
    assert body.changed(other={"width": 1}, names=["b"]).names == ["b"]
    assert body.changed() == body
    with pytest.raises(ValidationError, match="valid integer"):
        body.changed(shape={"width": 1.5})
    with pytest.raises(ValidationError, match=r"size\n  Extra inputs"):
        body.changed(size=3)
    with pytest.raises(ValidationError, match=r"self\n  Extra inputs"):
        body.changed(self=3)
