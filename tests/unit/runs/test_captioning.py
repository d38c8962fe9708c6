"""Captioners as runs: trained on a user's own images, resumed, scored; what recipes and data refuse."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sacrebleu import corpus_bleu, corpus_chrf, corpus_ter

from heedful.api.run import Run, load
from heedful.artifacts.run_folder import RunFolder
from heedful.config import merged
from heedful.data.augmentation import Augmentation, augmented
from heedful.data.corpora.scenes import caption, pixels, scene
from heedful.data.images import LazyImage
from heedful.data.sources import CaptionedFolderSource, JsonlSource, LocatedRow, Location, TsvSource
from heedful.decoding.config import GreedyConfig
from heedful.errors import DataError, RequestError
from heedful.model_summary.summary import describe
from heedful.recipes.trees import Mark, Tree
from heedful.recipes.yaml import dump_yaml
from heedful.runs.evaluate import chosen_splits, evaluate, with_evaluation
from heedful.runs.prepare import prepare
from heedful.runs.reading import read_recipe, recipe_from
from heedful.runs.train import train_run
from heedful.tasks.captioning.task import Captioning, group_by_image, image_augmenter
from heedful.tasks.evaluation import EvaluationOptions
from heedful.tasks.prediction import Prediction
from heedful.training.callbacks import JsonLines, read_metrics

COLOURS = {"red": (255, 0, 0), "green": (0, 160, 0), "blue": (0, 0, 255)}
N = {"train": 47, "valid": 11, "test": 13}


def painted(draw):
    """Half of the image in one colour, half in another, and what that is."""
    first, second = draw.choice(list(COLOURS), 2, replace=False)
    array = np.zeros((12, 12, 3), np.uint8)
    array[:6], array[6:] = COLOURS[first], COLOURS[second]
    return array, f"{first} above {second}"


def write(folder):
    """Tables of JSON lines beside a folder of images."""
    (folder / "images").mkdir()
    draw = np.random.default_rng(1)
    for name, n in N.items():
        lines = []
        for i in range(n):
            array, text = painted(draw)
            Image.fromarray(array).save(folder / "images" / f"{name}{i}.png")
            lines.append(json.dumps({"image": f"images/{name}{i}.png", "caption": text}))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def plain(**sections):
    columns = {"image": "image", "caption": "caption"}
    sources = {name: {"kind": "jsonl", "paths": f"{name}.jsonl", "columns": columns} for name in N}
    model = {
        "kind": "captioner",
        "image_size": 12,
        "patch_size": 6,
        "d_model": 12,
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 3},
            "channels": {"kind": "feed-forward", "d_ff": 17},
        },
    }
    training = {"max_updates": 6, "tokens_per_update": 60, "validate_every": 3, "save_every": 2}
    data = {"train": sources["train"], "valid": sources["valid"], "test": {"test": sources["test"]}}
    return {
        "task": {"kind": "captioning"},
        "tokenizer": {"subwords": {"kind": "word"}},
        "schedule": {"kind": "constant", "peak": 1e-2},
        "objective": {"label_smoothing": 0.0},
        "validation": {"decode": 5},
        **sections,
        "data": {**data, **sections.get("data", {})},
        "model": merged({**model, "n_layers": 1, "dropout": 0.0}, sections.get("model", {})),
        "training": {**training, "precision": "fp32", **sections.get("training", {})},
    }


def recipe(**sections):
    return recipe_from(Tree.of(plain(**sections), Mark("r")))


def into(folder, **sections):
    if not (folder / "train.jsonl").exists():
        write(folder)
    settings = recipe(**sections).model_copy(update={"root": str(folder)})
    return train_run(settings, folder / "run", device="cpu", callbacks=lambda f: [JsonLines(f.metrics)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    into(folder, training={"max_updates": 120, "validate_every": 40, "save_every": 40})
    return folder


@pytest.fixture(scope="module")
def run(folder):
    return load(folder / "run", device="cpu")


# Training --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_holds_its_tokenizer_and_bytes_of_images(folder):
    card = json.loads((folder / "run" / "run.json").read_text())
    assert card["task"] == "captioning"
    assert set(card["files"]) == {"recipe.yaml", "caption.tokenizer.json", "weights.safetensors"}
    header = json.loads((folder / "run" / "cache" / "train" / "header.json").read_text())
    columns = {column["name"]: column for column in header["columns"]}
    assert (columns["image"]["dtype"], columns["image"]["tokens"]) == ("|u1", N["train"] * 12 * 12 * 3)
    report = json.loads((folder / "run" / "data.json").read_text())
    assert report["train"]["columns"].keys() == {"caption"}
    assert report["train"]["kept"] == N["train"]


def test_training_learns_and_validation_writes_captions(folder):
    validated = [x for x in read_metrics(folder / "run" / "metrics.jsonl") if x["event"] == "validated"]
    assert validated[-1]["metrics"].keys() == {"loss", "perplexity", "bleu", "chrf"}
    assert validated[-1]["metrics"]["chrf"] > 95
    assert validated[-1]["metrics"]["loss"] < validated[0]["metrics"]["loss"]


@pytest.mark.slow
def test_a_resumed_run_is_equal_to_one_that_never_stopped(tmp_path):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    varied = {"augmentation": {"crop": {"area": [0.5, 1.0]}, "shift": 1, "erase": 0.5}}
    for place, n in ((straight, 11), (stopped, 6)):
        place.mkdir()
        into(place, training={"max_updates": n, "save_every": 4, "validate_every": 100}, **varied)
    settings = recipe(training={"max_updates": 11, "save_every": 4, "validate_every": 100}, **varied)
    settings = settings.model_copy(update={"root": str(stopped)})
    train_run(settings, stopped / "run", resume=True, device="cpu")
    one, other = (load(f / "run", device="cpu").model.state_dict() for f in (straight, stopped))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def album(folder, n=20):
    """Images with two captions each, in ``captions.txt``."""
    draw = np.random.default_rng(2)
    folder.mkdir()
    lines = []
    for i in range(n):
        array, text = painted(draw)
        Image.fromarray(array).save(folder / f"{i:02}.png")
        first, _, second = text.split()
        lines += [f"{i:02}.png\t{text}", f"{i:02}.png\t{second} below {first}"]
    (folder / "captions.txt").write_text("\n".join(lines) + "\n")


def test_a_folder_of_captioned_images_is_learned_from(tmp_path):
    """What is missing, unreadable or without a caption is named, and counted where it is left out."""
    album(tmp_path / "album")
    with (tmp_path / "album" / "captions.txt").open("a") as file:
        file.write("17.gone.png\tred above green\n18.png\t\n")
    (tmp_path / "album" / "16.png").write_text("not an image")
    Image.new("RGB", (9, 9)).save(tmp_path / "album" / "19.alone.png")
    source = {"kind": "captioned-folder", "path": "album"}
    data = {"train": {**source, "skip": 5}, "valid": {**source, "limit": 5}, "test": {}}
    (tmp_path / "train.jsonl").touch()
    short = {"training": {"max_updates": 1}, "validation": {"decode": 0}}
    with pytest.raises(
        DataError, match=r"data.train: album/captions.txt:41: album/17.gone.png: no such file"
    ):
        into(tmp_path, data=data, **short)
    into(tmp_path, data={**data, "filter": {"unreadable": "drop"}}, **short)
    report = json.loads((tmp_path / "run" / "data.json").read_text())
    assert (report["valid"]["rows"], report["valid"]["kept"]) == (10, 10)
    # Fifteen images with two captions, a missing one, a caption that is empty, and an image without.
    assert (report["train"]["rows"], report["train"]["kept"]) == (33, 28)
    assert {reason: tally["examples"] for reason, tally in report["train"]["dropped"].items()} == {
        "unreadable": ["album/captions.txt:33", "album/captions.txt:34", "album/captions.txt:41"],
        "empty caption": ["album/captions.txt:42", "album/19.alone.png"],
    }
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(DataError, match=r"album/captions.txt:42: caption is empty"):
        into(tmp_path, data={**data, "filter": {"unreadable": "drop", "empty": "error"}}, **short)


def test_what_becomes_of_an_image_depends_on_seed_epoch_and_sample_alone():
    """And is what becomes of it in a classifier of images; captions stay as they are."""
    how = Augmentation(shift=2, erase=0.5)
    reader = recipe().reader
    draw = np.random.default_rng(0)
    pixels = draw.integers(256, size=(5, 3, 12, 12), dtype=np.uint8)
    rows = list(pixels.reshape(5, -1))
    samples = [3, 1, 4, 11, 5]
    vary = image_augmenter(how, reader, seed=7)
    changed = vary("image", rows, samples, 2)
    of = augmented(pixels, samples, how, seed=7, epoch=2, fill=np.full(3, 128, np.uint8))
    assert np.array_equal(np.stack(changed), of.reshape(5, -1))
    for i, sample in enumerate(samples):
        (alone,) = vary("image", [rows[i]], [sample], 2)
        assert np.array_equal(alone, changed[i])
    for other in (
        vary("image", rows, samples, 3),
        image_augmenter(how, reader, 8)("image", rows, samples, 2),
    ):
        assert not np.array_equal(np.stack(other), np.stack(changed))
    assert vary("caption", [[7, 8]], [3], 2) == [[7, 8]]
    assert recipe().augmentation == Augmentation(crop=None, shift=0, flip=False, erase=0.0)


def test_training_images_are_changed_and_those_of_validation_are_not(tmp_path):
    write(tmp_path)
    settings = recipe(augmentation={"shift": 3}).model_copy(update={"root": str(tmp_path)})
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    prepared = prepare(settings, folder, lambda line: None)
    task = prepared.task
    feed = task.training_data(prepared)
    plain = settings.sequence_format.images(prepared.train.gather([0, 1])["image"]).pixels
    one, two = (feed.collate([0, 1], epoch).source.pixels for epoch in (0, 1))
    assert torch.equal(feed.collate([0, 1], 0).source.pixels, one)
    assert not torch.equal(one, plain)
    assert not torch.equal(one, two)
    valid = task.batches(prepared.valid, training=False)
    own = prepared.valid.gather([0, 1])["image"]
    assert torch.equal(valid([0, 1], 1).source.pixels, settings.sequence_format.images(own).pixels)


# Use -------------------------------------------------------------------------------------------------------


def test_the_captions_are_right_and_decoding_goes_the_plain_way(run):
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    scores = {score.name: score for score in found.scores}
    assert scores.keys() >= {"BLEU", "chrF2", "TER", "exact match", "perplexity"}
    assert scores["exact match"].value > 0.7
    assert scores["exact match"].counts["sentences"] == N["test"]
    assert scores["perplexity"].value < 1.3
    records = list(found.rows())
    assert [r["input"]["image"] for r in records] == [f"images/test{i}.png" for i in range(N["test"])]
    assert all(set(r) >= {"version", "input", "output", "target", "scores"} for r in records)
    assert run.inference().description.startswith("fp32 on the plain path")


def test_a_captioner_that_is_right_loses_little_by_its_own_prefixes(run):
    asked = with_evaluation(run, ["forcing_gap=true"])
    scores = {s.name: s for s in evaluate(asked, "test", chosen_splits(run, "test", None)["test"]).scores}
    assert scores["token accuracy, free"].value > 0.8
    assert scores["accuracy gap"].value < 0.2
    assert scores["nats per token, forced"].value == pytest.approx(scores["nats per token"].value, rel=1e-5)
    assert scores["accuracy gap"].counts["sentences"] == N["test"]


@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_a_users_own_table_is_scored_with_paths_beside_it(run, tmp_path, kind):
    array, text = painted(np.random.default_rng(7))
    Image.fromarray(array).save(tmp_path / "one.png")
    path = tmp_path / f"own.{kind}"
    path.write_text(
        f"caption\timage\n{text}\tone.png\n"
        if kind == "tsv"
        else json.dumps({"image": "one.png", "caption": text}) + "\n"
    )
    ((name, source),) = chosen_splits(run, "test", [path]).items()
    assert isinstance(source, TsvSource if kind == "tsv" else JsonlSource)
    assert evaluate(run, name, source).scores[0].counts["sentences"] == 1


def test_a_users_own_folder_is_scored(run, tmp_path):
    album(tmp_path / "album", 3)
    ((name, source),) = chosen_splits(run, "test", [tmp_path / "album"]).items()
    assert isinstance(source, CaptionedFolderSource)
    scores = evaluate(run, name, source).scores
    assert [score.counts["sentences"] for score in scores[:4]] == [3] * 4
    assert all("nrefs:2" in score.signature for score in scores[:4])


def test_n_best_sampling_and_attention(run, folder):
    path = str(folder / "images" / "test0.png")
    (first,) = run.predict([path], beam=3, n_best=3, attention=True)
    assert len(first.alternatives) == 2
    assert first.grid == (2, 2)
    assert len(first.attention[0][0][0]) == 4
    with pytest.raises(RequestError, match="set beam to 1"):
        run.stream(path, beam=3)
    assert "".join(run.stream(path, beam=1)) == run.predict([path], beam=1)[0].text


# Several captions of an image ---------------------------------------------------------------------------


class Saying(Run):
    """A run that says what it is told to, and notes how often it is asked."""

    said, asked = (), 0

    def predictor(self, **how):
        return self

    def predict(self, inputs):
        self.asked += len(inputs)
        return [Prediction(text) for text, _ in zip(self.said, inputs, strict=True)]


def table(folder, *rows):
    """A data set of these rows, with images of the run's folder."""
    (folder / "several.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"image": "image", "caption": "caption"}
    return JsonlSource(paths=str(folder / "several.jsonl"), columns=columns)


def saying(run, *said):
    found = Saying(run.folder, run.task, run.model)
    found.said = said
    return found


def rows_of_two():
    """Three captions of an image, around one of another."""
    first, second = "images/test0.png", "images/test1.png"
    texts = [(first, "red above blue"), (second, "all green"), (first, "blue above green here"), (first, " ")]
    return [{"image": image, "caption": text} for image, text in texts]


def test_an_image_is_written_for_once_and_scored_against_all_of_its_captions(run, folder):
    hypotheses = ["red above blue above green", "all green"]
    asked = saying(run, *hypotheses)
    found = evaluate(asked, "several", table(folder, *rows_of_two()))
    assert asked.asked == 2
    streams = [["red above blue", "all green"], ["blue above green here", None]]
    scores = {score.name: score for score in found.scores}
    assert scores["BLEU"].value == corpus_bleu(hypotheses, streams).score
    assert scores["chrF2"].value == corpus_chrf(hypotheses, streams).score
    assert scores["TER"].value == corpus_ter(hypotheses, streams).score
    assert (scores["exact match"].value, scores["exact match"].signature) == (0.5, "nrefs:var|case:mixed")
    assert scores["BLEU"].counts["sentences"] == 2
    assert scores["perplexity"].counts["sentences"] == 3
    first, second = found.rows()
    assert first["target"] == ["red above blue", "blue above green here"]
    assert (second["target"], second["output"]) == (["all green"], "all green")
    # Of its words 4/5, clipped to one reference each, of pairs 4/4, of triples 2/3, of fours 0/2 (as 1/4).
    assert first["scores"]["BLEU"] == pytest.approx(100 * (4 / 5 * 4 / 4 * 2 / 3 * 1 / 4) ** (1 / 4))


def test_images_without_a_path_are_one_where_they_are_alike():
    """Arrays and bytes, as other libraries give them; two files are two images, whatever they hold."""
    black, white = np.zeros((3, 3), np.uint8), np.full((3, 3), 255, np.uint8)
    given = [black, white, b"bytes", black.copy(), b"bytes", Path("a.png"), Path("b.png"), Path("a.png")]
    rows = [
        LocatedRow({"image": LazyImage.of(image), "caption": str(n)}, Location("t", n))
        for n, image in enumerate(given, 1)
    ]
    found = [(row.row["caption"], row.location.line) for row in group_by_image(rows)]
    assert found == [(["1", "4"], 1), (["2"], 2), (["3", "5"], 3), (["6", "8"], 6), (["7"], 7)]


def test_exact_matches_and_limits_count_images(run, folder):
    source = table(folder, *rows_of_two())
    found = evaluate(saying(run, "blue above green here"), "several", source, EvaluationOptions(limit=1))
    scores = {score.name: score for score in found.scores}
    assert scores["exact match"].value == 1
    assert scores["BLEU"].value == pytest.approx(100)
    assert [len(row["target"]) for row in found.rows()] == [2]


def test_the_perplexity_is_that_of_all_captions(run, folder):
    """So it is that of the same rows as if each had an image of its own."""
    rows = rows_of_two()[:3]
    together = evaluate(saying(run, "", ""), "several", table(folder, *rows))
    (folder / "images" / "copy.png").write_bytes((folder / "images" / "test0.png").read_bytes())
    apart = [*rows[:2], {**rows[2], "image": "images/copy.png"}]
    apart = evaluate(saying(run, "", "", ""), "several", table(folder, *apart))
    one, other = ({s.name: s.value for s in found.scores}["perplexity"] for found in (together, apart))
    assert one == pytest.approx(other, rel=1e-6)


def test_a_list_of_references_is_as_good_as_rows(run, folder):
    source = table(folder, *rows_of_two())
    rows = evaluate(saying(run, "red", "green"), "several", source)
    texts = ["red above blue", "blue above green here"]
    lists = [
        {"image": "images/test0.png", "texts": texts},
        {"image": "images/test1.png", "texts": ["all green"]},
    ]
    source = table(folder, *lists)
    columns = {"image": "image", "caption": "texts.0"}
    source = source.model_copy(update={"columns": columns, "lists": {"references": "texts"}})
    assert evaluate(saying(run, "red", "green"), "several", source).scores == rows.scores


def test_images_without_a_caption_are_not_scored(run, folder):
    rows = [*rows_of_two(), {"image": "images/test2.png", "caption": ""}]
    found = evaluate(saying(run, "a", "b"), "several", table(folder, *rows))
    dropped, unknown = found.notes
    assert dropped == f"dropped, empty caption: 1 ({folder}/several.jsonl:5)"
    assert re.match(r"2 of 9 caption words \(22\.2%\) are unknown to this run \(the first: 'here'\)", unknown)
    assert [score.counts["empty caption"] for score in found.scores] == [1] * len(found.scores)
    filter = run.recipe.data.filter.model_copy(update={"empty": "error"})
    data = run.recipe.data.model_copy(update={"filter": filter})
    strict = Run(
        run.folder, Captioning(run.recipe.model_copy(update={"data": data}), run.processor), run.model
    )
    with pytest.raises(DataError, match=r"several.jsonl:5: caption is empty"):
        evaluate(strict, "several", table(folder, *rows))
    with pytest.raises(DataError, match="no rows left after filtering"):
        evaluate(run, "several", table(folder, rows[-1]))


def test_validation_writes_for_each_image_once(tmp_path):
    album(tmp_path / "album", 6)
    (tmp_path / "train.jsonl").touch()
    source = {"kind": "captioned-folder", "path": "album"}
    into(
        tmp_path,
        data={"train": source, "valid": source, "test": {}},
        training={"max_updates": 3},
        validation={"decode": None},
    )
    run = load(tmp_path / "run", device="cpu")
    (validated,) = [x for x in read_metrics(tmp_path / "run" / "metrics.jsonl") if x["event"] == "validated"]
    found = evaluate(run, "valid", run.recipe.data.valid, EvaluationOptions(decoding=GreedyConfig()))
    scores = {score.name: score.value for score in found.scores}
    assert validated["metrics"]["bleu"] == scores["BLEU"]
    assert validated["metrics"]["chrf"] == scores["chrF2"]
    assert validated["metrics"]["perplexity"] == pytest.approx(scores["perplexity"], rel=1e-4)


def test_validations_decode_the_first_images_that_can_be_read(tmp_path):
    write(tmp_path)
    for i in range(2):
        (tmp_path / "images" / f"valid{i}.png").write_text("not an image")
    dropping = {"data": {"filter": {"unreadable": "drop"}}, "training": {"max_updates": 3}}
    into(tmp_path, validation={"decode": 2}, **dropping)
    events = read_metrics(tmp_path / "run" / "metrics.jsonl")
    (validated,) = [event for event in events if event["event"] == "validated"]
    run = load(tmp_path / "run", device="cpu")
    rows = [json.loads(line) for line in (tmp_path / "valid.jsonl").read_text().splitlines()]
    scores = evaluate(run, "t", table(tmp_path, *rows[2:4]), EvaluationOptions(decoding=GreedyConfig()))
    assert validated["metrics"]["bleu"] == scores["BLEU"].value


# Bad input -------------------------------------------------------------------------------------------------


def test_an_unreadable_image_is_named_or_skipped_as_asked(tmp_path):
    write(tmp_path)
    (tmp_path / "images" / "train3.png").write_text("not an image")
    with pytest.raises(DataError, match=r"data.train: train.jsonl:4: images/train3.png: not an image"):
        into(tmp_path)
    into(tmp_path, data={"filter": {"unreadable": "drop"}})
    report = json.loads((tmp_path / "run" / "data.json").read_text())["train"]
    assert (report["rows"], report["kept"]) == (N["train"], N["train"] - 1)
    assert report["dropped"]["unreadable"]["examples"] == ["train.jsonl:4"]


def test_an_unreadable_image_of_a_test_set_is_named(run, tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"image": "gone.png", "caption": "red above blue"}) + "\n")
    ((name, source),) = chosen_splits(run, "test", [path]).items()
    with pytest.raises(DataError, match=r"own.jsonl: gone.png: no such file"):
        evaluate(run, name, source)


