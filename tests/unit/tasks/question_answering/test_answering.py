"""Where answers are found: in rows, in windows, and by the model, beside a search over all stretches."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.lines import Location
from heedful.data.sources import LocatedRow
from heedful.errors import DataError
from heedful.models.encoder import EncoderConfig, build, class_head
from heedful.nn.layout import Tokens
from heedful.tasks.inputs.processor import TextProcessor
from heedful.tasks.prediction import PredictOptions
from heedful.tasks.question_answering.answering import Answerer, Windows, answer_span
from heedful.text.configuration import BpeConfig
from heedful.text.training import train_tokenizer
from heedful.text.words import encode_with_spans

PASSAGE = "One two.  Three four, five six seven (eight) nine ten!"
CLS, SEP = 4, 5


@pytest.fixture(scope="module")
def processor():
    return TextProcessor(train_tokenizer(BpeConfig(kind="bpe", merges=40), [PASSAGE] * 3))


@pytest.fixture(scope="module")
def model(processor):
    torch.manual_seed(3)
    config = EncoderConfig(
        d_model=14, n_layers=1, max_length=64, layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}}
    )
    made = build(config, processor.sizes[0])
    made.heads["answer"] = class_head(14, 2, 0.1)
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made.eval()


def answerer(model, processor, longest=64, stride=None, **settings):
    windows = Windows(longest, 5, stride)
    return Answerer(model, processor.text, windows=windows, **{"longest_answer": 4, **settings})


def every_stretch(model, processor, question, passage, windows, longest_answer):
    """Score and text of each stretch of each window, and the class token's score of each window."""
    asked, read = encode_with_spans(processor.text, question), encode_with_spans(processor.text, passage)
    found, nothing = {}, []
    for a, b in windows.bounds(len(asked.ids), len(read.ids)):
        head = [CLS, *asked.ids[: windows.longest_question], SEP]
        ids = [*head, *read.ids[a:b], SEP]
        segments = torch.tensor([0] * len(head) + [1] * (b - a + 1))
        tokens = Tokens(torch.tensor(ids), Tokens.of([ids]).layout, segments)
        with torch.no_grad():
            begins, ends = model.heads["answer"](model(tokens)).log_softmax(0).unbind(-1)
        nothing.append((begins[0] + ends[0]).item())
        for i in range(a, b):
            for j in range(i, min(b, i + longest_answer)):
                span = read.spans[i][0], read.spans[j][1]
                if any(first == last for first, last in (read.spans[i], read.spans[j])):
                    continue
                score = (begins[len(head) + i - a] + ends[len(head) + j - a]).item()
                found[span] = max(score, found.get(span, -1e9))
    return found, nothing


@pytest.mark.parametrize("longest, stride", [(64, None), (20, 3), (20, None), (19, 50)])
def test_answers_are_the_best_stretches_of_all_windows(model, processor, longest, stride):
    predictor = answerer(model, processor, longest, stride, options=PredictOptions(n_best=6), budget=70)
    questions = ["four five", "six", "two three four five six seven"]
    passages = [PASSAGE, "x y z \u0130 six x", PASSAGE]
    found = predictor.predict(list(zip(questions, passages, strict=True)))
    for question, passage, answer in zip(questions, passages, found, strict=True):
        every, _ = every_stretch(model, processor, question, passage, predictor.windows, 4)
        best = sorted(every.items(), key=lambda item: -item[1])[:6]
        own = [answer, *answer.alternatives]
        assert [(a.start, a.end) for a in own] == [span for span, _ in best]
        assert [a.score for a in own] == pytest.approx([score for _, score in best], abs=1e-4)
        assert all(a.text == passage[a.start : a.end] != "" for a in own)


def test_no_answer_is_the_class_token_unless_the_best_has_the_threshold_more(model, processor):
    every, nothing = every_stretch(model, processor, "six", PASSAGE, Windows(20, 5, 3), 4)
    best, none = max(every.values()), min(nothing)
    for threshold, empty in ((best - none - 0.01, False), (best - none + 0.01, True)):
        options = PredictOptions(n_best=2)
        predictor = answerer(model, processor, 20, 3, threshold=threshold, options=options)
        (answer,) = predictor.predict([("six", PASSAGE)])
        assert (answer.text == "") == empty == (answer.start is None)
        assert answer.score == pytest.approx(none if empty else best, abs=1e-4)
        plain = answer.to_dict()
        assert ("start" in plain) != empty
        assert (answer.alternatives[0].text == "") != empty
    (always,) = answerer(model, processor, 20, 3).predict([("six", PASSAGE)])
    assert always.text


def test_one_output_for_each_input_whatever_is_empty(model, processor):
    done = []
    found = answerer(model, processor, options=PredictOptions(progress=done.append)).predict(
        [("", PASSAGE), ("six", ""), ("", " "), ("six", "x")]
    )
    assert sum(done) == len(found) == 4
    assert found[0].notes == ("the question is empty",)
    assert found[0].text
    assert found[1].notes == found[2].notes == ("the input is empty: it has no passage",)
    assert found[1].text == found[2].text == ""
    assert (found[3].text, found[3].start, found[3].end) == ("x", 0, 1)
    assert answerer(model, processor).predict([]) == []


@given(st.integers(0, 30), st.integers(0, 60), st.integers(10, 40), st.none() | st.integers(1, 40))
def test_windows_cover_the_passage_and_fit(n_question, n_passage, longest, stride):
    windows = Windows(longest, 6, stride)
    found = windows.bounds(n_question, n_passage)
    assert found
    assert found[0][0] == 0
    assert found[-1][1] == n_passage
    for a, b in found:
        assert b - a + min(n_question, 6) + 3 <= longest
    for (_, b), (c, d) in pairwise(found):
        assert c <= b < d
    assert {i for a, b in found for i in range(a, b)} == set(range(n_passage))


def row(answer, start=None):
    plain = {"question": "q", "passage": "one two one", "answer": answer}
    return LocatedRow(plain if start is None else {**plain, "start": start}, Location("f.jsonl", 7))


@pytest.mark.parametrize(
    "answer, start, span",
    [
        ("one", None, (0, 3)),
        ("one", "", (0, 3)),
        ("one", "8", (8, 11)),
        ("two one", None, (4, 11)),
        ("", None, None),
        (" ", None, None),
        ("three", None, "the answer is not in the passage"),
        ("one", "1", "the answer is not where start says"),
    ],
)
def test_answers_of_rows_are_found(answer, start, span):
    assert answer_span(row(answer, start)) == span


def test_a_start_that_is_no_number_is_named():
    with pytest.raises(DataError, match=r"f.jsonl:7: start must be a whole number, got 'x'"):
        answer_span(row("one", "x"))
