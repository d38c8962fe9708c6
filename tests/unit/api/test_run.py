"""Functions on runs."""

import pytest

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