def test_unreadable_images_of_a_test_set_are_left_out_where_the_recipe_drops_such(folder, run):
    lines = [json.dumps({"image": p, "caption": "red above blue"}) for p in ("gone.png", "images/test0.png")]
    (folder / "some.jsonl").write_text("\n".join(lines) + "\n")
    ((name, source),) = chosen_splits(run, "test", [folder / "some.jsonl"]).items()
    filter = run.recipe.data.filter.model_copy(update={"unreadable": "drop"})
    data = run.recipe.data.model_copy(update={"filter": filter})
    dropping = Run(
        run.folder, Captioning(run.recipe.model_copy(update={"data": data}), run.processor), run.model
    )
    found = evaluate(dropping, name, source)
    assert found.notes == (f"dropped, unreadable: 1 ({folder}/some.jsonl:1)",)
    assert [score.counts["unreadable"] for score in found.scores] == [1] * len(found.scores)
    assert [row["input"]["image"] for row in found.rows()] == ["images/test0.png"]
    (folder / "some.jsonl").write_text(lines[0] + "\n")
    with pytest.raises(DataError, match=r"some.jsonl: gone.png: no such file"):
        evaluate(dropping, name, source)


@pytest.mark.parametrize(
    "sections, message",
    [
        ({"model": {"patch_size": 5}}, "patch_size must divide image_size=12, got 5"),
        ({"model": {"positions": "learned", "max_length": 9}}, "max_length to at most 8"),
        ({"data": {"filter": {"max_ratio": 3}}}, "max_ratio is not supported here"),
        ({"training": {"metric": "bleu", "direction": "lower"}}, "for which higher is better"),
        ({"validation": {"decode": 0}, "training": {"metric": "bleu"}}, "validation.decode"),
        ({"model": {"kind": "vision"}}, "captioner"),
    ],
)
def test_recipes_that_cannot_work_are_refused(sections, message):
    with pytest.raises(RequestError, match=message):
        recipe(**sections)


