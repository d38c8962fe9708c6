"""``--alignments`` and ``predict --alignment``: a run whose own links are the gold, and wrong requests."""

import gzip
import json
import re
import shutil

import pytest
from jsonschema import Draft202012Validator

FIRST = "--first-word"


def scores(done):
    (split,) = done.json()["splits"]
    return {score["name"]: score for score in split["scores"]}


@pytest.fixture
def files(transformer, tmp_path):
    for side in ("src", "tgt"):
        (tmp_path / side).write_bytes((transformer.parent / f"test.{side}").read_bytes())
    return tmp_path


@pytest.fixture
def run(transformer, tmp_path_factory):
    """A copy: the head that is chosen is kept in the run's folder, and other tests use that run."""
    return shutil.copytree(transformer, tmp_path_factory.mktemp("copy") / "run")


@pytest.fixture
def gold(heedful, run, files):
    """The links of head 2, as the command writes them."""
    (files / "none").write_text("\n" * 16 + "0-0\n")
    options = ("--data", "src", "tgt", "--alignments", "none", "--head", "1.2", "--output", "gold")
    done = heedful("evaluate", run, *options, cwd=files)
    assert done.status == 0, done.err
    assert (files / "gold").read_text().count("\n") == 17
    return files / "gold"


def test_the_head_whose_links_are_the_gold_is_found(heedful, run, files, gold, evaluation_schema):
    options = ("--data", "src", "tgt", "--alignments", "gold", "--dev", "9", "--json")
    done = heedful("evaluate", run, *options, cwd=files)
    assert done.status == 0, done.err
    evaluation_schema.validate(done.json())
    score = scores(done)["alignment error rate"]
    assert score["value"] == 0
    assert (score["details"]["layer"], score["details"]["head"]) == (0, 1)
    assert score["counts"]["sentences"] == 17 - 9
    assert score["signature"] == "possible:no|links:target|step:output|head:first-9"
    rows = [(row["step"], row["head"]) for row in score["details"]["table"]]
    assert rows == [(step, head) for step in ("output", "input") for head in (None, 0, 1)]
    assert [row["development"] for row in score["details"]["table"]][2] == 0
    assert json.loads((run / "alignment.json").read_text())["pairs"] == 9
    shown = heedful("explain", run, (files / "src").read_text().splitlines()[0], "--json", cwd=files)
    assert shown.json()["best"]["head"] == 1


def test_people_get_a_table_with_the_chosen_head(heedful, run, files, gold):
    with gzip.open(files / "gold.gz", "wb") as file:
        words = [line.split() for line in gold.read_text().splitlines()]
        pairs = [[[int(i) + 1 for i in link.split("-")] for link in line] for line in words]
        file.write("".join(" ".join(f"{i}-{j}" for i, j in line) + "\n" for line in pairs).encode())
    options = ("--split", "own", "--alignments", "gold.gz", FIRST, "1", "--limit", "17")
    done = heedful("evaluate", run, *options, cwd=files)
    assert done.status == 0, done.err
    table = done.out.splitlines()
    assert table[0].split() == ["layer", "head", "step", "AER", "precision", "recall"]
    assert table[3].split() == ["1", "2", "output", "0.0000", "1.0000", "1.0000", "*"]
    assert "* marks the reported head: layer 1, head 2" in table
    assert any(line.split()[:4] == ["alignment", "error", "rate", "0.0000"] for line in table)


def test_words_can_be_looked_for_where_they_are_read(heedful, run, files, gold):
    options = ("--data", "src", "tgt", "--alignments", "gold", "--step", "input", "--json")
    score = scores(heedful("evaluate", run, *options, cwd=files))["alignment error rate"]
    assert {row["step"] for row in score["details"]["table"]} == {"input"}
    assert score["value"] > 0
    explained = heedful("explain", run, (files / "src").read_text().splitlines()[0], cwd=files)
    assert "at the input step (best known alignment)" in explained.out
    named = heedful("evaluate", run, *options, "--head", "1.2", "--output", "links", cwd=files)
    assert scores(named)["alignment error rate"]["details"]["step"] == "input"
    assert (files / "links").read_text() != gold.read_text()


def test_links_can_be_made_from_the_other_side(heedful, run, files, gold):
    found = {}
    for by in ("target", "source", "both"):
        options = ("--data", "src", "tgt", "--alignments", "gold", "--head", "1.2", "--links", by)
        done = heedful("evaluate", run, *options, "--output", by, "--json", cwd=files)
        assert f"links:{by}" in scores(done)["alignment error rate"]["signature"]
        found[by] = [set(line.split()) for line in (files / by).read_text().splitlines()]
    for target, source, both in zip(*found.values(), strict=True):
        assert both == target & source


