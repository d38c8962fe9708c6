"""Texts in, predictions out: order, emptiness, independence of the batch, scores, attention."""

import pytest
import torch

from heedful.decoding.config import BeamConfig, GreedyConfig, MaxLength, SampleConfig
from heedful.decoding.scoring import AverageLength
from heedful.models.recurrent import PRESETS as RECURRENT
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.tasks.generation.generator import score_targets
from heedful.tasks.generation.sequence_formats import EncoderDecoderFormat
from heedful.tasks.generation.text_generation import Translator
from heedful.tasks.inputs.processor import Tokenizers
from heedful.tasks.prediction import PredictOptions
from heedful.text.configuration import WordConfig
from heedful.text.training import train_tokenizer

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
SHORT = MaxLength(ratio=1.0, extra=3, cap=9)
TEXTS = ["two three", "", "eleven", "one two three four five six seven", "   ", "five five ten", "two three"]


def translator(kind="transformer", decoding=None, **options):
    tokenizer = train_tokenizer(WordConfig(kind="word"), [" ".join(WORDS)])
    torch.manual_seed(11)
    config = {
        "transformer": TransformerConfig(
            d_model=12, n_layers=2, dropout=0.3, layer={"mixer": {"n_heads": 3}, "channels": {"d_ff": 17}}
        ),
        "recurrent": RECURRENT["rnn-tiny"],
    }[kind]
    model = build_model(config, tokenizer.vocab_size, tokenizer.vocab_size).eval()
    decoding = decoding or GreedyConfig(max_length=SHORT)
    return Translator(model, Tokenizers(tokenizer, tokenizer), decoding, **options)


DECODINGS = [
    GreedyConfig(max_length=SHORT),
    BeamConfig(beam=3, n_best=2, length_penalty=AverageLength(), max_length=SHORT),
    BeamConfig(beam=3, coverage=0.4, max_length=SHORT),
    SampleConfig(seed=5, max_length=SHORT),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
@pytest.mark.parametrize("decoding", DECODINGS, ids=lambda d: f"{d.kind}-{getattr(d, 'coverage', 0)}")
def test_as_many_predictions_as_texts_in_order_whatever_the_batch(kind, decoding):
    together = translator(kind, decoding).predict(TEXTS)
    small = translator(kind, decoding, budget=1).predict(TEXTS)
    assert len(together) == len(TEXTS)
    for text, ours, alone in zip(TEXTS, together, small):
        assert ours.tokens == alone.tokens
        assert ours.score == pytest.approx(alone.score, abs=1e-5)
        if not text.strip():
            assert (ours.text, ours.tokens, ours.log_probs) == ("", [], [])
    if decoding.kind != "sample":
        assert together[0] == together[-1]


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_log_probabilities_are_those_of_a_forced_pass(kind):
    it = translator(kind, BeamConfig(beam=4, max_length=SHORT))
    texts = [t for t in TEXTS if t.strip()]
    for text, prediction in zip(texts, it.predict(texts)):
        source = it.source_tokenizer.encode(text)
        ids = it.tokenizer.encode(prediction.text)
        wanted = score_targets(it.model, it.sequence_format.collate([source], [ids]))[0].log_probs
        got = torch.tensor(prediction.log_probs)
        torch.testing.assert_close(got, wanted[: len(got)], rtol=0, atol=1e-5)
        assert len(prediction.tokens) <= len(got) <= len(prediction.tokens) + 1


def test_a_forced_pass_has_the_logits_of_few_tokens_at_a_time(monkeypatch):
    it = translator()
    batch = it.sequence_format.collate([[5, 6], [7]], [[8, 9, 5, 6], [9, 7]])
    wanted = torch.cat([each.log_probs for each in score_targets(it.model, batch)])
    sizes = []
    it.model.heads["token"].register_forward_hook(lambda module, inputs, logits: sizes.append(len(logits)))
    monkeypatch.setattr("heedful.tasks.generation.generator.CHUNK", 3)
    torch.testing.assert_close(torch.cat([each.log_probs for each in score_targets(it.model, batch)]), wanted)
    assert sizes == [3, 3, 2]


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_attention_is_weights_over_the_source(kind):
    prediction = translator(kind, options=PredictOptions(attention=True)).predict(["two three four"])[0]
    weights = torch.tensor(prediction.attention)
    n_layers, n_heads = (2, 3) if kind == "transformer" else (1, 1)
    assert prediction.source_tokens is not None
    shape = (n_layers, n_heads, len(prediction.tokens) + 1, len(prediction.source_tokens))
    assert weights.shape == shape
    assert len(prediction.source_tokens) == 4
    torch.testing.assert_close(weights.sum(-1), torch.ones(shape[:-1]))


def test_attention_of_an_output_that_is_cut_at_the_last_position():
    """The last token was generated without being read, so it has the last row."""
    options, longest = PredictOptions(attention=True), EncoderDecoderFormat(longest=3)
    endless = GreedyConfig(max_length=MaxLength(ratio=0, extra=30))
    it = translator(decoding=endless, sequence_format=longest, options=options)
    it.model.register_forward_pre_hook(
        lambda model, inputs: None if max(inputs[0].layout.lengths) <= 3 else pytest.fail("too long")
    )
    prediction = it.predict(["two three four"])[0]
    assert (len(prediction.tokens), prediction.finished) == (3, False)
    assert {len(head) for layer in prediction.attention for head in layer} == {3}


def test_asking_for_attention_changes_no_translation():
    decoding, options = BeamConfig(beam=3, max_length=SHORT), PredictOptions(attention=True)
    plain = translator(decoding=decoding).predict(TEXTS)
    shown = translator(decoding=decoding, options=options).predict(TEXTS)
    assert [p.tokens for p in plain] == [p.tokens for p in shown]


CUT = "output cut at {} tokens (decoding.max_length.ratio and extra)"


def test_a_source_that_is_too_long_is_cut_and_says_so():
    it = translator(max_source=4)
    long, short = it.predict([" ".join(WORDS), "one two three four"])
    assert "; ".join(long.notes) == f"source cut from 11 to 4 tokens; {CUT.format(7)}"
    assert short.notes == (CUT.format(7),)
    assert long.tokens == short.tokens


def test_special_tokens_are_never_written():
    it = translator(decoding=SampleConfig(seed=1, temperature=3.0, max_length=MaxLength(extra=30)))
    specials = set(it.tokenizer.specials.names)
    for prediction in it.predict(["one two three"] * 20):
        assert not specials & set(prediction.tokens)


def test_unknown_words_of_a_source_are_told():
    it = translator(max_source=4)
    known, strange, both = it.predict(["two three", "two unicorn zebra", " ".join([*WORDS, "zebra"])])
    assert known.notes == (CUT.format(5),)
    assert "; ".join(strange.notes) == (
        f"2 of 3 source words are unknown to this run ('unicorn', 'zebra'); {CUT.format(6)}"
    )
    assert "; ".join(both.notes) == (
        "source cut from 12 to 4 tokens; 1 of 12 source words is unknown to this run ('zebra'); "
        f"{CUT.format(7)}"
    )
