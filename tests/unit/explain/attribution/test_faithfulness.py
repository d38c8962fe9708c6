"""Faithfulness, of a model whose deciding word is planted."""

import json
import random
import re

import numpy as np
import pytest

import heedful
from heedful.explain.attribution import faithfulness
from heedful.explain.attribution.faithfulness import (
    BETTER,
    BY_CHANCE,
    METHODS,
    OTHER_DRAWS,
    OVER_BEST,
    OVER_RANDOM,
    RANDOM,
    WORSE,
    FaithfulnessEvaluation,
    Judgement,
    _over_random,
)
from heedful.tasks.metrics.score import Score

FILLERS = ["a", "an", "the", "of", "on", "in", "at", "to", "by", "for", "with", "from", "into", "over"]
DECIDING = {"good": "up", "bad": "down", "great": "up", "awful": "down"}


def planted(n, seed, share_without=0.0):
    """Rows whose label depends on one word, at any place; some have none: its absence is no evidence."""
    draw = random.Random(seed)
    rows = []
    for _ in range(n):
        words = draw.choices(FILLERS, k=draw.randint(4, 9))
        if draw.random() < share_without:
            rows.append({"text": " ".join(words), "label": "none"})
            continue
        word = draw.choice([*DECIDING])
        words.insert(draw.randrange(len(words) + 1), word)
        rows.append({"text": " ".join(words), "label": DECIDING[word]})
    return rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in planted(600, 0, 0.3)))
    columns = {"text": "text", "label": "label"}
    source = {"kind": "jsonl", "paths": str(folder / "rows.jsonl"), "columns": columns}
    recipe = {
        "task": "classification",
        "data": {"train": source, "split": {"valid": 0.1, "test": 0.1}},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {
            "kind": "encoder",
            "max_length": 16,
            "d_model": 24,
            "n_layers": 1,
            "dropout": 0.0,
            "layer": {"mixer": {"n_heads": 3}, "channels": {"d_ff": 48}},
        },
        "schedule": {"kind": "constant", "peak": 0.003, "warmup": 20},
        "training": {"max_updates": 400, "tokens_per_update": 800, "validate_every": 200, "processes": 1},
    }
    return heedful.train(recipe, folder / "run", device="cpu", progress=False)


@pytest.mark.slow
def test_the_planted_word_is_found_by_every_method_and_no_random_order_is_as_faithful(run):
    assert float(run.evaluate()["accuracy"]) == 1.0
    rows = planted(30, 1)
    found = run.faithfulness(data=rows)
    scores = {score.name: score for score in found.scores}
    assert scores.keys() == {*METHODS, OTHER_DRAWS, f"{RANDOM}, replacement", f"{RANDOM}, leaving out"}
    for name in ("occlusion", "replacement", "integrated-gradients"):
        score = scores[name]
        assert score.details["top_agreement"] >= 0.96
        assert score.details["top_sign"] == 1.0
        random_order = scores[f"{RANDOM}, {score.details['judge']}"]
        assert score.details["sufficiency"] < random_order.details["sufficiency"] / 2
        assert float(score) > 2 * float(random_order)
        assert score.counts == {"rows": 30, "judged": 30, "answers": 30}
    own = scores[OTHER_DRAWS].details
    for name in ("occlusion", "integrated-gradients", "gradients"):
        assert own["rank_correlation"] > scores[name].details["rank_correlation"]
        assert own["sign_agreement"] >= (scores[name].details["sign_agreement"] or 0.0)
    for row in rows:
        seen = run.explain(row["text"], kinds=[], views=["occlusion", "replacement", "integrated-gradients"])
        for view in seen.views.values():
            (word,) = {*view["words"]} & {*DECIDING}
            assert view["words"][int(np.argmax(view["scores"][0]))] == word


