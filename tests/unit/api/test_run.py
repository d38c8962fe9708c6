"""Functions on runs."""

import pytest
from torch import nn

import heedful
from heedful.errors import RequestError

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
    import pandas

    run = heedful.load(make_run(tmp_path / "run", LABELS, ROWS))
    for verb in (run.predict, run.embed):
        with pytest.raises(RequestError, match="expected a list of inputs, got a DataFrame; pass"):
            verb(pandas.DataFrame(ROWS))
    with pytest.raises(RequestError, match="must be a text, got a list of one text"):
        run.explain(["a b"])


def test_an_instance_of_a_part_is_refused(tmp_path):
    with pytest.raises(RequestError, match="value of type Linear; for a part of your own, give the class"):
        heedful.train("my-own-labels", tmp_path / "run", overrides={"model.layer.norm": nn.Linear(2, 2)})


def test_errors_are_names_of_the_package():
    assert heedful.RequestError is RequestError
    assert issubclass(heedful.DataError, heedful.HeedfulError)