def test_the_filter_is_of_captions_alone():
    lengths = recipe(data={"filter": {"max_length": 7}}).data.filter.caption_filter
    assert (lengths.limit("caption"), lengths.limit("image")) == (7, None)
    assert recipe().data.filter.caption_filter.limit("caption") is None


# Convolutional encoders ------------------------------------------------------------------------------------

_GRID = {"kind": "resnet", "n_blocks": [1, 1], "width": 8, "n_groups": 4, "root_kernel": 3, "root_stride": 1}
_GRID |= {"root_pool": False}
CELLS = {"encoder": _GRID}
LSTM = {"kind": "recurrent-captioner", "image_size": 12, "encoder": _GRID, "d_embedding": 13, "d_hidden": 17}
convolutional = pytest.mark.parametrize("model", [CELLS, LSTM], ids=["captioner", "recurrent-captioner"])


def into_with(folder, out, model, *, resume=False, **sections):
    """Train the plain recipe with these changes of its model, or another model."""
    settings = {key: section for key, section in plain(**sections).items() if section is not None}
    settings["model"] = model if "kind" in model else merged(settings["model"], model)
    (folder / f"{out}.yaml").write_text(dump_yaml(settings))
    return train_run(read_recipe(str(folder / f"{out}.yaml"))[0], folder / out, device="cpu", resume=resume)


