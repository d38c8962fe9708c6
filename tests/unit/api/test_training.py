"""Training from Python: rows in place of files, callbacks that stop, parts of a program, resuming."""

import json
import subprocess
import sys
import threading

import numpy as np
import pandas
import pyarrow
import pytest
import torch
from torch import nn

import heedful
from heedful.api.given import rows_source
from heedful.api.run import load
from heedful.data.memory import HeldRows, MemorySource
from heedful.data.sources import open_source
from heedful.errors import DataError, RequestError
from heedful.runs.evaluate import evaluate
from heedful.training.callbacks import Started, Stopped, Updated, Validated, read_metrics

WORDS = {"sweet": ["sugar", "honey", "cake"], "sour": ["lemon", "vinegar", "lime"]}
TINY = {
    "model": {"d_model": 12, "n_layers": 1, "max_length": 13},
    "model.layer.mixer.n_heads": 3,
    "model.layer.channels.d_ff": 17,
    "tokenizer.subwords": {"kind": "word", "split": "space"},
    "training": {"max_updates": 6, "validate_every": 3, "save_every": 3, "tokens_per_update": 80},
    "training.processes": 1,
}


def rows(n, seed=1, names=("text", "label")):
    draw = np.random.default_rng(seed)
    for _ in range(n):
        label = str(draw.choice(list(WORDS)))
        text = f"{draw.choice(['a', 'the', 'some'])} {draw.choice(WORDS[label])}"
        yield dict(zip(names, (text, label)))


def train(folder, data, **arguments):
    overrides = {**TINY, **arguments.pop("overrides", {})}
    recipe = arguments.pop("recipe", "my-own-labels")
    return heedful.train(recipe, folder, data=data, overrides=overrides, progress=False, **arguments)


def weights(run):
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


def assert_equal(first, second):
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def from_files(tmp_path_factory):
    """A run trained from files, as the command does it."""
    folder = tmp_path_factory.mktemp("files")
    for name, n, seed in (("train", 60, 1), ("valid", 11, 2), ("test", 13, 3)):
        lines = [json.dumps(row) + "\n" for row in rows(n, seed)]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    source = {"kind": "jsonl", "columns": {"text": "text", "label": "label"}}
    settings = heedful.recipe("my-own-labels")
    settings["root"] = str(folder)
    for name in ("train", "valid"):
        settings["data"][name] = {**source, "paths": f"{name}.jsonl"}
    settings["data"]["test"] = {"test": {**source, "paths": "test.jsonl"}}
    return train(folder / "run", None, recipe=settings)


def tables(n, seed):
    import datasets
    import pyarrow

    plain = list(rows(n, seed))
    return {
        "list": plain,
        "generator": iter(plain),
        "function": lambda: rows(n, seed),
        "pandas": pandas.DataFrame(plain),
        "arrow": pyarrow.Table.from_pylist(plain),
        "datasets": datasets.Dataset.from_list(plain),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["list", "generator", "function", "pandas", "arrow", "datasets"])
def test_rows_train_the_same_weights_as_files(kind, from_files, tmp_path):
    run = train(tmp_path / "run", {"train": tables(60, 1)[kind], "valid": tables(11, 2)[kind]})
    assert_equal(weights(run), weights(from_files))
    scores = run.evaluate(data=tables(13, 3)[kind])
    assert scores["accuracy"].value == from_files.evaluate("test")["accuracy"].value


def test_class_labels_of_datasets_become_their_names():
    import datasets

    table = datasets.Dataset.from_list([{"text": "a", "label": 1}, {"text": "b", "label": 0}])
    held = HeldRows(table.cast_column("label", datasets.ClassLabel(names=["no", "yes"])), "train")
    found = [row.row for row in open_source(MemorySource(name=held.name), None)]
    assert found == [{"text": "a", "label": "yes"}, {"text": "b", "label": "no"}]


