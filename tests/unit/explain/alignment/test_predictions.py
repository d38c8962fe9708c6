"""Word alignments of predictions: recomputed from the attention, of known permutations, and of any text."""

import csv
import json
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import sampled
from typer.testing import CliRunner

import heedful
from heedful.cli.main import app
from heedful.errors import RequestError
from heedful.explain.alignment import predictions as module
from heedful.explain.alignment.best_head import known_head, store_best_head
from heedful.explain.alignment.error_rates import HeadErrorRate
from heedful.explain.alignment.occlusion_agreement import agreement_by_head, occlusion_of_words
from heedful.explain.alignment.predictions import normalised_entropy
from heedful.explain.alignment.word_alignment import HeadChoice
from heedful.tasks.metrics.score import Score
from heedful.text.words import word_of_each_id

TEXTS = ["the red dog sleeps", "", "blue  cat runs", " red", "dog the unheard-of dog", "猫は眠る", "   "]
ALIGNED = ("translation", "summarisation", "additive", "recurrent", "recurrent, one head", "one text")


def own_pairs(run, text, prediction, layer, head, step):
    """The pairs of one prediction, in plain loops over ``attention``; None if tokens and words differ."""
    tokenizers = run.processor
    sources = word_of_each_id(tokenizers.source, tokenizers.source.encode(text), text.split())
    targets = word_of_each_id(tokenizers.target, prediction.ids, prediction.text.split())
    if sources is None or targets is None:
        return None
    weights = np.asarray(prediction.attention)[layer, head]
    pairs, n_uniform, n_words = [], 0, 0
    for word in range(len(prediction.text.split())):
        tokens = [t for t, w in enumerate(targets) if w == word]
        if not tokens:
            continue
        n_words += 1
        row = np.mean([weights[t + (step == "input")] for t in tokens], axis=0)
        if -(row * np.log(row + 1e-300)).sum() / np.log(len(row)) >= module.NEAR_UNIFORM:
            n_uniform += 1
            continue
        sums = [sum(row[s] for s, w in enumerate(sources) if w == i) for i in range(len(text.split()))]
        if sums and max(sums) > row[-1]:
            pairs.append((int(np.argmax(sums)), word))
    return [] if 2 * n_uniform > n_words else sorted(pairs)


@pytest.mark.parametrize("near_uniform", [module.NEAR_UNIFORM, 0.99, 2.0])
@pytest.mark.parametrize("step", ["output", "input"])
@pytest.mark.parametrize("name", ALIGNED)
def test_pairs_are_those_of_the_attention(explained, monkeypatch, name, step, near_uniform):
    """Also with other bounds, because the attention of these untrained models is near uniform."""
    monkeypatch.setattr(module, "NEAR_UNIFORM", near_uniform)
    run, _ = explained(name)
    predictions = run.predict(TEXTS, alignment=True, alignment_head=(0, 0, step))
    attentions = [None] * len(TEXTS)
    if name != "one text":
        attentions = run.predict(TEXTS, attention=True)
    compared = 0
    for text, prediction, attention in zip(TEXTS, predictions, attentions, strict=True):
        assert all(0 <= i < len(text.split()) for i, _ in prediction.alignment)
        assert all(0 <= j < len(prediction.text.split()) for _, j in prediction.alignment)
        assert prediction.alignment == sorted(set(prediction.alignment))
        (alone,) = run.predict([text], alignment=True, alignment_head=(0, 0, step))
        assert alone.alignment == prediction.alignment
        if attention is None or not (text.split() and prediction.text.split()):
            continue
        expected = own_pairs(run, text, attention, 0, 0, step)
        if expected is not None:
            compared += 1
            assert prediction.alignment == expected, text
    assert name == "one text" or compared >= 3
    assert near_uniform < 2 or any(prediction.alignment for prediction in predictions)


def test_texts_and_scores_are_those_without_alignment(explained):
    run, _ = explained("translation")
    plain = run.predict(TEXTS)
    aligned = run.predict(TEXTS, alignment=True, alignment_head=(0, None))
    assert [replace(p, alignment=None, notes=()) for p in aligned] == [replace(p, notes=()) for p in plain]
    assert [p.alignment for p in plain] == [None] * len(TEXTS)
    assert [aligned[i].alignment for i in (1, 6)] == [[], []]
    assert all(p.alignment is None for prediction in aligned for p in prediction.alternatives)


@pytest.mark.parametrize("name", ["translation", "one text"])
@given(text=st.text(st.sampled_from("ab cd\t,.'-猫犬é\u0301\u00a0\u3000\x00\u200bAÄ<>/sﬁ½"), max_size=30))
@settings(max_examples=25)
def test_pairs_are_inside_any_text(explained, name, text):
    run, _ = explained(name)
    (prediction,) = run.predict([text], alignment=True, alignment_head=(0, 1))
    n_source, n_target = len(text.split()), len(prediction.text.split())
    assert all(0 <= i < n_source and 0 <= j < n_target for i, j in prediction.alignment)


