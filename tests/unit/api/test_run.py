"""Functions on runs."""

import copy
import json
import pickle
import re
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import heedful
from heedful.cli.main import app
from heedful.data.batch import Batch
from heedful.errors import DataError, RequestError, WorkError

LABELS = {
    "task": {"kind": "classification"},
    "tokenizer": {"subwords": {"kind": "word"}},
    "model": {"kind": "encoder", "d_model": 6, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}}},
}
ROWS = [{"text": "a b", "label": "x"}, {"text": "b c", "label": "y"}]


def test_runs_and_their_folders_are_compared(make_run, tmp_path):
    wider = {**LABELS, "model": {**LABELS["model"], "d_model": 10}}
    first, second = make_run(tmp_path / "one", LABELS, ROWS), make_run(tmp_path / "two", wider, ROWS)
    expected = heedful.compare([first, second])
    assert expected.differences == {"model.d_model": [6, 10]}
    assert [run.name for run in expected.runs] == ["one", "two"]
    assert heedful.compare([heedful.load(first), str(second)]) == expected
    with pytest.raises(RequestError, match="one: the run is given twice"):
        heedful.compare([first, heedful.load(first)])


def test_tables_are_no_inputs_and_one_list_is_not_explained(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    for verb in (run.predict, run.embed):
        with pytest.raises(RequestError, match="expected a list of inputs, got a DataFrame; pass"):
            verb(pandas.DataFrame(ROWS))
    with pytest.raises(RequestError, match="must be a text, got a list of one text; give the text itself"):
        run.explain(["a b"])


def test_a_text_and_a_row_are_no_lists_of_texts(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    for verb in (run.predict, run.embed):
        for single in ("a b", ROWS[0]):
            with pytest.raises(
                RequestError, match=r"expected a list of texts, got .*; pass a list.*\[text\]"
            ):
                verb(single)
        with pytest.raises(RequestError, match=r"input 1: expected a text.*pass its values, .*row\['text'\]"):
            verb(ROWS)
        assert len(verb([])) == 0


def test_one_layer_and_one_head_are_numbers(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    (one,), (two,) = run.explain("a b", layers=0, heads=1).maps, run.explain("a b", heads=[1]).maps
    assert one.heads == two.heads == (1,)
    assert (one.weights == two.weights).all()
    with pytest.raises(
        RequestError, match=r"layers: expected indices from 0 to 0 .*, got 1 \(the command counts"
    ):
        run.explain("a b", layers=1)
    with pytest.raises(RequestError, match=r"heads: expected indices from 0, such as \[0, 1\], got '1'"):
        run.explain("a b", heads="1")


@pytest.mark.parametrize("kind", ["greedy", "beam", "sample"])
def test_a_setting_of_every_decoding_is_given_with_that_of_the_recipe(kind, make_run, tmp_path):
    layer = {"mixer": {"n_heads": 2}, "channels": {"d_ff": 7}}
    translator = {
        "task": {"kind": "translation"},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {"kind": "transformer", "d_model": 6, "n_layers": 1, "layer": layer},
        "decoding": {"kind": kind},
    }
    run = heedful.load(make_run(tmp_path / "run", translator, [{"source": "a b", "target": "c d"}]))
    with pytest.raises(RequestError) as raised:
        run.predict(["a"], max_length=5)
    assert str(raised.value).endswith(f'give decoding={{"kind": "{kind}", "max_length": {{"cap": …}}}}')
    assert run.predict(["a"], decoding={"kind": kind, "max_length": {"cap": 1}})


def test_settings_of_the_decoding_are_refused_with_the_argument_that_has_them(make_run, tmp_path):
    generator = {
        "task": {"kind": "language-modelling"},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {"kind": "language-model", "d_model": 6, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}}},
    }
    run = heedful.load(make_run(tmp_path / "run", generator, [{"text": "a b"}]))
    with pytest.raises(RequestError, match=r'give decoding=\{"kind": "sample", "temperature": …\}'):
        run.predict(["a"], temperature=0.7)
    with pytest.raises(RequestError, match="max_length: use max_new_tokens"):
        run.predict(["a"], max_length=5)
    with pytest.raises(RequestError, match=r'give decoding=\{"kind": "beam", "coverage": …\}'):
        run.predict(["a"], coverage=0.1)


def test_an_instance_of_a_part_is_refused(tmp_path):
    with pytest.raises(RequestError, match="value of type Linear; for a part of your own, give the class"):
        heedful.train("my-own-labels", tmp_path / "run", overrides={"model.layer.norm": nn.Linear(2, 2)})


def test_labels_are_in_the_order_of_probabilities(make_run, tmp_path):
    settings = {**LABELS, "task": {"kind": "classification", "labels": ["y", "x"]}}
    run = heedful.load(make_run(tmp_path / "run", settings, ROWS))
    (prediction,) = run.predict(["a b"])
    assert run.labels == [*prediction.label_probabilities()] == ["y", "x"]
    assert prediction.text == max(prediction.label_probabilities().items(), key=lambda item: item[1])[0]
    regression = {**LABELS, "task": {"kind": "regression"}}
    rows = [{"text": "a b", "label": "1"}, {"text": "b c", "label": "2.5"}]
    assert heedful.load(make_run(tmp_path / "number", regression, rows)).labels == []


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_a_translator_is_scored_on_a_table_of_pairs(make_run, tmp_path, suffix):
    settings = {
        "task": {"kind": "translation"},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {"kind": "transformer", "d_model": 6, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}}},
    }
    pairs = [("a b", "x y"), ("b c", "y, z"), ("c", "z")]
    rows = [{"source": source, "target": target} for source, target in pairs]
    run = heedful.load(make_run(tmp_path / "run", settings, rows))
    table = pandas.DataFrame(pairs, columns=["en", "de"])
    path = tmp_path / f"pairs.{suffix}"
    if suffix == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False, sep="," if suffix == "csv" else "\t")
    columns = {"source": "en", "target": "de"}
    expected = run.evaluate(data=rows)["perplexity"].value
    assert run.evaluate(data=str(path), columns=columns)["perplexity"].value == expected
    assert run.evaluate(data=table, columns=columns)["perplexity"].value == expected
    command = ["evaluate", str(tmp_path / "run"), "--table", str(path), "--json", "--device", "cpu"]
    for names in (["source=en", "target=de"], ["en", "de"]):
        options = [word for name in names for word in ("--column", name)]
        done = CliRunner().invoke(app, [*command, *options], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        scores = json.loads(done.stdout)["splits"][0]["scores"]
        assert [score["value"] for score in scores if score["name"] == "perplexity"] == [expected]
    with pytest.raises(DataError, match=r"no (column|field) 'fr'"):
        run.evaluate(data=str(path), columns={**columns, "target": "fr"})
    with pytest.raises(RequestError, match=r"unknown key 'sources'; .* \(did you mean 'source'\?\)"):
        run.evaluate(data=str(path), columns={"sources": "en"})
    with pytest.raises(RequestError, match="--column: names the columns of a file; add FILE"):
        CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), "--column", "en"], catch_exceptions=False)