def test_columns_with_other_names_are_mapped():
    held = HeldRows(list(rows(3, names=("review", "stars"))), "train")
    source = MemorySource(name=held.name, columns={"text": "review", "label": "stars"}, skip=1)
    assert [row.row for row in open_source(source, None)] == list(rows(3))[1:]
    wrong = MemorySource(name=held.name, columns={"text": "reviews"})
    with pytest.raises(DataError, match=r"\]:1: no column 'reviews' \(did you mean 'review'\?\)"):
        list(open_source(wrong, None))


@pytest.mark.slow
def test_columns_that_are_not_renamed_keep_their_names(from_files, tmp_path):
    data = {
        name: [{**row, "note": None} for row in rows(n, seed, names=("review", "label"))]
        for name, n, seed in (("train", 60, 1), ("valid", 11, 2), ("test", 13, 3))
    }
    run = train(tmp_path / "run", data, columns={"text": "review"})
    assert_equal(weights(run), weights(from_files))
    accuracy = from_files.evaluate("test")["accuracy"].value
    assert run.evaluate()["accuracy"].value == accuracy
    assert run.evaluate(data=data["test"])["accuracy"].value == accuracy
    assert (
        run.evaluate(data=rows(13, 3, names=("x", "label")), columns={"text": "x"})["accuracy"].value
        == accuracy
    )


@pytest.mark.parametrize(
    ("trained", "names", "expected"),
    [
        ({}, ("x", "label"), {"text": "x", "label": "label"}),
        ({"text": "review", "label": "stars"}, ("x", "stars"), {"text": "x", "label": "stars"}),
        ({"text": "review", "label": "stars"}, ("x", "label"), {"text": "x", "label": "label"}),
        ({"text": "review", "label": "stars"}, ("x", "rating"), {"text": "x"}),
    ],
)
def test_columns_given_for_an_evaluation_are_completed(trained, names, expected):
    like = MemorySource(name="train-1", columns=trained)
    source, _ = rows_source(list(rows(3, names=names)), like, ("text", "label"), {"text": "x"})
    assert source.columns == expected


@pytest.mark.parametrize("missing", [None, float("nan"), pandas.NA, pandas.NaT, np.datetime64("NaT")])
def test_a_missing_value_is_an_error_that_names_its_row(missing):
    held = HeldRows([{"text": "a"}, {"text": missing}], "train")
    with pytest.raises(DataError, match=r"data\['train'\]:2: field 'text' must be text, got .*; remove such"):
        list(open_source(MemorySource(name=held.name, columns={"text": "text"}), None))


GAPS = {
    "my-own-labels": {"text": ["a b", "c", None, "d e", "b"], "label": ["x", None, "x", "y", "y"]},
    "my-own-numbers": {"text": ["a b", "c", None, "d e", "b"], "label": [1.5, None, 2.5, -3.5, 0.5]},
    "my-own-pairs": {"text": ["a b", "c", None, "d e"], "pair": ["a", None, "b", "c"], "label": [*"xxyy"]},
    "my-own-tags": {"words": ["a b", "c", None, "d e"], "tags": ["X Y", "X", None, "Y Y"]},
    "my-own-files": {"source": ["a b", "c", None, "d e", "b"], "target": ["x", None, "x", "y", "y"]},
}


def missing_cells(table, form):
    if form == "pandas.NA":
        return table.astype({name: "string" for name in table if name != "label"}).convert_dtypes()
    return {"object": table.astype(object), "pyarrow": pyarrow.Table.from_pandas(table)}.get(form, table)


