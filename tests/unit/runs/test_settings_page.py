"""The page of settings is what the classes say: every key of every one of them, once, with its meaning."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveInt

from heedful.config import Config
from heedful.runs.settings_page import (
    SECTIONS,
    Table,
    anchor,
    configs,
    discriminator,
    meanings,
    page,
    rows,
    tables,
)
from heedful.tasks.registry import TASKS

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"


def test_the_page_is_what_the_classes_say():
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "docs/settings.md is not what the classes say; make it anew:\n"
        "    python -m heedful.runs.settings_page > docs/settings.md"
    )


def keys_on_the_page():
    """The keys of every table of the page, in order, without that of the sections."""
    found, inside = [], False
    for line in page().splitlines():
        if line.startswith("| key | values |"):
            found.append([])
        inside = line.startswith("|") and (inside or line.startswith("| key | values |"))
        if inside and (row := re.match(r"\| `(\w+)` \|", line)):
            found[-1].append(row[1])
    return found


def keys_of_schemas():
    """The keys of every class that pydantic itself finds below a recipe, but for those that name a kind."""
    classes = {}
    for task in TASKS.values():
        for name, schema in task.Recipe.model_json_schema()["$defs"].items():
            # Classes of one name in two recipes differ in something, if only in what is said of them.
            title = name.rpartition("__")[2]
            keys = list(schema.get("properties", ()))
            chosen = next((key for key in ("kind", "score") if key in keys), None)
            whole = re.sub(r"#/\$defs/\w+__", "#/$defs/", json.dumps(schema, sort_keys=True))
            classes[title, whole] = [key for key in keys if key != chosen]
    return [keys for keys in classes.values() if keys]


@pytest.mark.slow
def test_every_key_of_every_class_is_on_the_page_once():
    wanted = Counter(map(tuple, keys_of_schemas()))
    assert Counter(map(tuple, keys_on_the_page())) == wanted
    assert wanted.total() > 60


def test_every_section_of_every_recipe_is_on_the_page():
    plain = {"description", "root", "size"}
    assert {key for task in TASKS.values() for key in task.Recipe.model_fields} == plain | {*SECTIONS}
    headings = re.findall(r"^## (.+)$", page(), re.MULTILINE)
    assert headings == ["The sections", *SECTIONS]


def test_every_key_has_a_meaning():
    bare = [
        f"{table.config.__module__}.{table.config.__name__}: {key}"
        for table in tables()
        for key in table.config.model_fields
        if key != discriminator(table.config) and key not in meanings(table.config)
    ]
    bare += [
        f"{task.Recipe.__name__}: {key}"
        for task in TASKS.values()
        for key in task.Recipe.model_fields
        if key not in meanings(task.Recipe)
    ]
    assert bare == []
    assert re.findall(r"^.*\|\s*\|$", page(), re.MULTILINE) == []


def test_what_is_said_of_keys_is_said_of_keys_that_are_there():
    strange = [
        f"{table.config.__name__}: {key}"
        for table in tables()
        for key in meanings(table.config).keys() - table.config.model_fields.keys()
    ]
    assert strange == []


@pytest.mark.slow
def test_headings_differ_and_links_lead_to_them():
    headings = re.findall(r"^#+ (.+)$", page(), re.MULTILINE)
    anchors = [anchor(heading) for heading in headings]
    assert len({*anchors}) == len(anchors)
    assert {*re.findall(r"\]\(#([^)]+)\)", page())} <= {*anchors}


class Leaf(Config):
    """A leaf.

    Args:
        share: of all; between the ends
            of its range.
    """

    kind: Literal["leaf"] = "leaf"
    share: float = Field(default=0.25, ge=0, lt=1)


class Twig(Config):
    """A twig, which may bend.

    Args:
        left, right: where to.
    """

    kind: Literal["twig"] = "twig"
    left: bool = False
    right: str


class Tree(Config):
    """A tree.

    Args:
        n: how many, ``1|2``.
        grows: what.
        names: of them.
        best: one of them.
    """

    n: PositiveInt | None = None
    grows: Annotated[Leaf | Twig, Field(discriminator="kind")] = Leaf()
    names: dict[str, list[str]] = Field(default_factory=dict)
    best: Literal["a", "b c"] = "b c"


class Oak(Tree):
    """A tree of another kind.

    Args:
        n: many.
    """

    n: PositiveInt


LEAF, TWIG = (Table(config, "tree.grows", ("tagging",), is_only=False) for config in (Leaf, Twig))


def test_rows_are_those_made_by_hand():
    assert list(rows(Tree, [LEAF, TWIG])) == [
        ("`n`", "whole number > 0 or `null`", "`null`", r"how many, `1\|2`."),
        ("`grows`", "[`leaf`](#treegrows-leaf) or [`twig`](#treegrows-twig)", "`leaf`", "what."),
        ("`names`", "a map of names: a list: text", "none", "of them."),
        ("`best`", "`a`, `b c`", '`"b c"`', "one of them."),
    ]
    assert list(rows(Leaf, [])) == [
        ("`share`", "number ≥ 0, < 1", "`0.25`", "of all; between the ends of its range.")
    ]
    assert list(rows(Twig, [])) == [
        ("`left`", "`true`, `false`", "`false`", "where to."),
        ("`right`", "text", "–", "where to."),
    ]


def test_a_class_says_what_its_bases_say_unless_it_says_more():
    assert meanings(Oak) == {"n": "many.", "grows": "what.", "names": "of them.", "best": "one of them."}
    assert next(rows(Oak, [LEAF, TWIG])) == ("`n`", "whole number > 0", "–", "many.")


def test_headings_name_the_kind_or_else_the_tasks_where_others_have_another_class():
    assert LEAF.title == "tree.grows: leaf"
    assert Table(Tree, "tree", ("tagging", "regression"), is_only=False).title == "tree (tagging, regression)"
    assert Table(Tree, "tree", ("tagging",), is_only=True).title == "tree"
    assert [*configs(dict[str, Tree] | None)] == [Tree]
