"""Given texts are scored as the model was trained: against plain forward passes, token by token."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from heedful.api.run import load
from heedful.cli.main import app
from heedful.data.images import LazyImage
from heedful.errors import RequestError, WorkError
from heedful.nn.layout import Tokens
from heedful.runs.evaluate import evaluate
from heedful.tasks.masked_language_modelling.pseudo_likelihood import pseudo_log_probs
from heedful.text.specials import SPECIALS

LAYER = {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 9}}
SIZES = {"d_model": 8, "n_layers": 2, "layer": LAYER, "dropout": 0.0}
WORDS = {"subwords": {"kind": "word"}}
CONTEXT = 7
TEXTS = ["a b c", "c", "", "b a b c c a b a b b a c b a c c b", "a b c a b c", "a b c a b c a", "b z a"]
PAIRS = [("a b", "c a"), ("b", "a"), ("c c c a", "b b a"), ("a", ""), ("z a", "b"), ("b a", "c z")]


def words(model, **settings):
    return {"tokenizer": WORDS, "model": {**SIZES, **model}, **settings}


RECIPES = {
    "language model": words(
        {"kind": "language-model", "context": CONTEXT}, task={"kind": "language-modelling"}
    ),
    "masked": words({"kind": "encoder", "max_length": CONTEXT}, task={"kind": "masked-language-modelling"}),
    "encoder-decoder": words({"kind": "transformer"}, task={"kind": "translation"}),
    "recurrent": {
        "task": {"kind": "translation"},
        "tokenizer": WORDS,
        "model": {"kind": "recurrent", "d_embedding": 7, "d_hidden": 6},
    },
    "one text": {
        **words({"kind": "language-model", "context": 15}, task={"kind": "translation"}),
        "data": {"filter": {"max_length": {"source": 6, "target": 6}}},
    },
    "captioner": words({"kind": "captioner", "image_size": 8, "patch_size": 4}, task={"kind": "captioning"}),
}


@pytest.fixture(scope="module")
def runs(make_run, tmp_path_factory):
    """Return a function from the name of a recipe to a run; each is made once."""
    made = {}

    def run(name):
        if name not in made:
            text = "a b c"
            recipe = dict(RECIPES[name])
            rows = [{"text": text}]
            if "language" not in name and name != "masked":
                first = "image" if name == "captioner" else "source"
                rows = [{first: text, "caption" if name == "captioner" else "target": text}]
            if "data" in recipe:
                columns = dict.fromkeys(rows[0], "x")
                source = {"kind": "jsonl", "paths": "x", "columns": columns}
                recipe["data"] = {"train": source, "valid": source, **recipe["data"]}
            made[name] = load(make_run(tmp_path_factory.mktemp("runs") / "run", recipe, rows), device="cpu")
        return made[name]

    return run


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    draw, folder = np.random.default_rng(3), tmp_path_factory.mktemp("images")
    paths = [str(folder / f"{i}.png") for i in range(3)]
    for path in paths:
        Image.fromarray(draw.integers(256, size=(8, 8, 3), dtype=np.uint8)).save(path)
    return paths


@torch.no_grad()
def forced(run, read, predicted, source=None):
    """The log-probability of each predicted token at the positions of the tokens that are read."""
    hidden = run.model(Tokens.of([read]), source) if source is not None else run.model(Tokens.of([read]))
    log_probs = run.model.heads["token"](hidden[-len(predicted) :]).double().log_softmax(-1)
    return [float(log_probs[i, token]) for i, token in enumerate(predicted)]


def close(expected):
    return pytest.approx(expected, abs=1e-5)


def check(run, predictions, texts, tokenizer, *, ends):
    """What holds for every scored text."""
    assert [p.text for p in predictions] == texts
    for prediction, text in zip(predictions, texts, strict=True):
        ids = tokenizer.encode(text)
        assert prediction.tokens == tokenizer.tokens(ids)
        assert len(prediction.log_probs) == len(ids) + ends
        assert prediction.score == close(math.fsum(prediction.log_probs))
        assert all(p <= 0 for p in prediction.log_probs)
        is_plain = SPECIALS.unknown not in ids and (ids or ends)
        assert (not prediction.notes) == bool(is_plain)


def test_a_language_model_gives_each_token_those_before_it(runs):
    run = runs("language model")
    tokenizer = run.processor.text
    predictions = run.score(TEXTS)
    check(run, predictions, TEXTS, tokenizer, ends=True)
    for text, prediction in zip(TEXTS, predictions, strict=True):
        stream = [*tokenizer.encode(text), SPECIALS.end]
        expected = []
        for begin in range(0, len(stream), CONTEXT):  # windows that do not overlap
            window = stream[begin : begin + CONTEXT]
            expected += forced(run, [stream[begin - 1], *window[:-1]], window)
        assert prediction.log_probs == close(expected)


@pytest.mark.parametrize("text", [text for text in TEXTS if text])
def test_the_sum_is_what_evaluation_counts(runs, tmp_path, text):
    run = runs("language model")
    (tmp_path / "text").write_text(text, "utf-8")
    (prediction,) = run.score([text])
    scores = evaluate(run, "own", run.task.source_from([tmp_path / "text"])).scores
    (nats,) = (score for score in scores if score.name == "nats per token")
    assert nats.counts["tokens"] == len(prediction.log_probs)
    assert prediction.score == close(-nats.value * nats.counts["tokens"])


@pytest.mark.parametrize("name", ["encoder-decoder", "recurrent"])
def test_a_target_is_given_its_source(runs, name):
    run = runs(name)
    tokenizers = run.processor
    predictions = run.score(PAIRS)
    check_texts = [target for _, target in PAIRS]
    assert [p.text for p in predictions] == check_texts
    for (source, target), prediction in zip(PAIRS, predictions, strict=True):
        ids = tokenizers.target.encode(target)
        read = Tokens.of([[*tokenizers.source.encode(source), SPECIALS.end]])
        expected = forced(run, [SPECIALS.start, *ids], [*ids, SPECIALS.end], read)
        assert prediction.log_probs == close(expected)
        assert prediction.score == close(sum(expected))
        assert prediction.tokens == tokenizers.target.tokens(ids)
    assert "source words" in "; ".join(predictions[4].notes)
    assert "unknown" in "; ".join(predictions[5].notes)


def test_a_target_after_its_source_in_one_text(runs):
    run = runs("one text")
    tokenizers = run.processor
    for (source, target), prediction in zip(PAIRS, run.score(PAIRS), strict=True):
        x, y = tokenizers.source.encode(source), tokenizers.target.encode(target)
        expected = forced(run, [SPECIALS.start, *x, SPECIALS.separate, *y], [*y, SPECIALS.end])
        assert prediction.log_probs == close(expected)
    (too_long,) = run.score([("a b c", " ".join("abcabcabcabc"))])
    assert too_long.error == "the target must have at most 10 tokens, got 12; shorten it"
    (fits,) = run.score([("a b c", " ".join("abcabcabca"))])
    assert len(fits.log_probs) == 11


@pytest.mark.parametrize("name", ["encoder-decoder", "one text"])
def test_the_perplexity_of_references_is_that_of_their_scores(runs, tmp_path, name):
    run = runs(name)
    pairs = PAIRS[:3]
    for side, texts in enumerate(zip(*pairs, strict=True)):
        (tmp_path / str(side)).write_text("\n".join(texts) + "\n", "utf-8")
    source = run.task.source_from([tmp_path / "0", tmp_path / "1"])
    scores = evaluate(run, "own", source).scores
    (nats,) = (score for score in scores if score.name == "nats per token")
    total = sum(prediction.score for prediction in run.score(pairs))
    assert total == close(-nats.value * nats.counts["tokens"])


def test_a_caption_is_given_its_image(runs, images, tmp_path):
    run = runs("captioner")
    tokenizer, captions = run.processor.caption, ["a b", "", "c a a"]
    (tmp_path / "broken.png").write_text("no image")
    inputs = [*zip(images, captions, strict=True), (str(tmp_path / "broken.png"), "a")]
    *predictions, broken = run.score(inputs)
    assert "broken.png" in broken.error
    assert (broken.text, broken.log_probs) == ("", [])
    for image, caption, prediction in zip(images, captions, predictions, strict=True):
        ids = tokenizer.encode(caption)
        sequence_format = run.recipe.sequence_format
        pixels = sequence_format.images([sequence_format.reader.pixels(LazyImage.of(image))])
        expected = forced(run, [SPECIALS.start, *ids], [*ids, SPECIALS.end], pixels)
        assert prediction.log_probs == close(expected)


def test_a_masked_token_is_given_all_others(runs):
    run = runs("masked")
    tokenizer, window = run.processor.text, CONTEXT - 2
    predictions = run.score(TEXTS)
    check(run, predictions, TEXTS, tokenizer, ends=False)
    for text, prediction in zip(TEXTS, predictions, strict=True):
        ids, expected = tokenizer.encode(text), []
        for begin in range(0, len(ids), window):
            part = ids[begin : begin + window]
            for i, token in enumerate(part):
                hidden = [*part[:i], SPECIALS.mask, *part[i + 1 :]]
                with torch.no_grad():
                    states = run.model(Tokens.of([[SPECIALS.classify, *hidden, SPECIALS.separate]]))
                    logits = run.model.heads["token"](states[i + 1 : i + 2]).double()
                expected.append(float(logits.log_softmax(-1)[0, token]))
        assert prediction.log_probs == close(expected)


def test_masked_tokens_do_not_depend_on_the_batch(runs):
    run = runs("masked")
    ids = [run.processor.text.encode(text) for text in TEXTS]
    together = pseudo_log_probs(run.model, ids, CONTEXT)
    for budget in (1, 30):
        for found, expected in zip(pseudo_log_probs(run.model, ids, CONTEXT, budget), together, strict=True):
            assert found == close(expected)


@pytest.mark.parametrize("name", RECIPES)
def test_batched_equals_single(runs, images, name):
    run = runs(name)
    inputs = TEXTS if name in ("language model", "masked") else PAIRS
    if name == "captioner":
        inputs = list(zip(images, ["a", "b c a", ""], strict=True))
    counted = []
    batched = run.score(inputs, progress=counted.append)
    assert sum(counted) == len(inputs)
    for task_input, prediction in zip(inputs, batched, strict=True):
        (single,) = run.score([task_input])
        assert single.log_probs == close(prediction.log_probs)
        assert (single.text, single.tokens, single.notes) == (
            prediction.text,
            prediction.tokens,
            prediction.notes,
        )
    assert run.score([]) == []


def test_an_answer_has_the_score_that_decoding_gave_it(runs):
    run = runs("encoder-decoder")
    (predicted,) = run.predict(["a b"], decoding={"kind": "greedy"}, precision="fp32")
    (scored,) = run.score([("a b", predicted.text)])
    assert scored.tokens == predicted.tokens
    assert scored.log_probs[: len(predicted.log_probs)] == close(predicted.log_probs)


def test_a_generated_document_has_the_score_that_decoding_gave_it(runs):
    run = runs("language model")
    (predicted,) = run.predict(
        [""], decoding={"kind": "sample", "seed": 0}, max_new_tokens=5, precision="fp32"
    )
    (scored,) = run.score([predicted.text])
    assert scored.tokens == predicted.tokens
    assert scored.log_probs[: len(predicted.log_probs)] == close(predicted.log_probs)
    assert len(predicted.tokens) > 1


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("language model", "a b", "expected a list of texts"),
        ("language model", [("a", "b")], "input 1: expected a text, got a tuple of 2"),
        ("encoder-decoder", ["a"], r"input 1: expected a tuple of 2 texts \(source, target\), got a text"),
        ("encoder-decoder", [("a", "b"), ("a", 3)], "input 2: target: expected a text"),
        ("captioner", ["a.png"], r"input 1: expected a tuple \(image, caption\), got a text"),
        ("captioner", [("a.png", None)], "input 1: caption: expected a text, got None"),
    ],
)
def test_wrong_inputs_are_refused_by_their_number(runs, name, inputs, message):
    with pytest.raises(RequestError, match=message):
        runs(name).score(inputs)


# The command -----------------------------------------------------------------------------------------------


def command(*arguments, stdin=None):
    return CliRunner().invoke(app, ["score", *map(str, arguments), "--device", "cpu"], input=stdin)


def test_the_command_prints_a_number_per_line(runs):
    run = runs("language model")
    outcome = command(run.folder.path, stdin="\n".join(TEXTS) + "\n")
    assert outcome.exception is None, outcome.exception
    assert outcome.stdout.splitlines() == [f"{p.score:.4f}" for p in run.score(TEXTS)]
    assert "unknown" in outcome.stderr
    whole = command(run.folder.path, "--whole", stdin="a b\nb a\n")
    assert whole.stdout == f"{run.score(['a b' + chr(10) + 'b a'])[0].score:.4f}\n"


def test_pairs_are_separated_by_a_tab(runs, tmp_path):
    run = runs("encoder-decoder")
    (tmp_path / "pairs.txt").write_text("a b\tc a\nb\nc\tb\n", "utf-8")
    outcome = command(run.folder.path, tmp_path / "pairs.txt")
    assert isinstance(outcome.exception, WorkError)
    assert "1 of 3 inputs could not be scored" in str(outcome.exception)
    scores = [f"{p.score:.4f}" for p in run.score([("a b", "c a"), ("c", "b")])]
    assert outcome.stdout.split("\n") == [scores[0], "", scores[1], ""]
    assert "expected 2 texts separated by tabs (source, target), got 1" in outcome.stderr


def test_json_lines_have_each_token(runs, tmp_path, published):
    run = runs("encoder-decoder")
    rows = [{"source": s, "target": t, "id": i} for i, (s, t) in enumerate(PAIRS)]
    rows.append({"source": "a"})
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    outcome = command(run.folder.path, tmp_path / "pairs.jsonl")
    *records, failed = map(json.loads, outcome.stdout.splitlines())
    for i, (record, prediction) in enumerate(zip(records, run.score(PAIRS), strict=True)):
        published("prediction", record)
        assert record["input"]["id"] == i
        assert (record["output"], record.get("tokens", [])) == (prediction.text, prediction.tokens)
        assert record["log_probs"] == prediction.log_probs
    assert "target" in failed["error"]


def test_a_table_is_read_by_its_names(runs, tmp_path):
    run = runs("encoder-decoder")
    (tmp_path / "pairs.csv").write_text("id,en,de\n1,a b,c a\n", "utf-8")
    outcome = command(run.folder.path, tmp_path / "pairs.csv", "--column", "en", "--column", "target=de")
    assert outcome.exception is None, outcome.exception
    assert outcome.stdout == f"{run.score([('a b', 'c a')])[0].score:.4f}\n"


def test_columns_of_plain_text_are_refused(runs, tmp_path):
    (tmp_path / "texts.txt").write_text("a b\n", "utf-8")
    outcome = command(runs("language model").folder.path, tmp_path / "texts.txt", "--column", "text=review")
    assert isinstance(outcome.exception, RequestError)
    assert "--column requires a table (.csv, .tsv, .xlsx, .parquet), CoNLL or JSON lines" in str(
        outcome.exception
    )


def test_a_classifier_scores_no_texts(make_run, tmp_path):
    recipe = words({"kind": "encoder", "max_length": 9}, task={"kind": "classification"})
    run = make_run(tmp_path / "run", recipe, [{"text": x, "label": x} for x in "ab"])
    outcome = command(run, stdin="a\n")
    assert isinstance(outcome.exception, RequestError)
    assert "the task classification does not score texts" in str(outcome.exception)