@pytest.mark.slow
@convolutional
def test_a_convolutional_captioner_resumes_and_another_starts_from_it(tmp_path, model):
    write(tmp_path)
    into_with(tmp_path, "straight", model)
    into_with(tmp_path, "stopped", model, training={"max_updates": 3})
    into_with(tmp_path, "stopped", model, resume=True)
    straight, again = (load(tmp_path / name, device="cpu") for name in ("straight", "stopped"))
    for one, other in zip(straight.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)
    start = {"run": "straight", "frozen": "encoder"}
    into_with(tmp_path, "begun", {"kind": straight.recipe.model.kind}, start=start, tokenizer=None)
    begun = load(tmp_path / "begun", device="cpu")
    assert begun.recipe.model == straight.recipe.model
    weights = straight.model.state_dict()
    encoder = {name for name in weights if name.startswith(("source_embedding.", "encoder."))}
    kept = {name for name, x in begun.model.state_dict().items() if torch.equal(x, weights[name])}
    assert encoder
    assert encoder <= kept < weights.keys()


@pytest.mark.slow
@convolutional
def test_captions_of_a_convolutional_captioner_align_with_its_cells(tmp_path, model):
    write(tmp_path)
    into_with(tmp_path, "run", model)
    run = load(tmp_path / "run", device="cpu")
    assert run.recipe.model.grid == (6, 6)
    images = [tmp_path / "images" / f"test{i}.png" for i in range(3)]
    predictions = run.predict(images, attention=True, beam=3)
    alone = [run.predict([image], beam=3)[0] for image in images]
    assert [p.text for p in predictions] == [p.text for p in alone]
    for prediction in predictions:
        weights = np.asarray(prediction.attention)
        assert prediction.grid == (6, 6)
        assert weights.shape == (1, 1 if "kind" in model else 3, len(prediction.tokens) + 1, 36)
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert "fp32 on the plain path (unsupported" in run.inference().description
    assert [p.error for p in run.predict(images, precision="bf16")] == [None] * 3
    with pytest.raises(RequestError, match="precision int8 needs the native engine"):
        run.predict(images, precision="int8")
    found = evaluate(run, "test", run.recipe.data.test["test"])
    assert [score.name for score in found.scores][:4] == ["BLEU", "chrF2", "TER", "exact match"]


