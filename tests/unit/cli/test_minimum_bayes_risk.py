"""Minimum Bayes risk decoding from the command: the same answers as in Python, whatever the verb."""

import json

import pytest
from typer.testing import CliRunner

import heedful
from heedful.cli.main import app
from heedful.errors import RequestError

pytestmark = pytest.mark.slow

TEXTS = ["a b c", "c a", "b"]
RECIPE = {
    "task": {"kind": "translation"},
    "tokenizer": {"subwords": {"kind": "character"}},
    "model": {
        "kind": "transformer",
        "d_model": 8,
        "n_layers": 1,
        "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 9}},
    },
}
MBR = ["--decoding", "kind=mbr", "--decoding", "n=9"]


@pytest.fixture
def folder(make_run, tmp_path):
    return make_run(tmp_path / "run", RECIPE, [{"source": text, "target": text[::-1]} for text in TEXTS])


def output(*command):
    return CliRunner().invoke(app, [*map(str, command), "--device", "cpu"], catch_exceptions=False).stdout


def test_predict_and_evaluate_answer_as_python(folder, tmp_path):
    inputs, pairs = tmp_path / "inputs.jsonl", tmp_path / "pairs.jsonl"
    inputs.write_text("".join(json.dumps({"source": text}) + "\n" for text in TEXTS), "utf-8")
    pairs.write_text("".join(json.dumps({"source": x, "target": x}) + "\n" for x in TEXTS), "utf-8")
    run = heedful.load(folder, device="cpu")
    decoding = {"kind": "mbr", "n": 9}
    expected = run.predict(TEXTS, decoding={**decoding, "n_best": 2})
    rows = [json.loads(line) for line in output("predict", folder, inputs, *MBR, "--n-best", 2).splitlines()]
    assert [row["output"] for row in rows] == [prediction.text for prediction in expected]
    assert [row["score"] for row in rows] == [prediction.score for prediction in expected]
    assert [[each["output"] for each in row["alternatives"]] for row in rows] == [
        [each.text for each in prediction.alternatives] for prediction in expected
    ]
    evaluation = run.evaluate(data=str(pairs), decoding=decoding)
    scores = json.loads(output("evaluate", folder, pairs, *MBR, "--json"))
    assert f"{evaluation['chrF2'].value}" in json.dumps(scores)
    with pytest.raises(RequestError, match="streaming is not supported by minimum Bayes risk"):
        next(run.stream(TEXTS[0], decoding=decoding))
