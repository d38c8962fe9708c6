"""``heedful explain`` by the real command: what is printed, what is written, and refusals."""

import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from heedful.api.run import load
from heedful.explain.alignment.best_head import store_best_head
from heedful.explain.alignment.word_alignment import HeadChoice
from heedful.explain.capture import explain_input
from heedful.explain.summary import summary_matrix, word_alignment


def ok(done):
    assert done.status == 0, done.err
    return done


@pytest.mark.parametrize("name", ["transformer", "recurrent"])
def test_a_translation_is_shown_with_its_alignment(heedful, name, tmp_path, request):
    run, text = request.getfixturevalue(name), {"transformer": "red dog runs", "recurrent": "abcd"}[name]
    done = ok(heedful("explain", run, text, cwd=tmp_path))
    (predicted,) = ok(heedful("predict", run, cwd=tmp_path, stdin=text + "\n")).out.splitlines()
    assert done.out.startswith(f"translation: {predicted}\n")
    own = word_alignment(summary_matrix(explain_input(load(run, device="cpu"), text)))
    (by,) = re.findall(r"^cross-attention: (.*)$", done.out, re.MULTILINE)
    assert f"word alignment by attention, {by}: {own}".rstrip() in done.out
    assert "cross-attention: " in done.out
    for word in text.split():
        assert word in done.out


def test_one_layer_and_head_by_their_numbers(heedful, transformer, tmp_path, published):
    options = ["--kind", "cross", "--layer", "1", "--head", "2", "--json"]
    found = ok(heedful("explain", transformer, "red dog", *options, cwd=tmp_path)).json()
    published("explanation", found)
    ((own,), seen) = found["maps"], explain_input(load(transformer, device="cpu"), "red dog")
    assert (own["kind"], own["layer"], own["heads"]) == ("cross", 0, [1])
    np.testing.assert_allclose(own["weights"][0], seen.map("cross", 0).head(1), atol=1e-5)
    shown = ok(heedful("explain", transformer, "red dog", *options[:-1], cwd=tmp_path)).out
    assert "cross-attention: layer 1, head 2" in shown


def test_standard_input_is_an_input(heedful, transformer, tmp_path):
    given = ok(heedful("explain", transformer, "red dog", "--json", cwd=tmp_path)).json()
    assert ok(heedful("explain", transformer, "-", "--json", cwd=tmp_path, stdin="red dog\n")).json() == given
    done = heedful("explain", transformer, "-", cwd=tmp_path, stdin=b"\xff")
    assert (done.status, done.err) == (
        2,
        "heedful: standard input:1: byte 1 of the line is not UTF-8; convert it to UTF-8\n",
    )


def test_a_target_is_looked_at_and_views_are_added(heedful, transformer, tmp_path, published):
    options = ["--target", "DOG RED", "--view", "losses", "--view", "lens", "--view", "gradients"]
    found = ok(heedful("explain", transformer, "red dog", *options, "--json", cwd=tmp_path)).json()
    published("explanation", found)
    assert found["answer"]["output"] == "DOG RED"
    assert found["more"].keys() == {"losses", "lens", "gradients"}
    shown = ok(heedful("explain", transformer, "red dog", *options, cwd=tmp_path)).out
    assert "(given, not predicted by the model)" in shown
    assert f"perplexity {found['more']['losses']['perplexity']:.4g}" in shown
    assert "Gradient \N{MULTIPLICATION SIGN} input of the source" in shown
    assert "Logit lens: most probable answer at each depth" in shown


def test_a_trained_run_has_a_census(heedful, transformer, tmp_path, published):
    """Over lines of a file: the table, the same numbers as data, and the drawing."""
    (tmp_path / "lines.txt").write_text("red dog runs\nblue cat sleeps\ngreen bird eats\n", "utf-8")
    options = ["--inputs", "lines.txt", "--view", "census"]
    shown = ok(heedful("explain", transformer, *options, cwd=tmp_path))
    assert "explaining 3 inputs" in shown.err
    assert "Census of 6 heads over 3 inputs" in shown.out
    found = ok(heedful("explain", transformer, *options, "--json", "--out", "x.svg", cwd=tmp_path)).json()
    published("explanation", found)
    heads = found["more"]["census"]["heads"]
    assert [(head["kind"], head["layer"], head["head"]) for head in heads] == [
        (kind, 0, head) for kind in ("self", "causal", "cross") for head in (0, 1)
    ]
    table = shown.out[shown.out.index("Each head") :].split("\n\n")[0]
    rows = [line.split() for line in table.splitlines()[2:]]
    assert [row[:2] for row in rows] == [
        [f"{head['layer'] + 1}.{head['head'] + 1}", head["kind"]] for head in heads
    ]
    for row, head in zip(rows, heads, strict=True):
        assert row[2] == head["pattern"].split()[0].replace("fixed", "position")
    assert (tmp_path / "x.svg").read_bytes().startswith(b"<?xml")