@pytest.mark.parametrize("form", ["NaN", "object", "pandas.NA", "pyarrow"])
@pytest.mark.parametrize("recipe", GAPS)
def test_missing_cells_of_a_table_are_empty_cells_as_in_a_file(recipe, form, tmp_path):
    """A table with labels missing stopped the training that the command begins without these rows."""
    table = pandas.DataFrame(GAPS[recipe])
    table = pandas.concat([table] * 4, ignore_index=True)
    table.to_csv(tmp_path / "train.csv", index=False)
    own = recipe if recipe != "my-own-pairs" else "my-own-labels"
    overrides = {"tokenizer.subwords": {"kind": "word"}, "data.filter.empty": "drop"}
    overrides |= {"task.pairs": True} if recipe == "my-own-pairs" else {}
    columns = {name: name for name in table}
    reports = []
    for name, data in (("file", str(tmp_path / "train.csv")), ("table", missing_cells(table, form))):
        sets, folder = {"train": data, "valid": data}, tmp_path / name
        options = {"columns": columns, "overrides": overrides, "progress": False}
        heedful.prepare(own, folder, data=sets, **options)
        report = json.loads((folder / "data.json").read_text())["train"]
        dropped = {reason: tally["count"] for reason, tally in report["dropped"].items()}
        reports.append((report["rows"], report["kept"], dropped, report.get("classes")))
    assert reports[0] == reports[1]
    assert any("empty" in reason for reason in reports[0][2])


def test_columns_that_the_task_does_not_read_may_have_any_values(tmp_path):
    import datasets

    day, label = pandas.Timestamp("2026-01-02"), ("sweet", "sour")
    given = [{"text": f"a {n}", "label": label[n % 2], "day": (day, pandas.NaT)[n % 2]} for n in range(20)]
    for table in (given, pandas.DataFrame(given), datasets.Dataset.from_pandas(pandas.DataFrame(given))):
        run = train(tmp_path / "run", {"train": table}, overwrite=True)
        assert len(list(run.evaluate(data=table).rows())) == 20
    for missing, message in (
        ({"text": pandas.NA}, "field 'text' must be text, got null; remove such rows"),
        ({"label": day}, "column 'label': expected text, .* got a Timestamp; convert the column to text"),
    ):
        with pytest.raises(DataError, match=message):
            run.evaluate(data=[*given, {**given[0], **missing}])


@pytest.mark.parametrize(
    ("task", "remedy"),
    [
        ("translation", "join them, or give a row for each"),
        ("summarisation", "give further ones in the column 'references'"),
    ],
)
def test_several_texts_in_place_of_one_are_refused(task, remedy, tmp_path):
    overrides = {"task.kind": task, "model.d_model": 16}
    pairs = [{"source": f"a {n}", "target": "b"} for n in range(20)]

    def prepare(target):
        data = {"train": [*pairs, {"source": "a", "target": target}], "valid": pairs}
        out = tmp_path / "run"
        heedful.prepare("my-own-files", out, data=data, overrides=overrides, progress=False, overwrite=True)

    message = rf"data\['train'\]:21: column 'target': expected one text, got a list of 2; {remedy}"
    with pytest.raises(DataError, match=message):
        prepare(["b c", "c b"])
    prepare(["b c"])


def test_numbers_become_texts_lists_stay_and_arrays_become_images():
    from PIL import Image

    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    row = {"a": 3.5, "b": ("x", 2), "c": pixels, "d": Image.fromarray(pixels), "e": np.int64(7)}
    held = HeldRows([row], "train")
    ((found, _),) = open_source(MemorySource(name=held.name), None)
    assert (found["a"], found["b"], found["e"]) == ("3.5", ["x", "2"], "7")
    for image in (found["c"], found["d"]):
        assert np.array_equal(image.pixels(4, 3), pixels.transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"valid": []}, "expected a key 'train', got 'valid'"),
        ({"train": "train.txt"}, r"data.train: train.txt: no such file"),
        ({"train": []}, r"data\['train'\]: no rows"),
        (
            [{"text": "a", "label": "b"}],
            "a dict of data sets by name, got a list of 1; give data={'train'",
        ),
        ({"train": [("a", "b")]}, "row 1: expected a mapping from column names to values, got a tuple"),
        ({"train": 7}, "expected rows"),
    ],
)
def test_data_that_are_no_rows_are_refused(data, message, tmp_path):
    with pytest.raises(RequestError, match=message):
        heedful.train("my-own-labels", tmp_path / "run", data=data)


