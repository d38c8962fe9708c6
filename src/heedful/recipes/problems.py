"""Validate a tree as a recipe, and report every error with file, line and key."""

import json
import re
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple, TypeGuard, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from heedful.config import ChangesOf
from heedful.errors import RequestError, nearest
from heedful.recipes.trees import COMMAND_LINE, Mark, Part, Path, Tree, dotted
from heedful.recipes.yaml import describe, show
from heedful.typing import JsonMapping, JsonObject

T = TypeVar("T")

# Descriptions of expected values, by pydantic's error type; braces are filled from the error's context.
_EXPECTED: dict[str, str] = {
    **dict.fromkeys(("float_type", "float_parsing", "decimal_type", "complex_type"), "a number"),
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "mapping_type"), "a map"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "a list"),
    "string_type": "text",
    "path_type": "a path",
    "none_required": "null",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number less than {lt}",
    "less_than_equal": "a number of at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
}


def validate(tree: Tree, root: type[T]) -> T:
    """Return the configuration that a tree describes.

    The tree is validated as JSON, so that a strict model accepts a list for a tuple and text for a path;
    nothing else is converted.

    Args:
        tree: plain data with marks.
        root: a configuration class, or any pydantic type (for example, a union on ``kind``).

    Raises:
        RequestError: lists all errors, one per line (`explain_errors`).
    """
    adapter: TypeAdapter[T] = TypeAdapter(root)
    try:
        return adapter.validate_json(json.dumps(tree.data))
    except ValidationError as error:
        raise explain_errors(error, tree, root) from None


def explain_errors(error: ValidationError, tree: Tree, root: object) -> RequestError:
    """Translate a validation error into messages about the recipe, one line per mistake.

    For example ``recipe.yaml:12: model.d_modle: unknown key (did you mean 'd_model'?)`` or
    ``on the command line: training.seed=x: expected a whole number, got 'x'``.

    Args:
        error: pydantic's error.
        tree: the validated tree.
        root: the type it was validated against; suggestions are taken from its fields.
    """
    problems: dict[tuple[Path, str], list[_Problem]] = {}
    for details in error.errors(include_url=False):
        problem = _problem(details, tree, root)
        # The members of a plain union each report the same value: they share one line.
        key = problem.path, "" if problem.expected else problem.text
        problems.setdefault(key, []).append(problem)
    return RequestError("\n".join(_message(group, tree) for group in problems.values()))


def kinds_of(root: type[BaseModel], section: str) -> set[str]:
    """Return the valid values of ``kind`` in a section of a configuration."""
    return _tags(root.model_fields[section], "kind")


class _Problem(NamedTuple):
    """A problem at a path: either the expected value, or another text."""

    path: Path
    text: str = ""
    expected: str = ""
    hint: str = ""


def _problem(details: ErrorDetails, tree: Tree, root: object) -> _Problem:
    kind, loc = details["type"], details["loc"]
    context: JsonObject = details.get("ctx") or {}
    path, _ = _locate(root, loc, tree)
    if kind == "extra_forbidden":
        return _Problem(path, _unknown_key(str(loc[-1]), _locate(root, loc[:-1], tree)[1]))
    if kind == "missing":
        entry = "entry" if isinstance(loc[-1], int) else "key"
        return _Problem(path, f"required {entry} is missing")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        at = (*path, context["discriminator"].strip("'()"))
        return _Problem(at, _wrong_kind(context, _locate(root, loc, tree)[1], at[-1]))
    if kind in _EXPECTED:
        return _Problem(path, "", _EXPECTED[kind].format(**context), _hint(kind, details["input"], context))
    if kind in ("value_error", "assertion_error"):
        return _Problem(path, str(context["error"]))
    return _Problem(path, f"{details['msg']}, got {describe(details['input'])}")


def _unknown_key(key: str, model: object) -> str:
    names = list(_fields(model))
    _, _, deeper = min(_paths(model, key), default=(0, 0, ""))
    guess = f" (did you mean {deeper!r}?)" if deeper else nearest(key, names)
    known = f"; the keys here are {', '.join(names)}" if names and not guess else ""
    return f"unknown key{guess}{known}"


def _paths(model: object, key: str, depth: int = 3) -> Iterator[tuple[int, int, str]]:
    """Yield the paths of keys with this name in sections below a section.

    Each follows its numbers of sections that are not the default ones, and of sections.
    """
    for name, field in _fields(model).items():
        for inner in _members(field):
            other = not isinstance(field.default, inner) if isinstance(inner, type) else True
            if key in _fields(inner):
                yield other, 1, f"{name}.{key}"
            for others, sections, path in _paths(inner, key, depth - 1) if depth > 1 else ():
                yield other + others, 1 + sections, f"{name}.{path}"


def _members(annotation: object) -> list[object]:
    """Return the classes of configurations of a type: itself, or those of a union."""
    inner, _ = _bare(annotation)
    return [_bare(each)[0] for each in get_args(inner)] if _is_union(inner) else [inner]


def _wrong_kind(context: JsonMapping, union: object, key: str) -> str:
    quoted = context.get("expected_tags")
    kinds = sorted(re.findall(r"'([^']*)'", quoted)) if quoted else sorted(_tags(union, key))
    choice = f"the kinds are {', '.join(kinds)}" if kinds else "a kind is needed"
    if "tag" not in context:
        return f"required key is missing; {choice}"
    return f"unknown kind {context['tag']!r}{nearest(str(context['tag']), kinds)}; {choice}"


def _hint(kind: str, value: object, context: JsonMapping) -> str:
    if kind in ("literal_error", "enum") and isinstance(value, str):
        return nearest(value, re.findall(r"'([^']*)'", str(context["expected"])))
    if kind == "string_type" and isinstance(value, bool | int | float):
        return " (for text, put it in quotes)"
    return ""