def test_lines_may_come_from_standard_input(heedful, transformer, tmp_path):
    given = ["explain", transformer, "--inputs", "-", "--view", "distances", "--json"]
    found = ok(heedful(*given, cwd=tmp_path, stdin="red dog\n\nblue cat\n")).json()
    assert (found["input"], found["more"]["distances"]["inputs"]) == ("red dog", 2)


def test_the_head_that_aligns_best_is_shown_first(heedful, transformer, tmp_path):
    """Once gold alignments have chosen it."""
    run = load(shutil.copytree(transformer, tmp_path / "own"), device="cpu")
    given = ["explain", "own", "red dog"]
    assert "cross-attention: mean of" in ok(heedful(*given, cwd=tmp_path)).out
    assert store_best_head(run, [SimpleNamespace(choice=HeadChoice(0, 1), rate=0.5)], 3)
    assert "cross-attention: layer 1, head 2 (best known alignment)" in ok(heedful(*given, cwd=tmp_path)).out
    own = explain_input(run, "red dog").map("cross", 0)
    found = ok(heedful(*given, "--json", cwd=tmp_path)).json()
    assert found["best"] == {"tap": own.tap, "head": 1, "step": "output"}
    assert "best known alignment" not in ok(heedful(*given, "--layer", "1", cwd=tmp_path)).out


def test_files_are_written_in_the_form_of_their_names(heedful, transformer, tmp_path):
    for name, begins in (("x.png", b"\x89PNG"), ("x.svg", b"<?xml"), ("x.json", b'{"version": 3')):
        done = ok(heedful("explain", transformer, "red dog", "--out", name, cwd=tmp_path))
        assert (tmp_path / name).read_bytes().startswith(begins)
        assert f"wrote {name}" in done.err
    printed = ok(heedful("explain", transformer, "red dog", "--json", cwd=tmp_path)).out
    assert (tmp_path / "x.json").read_text("utf-8") == printed


def refused(done, *messages, status=2):
    assert done.status == status, done.err
    assert "Traceback" not in done.err
    for message in messages:
        assert message in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["red", "--out", "x.pdf"],
            "--out x.pdf: file name must end in .html, .svg, .png, .json, .jsonl, .csv,",
        ),
        (["red", "--layer", "2"], "it must be between 1 and 1, got 2"),
        (["red", "--head", "3"], "it must be between 1 and 2, got 3"),
        (["red", "--kind", "croos"], "(did you mean 'cross'?)"),
        (["red", "--view", "loss"], "(did you mean 'losses'?)"),
        (["red", "--pair", "dog"], "reads a single text"),
        (["", "--json"], "the input must not be empty"),
        (["red dog", "--memory", "1e-7"], "raise the limit"),
        (
            ["red dog", "--limit", "3"],
            "of attention weights, --memory GIB",
        ),
        (["red", "--decoding", "kind=best"], "decoding"),
        (["red dog " * 70, "--out", "x.png"], "write .html or .json, or shorten the input"),
        (["red", "--out", "none/x.json"], "none/x.json: cannot be written"),
    ],
)
def test_wrong_requests_are_told(heedful, transformer, tmp_path, arguments, message):
    refused(heedful("explain", transformer, *arguments, cwd=tmp_path), message)
    assert not list(tmp_path.iterdir())


def test_what_is_no_run(heedful, tmp_path):
    refused(heedful("explain", "none", "red", cwd=tmp_path), "none: no such run")


def test_a_page_is_what_the_page_maker_gives(transformer, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from heedful.cli.main import app
    from heedful.explain.page import build

    def titled(seen, exact):
        return f"<!doctype html>\n<title>{seen.run} {len(seen.maps)}</title>\n"

    monkeypatch.setattr(build, "page", titled)
    out = tmp_path / "x.html"
    outcome = CliRunner().invoke(app, ["explain", str(transformer), "red", "--out", str(out)])
    assert outcome.exit_code == 0
    assert out.read_text("utf-8") == "<!doctype html>\n<title>run 3</title>\n"
