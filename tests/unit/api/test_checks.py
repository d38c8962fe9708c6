"""Wrong arguments of the functions: each is refused at once, with the remedy."""

import pandas
import pytest
import torch

import heedful
from heedful.errors import RequestError, nearest

LABELS = {
    "task": {"kind": "classification"},
    "tokenizer": {"subwords": {"kind": "word"}},
    "model": {"kind": "encoder", "d_model": 6, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}}},
}
ROWS = [{"text": "a b", "label": "x"}, {"text": "b c", "label": "y"}]


@pytest.mark.parametrize(("rows", "kind"), [(pandas.DataFrame(ROWS), "a DataFrame"), (ROWS, "a list")])
def test_rows_in_place_of_a_split_are_refused(rows, kind, make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    with pytest.raises(RequestError, match=f"split: expected a name, got {kind}; give rows as data="):
        run.evaluate(rows)


def test_columns_are_a_dict(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    message = "columns: expected a dict of the task's names to names in the rows, got a list"
    with pytest.raises(RequestError, match=message):
        run.evaluate(data=ROWS, columns=["text"])
    for verb in (heedful.train, heedful.prepare):
        with pytest.raises(RequestError, match=message):
            verb(LABELS, tmp_path / "new", data={"train": ROWS}, columns=["text", "label"])


def test_overrides_are_a_dict(make_run, tmp_path):
    folder = make_run(tmp_path / "run", LABELS, ROWS)
    for call in (
        lambda: heedful.train("my-own-labels", tmp_path / "new", overrides=["model.n_layers=2"]),
        lambda: heedful.prepare("my-own-labels", tmp_path / "new", overrides=["model.n_layers=2"]),
        lambda: heedful.resume(folder, overrides=["model.n_layers=2"]),
    ):
        with pytest.raises(RequestError, match=r"overrides: expected a dict of settings, got a list; write"):
            call()


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (print, r"expected a list of functions, got a builtin_function_or_method; write callbacks=\[f\]"),
        ([lambda: None], r"callbacks\[0\]: expected a function of one argument, the event; it takes \(\)"),
        ([print, lambda a, b: None], r"callbacks\[1\]: expected a function of one argument"),
        (["print"], r"callbacks\[0\]: expected a function, got a str"),
        (None, "callbacks: expected a list of functions, got a NoneType"),
    ],
)
def test_callbacks_are_checked_before_the_data_are_read(callbacks, message, make_run, tmp_path):
    data = {"train": lambda: pytest.fail("the rows are read")}
    with pytest.raises(RequestError, match=message):
        heedful.train("my-own-labels", tmp_path / "new", data=data, callbacks=callbacks)
    with pytest.raises(RequestError, match=message):
        heedful.resume(make_run(tmp_path / "run", LABELS, ROWS), callbacks=callbacks)


def test_plugins_are_a_list(tmp_path):
    for call in (
        lambda: heedful.load(tmp_path, plugins="distance"),
        lambda: heedful.train("x", plugins="distance"),
    ):
        with pytest.raises(RequestError, match=r"plugins: expected a list .*; write plugins=\['distance'\]"):
            call()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("max_updates", r"max_updates: train has no such argument \(did you mean 'training.max_updates'\?\)"),
        ("epochs", "epochs: train has no such argument; use training.max_epochs"),
        (
            "training",
            'training: train has no such argument; settings of the recipe are given as overrides={"',
        ),
        ("zzz", "zzz: train has no such argument; settings of the recipe"),
    ],
)
def test_settings_that_are_no_arguments_are_named(argument, message, tmp_path):
    for recipe in ("my-own-labels", heedful.recipe("my-own-labels")):
        with pytest.raises(RequestError, match=message):
            heedful.train(recipe, tmp_path / "new", **{argument: 3})


def test_the_loss_of_what_is_no_batch_is_refused(tmp_path):
    setup = heedful.prepare(
        "my-own-labels",
        tmp_path / "run",
        data={"train": ROWS * 9, "valid": ROWS},
        overrides={"model": LABELS["model"], "tokenizer": LABELS["tokenizer"]},
        progress=False,
    )
    for other in (pandas.DataFrame(ROWS), torch.zeros(2, 3)):
        with pytest.raises(RequestError, match=r"batch: expected a .*Batch, got .*; setup.batches\(\)"):
            setup.loss(other)
    (batch,) = setup.batches()
    assert setup.loss(batch).isfinite()


def test_an_answer_without_labels_has_no_probabilities():
    with pytest.raises(RequestError, match="label_probabilities: the task predicts no labels"):
        heedful.Prediction("ein Baum").label_probabilities()
    assert heedful.Prediction("", error="cannot be read").label_probabilities() == {}


def test_a_name_in_another_case_is_the_nearest():
    assert nearest("bleu", ["BLEU", "chrF"]) == " (did you mean 'BLEU'?)"
    assert nearest("TER", ["ter", "TERM"]) == " (did you mean 'ter'?)"
