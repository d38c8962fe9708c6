"""Wrong arguments of the functions: each is refused at once, with the remedy."""

import numpy as np
import pandas
import pytest
import torch
from torch import nn

import heedful
from heedful.decoding.config import BeamConfig, GreedyConfig
from heedful.errors import RequestError, nearest
from heedful.runs.arguments import decoding_of

LABELS = {
    "task": {"kind": "classification"},
    "tokenizer": {"subwords": {"kind": "word"}},
    "model": {"kind": "encoder", "d_model": 6, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}}},
}
ROWS = [{"text": "a b", "label": "x"}, {"text": "b c", "label": "y"}]


@pytest.mark.parametrize(("rows", "kind"), [(pandas.DataFrame(ROWS), "a DataFrame"), (ROWS, "a list of 2")])
def test_rows_in_place_of_a_split_are_refused(rows, kind, make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    with pytest.raises(RequestError, match=f"split: expected a name, got {kind}; give rows as data="):
        run.evaluate(rows)


@pytest.mark.parametrize("data", ["x.csv", ["x.csv"], None])
def test_the_section_of_data_is_a_dict(data, tmp_path):
    for verb in (heedful.train, heedful.prepare):
        with pytest.raises(RequestError, match=r"recipe: data: expected a dict of settings, got .*; remove"):
            verb({**LABELS, "data": data}, tmp_path / "new", data={"train": ROWS})


def test_columns_are_a_dict(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    message = "columns: expected a dict of the task's names to names in the rows, got a list"
    with pytest.raises(RequestError, match=message):
        run.evaluate(data=ROWS, columns=["text"])
    for verb in (heedful.train, heedful.prepare):
        with pytest.raises(RequestError, match=message):
            verb(LABELS, tmp_path / "new", data={"train": ROWS}, columns=["text", "label"])


def test_columns_of_a_table_without_a_header_are_numbers(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    table = pandas.DataFrame([[*row.values()] for row in ROWS])
    expected = run.evaluate(data=ROWS)["accuracy"].value
    assert run.evaluate(data=table, columns={"text": 0, "label": 1})["accuracy"].value == expected
    with pytest.raises(RequestError, match="no column '2'"):
        run.evaluate(data=table, columns={"text": 0, "label": 2})
    for columns, message in (
        ({"text": ["text"]}, "columns: text: expected the name of one column in the rows, got a list of 1"),
        ({0: "text"}, "columns: expected the task's name of a column, got 0"),
    ):
        with pytest.raises(RequestError, match=message):
            run.evaluate(data=ROWS, columns=columns)


def test_overrides_are_a_dict(make_run, tmp_path):
    folder = make_run(tmp_path / "run", LABELS, ROWS)
    for call in (
        lambda: heedful.train("my-own-labels", tmp_path / "new", overrides=["model.n_layers=2"]),
        lambda: heedful.prepare("my-own-labels", tmp_path / "new", overrides=["model.n_layers=2"]),
        lambda: heedful.resume(folder, overrides=["model.n_layers=2"]),
    ):
        with pytest.raises(RequestError, match="overrides: expected a dict of settings, got a list of 1"):
            call()


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (print, r"expected a list of functions, got a builtin_function_or_method; write callbacks=\[f\]"),
        ([lambda: None], r"callbacks\[0\]: expected a function of one argument, the event; it takes \(\)"),
        ([print, lambda a, b: None], r"callbacks\[1\]: expected a function of one argument"),
        (["print"], r"callbacks\[0\]: expected a function, got a text"),
        (None, "callbacks: expected a list of functions, got None"),
    ],
)
def test_callbacks_are_checked_before_the_data_are_read(callbacks, message, make_run, tmp_path):
    data = {"train": lambda: pytest.fail("the rows are read")}
    with pytest.raises(RequestError, match=message):
        heedful.train("my-own-labels", tmp_path / "new", data=data, callbacks=callbacks)
    with pytest.raises(RequestError, match=message):
        heedful.resume(make_run(tmp_path / "run", LABELS, ROWS), callbacks=callbacks)


def test_numbers_of_numpy_are_settings():
    model = heedful.build("transformer-tiny", vocab_size=10, n_layers=np.int64(1))
    assert len(model.encoder.blocks) == 1
    beam = decoding_of({"kind": "beam", "beam": np.int64(3)}, GreedyConfig(kind="greedy"))
    assert beam == BeamConfig(kind="beam", beam=3)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ({"kind": "encoder"}, {}, "model: expected the name of a preset or a configuration, got a dict"),
        (3, {}, "model: expected the name of a preset or a configuration, got an int"),
        ("transformer-tiny", {"layer": nn.Linear}, "model.layer: expected a map, got 'torch.nn"),
        ("transformer-tiny", {"n_layers": {3}}, "settings: n_layers: got a set; use a list"),
    ],
)
def test_what_is_built_is_checked(model, settings, message):
    with pytest.raises(RequestError, match=message):
        heedful.build(model, vocab_size=10, **settings)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"task.labels": np.array(["x", "y"])}, "overrides: task.labels: got a ndarray; use a list"),
        ({"task.labels": {"x", "y"}}, "overrides: task.labels: got a set; use a list"),
        (
            {"model.layer.mixer.score": 5},
            "score=5: expected a map or the text of a kind, got 5; the",
        ),
        (
            {"model.layer.mixer.score": [5]},
            "score: expected a map or the text of a kind, got .*; the",
        ),
    ],
)
def test_overrides_of_another_type_are_named(overrides, message, tmp_path):
    with pytest.raises(RequestError, match=message):
        heedful.train("my-own-labels", tmp_path / "run", overrides=overrides, data={"train": ROWS})


