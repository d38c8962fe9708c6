"""Words that a run does not know are told by every task that reads text, of an input and of a data set."""

import json
from collections import Counter

import pytest

from heedful.api.run import load
from heedful.data.sources import JsonlSource
from heedful.runs.evaluate import evaluate
from heedful.text.tokenizer import Tokenizer

SIZES = {"d_model": 8, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 9}}}
WORDS = {"tokenizer": {"subwords": {"kind": "word"}}}
ENCODER = {**WORDS, "model": {"kind": "encoder", **SIZES, "max_length": 16}}
KNOWN = "the cat sat down on a mat"
STRANGE = "the unicorn sat on zebra"
UNKNOWN = "2 of 5 {}words are unknown to this run (the first: 'unicorn')"
FIRST = "(the first: 'unicorn')"
FORETOLD = "; the perplexity counts them as <unk>, whatever they are"


CASES = {
    "translation": (
        {"task": {"kind": "translation"}, **WORDS, "model": {"kind": "transformer", **SIZES}},
        {"source": STRANGE, "target": STRANGE},
    ),
    "language-modelling": (
        {
            "task": {"kind": "language-modelling"},
            **WORDS,
            "model": {"kind": "language-model", **SIZES, "context": 16},
        },
        {"text": STRANGE},
    ),
    "masked-language-modelling": (
        {"task": {"kind": "masked-language-modelling"}, **ENCODER},
        {"text": STRANGE},
    ),
    "classification": ({"task": {"kind": "classification"}, **ENCODER}, {"text": STRANGE, "label": "a"}),
    "regression": ({"task": {"kind": "regression"}, **ENCODER}, {"text": STRANGE, "label": "1"}),
    "tagging": ({"task": {"kind": "tagging"}, **ENCODER}, {"words": STRANGE, "tags": "a b a b a"}),
    "question-answering": (
        {"task": {"kind": "question-answering"}, **ENCODER, "windows": {"longest_question": 5}},
        {"question": "the cat", "passage": STRANGE, "answer": "zebra"},
    ),
}
LEARNED = {
    **{column: [KNOWN] * 2 for column in ("source", "target", "text", "words", "passage")},
    "question": ["the cat"] * 2,
    "answer": ["cat"] * 2,
    "label": ["1", "2"],
    "tags": ["a b a b a b a", "b a b a b a b"],
}


@pytest.fixture(params=CASES)
def case(request, make_run, tmp_path):
    """A run, and a row that it has not seen the like of."""
    recipe, row = CASES[request.param]
    learned = [{column: LEARNED[column][n] for column in row} for n in range(2)]
    if request.param == "classification":
        learned = [{**each, "label": label} for each, label in zip(learned, "ab", strict=True)]
    return load(make_run(tmp_path / "run", recipe, learned), device="cpu"), row


def test_of_an_input(case):
    run, row = case
    gap = " [MASK]" if run.recipe.task.kind == "masked-language-modelling" else ""
    text = {key: value + gap for key, value in {**row, "prompt": STRANGE}.items()}
    strange = run.task.columns.input_of(text)
    known = run.task.columns.input_of(dict.fromkeys(text, "the cat" + gap))
    found, quiet = run.predict([strange, known])
    side = "source " if "source" in row else ""
    n = "7" if "question" in row else "5"
    notes = "; ".join(found.notes).split("; output cut at ")  # an untrained model ends few outputs
    assert notes[0] == UNKNOWN.format(side).replace("5", n).replace(FIRST, "('unicorn', 'zebra')")
    assert not quiet.notes or "unknown" not in "; ".join(quiet.notes)


def test_of_a_data_set(case, tmp_path, published):
    run, row = case
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row), "utf-8")
    source = JsonlSource(paths=str(path), columns={column: column for column in row})
    evaluation = evaluate(run, "own", source)
    notes = {note.replace(" (40.0%)", "") for note in evaluation.notes if "outputs were cut" not in note}
    wanted = {UNKNOWN.format(f"{column} ") for column in row if column in ("source", "text", "passage")}
    task = run.recipe.task.kind
    if task == "translation":
        wanted.add(UNKNOWN.format("target ") + FORETOLD)
    elif task == "language-modelling":
        wanted = {UNKNOWN.format("").split(" (")[0] + FORETOLD}
    elif task == "masked-language-modelling":
        wanted = {UNKNOWN.format("").split(" (")[0]}
    elif task == "tagging":
        wanted = {UNKNOWN.format("")}
    assert notes == wanted
    published("evaluation", {"version": 2, "run": "run", "splits": [evaluation.to_dict()]})


@pytest.mark.parametrize("task", ["translation", "summarisation"])
def test_references_are_encoded_once_and_sources_where_they_are_read_too(
    task, make_run, tmp_path, monkeypatch
):
    recipe = {**CASES["translation"][0], "task": {"kind": task}}
    learned = [{"source": KNOWN, "target": KNOWN}] * 2
    run = load(make_run(tmp_path / "run", recipe, learned), device="cpu")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"source": "the cat", "target": STRANGE}), "utf-8")
    encoded = Counter()

    def counted(self, texts):
        encoded.update(texts)
        return encode(self, texts)

    encode = Tokenizer.encode_batch
    monkeypatch.setattr(Tokenizer, "encode_batch", counted)
    source = JsonlSource(paths=str(tmp_path / "rows.jsonl"), columns={c: c for c in ("source", "target")})
    assert evaluate(run, "own", source).notes
    assert (encoded["the cat"], encoded[STRANGE]) == (2, 1)
