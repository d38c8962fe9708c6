"""Language models as runs: trained, resumed, scored against plain loops; what their recipes refuse."""

import json
import shutil

import numpy as np
import pytest
import torch

from heedful.api.run import load
from heedful.data.text import TextSource
from heedful.decoding.config import BeamConfig, GreedyConfig, MaxLength
from heedful.errors import DataError, RequestError
from heedful.nn.layout import Tokens
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run
from heedful.tasks.evaluation import EvaluationOptions
from heedful.tasks.language_modelling.task import LanguageModellingRecipe, score_stream
from heedful.training.callbacks import JsonLines, read_metrics
from heedful.training.checkpoints import paths

TEXT = "the cat sat on the mat; the dog sat on the log.\n" * 9
VALID = "the dog sat on the mat;\n\nthe cat sat\n\non the log. on\n"
CONTEXT = 13


def plain(**sections):
    training = {"max_updates": 6, "tokens_per_update": 80, "validate_every": 3, "save_every": 2}
    return {
        "task": {"kind": "language-modelling"},
        "data": {
            "train": {"kind": "text", "paths": "train.txt"},
            "valid": {"kind": "text", "paths": "valid.txt", "documents": "blank-lines"},
        },
        "tokenizer": {"subwords": {"kind": "character"}},
        "model": {
            "kind": "language-model",
            "d_model": 12,
            "n_layers": 2,
            "context": CONTEXT,
            "dropout": 0.1,
            "layer": {
                "mixer": {"kind": "attention", "n_heads": 3},
                "channels": {"kind": "feed-forward", "d_ff": 17},
            },
        },
        "schedule": {"kind": "constant", "peak": 1e-2},
        "completion": {"max_new_tokens": 9},
        **sections,
        "training": {**training, "precision": "fp32", **sections.get("training", {})},
    }


def recipe(**sections):
    return recipe_from(Tree.of(plain(**sections), Mark("r")))


def into(folder, **sections):
    (folder / "train.txt").write_text(TEXT)
    (folder / "valid.txt").write_text(VALID)
    settings = recipe(**sections).model_copy(update={"root": str(folder)})
    return train_run(settings, folder / "run", device="cpu", callbacks=_metrics)


