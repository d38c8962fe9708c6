"""The command on runs of other tasks than translation: pictures, pairs, models without attention."""

import json

import numpy as np
import pytest
from matplotlib.image import imread
from PIL import Image
from typer.testing import CliRunner

from heedful.cli.main import app
from heedful.errors import RequestError


@pytest.fixture
def command(explained):
    """The standard output of the command for a run; its errors are raised."""

    def call(name, *arguments):
        run, _ = explained(name)
        given = ["explain", str(run.folder.path), *map(str, arguments), "--device", "cpu"]
        outcome = CliRunner().invoke(app, given)
        if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
            raise outcome.exception
        assert outcome.exit_code == 0
        return outcome.stdout

    return call


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "p.png"
    Image.fromarray(np.random.default_rng(3).integers(0, 256, (6, 6), dtype=np.uint8)).save(path)
    return path


@pytest.mark.parametrize("name", ["pictures", "pictures without class token", "captions"])
def test_pictures_are_given_by_their_paths(command, explained, picture, tmp_path, name):
    out = tmp_path / "x.png"
    found = json.loads(command(name, picture, "--json", "--out", out))
    assert found["input"] == str(picture)
    (prediction,) = explained(name)[0].predict([picture])
    assert found["answer"]["text"] == prediction.text
    assert imread(out).shape[2] == 4


def test_pairs_stand_behind_a_tab_or_an_option(command):
    both = json.loads(command("pairs", "the cat\ta dog", "--json"))
    assert both == json.loads(command("pairs", "the cat", "--pair", "a dog", "--json"))
    assert both["input"] == ["the cat", "a dog"]
    with pytest.raises(RequestError, match="reads 2 texts together"):
        command("pairs", "the cat")


def test_words_or_tokens_are_shown_with_what_they_look_at(command, explained):
    run, given = explained("classification")
    lines = command("classification", given).splitlines()
    assert lines[0] == f"classification: {run.predict([given])[0].text}"
    assert "self-attention: mean of 2 layers, 3 heads" in lines
    rows = [line.split()[0] for line in lines if "→" in line]
    assert rows == ["<cls>", *given.split(), "<sep>"]
    pieces = [
        line.split()[0] for line in command("classification", given, "--tokens").splitlines() if "→" in line
    ]
    assert pieces == ["<cls>", *run.codec.tokenizer.tokens(run.codec.tokenizer.encode(given)), "<sep>"]


@pytest.mark.parametrize(
    ("name", "given"), [("fourier", "the cat"), ("recurrent without attention", "red dog")]
)
def test_a_model_without_attention_has_its_views(command, name, given):
    with pytest.raises(RequestError, match="has no attention weights to look at; it has the views"):
        command(name, given)
    assert "gradient x input" in command(name, given, "--view", "gradients")
    with pytest.raises(RequestError, match="has no attention weights"):
        command(name, given, "--kind", "self", "--view", "gradients")


def test_losses_of_a_prompt_are_in_brackets(command, explained):
    run, given = explained("language model")
    shown = command("language model", given, "--view", "losses")
    tokens = run.codec.text.tokens(run.codec.text.encode(given))
    for token in tokens[1:]:
        assert f"({token})" in shown


def test_what_looks_at_what_is_drawn_by_words(command, tmp_path):
    command("tagging", "the dog sat", "--out", tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_text("utf-8").startswith("<?xml")
