"""``heedful demo`` as a person meets it: trained, found again, and finished after an interruption."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from matplotlib.image import imread
from typer.testing import CliRunner

from heedful.cli.main import app
from heedful.data.corpora.phrasebook import LECTURE_SENTENCE, phrasebook
from heedful.explain.drawing.terminal import ASCII, COLOUR, SHADES

pytestmark = pytest.mark.slow

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "demo.schema.json"


def command(folder, *arguments):
    """The command in a process of its own, where every warning is an error."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", "import heedful.cli.main as m; m.main()", *arguments],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """What came of the first time, and the run's folder."""
    folder = tmp_path_factory.mktemp("demo")
    done = command(folder, "demo", "--quick", "--device", "cpu")
    return done, folder / "runs" / "demo-ta-quick"


def again(run, *options):
    outcome = CliRunner().invoke(app, ["demo", "--quick", "--out", str(run), "--device", "cpu", *options])
    assert outcome.exception is None, outcome.exception
    return outcome


def test_it_works_from_nothing(first):
    done, run = first
    assert done.returncode == 0, done.stderr
    assert (run / "run.json").is_file()
    assert "warning" not in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_results_go_to_standard_output_and_progress_to_standard_error(first):
    done, _ = first
    assert LECTURE_SENTENCE.source in done.stdout
    assert LECTURE_SENTENCE.target in done.stdout
    assert "update 20" in done.stderr
    assert "update 20" not in done.stdout
    assert "scores are not meaningful" in done.stdout
    assert "BLEU: nrefs:1|" in done.stdout
    assert SHADES.legend in done.stdout
    assert COLOUR.legend not in done.stdout
    assert ASCII.legend not in done.stdout


def test_it_fits_a_terminal(first):
    results = first[0].stdout.partition("Next steps")[0]
    assert max(map(len, results.splitlines())) <= 80


def test_the_image_is_one(first):
    image = imread(first[1] / "alignment.png")
    assert image.ndim == 3
    assert min(image.shape[:2]) > 200
    assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 9


def test_a_second_time_the_run_is_used_as_it_is(first):
    run = first[1]
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")}
    outcome = again(run, "--json")
    assert "reusing it" in outcome.stderr
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")} == before
    report = json.loads(outcome.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(report)
    assert report["beginning"] == "finished"
    test = phrasebook("ta", "test")[:40]
    assert [s["source"] for s in report["sentences"]] == [pair.source for pair in test]
    assert [s["reference"] for s in report["sentences"]] == [pair.target for pair in test]
    equal = sum(s["reference"] == s["translation"] for s in report["sentences"])
    assert report["exact"] == equal / 40
    baselines = [report["scores"][name][0]["value"] for name in ("phrase by phrase", "word by word")]
    assert baselines[0] > baselines[1] > 0


def test_the_matrix_is_the_attention_over_the_words(first):
    alignment = json.loads(again(first[1], "--json").stdout)["alignment"]
    assert alignment["source_words"] == [*LECTURE_SENTENCE.source.split(), "</s>"]
    assert alignment["target_words"] == [*alignment["translation"].split(), "</s>"]
    weights = np.array(alignment["weights"])
    assert weights.shape == (len(alignment["target_words"]), len(alignment["source_words"]))
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)


@pytest.mark.full
def test_an_interrupted_training_goes_on(first, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(first[1], run)
    weights = (run / "weights.safetensors").read_bytes()
    (run / "run.json").unlink()
    (run / "weights.safetensors").unlink()
    shutil.rmtree(run / "checkpoints" / "step-00000020")
    done = command(tmp_path, "demo", "--quick", "--out", "run", "--device", "cpu", "--json")
    assert done.returncode == 0, done.stderr
    assert "resuming after update 10" in done.stderr
    assert json.loads(done.stdout)["beginning"] == "interrupted"
    assert (run / "weights.safetensors").read_bytes() == weights


def test_another_run_is_not_touched(first):
    outcome = CliRunner().invoke(app, ["demo", "--language", "de", "--quick", "--out", str(first[1])])
    assert outcome.exit_code != 0
    assert "--out" in str(outcome.exception)