def test_tables_with_a_doubled_column_are_refused(tmp_path):
    rows = [["a b", "x", "c d"]]
    frame = pandas.DataFrame(rows, columns=["text", "label", "text"])
    table = pyarrow.table([pyarrow.array([value]) for value in rows[0]], names=["text", "label", "text"])
    for data in (frame, table):
        with pytest.raises(
            RequestError, match=r"data\['train'\]: the table has the column 'text' 2 times; rename"
        ):
            heedful.train("my-own-labels", tmp_path / "run", data={"train": data})


def test_a_table_in_place_of_the_sets_is_refused(tmp_path):
    with pytest.raises(RequestError, match=r"got a DataFrame; give data=\{'train': …\}"):
        heedful.train("my-own-labels", tmp_path / "run", data=pandas.DataFrame(list(rows(3))))


def test_columns_the_wrong_way_round_are_refused(tmp_path):
    data = {"train": list(rows(9, names=("review", "label")))}
    with pytest.raises(
        RequestError, match=r"unknown key 'review'; .*; columns maps .*: \{'text': 'review'\}"
    ):
        heedful.train("my-own-labels", tmp_path / "run", data=data, columns={"review": "text"})


def written(path, some, names):
    """Write rows as a table in the format that the name of the file has."""
    import csv

    if path.suffix == ".parquet":
        pandas.DataFrame(some).to_parquet(path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names, delimiter="," if path.suffix == ".csv" else "\t")
            writer.writeheader()
            writer.writerows(some)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_paths_of_tables_train_the_same_weights_as_rows(suffix, from_files, tmp_path):
    names = ("review", "label")
    parts = {"train": (60, 1), "valid": (11, 2), "test": (13, 3)}
    data = {
        name: written(tmp_path / f"{name}{suffix}", list(rows(*size, names=names)), names)
        for name, size in parts.items()
    }
    data["valid"] = rows(*parts["valid"], names=names)  # rows and files together
    run = train(tmp_path / "run", {**data, "test": str(data["test"])}, columns={"text": "review"})
    assert_equal(weights(run), weights(from_files))
    assert run.evaluate()["accuracy"].value == from_files.evaluate("test")["accuracy"].value


def test_a_file_without_the_columns_is_refused_with_the_argument_that_names_them(tmp_path):
    path = written(tmp_path / "rows.csv", list(rows(5, names=("review", "label"))), ("review", "label"))
    message = r"rows.csv:1: has the columns review, label, but .*; to name its columns: --column text=NAME"
    with pytest.raises(DataError, match=message):
        heedful.train("my-own-labels", tmp_path / "run", data={"train": path})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": "text", "label": "topic"}, r"no column 'topic'; it has 'text', 'label'"),
        ({"text": "txt"}, r"no column 'txt' \(did you mean 'text'\?\); it has 'text', 'label'"),
    ],
)
def test_a_misspelt_column_names_those_of_the_rows(columns, message, tmp_path):
    with pytest.raises(RequestError, match=rf"^columns: data\['train'\] has {message}$"):
        train(tmp_path / "run", {"train": list(rows(5))}, columns=columns)


@pytest.mark.slow
def test_a_run_is_replaced_only_if_asked(tmp_path):
    data = {"train": list(rows(60, 1)), "valid": list(rows(11, 2))}
    train(tmp_path / "run", data, overrides={"training.max_updates": 3})
    (tmp_path / "run" / "mine.txt").write_text("kept")
    with pytest.raises(RequestError, match=r"or replace it with --overwrite \(overwrite=True\)$"):
        train(tmp_path / "run", data)
    assert (tmp_path / "run" / "mine.txt").exists()
    run = train(tmp_path / "run", data, overrides={"training.max_updates": 2}, overwrite=True)
    assert run.folder.read_card()["updates"] == 2
    assert not (tmp_path / "run" / "mine.txt").exists()


def test_a_misspelt_validation_set_is_no_test_set(tmp_path):
    data = {"train": list(rows(60, 1)), "vaild": list(rows(11, 2))}
    with pytest.raises(RequestError, match=r"^data: 'vaild' would be a test set; .* is 'valid'$"):
        train(tmp_path / "run", data)


