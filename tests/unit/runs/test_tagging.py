"""Taggers as runs: trained, resumed, scored; what their recipes and data refuse."""

import json
import re
import shutil
from itertools import pairwise

import numpy as np
import pytest
import torch

from heedful.api.run import load
from heedful.config import merged
from heedful.errors import DataError, RequestError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate, with_evaluation
from heedful.runs.prepare import rows_of
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run
from heedful.tasks.inputs.words import words_and_tags
from heedful.tasks.registry import task_for
from heedful.training.callbacks import JsonLines, read_metrics

TAGS = {
    "Anna": "B-PER",
    "Maria": "B-PER",
    "Weber": "I-PER",
    "Berlin": "B-LOC",
    "London": "B-LOC",
    **dict.fromkeys(("sees", "loves", "the"), "O"),
}


def rows(n, seed):
    """Tags hang on the word alone."""
    draw = np.random.default_rng(seed)
    for _ in range(n):
        words = [str(word) for word in draw.choice(list(TAGS), draw.integers(1, 12))]
        yield " ".join(words), " ".join(TAGS[word] for word in words)


def plain(**sections):
    source = {"kind": "tsv", "columns": {"words": 0, "tags": 1}}
    training = {"max_updates": 6, "tokens_per_update": 80, "validate_every": 3, "save_every": 2}
    model = {
        "kind": "encoder",
        "d_model": 12,
        "n_layers": 1,
        "max_length": 19,
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 3},
            "channels": {"kind": "feed-forward", "d_ff": 17},
        },
    }
    return {
        "task": {"kind": "tagging"},
        "data": {
            "train": {**source, "paths": "train.tsv"},
            "valid": {**source, "paths": "valid.tsv"},
            "test": {"test": {**source, "paths": "test.tsv"}},
            **sections.pop("data", {}),
        },
        "tokenizer": {"subwords": {"kind": "bpe", "merges": 9}},
        "schedule": {"kind": "constant", "peak": 1e-2},
        **sections,
        "model": merged({**model, "segments": 0}, sections.get("model", {})),
        "training": {**training, "precision": "fp32", **sections.get("training", {})},
    }


def recipe(**sections):
    return recipe_from(Tree.of(plain(**sections), Mark("r")))