def test_plugins_are_a_list(tmp_path):
    for call in (
        lambda: heedful.load(tmp_path, plugins="distance"),
        lambda: heedful.train("x", plugins="distance"),
    ):
        with pytest.raises(RequestError, match=r"plugins: expected a list .*; write plugins=\['distance'\]"):
            call()
    for plugins, message in ((None, "expected a list of texts, got None"), ([1], r"\[0\].* a text, got 1")):
        with pytest.raises(RequestError, match=f"plugins.*{message}"):
            heedful.load(tmp_path, plugins=plugins)


@pytest.mark.parametrize("name", ["limit", "stride"])
@pytest.mark.parametrize("number", [0, -1, "5", 2.0, True])
def test_numbers_of_an_evaluation_are_whole(name, number, make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    with pytest.raises(RequestError, match=f"{name}: expected a whole number of at least 1, got {number!r}"):
        run.evaluate(data=ROWS, **{name: number})


@pytest.mark.parametrize(
    ("verb", "arguments", "message"),
    [
        ("predict", {"first": -1}, "first: expected a whole number of at least 0, got -1"),
        ("predict", {"first": "a"}, "first: expected a whole number of at least 0, got 'a'"),
        ("predict", {"precision": None}, "precision: expected a text, got None"),
        ("predict", {"progress": None}, "progress: expected True, False or a function, got None"),
        ("embed", {"layer": True}, "layer: expected a whole number, got True"),
        ("embed", {"layer": "0"}, "layer: expected a whole number, got '0'"),
        ("embed", {"progress": 3}, "progress: expected True, False or a function, got an int"),
        ("explain", {"layers": True}, "layers: expected indices from 0, such as .*, got True"),
        ("explain", {"kinds": 3}, "kinds: expected a list of texts, got an int"),
        ("explain", {"views": None}, "views: expected a list of texts, got None"),
        ("explain", {"views": [3]}, r"views\[0\]: expected a text, got 3"),
        ("explain", {"alternative": -1}, "alternative: expected a whole number of at least 0, got -1"),
        ("explain", {"alternative": "1"}, "alternative: expected a whole number of at least 0, got '1'"),
        ("explain", {"limit": -1}, "limit: expected a whole number of at least 0, got -1"),
        ("explain", {"target": 1}, "target: expected a text, got 1"),
        ("explain", {"others": "abc"}, "others: expected a list of inputs, got a text"),
    ],
)
def test_arguments_of_another_type_are_named(verb, arguments, message, make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    with pytest.raises(RequestError, match=message):
        getattr(run, verb)("a b" if verb == "explain" else ["a b"], **arguments)


def test_one_answer_is_streamed(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    with pytest.raises(RequestError, match="n_best=2: streaming gives one answer; use predict for several"):
        run.stream("a b", n_best=2)


def test_a_predictor_takes_a_list(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    with pytest.raises(RequestError, match=r"expected a list of inputs, got a text; pass a list: \[input\]"):
        run.predictor().predict("a b")


def test_names_of_views_may_be_in_any_iterable(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    found = run.explain("a b", kinds=(kind for kind in ["self"]), views=(view for view in ["rollout"]))
    assert len(found.maps) == 1
    assert [*found.views] == ["rollout"]


@pytest.mark.parametrize("device", [None, 3])
def test_a_device_is_a_name(device, make_run, tmp_path):
    folder = make_run(tmp_path / "run", LABELS, ROWS)
    with pytest.raises(RequestError, match=f"device {device}: no such device; use auto"):
        heedful.load(folder, device=device)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({1: ROWS}, "data: name of a set: expected a text, got 1"),
        ({"train": lambda: None}, r"data\['train'\]: the function must return .*, got None"),
    ],
)
def test_names_of_sets_and_what_functions_give_are_checked(data, message, tmp_path):
    with pytest.raises(RequestError, match=message):
        heedful.train("my-own-labels", tmp_path / "run", data=data)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("max_updates", r"max_updates: train has no such argument \(did you mean 'training.max_updates'\?\)"),
        ("epochs", "epochs: train has no such argument; use training.max_epochs"),
        ("n_layers", r"n_layers: train has no such argument \(did you mean 'model.n_layers'\?\)"),
        (
            "output_dir",
            "output_dir: train has no such argument; use the option --out of .*, or out=… in Python",
        ),
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
    with pytest.raises(RequestError, match="epochs: expected a whole number, got '2'"):
        list(setup.batches("2"))
    (batch,) = setup.batches()
    assert setup.loss(batch).isfinite()


def test_an_answer_without_labels_has_no_probabilities():
    with pytest.raises(RequestError, match="label_probabilities: the task predicts no labels"):
        heedful.Prediction("ein Baum").label_probabilities()
    assert heedful.Prediction("", error="cannot be read").label_probabilities() == {}


def test_a_name_in_another_case_is_the_nearest():
    assert nearest("bleu", ["BLEU", "chrF"]) == " (did you mean 'BLEU'?)"
    assert nearest("TER", ["ter", "TERM"]) == " (did you mean 'ter'?)"


PAIRS = [{"english": "a b", "german": "c d"}] * 20


def test_a_missing_column_is_named_with_those_of_the_row_and_the_argument(tmp_path):
    overrides = {"model.d_model": 16}

    def refusal(**data):
        with pytest.raises(RequestError) as error:
            heedful.train("my-own-files", tmp_path / "run", overrides=overrides, progress=False, **data)
        return str(error.value)

    has, remedy = (
        "the row has the columns english, german",
        "give its name in the rows: columns={'source': …}",
    )
    for data in ({"train": PAIRS, "valid": PAIRS}, {"train": PAIRS}):
        assert refusal(data=data).endswith(f"data['train']:1: no column 'source'; {has}; {remedy}")
    valid = [{"source": "a", "de": "c"}]
    message = refusal(
        data={"train": PAIRS, "valid": valid}, columns={"source": "english", "target": "german"}
    )
    assert message.endswith("data['valid']:1: no column 'english'; the row has the columns de, source")


def test_a_training_starts_from_a_loaded_run(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    settings = heedful.recipe("my-own-labels")
    del settings["model"], settings["tokenizer"]
    data, overrides = {"train": ROWS * 9, "valid": ROWS}, {"start.run": run}
    setup = heedful.prepare(settings, tmp_path / "new", data=data, overrides=overrides, progress=False)
    assert setup.task.recipe.start.run == str((tmp_path / "run").resolve())
    tables = [model.get_submodule("embedding").state_dict() for model in (setup.model, run.model)]
    assert all(torch.equal(tables[0][name], tensor) for name, tensor in tables[1].items())


def test_what_is_no_run_to_start_from_is_named(tmp_path):
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text("{}", encoding="utf-8")

    def refusal(start):
        with pytest.raises(RequestError) as error:
            heedful.train("my-own-labels", tmp_path / "new", overrides={"start": start}, progress=False)
        return str(error.value)

    assert refusal({"run": str(tmp_path / "bert")}).endswith(
        "is not a run: it has no recipe.yaml; for a model of transformers, import it first: "
        f"heedful import {tmp_path / 'bert'} RUN (in Python: heedful.import_model)"
    )
    assert "heedful.import_model" not in refusal({"run": str(tmp_path)})
    expected = (
        "start=runs/bert: expected a map, got 'runs/bert'; start.run names a run: start: {run: runs/bert}"
    )
    assert expected in refusal("runs/bert")


def test_a_description_takes_a_dict_of_overrides():
    expected = heedful.describe("transformer-base", overrides=["n_layers=2", "vocab_size=100"]).to_dict()
    assert (
        heedful.describe("transformer-base", overrides={"n_layers": 2, "vocab_size": 100}).to_dict()
        == expected
    )
    expected = heedful.describe("phrasebook-ta", overrides=["model.layer.channels.d_ff=17"]).to_dict()
    for overrides in (
        {"model.layer.channels.d_ff": 17},
        {"model": {"layer": {"channels": {"d_ff": 17}}}},
    ):
        assert heedful.describe("phrasebook-ta", overrides=overrides).to_dict() == expected


def test_the_settings_of_a_recipe_are_described_like_the_recipe():
    settings = heedful.recipe("phrasebook-ta", model={"d_model": 24})
    described = heedful.describe(settings)
    assert (
        described.parameters == heedful.describe("phrasebook-ta", overrides={"model.d_model": 24}).parameters
    )
    assert described.name == "recipe"


@pytest.mark.parametrize(
    ("model", "overrides", "message"),
    [
        ("transformer-base", {"n_layrs": 2}, r"overrides: model.n_layrs=2: unknown key"),
        ("transformer-base", ["n_layrs=2"], r"overrides: model.n_layrs=2: unknown key"),
        ("transformer-base", ["n_layers"], r"overrides: 'n_layers': expected KEY=VALUE"),
        (
            "transformer-base",
            {"vocab_size": 0},
            "overrides: vocab_size=0: expected a whole number of at least 1",
        ),
        ("phrasebook-ta", {"model.n_layers": "x"}, "overrides: model.n_layers=x: expected a whole number"),
        ("phrasebook-ta", {"training": {}}, "overrides: training={}: has no effect"),
        ("phrasebook-ta", {"a b": 1}, "overrides: 'a b=null': expected a key such as training.seed"),
    ],
)
def test_mistakes_in_a_description_name_the_argument(model, overrides, message):
    with pytest.raises(RequestError, match=message) as error:
        heedful.describe(model, overrides=overrides)
    assert "command line" not in str(error.value)


def test_a_suggestion_has_the_whole_key():
    for overrides in ({"model.n_heads": 2}, {"model": {"n_heads": 2}}):
        with pytest.raises(RequestError, match=r"did you mean 'model.layer.mixer.n_heads'\?"):
            heedful.describe("phrasebook-ta", overrides=overrides)


def test_folders_are_paths_or_runs(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    expected = "expected the path of a run's folder, got"
    for call, message in (
        (lambda: heedful.load(None), f"path: {expected} None"),
        (lambda: heedful.load(run), "run is loaded already; use the run itself"),
        (lambda: heedful.resume(None), f"run: {expected} None"),
        (lambda: heedful.resume(run), "the run is finished and has no checkpoints to continue from"),
        (lambda: heedful.train("my-own-labels", 5), f"out: {expected} an int"),
        (lambda: heedful.prepare("my-own-labels", run), f"out: {expected} a Run"),
        (lambda: heedful.compare(run), r"runs: expected a list of runs, got a Run; write compare\(\[run, "),
        (lambda: heedful.compare("run"), "runs: expected a list of runs, got a text"),
        (lambda: heedful.compare([run, None]), rf"runs\[1\]: {expected} None"),
        (lambda: heedful.compare([]), "runs: expected at least one run to compare, got none"),
        (lambda: heedful.export(None, "bert"), f"run: {expected} None"),
    ):
        with pytest.raises(RequestError, match=message):
            call()


def test_the_home_folder_has_its_short_name(make_run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "run", LABELS, ROWS)
    assert heedful.load("~/run").folder.path == tmp_path / "run"
    assert len(heedful.compare(["~/run"]).runs) == 1
    data = {"train": ROWS * 9, "valid": ROWS}
    overrides = {name: LABELS[name] for name in ("model", "tokenizer")}
    setup = heedful.prepare("my-own-labels", "~/new", data=data, overrides=overrides, progress=False)
    assert setup.folder.path == tmp_path / "new"
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize("name", ["overwrite", "tensorboard"])
def test_switches_are_true_or_false(name, make_run, tmp_path):
    folder = make_run(tmp_path / "run", LABELS, ROWS)
    calls = [lambda: heedful.train("my-own-labels", folder, **{name: "no"})]
    if name != "tensorboard":
        calls.append(lambda: heedful.prepare("my-own-labels", folder, **{name: "no"}))
    if name != "overwrite":
        calls.append(lambda: heedful.resume(folder, **{name: "no"}))
    for call in calls:
        with pytest.raises(RequestError, match=f"{name}: expected True or False, got 'no'"):
            call()
    assert heedful.load(folder).labels == ["x", "y"]


def test_evaluations_and_explanations_have_names_like_a_dict(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    evaluation, explanation = run.evaluate(data=ROWS), run.explain("a b")
    assert [*evaluation][:4] == ["accuracy", "macro F1", "micro F1", "calibration error"]
    assert {name: score.value for name, score in dict(evaluation).items()}.keys() == {*evaluation}
    assert ("macro-f1" in evaluation, "f1" in evaluation, 0 in evaluation) == (True, False, False)
    assert [*explanation] == [attention_map.tap for attention_map in explanation.maps]
    assert len(explanation) == len(explanation.maps) == 1
    assert explanation[next(iter(explanation))] is explanation.maps[0].weights
    for found, message in ((evaluation, "no score 0; expected one of accuracy"), (explanation, "no tap 0;")):
        with pytest.raises(KeyError, match=message):
            found[0]


def test_explanations_are_compared_by_identity(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    first, second = run.explain("a b"), run.explain("a b")
    assert first == first
    assert first != second
    assert first.maps[0] != second.maps[0]
    assert len({first, second}) == 2