@pytest.mark.slow
def test_a_larger_image_has_a_table_of_places_between_those_of_a_smaller_one(tmp_path):
    """As ViT's: positions of cells are resized where a captioner starts from one of smaller images."""
    write(tmp_path)
    into_with(tmp_path, "small", CELLS)
    old = load(tmp_path / "small", device="cpu").model.source_embedding.positions.positions.weight
    larger = {"kind": "captioner", "image_size": 20}
    into_with(tmp_path, "large", larger, start={"run": "small", "frozen": "encoder"}, tokenizer=None)
    new = load(tmp_path / "large", device="cpu").model.source_embedding.positions.positions.weight
    grid = old.detach().T.reshape(1, 12, 6, 6)
    wanted = torch.nn.functional.interpolate(grid, size=(10, 10), mode="bicubic", align_corners=False)
    torch.testing.assert_close(new.detach(), wanted.reshape(12, 100).T, rtol=0, atol=1e-6)


# The ledger and the built-in scenes -----------------------------------------------------------------------


@pytest.mark.parametrize("name, d_network", [("captioner-resnet", 256), ("show-attend-tell-mini", 256)])
def test_a_ledger_counts_cells_as_source_tokens(name, d_network):
    ledger = describe(name, vocab_size=100, length=11)
    assert (ledger.source_length, ledger.target_length) == (36, 11)
    assert "an image becomes 36 cells: they are the source tokens" in ledger.notes
    cells = {"captioner-resnet": "cells", "show-attend-tell-mini": "W_k of the score"}[name]
    line = next(row.line for row in ledger.lines() if row.line.name == cells)
    assert line.flops == 2 * 36 * d_network * 128


