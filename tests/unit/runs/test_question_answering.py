"""Runs that answer questions: trained, scored; what their recipes and data refuse."""

import json

import numpy as np
import pytest

from heedful.api.run import load
from heedful.config import merged
from heedful.errors import DataError, RequestError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run
from heedful.tasks.metrics.answering import is_exact
from heedful.training.callbacks import JsonLines, read_metrics

COLORS, THINGS = ("red", "blue", "green"), ("car", "door", "hat", "lamp", "bag")


def rows(n, seed):
    """The colour that stands before the one thing that is asked for."""
    draw = np.random.default_rng(seed)
    for _ in range(n):
        things = [str(thing) for thing in draw.permutation(THINGS)[: draw.integers(1, 4)]]
        colors = [str(color) for color in draw.choice(COLORS, len(things))]
        passage = ", ".join(f"{color} {thing}" for color, thing in zip(colors, things, strict=True))
        yield {"question": f"which {things[0]}?", "passage": passage, "answer": colors[0], "start": "0"}


def plain(**sections):
    columns = {name: name for name in ("question", "passage", "answer", "start")}
    source = {"kind": "jsonl", "columns": columns}
    training = {"max_updates": 6, "tokens_per_update": 120, "validate_every": 3, "save_every": 2}
    model = {
        "kind": "encoder",
        "d_model": 12,
        "n_layers": 1,
        "max_length": 23,
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 3},
            "channels": {"kind": "feed-forward", "d_ff": 17},
        },
    }
    return {
        "task": {"kind": "question-answering"},
        "data": {
            "train": {**source, "paths": "train.jsonl"},
            "valid": {**source, "paths": "valid.jsonl"},
            "test": {"test": {**source, "paths": "test.jsonl"}},
            **sections.pop("data", {}),
        },
        "tokenizer": {"subwords": {"kind": "word"}},
        "windows": {"longest_question": 5},
        "schedule": {"kind": "constant", "peak": 1e-2},
        **sections,
        "model": merged(model, sections.get("model", {})),
        "training": {**training, "precision": "fp32", **sections.get("training", {})},
    }


def recipe(**sections):
    return recipe_from(Tree.of(plain(**sections), Mark("r")))