@pytest.mark.slow
def test_the_verdict_is_that_of_the_interval_over_inputs_and_the_table_fits(run):
    found = run.faithfulness(data=planted(30, 1))
    lines = [*found.lines()]
    assert max(map(len, lines)) <= 80
    records = [*found.rows()]
    assert len(records) == 30
    assert len({record["row"] for record in records}) == 30
    for score in found.scores:
        judge, name = score.details["judge"], score.name.partition(",")[0]
        own = [
            next(each for each in record["methods"] if (each["method"], each["judge"]) == (name, judge))
            for record in records
        ]
        # Each answer has one part, so that the mean over answers is that over inputs.
        assert np.mean([each["comprehensiveness"] for each in own]) == pytest.approx(float(score))
        if name == "gradients":  # it has no sign
            assert score.details["top_sign"] is score.details["sign_agreement"] is None
            assert all(each["top_sign"] is each["sign_agreement"] is None for each in own)
            (line,) = (line for line in lines if line.startswith("    gradients ") and "(" not in line)
            assert line.split()[4:6] == ["-", "-"]
        for measure in ("sufficiency", "top_sign")[: 1 + (name != "gradients")]:
            assert np.nanmean([each[measure] for each in own]) == pytest.approx(score.details[measure])
        if name in (RANDOM, OTHER_DRAWS):
            assert OVER_RANDOM not in score.details
            continue
        over = score.details[OVER_RANDOM]
        random_order = next(each for each in found.scores if each.name == f"{RANDOM}, {judge}")
        assert over["difference"] == pytest.approx(float(score) - float(random_order))
        assert over["low"] <= over["difference"] <= over["high"]
        verdict = BETTER if over["low"] > 0 else WORSE if over["high"] < 0 else BY_CHANCE
        assert over["verdict"] == verdict
        assert any(line.startswith(f"    {name}  ") and line.endswith(verdict) for line in lines)
    assert found["occlusion"].details[OVER_RANDOM]["verdict"] == BETTER


@pytest.mark.slow
def test_in_the_table_each_method_is_beside_the_random_order_of_its_judge(run):
    found = run.faithfulness(data=planted(3, 1))
    judge, judges = "", []
    for line in found.lines():
        if line.startswith("  judged by "):
            judge = line.removeprefix("  judged by ")
        for score in found.scores:
            if line.startswith(f"    {score.name.partition(',')[0]}  ") and "(" not in line:
                judges.append((score.name.partition(",")[0], judge))
    assert {*judges} == {(score.name.partition(",")[0], score.details["judge"]) for score in found.scores}


def test_a_random_order_is_not_better_than_another_one_and_a_reversed_one_is_worse():
    draw = np.random.default_rng(0)
    measured = draw.normal(0.3, 0.1, (2, 40))

    def by_input(values):
        return {n: [Judgement(value, 0, 0, 0, 0, 0)] for n, value in enumerate(values)}

    chance = _over_random(by_input(measured[0]), by_input(measured[1]))
    assert chance["verdict"] == BY_CHANCE
    assert _over_random(by_input(measured[0] + 0.2), by_input(measured[1]))["verdict"] == BETTER
    assert _over_random(by_input(measured[0] - 0.2), by_input(measured[1]))["verdict"] == WORSE
    assert _over_random(by_input(measured[0, :1]), by_input(measured[1])) is None


def concluded(**methods):
    """The conclusion for methods with a value, a verdict, and the upper end of the interval to the best."""
    scores = []
    for name, (value, verdict, high) in methods.items():
        judge = "leaving out" if name == "replacement" else "replacement"
        below = {} if high is None else {OVER_BEST: {"high": high}}
        over = {"difference": value, "low": value, "high": value, "verdict": verdict}
        details = {"judge": judge, OVER_RANDOM: over, **below}
        scores.append(Score(name.replace("_", "-"), value, "s", details, {"rows": 9, "judged": 8}))
    return FaithfulnessEvaluation("test", scores).conclusion