# Predictions


def test_the_head_is_logged_with_how_it_is_known(heedful, run, files):
    by_occlusion = heedful("predict", run, "src", "--alignment", cwd=files)
    assert by_occlusion.status == 0, by_occlusion.err
    assert re.search(
        r"heedful: alignment by layer 1, (head [12]|mean of heads)(, at the input step)? "
        r"\(agrees best with occlusion on \d+ validation rows: \d+%\)",
        by_occlusion.err,
    )
    (files / "gold").write_text("0-0\n" * 17)
    evaluated = heedful("evaluate", run, "--data", "src", "tgt", "--alignments", "gold", cwd=files)
    assert evaluated.status == 0, evaluated.err
    known = heedful("predict", run, "src", "--alignment", cwd=files)
    assert "(lowest error rate on 17 pairs with gold links)" in known.err


DATA = ["--data", "src", "tgt"]
WRONG = [
    (["--dev", "3"], "--dev requires --alignments GOLD"),
    (["--head", "1.1"], "--head requires --alignments GOLD"),
    (["--links", "both"], "--links requires --alignments GOLD"),
    (["--step", "input"], "--step requires --alignments GOLD"),
    ([FIRST, "1"], "--first-word requires --alignments GOLD"),
    ([*DATA, "--alignments", "none.gold"], "none.gold: no such file"),
    ([*DATA, "--alignments", "src"], "src:1: "),
    ([*DATA, "--alignments", "short"], "short: expected 17 lines, one per sentence pair, got 2"),
    ([*DATA, "--alignments", "far"], "far, pair 1: link 99-0 is outside"),
    (
        [*DATA, "--alignments", "one", "--dev", "17"],
        "--dev must be less than the number of sentence pairs (17), got 17",
    ),
    ([*DATA, "--alignments", "one", "--head", "2.1"], "--head: layer must be at most 1"),
    ([*DATA, "--alignments", "one", "--head", "1.3"], "--head: head must be at most 2, got 3"),
    ([*DATA, "--alignments", "one", "--head", "x"], "--head must be LAYER.HEAD"),
    ([*DATA, "--alignments", "one", "--head", "1", "--dev", "2"], "remove one of them"),
    ([*DATA, "--alignments", "one", "--beam", "2"], "--beam is not supported with --alignments"),
    ([*DATA, "--alignments", "one", "--stride", "2"], "--stride is not supported with --alignments"),
    ([*DATA, "--alignments", "one", "--evaluation", "language=zh"], "--evaluation is not supported"),
    ([*DATA, "--alignments", "one", "--precision", "bf16"], "--precision is not supported with --alignments"),
    ([*DATA, "--alignments", "one", "--faithfulness"], "--faithfulness is not supported with --alignments"),
    ([*DATA, "--faithfulness", "--beam", "2"], "--beam is not supported with --faithfulness"),
    ([*DATA, "--faithfulness", "--stride", "2"], "--stride is not supported with --faithfulness"),
    ([*DATA, "--faithfulness", "--dev", "3"], "--dev requires --alignments GOLD"),
    ([*DATA, "--alignments", "one", FIRST, "2"], FIRST),
    ([*DATA, "--alignments", "one", "--links", "all"], "--links"),
    ([*DATA, "--alignments", "one", "--step", "both"], "--step"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=lambda x: " ".join(x)[:60])
def test_a_request_that_cannot_be_met_is_named(heedful, run, files, options, message):
    (files / "short").write_text("0-0\n0-0\n")
    (files / "far").write_text("99-0\n" + "\n" * 16)
    (files / "one").write_text("\n" * 16 + "0-0\n")
    before = sorted(files.iterdir())
    done = heedful("evaluate", run, *options, "--output", "out", cwd=files)
    assert done.status == 2, done.err
    assert message in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    assert sorted(files.iterdir()) == before


def test_recurrent_attention_is_one_head(heedful, recurrent, files):
    (files / "a").write_text("a\n")
    (files / "b").write_text("x\n")
    (files / "g").write_text("0-0\n")
    done = heedful("evaluate", recurrent, "--data", "a", "b", "--alignments", "g", "--json", cwd=files)
    assert done.status == 0, done.err
    assert [row["head"] for row in scores(done)["alignment error rate"]["details"]["table"]] == [0, 0]


@pytest.fixture(scope="module")
def evaluation_schema():
    import json
    from pathlib import Path

    path = Path(__file__).parents[2] / "docs" / "schemas" / "evaluation.schema.json"
    return Draft202012Validator(json.loads(path.read_text("utf-8")))