def put(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def write(folder):
    for seed, (name, n) in enumerate({"train": 97, "valid": 23, "test": 31}.items()):
        put(folder / f"{name}.jsonl", rows(n, seed))


def into(folder, **sections):
    if not (folder / "train.jsonl").exists():
        write(folder)
    settings = recipe(**sections).model_copy(update={"root": str(folder)})
    return train_run(settings, folder / "run", device="cpu", callbacks=lambda f: [JsonLines(f.metrics)])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    into(
        folder,
        model={"dropout": 0.0, "layer": {"mixer": {"dropout": 0.0}}},
        training={"max_updates": 100, "tokens_per_update": 240, "validate_every": 50, "save_every": 50},
    )
    return folder / "run"


@pytest.fixture(scope="module")
def run(trained):
    return load(trained, device="cpu")


@pytest.mark.slow
def test_a_run_says_what_it_is_and_learns(trained):
    card = json.loads((trained / "run.json").read_text())
    assert card["task"] == "question-answering"
    assert set(card["files"]) == {"recipe.yaml", "text.tokenizer.json", "weights.safetensors"}
    validated = [x["metrics"] for x in read_metrics(trained / "metrics.jsonl") if x["event"] == "validated"]
    assert validated[-1]["accuracy"] > 0.9
    assert validated[-1]["loss"] < validated[0]["loss"]


def test_answers_are_cut_out_of_the_passage(run):
    (found,) = run.predict([("which hat?", "Green hat, blue car")], n_best=2)
    assert (found.start, found.end) == (0, 5)
    assert found.text == "Green"
    assert len(found.alternatives) == 1


def test_scores_are_those_of_the_predictions(run):
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    records = list(rows(31, 2))
    predicted = [p.text for p in run.predict([(r["question"], r["passage"]) for r in records])]
    exact, f1, *_ = found.scores
    assert exact.value == np.mean([is_exact(p, r["answer"]) for p, r in zip(predicted, records, strict=True)])
    assert exact.counts == {"questions": 31, "answerable": 31}
    assert f1.value >= exact.value
    written = list(found.rows())
    assert [r["output"] or "" for r in written] == predicted
    assert {"input", "output", "target", "correct", "scores", "start", "end"} <= set(written[0])
    assert written[0]["scores"].keys() == {"exact_match", "f1"}


def test_a_users_own_table_is_scored(run, tmp_path):
    path = tmp_path / "own.jsonl"
    put(path, ({k: r[k] for k in ("question", "passage", "answer")} for r in rows(7, 5)))
    ((name, source),) = chosen_splits(run, "test", [path]).items()
    assert evaluate(run, name, source).scores[0].counts["questions"] == 7


def test_of_several_right_answers_the_nearest_counts_and_the_first_is_learned(tmp_path):
    write(tmp_path)
    lists = [
        {**r, "answer": [r["answer"], "black"], "start": [r["start"], "7"]} if i % 2 else r
        for i, r in enumerate(rows(40, 1))
    ]
    put(tmp_path / "train.jsonl", lists)
    tested = [{**r, "answer": ["black", r["answer"], "white"]} for r in rows(31, 2)]
    put(tmp_path / "test.jsonl", tested)
    into(tmp_path)
    run = load(tmp_path / "run", device="cpu")
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    right = [r["answer"][1] for r in tested]
    predicted = [p.text for p in run.predict([(r["question"], r["passage"]) for r in tested])]
    exact = found.scores[0]
    assert exact.value == np.mean([is_exact(p, a) for p, a in zip(predicted, right, strict=True)])
    assert exact.signature == "norm:squad|references:3"
    assert [r["target"] for r in found.rows()] == [r["answer"] for r in tested]


def test_files_of_squads_form_are_learned_from_and_scored(tmp_path):
    def put_squad(name, n, seed):
        paragraphs = [
            {
                "context": r["passage"],
                "qas": [{"question": r["question"], "answers": [{"text": r["answer"], "answer_start": 0}]}],
            }
            for r in rows(n, seed)
        ]
        (tmp_path / name).write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
        return {"kind": "squad", "paths": name}

    write(tmp_path)
    data = {"train": put_squad("train.json", 40, 1), "valid": put_squad("valid.json", 9, 2), "test": {}}
    into(tmp_path, data=data, training={"max_updates": 3})
    own = load(tmp_path / "run", device="cpu")
    put_squad("own.json", 7, 5)
    ((name, source),) = chosen_splits(own, "test", [tmp_path / "own.json"]).items()
    assert evaluate(own, name, source).scores[0].counts["questions"] == 7


def test_long_passages_are_trained_and_answered_in_windows(tmp_path):
    write(tmp_path)
    records = list(rows(40, 4))
    for record in records:
        record["passage"] += " and" * 60
    put(tmp_path / "train.jsonl", records)
    into(tmp_path, windows={"longest_question": 5, "stride": 4}, training={"max_updates": 3})
    run = load(tmp_path / "run", device="cpu")
    (found,) = run.predict([("which car?", "and " * 90 + "red car")])
    assert ("and " * 90 + "red car")[found.start : found.end] == found.text


# Bad input -------------------------------------------------------------------------------------------------

BAD = [
    ({"answer": "black"}, "the answer is not in the passage"),
    ({"answer": "red", "start": "2"}, "the answer is not where start says"),
    ({"answer": ""}, "there is no answer"),
]


@pytest.mark.parametrize("change, reason", BAD)
def test_rows_without_the_answer_are_counted_or_refused(tmp_path, change, reason):
    write(tmp_path)
    record = {"question": "which hat?", "passage": "red hat", "answer": "red", "start": "", **change}
    put(tmp_path / "valid.jsonl", [*rows(3, 1), record])
    into(tmp_path)
    report = json.loads((tmp_path / "run" / "data.json").read_text())["valid"]
    assert report["dropped"] == {reason: {"count": 1, "examples": ["valid.jsonl:4"]}}
    assert (report["rows"], report["kept"]) == (4, 3)
    (tmp_path / "strict").mkdir()
    write(tmp_path / "strict")
    (tmp_path / "strict" / "valid.jsonl").write_text((tmp_path / "valid.jsonl").read_text())
    with pytest.raises(DataError, match=rf"valid.jsonl:4: {reason}"):
        into(tmp_path / "strict", data={"missing": "error"})


@pytest.mark.slow
def test_where_there_may_be_no_answer_it_is_learned(tmp_path):
    write(tmp_path)
    none = [{**record, "question": "which cow?", "answer": "", "start": ""} for record in rows(60, 7)]
    put(tmp_path / "train.jsonl", [*rows(97, 0), *none])
    into(
        tmp_path,
        task={"kind": "question-answering", "unanswerable": True},
        model={"dropout": 0.0, "layer": {"mixer": {"dropout": 0.0}}},
        training={"max_updates": 120, "tokens_per_update": 240, "validate_every": 60, "save_every": 60},
    )
    run = load(tmp_path / "run", device="cpu")
    cow, hat = run.predict([("which cow?", "red hat, blue car"), ("which hat?", "red hat, blue car")])
    assert (cow.text, cow.start) == ("", None)
    assert hat.text == "red"


def test_an_answer_that_no_window_holds_is_told(tmp_path):
    write(tmp_path)
    words = " ".join(["red"] * 50)
    put(tmp_path / "train.jsonl", [{"question": "q", "passage": words, "answer": words, "start": "0"}])
    with pytest.raises(DataError, match="no window holds the whole answer: raise"):
        into(tmp_path)


@pytest.mark.parametrize(
    "sections, message",
    [
        ({"model": {"max_length": 8}}, "leaves no room for a passage"),
        ({"model": {"segments": 0}}, "model.segments must be 2"),
        ({"data": {"filter": {"max_length": 5}}}, "filter.max_length is not supported here"),
        ({"data": {"missing": "ignore"}}, "'drop' or 'error'"),
    ],
)
def test_recipes_that_cannot_work_are_refused(sections, message):
    with pytest.raises(RequestError, match=message):
        recipe(**sections)
