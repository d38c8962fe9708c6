"""What is found before torch is imported: files that are missing or cannot be read, malformed overrides."""

import subprocess
import sys

import pytest

from heedful.errors import DataError
from heedful.runs.required_files import check_before_imports

RECIPE = """\
task: {kind: translation}
data:
  train: {kind: files, columns: {source: train.src, target: train.tgt}}
  valid: {kind: chain, sources: [{kind: tsv, paths: valid.tsv, columns: {source: 0, target: 1}},
    {kind: built-in, name: phrasebook-de, split: valid}]}
  test: {news: {kind: jsonl, paths: news.jsonl, columns: {source: s, target: t}}}
model: {preset: transformer-tiny}
"""
FILES = ("train.src", "train.tgt", "valid.tsv", "news.jsonl")


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "r.yaml").write_text(RECIPE)
    for name in FILES:
        (tmp_path / name).write_text("x\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "key"),
    [("train.src", "data.train"), ("valid.tsv", "data.valid"), ("news.jsonl", "data.test.news")],
)
def test_a_missing_file_is_named_with_its_key(corpus, name, key):
    check_before_imports(str(corpus / "r.yaml"), [])
    (corpus / name).unlink()
    with pytest.raises(DataError, match=rf"^{key}: {corpus / name}: no such file"):
        check_before_imports(str(corpus / "r.yaml"), [])


def test_relative_paths_start_at_the_root(corpus, monkeypatch):
    monkeypatch.chdir(corpus / "..")
    (corpus / "deep").mkdir()
    (corpus / "deep" / "r.yaml").write_text(RECIPE)
    with pytest.raises(DataError, match=r"^data\.train: .*/deep/train\.src: no such file"):
        check_before_imports(str(corpus / "deep" / "r.yaml"), [])
    check_before_imports(str(corpus / "deep" / "r.yaml"), [f"root={corpus.name}"])


@pytest.mark.parametrize(
    "override", ["data.train.kind=filez", "data.train.columnz=3", "data=3", "data.test=3"]
)
def test_sources_that_are_not_valid_are_left_to_the_validation(corpus, override):
    check_before_imports(str(corpus / "r.yaml"), [override])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.yaml"], "none.yaml: no such file"),
        (["phrasebok-de"], "did you mean 'phrasebook-de'?"),
        (["r.yaml", "training.seed"], "expected KEY=VALUE; write training.seed=VALUE"),
        (["syntax.yaml"], "syntax.yaml:1:14: "),
        (["r.yaml", "data.train.columns.source=none.src"], "none.src: no such file"),
    ],
)
def test_these_mistakes_do_not_wait_for_torch(corpus, arguments, message):
    (corpus / "syntax.yaml").write_text("model: {a: [1}\n")
    code = (
        "import sys\nfrom heedful.cli.main import main\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, "train", *arguments]
    done = subprocess.run(command, cwd=corpus, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "False\n")
    assert message in done.stderr
