"""From a file to a run in one line: ``heedful train RECIPE --data FILE``, and the verbs on the same file."""

import json
import re
import shlex

import pytest
from typer.testing import CliRunner

from heedful.cli.main import app
from heedful.errors import DataError, RequestError
from heedful.recipes.resolve import shipped_recipes
from heedful.runs.reading import read_recipe
from heedful.tasks.registry import task_for

TINY = [
    "tokenizer.subwords=word",
    "model.d_model=8",
    "model.n_layers=1",
    "model.layer.mixer.n_heads=2",
    "model.layer.channels.d_ff=8",
    "training.max_updates=2",
    "training.tokens_per_update=64",
    "training.validate_every=1",
    "training.save_every=2",
    "training.processes=1",
]
LABELS = ["billing", "Größe", "login, again"]


def heedful(*arguments, status=0):
    done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=status == 0)
    assert done.exit_code == status, (done.stderr, done.exception)
    return done


def csv(n):
    rows = (f'{i},"Text ""{i}"" of\n{LABELS[i % 3]}","{LABELS[i % 3]}"' for i in range(n))
    return "\n".join(["id,body,queue", *rows, ""]) + "\n"


@pytest.mark.slow
def test_a_table_is_trained_evaluated_and_predicted_by_the_names_given_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tickets.csv").write_text(csv(60), encoding="utf-8")
    refused = CliRunner().invoke(app, ["train", "tickets.csv"])
    assert isinstance(refused.exception, RequestError)
    # The command in the message, with the names of this file, works.
    (command,) = re.findall(r"heedful (train .* label=NAME)", str(refused.exception))
    words = command.replace("text=NAME", "text=body").replace("label=NAME", "label=queue")
    heedful(*shlex.split(words), *TINY, "--out", "run", "--device", "cpu")
    scores = json.loads(heedful("evaluate", "run", "tickets.csv", "--json", "--device", "cpu").stdout)
    assert scores["splits"][0]["scores"][0]["counts"] != {}
    heedful("predict", "run", "tickets.csv", "--out", "out.jsonl", "--device", "cpu")
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert [record["input"]["id"] for record in records] == [str(number) for number in range(60)]
    assert {record["input"]["queue"] for record in records} == {*LABELS}
    assert heedful("embed", "run", "--data", "tickets.csv", "--device", "cpu").stdout.count("\n") == 60


@pytest.mark.parametrize(
    "template",
    sorted(name for name in shipped_recipes() if name.startswith("my-own-") and name != "my-own-text"),
)
def test_every_template_says_how_to_name_its_columns_and_that_works(template, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["a,b,c", *(f"{row}.png,{row}.5,{row}.png" for row in range(30))]
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    command = ["train", template, "--data", "table.csv"]
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, RequestError | DataError)
    columns = re.findall(r"--column (\w+)=NAME", str(refused.exception))
    assert {*columns} <= {*task_for(read_recipe(template)[0]).columns.required}
    assert len(columns) >= 2
    options = [f"--column={column}={field}" for column, field in zip(columns, "abc", strict=False)]
    done = CliRunner().invoke(app, [*command, *options, "--print"])
    assert done.exit_code == 0, done.exception
    for column, field in zip(columns, "abc", strict=False):
        assert f"{column}: {field}" in done.stdout


def test_a_problem_of_the_data_names_their_key_as_recipes_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tags.conll").write_text("a O\n\nb O\n", encoding="utf-8")
    refused = CliRunner().invoke(
        app, ["train", "my-own-tags", "--data", "tags.conll", "--column", "tags=ner"]
    )
    assert str(refused.exception).startswith("data.train: tags.conll: tags: expected the number of a field")


def test_columns_without_data_and_files_without_an_option_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tickets.csv").write_text(csv(3), encoding="utf-8")
    for arguments, message in (
        (
            ["my-own-labels", "--column", "text=body"],
            "names the columns of a file; add --data FILE",
        ),
        (["my-own-labels", "tickets.csv"], "to train on it, write --data tickets.csv"),
        (["my-own-labels", "--data", "tickets.csv"], "--column label=NAME --column text=NAME"),
        (["my-own-labels", "--data", "tickts.csv"], "did you mean 'tickets.csv'"),
        (
            ["my-own-files", "--data", "tickets.csv", "--data", "tickets.csv", "--data", "x"],
            "x: no such file",
        ),
    ):
        with pytest.raises(RequestError, match=re.escape(message)):
            CliRunner().invoke(app, ["train", *arguments], catch_exceptions=False)


