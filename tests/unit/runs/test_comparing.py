"""Runs side by side, from the files that they keep."""

import json

import pytest

from heedful.artifacts.run_folder import write_card
from heedful.errors import RequestError
from heedful.files import stamped
from heedful.runs.comparing import ABSENT, Validation, compare, flattened

STARTED = {
    "version": 1, "event": "started", "update": 0,
    "validated": 0, "max_updates": 70, "world": 1, "damaged": [],
}  # fmt: skip


def updated(update, elapsed):
    numbers = {"loss": 1.0, "terms": {}, "rate": 1e-3, "norm": None, "seconds": 0.5}
    return {
        "version": 1, "event": "updated", "update": update,
        "epoch": 0, "tokens": 7, **numbers, "elapsed": elapsed,
    }  # fmt: skip


def validated(update, elapsed, best, **metrics):
    return {
        "version": 1,
        "event": "validated",
        "update": update,
        "elapsed": elapsed,
        "best": best,
        "metrics": metrics,
    }


def stopped(update, elapsed, reason):
    return {"version": 1, "event": "stopped", "update": update, "elapsed": elapsed, "reason": reason}


RECIPE = """
description: {name}
task: {{kind: classification}}
data: {{valid: {{kind: tsv, paths: {valid}}}}}
model: {{kind: encoder, d_model: {d_model}{more}}}
training: {{metric: accuracy, max_updates: 70, seed: {seed}}}
"""

EVENTS = (
    STARTED,
    updated(10, 5.0),
    validated(30, 20.0, True, loss=1.5, accuracy=0.5),
    validated(60, 41.0, True, loss=1.2, accuracy=0.75),
    validated(70, 50.0, False, loss=None, accuracy=0.7),
    stopped(70, 50.5, "updates"),
)


@pytest.fixture
def make(tmp_path):
    def made(
        name, events=EVENTS, *, d_model=8, more="", valid="v.tsv", vocabulary="ab", unfinished="", seed=1
    ):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        text = RECIPE.format(name=name, d_model=d_model, more=more, valid=valid, seed=seed)
        (folder / "recipe.yaml").write_text(text, encoding="utf-8")
        lines = "".join(json.dumps(event) + "\n" for event in events)
        (folder / "metrics.jsonl").write_text(lines + unfinished, encoding="utf-8")
        (folder / "text.tokenizer.json").write_text(vocabulary, encoding="utf-8")
        return folder

    return made


def test_of_each_run_its_curve_and_its_best_are_told(make):
    first, second = compare([make("a"), make("b", d_model=16)]).runs
    assert [run.name for run in (first, second)] == ["a", "b"]
    assert (first.updates, first.seconds, first.ended) == (70, 50.5, "updates")
    assert first.reached == Validation(60, 41.0, {"loss": 1.2, "accuracy": 0.75})
    assert first.curve[-1].metrics == {"accuracy": 0.7}  # a loss that was no number has no place in a curve


def test_settings_that_differ_are_told_and_no_others(make):
    found = compare([make("a", more=", layer: {mixer: fourier}"), make("b", d_model=16), make("c")])
    assert dict(found.differences) == {
        "model.d_model": [8, 16, 8],
        "model.layer.mixer": ["fourier", ABSENT, ABSENT],
    }
    assert list(found.differences)[-1] == "model.layer.mixer"  # what not all can be told stands last
    assert not found.notes


def test_a_training_under_way_has_no_end_and_its_unfinished_line_is_not_read(make):
    resumed = (*EVENTS, {**STARTED, "update": 70}, updated(80, 58.0))
    found = compare([make("a", resumed, unfinished='{"version": 1, "ev'), make("b", (STARTED,))])
    assert (found.runs[0].updates, found.runs[0].seconds, found.runs[0].ended) == (80, 58.0, None)
    assert (found.runs[1].updates, found.runs[1].reached) == (0, None)