def test_columns_without_data_are_refused(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    with pytest.raises(RequestError, match="columns: names the columns of data, which is not given"):
        run.evaluate("valid", columns={"text": "review"})


def test_results_show_in_one_line(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    explanation = run.explain("a b " * 200, views=["lens"])
    batch = Batch.teacher_forced([np.arange(50)] * 9, [np.arange(70)] * 9, start=1, end=2)
    summary = heedful.describe(tmp_path / "run")
    for shown in (explanation, explanation.maps[0], batch, summary):
        assert "\n" not in repr(shown)
        assert len(repr(shown)) < 200
    assert "1 self, views: lens" in repr(explanation).replace("maps: ", "")
    assert "inputs=<639 tokens in 9 sequences>, targets=int64[639]" in repr(batch)
    assert f"{summary.parameters:,} parameters" in repr(summary)
    html = summary._repr_html_()
    assert html.count("<tr>") < 8
    assert f"<td>{summary.parameters:,}</td>" in html


def test_a_run_exports_itself(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    with pytest.raises(RequestError) as own:
        run.export("gpt2", tmp_path / "out")
    with pytest.raises(RequestError) as other:
        heedful.export(run, "gpt2", tmp_path / "out")
    assert str(own.value) == str(other.value)


def test_every_public_name_is_in_the_reference():
    page = Path(__file__).parents[3] / "docs" / "reference" / "python.md"
    shown = set(re.findall(r"heedful\.(\w+)", page.read_text(encoding="utf-8")))
    assert {*heedful.__all__} <= shown


def test_errors_are_names_of_the_package():
    assert heedful.RequestError is RequestError
    assert issubclass(heedful.DataError, heedful.HeedfulError)


def test_options_of_other_libraries_name_those_of_heedful(make_run, tmp_path):
    translator = {**LABELS, "task": {"kind": "translation"}, "model": {"kind": "transformer"}}
    translator["model"] |= {"d_model": 6, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}}}
    pairs = [{"source": "a b", "target": "c d"}, {"source": "b", "target": "d"}]
    run = heedful.load(make_run(tmp_path / "run", translator, pairs))
    for option, meant in (("beam_size", "beam"), ("num_beams", "beam"), ("num_return_sequences", "n_best")):
        with pytest.raises(RequestError, match=f"{option}: not supported for task translation; use {meant}$"):
            run.predict(["a"], **{option: 5})
    with pytest.raises(RequestError, match="top_k: is a setting of the decoding; give decoding="):
        run.predict(["a"], top_k=5)
    labels = heedful.load(make_run(tmp_path / "labels", LABELS, ROWS))
    with pytest.raises(RequestError) as error:
        labels.predict(["a"], beam_size=5)
    assert "use" not in str(error.value)


def test_maps_that_an_explanation_lacks_are_named(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    explanation = run.explain("a b")
    assert explanation.map("self", 0) is explanation.map("self", np.int64(0), "input")
    for arguments, message in (
        (("self", "0"), "layer: expected an index from 0, got '0'"),
        (
            ("self", 0, 0),
            r"queries: expected the name of an axis, one of input, got 0; for one head, map\('self', 0\)",
        ),
        (("decoder", 1), "the explanation has no attention of the kind 'decoder'; it has self"),
        (("self", 3), r"the explanation has no self attention of layer 3; expected one of 0 \(from 0\)"),
    ):
        with pytest.raises(RequestError, match=message):
            explanation.map(*arguments)


ENCODER = LABELS["model"]
WORD = LABELS["tokenizer"]


@pytest.mark.parametrize(
    ("kind", "rows", "given"),
    [
        ("classification", [{"text": "a b", "label": "x"}, {"text": "b", "label": "y"}], "a b"),
        ("multilabel-classification", [{"text": "a b", "label": "x"}, {"text": "b", "label": "y"}], "a b"),
        ("regression", [{"text": "a b", "label": "1.5"}, {"text": "b", "label": "2"}], "a b"),
        ("tagging", [{"words": "a b", "tags": "x y"}], ["a", "b"]),
    ],
)
def test_answers_of_damaged_weights_are_refused(kind, rows, given, make_run, tmp_path):
    settings = {"task": {"kind": kind}, "tokenizer": WORD, "model": ENCODER}
    run = heedful.load(make_run(tmp_path / "run", settings, rows))
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter *= 1e3
    assert run.predict([given])[0].error is None
    with torch.no_grad():
        next(run.model.parameters()).fill_(float("nan"))
    with pytest.raises(WorkError, match="the model's outputs contain NaN or infinity; its weights or inputs"):
        run.predict([given])


DROPOUT = {"mixer": {"n_heads": 2, "dropout": 0.5}, "channels": {"d_ff": 7}}
TRANSLATOR = {
    "task": {"kind": "translation"},
    "tokenizer": {"subwords": {"kind": "word"}},
    "model": {"kind": "transformer", "d_model": 6, "n_layers": 1, "dropout": 0.5, "layer": DROPOUT},
}
PAIRS = [{"source": "a b", "target": "c d"}, {"source": "b c", "target": "d e"}]


def modes(run):
    return [module.training for module in run.model.modules()]


def test_every_verb_computes_in_evaluation_mode_and_restores_the_modes(make_run, tmp_path):
    wide = {**LABELS, "model": {**LABELS["model"], "dropout": 0.5}}
    labels = heedful.load(make_run(tmp_path / "labels", wide, ROWS))
    translator = heedful.load(make_run(tmp_path / "translator", TRANSLATOR, PAIRS))
    verbs = [
        (labels, lambda run: run.predict(["a b"])[0].score),
        (labels, lambda run: run.embed(["a b"]).tolist()),
        (labels, lambda run: run.evaluate(data=ROWS)["accuracy"].value),
        (labels, lambda run: run.explain("a b").maps[0].weights.tolist()),
        (translator, lambda run: run.predict(["a b"], attention=True)[0].attention),
        (translator, lambda run: run.score([("a b", "c d")])[0].log_probs),
        (translator, lambda run: [*run.stream("a b", beam=1)]),
    ]
    for run, verb in verbs:
        expected = verb(run)
        run.model.train()
        next(run.model.children()).eval()
        before = modes(run)
        assert verb(run) == expected
        assert modes(run) == before
        run.model.eval()


def test_a_stream_that_is_closed_restores_the_modes(make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", TRANSLATOR, PAIRS))
    run.model.train()
    stream = run.stream("a b", beam=1)
    next(stream, None)
    stream.close()
    assert all(modes(run))


def test_runs_are_loaded_and_explained_without_gradients_too(make_run, tmp_path):
    folder = make_run(tmp_path / "run", TRANSLATOR, PAIRS)
    expected = heedful.load(folder)
    with torch.inference_mode():
        run = heedful.load(folder)
        assert run.predict(["a b"]) == expected.predict(["a b"])
        views = run.explain("a b", views=["gradients"]).views
    assert views == expected.explain("a b", views=["gradients"]).views
    assert not any(parameter.is_inference() for parameter in run.model.parameters())


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_runs_are_loaded_again_instead_of_copied(copied, make_run, tmp_path):
    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    with pytest.raises(TypeError, match=r"pickled or deep-copied; load it again, .*heedful\.load\('.*run'\)"):
        copied(run)
    assert copy.copy(run).model is run.model
