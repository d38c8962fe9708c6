"""Validate a tree as a recipe, and report every error with file, line and key."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from heedful.errors import RequestError, nearest, shortened
from heedful.recipes.fields import fields_of, is_model, is_union, member_of, tags_of, unwrap
from heedful.recipes.suggestions import Section, renamed, unknown_key, unknown_kind
from heedful.recipes.trees import OVERRIDES, Mark, Part, Path, Tree, dotted, merge
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


MOST_EXPLAINED = 50
"""Problems of a recipe that are explained, which takes some hundredths of a second each."""

MOST_KEYS = 6
"""Keys of a section that a message lists."""


class SeveralErrors(ValueError):  # noqa: N818 - pydantic requires a ValueError, and it holds several
    """Several errors of one section, reported as one line each."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("\n".join(messages))
        self.messages = tuple(messages)


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
        if (expanded := _with_kinds(error, tree, root)) is not tree:
            return validate(expanded, root)
        raise explain_errors(error, tree, root) from None


def _with_kinds(error: ValidationError, tree: Tree, root: object) -> Tree:
    """Return the tree with a map in place of text that is a section's kind, as in ``optimizer: muon``."""
    for details in error.errors(include_url=False):
        path, section = _locate(root, details["loc"], tree)
        given = tree.find(path)
        if (
            given is not None
            and isinstance(given.value, str)
            and given.value in _named_kinds(section, "kind")
        ):
            expanded = Tree({"kind": given}, given.mark)
            for key in reversed(path):
                expanded = Tree({key: expanded}, given.mark)
            tree = merge(tree, expanded)
    return tree


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
    errors = error.errors(include_url=False)
    found = [p for details in errors[:MOST_EXPLAINED] for p in _problems(details, tree, root)]
    renamed = {problem.renames for problem in found if problem.renames}
    for problem in (problem for problem in found if problem.path not in renamed):
        # The members of a plain union each report the same value: they share one line.
        key = problem.path, "" if problem.expected else problem.text
        problems.setdefault(key, []).append(problem)
    messages = [_marked_message(group, tree) for group in problems.values()]
    messages.sort(key=lambda message: (message[0].source, message[0].line or 0))
    lines = [f"{mark}: {text}" for mark, text in messages]
    if len(errors) > MOST_EXPLAINED:
        lines.append(f"there are more problems than these; correct them first ({len(errors):,} in all)")
    return RequestError("\n".join(lines))


def kinds_of(root: type[BaseModel], section: str) -> set[str]:
    """Return the valid values of ``kind`` in a section of a configuration."""
    return tags_of(root.model_fields[section], "kind")


class _Problem(NamedTuple):
    """A problem at a path: either the expected value, or another text, which may name settings to blame."""

    path: Path
    text: str = ""
    expected: str = ""
    hint: str = ""
    names_settings: bool = False
    renames: Path = ()


def _problems(details: ErrorDetails, tree: Tree, root: object) -> list[_Problem]:
    if details["type"] == "union_tag_not_found" and (unknown := list(_keys_of_no_kind(details, tree, root))):
        return unknown
    problem, cause = _problem(details, tree, root), details.get("ctx", {}).get("error")
    if not isinstance(cause, SeveralErrors):
        return [problem]
    return [problem._replace(text=message) for message in cause.messages]


def _keys_of_no_kind(details: ErrorDetails, tree: Tree, root: object) -> Iterator[_Problem]:
    """Yield a problem for each key of a section without ``kind`` that no kind of it has."""
    path, union = _locate(root, details["loc"], tree)
    known = {name for member in get_args(unwrap(union)[0]) for name in fields_of(member)}
    section = tree.find(path)
    for key in section.value if section is not None and isinstance(section.value, dict) else ():
        if key not in known:
            yield _Problem((*path, key), unknown_key(str(key), Section(path, None), Section((), root), tree))


def _problem(details: ErrorDetails, tree: Tree, root: object) -> _Problem:
    kind, loc = details["type"], details["loc"]
    context: JsonObject = details.get("ctx") or {}
    path, _ = _locate(root, loc, tree)
    if kind == "extra_forbidden":
        section = Section(path[:-1], _locate(root, loc[:-1], tree)[1])
        key = str(loc[-1])
        meant = renamed(key, section, tree)
        text = unknown_key(key, section, Section((), root), tree)
        return _Problem(path, text, renames=(*path[:-1], meant) if meant else ())
    if kind == "missing":
        entry = "entry" if isinstance(loc[-1], int) else "key"
        kinds = _named_kinds(_locate(root, loc, tree)[1], "kind")
        choice = f"; write {loc[-1]}: {{kind: …}}; the kinds are {', '.join(kinds)}" if kinds else ""
        remedy = "; a complete recipe to copy: heedful recipes my-own-…" if len(path) == 1 else ""
        return _Problem(path, f"required {entry} is missing{choice}{remedy}")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        union, given = _locate(root, loc, tree)[1], tree.find(path)
        if given is not None and isinstance(given.value, int | float | list):
            hint = f"; the kinds are {', '.join(_named_kinds(union, 'kind'))}"
            return _Problem(path, "", "a map or the text of a kind", hint)
        kind_path = (*path, context["discriminator"].strip("'()"))
        return _Problem(kind_path, _wrong_kind(context, union, kind_path, tree))
    if kind in _EXPECTED:
        hint = _hint(kind, details["input"], context)
        if _EXPECTED[kind] == "a map" and isinstance(details["input"], str):
            hint = _hint_of_kinds(
                details["input"], _locate(root, loc, tree)[1], str(path[-1]) if path else ""
            )
            if path == ("start",):
                hint = f"; start.run names a run: start: {{run: {details['input']}}}"
        elif _EXPECTED[kind] == "a map":
            keys = list(fields_of(_locate(root, loc, tree)[1]))
            hint = f"; the keys here are {', '.join(keys)}" if 0 < len(keys) <= MOST_KEYS else ""
        expected = _EXPECTED[kind].format(**context)
        return _Problem(path, "", expected.replace(" 1 characters", " 1 character"), hint)
    if kind in ("value_error", "assertion_error"):
        return _Problem(path, str(context["error"]), names_settings=True)
    return _Problem(path, f"{details['msg']}, got {describe(details['input'])}")


