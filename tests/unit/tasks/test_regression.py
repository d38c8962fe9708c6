"""Numbers of texts: read, kept exactly, and given back in their unit."""

import re

import numpy as np
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
from heedful.tasks.inputs import texts as reading
from heedful.tasks.inputs.processor import LARGEST, Scale
from heedful.tasks.prediction import PredictOptions
from heedful.tasks.regression import NumberProcessor, number_hint, parse_target
from heedful.text.configuration import WordConfig
from heedful.text.training import train_tokenizer

WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
PROCESSOR = NumberProcessor(
    train_tokenizer(WordConfig(kind="word"), [" ".join(WORDS)] * 2), Scale(mean=3.25, deviation=1.5)
)
TASK = task_of("regression", PROCESSOR, ["text", "label"])
PAIRS = task_of(
    "regression", PROCESSOR, ["text", "pair", "label"], task={"pairs": True}, model={"segments": 2}
)


def row(label, line=1):
    return LocatedRow({"text": "one", "label": label}, Location("scores.tsv", line))


@given(st.floats(-LARGEST, LARGEST))
def test_numbers_are_kept_exactly(value):
    (encoded,) = TASK.encode_rows([row(repr(value))], TASK.new_report())
    assert len(encoded.row["label"]) == 8
    assert np.array(encoded.row["label"], dtype="u1").view("<f8")[0] == value


@pytest.mark.parametrize(
    "label, message",
    [
        ("high", "expected a number as label, got 'high'"),
        ("3,5", "got '3,5'; write '3.5', with a decimal point"),
        (
            "1,001",
            "got '1,001'; this is ambiguous: write '1.001' if the comma is a decimal comma, or '1001' if it "
            "separates thousands, and so in all rows",
        ),
        ("-1.234,5", "got '-1.234,5'; write '-1234.5', with a decimal point"),
        ("1,234.5", "got '1,234.5'; write '1234.5', with a decimal point"),
        ("1,234,567", "got '1,234,567'; write '1234567', without marks between thousands"),
        ("12 %", "got '12 %'; write all without the percent sign"),
        ("", "expected a number"),
        ("1e200", "must be at most 1e\\+100 in magnitude, got 1e200"),
        ("nan", "not a finite"),
        ("-inf", "finite"),
    ],
)
def test_what_is_no_number_is_named_with_its_place(label, message):
    with pytest.raises(DataError, match=rf"scores.tsv:7: .*{message}"):
        parse_target(row(label, 7))


def test_estimates_are_the_models_own_in_the_unit_of_the_data(monkeypatch):
    monkeypatch.setattr(reading, "BATCH_TOKENS", 20)
    torch.manual_seed(3)
    config = EncoderConfig(
        d_model=14, n_layers=1, max_length=9, layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}}
    )
    model = build(config, PROCESSOR.sizes[0])
    model.heads["value"] = class_head(14, 1, 0.1)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    texts = ["one", "two three four", "", "seven " * 20, "five six"]
    done = []
    found = TASK.predict(model.eval(), texts, PredictOptions(progress=done.append))
    assert sum(done) == len(texts)
    for text, estimate in zip(texts, found, strict=True):
        row = Tokens.of([[4, *PROCESSOR.text.encode(text)[:7], 5]])
        with torch.no_grad():
            value = model.heads["value"](model.heads["pooled"](model(row), row.layout)).item()
        assert estimate.value == pytest.approx(3.25 + 1.5 * value, abs=1e-5)
        assert estimate.text == f"{estimate.value:.6g}"
    assert found[2].notes == ("the input is empty",)
    assert found[3].notes == ("cut from 20 to 7 tokens",)
    (pair,) = PAIRS.predict(model, [("one", "two")])
    assert pair.value != found[0].value
    with pytest.raises(RequestError, match="attention over a source"):
        TASK.predictor(Inference(model), PredictOptions(attention=True)).predict(["one"])


MARKS = {"decimal comma": ("", ","), "German": (".", ","), "English": (",", "."), "French": ("\u00a0", ",")}


@pytest.mark.parametrize("country", [*MARKS, "Swiss"])
@given(number=st.decimals(-(10**7), 10**7, places=2))
def test_what_a_hint_says_is_read_as_the_number(country, number):
    """Written as a country writes it, and then as the message says; if it says two forms, one of them."""
    thousands, point = MARKS.get(country, ("\u2019", "."))
    written = f"{number:,.2f}".translate({ord(","): thousands, ord("."): point})
    try:
        assert parse_target(row(written)) == float(number)
    except DataError as error:
        forms = re.findall(r"write '([^']*)'|or '([^']*)'", str(error).split("got")[1])
        assert float(number) in [parse_target(row(one or other)) for one, other in forms]


@pytest.mark.parametrize("text", ["", "abc", "1,2,3", "1-2", "1 2 3", "€ 5", "12:30"])
def test_no_number_no_hint(text):
    assert number_hint(text) == ""