def command(*arguments):
    done = CliRunner().invoke(app, ["predict", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_plain_text_json_tables_and_python_have_the_same_pairs(explained, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "NEAR_UNIFORM", 2.0)
    run, _ = explained("translation")
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS), "utf-8")
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"source": text, "id": 1}) + "\n" for text in TEXTS), "utf-8"
    )
    predictions = run.predict(TEXTS, alignment=True, alignment_head=(0, 2))
    pairs = [[[*pair] for pair in p.alignment] for p in predictions]
    written = [" ".join(f"{i}-{j}" for i, j in each) for each in pairs]
    assert sum(map(len, pairs)) > 3
    options = ("--alignment", "--alignment-head", "1.3")
    lines = command(run.folder.path, tmp_path / "in.txt", *options)
    assert [line.split("\t")[1] for line in lines] == written
    assert [line.split("\t")[0].split() for line in lines] == [p.text.split() for p in predictions]
    assert (lines[1], [line.count("\t") for line in lines]) == ("\t", [1] * len(TEXTS))
    records = [json.loads(line) for line in command(run.folder.path, tmp_path / "in.jsonl", *options)]
    assert [record["alignment"] for record in records] == pairs
    for name, separator in (("o.csv", ","), ("o.tsv", "\t")):
        command(run.folder.path, tmp_path / "in.txt", *options, "--out", tmp_path / name)
        with (tmp_path / name).open(newline="", encoding="utf-8") as file:
            assert [row["alignment"] for row in csv.DictReader(file, delimiter=separator)] == written
    command(run.folder.path, tmp_path / "in.txt", *options, "--out", tmp_path / "o.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text("utf-8").splitlines()]
    assert [row["alignment"] for row in rows] == pairs


# Which head


def test_the_best_known_head_aligns(explained, monkeypatch):
    run, given = explained("translation")
    known = module.ShownHead(HeadChoice(0, 2), "known")
    monkeypatch.setattr(module, "known_head", lambda run: known)
    assert run.aligning(run.predictor()).head is known
    by_default = run.predict([given], alignment=True)
    assert by_default == run.predict([given], alignment=True, alignment_head=HeadChoice(0, 2))


def test_reasons_name_how_a_head_is_known(make_run, tmp_path, explained):
    run, _ = explained("translation")
    assert known_head(run) is None
    recipe, rows = run.recipe.model_dump(mode="json"), [{"source": "a b", "target": "b a"}]
    own = heedful.load(
        make_run(tmp_path / "run", {k: recipe[k] for k in ("task", "model", "tokenizer")}, rows)
    )
    table = [HeadErrorRate(HeadChoice(0, 1), None, Score("alignment error rate", 0.2, "", {}))]
    assert store_best_head(own, table, 30)
    assert known_head(own).reason == "lowest error rate on 30 pairs with gold links"


def test_without_a_known_head_or_rows_the_error_names_the_remedy(explained):
    run, given = explained("translation")
    with pytest.raises(
        RequestError, match=r"validation data .* cannot be read .*--alignment-head LAYER\.HEAD"
    ):
        run.predict([given], alignment=True)


def test_occlusion_is_the_loss_of_log_probability(explained):
    run, _ = explained("translation")
    source, target = ["the", "red", "dog"], ["DOG", "RED"]
    effects = occlusion_of_words(run, run.processor, source, target, run.recipe.sequence_format)
    assert effects.shape == (2, 3)
    (whole,) = run.score([(" ".join(source), " ".join(target))])
    (without,) = run.score([("the dog", " ".join(target))])
    changes = np.subtract(whole.log_probs, without.log_probs)[:-1]
    words = word_of_each_id(run.processor.target, run.processor.target.encode("DOG RED"), target)
    for word in (0, 1):
        assert effects[word, 1] == pytest.approx(changes[np.equal(words, word)].sum(), abs=1e-4)


def test_agreement_is_a_share(explained):
    for name in ALIGNED:
        run, _ = explained(name)
        agreements = agreement_by_head(run, [(["red", "dog", "runs"], ["RUNS", "DOG"])] * 2)
        assert {choice.step for choice in agreements} == {"output", "input"}
        assert all(0 <= value <= 1 for value in agreements.values())


# Near uniform attention


def test_entropy_is_normalised():
    rows = np.array([[0.25] * 4, [1.0, 0, 0, 0], [0.5, 0.5, 0, 0]])
    np.testing.assert_allclose(normalised_entropy(rows), [1, 0, 0.5], atol=1e-12)


def test_uniform_attention_aligns_nothing_and_says_so(explained, monkeypatch):
    run, given = explained("translation")
    (before,) = run.predict([given], alignment=True, alignment_head=(0, 0))

    def uniform(model, sources, targets, pairing, choice):
        return [
            np.full((len(y) + 1, len(x) + 1), 1 / (len(x) + 1)) for x, y in zip(sources, targets, strict=True)
        ]

    monkeypatch.setattr(module, "attention_of_head", uniform)
    (prediction,) = run.predict([given], alignment=True, alignment_head=(0, 0))
    n = len(before.text.split())
    words = f"{n} of {n} word{'s' * (n > 1)}"
    assert prediction.alignment == []
    assert prediction.notes[-1].endswith(
        f"attention of layer 1, head 1 is near uniform for {words}; no alignment"
    )


# Requests


@pytest.mark.parametrize(
    "name, message",
    [
        ("captions", "an image, which has no words; use attention"),
        ("classification", "task classification does not generate a text for a text"),
        ("language model", "task language-modelling does not generate a text for a text"),
        ("recurrent without attention", "no attention from target to source"),
    ],
)
def test_tasks_without_source_words_have_no_alignment(explained, name, message):
    run, given = explained(name)
    with pytest.raises(RequestError, match=message):
        run.predict([given], alignment=True)


@pytest.mark.parametrize(
    "head, message",
    [
        ((9, 0), "layer must be between 1 and 1 .* got 10"),
        ((0, 9), "head must be between 1 and 3 .* got 10"),
        ((0,), "expected .layer, head. or"),
        ("1.1", "expected .layer, head. or"),
        ((0, 0, "middle"), "with step output or input"),
        ((-1, 0), "expected a whole number of at least 0, got -1"),
    ],
)
def test_wrong_heads_are_refused(explained, head, message):
    run, given = explained("translation")
    with pytest.raises(RequestError, match=message):
        run.predict([given], alignment=True, alignment_head=head)


def test_a_head_needs_an_alignment(explained):
    run, given = explained("translation")
    with pytest.raises(RequestError, match="alignment_head: requires alignment=True"):
        run.predict([given], alignment_head=(0, 0))


# A known permutation


@pytest.fixture(scope="module")
def reversing():
    """Rows whose target is the source backwards."""
    draw = random.Random(0)
    rows = []
    for _ in range(2000):
        words = draw.sample(["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op", "qr", "st"], draw.randint(2, 6))
        links = " ".join(f"{i}-{len(words) - 1 - i}" for i in range(len(words)))
        rows.append({"source": " ".join(words), "target": " ".join(words[::-1]), "alignment": links})
    return rows


RECIPE = {
    "task": {"kind": "translation"},
    "optimizer": {"kind": "adam"},
    "schedule": {"kind": "constant", "peak": 3e-3},
    "validation": {"decode": None},
    "decoding": {"kind": "greedy"},
}
TRANSFORMER = {
    "kind": "transformer", "d_model": 48, "n_layers": 1, "n_decoder_layers": 1, "dropout": 0.0,
    "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 96}},
}  # fmt: skip


MODELS = {
    "guided": (
        {**TRANSFORMER, "n_decoder_layers": 2},
        {"weight": 0.5, "layer": 1, "head": 2, "step": "output"},
        "character",
        r"^trained on word alignments$",
    ),
    "plain": (TRANSFORMER, None, "word", r"^agrees best with occlusion on 50 validation rows: \d+%$"),
    "recurrent": (
        {"kind": "recurrent", "d_embedding": 24, "d_hidden": 48, "attention": "additive"},
        None,
        "word",
        r"^agrees best with occlusion on 50 validation rows: \d+%$",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(MODELS, ["plain"]))
def test_pairs_of_reversed_words_are_the_permutation(reversing, tmp_path, name):
    model, guided, kind, reason = MODELS[name]
    tokenizer = {"subwords": {"kind": kind}, "shared": True}
    tree = {**RECIPE, "tokenizer": tokenizer, "model": model, "objective": {"guided": guided}}
    tree["training"] = {
        "max_updates": 300, "tokens_per_update": 1200, "validate_every": 300, "save_every": 300,
        "precision": "fp32",
    }  # fmt: skip
    run = heedful.train(
        tree, tmp_path / "run", data={"train": reversing[:1900], "valid": reversing[1900:]}, device="cpu"
    )
    texts = [row["source"] for row in reversing[1900:]]
    predictions = run.predict(texts, alignment=True)
    assert (
        np.mean([p.text == row["target"] for p, row in zip(predictions, reversing[1900:], strict=True)]) > 0.8
    )
    found = correct = expected = 0
    for text, prediction in zip(texts, predictions, strict=True):
        source, target = text.split(), prediction.text.split()
        gold = {(i, j) for i, a in enumerate(source) for j, b in enumerate(target) if a == b}
        expected += len(gold)
        found += len(prediction.alignment)
        correct += len(gold & {*prediction.alignment})
    assert re.match(reason, run.aligning(run.predictor()).head.reason)
    assert correct >= 0.95 * max(found, expected)