def _metrics(folder):
    return [JsonLines(folder.metrics)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    into(folder)
    return folder / "run"


@pytest.fixture(scope="module")
def run(trained):
    return load(trained, device="cpu")


def weights(folder):
    return load(folder, device="cpu").model.state_dict()


# Training --------------------------------------------------------------------------------------------------


def test_a_run_holds_one_tokenizer_and_says_what_it_is(trained):
    card = json.loads((trained / "run.json").read_text())
    assert card["task"] == "language-modelling"
    assert set(card["files"]) == {"recipe.yaml", "text.tokenizer.json", "weights.safetensors"}
    report = json.loads((trained / "data.json").read_text())
    assert report["train"]["columns"]["text"]["tokens"] == len(TEXT)
    assert report["valid"]["rows"] == 3


@pytest.mark.slow
def test_a_resumed_run_is_equal_to_one_that_never_stopped(tmp_path):
    """Through several epochs, each with windows at other places, and on from the middle of one."""
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    for folder, n in ((straight, 17), (stopped, 8)):
        folder.mkdir()
        into(folder, training={"max_updates": n, "save_every": 4, "validate_every": 100})
    settings = recipe(training={"max_updates": 17, "save_every": 4, "validate_every": 100})
    settings = settings.model_copy(update={"root": str(stopped)})
    ended = train_run(settings, stopped / "run", resume=True, device="cpu").result
    assert ended.state.epoch >= 2
    one, other = weights(straight / "run"), weights(stopped / "run")
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_micro_batches_and_a_shorter_validation_change_no_update(tmp_path):
    runs = []
    for name, sections in {
        "whole": {"model": {**plain()["model"], "dropout": 0.0}, "optimizer": {"kind": "sgd"}},
        "parts": {
            "model": {**plain()["model"], "dropout": 0.0},
            "optimizer": {"kind": "sgd"},
            "training": {"accumulate": 3},
            "validation": {"tokens": 20},
        },
    }.items():
        (tmp_path / name).mkdir()
        into(tmp_path / name, **sections)
        runs.append(weights(tmp_path / name / "run"))
    for name, value in runs[0].items():
        torch.testing.assert_close(runs[1][name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_training_learns(tmp_path):
    into(tmp_path, training={"max_updates": 150, "validate_every": 150, "save_every": 150})
    losses = [x["loss"] for x in read_metrics(tmp_path / "run" / "metrics.jsonl") if x["event"] == "updated"]
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:3])


BLOCKS = {"mixer": {"visible": {"kind": "blocks", "size": 4}}}
EXPERTS = {"kind": "experts", "n": 5, "k": 2, "expert": {"d_ff": 17, "activation": "gelu"}}
COMPRESSED = {"mixer": {"kind": "compressed-attention", "n_heads": 3}, "channels": EXPERTS}
LONG = {"n_layers": 3, "pattern": [BLOCKS, COMPRESSED, BLOCKS]}


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_blocks_memories_and_experts_train_and_resume_and_their_balance_is_logged(tmp_path, optimizer):
    sections = {"model": {**plain()["model"], **LONG}, "optimizer": {"kind": optimizer}}
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    for folder, n in ((straight, 9), (stopped, 4)):
        folder.mkdir()
        into(folder, **sections, training={"max_updates": n, "accumulate": 2})
    settings = recipe(**sections, training={"max_updates": 9, "accumulate": 2})
    settings = settings.model_copy(update={"root": str(stopped)})
    train_run(settings, stopped / "run", resume=True, device="cpu")
    one, other = weights(straight / "run"), weights(stopped / "run")
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    lines = [x for x in read_metrics(straight / "run" / "metrics.jsonl") if x["event"] == "updated"]
    assert len(lines) == 9
    for line in lines:
        terms = line["terms"]
        balance = 0.1 * terms["importance"] + 0.1 * terms["load"]
        assert line["loss"] == pytest.approx(terms["token"] + balance, rel=1e-5)
        assert 1.0 <= terms["max_load"] <= 5 / 2
    run = load(straight / "run", device="cpu")
    assert [p.text is not None for p in run.predict(["the cat", "", "the dog sat on the log. the"])] == [
        True
    ] * 3
    found = evaluate(run, "valid", chosen_splits(run, "valid", None)["valid"], EvaluationOptions(stride=3))
    names = [score.name for score in found.scores]
    assert [name for name in names if "load" in name] == ["expert load, layer 2"]
    assert found.scores[-1].counts["tokens"] >= found.scores[0].counts["tokens"]
    assert len(found.scores[-1].details["shares"]) == 5


# Scores ----------------------------------------------------------------------------------------------------


def stream_of(run, texts):
    end = run.processor.text.specials.end
    return [i for text in texts for i in [*run.processor.text.encode(text), end]]


def by_hand(run, ids, stride):
    """Each token from a pass of its own, over as much as its window shows of what precedes it."""
    ring, found = [ids[-1], *ids], []
    for t in range(len(ids)):
        # Windows end at context, context + stride, ...: where does the one in which t counts begin?
        end = CONTEXT if t < CONTEXT else CONTEXT + stride * -(-(t + 1 - CONTEXT) // stride)
        begin = max(0, min(end, len(ids)) - CONTEXT) if stride < CONTEXT else t - t % CONTEXT
        with torch.no_grad():
            hidden = run.model(Tokens.of([ring[begin : t + 1]]))
            found.append(float(run.model.heads["token"](hidden[-1]).log_softmax(-1)[ids[t]]))
    return found


def valid_texts():
    return ["the dog sat on the mat;", "the cat sat", "on the log. on"]


@pytest.mark.parametrize("stride", [CONTEXT, 5, 1])
def test_scores_are_those_of_every_token_by_hand(run, stride):
    found = evaluate(run, "valid", run.recipe.data.valid, EvaluationOptions(stride=stride))
    ids = stream_of(run, valid_texts())
    wanted = by_hand(run, ids, stride)
    assert score_stream(run.model, np.array(ids), CONTEXT, stride) == pytest.approx(wanted, abs=1e-5)
    scores = {score.name: score for score in found.scores if f"|stride:{stride}" in score.signature}
    nll, size = -sum(wanted), len("".join(valid_texts()))
    assert scores["nats per token"].value == pytest.approx(nll / len(ids), rel=1e-5)
    assert scores["perplexity"].value == pytest.approx(np.exp(nll / len(ids)), rel=1e-5)
    assert scores["bits per byte"].value == pytest.approx(nll / np.log(2) / size, rel=1e-5)
    assert scores["bits per character"].value == scores["bits per byte"].value
    # "the dog sat on the mat;" has 6 words, "the cat sat" 3 and "on the log. on" 4, and three lines end.
    assert scores["perplexity of a word"].value == pytest.approx(np.exp(nll / 16), rel=1e-5)
    assert scores["perplexity"].counts == {"tokens": len(ids), "bytes": size, "characters": size, "words": 16}
    assert f"context:{CONTEXT}" in scores["perplexity"].signature
    assert scores["perplexity of a word"].signature == (
        f"unit:word|words:white-space+line-ends|context:{CONTEXT}|stride:{stride}"
    )
    assert len(found.scores) == (5 if stride == CONTEXT else 10)


def test_a_word_costs_what_its_tokens_do_however_documents_are_cut(run, tmp_path):
    """Of a file as one document every line end is a token, of its lines each end token stands for one."""
    text = "the cat sat on the log.\nthe dog;\n\nsat on\n"
    (tmp_path / "t").write_text(text)
    for documents in ("file", "line"):
        found = evaluate(run, "own", TextSource(paths=str(tmp_path / "t"), documents=documents))
        (score,) = [score for score in found.scores if score.name == "perplexity of a word"]
        texts = [text] if documents == "file" else text.splitlines()
        wanted = by_hand(run, stream_of(run, texts), CONTEXT)
        assert score.value == pytest.approx(np.exp(-sum(wanted) / (10 + 4)), rel=1e-5)
        assert score.counts["words"] == 14


def test_documents_have_their_own_share(run):
    found = evaluate(run, "valid", run.recipe.data.valid)
    rows = list(found.rows())
    assert [row["document"] for row in rows] == ["valid.txt:1", "valid.txt:3", "valid.txt:5"]
    assert [row["tokens"] for row in rows] == [len(text) + 1 for text in valid_texts()]
    cuts = np.cumsum([row["tokens"] for row in rows])[:-1]
    log_probs = by_hand(run, stream_of(run, valid_texts()), CONTEXT)
    assert [row["nll"] for row in rows] == pytest.approx(
        [-sum(x) for x in np.split(log_probs, cuts)], abs=1e-4
    )


@pytest.mark.parametrize("stride", [None, 5])
def test_progress_is_in_rows(run, stride, monkeypatch):
    monkeypatch.setattr("heedful.tasks.language_modelling.task.BATCH_TOKENS", CONTEXT)
    done = []
    options = EvaluationOptions(stride=stride, progress=done.append)
    evaluate(run, "valid", run.recipe.data.valid, options)
    assert sum(done) == 3  # documents
    assert len(done) > 3


def test_validation_and_evaluation_agree(run, trained):
    validated = [x for x in read_metrics(trained / "metrics.jsonl") if x["event"] == "validated"]
    best = min(line["metrics"]["loss"] for line in validated)
    score = evaluate(run, "valid", run.recipe.data.valid).scores[0]
    assert score.name == "nats per token"
    assert score.value == pytest.approx(best, rel=1e-5)


def test_bits_are_left_out_where_tokens_do_not_spell_the_text(run, tmp_path):
    (tmp_path / "t").write_text("the cat? sat")
    ((both, _),) = chosen_splits(run, "test", [tmp_path / "t", tmp_path / "u"]).items()
    assert both == "t + u"
    (split,) = chosen_splits(run, "test", [tmp_path / "t"]).items()
    assert split[0] == "t"
    names = [score.name for score in evaluate(run, *split).scores]
    assert names == ["nats per token", "perplexity"]


def test_only_so_many_documents_may_be_scored(run):
    found = evaluate(run, "valid", run.recipe.data.valid, EvaluationOptions(limit=2))
    assert [row["document"] for row in found.rows()] == ["valid.txt:1", "valid.txt:3"]


def test_what_cannot_be_scored_is_refused(run, tmp_path):
    (tmp_path / "t").write_text("\n\n\n")
    nothing = TextSource(paths=str(tmp_path / "t"), documents="blank-lines")
    with pytest.raises(DataError, match="empty: no text to score"):
        evaluate(run, "empty", nothing)
    with pytest.raises(RequestError, match="stride 14: is longer than the model's context of 13 tokens"):
        evaluate(run, "valid", run.recipe.data.valid, EvaluationOptions(stride=14))
    with pytest.raises(
        RequestError,
        match=r"has no test set; give split=\"valid\" or data=… \(.*--split valid, or FILE",
    ):
        chosen_splits(run, "test", None)


# Use -------------------------------------------------------------------------------------------------------


def test_a_run_completes_as_it_is_asked_to(run):
    (nine,), (four,) = run.predict(["the"]), run.predict(["the"], max_new_tokens=4)
    assert (len(nine.log_probs), len(four.log_probs)) == (9, 4)
    assert nine.tokens[:4] == four.tokens
    assert run.predict(["the"], stop=[nine.text[2]])[0].text == nine.text.partition(nine.text[2])[0]
    assert "".join(run.stream("the")) == nine.text
    assert run.predict([]) == []
    beam = BeamConfig(beam=3, n_best=2)
    assert len(run.predict(["the"], decoding=beam)[0].alternatives) == 1


def test_a_prefix_is_read_before_every_prompt_and_is_no_part_of_the_answer(run):
    texts, whole = ["cat", "", "a"], ["the cat", "the ", "the a"]
    found = run.predict(texts, prefix="the ")
    assert found == run.predict(whole)
    assert len({p.text for p in found}) > 1
    assert "".join(run.stream("cat", prefix="the ")) == found[0].text
    (long,) = run.predict(["on the mat"], prefix="the cat sat ", max_new_tokens=2)
    assert "; ".join(long.notes) == (
        "of the 22 tokens of prefix and prompt, the last 13 were read; "
        "output cut at 2 tokens (max_new_tokens)"
    )
    assert long.text == run.predict(["the cat sat on the mat"[-13:]], max_new_tokens=2)[0].text


def test_what_a_run_cannot_do_is_refused(run):
    with pytest.raises(
        RequestError, match="prefix: must leave room for a prompt within the context of 13 tokens, got 13"
    ):
        run.predict(["the"], prefix="the cat sat o")
    for prefix in (7, "\ud800"):
        with pytest.raises(RequestError, match="prefix: expected a text"):
            run.predict(["the"], prefix=prefix)
    with pytest.raises(RequestError, match=r"max_tokens: not supported for task .*; use max_new_tokens"):
        run.predict(["the"], max_tokens=4)
    with pytest.raises(RequestError, match=r"completion\.max_new_tokens"):
        run.predict(["the"], decoding=GreedyConfig(max_length=MaxLength(cap=3)))
    with pytest.raises(RequestError, match="max_new_tokens: expected a whole number of at least 1, got 0"):
        run.predict(["the"], max_new_tokens=0)
    for stop in ("text", ["a", ""]):
        with pytest.raises(RequestError, match="stop: expected a list of texts"):
            run.predict(["the"], stop=stop)
    with pytest.raises(RequestError, match="no attention"):
        run.predict(["the"], attention=True)


def test_a_run_whose_tokenizer_is_gone_says_so(trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run")
    (copy / "text.tokenizer.json").unlink()
    with pytest.raises(Exception, match=r"text\.tokenizer\.json: missing"):
        load(copy, device="cpu")
    assert paths(copy)


# Recipes ---------------------------------------------------------------------------------------------------

WRONG = {
    "moses": (
        {"tokenizer": {"subwords": {"kind": "character"}, "text": {"moses": "en"}}},
        "text.moses is not supported here",
    ),
    "a stride beyond the context": ({"evaluation": {"stride": 14}}, "evaluation.stride=14 is longer than"),
    "a length by a source": (
        {"decoding": {"kind": "greedy", "max_length": {"cap": 9}}},
        "decoding.max_length is not supported here",
    ),
    "coverage": ({"decoding": {"kind": "beam", "coverage": 0.2}}, "decoding.coverage is not supported here"),
    "an empty stop string": ({"completion": {"stop": ["a", ""]}}, "texts must not be empty"),
    "a translator's model": ({"model": {"kind": "transformer"}}, "expected 'language-model'"),
    "a filter": ({"data": {**plain()["data"], "filter": {}}}, "data.filter: unknown key"),
    "a metric of translation": ({"training": {"metric": "bleu"}}, "available: loss, perplexity"),
    "another task": (
        {"task": {"kind": "language-modeling"}},
        "unknown kind 'language-modeling'; use language-modelling",
    ),
    "no task": ({"task": {}}, "the kinds are captioning, classification, image-classification, "),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused_with_its_reason(case):
    sections, message = WRONG[case]
    with pytest.raises(RequestError) as caught:
        recipe(**sections)
    assert message in str(caught.value)


def test_a_recipe_is_of_its_task_and_survives_being_written():
    own = recipe(evaluation={"stride": 3}, completion={"stop": ["x"]})
    assert isinstance(own, LanguageModellingRecipe)
    again = recipe_from(Tree.of(own.model_dump(mode="json"), Mark("again")))
    assert again == own
    assert own.objective.label_smoothing == 0


@pytest.mark.parametrize(
    ("train", "valid", "message"),
    [
        ("\n \n", VALID, "data.train: train.txt: has no text"),
        (TEXT, "\n \n", "data.valid: valid.txt: has no text"),
    ],
)
def test_a_text_without_text_is_refused(tmp_path, train, valid, message):
    (tmp_path / "train.txt").write_text(train)
    (tmp_path / "valid.txt").write_text(valid)
    source = {"kind": "text", "documents": "blank-lines"}
    data = {"train": {**source, "paths": "train.txt"}, "valid": {**source, "paths": "valid.txt"}}
    settings = recipe(data=data).model_copy(update={"root": str(tmp_path)})
    with pytest.raises(DataError) as caught:
        train_run(settings, tmp_path / "run", device="cpu")
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "run").exists()
