"""Ensembles of runs: the mean of their probabilities, for every kind of model that generates text."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import heedful
from heedful.cli.main import app
from heedful.errors import RequestError

LAYER = {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 11}}
ROWS = [
    {"source": "a b c", "target": "x y z"},
    {"source": "c a", "target": "z x"},
    {"source": "b b a c", "target": "y y x z"},
] * 3
WORDS = {"tokenizer": {"subwords": {"kind": "word"}}}
MODELS = {
    "transformer": {"kind": "transformer", "d_model": 8, "n_layers": 2, "layer": LAYER},
    "recurrent": {"kind": "recurrent", "d_embedding": 7, "d_hidden": 8, "d_readout": 6},
    "language-model": {"kind": "language-model", "d_model": 8, "n_layers": 1, "context": 40, "layer": LAYER},
}
DATA = {
    part: {"kind": "jsonl", "paths": "x", "columns": {"source": "source", "target": "target"}}
    for part in ("train", "valid")
}
TEXTS = ["a b c", "c", "", "b a a b", "unknown a"]


@pytest.fixture(scope="module", params=MODELS)
def runs(request, make_run, tmp_path_factory):
    """Three runs with the same vocabulary and different weights."""
    folder = tmp_path_factory.mktemp(request.param)
    runs = []
    for seed in range(3):
        decoding = {"kind": "beam", "beam": 2, "max_length": {"cap": 9}}
        recipe = {
            "task": {"kind": "translation"},
            **WORDS,
            "model": MODELS[request.param],
            "decoding": decoding,
        }
        if request.param == "language-model":
            recipe["data"] = {**DATA, "filter": {"max_length": {"source": 19, "target": 19}}}
        path = make_run(folder / f"run{seed}", recipe, ROWS)
        run = heedful.load(path, device="cpu")
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in run.model.parameters():
                parameter += 0.5 * torch.randn(parameter.shape, generator=generator)
        runs.append(run)
    return runs


def mean_log_probs(runs, pair):
    """The logarithm of the mean of the probabilities of each token of a target."""
    each = np.array([run.score([pair])[0].log_probs for run in runs], dtype=np.float64)
    return np.log(np.exp(each).mean(axis=0))


@pytest.mark.parametrize("n", [2, 3])
def test_the_probability_of_a_token_is_the_mean_of_those_of_the_runs(runs, n):
    both = heedful.ensemble(runs[:n])
    pairs = [("a b c", "x y"), ("c", "z z z"), ("b a", "x")]
    for pair, scored in zip(pairs, both.score(pairs), strict=True):
        np.testing.assert_allclose(scored.log_probs, mean_log_probs(runs[:n], pair), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_answers_are_those_of_the_mean(runs, beam, precision):
    """Step by step with caches, as in one pass over the output."""
    both = heedful.ensemble(runs)
    tolerance = 1e-4 if precision == "fp32" else 0.15
    for text, answer in zip(TEXTS, both.predict(TEXTS, beam=beam, precision=precision), strict=True):
        if not text:
            assert answer.text == ""
            continue
        n = len(answer.tokens) + bool(answer.finished)
        expected = mean_log_probs(runs, (text, answer.text))
        np.testing.assert_allclose(answer.log_probs, expected[:n], rtol=tolerance, atol=tolerance)


def test_greedy_answers_are_the_most_probable_tokens(runs):
    """Against a loop that reads every prefix again."""
    both = heedful.ensemble(runs)
    for text, answer in zip(TEXTS, both.predict(TEXTS, beam=1), strict=True):
        if not text or not answer.tokens:
            continue
        words = answer.text.split()
        for i, word in enumerate(words):
            found = {}
            for other in ("x", "y", "z"):
                found[other] = mean_log_probs(runs, (text, " ".join([*words[:i], other])))[i]
            if word in found:
                assert found[word] == pytest.approx(max(found.values()), abs=1e-5)


def assert_close(one, two):
    """Scores are close; empty inputs have none."""
    assert (one is None) == (two is None)
    assert one is None or one == pytest.approx(two, rel=1e-4, abs=1e-5)


def test_a_run_with_itself_is_that_run(runs):
    run = runs[0]
    for options in ({"beam": 1}, {"beam": 3, "n_best": 2}, {"decoding": {"kind": "sample", "n": 2}}):
        alone, twice = run.predict(TEXTS, **options), heedful.ensemble([run, run]).predict(TEXTS, **options)
        assert [each.text for each in alone] == [each.text for each in twice]
        for one, two in zip(alone, twice, strict=True):
            assert_close(one.score, two.score)


def test_the_order_of_runs_has_no_effect_and_batches_equal_single_inputs(runs):
    both, reverse = heedful.ensemble(runs), heedful.ensemble(runs[::-1])
    answers = both.predict(TEXTS)
    assert [each.text for each in answers] == [each.text for each in reverse.predict(TEXTS)]
    for text, answer in zip(TEXTS, answers, strict=True):
        (single,) = both.predict([text])
        assert single.text == answer.text
        assert_close(single.score, answer.score)


def test_an_ensemble_is_evaluated_and_streams(runs):
    both = heedful.ensemble(runs)
    evaluation = both.evaluate("test", data=ROWS[:3])
    rows = list(evaluation.rows())
    assert [row["output"] for row in rows] == [
        each.text for each in both.predict([r["source"] for r in ROWS[:3]])
    ]
    likelihoods = [mean_log_probs(runs, (row["source"], row["target"])) for row in ROWS[:3]]
    n = sum(map(len, likelihoods))
    perplexity = math.exp(-sum(map(np.sum, likelihoods)) / n)
    assert evaluation["perplexity"].value == pytest.approx(perplexity, rel=1e-4)
    assert "".join(both.stream("a b", beam=1)) == both.predict(["a b"], beam=1)[0].text


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        ("explain", lambda run: run.explain("a")),
        ("embed", lambda run: run.embed(["a"])),
        ("faithfulness", lambda run: run.faithfulness()),
        ("export", lambda run: run.export("marian")),
        ("alignment", lambda run: run.predict(["a"], alignment=True)),
    ],
)
def test_what_an_ensemble_does_not_have_is_refused(runs, verb, call):
    with pytest.raises(RequestError, match=f"^{verb}: not supported for an ensemble; use one of its runs$"):
        call(heedful.ensemble(runs))


def test_runs_that_do_not_fit_are_refused(make_run, tmp_path, runs):
    with pytest.raises(RequestError, match="an ensemble needs at least two runs, got 1"):
        heedful.ensemble(runs[:1])
    with pytest.raises(RequestError, match="expected loaded runs"):
        heedful.ensemble([runs[0], runs[0].folder.path])
    with pytest.raises(RequestError, match="cannot be part of another; give all runs at once"):
        heedful.ensemble([runs[0], heedful.ensemble(runs)])
    recipe = {"task": {"kind": "translation"}, **WORDS, "model": MODELS["transformer"]}
    other = make_run(tmp_path / "other", recipe, [*ROWS, {"source": "d", "target": "w"}])
    with pytest.raises(RequestError, match="its vocabulary or tokenisation is not that of"):
        heedful.ensemble([runs[0], heedful.load(other, device="cpu")])
    model = {"kind": "encoder", "d_model": 8, "n_layers": 1, "layer": LAYER}
    labels = make_run(
        tmp_path / "labels",
        {"task": {"kind": "classification"}, **WORDS, "model": model},
        [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}],
    )
    classifier = heedful.load(labels, device="cpu")
    with pytest.raises(RequestError, match="its task is classification"):
        heedful.ensemble([runs[0], classifier])
    with pytest.raises(RequestError, match="not supported for task classification, which generates no text"):
        heedful.ensemble([classifier, classifier])


def test_the_command_averages_runs(make_run, tmp_path):
    recipe = {"task": {"kind": "translation"}, **WORDS, "model": MODELS["transformer"]}
    recurrent = {**recipe, "model": MODELS["recurrent"]}
    paths = [make_run(tmp_path / f"run{n}", each, ROWS) for n, each in enumerate([recipe, recurrent])]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"source": text}) + "\n" for text in TEXTS))
    both = heedful.ensemble([heedful.load(path, device="cpu") for path in paths])
    arguments = ["predict", str(paths[0]), "--ensemble", str(paths[1]), str(tmp_path / "in.jsonl")]
    done = CliRunner().invoke(app, [*arguments, "--device", "cpu"])
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert (
        "decoding in an ensemble of 2 models in fp32 on the native engine and fp32 on the plain path"
        in done.stderr
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for record, answer in zip(found, both.predict(TEXTS), strict=True):
        assert record["output"] == (answer.text if not answer.is_empty else None)
        assert record.get("log_probs", []) == answer.log_probs
