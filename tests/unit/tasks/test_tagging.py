"""From words to marks, from long rows to stretches, and from words to tags."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_tasks import task_of

from heedful.data.lines import Location
from heedful.data.sources import LocatedRow
from heedful.engine.choosing import Inference
from heedful.errors import DataError, RequestError
from heedful.models.encoder import EncoderConfig, build, class_head
from heedful.nn.layout import Tokens
from heedful.tasks import tagging
from heedful.tasks.classification import LabelProcessor
from heedful.tasks.inputs.words import TAG_AT_LAST_TOKEN, WordLimit, split, stretches
from heedful.tasks.prediction import PredictOptions
from heedful.text.configuration import BpeConfig
from heedful.text.training import train_tokenizer
from heedful.text.words import word_ids

WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
CLS, SEP = 4, 5


@pytest.fixture(scope="module")
def processor():
    tokenizer = train_tokenizer(BpeConfig(kind="bpe", merges=7), [" ".join(WORDS)] * 3)
    return LabelProcessor(tokenizer, ("odd", "even", "other"))


@pytest.fixture(scope="module")
def task(processor):
    return task_of("tagging", processor, ["words", "tags"], model={"max_length": 17})


@pytest.fixture(scope="module")
def model(processor):
    torch.manual_seed(3)
    config = EncoderConfig(
        d_model=14,
        n_layers=1,
        max_length=17,
        segments=0,
        layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}},
    )
    made = build(config, processor.sizes[0])
    made.heads["tag"] = class_head(14, processor.sizes[1], 0.1)
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made.eval()


def row(words, tags):
    return LocatedRow({"words": words, "tags": tags}, Location("corpus.tsv", 7))


def test_a_mark_stands_on_the_first_token_of_every_word(task, processor):
    (encoded,) = task.encode_rows([row("three  one", "odd even")], task.new_report())
    three, one = word_ids(processor.text, ["three", "one"])
    assert len(three) > 1
    assert encoded.row["words"] == [*three, *one]
    assert encoded.row["tags"] == [1, *[0] * (len(three) - 1), 2, *[0] * (len(one) - 1)]


def test_of_a_word_that_is_too_long_the_beginning_is_kept(task, processor):
    (whole,) = task.encode_rows([row("seven one", "odd even")], task.new_report())
    seven, one = word_ids(processor.text, ["seven", "one"])
    limit = WordLimit(2, "model.max_length=4")
    cut = limit.truncate(whole.row)
    assert cut == {"words": [*seven[:2], *one[:2]], "tags": [1, 0, 2, 0]}
    assert limit.excess(whole.row) == f"a word has {len(seven)} tokens, more than 2 (model.max_length=4)"
    assert limit.excess(cut) is None
    assert WordLimit(len(seven), "").excess(whole.row) is None
    assert WordLimit(len(seven), "").truncate(whole.row) == whole.row


def test_a_language_model_has_it_on_the_last(processor):
    batch = TAG_AT_LAST_TOKEN([[9, 8, 7], [6], []], [[2, 0, 3], [1], []])
    assert batch.inputs.ids.tolist() == [2, 9, 8, 7, 2, 2, 6, 2, 2, 2]
    assert (batch.rows.tolist(), batch.targets.tolist()) == ([2, 3, 6], [1, 2, 0])


@pytest.mark.parametrize(
    "words, tags, message",
    [
        ("one two three", "odd even", r"corpus.tsv:7: 3 words but 2 tags"),
        ("", "odd", r"corpus.tsv:7: 0 words but 1 tags"),
        ("one two", "odd eve", r"corpus.tsv:7: unknown tag 'eve'.*'even'"),
    ],
)
def test_bad_rows_are_named(task, words, tags, message):
    with pytest.raises(DataError, match=message):
        list(task.encode_rows([row(words, tags)], task.new_report()))


def test_only_plain_blanks_part_words():
    assert split(" a\u00a0b \t c\n") == ["a\u00a0b", "c"]
    assert split("") == []


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(1, 12))
def test_stretches_hold_all_words_in_order_and_fit(lengths, room):
    found = stretches(lengths, room)
    assert [i for a, b in found for i in range(a, b)] == list(range(len(lengths)))
    for a, b in found:
        assert b > a
        assert sum(lengths[a:b]) <= room or b == a + 1
    # No stretch could have taken the next word too.
    for a, b in found[:-1]:
        assert sum(lengths[a : b + 1]) > room


def expected(model, processor, words):
    """The tags of words that fit into one sequence, by the model itself."""
    ids = word_ids(processor.text, words)
    tokens = Tokens.of([[CLS, *(i for own in ids for i in own), SEP]])
    with torch.no_grad():
        log_probs = model.heads["tag"](model(tokens)).log_softmax(-1)
    place, found = 1, []
    for own in ids:
        found.append((processor.labels[log_probs[place].argmax()], log_probs[place].max().item()))
        place += len(own)
    return found


def test_every_word_has_the_models_own_tag_whatever_the_batch(task, model, processor, monkeypatch):
    monkeypatch.setattr(tagging, "BATCH_TOKENS", 20)
    lines = ["one two", "", "seven", "six five four", "two two two", "one two"]
    done = []
    found = task.predict(model, lines, PredictOptions(progress=done.append))
    assert sum(done) == len(lines)
    for line, prediction in zip(lines, found, strict=True):
        own = expected(model, processor, line.split())
        assert prediction.words == line.split()
        assert prediction.tags == [tag for tag, _ in own]
        assert prediction.text == " ".join(prediction.tags)
        assert prediction.log_probs == pytest.approx([value for _, value in own], abs=1e-5)
        assert prediction.score == pytest.approx(sum(prediction.log_probs))
    assert found[1].notes == ("the input is empty",)
    assert not found[0].notes
    assert found[0].to_dict()["output"] == found[0].tags


def test_long_inputs_are_read_in_parts_and_every_word_has_a_tag(task, model, processor):
    words = WORDS * 5
    (found,) = task.predict(model, [words])
    assert len(found.tags) == len(found.log_probs) == len(words)
    lengths = [len(own) for own in word_ids(processor.text, words)]
    parts = stretches(lengths, 15)
    assert "; ".join(found.notes) == f"read in {len(parts)} parts"
    own = [tag for a, b in parts for tag, _ in expected(model, processor, words[a:b])]
    assert found.tags == own


def test_a_word_longer_than_the_model_reads_has_one_tag(task, model):
    (found,) = task.predict(model, [["one", "seven" * 30, "two"]])
    assert len(found.tags) == 3


def test_words_of_a_list_may_hold_blanks_or_nothing(task, model):
    (found,) = task.predict(model, [["one two", "", "six"]])
    assert found.words == ["one two", "", "six"]
    assert len(found.tags) == 3


def test_no_input_no_output_and_no_attention(task, model):
    tagger = task.predictor(Inference(model))
    assert tagger.predict([]) == []
    tagger = task.predictor(Inference(model), PredictOptions(attention=True))
    with pytest.raises(RequestError, match="attention over a source"):
        tagger.predict(["one"])