def test_a_folder_that_is_no_run_is_not_emptied(tmp_path):
    (tmp_path / "thesis.txt").write_text("kept")
    with pytest.raises(RequestError, match="is not empty"):
        train(tmp_path, {"train": list(rows(60, 1))}, overwrite=True)
    assert (tmp_path / "thesis.txt").read_text() == "kept"


def test_rows_are_freed_with_what_holds_them(tmp_path):
    held = HeldRows([{"text": "a"}], "train")
    source = MemorySource(name=held.name)
    del held
    with pytest.raises(DataError, match="the rows were given in Python, and runs do not contain rows"):
        source.open(tmp_path)


@pytest.mark.slow
def test_without_validation_rows_a_tenth_of_the_training_rows_is_used(tmp_path):
    distinct = [{"text": f"{number} sugar", "label": "yes" if number % 2 else "no"} for number in range(300)]
    run = train(tmp_path / "run", {"train": distinct})
    report = json.loads(run.folder.data_report.read_text(encoding="utf-8"))
    assert report["train"]["rows"] + report["valid"]["rows"] == 300
    assert 15 <= report["valid"]["rows"] <= 50


@pytest.mark.slow
@pytest.mark.parametrize("name", ["validation", "dev"])
def test_the_validation_set_may_have_the_name_of_other_libraries(name, tmp_path):
    data = {"train": list(rows(60, 1)), name: list(rows(11, 2)), "test": list(rows(7, 3))}
    run = train(tmp_path / "run", data, overrides={"training.max_updates": 3})
    counts = {split: run.evaluate(split)["accuracy"].counts["examples"] for split in ("valid", "test")}
    assert counts == {"valid": 11, "test": 7}


@pytest.mark.slow
def test_a_run_on_rows_is_resumed_with_the_rows(tmp_path):
    data = {"train": list(rows(60, 1)), "valid": list(rows(11, 2))}
    train(tmp_path / "run", data, overrides={"training.max_updates": 3})
    run = heedful.resume(
        tmp_path / "run", overrides={"training": {"max_updates": 6}}, data=data, progress=False
    )
    assert run.folder.read_card()["updates"] == 6
    assert run.evaluate("valid")["accuracy"].counts["examples"] == 11
    del run  # which holds the rows
    with pytest.raises(DataError, match="given in Python"):
        heedful.load(tmp_path / "run").evaluate("valid")
    saved = tmp_path / "run" / "recipe.yaml"
    with pytest.raises(DataError, match=r"give them again: data=\{…\} of heedful\.train or"):
        heedful.train(saved, tmp_path / "again", progress=False)
    assert heedful.train(saved, tmp_path / "again", data=data, progress=False).labels == ["sour", "sweet"]
    with pytest.raises(RequestError, match="no rows 'test' that were given in Python; expected train, valid"):
        heedful.resume(tmp_path / "run", data={"test": data["valid"]})


@pytest.mark.slow
def test_a_run_on_rows_is_not_resumed_with_others(tmp_path):
    data = {"train": list(rows(60, 1)), "valid": list(rows(11, 2))}
    run = train(tmp_path / "run", data, overrides={"training.max_updates": 3})
    for path in (run.folder.cache / "train", run.folder.cache / "valid"):
        for file in sorted(path.rglob("*"), reverse=True):
            file.unlink()
        path.rmdir()
    with pytest.raises(DataError, match="the rows have changed since the run was started"):
        heedful.resume(
            tmp_path / "run",
            overrides={"training.max_updates": 6},
            data={**data, "train": list(rows(60, 5))},
            progress=False,
        )


