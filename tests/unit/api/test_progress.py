"""Progress is the same in every verb: True, False, or a function that is given counts."""

import pytest

import heedful
from heedful.errors import RequestError

LABELS = {
    "task": {"kind": "classification"},
    "tokenizer": {"subwords": {"kind": "word"}},
    "model": {"kind": "encoder", "d_model": 6, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}}},
}
TRANSLATION = {
    "task": {"kind": "translation"},
    "tokenizer": {"subwords": {"kind": "word"}},
    "model": {"kind": "transformer", "d_model": 6, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}}},
}
ROWS = [{"text": f"a b{n}", "label": "xy"[n % 2]} for n in range(7)]
PAIRS = [{"source": f"a b{n}", "target": "c d"} for n in range(7)]
SETTINGS = {
    **{name: LABELS[name] for name in ("model", "tokenizer")},
    "training": {"max_updates": 3, "tokens_per_update": 8, "validate_every": 2, "processes": 1},
}


def predict(run, progress):
    return [prediction.text for prediction in run.predict([row["text"] for row in ROWS], progress=progress)]


def embed(run, progress):
    return run.embed([row["text"] for row in ROWS], progress=progress).tolist()


def evaluate(run, progress):
    return run.evaluate(data=ROWS, progress=progress).to_dict()


def score(run, progress):
    return [p.score for p in run.score([(row["source"], row["target"]) for row in PAIRS], progress=progress)]


@pytest.mark.parametrize("verb", [predict, embed, evaluate, score])
def test_counts_add_up_and_the_answers_are_the_same(verb, make_run, tmp_path, capsys):
    recipe, rows = (TRANSLATION, PAIRS) if verb is score else (LABELS, ROWS)
    run = heedful.load(make_run(tmp_path / "run", recipe, rows))
    counts = []
    expected = verb(run, False)
    assert capsys.readouterr() == ("", "")
    assert verb(run, counts.append) == expected
    assert sum(counts) == len(rows)
    assert verb(run, True) == expected
    assert capsys.readouterr().out == ""
    with pytest.raises(RequestError, match="progress: expected True, False or a function, got a text"):
        verb(run, "yes")


def test_updates_are_counted_once_in_a_training_and_after_it_is_resumed(tmp_path, capsys):
    counts = []
    data = {"train": ROWS, "valid": ROWS}
    run = heedful.train(
        "my-own-labels", tmp_path / "run", data=data, overrides=SETTINGS, progress=counts.append
    )
    assert counts == [1, 1, 1]
    assert capsys.readouterr() == ("", "")
    longer = {"training.max_updates": 5}
    heedful.resume(run, data=data, overrides=longer, progress=counts.append)
    assert counts == [1] * 5
    heedful.resume(run, data=data, overrides={"training.max_updates": 6}, progress=True)
    assert "6" in capsys.readouterr().err


def test_a_preparation_counts_the_rows_of_the_training(tmp_path, capsys):
    counts = []
    data = {"train": ROWS, "valid": ROWS[:2]}
    arguments = {"data": data, "overrides": SETTINGS}
    heedful.prepare("my-own-labels", tmp_path / "run", **arguments, progress=counts.append)
    assert counts == [7]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("verb", ["train", "prepare", "resume"])
def test_other_values_are_refused_before_anything_is_read(verb, make_run, tmp_path):
    run = make_run(tmp_path / "run", LABELS, ROWS)
    arguments = [run] if verb == "resume" else ["my-own-labels", tmp_path / "new"]
    with pytest.raises(RequestError, match="progress: expected True, False or a function, got None"):
        getattr(heedful, verb)(*arguments, progress=None)