def test_a_run_without_metrics_has_the_facts_of_its_card(make):
    own, bare, imported = (make(name) for name in ("own", "bare", "imported"))
    for path, facts in (
        (own, {"updates": 300, "seconds": 90.5}),
        (bare, {}),
        (imported, {"imported": {"format": "gpt2", "name": "small", "files": {}}}),
    ):
        (path / "metrics.jsonl").unlink()
        write_card(path / "run.json", {"version": 1, "task": "classification", **facts, "files": {}})
    runs = compare([own, bare, imported]).runs
    assert [(run.updates, run.seconds, run.ended) for run in runs] == [
        (300, 90.5, "finished"),
        (0, 0.0, "finished"),
        (0, 0.0, "imported"),
    ]


def test_names_are_as_long_as_tells_them_apart(make):
    found = compare([make("x/one"), make("y/one"), make("y/two")])
    assert [run.name for run in found.runs] == ["x/one", "y/one", "y/two"]


def test_validation_data_of_a_split_are_those_of_the_training_source(make):
    def split(name, shares, paths="a.tsv"):
        folder = make(name)
        data = f"data: {{train: {{kind: tsv, paths: {paths}}}, valid: null, split: {shares}}}\n"
        text = "".join(
            data if line.startswith("data:") else line
            for line in (folder / "recipe.yaml").read_text().splitlines(keepends=True)
        )
        (folder / "recipe.yaml").write_text(text)
        return folder

    one = split("a", "{valid: 0.1}")
    assert compare([one, split("b", "{valid: 0.1, test: 0.2}")]).notes == []
    for other in (split("c", "{valid: 0.2}"), split("d", "{valid: 0.1}", "b.tsv"), make("e")):
        (note,) = compare([one, other]).notes
        assert "validated on different data" in note


def test_equal_rows_are_the_same_validation_data_whatever_their_source(make):
    folders = [make(name, valid=f"x, name: valid-{name}") for name in "abc"]
    for folder, rows in zip(folders, ("1f", "1f", "2e"), strict=True):
        text = (folder / "recipe.yaml").read_text().replace("kind: tsv", "kind: memory")
        (folder / "recipe.yaml").write_text(text)
        empty = {"rows": 0, "kept": 0, "dropped": {}, "truncated": {}, "columns": {}}
        report = {
            "version": 1,
            "train": {**empty, "sha256": "0" * 64},
            "valid": {**empty, "sha256": rows * 32},
        }
        (folder / "data.json").write_text(json.dumps(stamped(report)))
    same = compare(folders[:2])
    assert (same.notes, same.differences) == ([], {})
    (note,) = compare(folders[1:]).notes
    assert "validated on different data" in note


def test_it_is_printed_as_tables_and_notes(make):
    lines = str(compare([make("a"), make("b", valid="w.tsv")])).splitlines()
    assert lines[0].split() == [
        "run",
        "updates",
        "minutes",
        "stopped",
        "by",
        "best",
        "at",
        "loss",
        "accuracy",
    ]
    assert lines[-1] == "note: the runs were validated on different data"


@pytest.mark.parametrize(
    ("other", "said"),
    [({"valid": "w.tsv"}, "validated on different data"), ({"vocabulary": "abc"}, "tokenizers differ")],
)
def test_what_makes_figures_not_comparable_is_said(make, other, said):
    (note,) = compare([make("a"), make("b", **other)]).notes
    assert said in note


def test_the_metric_that_is_drawn_is_asked_for_or_chooses_the_best(make):
    found = compare([make("a"), make("b")])
    assert found.shared_metric() == "accuracy"
    assert found.shared_metric("loss") == "loss"
    with pytest.raises(RequestError, match=r"measured 'los' \(did you mean 'loss'\?\)"):
        found.shared_metric("los")