@pytest.mark.slow
def test_other_rows_are_refused_also_if_the_run_has_the_token_ids(tmp_path):
    data = {"train": list(rows(60, 1)), "valid": list(rows(11, 2))}
    longer = {"overrides": {"training.max_updates": 6}, "progress": False}
    train(tmp_path / "run", data, overrides={"training.max_updates": 3})
    for name, n in (("train", 60), ("valid", 11)):
        for others in (list(rows(n, 5)), data[name][::-1], data[name][1:]):
            with pytest.raises(DataError, match=f"data.{name}: the rows have changed since the run was"):
                heedful.resume(tmp_path / "run", data={**data, name: others}, **longer)
    assert heedful.resume(tmp_path / "run", **longer).folder.read_card()["updates"] == 6
    train(tmp_path / "split", {"train": data["train"]}, overrides={"training.max_updates": 3})
    with pytest.raises(DataError, match=r"data\.train: the rows have changed"):
        heedful.resume(tmp_path / "split", data={"train": list(rows(60, 5))}, **longer)
    run = heedful.resume(tmp_path / "split", data={"train": data["train"]}, **longer)
    assert run.folder.read_card()["updates"] == 6


@pytest.mark.slow
def test_rows_that_change_after_the_training_are_not_scored(tmp_path):
    import pandas

    data = {"train": pandas.DataFrame(list(rows(60, 1))), "valid": list(rows(11, 2))}
    run = train(tmp_path / "run", {**data, "other": list(rows(13, 3))})
    data["train"]["predicted"] = [answer.text for answer in run.predict(data["train"]["text"])]
    scores = {split: run.evaluate(split)["accuracy"].value for split in ("train", "valid")}
    data["valid"][-1] = {**data["valid"][-1], "label": "sour"}
    data["valid"][-2] = {**data["valid"][-2], "label": "sour"}
    data["train"].loc[59, "text"] = "another"
    for split in scores:
        for limit in (None, 3):
            with pytest.raises(DataError, match=f"data.{split}: the rows have changed since the run was"):
                run.evaluate(split, limit=limit)
    assert run.evaluate("other")["accuracy"].counts["examples"] == 13


@pytest.mark.slow
def test_several_processes_train_on_rows_of_one(tmp_path):
    pairs = [{"source": row["text"], "target": row["label"]} for row in rows(80)]
    overrides = {
        "model": {"d_model": 16, "n_layers": 1},
        "tokenizer.subwords": {"kind": "word", "split": "space"},
        "sizes": None,
        "training": {
            "max_updates": 4,
            "validate_every": 2,
            "save_every": 4,
            "tokens_per_update": 60,
            "average": 0,
        },
        "training.processes": 2,
        "validation.decode": 3,
    }
    data = {"train": lambda: iter(pairs), "valid": pairs[:9]}
    run = heedful.train("my-own-files", tmp_path / "run", data=data, overrides=overrides, progress=False)
    events = [
        event for event in read_metrics(run.folder.metrics) if event["event"] in ("started", "validated")
    ]
    assert events[0]["world"] == 2
    assert [event["update"] for event in events[1:]] == [2, 4]
    assert {"loss", "bleu"} <= events[-1]["metrics"].keys()


@pytest.mark.slow
def test_a_class_of_a_script_trains_in_one_process_and_is_needed_to_load(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["__main__:Shifted", 1]
    with pytest.raises(RequestError, match="__main__:Shifted was defined in a notebook or script"):
        heedful.load(tmp_path / "run")


SCRIPT = """
import json
import heedful
import torch
from torch import nn


@heedful.part
class Shifted(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        return x + self.shift


rows = [{"text": f"a {number % 7} b", "label": str(number % 2)} for number in range(60)]
overrides = {"model": {"d_model": 12, "n_layers": 1}, "model.layer.norm": Shifted, "training.max_updates": 2}
overrides |= {"tokenizer.subwords": {"kind": "word"}, "model.layer.mixer.n_heads": 3}
data = {"train": rows, "valid": rows[:9]}
run = heedful.train("my-own-labels", "run", data=data, overrides=overrides, progress=False)
print(json.dumps([run.recipe.model.layer.norm.kind, run.recipe.training.processes]))
"""


# Callbacks --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "n"), [(Updated, 2), (Validated, 3)], ids=["after an update", "after a validation"]
)
def test_a_callback_that_returns_true_stops_the_training(event, n, from_files, tmp_path):
    events = []

    def stop(happened):
        events.append(happened)
        return isinstance(happened, event) and happened.update == n

    data = {"train": list(rows(60, 1)), "valid": list(rows(11, 2))}
    run = train(tmp_path / "run", data, callbacks=[stop])
    assert isinstance(events[0], Started)
    assert events[-1] == Stopped(n, "callback", events[-1].elapsed)
    card = run.folder.read_card()
    assert (card["updates"], card["stopped"]) == (n, "callback")
    lines = [line for line in read_metrics(run.folder.metrics) if line["event"] == "updated"]
    assert [line["update"] for line in lines] == [*range(1, n + 1)]
    resumed = heedful.resume(tmp_path / "run", data=data, progress=False)  # by default it goes on to the end
    assert_equal(weights(resumed), weights(from_files))


