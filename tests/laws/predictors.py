"""Predictors of all tasks that generate text, with small untrained models."""

from functools import cache

import numpy as np
import pytest
import torch

from heedful.decoding.config import (
    BeamConfig,
    DiverseBeamConfig,
    GreedyConfig,
    MaxLength,
    MbrConfig,
    SampleConfig,
)
from heedful.engine.choosing import Inference
from heedful.models.captioner import CaptionerConfig
from heedful.models.captioner import build as build_captioner
from heedful.models.language_model import LanguageModelConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.tasks.generation.sequence_formats import (
    ConcatenatedFormat,
    ImageAndCaption,
)
from heedful.tasks.generation.text_generation import Captioner, Translator
from heedful.tasks.inputs.images import ImageReader
from heedful.tasks.inputs.processor import Tokenizers
from heedful.tasks.language_modelling.continuing import Completer, Limits
from heedful.tasks.prediction import DEFAULT_OPTIONS
from heedful.text.configuration import (
    BpeConfig,
    ByteBpeConfig,
    ByteConfig,
    CharacterConfig,
    PreprocessingConfig,
    WordConfig,
)
from heedful.text.training import train_tokenizer

TEXTS = ["the cat sat on the mat", "eau", "a rat that sat at tea"]
SIZES = {"d_model": 12, "n_layers": 1, "layer": {"mixer": {"n_heads": 3}, "channels": {"d_ff": 17}}}
SHORT = MaxLength(cap=2)
LONG = MaxLength(ratio=0.0, extra=60)
DECODERS = {
    "greedy": GreedyConfig(),
    "beam": BeamConfig(beam=3),
    "beam, unfinished kept": BeamConfig(beam=3, unfinished="keep"),
    "diverse beam": DiverseBeamConfig(beam=4, groups=2, n_best=3),
    "sample": SampleConfig(seed=3, temperature=0.7),
    "mbr": MbrConfig(n=7, n_best=3, seed=3),
}


class PlainPath(Inference):
    """The model itself, never the native engine."""

    def ready(self, *, attention=False):
        return self.model


PATHS = {"engine": Inference, "plain": PlainPath}


KINDS = {
    "bpe": BpeConfig(kind="bpe", merges=12),
    "byte": ByteConfig(kind="byte"),
    "character": CharacterConfig(kind="character", byte_fallback=True),
    "word": WordConfig(kind="word", vocab_size=99),
    "byte-bpe": ByteBpeConfig(kind="byte-bpe", merges=12),
}
PREPROCESSING = {
    "lowercased": PreprocessingConfig(lowercase=True),
    "moses": PreprocessingConfig(moses="en"),
}


@cache
def tokenizer(kind="bpe"):
    """Of a vocabulary that spells most texts in several ways."""
    if kind in PREPROCESSING:
        return train_tokenizer(KINDS["bpe"], TEXTS * 3, PREPROCESSING[kind])
    return train_tokenizer(KINDS[kind], TEXTS * 3)


def noisy(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


def translator(decoding, path, kind="bpe", config=None):
    own = tokenizer(kind)
    config = config or TransformerConfig(**SIZES)
    model = noisy(build_model(config, own.vocab_size, own.vocab_size))
    return Translator(model, Tokenizers(own, own), decoding, inference=path(model)), TEXTS


def recurrent(decoding, path, kind="bpe"):
    return translator(
        decoding, path, kind, RecurrentConfig(d_embedding=12, d_hidden=14, d_readout=12, n_layers=1)
    )


def one_text(decoding, path, kind="bpe"):
    own = tokenizer(kind)
    model = noisy(build_model(LanguageModelConfig(**SIZES, context=99), own.vocab_size))
    pair = Tokenizers(own, own)
    return Translator(model, pair, decoding, ConcatenatedFormat(99), inference=path(model)), TEXTS


def captioner(decoding, path, kind="bpe"):
    own = tokenizer(kind)
    config = CaptionerConfig(image_size=12, patch_size=4, **SIZES)
    model = noisy(build_captioner(config, own.vocab_size))
    images = ImageAndCaption(ImageReader(12, 3, (0.5,) * 3, (0.5,) * 3), (3, 3))
    pixels = list(np.random.default_rng(3).integers(256, size=(2, 12, 12, 3), dtype=np.uint8))
    return Captioner(model, own, decoding, images, inference=path(model)), pixels


def completer(decoding, path, kind="bpe", options=DEFAULT_OPTIONS, **limits):
    """Its limit is ``max_new_tokens``; more than a context is generated if it is large."""
    own, most = tokenizer(kind), decoding.max_length.of(0)
    model = noisy(build_model(LanguageModelConfig(**SIZES, context=11), own.vocab_size))
    bare = decoding.model_copy(update={"max_length": MaxLength()})
    limits = Limits(max_new_tokens=most, **limits)
    return Completer(
        model, own, bare, context=11, limits=limits, options=options, inference=path(model)
    ), TEXTS


PREDICTORS = [translator, one_text, captioner, completer]
every_predictor = pytest.mark.parametrize("make", PREDICTORS, ids=lambda make: make.__name__)
every_path = pytest.mark.parametrize("path", PATHS)


def made(make, decoding, path="engine", kind="bpe", **changes):
    torch.manual_seed(7)
    return make(decoding.model_copy(update=changes), PATHS[path], kind)


def streamed(predictor, given, ordinal, **options):
    pieces = predictor.stream(given, ordinal=ordinal, **options)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value
