"""The page of the command is what typer parses: the same verbs, arguments and options as its help."""

import re
from pathlib import Path

import pytest
from command_page import page, parameters
from typer.testing import CliRunner

from heedful.cli.main import app

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "command.md"
VERBS = [command.name for command in app.registered_commands]


def section(name):
    """The text of a verb on the page."""
    return page().partition(f"\n## heedful {name}\n")[2].partition("\n## ")[0]


def test_the_page_is_what_the_declarations_say():
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "docs/reference/command.md is not what the command says; regenerate it:\n    make pages"
    )


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_the_options_of_its_help(name):
    done = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    shown = done.stdout.partition("Options:\n")[2].partition("\n\n")[0]
    entries = [" ".join(entry.split()) for entry in re.split(r"\n  (?=-)", f"\n{shown}")]
    rows = dict(
        re.findall(r"^\| `(--[\w-]+).*?` \| (.*?) \|", section(name).replace(r"\|", "/"), re.MULTILINE)
    )
    assert list(rows) == [entry.split()[0] for entry in entries if entry.startswith("--")]
    # The default in the help, in brackets and before the bounds, is the one in its column.
    for entry in entries:
        if found := re.search(r"\[default: (.+)\]$", entry):
            default = rows[entry.split()[0]].strip("`")
            assert re.fullmatch(re.escape(default) + r"((; |\] \[).*)?", found[1]), entry


def test_the_page_has_every_verb_and_every_exit_status():
    assert re.findall(r"^## heedful (\w+)$", page(), re.MULTILINE) == VERBS
    assert re.findall(r"^\| (\d+) \|", page(), re.MULTILINE) == ["0", "1", "2", "130"]


def test_names_of_arguments_and_options_are_as_users_write_them():
    commands = {command.name: command for command in app.registered_commands}
    assert [each.name for each in parameters(commands["train"])][:3] == [
        "RECIPE",
        "[KEY=VALUE]...",
        "--data FILE",
    ]
    names = {each.name: each for each in parameters(commands["evaluate"])}
    assert names["--links target|source|both"].default == "`target`"
    assert names["--first-word N"].default == "`0`"
    assert names["--first-word N"].help.endswith("(≥ 0, ≤ 1)")
    assert {each.name for each in parameters(commands["export"]) if "Required" in each.help} == {
        "--to FORMAT"
    }