@pytest.mark.slow
def test_the_recipe_of_a_run_trains_the_same_weights(from_files, tmp_path):
    run = heedful.train(from_files.recipe, tmp_path / "run", progress=False)
    assert_equal(weights(run), weights(from_files))
    setup = heedful.prepare(from_files.recipe, tmp_path / "own", progress=False)
    assert setup.task.recipe == run.recipe
    settings = heedful.recipe(from_files.recipe, training={"max_updates": 3})
    assert settings["training"]["max_updates"] == 3
    with pytest.raises(RequestError, match="out: a recipe without a name needs the folder of the run"):
        heedful.train(from_files.recipe)
    for other, name in ((from_files, "a Run"), (None, "None"), (5, "an int")):
        with pytest.raises(RequestError, match=f"recipe: expected a name, .*, got {name}; of a run, give"):
            heedful.train(other, tmp_path / "other")


@pytest.mark.slow
def test_a_training_within_a_training_is_refused(tmp_path):
    data = {"train": list(rows(60, 1)), "valid": list(rows(11, 2))}
    refused = []

    def second(name):
        with pytest.raises(RequestError, match="a training is running in another thread of this"):
            train(tmp_path / name, data)
        refused.append(name)

    def start_others(event):
        if isinstance(event, Updated) and event.update == 2:
            second("nested")
            thread = threading.Thread(target=second, args=["thread"])
            thread.start()
            thread.join()

    run = train(tmp_path / "run", data, callbacks=[start_others])
    assert refused == ["nested", "thread"]
    assert not [name for name in refused if (tmp_path / name).exists()]
    assert_equal(weights(run), weights(train(tmp_path / "alone", data)))


def test_a_callback_that_stops_before_the_first_update_is_named(tmp_path):
    message = "run: a callback stopped the training before the first update, so there are no weights"
    with pytest.raises(RequestError, match=message):
        train(tmp_path / "run", {"train": list(rows(60, 1))}, callbacks=[lambda event: True])


@pytest.mark.slow
def test_a_callback_that_returns_false_or_none_does_not_stop(from_files, tmp_path):
    values = iter([None, False, np.False_] * 9)
    data = {"train": list(rows(60, 1)), "valid": list(rows(11, 2))}
    run = train(tmp_path / "run", data, callbacks=[lambda event: next(values)])
    assert_equal(weights(run), weights(from_files))


# Recipes ----------------------------------------------------------------------------------------------------


def test_a_recipe_is_a_dict_with_changes_that_hold_for_any_amount_of_data():
    changes = {"training": {"max_updates": 77}, "tokenizer": {"subwords": {"vocab_size": 99}}}
    settings = heedful.recipe("my-own-files", **changes)
    assert settings["training"]["max_updates"] == 77
    assert all("max_updates" not in entry.get("training", {}) for entry in settings["sizes"])
    assert settings["sizes"][0]["tokenizer"] == {"subwords": {}}
    assert settings["sizes"][0]["training"]["tokens_per_update"] == 2048  # what was not changed is kept
    json.dumps(settings)


