"""From rows to batches, and from texts to labels."""

import itertools

import numpy as np
import pytest
import torch
from small_tasks import task_of

from heedful.data.lines import Location
from heedful.data.sources import LocatedRow
from heedful.engine.choosing import Inference
from heedful.errors import DataError, RequestError
from heedful.models.encoder import EncoderConfig, build, class_head
from heedful.nn.layout import Tokens
from heedful.tasks.classification import LabelProcessor
from heedful.tasks.inputs import texts as reading
from heedful.tasks.inputs.texts import truncate
from heedful.tasks.prediction import PredictOptions
from heedful.text.configuration import WordConfig
from heedful.text.training import train_tokenizer

WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
CLS, SEP = 4, 5


@pytest.fixture(scope="module")
def processor():
    tokenizer = train_tokenizer(WordConfig(kind="word"), [" ".join(WORDS)] * 2)
    return LabelProcessor(tokenizer, ("bad", "good", "odd"))


def ids(processor, text):
    return processor.text.encode(text)


@pytest.fixture(scope="module")
def task(processor):
    return task_of("classification", processor, ["text", "label"])


@pytest.fixture(scope="module")
def pairs(processor):
    columns = ["text", "pair", "label"]
    return task_of("classification", processor, columns, task={"pairs": True}, model={"segments": 2})


def batch(task, texts, labels):
    """A batch of texts with the numbers of their labels."""
    return task.with_targets(task.recipe.template(texts), np.array([[label] for label in labels]))


def model(processor, segments=2):
    torch.manual_seed(3)
    config = EncoderConfig(
        d_model=14,
        n_layers=1,
        max_length=9,
        segments=segments,
        layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}},
    )
    made = build(config, processor.sizes[0])
    made.heads["class"] = class_head(14, processor.sizes[1], 0.1)
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made.eval()


def test_rows_become_ids_and_numbers(task, processor):
    rows = [LocatedRow({"text": "one two", "label": "good"}, Location("f", 1))]
    (encoded,) = task.encode_rows(rows, task.new_report())
    assert encoded.row == {"text": ids(processor, "one two"), "label": [1]}


def test_a_label_that_was_never_seen_is_named_with_its_place_and_the_nearest(task):
    rows = [LocatedRow({"text": "one", "label": "god"}, Location("reviews.tsv", 7))]
    with pytest.raises(DataError, match=r"reviews.tsv:7: unknown label 'god'.*'good'"):
        list(task.encode_rows(rows, task.new_report()))


def test_a_text_stands_between_class_token_and_separator(task):
    made = batch(task, [[[7, 8]], [[]]], [2, 0])
    assert made.inputs.split() == [[CLS, 7, 8, SEP], [CLS, SEP]]
    assert made.classes.tolist() == [2, 0]
    assert made.inputs.segments is None


def test_the_second_text_of_a_pair_is_another_segment(pairs):
    made = batch(pairs, [[[7, 8], [9]], [[], [10, 11]]], [2, 0])
    assert made.inputs.split() == [[CLS, 7, 8, SEP, 9, SEP], [CLS, SEP, 10, 11, SEP]]
    assert made.inputs.segments.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("lengths", list(itertools.product(range(8), repeat=2)) + [(n,) for n in range(12)])
def test_texts_are_cut_the_longer_one_first(lengths):
    longest = 9
    texts = [list(range(n)) for n in lengths]
    expected = [list(text) for text in texts]
    while sum(map(len, expected)) + len(lengths) + 1 > longest:
        max(expected, key=len).pop()
    assert [list(text) for text in truncate(texts, longest)] == expected


def test_predictions_are_the_models_own_probabilities_whatever_the_batch(task, processor, monkeypatch):
    monkeypatch.setattr(reading, "BATCH_TOKENS", 20)
    made = model(processor)
    texts = ["one", "two three four", "", "seven " * 20, "five six", "one"]
    done = []
    predictions = task.predict(made, texts, PredictOptions(n_best=3, progress=done.append))
    assert sum(done) == len(texts)
    for text, prediction in zip(texts, predictions, strict=True):
        row = Tokens.of([[CLS, *ids(processor, text)[:7], SEP]])
        with torch.no_grad():
            log_probs = made.heads["class"](made.heads["pooled"](made(row), row.layout))[0].log_softmax(-1)
        found = {p.text: p.score for p in (prediction, *prediction.alternatives)}
        expected = dict(zip(processor.labels, log_probs.tolist(), strict=True))
        assert found == pytest.approx(expected, abs=1e-5)
        scores = [prediction.score, *(p.score for p in prediction.alternatives)]
        assert scores == sorted(scores, reverse=True)
    assert predictions[0].text == predictions[5].text
    assert predictions[2].notes == ("the input is empty",)
    assert predictions[3].notes == ("cut from 20 to 7 tokens",)


def test_pairs_are_read_with_their_segments(pairs, processor):
    made = model(processor)
    (prediction,) = pairs.predict(made, [("one two", "three")])
    row = batch(pairs, [[ids(processor, "one two"), ids(processor, "three")]], [0]).inputs
    with torch.no_grad():
        logits = made.heads["class"](made.heads["pooled"](made(row), row.layout))[0]
    assert prediction.text == processor.labels[logits.argmax()]
    assert prediction.alternatives == []


def test_there_is_no_attention_over_a_source(task, processor):
    made = model(processor)
    with pytest.raises(RequestError, match="attention over a source"):
        task.predictor(Inference(made), PredictOptions(attention=True)).predict(["one"])


def test_no_input_no_output(task, processor):
    assert task.predict(model(processor), []) == []