def write(folder):
    for seed, (name, n) in enumerate({"train": 97, "valid": 23, "test": 31}.items()):
        lines = ["\t".join(row) for row in rows(n, seed)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")


def into(folder, **sections):
    if not (folder / "train.tsv").exists():
        write(folder)
    settings = recipe(**sections).model_copy(update={"root": str(folder)})
    return train_run(settings, folder / "run", device="cpu", callbacks=lambda f: [JsonLines(f.metrics)])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    into(
        folder,
        model={"dropout": 0.0, "layer": {"mixer": {"dropout": 0.0}}},
        training={"max_updates": 150, "tokens_per_update": 160, "validate_every": 50, "save_every": 50},
    )
    return folder / "run"


@pytest.fixture(scope="module")
def run(trained):
    return load(trained, device="cpu")


# Data ------------------------------------------------------------------------------------------------------


def read(folder, *lines):
    """The recipe and the rows of JSON lines."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = {"kind": "jsonl", "paths": "rows.jsonl", "columns": {"words": "words", "tags": "tags"}}
    settings = recipe(data={"train": source}).model_copy(update={"root": str(folder)})
    return settings, list(rows_of(settings, settings.data.train, training=True))


def test_lists_of_words_and_tags_stay_lists(tmp_path):
    lines = [
        {"words": ["New York", "is"], "tags": [3, 0]},
        {"words": [], "tags": []},
        {"words": "", "tags": ""},
        {"words": "a b", "tags": ["3", "true"]},
        {"words": ["x"], "tags": [True]},
    ]
    settings, found = read(tmp_path, *lines)
    task = task_for(settings)
    assert [words_and_tags(row) for row in found] == [
        (["New York", "is"], ["3", "0"]),
        ([], []),
        ([], []),
        (["a", "b"], ["3", "true"]),
        (["x"], ["true"]),
    ]
    task.fit_processor(lambda: iter(found))
    assert task.processor.labels == ("0", "3", "true")
    # Empty rows are left out, as empty lines are.
    encoded = [row.row for row in task.encode(found, task.new_report())]
    marks = [[mark for mark in row["tags"] if mark] for row in encoded]
    assert marks == [[2, 1], [2, 3], [3]]


def test_words_and_tags_in_lists_are_as_many(tmp_path):
    _, (row,) = read(tmp_path, {"words": ["New York", "is"], "tags": "X Y Z"})
    with pytest.raises(DataError, match=r"rows\.jsonl:1: 2 words but 3 tags"):
        words_and_tags(row)


# Training --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_holds_its_tags_and_says_what_it_is(trained):
    card = json.loads((trained / "run.json").read_text())
    assert card["task"] == "tagging"
    assert set(card["files"]) == {
        "recipe.yaml",
        "text.tokenizer.json",
        "labels.json",
        "calibration.json",
        "weights.safetensors",
    }
    assert json.loads((trained / "labels.json").read_text())["labels"] == ["B-LOC", "B-PER", "I-PER", "O"]


def test_training_learns_and_validation_measures_accuracy(trained):
    validated = [x for x in read_metrics(trained / "metrics.jsonl") if x["event"] == "validated"]
    assert validated[-1]["metrics"]["accuracy"] > 0.9
    assert validated[-1]["metrics"]["loss"] < validated[0]["metrics"]["loss"]


@pytest.mark.slow
def test_a_resumed_run_is_equal_to_one_that_never_stopped(tmp_path):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    for folder, n in ((straight, 17), (stopped, 8)):
        folder.mkdir()
        into(folder, training={"max_updates": n, "save_every": 4, "validate_every": 100})
    settings = recipe(training={"max_updates": 17, "save_every": 4, "validate_every": 100})
    train_run(settings.model_copy(update={"root": str(stopped)}), stopped / "run", resume=True, device="cpu")
    one, other = (load(f / "run", device="cpu").model.state_dict() for f in (straight, stopped))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


# Use -------------------------------------------------------------------------------------------------------


def test_predictions_have_a_tag_for_every_word(run):
    found = run.predict(["Anna Weber sees Berlin", "", ["the", "Weber"]])
    assert found[0].text == "B-PER I-PER O B-LOC"
    assert [len(p.tags) for p in found] == [4, 0, 2]


def test_scores_are_those_of_the_predictions_with_their_spans(run):
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    lines, right = zip(*rows(31, 2), strict=True)
    predicted = [p.tags for p in run.predict(list(lines))]
    pairs = [
        (a, b)
        for own, tags in zip(predicted, right, strict=True)
        for a, b in zip(own, tags.split(), strict=True)
    ]
    scores = {score.name: score for score in found.scores}
    assert scores["accuracy"].value == np.mean([a == b for a, b in pairs])
    assert scores["accuracy"].counts["words"] == len(pairs)
    assert {"macro F1", "span precision", "span recall", "span F1"} < set(scores)
    records = list(found.rows())
    assert [r["output"] for r in records] == predicted
    assert [" ".join(r["words"]) for r in records] == list(lines)
    assert sum(r["scores"]["correct_words"] for r in records) == sum(a == b for a, b in pairs)


def test_files_with_a_word_a_line_are_learned_from_and_scored(tmp_path):
    def put(name, n, seed):
        sentences = (zip(words.split(), tags.split(), strict=True) for words, tags in rows(n, seed))
        text = "\n".join("".join(f"{word} {tag}\n" for word, tag in each) for each in sentences)
        (tmp_path / name).write_text(text)
        return {"kind": "conll", "paths": name, "columns": {"words": 0, "tags": 1}}

    data = {"train": put("train", 97, 0), "valid": put("valid", 23, 1), "test": {}}
    into(tmp_path, data=data, training={"max_updates": 3})
    own = load(tmp_path / "run", device="cpu")
    put("own", 7, 5)
    ((name, source),) = chosen_splits(own, "test", [tmp_path / "own"]).items()
    assert evaluate(own, name, source).scores[0].counts["sentences"] == 7


@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_a_users_own_table_is_scored(run, tmp_path, kind):
    path = tmp_path / f"own.{kind}"
    if kind == "tsv":
        path.write_text("words\ttags\n" + "".join("\t".join(row) + "\n" for row in rows(7, 5)))
    else:
        lines = [{"words": words.split(), "tags": tags.split()} for words, tags in rows(7, 5)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ((name, source),) = chosen_splits(run, "test", [path]).items()
    assert evaluate(run, name, source).scores[0].counts["sentences"] == 7


def test_long_rows_are_trained_in_stretches(tmp_path):
    write(tmp_path)
    words, tags = zip(*rows(60, 9), strict=True)
    (tmp_path / "train.tsv").write_text(f"{' '.join(words)}\t{' '.join(tags)}\nAnna\tB-PER\n")
    into(tmp_path, training={"max_updates": 3})
    run = load(tmp_path / "run", device="cpu")
    assert run.predict([" ".join(words)])[0].notes[0].startswith("read in")


@pytest.mark.slow
def test_a_run_starts_from_a_masked_language_model(tmp_path):
    write(tmp_path)
    (tmp_path / "text.txt").write_text("".join(words + "\n" for words, _ in rows(97, 0)))
    text = {"kind": "text", "paths": "text.txt"}
    masked = plain(task={"kind": "masked-language-modelling"}, training={"max_updates": 3})
    masked["data"] = {"train": text, "valid": text}
    settings = recipe_from(Tree.of(masked, Mark("r"))).model_copy(update={"root": str(tmp_path)})
    train_run(settings, tmp_path / "masked", device="cpu")
    into(tmp_path, start={"run": "masked", "frozen": "body"})
    one, other = (load(tmp_path / name, device="cpu").model.state_dict() for name in ("masked", "run"))
    kept = [name for name in other if not name.startswith("heads.")]
    assert kept
    assert all(torch.equal(one[name], other[name]) for name in kept)
    assert "heads.tag.1.weight" in other


# Bad input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part, line, message",
    [
        ("train", "Anna sees\tB-PER", r"train.tsv:2: 2 words but 1 tags"),
        ("valid", "Anna\tB-PRE", r"valid.tsv:2: unknown tag 'B-PRE'.*'B-PER'"),
        ("valid", "Anna\t", r"valid.tsv:2: 1 words but 0 tags"),
    ],
)
def test_bad_rows_are_named(tmp_path, part, line, message):
    write(tmp_path)
    (tmp_path / f"{part}.tsv").write_text(f"Anna sees\tB-PER O\n{line}\n")
    with pytest.raises(DataError, match=message):
        into(tmp_path)


def test_empty_lines_are_left_out_or_refused(tmp_path):
    write(tmp_path)
    (tmp_path / "train.tsv").write_text("Anna sees\tB-PER O\n\t\nWeber sees Berlin\tB-PER O B-LOC\n")
    (tmp_path / "valid.tsv").write_text("Anna sees\tB-PER O\n")
    into(tmp_path)
    dropped = json.loads((tmp_path / "run" / "data.json").read_text())["train"]["dropped"]
    assert dropped == {"empty words": {"count": 1, "examples": ["train.tsv:2"]}}
    (tmp_path / "strict").mkdir()
    write(tmp_path / "strict")
    for name in ("train.tsv", "valid.tsv"):
        (tmp_path / "strict" / name).write_text((tmp_path / name).read_text())
    with pytest.raises(DataError, match=r"train.tsv:2: words is empty"):
        into(tmp_path / "strict", data={"filter": {"empty": "error"}})


def test_a_test_set_of_unknown_tags_alone_is_refused(run, tmp_path):
    path = tmp_path / "own.tsv"
    path.write_text("words\ttags\nAnna sees\tX Y\nAnna sees\tX X\n")
    ((name, source),) = chosen_splits(run, "test", [path]).items()
    with pytest.raises(DataError, match=r"own.tsv:2: unknown tag 'X'"):
        evaluate(run, name, source)


def test_one_tag_is_not_enough(tmp_path):
    write(tmp_path)
    (tmp_path / "train.tsv").write_text("the sees\tO O\n")
    with pytest.raises(DataError, match=r"two different tags are needed, got 1: \['O'\]"):
        into(tmp_path)


@pytest.mark.parametrize(
    "sections, message",
    [
        ({"model": {"max_length": 2}}, "leaves no room"),
        ({"data": {"filter": {"max_length": 5}}}, "filter.max_length is not supported here"),
        ({"training": {"metric": "accuracy", "direction": "lower"}}, "for which higher is better"),
    ],
)
def test_recipes_that_cannot_work_are_refused(sections, message):
    with pytest.raises(RequestError, match=message):
        recipe(**sections)


@pytest.mark.parametrize("unseen", ["B-ORG", "?"])
def test_tags_that_training_has_not_seen_count_as_wrong(run, tmp_path, unseen):
    path = tmp_path / "own.tsv"
    path.write_text(f"words\ttags\nAnna sees\tB-PER O\nMaria loves the\tB-PER {unseen} O\n")
    ((name, source),) = chosen_splits(run, "test", [path]).items()
    found = evaluate(run, name, source)
    predicted = [tag for p in run.predict(["Anna sees", "Maria loves the"]) for tag in p.tags]
    wanted = ["B-PER", "O", "B-PER", unseen, "O"]
    scores = {score.name: score for score in found.scores}
    assert scores["accuracy"].value == pytest.approx(np.mean([a == b for a, b in zip(predicted, wanted)]))
    assert scores["accuracy"].counts == {"words": 5, "sentences": 2, "classes": 5, "unseen": 1}
    assert "span F1" in scores
    (note,) = found.notes
    assert note.startswith("1 with a tag that training has not seen count as wrong")
    assert f"{unseen!r} (1, first at {path}:3)" in note


@pytest.mark.slow
def test_validation_measures_the_macro_f1_of_evaluate_if_it_selects_the_checkpoint(tmp_path):
    into(tmp_path, training={"metric": "macro-f1", "direction": "higher", "max_updates": 12})
    events = read_metrics(tmp_path / "run" / "metrics.jsonl")
    measured = [event["metrics"]["macro-f1"] for event in events if event["event"] == "validated"]
    run = load(tmp_path / "run", device="cpu")
    scores = {score.name: score.value for score in evaluate(run, "valid", run.recipe.data.valid).scores}
    assert max(measured) == pytest.approx(scores["macro F1"])


# CoNLL files -----------------------------------------------------------------------------------------------

BIOES = (
    "# id 7 x=y\nAnna _ _ B-PER\nMaria _ _ E-PER\nsees _ _ O\n\n# id 8 x=y\nBerlin _ _ S-LOC\n#tag _ _ O\n\n"
)


@pytest.mark.slow
def test_comments_of_conll_files_are_noted_and_spans_are_scored_in_their_scheme(tmp_path):
    (tmp_path / "train.tsv").write_text(BIOES * 3)
    (tmp_path / "other.conll").write_text(BIOES)
    source = {"kind": "conll", "paths": "train.tsv", "columns": {"words": 0, "tags": -1}}
    data = {"train": source, "valid": source, "test": {"test": {**source, "paths": "other.conll"}}}
    training = {"metric": "span-f1", "direction": "higher", "max_updates": 2, "validate_every": 1}
    lines = []
    settings = recipe(data=data, training=training).model_copy(update={"root": str(tmp_path)})
    train_run(settings, tmp_path / "run", device="cpu", log=lines.append)
    tagger = load(tmp_path / "run", device="cpu")
    assert tagger.task.processor.labels == ("B-PER", "E-PER", "O", "S-LOC")
    assert "4 tags (spans in the scheme bioes): B-PER, E-PER, O, S-LOC" in lines
    noted = [line for line in lines if "skipped as comments" in line]
    assert noted[0].endswith(
        "reads them as words: 6 (train.tsv:1, train.tsv:6, train.tsv:10, train.tsv:15, train.tsv:19, ...)"
    )
    assert len(noted) == 2
    report = json.loads((tmp_path / "run" / "data.json").read_text())
    assert [tally["count"] for tally in report["train"]["noted"].values()] == [6]
    result = evaluate(tagger, "test", tagger.recipe.data.test["test"])
    assert result["span F1"].signature == "scheme:bioes|average:micro|ill-formed:begins"
    assert result["span F1"].counts == {"spans": 2}
    assert [note for note in result.notes if note.endswith("as words: 2 (other.conll:1, other.conll:6)")]


def trained_on(folder, evaluation=None, log=lambda line: None, **data):
    training, evaluation = {"max_updates": 1, "validate_every": 1}, evaluation or {}
    made = recipe(data={"test": {}, **data}, training=training, evaluation=evaluation)
    train_run(made.model_copy(update={"root": str(folder)}), folder / "run", device="cpu", log=log)
    return load(folder / "run", device="cpu")


LINES = {"kind": "conll", "columns": {"words": 0, "tags": 1}}
COMMENTS = r"if such lines are comments, train with data\.train\.comments=always \(and data\.valid\.comments="


def test_an_unknown_tag_of_validation_lines_that_may_be_comments(tmp_path):
    """A comment between words that has as many fields as they; the setting that the message names helps."""
    (tmp_path / "train.conll").write_text("a B-X\nb O\n\n" * 3)
    (tmp_path / "valid.conll").write_text("a B-X\n# page7\nb O\n")
    train, valid = {**LINES, "paths": "train.conll"}, {**LINES, "paths": "valid.conll"}
    with pytest.raises(
        DataError, match=rf"^data\.valid: valid\.conll:1: unknown tag 'page7', .*; {COMMENTS}"
    ):
        trained_on(tmp_path, train=train, valid=valid)
    always = {"comments": "always"}
    run = trained_on(tmp_path, train=train | always, valid=valid | always)
    assert run.task.processor.labels == ("B-X", "O")


def test_an_unknown_tag_of_scored_lines_that_may_be_comments(tmp_path):
    (tmp_path / "train.conll").write_text("".join(f"w{n} B-X\nb O\n\n" for n in range(60)))
    run = trained_on(tmp_path, train={**LINES, "paths": "train.conll"}, valid=None, split={"valid": 0.2})
    (tmp_path / "own.conll").write_text("a B-X\n# page7\nb O\n")
    result = evaluate(run, "own", run.task.source_from([tmp_path / "own.conll"]))
    (note,) = [note for note in result.notes if "begin with #" in note]
    assert re.match(f"lines with unknown tags that begin with #: 1; {COMMENTS}", note)
    (tmp_path / "own.conll").write_text("a p1\n# page7\n")
    with pytest.raises(DataError, match=f"unknown tag 'p1', .*; {COMMENTS}"):
        evaluate(run, "own", run.task.source_from([tmp_path / "own.conll"]))


def test_comments_before_a_sentence_are_not_scored(tmp_path):
    """A file of one sentence; a word is distinguished from a comment by the tags of the run."""
    words = "".join(f"w{n} NN B-X\n" + "# SYM O\n" * (n % 2) + "\n" for n in range(60))
    (tmp_path / "train.conll").write_text(words)
    for number in (1, 2):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        source = {"kind": "conll", "columns": {"words": 0, "tags": number}, "paths": "train.conll"}
        run = trained_on(tmp_path, train=source, valid=None, split={"valid": 0.2})
        (tmp_path / "own.conll").write_text("# id d1\n# SYM O\na NN B-X\n")
        result = evaluate(run, "own", run.task.source_from([tmp_path / "own.conll"]))
        assert [row["words"] for row in result.records()] == [["#", "a"]]
        assert any(note.endswith("own.conll:1)") and "as words: 1 (" in note for note in result.notes)


SPANS = {
    "bio": "a B-X\nb I-X\nc I-X\nd O\ne B-X\n\n",
    "bioes": "a B-X\nb I-X\nc E-X\nd O\ne S-X\n\n",
    "bilou": "a B-X\nb I-X\nc L-X\nd O\ne U-X\n\n",
    "bmes": "a B-X\nb M-X\nc E-X\nd O\ne S-X\n\n",
}


@pytest.mark.parametrize("own", SPANS)
def test_a_scheme_that_is_not_that_of_the_training_tags_is_refused(tmp_path, own):
    (tmp_path / "x.conll").write_text(SPANS[own] * 4 + "f O\n")
    source = {**LINES, "paths": "x.conll"}
    for name in SPANS:
        if name == own:
            trained_on(tmp_path, {"spans": name}, train=source, valid=source)
            shutil.rmtree(tmp_path / "run")
            continue
        with pytest.raises(
            RequestError,
            match=rf"^evaluation\.spans={name}: the training tags are in the scheme {own}: 4 of 4 \(100\.0%\)"
            rf" rows with spans do not fit {name}, such as B-X .* O .-X; set evaluation\.spans={own}, or "
            r"remove this setting$",
        ):
            trained_on(tmp_path, {"spans": name}, train=source, valid=source)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)


def note_or_refuse(folder, train, valid, note, known, scored):
    """Validation data in another scheme are refused, or noted if all their tags occur in the training."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    lines = []
    if {*re.findall(r".-X", scored)} <= {*re.findall(r".-X", known)}:
        trained_on(folder, log=lines.append, train=train, valid=valid)
        assert f"data.valid: {note}" in lines
        return
    with pytest.raises(
        DataError, match=r"the tag '.-X' is in the scheme .*, but spans are scored in .*; con"
    ):
        trained_on(folder, log=lines.append, train=train, valid=valid)


@pytest.mark.slow
@pytest.mark.parametrize("own", SPANS)
def test_data_in_another_scheme_than_the_run_are_recognised(tmp_path, own):
    """With one note, without hints that take tags for misspellings."""
    for name, content in SPANS.items():
        (tmp_path / f"{name}.conll").write_text(content * 4 + "f O\n")
    sources = {name: {**LINES, "paths": f"{name}.conll"} for name in SPANS}
    run = trained_on(tmp_path, train=sources[own], valid=sources[own])
    for name in SPANS:
        found = evaluate(run, name, run.task.source_from([tmp_path / f"{name}.conll"]))
        notes = [note for note in found.notes if "in the scheme" in note]
        assert not any("did you mean" in note for note in found.notes)
        assert len(notes) == (name != own), notes
        for note in notes:
            assert re.fullmatch(
                rf"the tags are in the scheme {name}, such as B-X .* O .-X, but spans are scored in {own}; "
                rf"convert them to {own}, or train on tags in {name}",
                note,
            )
            note_or_refuse(tmp_path, sources[own], sources[name], note, SPANS[own], SPANS[name])
    with_other = with_evaluation(run, ["spans=bio" if own != "bio" else "spans=bioes"])
    found = evaluate(with_other, own, run.task.source_from([tmp_path / f"{own}.conll"]))
    assert any(note.endswith(f"; set evaluation.spans={own}") for note in found.notes)


def well_formed_rows(n, seed):
    """Names of one word or two; the second word alone is no name, so its tag hangs on the word before."""
    draw = np.random.default_rng(seed)
    for _ in range(n):
        words, tags = [], []
        for _ in range(draw.integers(1, 7)):
            if draw.random() < 0.5:
                words += ["Anna", "Weber"][: draw.integers(1, 3)]
                tags += ["B-PER", "I-PER"][: len(words) - len(tags)]
            else:
                words.append(str(draw.choice(["sees", "the", "Weber"])))
                tags.append("O")
        yield " ".join(words), " ".join(tags)


def is_well_formed(tags):
    return all(tag[0] != "I" or before[-3:] == tag[-3:] != "" for before, tag in pairwise(["O", *tags]))


def train_well_formed(folder, rows_of_name, **task):
    for seed, (name, n) in enumerate({"train": 97, "valid": 53, "test": 31}.items()):
        lines = ["\t".join(row) for row in rows_of_name(n, seed)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    lines = []
    made = recipe(task={"kind": "tagging", **task}).model_copy(update={"root": str(folder)})
    train_run(made, folder / "run", log=lines.append)
    return load(folder / "run"), lines


def test_predicted_tags_are_well_formed_if_those_of_the_training_are(tmp_path):
    run, _ = train_well_formed(tmp_path, well_formed_rows)
    assert json.loads((run.folder.path / "transitions.json").read_text()) == {"version": 1, "scheme": "bio"}
    draw = np.random.default_rng(9)
    inputs = [" ".join(draw.choice([*TAGS], n)) for n in (0, 1, 2, 5, 11, 61)]  # the last in several parts
    found = run.predict(inputs)
    run.task.transitions = None
    free = run.predict(inputs)
    assert all(is_well_formed(each.tags) for each in found)
    assert not all(is_well_formed(each.tags) for each in free)
    for held, each in zip(found, free, strict=True):
        assert len(held.tags) == len(each.tags)
        if each.tags:
            assert held.score <= each.score
            assert held.score == pytest.approx(sum(held.log_probs))
        if is_well_formed(each.tags):
            assert held == each


@pytest.mark.parametrize(
    "task, made, note",
    [
        ({}, rows, "training rows are not well-formed in the scheme bio"),
        ({"transitions": "any"}, well_formed_rows, ""),
    ],
)
def test_otherwise_each_tag_is_the_most_probable(task, made, note, tmp_path):
    run, lines = train_well_formed(tmp_path, made, **task)
    assert not (run.folder.path / "transitions.json").exists()
    assert run.task.transitions is None
    assert note in "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Anna's dog, (3.5 m) sees\u00a0Berlin!",
            ["Anna's", "dog", ",", "(", "3.5", "m", ")", "sees", "Berlin", "!"],
        ),
        ("Baden-W\u00fcrttemberg \u2026", ["Baden", "-", "W\u00fcrttemberg", "\u2026"]),
        ("\u6771\u4eac", ["\u6771", "\u4eac"]),
        (" \u3000", []),
    ],
)
def test_raw_texts_are_split_at_word_boundaries(trained_on_names, text, words):
    (found,) = trained_on_names.predict([text], words="raw")
    assert found.words == words
    assert len(found.tags) == len(words)
    for entity in found.entities:
        assert text[entity["start"] : entity["end"]] == entity["text"]
    assert found.tags == trained_on_names.predict([words])[0].tags


@pytest.fixture(scope="module")
def trained_on_names(tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    return train_well_formed(folder, well_formed_rows)[0]


def test_words_are_split_in_two_ways(trained_on_names):
    with pytest.raises(RequestError, match="words: expected 'blanks' or 'raw', got 'moses'"):
        trained_on_names.predict(["a"], words="moses")
    (found,) = trained_on_names.predict(["a, b"], words="blanks")
    assert found.words == ["a,", "b"]
