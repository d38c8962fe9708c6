"""Advice is true: each remedy that a message gives is applied to the very input that caused it.

A remedy is read from the message by its form (`remedies`): a key to use, a value to write, a kind to choose.
The same request must then succeed, or fail with another message about something else.
"""

import random
import re
from collections.abc import Iterator, Sequence
from functools import cache

import pytest

from heedful.data.lines import LocatedRow, Location
from heedful.errors import DataError, RequestError
from heedful.recipes.resolve import shipped_recipes
from heedful.recipes.suggestions import other_kinds, other_toolkits
from heedful.runs.reading import read_recipe
from heedful.tasks.regression import parse_target

TEMPLATES = [name for name in shipped_recipes() if name.startswith("my-own-")]
SECTIONS = ("", "model.", "training.", "data.", "decoding.", "optimizer.")

KEY = r"[a-z_][\w.]*"
PREFIX = re.compile(rf"(?:on the command line: )?(?P<key>{KEY})(?:=(?P<value>[^:]*))?: (?P<text>.*)")


def lines_of(recipe: str, overrides: Sequence[str]) -> list[str]:
    """Return the lines of the message about a recipe with some overrides; none if it is valid."""
    try:
        read_recipe(recipe, overrides)
    except RequestError as error:
        return str(error).splitlines()
    return []


def remedies(line: str, given: str) -> Iterator[list[str]]:
    """Yield the overrides in place of the given one, for each remedy of a message."""
    found = PREFIX.search(line)
    if found is None:
        return
    (wrong_key, _, value), text = given.partition("="), found["text"]
    section = found["key"].rpartition(".")[0]
    if used := re.search(r"unknown key; (?:kind [\w-]+ uses|use) (?!the option)(.*)", text):
        # "a, which needs b.kind=c or d or e.f": c and d are kinds, e.f is a key.
        needs = rf", which needs ({KEY})=([\w-]+(?: or [\w-]+(?![\w.-]))*)"
        for key in re.finditer(rf"(?:^| or )({KEY})(?:{needs})?(?=,| \(|$| or )", used[1]):
            inside = f"{section}." if section and "." not in key[1] else ""
            for kind in (key[3] or "").split(" or "):
                yield [*([f"{key[2]}={kind}"] if kind else []), f"{inside}{key[1]}={value}"]
    if needed := re.search(rf"unknown key; it needs ({KEY})=([\w-]+(?: or [\w-]+)*)", text):
        yield from ([f"{needed[1]}={kind}", given] for kind in needed[2].split(" or "))
    if meant := re.search(rf"unknown key \(did you mean '({KEY})'(?:, which needs ({KEY})=([\w-]+))?", text):
        inside = f"{section}." if section and "." not in meant[1] else ""
        yield [*([f"{meant[2]}={meant[3]}"] if meant[2] else []), f"{inside}{meant[1]}={value}"]
    if kind := re.search(r"unknown kind '[^']*'(?:; use ([\w-]+)| \(did you mean '([\w-]+)')", text):
        yield [f"{wrong_key}={kind[1] or kind[2]}"]
    if written := re.search(r"expected .*, got .*; write (-?\d+)$", text):
        yield [f"{wrong_key}={written[1]}"]
    if "(for text, put it in quotes)" in text:
        yield [f"{wrong_key}='{value}'"]
    if choice := re.search(r"expected .*, got .* \(did you mean '([^']*)'\?\)", text):
        yield [f"{wrong_key}={choice[1]}"]


def about(line: str) -> tuple[str, str]:
    """Return the key and the kind of a problem: that of a message which a remedy must not leave."""
    found = PREFIX.search(line)
    assert found is not None, line
    return found["key"], re.split(r"[;(,]", found["text"])[0].strip()


def false_advice(recipe: str, given: str) -> Iterator[str]:
    """Yield what is wrong with the remedies for one override; nothing if all help."""
    for line in lines_of(recipe, [given]):
        for overrides in remedies(line, given):
            left = lines_of(recipe, overrides)
            if any(
                kind.startswith("unknown key") or (key, kind) == about(line)
                for key, kind in map(about_any, left)
            ):
                yield f"{recipe} {given}: {line} -> {overrides} -> {left}"