@pytest.mark.parametrize(
    ("methods", "conclusion"),
    [
        (
            {
                "occlusion": (0.5, BETTER, None),
                "integrated_gradients": (0.4, BETTER, -0.1),
                "gradients": (0.3, BY_CHANCE, -0.2),
                "replacement": (0.6, BETTER, None),
            },
            "On these inputs, of the views judged by replacement, occlusion found the deciding words best; "
            "replacement, the only view judged by leaving out, was better than a random order (judges cannot "
            "be compared). Not better than a random order: gradients.",
        ),
        (
            {"occlusion": (0.5, BETTER, 0.01), "integrated_gradients": (0.51, BETTER, None)},
            "On these inputs, of the views judged by replacement, integrated-gradients found the deciding "
            "words best, and occlusion as well within chance. Not better than a random order: none.",
        ),
        (
            {"occlusion": (0.1, BY_CHANCE, None), "gradients": (0.0, WORSE, 0.0)},
            "On these inputs, no view judged by replacement was better than a random order. Not better than "
            "a random order: occlusion, gradients.",
        ),
    ],
)
def test_the_conclusion_names_the_best_view_of_each_judge_and_those_that_are_not_to_be_shown(
    methods, conclusion
):
    assert concluded(**methods) == conclusion


@pytest.mark.slow
def test_in_python_the_same_is_shown_and_the_best_is_that_of_the_highest_value(run):
    found = run.faithfulness(data=planted(12, 4))
    lines = [*found.lines()]
    assert str(found) == repr(found) == "\n".join(["data: 12 of 12 inputs", *lines, *found.notes])
    assert " ".join(" ".join(lines).split()).endswith(found.conclusion)
    by_replacement = [found[name] for name in METHODS if found[name].details["judge"] == "replacement"]
    best = max(by_replacement, key=float)
    assert OVER_BEST not in best.details
    for score in by_replacement:
        if score is not best:
            over = score.details[OVER_BEST]
            assert over["difference"] == pytest.approx(float(score) - float(best))
            assert over["low"] <= over["difference"] <= over["high"]
    assert run.faithfulness(data=planted(1, 4)).conclusion == ""


@pytest.mark.slow
def test_a_long_measurement_is_announced(run, monkeypatch):
    monkeypatch.setattr(faithfulness, "LONG", 0.0)
    logged: list[str] = []
    source = next(iter(run.data_sets("test").values()))
    faithfulness.evaluate_faithfulness(run, "test", source, limit=7, log=logged.append)
    (line,) = logged
    assert re.fullmatch(r"test: 7 inputs take about \d+ (seconds|minutes); --limit N takes fewer", line)


@pytest.mark.slow
def test_equal_seeds_give_equal_scores_and_inputs_without_words_are_counted(run):
    rows = [{"text": "good", "label": "up"}, *planted(3, 2), {"text": "a bad day", "label": "down"}]
    counted: list[int] = []
    found = run.faithfulness(data=rows, progress=counted.append)
    assert sum(counted) == 5
    assert found.scores[0].counts == {"rows": 5, "judged": 4, "answers": 4}
    assert any("1 of 5 inputs could not be judged" in note for note in found.notes)
    assert [score.to_dict() for score in run.faithfulness(data=rows).scores] == [
        score.to_dict() for score in found.scores
    ]


@pytest.mark.slow
def test_without_training_data_words_of_the_inputs_replace_others(run, monkeypatch):
    from heedful.explain.attribution import replacements

    def missing(run):
        raise heedful.errors.DataError("x: no such file")

    replacements._READ.clear()
    monkeypatch.setattr(replacements, "_training_inputs", missing)
    found = run.faithfulness(data=planted(3, 2))
    assert "words that replace others are those of the evaluated inputs" in found.notes[0]
    with pytest.raises(heedful.errors.RequestError, match=r"cannot be read here; use view occlusion"):
        run.explain("a good day", views=["replacement"])


@pytest.mark.slow
def test_a_data_set_without_two_words_anywhere_is_refused(run):
    with pytest.raises(heedful.errors.DataError, match="at least two words"):
        run.faithfulness(data=[{"text": "good", "label": "up"}])
