"""What an explanation was made with: in every form of file, without dates or paths, the same each time."""

import csv
import hashlib
import html
import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from matplotlib.image import imread
from PIL import Image
from typer.testing import CliRunner

from heedful import __version__
from heedful.cli.main import app

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "explanation.schema.json"
SUFFIXES = [".html", ".json", ".png", ".svg", ".csv"]
VIEW = ["--view", "replacement", "--kind", "none"]


def write(run, given, out, *options):
    arguments = ["explain", str(run.folder.path), given, *options, "--device", "cpu", "--out", str(out)]
    outcome = CliRunner().invoke(app, arguments)
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return out.read_bytes()


def weights_of(run):
    return hashlib.sha256((run.folder.path / "weights.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["classification", "translation"])
def test_every_file_names_the_model_and_is_the_same_each_time(explained, tmp_path, name, suffix):
    run, given = explained(name)
    written = write(run, given, tmp_path / f"one{suffix}", *VIEW)
    assert written == write(run, given, tmp_path / f"other{suffix}", *VIEW)
    if suffix == ".png":
        text = Image.open(tmp_path / "one.png").text["Description"]
        assert imread(tmp_path / "one.png").ndim == 3
    else:
        text = html.unescape(written.decode("utf-8"))
    assert weights_of(run)[:12] in text
    if suffix != ".csv":
        assert weights_of(run) in text
        assert __version__ in text
        assert "replacement" in text
    assert str(run.folder.path) not in text
    assert not re.search(r"20\d\d-\d\d-\d\d", text.replace("2020-12", ""))


@pytest.mark.parametrize("name", ["classification", "translation", "images", "language model"])
def test_the_settings_are_those_of_the_explanation(explained, name):
    run, given = explained(name)
    seen = run.explain(
        given, layers=[1], kinds=["self"] if name != "language model" else None, views=["losses"]
    )
    provenance = json.loads(json.dumps(seen.provenance))
    schema = json.loads(SCHEMA.read_text("utf-8"))
    Draft202012Validator({**schema["properties"]["provenance"], "$defs": schema["$defs"]}).validate(
        provenance
    )
    settings = provenance["settings"]
    assert (settings["views"], settings["layers"]) == (["losses"], [2])
    assert settings["precision"] == "float32"
    assert ("decoding" in settings) == run.task.info.generates
    assert provenance["files"]["recipe.yaml"] == run.folder.read_card()["files"]["recipe.yaml"]["sha256"]


def test_a_given_answer_and_further_inputs_are_named(explained):
    run, given = explained("classification")
    label = run.predict([given])[0].text
    seen = run.explain(given, target=label, views=["distances"], others=[given, given])
    settings = seen.provenance["settings"]
    assert (settings["target"], settings["inputs"]) == (label, 3)


def test_the_page_names_a_hostile_run_and_answer_as_text(explained, tmp_path):
    run, given = explained("translation")
    target = "<b>RED</b>"
    written = write(run, given, tmp_path / "x.html", "--target", target, *VIEW).decode("utf-8")
    assert "target: &lt;b&gt;RED&lt;/b&gt;" in written
    assert target not in written.partition("<script")[0]


def test_a_table_has_probabilities_and_the_weights(explained, tmp_path):
    run, given = explained("classification")
    write(run, given, tmp_path / "words.csv", "--view", "occlusion")
    with (tmp_path / "words.csv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    (prediction,) = run.predict([given])
    for row in rows:
        assert float(row["probability"]) == pytest.approx(prediction.confidence, abs=2e-6)
        assert row["weights"] == weights_of(run)[:12]


@pytest.mark.parametrize("name", ["translation", "regression", "sets of labels", "tagging"])
def test_probabilities_are_those_of_predictions(explained, name):
    run, given = explained(name)
    seen = run.explain(given, kinds=[], views=["occlusion"])
    found = {(row["about"], row["answer"]): row["probability"] for row in seen.word_scores("occlusion")}
    (prediction,) = run.predict([given])
    if name == "regression":
        assert {*found.values()} == {None}
    elif name == "sets of labels":
        wanted = {("", label): p for label, p in prediction.label_probabilities().items()}
        assert found == pytest.approx({key: wanted[key] for key in found}, abs=2e-6)
    else:
        assert all(0 <= p <= 1 for p in found.values())


def test_an_image_names_its_input_and_not_the_path_of_an_image(explained, tmp_path):
    run, given = explained("classification")
    written = write(run, given, tmp_path / "x.svg", "--view", "occlusion")
    assert json.dumps(given).encode() in html.unescape(written.decode("utf-8")).encode()
    images, pixels = explained("images")
    Image.fromarray(pixels).save(tmp_path / "given.png")
    text = write(images, str(tmp_path / "given.png"), tmp_path / "y.svg", "--view", "occlusion").decode(
        "utf-8"
    )
    assert "given.png" in text
    assert str(tmp_path) not in text
