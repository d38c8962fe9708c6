"""The pages of settings are what the classes say: every key of every one of them, with its meaning."""

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveInt
from settings_pages import (
    SECTIONS,
    SHARED,
    Table,
    anchor,
    configs,
    discriminator,
    meanings,
    pages,
    read_examples,
    rows,
    tables,
)

from heedful.config import Config
from heedful.runs.reading import read_recipe
from heedful.tasks.registry import TASKS

FOLDER = Path(__file__).parents[3] / "docs" / "reference" / "settings"
TASK_PAGES = {f"{name}.md" for name in TASKS}


@pytest.fixture(scope="module")
def made():
    """The text of each page, by file name."""
    return pages(read_examples(FOLDER))


def test_the_pages_are_what_the_classes_say(made):
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    assert found == made, (
        "docs/reference/settings is not what the classes say; regenerate it:\n    make pages"
    )


def key_tables(text):
    """The keys of every table of a text, in order, without those of sections and kinds."""
    found, inside = [], False
    for line in text.splitlines():
        if line.startswith("| key | values |"):
            found.append(())
        inside = line.startswith("|") and (inside or line.startswith("| key | values |"))
        if inside and (row := re.match(r"\| `(\w+)` \|", line)):
            found[-1] += (row[1],)
    return found


def keys_of_schemas(task):
    """The keys of every class that pydantic itself finds below a recipe, but for those that name a kind."""
    for schema in task.Recipe.model_json_schema()["$defs"].values():
        keys = list(schema.get("properties", ()))
        chosen = next((key for key in ("kind", "score") if key in keys), None)
        if own := tuple(key for key in keys if key != chosen):
            yield own


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_every_key_of_a_task_is_on_its_page_or_a_shared_one(made, name):
    """Every table that its recipes need, and on its own page no others."""
    shared = [keys for file in made.keys() - TASK_PAGES for keys in key_tables(made[file])]
    wanted, own = Counter(keys_of_schemas(TASKS[name])), key_tables(made[f"{name}.md"])
    assert {*wanted} - {*shared} <= {*own}
    assert {*own} <= {*wanted}
    assert len(wanted) > 40


@pytest.mark.slow
def test_no_table_is_repeated(made):
    """On the shared pages once each; on the page of a task, none that is shared."""
    shared = [table for table in tables() if table.page]
    headings = Counter(
        heading for page in SHARED for heading in re.findall(r"^##+ (.+)$", made[page.file], re.MULTILINE)
    )
    assert all(headings[table.title] == 1 for table in shared)
    for name in TASKS:
        own = re.findall(r"^### (.+)$", made[f"{name}.md"], re.MULTILINE)
        assert not {*own} & {table.title for table in shared}
        assert len({*own}) == len(own)


def test_every_section_of_every_recipe_is_on_the_page_of_its_task(made):
    plain = {"description", "root", "size"}
    assert {key for task in TASKS.values() for key in task.Recipe.model_fields} == plain | {*SECTIONS}
    for name, task in TASKS.items():
        empty = {t.path for t in tables() if name in t.tasks and not t.config.model_fields}
        headings = re.findall(r"^## (.+)$", made[f"{name}.md"], re.MULTILINE)
        fields = task.Recipe.model_fields
        assert headings == ["The sections", *(key for key in SECTIONS if key in fields and key not in empty)]


@pytest.mark.parametrize("name", TASKS)
def test_the_example_of_a_task_is_a_valid_recipe(made, name):
    """Valid for training, where columns that no one reads are errors; it names every section it sets."""
    path = FOLDER / "examples" / f"{name}.yaml"
    recipe, tree = read_recipe(str(path))
    assert recipe.task.kind == name
    assert recipe.description.endswith(".")
    assert {"data", "model", "optimizer", "schedule", "training"} <= tree.data.keys()
    assert path.read_text(encoding="utf-8").rstrip() in made[f"{name}.md"]


def test_every_key_has_a_meaning(made):
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
    assert re.findall(r"^.*\|\s*\|$", "\n".join(made.values()), re.MULTILINE) == []


def test_what_is_said_of_keys_is_said_of_keys_that_are_there():
    strange = [
        f"{table.config.__name__}: {key}"
        for table in tables()
        for key in meanings(table.config).keys() - table.config.model_fields.keys()
    ]
    assert strange == []


def test_headings_differ_and_links_lead_to_them(made):
    anchors = {}
    for file, text in made.items():
        names = [anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
        assert len({*names}) == len(names), file
        anchors[file] = {*names}
    n_links = 0
    for file, text in made.items():
        for target, name in re.findall(r"\]\(([\w-]*\.md)?(?:#([^)]+))?\)", text):
            assert not name or name in anchors[target or file], (file, target, name)
            n_links += 1
    assert n_links > 500


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
    assert (
        Table(Tree, "start", ("tagging", "regression"), is_only=False).title == "start (tagging, regression)"
    )
    assert Table(Tree, "start", ("tagging",), is_only=True).title == "start"
    assert [*configs(dict[str, Tree] | None)] == [Tree]


def test_a_class_of_several_tasks_is_on_a_shared_page_only_if_its_path_is():
    assert Table(Leaf, "model", ("tagging",), is_only=False).page.file == "models.md"
    assert Table(Tree, "model.layer", ("tagging",), is_only=True).page.file == "layers.md"
    assert Table(Tree, "decoding", ("tagging",), is_only=False).page is None
    assert Table(Tree, "objective", ("tagging", "regression"), is_only=False).title == "objective"
    assert Table(Leaf, "decoding", ("tagging",), is_only=False).link == "[`leaf`](decoding.md#decoding-leaf)"
