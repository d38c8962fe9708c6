"""What the README says is so: its commands exist, its Python runs, its links lead somewhere."""

import re
from pathlib import Path

import pandas
import pytest
import torch

import heedful
from heedful.recipes.resolve import shipped_recipes

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


def test_every_verb_has_one_row_in_the_table():
    from heedful.cli.main import app

    verbs = {command.name for command in app.registered_commands}
    assert sorted(re.findall(r"^\| `heedful (\w+)", README, re.MULTILINE)) == sorted(verbs)
    rows = [line for line in README.splitlines() if line.startswith("| `heedful ")]
    assert all("`heedful" not in row.removeprefix("| `heedful") for row in rows), "one verb in each row"


def test_recipes_that_are_named_are_shipped():
    names = re.findall(r"heedful recipes ([\w-]+)|`(my-own-\w+)`|heedful train ([\w-]+) ", README)
    assert len(names) > 11
    assert {name for found in names for name in found if name} <= {*shipped_recipes(), "RECIPE"}


@pytest.mark.slow
def test_the_python_on_own_data_runs(tmp_path, monkeypatch):
    (block,) = blocks("py")
    rows = pandas.DataFrame({"text": ["good film", "bad film"] * 40, "label": ["yes", "no"] * 40})
    rows["text"] += [f" {number}" for number in range(80)]
    for name in ("reviews", "test"):
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    small = {"training": {"max_updates": 2}, "tokenizer.subwords.vocab_size": 300, "model.d_model": 16}
    monkeypatch.chdir(tmp_path)
    exec(block.replace("data={", f"overrides={small}, data={{", 1), {})
    assert (tmp_path / "page.html").is_file()


def test_it_is_short():
    assert len(README.splitlines()) <= 150


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
