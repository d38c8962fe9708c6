"""Validations measure the scores of ``evaluate`` that ``training.metric`` names."""

import pytest

from heedful.api.run import load
from heedful.errors import RequestError
from heedful.runs.evaluate import evaluate
from heedful.runs.reading import read_recipe
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


def trained(name, metric, folder, *overrides, conll=""):
    """Train a recipe on a few rows; the metrics of its best validation, and the run."""
    folder.mkdir(exist_ok=True)
    (folder / "rows.tsv").write_text(NUMBERS)
    (folder / "rows.conll").write_text(conll or "\n".join(SPANS * 3))
    own = [f"root={folder}", "data.test=null"] if name.startswith("my-own") else []
    if name == "my-own-tags":
        own += [f"data.{part}.paths={folder}/rows.conll" for part in ("train", "valid")]
    if name in ("my-own-numbers", "my-own-pairs"):
        own += [f"data.{part}.paths={folder}/rows.tsv" for part in ("train", "valid")]
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


REFUSED = {
    (
        "my-own-tags",
        "span-recall",
        "",
        "a NOUN\nb VERB\n",
    ): "the tags encode no spans .* NOUN, VERB; .* accuracy, l",
    ("my-own-tags", "span-f1", "evaluation.spans=none", ""): "evaluation.spans=none leaves out",
    ("my-own-tags", "span-f1", "", "a NOUN\nb B-X\n\na B-X\n"): "B-X encodes .* but NOUN does not; set",
    ("my-own-numbers", "pearson", "data.valid.limit=1", ""): "all labels of data.valid are 0; add rows",
    ("my-own-pairs", "pearson", "", ""): "requires different values in the column 'similarity'",
    ("my-own-pairs", "mrr", "data.valid.columns={text: 0, pair: 1, similarity: 0}", ""): "on the others; add",
    ("phrasebook-label-sets", "macro-f1", "NO LABELS", ""): "no row of data.valid has a label",
}


@pytest.mark.slow
@pytest.mark.parametrize("name, metric, override, rows", REFUSED)
def test_a_metric_that_the_data_do_not_have_is_refused_before_the_first_update(
    name, metric, override, rows, tmp_path, monkeypatch
):
    """The remedy of the message, the metric loss, works."""
    monkeypatch.setattr("heedful.runs.train.build_module", lambda *_: pytest.fail("a model is built"))
    overrides = [override] if "=" in override else []
    if override == "NO LABELS":
        (tmp_path / "none.jsonl").write_text('{"text": "a", "labels": []}\n')
        columns = "columns: {text: text}, lists: {label: labels}"
        overrides.append(f"data.valid={{kind: jsonl, paths: {tmp_path}/none.jsonl, {columns}}}")
    reason = REFUSED[name, metric, override, rows]
    with pytest.raises(
        RequestError, match=rf"training\.metric={metric} cannot be computed: .*{reason}"
    ) as refused:
        trained(name, metric, tmp_path, *overrides, conll=rows)
    assert "set training.metric=loss" in str(refused.value)
    with pytest.raises(pytest.fail.Exception, match="a model is built"):
        trained(name, "loss", tmp_path / "2", *overrides, conll=rows)


@pytest.mark.slow
def test_a_scheme_makes_other_tags_words_outside_of_spans(tmp_path, monkeypatch):
    monkeypatch.setattr("heedful.runs.train.build_module", lambda *_: pytest.fail("a model is built"))
    rows = "a NOUN\nb B-X\n\na B-X\n"
    with pytest.raises(pytest.fail.Exception, match="a model is built"):
        trained("my-own-tags", "span-f1", tmp_path, "evaluation.spans=bio", conll=rows)
    with pytest.raises(RequestError, match=r"evaluation\.spans=bmes: no tag encodes a span .* remove this"):
        trained("my-own-tags", "loss", tmp_path / "2", "evaluation.spans=bmes", conll="a O\nb I-X\n")


def test_scores_of_evaluate_rise_and_are_named_among_the_metrics():
    overrides = ["training.metric=pearson", "training.direction=lower"]
    with pytest.raises(RequestError, match=r"training\.metric=pearson, for which higher is better"):
        read_recipe("my-own-numbers", overrides)
    with pytest.raises(RequestError, match="available: loss, pearson, spearman"):
        read_recipe("my-own-numbers", ["training.metric=perason"])