def test_a_ledger_counts_patches_as_source_tokens():
    ledger = describe("captioner-mini", vocab_size=100, length=11)
    assert ledger.parameters == 692_352 + 100 * 128
    assert (ledger.source_length, ledger.target_length) == (36, 11)
    assert "an image becomes 36 patches: they are the source tokens" in ledger.notes
    assert describe("captioner-mini", vocab_size=100, source_length=5).source_length == 36  # of any image
    patches = next(row.line for row in ledger.lines() if row.line.name == "patches")
    assert patches.flops == 2 * 36 * 192 * 128


def test_scenes_are_read_by_a_recipe(tmp_path):
    parts = {"train": ("train", 23), "valid": ("valid", 5), "test": ("test", 3)}
    sources = {
        name: {"kind": "built-in", "name": "scenes", "split": split, "limit": n}
        for name, (split, n) in parts.items()
    }
    data = {"train": sources["train"], "valid": sources["valid"], "test": {"test": sources["test"]}}
    model = {"image_size": 48, "patch_size": 8}
    settings = recipe(data=data, model=model).model_copy(update={"root": str(tmp_path)})
    train_run(settings, tmp_path / "run", device="cpu")
    run = load(tmp_path / "run", device="cpu")
    found = evaluate(run, "test", run.recipe.data.test["test"])
    rows = [*found.rows()]
    assert [row["target"] for row in rows] == [[caption(scene("test", n))] for n in range(3)]
    predictions = run.predict([pixels(scene("test", n)) for n in range(3)])
    assert [row["output"] for row in rows] == [each.text for each in predictions]
