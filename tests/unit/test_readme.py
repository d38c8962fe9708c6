"""What the README says is so: its commands exist, its Python runs, its links lead somewhere."""

import re
from pathlib import Path

import pytest
import torch

import heedful
from heedful.recipes.resolve import shipped_recipes
from heedful.runs.reading import read_recipe
from heedful.runs.train import train_run

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
PAGES += ["docs/benchmarks/results.md", "docs/reference/interop.md", "docs/contribute/extending.md"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_on_blocks_runs():
    (block,) = (b for b in blocks("python") if "SelfAttention" in b)
    scope = {"x": torch.randn(17, 64)}
    exec(block, scope)
    assert scope["attention"](scope["x"], scope["Layout"].of([5, 9, 3])).shape == (17, 64)


@pytest.mark.slow
def test_the_number_of_parameters_is_the_summarys():
    with torch.device("meta"):
        model = heedful.build("transformer-base", vocab_size=37000)
    assert f"{heedful.describe(model).parameters:,}" in README


def test_every_verb_in_the_table_exists_and_every_verb_is_in_the_table():
    from heedful.cli.main import app

    verbs = {command.name for command in app.registered_commands}
    assert set(re.findall(r"^\| `heedful (\w+)", README, re.MULTILINE)) == verbs


def test_recipes_that_are_named_are_shipped():
    for name in re.findall(r"heedful recipes ([\w-]+)", README):
        assert name in shipped_recipes()
    assert "shakespeare-char" in shipped_recipes()


def test_the_recipe_trains(tmp_path):
    (text,) = blocks("yaml")
    small = {
        "tokenizer.subwords.vocab_size": 300,
        "training.max_updates": 2,
        "training.tokens_per_update": 600,
    }
    small |= {"model.context": 32, "model.d_model": 16, "model.layer.channels.d_ff": 8}
    (tmp_path / "mine.yaml").write_text(text)
    for name in ("train.txt", "valid.txt"):
        (tmp_path / name).write_text("so long, and thanks for all the fish\n" * 40)
    recipe, _ = read_recipe(str(tmp_path / "mine.yaml"), [f"{key}={value}" for key, value in small.items()])
    assert train_run(recipe, tmp_path / "run", device="cpu").folder.weights.is_file()


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = {(ROOT / page).parent / n for n in re.findall(r"\]\(((?!http)[^)#]+)\)", text)}
    named = set(re.findall(r"`((?:src|tests|docs|bench)/[\w./-]+)`", text))
    named |= {
        f"src/heedful/{n}"
        for n in re.findall(r"`((?:nn|data|tasks|runs|training|decoding)/[\w/]+\.py)", text)
    }
    missing = sorted(str(path) for path in links | {ROOT / n for n in named} if not path.exists())
    assert not missing