def test_what_is_no_run_or_there_twice_or_damaged_is_refused(make, tmp_path):
    run = make("a")
    with pytest.raises(RequestError, match="the run is given twice"):
        compare([run, tmp_path / "a" / ".." / "a"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match="empty is not a run"):
        compare([run, tmp_path / "empty"])


def test_a_damaged_line_of_a_log_is_noted(make):
    run, other = make("a"), make("b")
    before = compare([run, other])
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write("no json\n")
    after = compare([run, other])
    assert after.runs == before.runs
    (note,) = set(after.notes) - set(before.notes)
    assert note.startswith(f"{run / 'metrics.jsonl'}:{len(EVENTS) + 1}: damaged: ")


def test_maps_are_flattened_and_lists_are_values():
    tree = {"a": {"b": 1, "c": {"d": [1, {"e": 2}]}}, "f": None, "g": {}}
    assert flattened(tree) == {"a.b": 1, "a.c.d": [1, {"e": 2}], "f": None, "g": {}}


def test_tables_for_a_notebook_hold_results_settings_and_the_curve(make):
    html = compare([make("one"), make("two <b>", EVENTS[:-1], d_model=16)])._repr_html_()
    assert html.count("<table>") == 3
    assert "<td>one</td><td>70</td><td>0.8</td><td>updates</td><td>60</td><td>1.2</td><td>0.75</td>" in html
    assert "<td>two &lt;b&gt;</td><td>70</td><td>0.8</td><td>running</td>" in html
    assert "<td>model.d_model</td><td>8</td><td>16</td>" in html
    assert "<th>accuracy after update</th><th>one</th>" in html
    assert "<td>70</td><td>0.7</td><td>0.7</td>" in html


def test_a_notebook_shows_no_tables_of_what_there_is_not(make):
    html = compare([make("a/one", EVENTS[:1]), make("b/one", EVENTS[:1])])._repr_html_()
    assert html.count("<table>") == 1


def test_one_run_has_its_training_loss_beside_all_metrics_of_validations(make):
    losses = [{**updated(update, 1.0), "loss": loss} for update, loss in ((10, 4.0), (20, 3.0), (40, None))]
    events = (STARTED, *losses[:2], EVENTS[2], losses[2], EVENTS[3])
    found = compare([make("a", events)])
    (run,) = found.runs
    assert run.losses == {"training loss": [(10, 4.0), (20, 3.0)], "validation loss": [(30, 1.5), (60, 1.2)]}
    _, settings, curve = found.tables("accuracy")
    assert settings == []
    assert curve == [
        ["after update", "training loss", "validation loss", "accuracy"],
        ["30", "3.5", "1.5", "0.5"],
        ["60", "–", "1.2", "0.75"],
    ]
    assert "settings" not in str(found)
    html = found._repr_html_()
    assert html.count("<table>") == 2
    assert "loss over update: training loss, validation loss</title>" in html
    assert "<svg" not in compare([make("b"), make("c")])._repr_html_()


def test_a_run_that_has_not_been_validated_has_a_comparison(make):
    found = compare([make("a", (STARTED,))])
    assert str(found).splitlines()[1].split()[:2] == ["a", "0"]
    assert "<svg" not in found._repr_html_()


def test_runs_that_differ_in_the_seed_alone_are_a_group(make):
    def events(accuracy):
        return (STARTED, validated(30, 20.0, True, loss=1.5, accuracy=accuracy))

    scores = {"a-1": (0.5, 8), "a-2": (0.7, 8), "b-1": (0.6, 16), "b-2": (0.6, 16), "c": (0.9, 24)}
    folders = [
        make(name, events(accuracy), d_model=width, seed=int(name[2:] or 1))
        for name, (accuracy, width) in scores.items()
    ]
    found = compare(folders)
    first, second = found.groups
    assert (first.name, first.runs) == ("a", ["a-1", "a-2"])
    assert first.metrics["accuracy"].mean == pytest.approx(0.6)
    assert first.metrics["accuracy"].deviation == pytest.approx(2**0.5 / 10)
    assert str(second.metrics["accuracy"]) == "0.6000 ± 0.0000"
    rows = [line.split() for line in str(found).splitlines()]
    assert ["a", "2", "1.5000", "±", "0.0000", "0.6000", "±", "0.1414"] in rows
    assert "<td>0.6000 ± 0.1414</td>" in found._repr_html_()
    assert [group["runs"] for group in found.to_dict()["groups"]] == [["a-1", "a-2"], ["b-1", "b-2"]]


def test_the_same_seed_twice_and_a_run_that_was_not_validated_are_no_group(make):
    assert compare([make("a"), make("b")]).groups == []
    assert compare([make("c", seed=2), make("d", (STARTED,), seed=3)]).groups == []
