"""Answers shown while they are written: the very text of the prediction, whatever writes it."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from heedful.decoding.config import BeamConfig, GreedyConfig, MaxLength, SampleConfig
from heedful.decoding.protocol import Hypothesis
from heedful.errors import DataError, RequestError
from heedful.models.captioner import CaptionerConfig
from heedful.models.captioner import build as build_captioner
from heedful.models.language_model import LanguageModelConfig
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.tasks.captioning.task import CaptionProcessor
from heedful.tasks.generation.sequence_formats import ConcatenatedFormat, ImageAndCaption
from heedful.tasks.generation.streaming import Detokenizer, IncrementalText
from heedful.tasks.generation.text_generation import Captioner, Translator
from heedful.tasks.inputs.images import ImageReader
from heedful.tasks.inputs.processor import Tokenizers
from heedful.tasks.language_modelling.continuing import Stops
from heedful.text.configuration import (
    BpeConfig,
    ByteBpeConfig,
    ByteConfig,
    CharacterConfig,
    PreprocessingConfig,
    WordConfig,
    WordPieceConfig,
)
from heedful.text.training import train_tokenizer

TEXT = "l' eau ( « ein t @-@ shirt » ) , Ä weiße Maus & 3 € ! ' s"
SOURCES = ["eau", "", "Ä weiße Maus", "t @-@ shirt ( ein ) ,"]
MOST = MaxLength(ratio=0.0, extra=24)
DECODINGS = [GreedyConfig(max_length=MOST), SampleConfig(seed=3, temperature=2.0, max_length=MOST)]
DECODINGS += [BeamConfig(beam=1, max_length=MOST)]
KINDS = {
    "character": CharacterConfig(kind="character"),
    "byte": ByteConfig(kind="byte"),
    "bpe": BpeConfig(kind="bpe", merges=12),
    "byte-bpe": ByteBpeConfig(kind="byte-bpe", merges=9),
    "word": WordConfig(kind="word", split="space"),
    "wordpiece": WordPieceConfig(kind="wordpiece", vocab_size=60),
}


@cache
def tokenizer(kind, moses=None):
    return train_tokenizer(KINDS[kind], [TEXT], PreprocessingConfig(moses=moses))


def noisy(model):
    """The model with weights under which it writes all kinds of things."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def translator(decoding, kind="word", moses=None, *, one_text=False):
    torch.manual_seed(7)
    own = tokenizer(kind, moses)
    sizes = {"d_model": 12, "n_layers": 1, "layer": {"mixer": {"n_heads": 3}, "channels": {"d_ff": 17}}}
    if one_text:
        model = build_model(LanguageModelConfig(**sizes, context=99), own.vocab_size)
        return Translator(
            noisy(model),
            Tokenizers(own, own),
            decoding,
            sequence_format=ConcatenatedFormat(99),
            max_source=40,
        )
    model = build_model(TransformerConfig(**sizes), own.vocab_size, own.vocab_size)
    return Translator(noisy(model), Tokenizers(own, own), decoding)


def captioner(decoding):
    torch.manual_seed(7)
    processor = CaptionProcessor(tokenizer("bpe"))
    config = CaptionerConfig(
        image_size=12,
        patch_size=4,
        d_model=12,
        n_layers=1,
        layer={"mixer": {"n_heads": 3}, "channels": {"d_ff": 17}},
    )
    pairing = ImageAndCaption(ImageReader(12, 3, (0.5,) * 3, (0.5,) * 3), (3, 3))
    return Captioner(noisy(build_captioner(config, *processor.sizes)), processor.caption, decoding, pairing)


def observed(pieces):
    """The pieces, and the prediction that comes after them."""
    found = []
    while True:
        try:
            found.append(next(pieces))
        except StopIteration as end:
            return found, end.value


def check_streams(it, inputs):
    """The law: the pieces are the prediction's text, and the prediction follows them. Tells the pieces."""
    shown = []
    for number, given in enumerate(inputs):
        pieces, prediction = observed(it.stream(given, ordinal=number))
        assert [prediction] == it.predict([given], first=number)
        assert "".join(pieces) == prediction.text
        assert all(pieces)
        shown.append(pieces)
    return shown


