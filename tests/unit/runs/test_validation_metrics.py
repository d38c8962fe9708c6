"""Validations measure the scores of ``evaluate`` that ``training.metric`` names."""

import pytest

from heedful.errors import RequestError
from heedful.runs.evaluate import evaluate
from heedful.runs.reading import read_recipe
from heedful.runs.run import load
from heedful.runs.train import train_run

SMALL = [
    "data.train.limit=60",
    "data.valid.limit=23",
    "training.max_updates=4",
    "training.validate_every=2",
    "training.save_every=2",
    "training.tokens_per_update=300",
    "training.average=0",
    "training.patience=null",
    "schedule.warmup=1",
]
SPANS = ["Anna B-PER", "sleeps O", "", "in O", "New B-LOC", "York I-LOC", "", "Bo B-PER", "sings O", ""]
NUMBERS = "\n".join(f"{n}\t{'very ' * n}good" for n in range(7))

CASES = {
    "phrasebook-label-sets": [("micro-f1", "micro F1"), ("exact-match", "exact match")],
    "phrasebook-questions": [("exact-match", "exact match"), ("f1", "F1")],
    "phrasebook-tags": [("micro-f1", "micro F1")],
    "my-own-tags": [("span-f1", "span F1"), ("span-recall", "span recall")],
    "my-own-pairs": [("mrr", "MRR"), ("accuracy@1", "accuracy@1")],
    "my-own-numbers": [("pearson", "Pearson"), ("spearman", "Spearman")],
}
SUMMARIES = [
    "task.kind=summarisation",
    "validation.decode=null",
    "decoding={kind: greedy}",
    "training.max_updates=30",
    "schedule={kind: constant, peak: 0.003}",
]


def trained(name, metric, folder, *overrides):
    """Train a recipe on a few rows; the metrics of its best validation, and the run."""
    (folder / "rows.tsv").write_text(NUMBERS)
    (folder / "rows.conll").write_text("\n".join(SPANS * 3))
    own = [f"root={folder}", "data.test=null"] if name.startswith("my-own") else []
    if name == "my-own-tags":
        own += [f"data.{part}.paths=rows.conll" for part in ("train", "valid")]
    if name in ("my-own-numbers", "my-own-pairs"):
        own += [f"data.{part}.paths=rows.tsv" for part in ("train", "valid")]
    recipe, _ = read_recipe(name, [*SMALL, *own, f"training.metric={metric}", *overrides])
    result = train_run(recipe, folder / "run", device="cpu").result
    return result.state.best[0].metric, load(folder / "run", device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name, metric, score", [(n, *pair) for n, pairs in CASES.items() for pair in pairs])
def test_the_best_validation_has_the_score_of_evaluate(name, metric, score, tmp_path):
    best, run = trained(name, metric, tmp_path)
    scores = {s.name: s.value for s in evaluate(run, "valid", run.recipe.data.valid).scores}
    assert best == pytest.approx(scores[score], abs=1e-6)


@pytest.mark.slow
def test_summaries_are_selected_by_rouge(tmp_path):
    best, run = trained("phrasebook-de", "rouge-l", tmp_path, *SUMMARIES)
    scores = {s.name: s.value for s in evaluate(run, "valid", run.recipe.data.valid).scores}
    assert best == pytest.approx(scores["ROUGE-L"], abs=1e-6)
    assert best > 0


@pytest.mark.slow
def test_a_score_that_the_data_do_not_have_is_an_error(tmp_path):
    message = r"training\.metric=span-f1: not among the scores of data.valid: accuracy, macro-f1, micro-f1"
    with pytest.raises(RequestError, match=message):
        trained("phrasebook-tags", "span-f1", tmp_path)


def test_scores_of_evaluate_rise_and_are_named_among_the_metrics():
    overrides = ["training.metric=pearson", "training.direction=lower"]
    with pytest.raises(RequestError, match=r"training\.metric=pearson, for which higher is better"):
        read_recipe("my-own-numbers", overrides)
    with pytest.raises(RequestError, match="available: loss, pearson, spearman"):
        read_recipe("my-own-numbers", ["training.metric=perason"])