# Keys in messages: ``schedule.warmup``; keys of the section itself have no dot.
_DOTTED, _NAME = re.compile(r"[a-z_]\w*(?:\.\w+)+"), re.compile(r"[a-z_]\w*")
# ``n_heads=7`` and ``norm.n_groups=5``: keys of this section, or of a section in it.
_COMPARED = re.compile(r"([a-z_]\w*(?:\.\w+)*)=")


def _blamed(problem: _Problem, tree: Tree) -> Mark:
    """Return the mark of the setting to blame.

    If the text names settings that conflict, this is the first of them from the command line, else the first
    in the recipe; if none of them is written, the enclosing section.
    """
    named: list[Path] = [tuple(key.split(".")) for key in _DOTTED.findall(problem.text)]
    if problem.path:
        named += [(*problem.path, key) for key in _NAME.findall(problem.text)]
    marks = [setting.mark for path in named if (setting := tree.find(path)) is not None]
    # Their last two parts suffice: ``layer.mixer.kind`` may be that of an entry of ``pattern``.
    compared = [tuple(key.split(".")[-2:]) for key in _COMPARED.findall(problem.text) if key != "kind"]
    section = tree.find(problem.path)
    for path, inner in section.walk() if section is not None else ():
        ends = (path[-1:], path[-2:], (*path[-1:], "kind") if isinstance(inner.value, str) else None)
        marks += [inner.mark for key in compared if key in ends]
    chosen = [mark for mark in marks if mark.source == COMMAND_LINE] or marks
    return chosen[0] if chosen else tree.mark_of(problem.path)


def _message(group: Sequence[_Problem], tree: Tree) -> str:
    first = group[0]
    setting = tree.find(first.path)
    is_whole = setting is not None and isinstance(setting.value, dict) and not first.expected
    mark = _blamed(first, tree) if is_whole else tree.mark_of(first.path)
    key = dotted(first.path)
    if setting is not None and mark.source == COMMAND_LINE and not isinstance(setting.value, dict | list):
        key += f"={show(setting.value)}"
    where = f"{mark}: {key}: " if key else f"{mark}: "
    if not first.expected:
        return where + first.text
    expected = " or ".join(dict.fromkeys(problem.expected for problem in group))
    got = "nothing" if setting is None else describe(setting.data)
    if setting is not None and expected.endswith(" entries"):
        got = str(len(setting.value))
    hint = next((problem.hint for problem in group if problem.hint), "")
    return f"{where}expected {expected}, got {got}{hint}"


# Walk a type along pydantic's location of an error. It has keys and indices, but also tags and members of
# unions, which are not part of the path.


def _locate(root: object, loc: Path, tree: Tree) -> tuple[Path, object]:
    """Return the path in the tree for ``loc``, and the type at that path (None if unknown)."""
    path: Path = ()
    for part in loc:
        root, is_key = _step(root, part, tree, path)
        path = (*path, part) if is_key else path
    return path, root


def _step(annotation: object, part: Part, tree: Tree, path: Path) -> tuple[object, bool]:
    inner, key = _bare(annotation)
    if _is_model(inner):
        return _fields(inner).get(str(part)), True
    if _is_union(inner):
        return _member(inner, part, key), False
    container, entries = get_origin(inner), [each for each in get_args(inner) if each is not Ellipsis]
    if not isinstance(container, type) or not entries:
        return None, tree.find((*path, part)) is not None
    if part == "[key]":
        return entries[0], False
    # An entry of list[X], dict[K, X], tuple[X, ...] or tuple[X, Y].
    is_tuple = issubclass(container, tuple)
    return entries[part if is_tuple and isinstance(part, int) and part < len(entries) else -1], True


def _bare(annotation: object) -> tuple[object, str | None]:
    """Return a type without annotations and without ``| None``, and its discriminator key."""
    key: str | None = None
    while True:
        if isinstance(annotation, FieldInfo):
            key = annotation.discriminator if isinstance(annotation.discriminator, str) else key
            infos, annotation = annotation.metadata, annotation.annotation
        elif get_origin(annotation) is Annotated:
            annotation, *infos = get_args(annotation)
        elif hasattr(annotation, "__value__"):
            annotation, infos = annotation.__value__, []
        elif _is_union(annotation) and type(None) in get_args(annotation):
            members = [m for m in get_args(annotation) if m is not type(None)]
            annotation, infos = Union[tuple(members)], []  # noqa: UP007
        else:
            return annotation, key
        annotation = next((info.config for info in infos if isinstance(info, ChangesOf)), annotation)
        keys = [getattr(info, "discriminator", None) for info in infos]
        key = next((getattr(each, "__name__", each) for each in keys if each is not None), key)


def _member(union: object, part: Part, key: str | None) -> object:
    for member in get_args(union):
        named = part in _tags(member, key) if key else part == getattr(member, "__name__", str(member))
        if named:
            return member
    return None


def _tags(annotation: object, key: str) -> set[str]:
    """Return the values of ``key`` that select this type, or a member of this union."""
    inner, _ = _bare(annotation)
    if _is_model(inner):
        literal, _ = _bare(_fields(inner).get(key))
        return set(get_args(literal)) if get_origin(literal) is Literal else set()
    if _is_union(inner):
        return set().union(*(_tags(member, key) for member in get_args(inner)))
    return set()


def _is_union(annotation: object) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)


def _is_model(annotation: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _fields(annotation: object) -> dict[str, FieldInfo]:
    inner, _ = _bare(annotation)
    if not _is_model(inner):
        return {}
    return {info.alias or name: info for name, info in inner.model_fields.items()}