@pytest.mark.slow
@pytest.mark.parametrize("decoding", DECODINGS, ids=lambda d: d.kind)
@pytest.mark.parametrize("one_text", [False, True], ids=["two sides", "one text"])
@pytest.mark.parametrize(
    "kind, moses", [*((kind, None) for kind in KINDS), ("word", "fr"), ("bpe", "en"), ("byte", "cs")]
)
def test_what_is_streamed_is_the_text_of_the_prediction(decoding, one_text, kind, moses):
    shown = check_streams(translator(decoding, kind, moses, one_text=one_text), SOURCES)
    assert shown[1] == []
    if moses is None or kind == "word":
        assert max(map(len, shown)) > 2


@pytest.mark.slow
@pytest.mark.parametrize("decoding", DECODINGS, ids=lambda d: d.kind)
def test_captions_are_streamed_too(decoding):
    images = list(np.random.default_rng(3).integers(256, size=(2, 12, 12, 3), dtype=np.uint8))
    assert max(map(len, check_streams(captioner(decoding), images))) > 2


def test_an_image_that_cannot_be_read_is_told_to_whoever_reads_the_stream(tmp_path):
    with pytest.raises(DataError, match=r"gone\.png: no such file"):
        next(captioner(GreedyConfig()).stream(tmp_path / "gone.png"))


def test_what_is_out_of_the_ordinary_is_told_with_the_prediction():
    it = translator(GreedyConfig(max_length=MOST), one_text=True)
    _, prediction = observed(it.stream("eau " * 50))
    assert "; ".join(prediction.notes) == (
        "source cut from 50 to 40 tokens; output cut at 24 tokens (decoding.max_length.ratio and extra)"
    )


def test_several_answers_cannot_be_streamed_and_it_is_said_before_any_work():
    with pytest.raises(RequestError, match=r"beam 1, got 3: .*; set beam to 1"):
        translator(BeamConfig(beam=3)).stream("")
    with pytest.raises(RequestError, match="supports only one sample, got n="):
        captioner(SampleConfig(n=2)).stream("no image")
    with pytest.raises(ValueError, match="only one answer can be streamed"):
        translator(DECODINGS[0]).predict(["eau", "ein"], on_text=lambda piece: None)


def test_a_character_is_shown_with_its_last_byte_and_what_is_none_when_that_is_certain():
    own, pieces = tokenizer("byte"), []
    text = IncrementalText(Detokenizer(own, str, str), pieces.append)
    for value in b"a\xc3\xa4\xe2\x82\xac\xe2(\xf0\x9f":
        text(0, value + len(own.specials))
    text.end()
    assert pieces == ["a", "", "ä", "", "", "€", "", "\ufffd(", "", "", "\ufffd"]


# Costs -----------------------------------------------------------------------------------------------------


def characters_read(spelling, ids):
    """How many characters are read for a whole answer, whose pieces must be its text."""
    read, pieces = [0], []

    def counted(function):
        def of(text):
            read[0] += len(text)
            return function(text)

        return of

    text = IncrementalText(
        replace(spelling, undo=counted(spelling.undo), stable_prefix=counted(spelling.stable_prefix)),
        pieces.append,
    )
    for token in ids:
        text(0, token)
    text.end()
    assert len(pieces) == len(ids) + 1
    whole = Hypothesis(tuple(ids), (0.0,) * len(ids), finished=False, score=0.0)
    assert "".join(pieces) == spelling.prediction(whole).text
    return read[0]


def spelling_of(how, own):
    if how == "stop strings":
        stops = Stops(own, ("shirt shirt", "eau eau", "weiße Maus Maus"))
        return Detokenizer(own, stops.before, stops.stable_prefix, is_local=True)
    side = PreprocessingConfig(moses="de" if how == "Moses" else None)
    return Detokenizer(own, side.undo, side.stable_prefix, is_local=how == "plain")


@pytest.mark.parametrize("how", ["plain", "stop strings", "Moses"])
@pytest.mark.parametrize("kind", ["word", "byte"])
def test_a_text_twice_as_long_is_not_read_four_times_as_much(how, kind):
    own = tokenizer(kind)
    ids = own.encode(f" {TEXT} {SOURCES[2]}" * 120)
    n = len(own.decode(ids))
    read = characters_read(spelling_of(how, own), ids)
    half = characters_read(spelling_of(how, own), ids[: len(ids) // 2])
    assert read < (40 if how == "Moses" else 9) * n
    if kind == "byte":
        assert read < 2.5 * half