PAIR = {"tokenizer": {"subwords": {"kind": "word"}}, "task": {"kind": "translation"}}
PAIR["model"] = {"kind": "transformer", "d_model": 6, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}}}


def test_one_of_two_aligned_files_asks_for_the_other_and_that_works(make_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.en", "a b.en"):
        (tmp_path / name).write_text("one, two\nthree\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("eins, zwei\ndrei\n", encoding="utf-8")
    (tmp_path / "table.txt").write_text("en\tde\none\teins\n", encoding="utf-8")
    rows = [{"source": "one, two", "target": "eins, zwei"}, {"source": "three", "target": "drei"}]
    run = make_run(tmp_path / "run", PAIR, rows)
    for command, further in (
        (["train", "my-own-files"], ["--print"]),
        (["evaluate", str(run)], ["--device", "cpu"]),
    ):
        for name in ("a.en", "a b.en"):
            message = str(CliRunner().invoke(app, [*command, "--data", name]).exception)
            assert message.startswith(
                f"{name}: expected 2 line-aligned files (source, target), got one file;"
            )
            options = re.search(r"give all in this order: (.* --data) FILE", message)[1]
            heedful(*command, *shlex.split(options), "a.de", *further)
        message = str(CliRunner().invoke(app, [*command, "--data", "table.txt"]).exception)
        assert message.startswith("table.txt:1: has the columns en, de")
        assert "aligned" not in message


@pytest.mark.parametrize(
    ("line", "quotes", "text", "label"),
    [
        ('a "b" c\t"x"', False, 'a "b" c', '"x"'),
        ('a\t"x ""y"""', True, "a", 'x "y"'),
        ('"a\tb"\tx', True, "a\tb", "x"),
        ('"a\nb"\tx', True, "a\nb", "x"),
    ],
)
def test_a_table_with_tabs_is_trained_on_with_quotes_if_it_has_them(
    line, quotes, text, label, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.tsv").write_text(f"body\tqueue\n{line}\nb\ty\n", encoding="utf-8")
    command = ["train", "my-own-labels", "--data", "t.tsv", "--column=text=body", "--column=label=queue"]
    (tmp_path / "own.yaml").write_text(heedful(*command, "--print").stdout, encoding="utf-8")
    source = read_recipe(str(tmp_path / "own.yaml"))[0].data.train
    assert source.quotes is quotes
    assert [row.row for row in source.open(tmp_path)] == [
        {"text": text, "label": label},
        {"text": "b", "label": "y"},
    ]


TEMPLATES = sorted(name for name in shipped_recipes() if name.startswith("my-own-"))


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_whose_files_are_missing_says_how_to_give_others(template, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["train", template])
    assert isinstance(refused.exception, DataError)
    assert str(refused.exception).endswith("; to train on a file or folder of yours, add --data FILE")


@pytest.mark.parametrize("template", sorted({*TEMPLATES} - {"my-own-text"}))
def test_names_of_columns_without_keys_are_refused_and_the_shown_form_works(template, tmp_path, monkeypatch):
    """Otherwise their order decides which is the text and which is the label."""
    monkeypatch.chdir(tmp_path)
    rows = ["a,b,c", *(f"{row}.png,{row}.5,{row}.png" for row in range(30))]
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    refused = CliRunner().invoke(app, ["train", template, "--data", "table.csv", "--column", "a"])
    assert isinstance(refused.exception, RequestError)
    (shown,) = re.findall(r"^--column a: expected KEY=NAME, as in (\w+)=a; ", str(refused.exception))
    required = task_for(read_recipe(template)[0]).columns.required
    assert shown in required
    others = [key for key in required if key != shown]
    options = [f"--column={shown}=a", *(f"--column={k}={f}" for k, f in zip(others, "bc", strict=False))]
    done = CliRunner().invoke(app, ["train", template, "--data", "table.csv", *options, "--print"])
    assert done.exit_code == 0, done.exception