@pytest.mark.slow
def test_changes_hold_where_the_recipe_has_sizes(tmp_path):
    training = {"max_updates": 2, "validate_every": 2, "save_every": 2}
    settings = heedful.recipe("my-own-summaries", training=training)
    pairs = [{"source": f"{row['text']} is {row['label']}", "target": row["label"]} for row in rows(40)]
    overrides = {"model.d_model": 16, "tokenizer.subwords": {"kind": "word"}, "training.processes": 1}
    data = {"train": pairs, "valid": pairs[:5]}
    run = heedful.train(settings, tmp_path / "run", data=data, overrides=overrides, progress=False)
    assert run.recipe.training.max_updates == 2
    assert run.recipe.training.tokens_per_update == 1024


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"training.max_updats": 3},
            r"overrides: training.max_updats=3: unknown key \(did you mean 'max_up",
        ),
        ({"training": {"max_updates": "x"}}, "overrides: training.max_updates=x: expected a whole number"),
        (
            {"training.seed": object()},
            "training.seed: a recipe cannot have a value of type object",
        ),
        ({"training..seed": 1}, "expected a key such as training.seed"),
    ],
)
def test_mistakes_in_overrides_are_named(overrides, message, tmp_path):
    data = {"train": list(rows(5)), "valid": list(rows(5))}
    with pytest.raises(RequestError, match=message):
        heedful.train("my-own-labels", tmp_path / "run", data=data, overrides=overrides, progress=False)


def test_settings_without_a_name_need_a_folder():
    with pytest.raises(RequestError, match="out: a recipe without a name needs the folder of the run"):
        heedful.train({"task": {"kind": "classification"}})


def test_columns_without_data_are_refused(tmp_path):
    with pytest.raises(RequestError, match="columns: names the columns of data, which is not given"):
        heedful.train("my-own-labels", tmp_path / "run", columns={"text": "review"})


# Parts of a program -----------------------------------------------------------------------------------------


@heedful.part
class ShiftedNorm(nn.Module):
    """``x + shift``, learned: a norm in form alone."""

    def __init__(self, d_model: int, start: float = 0.5) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.full((d_model,), start))

    def forward(self, x):
        """Add the shift."""
        return x + self.shift


@pytest.mark.slow
def test_a_class_of_the_program_is_a_part_of_the_model(tmp_path):
    data = {"train": list(rows(60, 1)), "valid": list(rows(11, 2))}
    overrides = {"model.layer.norm": {"kind": ShiftedNorm, "start": 0.25}}
    run = train(tmp_path / "run", data, overrides=overrides)
    norms = [module for module in run.model.modules() if isinstance(module, ShiftedNorm)]
    assert norms
    assert all(norm.shift.shape == (12,) for norm in norms)
    assert run.recipe.model.layer.norm.kind == f"{__name__}:ShiftedNorm"
    again = heedful.load(tmp_path / "run")
    assert_equal(weights(again), weights(run))


def test_a_class_inside_a_function_is_refused():
    class Local(nn.Module):
        pass

    with pytest.raises(RequestError, match="expected a class or function that is defined at the top"):
        heedful.part(Local)


@pytest.mark.slow
def test_evaluation_from_python_equals_that_of_the_command(from_files):
    run = load(from_files.folder.path)
    expected = evaluate(run, "test", run.recipe.data.test["test"])
    found = from_files.evaluate()
    assert [score.to_dict() for score in found.scores] == [score.to_dict() for score in expected.scores]
    assert list(found.rows()) == list(expected.rows())
    with pytest.raises(KeyError, match=r"no score 'acuracy' \(did you mean 'accuracy'\?\)"):
        found["acuracy"]
    assert "<td>accuracy</td>" in found._repr_html_()


@pytest.mark.slow
def test_trainings_compute_gradients_in_every_mode(from_files, tmp_path):
    data = {"train": list(rows(60, 1)), "valid": list(rows(11, 2))}
    with torch.inference_mode():
        assert_equal(weights(train(tmp_path / "inference", data)), weights(from_files))
    with torch.no_grad():
        assert_equal(weights(train(tmp_path / "none", data)), weights(from_files))
        setup = heedful.prepare("my-own-labels", tmp_path / "own", data=data, overrides=TINY, progress=False)
    setup.loss(next(setup.batches())).backward()