_NOT_WRITTEN = {"sentencepiece", "memory"}
"""Kinds that only a program writes: an imported tokenizer, rows that are given in Python."""


def _named_kinds(union: object, key: str) -> list[str]:
    return sorted(tags_of(union, key) - _NOT_WRITTEN)


def _wrong_kind(context: JsonMapping, union: object, path: Path, tree: Tree) -> str:
    quoted = context.get("expected_tags")
    kinds = sorted(
        {*re.findall(r"'([^']*)'", quoted)} - _NOT_WRITTEN if quoted else _named_kinds(union, str(path[-1]))
    )
    if "tag" not in context:
        choice = f"the kinds are {', '.join(kinds)}" if kinds else "a kind is needed"
        return f"required key is missing; {choice}"
    return unknown_kind(str(context["tag"]), kinds, path[:-1], tree)


def _hint(kind: str, value: object, context: JsonMapping) -> str:
    if kind in ("literal_error", "enum") and isinstance(value, str):
        return nearest(value, re.findall(r"'([^']*)'", str(context["expected"])))
    if kind == "string_type" and isinstance(value, bool | int | float):
        return " (for text, put it in quotes)"
    if kind in ("int_from_float", "int_type") and isinstance(value, float) and value.is_integer():
        return f"; write {int(value)}"
    return ""


def _hint_of_kinds(value: str, section: object, key: str) -> str:
    """Return how to write a section for which only text is given; empty if it has no kinds."""
    kinds = _named_kinds(section, "kind")
    if not kinds:
        return ""
    return f"; write {key}: {{kind: {value if value in kinds else '…'}}}; the kinds are {', '.join(kinds)}"


# Keys in messages: ``schedule.warmup``; keys of the section itself have no dot.
_DOTTED, _NAME = re.compile(r"[a-z_]\w*(?:\.\w+)+"), re.compile(r"[a-z_]\w*")
# ``n_heads=7`` and ``norm.n_groups=5``: keys of this section, or of a section in it.
_COMPARED = re.compile(r"([a-z_]\w*(?:\.\w+)*)=")


def _mark_to_blame(problem: _Problem, tree: Tree) -> Mark:
    """Return the mark of the setting to blame.

    If the text names settings that conflict, this is the first of them from the command line, else the first
    in the recipe; if none of them is written, the enclosing section.
    """
    text = shortened(problem.text)  # the patterns take quadratic time on a long word
    paths: list[Path] = [tuple(key.split(".")) for key in _DOTTED.findall(text)]
    if problem.path:
        paths += [(*problem.path, key) for key in _NAME.findall(text)]
    marks = [setting.mark for path in paths if (setting := tree.find(path)) is not None]
    # Their last two parts suffice: ``layer.mixer.kind`` may be that of an entry of ``pattern``.
    compared = [tuple(key.split(".")[-2:]) for key in _COMPARED.findall(text) if key != "kind"]
    section = tree.find(problem.path)
    for path, subtree in section.walk() if section is not None else ():
        ends = (path[-1:], path[-2:], (*path[-1:], "kind") if isinstance(subtree.value, str) else None)
        marks += [subtree.mark for key in compared if key in ends]
    candidates = [mark for mark in marks if mark.source in OVERRIDES] or marks
    return candidates[0] if candidates else tree.mark_of(problem.path)


def _marked_message(group: Sequence[_Problem], tree: Tree) -> tuple[Mark, str]:
    """Return the location of a mistake, and the message about it."""
    first_problem = group[0]
    setting = tree.find(first_problem.path)
    is_whole = setting is not None and isinstance(setting.value, dict) and first_problem.names_settings
    mark = _mark_to_blame(first_problem, tree) if is_whole else tree.mark_of(first_problem.path)
    key = dotted(first_problem.path)
    if setting is not None and mark.source in OVERRIDES and not isinstance(setting.value, dict | list):
        key += f"={show(setting.value)}"
    location = f"{key}: " if key else ""
    if not first_problem.expected:
        return mark, location + first_problem.text
    expected = " or ".join(dict.fromkeys(problem.expected for problem in group))
    actual = "nothing" if setting is None else describe(setting.data)
    if setting is not None and expected.endswith(" entries"):
        actual = str(len(setting.value))
    hint = next((problem.hint for problem in group if problem.hint), "")
    return mark, f"{location}expected {expected}, got {actual}{hint}"


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
    bare, key = unwrap(annotation)
    if is_model(bare):
        return fields_of(bare).get(str(part)), True
    if is_union(bare):
        return member_of(bare, part, key), False
    container = get_origin(bare)
    entries = [argument for argument in get_args(bare) if argument is not Ellipsis]
    if not isinstance(container, type) or not entries:
        return None, tree.find((*path, part)) is not None
    if part == "[key]":
        return entries[0], False
    # An entry of list[X], dict[K, X], tuple[X, ...] or tuple[X, Y].
    is_tuple = issubclass(container, tuple)
    return entries[part if is_tuple and isinstance(part, int) and part < len(entries) else -1], True