def about_any(line: str) -> tuple[str, str]:
    return about(line) if PREFIX.search(line) else ("", line)


# Keys -----------------------------------------------------------------------------------------------------


def cases(amount, n: int, every: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return all cases in the whole sweep, and some otherwise, the same each time."""
    return random.Random(1).sample(every, min(len(every), amount(n, len(every))))


@pytest.mark.slow
def test_names_of_other_toolkits_lead_to_keys_that_the_recipe_may_have(amount):
    names = sorted({setting.name for setting in other_toolkits()})
    every = [(recipe, f"{s}{name}=1") for recipe in TEMPLATES for name in names for s in SECTIONS[:2]]
    chosen = cases(amount, 24, every)
    wrong = [problem for recipe, given in chosen for problem in false_advice(recipe, given)]
    assert wrong == []


@cache
def settings(recipe: str) -> dict[str, object]:
    """Return every setting of a recipe that is not a map, by its key."""

    def walk(path: str, value: object) -> Iterator[tuple[str, object]]:
        if isinstance(value, dict):
            for key, item in value.items():
                yield from walk(f"{path}.{key}" if path else key, item)
        else:
            yield path, value

    found = read_recipe(recipe)[0].model_dump(mode="json")
    return {
        key: value for key, value in walk("", found) if key.startswith(("model", "training", "dec", "opt"))
    }


def misspelt(key: str, draw: random.Random) -> str:
    """Return a key whose last part lacks a letter, has one twice, or has two exchanged."""
    section, _, name = key.rpartition(".")
    place = draw.randrange(1, len(name) - 1)
    changed = draw.choice(
        [
            name[:place] + name[place + 1 :],
            name[:place] + name[place] + name[place:],
            name[:place] + name[place + 1] + name[place] + name[place + 2 :],
        ]
    )
    return f"{section}.{changed}" if section else changed


@pytest.mark.slow
def test_a_misspelt_key_leads_to_the_key(amount):
    draw, wrong, n_right = random.Random(2), [], 0
    every = [
        (recipe, key) for recipe in TEMPLATES for key in settings(recipe) if len(key.rpartition(".")[2]) > 5
    ]
    for recipe, key in cases(amount, 24, every):
        given = f"{misspelt(key, draw)}=1"
        if given != f"{key}=1" and (lines := lines_of(recipe, [given])):
            n_right += any(key.rpartition(".")[2] in line for line in lines)
            wrong += false_advice(recipe, given)
            wrong += [f"{key}: {lines}"] if not any(key.rpartition(".")[2] in line for line in lines) else []
    assert wrong == []
    assert n_right > 12


FOREIGN = [
    "repetition_penalty", "no_repeat_ngram_size", "diversity_penalty", "presence_penalty",
    "frequency_penalty", "typical_p", "eval_accumulation_steps", "evaluation_strategy", "data_seed",
    "optim_args", "criterion", "coverage_attn", "lambda_coverage", "initializer", "scale",
    "shuffle", "valid_batch", "valid_batch_size", "stratify", "test_size", "strategy", "min_length",
    "data_dir", "train_split", "hub_model_id", "past_index", "auto_find_batch_size", "copy_attn",
    "queue_size", "drop_last", "image_dir", "best_of",
]  # fmt: skip
"""Settings of other toolkits without a counterpart."""


@pytest.mark.slow
def test_a_setting_without_counterpart_is_not_taken_for_a_misspelt_key(amount):
    """Each of these got the nearest name, such as ``length_penalty`` for ``repetition_penalty``."""
    recipes = ("my-own-files", "my-own-images", "my-own-text")
    every = [(recipe, f"{section}{name}=1") for recipe in recipes for name in FOREIGN for section in SECTIONS]
    chosen = cases(amount, 30, every)
    guesses = [line for recipe, g in chosen for line in lines_of(recipe, [g]) if "did you mean" in line]
    assert guesses == []


# Values ---------------------------------------------------------------------------------------------------

VALUES = (
    "1",
    "2.0",
    "-1",
    "true",
    "yes",
    "Auto",
    "losss",
    "adam",
    "1e3",
    "0x1",
    "on",
    "hgiher",
    "loss",
    "crossentropy",
)


@pytest.mark.slow
def test_remedies_for_values_give_valid_values(amount):
    every = [
        (recipe, f"{key}={value}") for recipe in TEMPLATES for key in settings(recipe) for value in VALUES
    ]
    chosen = cases(amount, 40, every)
    wrong = [problem for recipe, given in chosen for problem in false_advice(recipe, given)]
    assert wrong == []


@pytest.mark.parametrize(
    ("recipe", "given", "remedy"),
    [
        ("my-own-labels", "training.max_updates=7.0", ["training.max_updates=7"]),
        ("my-own-labels", "training.metric=7", ["training.metric='7'"]),
        ("my-own-labels", "training.direction=hgiher", ["training.direction=higher"]),
        ("my-own-files", "decoding.temperature=1", ["decoding.kind=sample", "decoding.temperature=1"]),
        ("my-own-files", "training.lr=1", ["schedule.peak=1"]),
        ("my-own-labels", "task.kind=ner", ["task.kind=tagging"]),
        ("my-own-images", "decrease_factor=1", ["schedule.kind=plateau", "schedule.factor=1"]),
    ],
)
def test_remedies_are_read_from_messages(recipe, given, remedy):
    """The mechanism sees what it should apply."""
    found = [each for line in lines_of(recipe, [given]) for each in remedies(line, given)]
    assert remedy in found


@pytest.mark.slow
def test_kinds_of_other_toolkits_lead_to_kinds(amount):
    """In a recipe of the task that has the kind."""
    wrong = []
    recipes = ("my-own-labels", "my-own-files", "my-own-text", "my-own-images", "my-own-captions")
    every = [(recipe, ".".join(key)) for recipe in recipes for key in other_kinds()]
    for recipe, key in cases(amount, 24, every):
        section, _, name = key.partition(".")
        given = f"{'data.train' if section == 'data' else section}.kind={name}"
        for line in lines_of(recipe, [given]):
            if f"; use {other_kinds()[section, name][0]}" in line:
                left = lines_of(recipe, next(remedies(line, given)))
                if any("unknown kind" in each for each in left):
                    wrong.append(f"{given}: {line} -> {left}")
    assert wrong == []


# Settings that conflict -----------------------------------------------------------------------------------

CONFLICTS = {
    "both": ["data.valid.kind=folder", "data.valid.path=valid"],
    "neither": ["data.split=null"],
    "the rest": ["data.split.train=0.5"],
    "no sign": ["data.split.valid:0.2"],
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_the_settings_in_a_message_about_several_settings_work(name):
    overrides = CONFLICTS[name]
    (line,) = lines_of("my-own-images", overrides)
    found = re.findall(rf"({KEY}=[\w.]+)", line)
    if name == "the rest":
        assert line.endswith("remove it")
        found = ["data.split.train=null"]
    assert found
    for remedy in found:
        kept = [] if name == "no sign" or remedy == "data.valid=null" else overrides
        assert lines_of("my-own-images", [*kept, remedy]) == []


# Rows -----------------------------------------------------------------------------------------------------

NUMBERS = {
    "1,001": {1.001, 1001.0},
    "1,5": {1.5},
    "-3,25": {-3.25},
    "1,234,567": {1_234_567.0},
    "1.234.567": {1_234_567.0},
    "1.234,56": {1234.56},
    "1,234.56": {1234.56},
    "1 234": {1234.0},
    "1\u00a0234,5": {1234.5},
    "1'000": {1000.0},
    "\u22125": {-5.0},
    "\u0663": {3.0},
    "1_000": {1000.0},
    "1,234,56": set(),
    "12 %": set(),
    "1.2.3": set(),
    "": set(),
}


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_in_another_format_is_written_as_it_may_be_meant(text):
    def target(cell: str) -> float:
        return parse_target(LocatedRow({"label": cell}, Location("t.tsv", 1)))

    with pytest.raises(DataError) as raised:
        target(text)
    _, _, advice = str(raised.value).partition("write ")
    assert {target(found) for found in re.findall(r"'([^']*)'", advice)} == NUMBERS[text]
