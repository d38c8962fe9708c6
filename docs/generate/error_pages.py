"""Generate the pages of `docs/troubleshooting`: every message of an error, by subject, with an anchor each.

A page has hand-written explanations of the messages that users meet most, and below them the list of all
messages, which is generated from the source code (`error_messages`) by

    make pages
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from error_messages import Message, Package

MARK = "<!-- Below: made by make pages -->\n"
"""The line of a page at which the generated part begins."""


@dataclass(frozen=True)
class Page:
    """A page of messages.

    Args:
        file: its name.
        modules: pattern of the files whose messages it has.
        errors: pattern of the names of errors; by default all.
    """

    file: str
    modules: str
    errors: str = ".*"


PAGES = (
    Page("lab.md", r"lab/|cli/lab"),
    Page("serving.md", r"serve/|cli/serve"),
    Page("predicting.md", r"nn/", "RequestError"),
    Page("python.md", r"api/|checks|data/memory|nn/|__init__|engine/(native|compiled)|tasks/prediction"),
    Page("importing.md", r"interop/|cli/convert"),
    Page("explaining.md", r"explain/|cli/explain"),
    Page(
        "evaluating.md", r"tasks/metrics/|tasks/evaluation|runs/(evaluate|comparing)|cli/(evaluate|compare)"
    ),
    Page(
        "files.md",
        r"artifacts/(?!environment)|files|records|memory|runs/memory_budget|training/checkpoints|data/store"
        r"|text/(tokenizer|subwords)",
    ),
    Page("recipes.md", r"recipes/|config|plugins|parts|models/|objectives/|model_summary/|cli/recipes"),
    Page("recipes.md", r"runs/(reading|building|required_files)|training/(settings|schedules)"),
    Page("recipes.md", r"(tasks|data|decoding|text|training)/", "ValueError|TypeError|IndexError"),
    Page("data.md", r"runs/prepare"),
    Page("predicting.md", r"runs/(run|arguments)"),
    Page("training.md", r"training/|runs/|cli/(train|demo)|tasks/(pretrained|class_weights)|text/training"),
    Page("data.md", r"data/|tasks/inputs/|text/|limits|identifiers"),
    Page("data.md", r"tasks/", "DataError"),
    Page("predicting.md", r"cli/|decoding/|engine/|tasks/|artifacts/environment"),
)
"""The pages: a message is on the first one that has its module and its error."""

FILES = tuple(dict.fromkeys(page.file for page in PAGES))


def page_of(message: Message) -> str:
    """Return the file of the page that has a message; a module without a page must be added to `PAGES`."""
    return next(
        page.file
        for page in PAGES
        if re.match(page.modules, message.module) and re.fullmatch(page.errors, message.error)
    )


def generated(messages: Iterable[Message]) -> str:
    """Return the list of messages of a page, by their words."""
    places: dict[str, list[Message]] = {}
    for message in messages:
        places.setdefault(message.text, []).append(message)
    parts = ["## All messages\n"]
    for text in sorted(places, key=_order):
        errors = " or ".join(dict.fromkeys(f"`{message.error.strip('_')}`" for message in places[text]))
        modules = ", ".join(dict.fromkeys(f"`{message.module}`" for message in places[text]))
        parts.append(f"#### {_code(text)} {{: #{places[text][0].anchor} }}\n\n{errors} of {modules}\n")
    return "\n".join(parts)


def _order(text: str) -> tuple[str, str]:
    """Return the key to sort by: the words, without the values in front of them."""
    words = re.sub(r"^(?:\W*\{[^}]*\})*\W*", "", text)
    return words.lower(), text


def _code(text: str) -> str:
    """Return text as code in Markdown."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def pages(written: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each page, by its file.

    Args:
        written: the pages as they are, whose hand-written part is kept.
    """
    by_file: dict[str, list[Message]] = {file: [] for file in FILES}
    for message in Package().messages():
        by_file[page_of(message)].append(message)
    return {
        file: written[file].partition(MARK)[0] + MARK + "\n" + generated(messages)
        for file, messages in by_file.items()
    }


def read_pages(folder: Path) -> dict[str, str]:
    """Return the text of each page of a folder, by its file."""
    return {file: (folder / file).read_text(encoding="utf-8") for file in FILES}


def write(folder: Path) -> None:
    """Write the list of messages into each page of a folder."""
    for file, text in pages(read_pages(folder)).items():
        (folder / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).parents[1] / "troubleshooting")
