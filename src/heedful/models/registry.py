"""Registry of model families and presets by name; models added here are available to recipes and commands."""

from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import Field

from heedful.errors import RequestError, nearest
from heedful.models import (
    captioner,
    encoder,
    language_model,
    recurrent,
    recurrent_captioner,
    resnet,
    transformer,
    vision,
)
from heedful.models.base import Model
from heedful.models.captioner import CaptionerConfig
from heedful.models.encoder import EncoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.recurrent_captioner import RecurrentCaptionerConfig
from heedful.models.resnet import ResNetConfig
from heedful.models.transformer import TransformerConfig
from heedful.models.vision import VisionConfig
from heedful.typing import JsonMapping

AnyConfig = (
    TransformerConfig
    | RecurrentConfig
    | LanguageModelConfig
    | EncoderConfig
    | VisionConfig
    | ResNetConfig
    | CaptionerConfig
    | RecurrentCaptionerConfig
)

ModelConfig = Annotated[AnyConfig, Field(discriminator="kind")]

_FAMILIES = (transformer, recurrent, language_model, encoder, vision, resnet, captioner, recurrent_captioner)

BUILDERS: dict[str, Callable[..., Model]] = {
    "transformer": transformer.build,
    "recurrent": recurrent.build,
    "language-model": language_model.build,
    "encoder": encoder.build,
    "vision": vision.build,
    "resnet": resnet.build,
    "captioner": captioner.build,
    "recurrent-captioner": recurrent_captioner.build,
}

READERS: dict[str, Callable[..., Model]] = {
    "encoder": encoder.build,
    "language-model": language_model.build_reader,
}
"""Families that can encode a text as one vector."""

SIZES: dict[str, tuple[str, ...]] = {
    "transformer": ("source_vocab", "target_vocab"),
    "recurrent": ("source_vocab", "target_vocab"),
    "language-model": ("vocab_size",),
    "encoder": ("vocab_size",),
    "vision": (),
    "resnet": (),
    "captioner": ("vocab_size",),
    "recurrent-captioner": ("vocab_size",),
}
"""Sizes of each family that depend on the data, by the argument names of its builder."""

PRESETS: dict[str, AnyConfig] = {
    name: config for family in _FAMILIES for name, config in family.PRESETS.items()
}

VOCABULARIES: dict[str, tuple[int, ...]] = {
    name: sizes for family in _FAMILIES for name, sizes in getattr(family, "VOCABULARIES", {}).items()
}
"""Vocabulary sizes of text presets, in the order of `SIZES`; used for parameter counts."""

CLASSES: dict[str, int] = {**vision.CLASSES, **resnet.CLASSES}
"""Number of classes of the task head of vision presets; used for parameter counts."""


def build_model(config: AnyConfig, *sizes: int) -> Model:
    """Build a newly initialised model.

    Args:
        config: one of `ModelConfig`.
        sizes: sizes that depend on the data, in the order of `SIZES`.
    """
    return BUILDERS[config.kind](config, *sizes)


def build_reader(config: AnyConfig, vocab_size: int) -> Model:
    """Build a newly initialised model of `READERS`; ``heads["pooled"]`` computes one vector per text."""
    return READERS[config.kind](config, vocab_size)


def preset(name: str) -> AnyConfig:
    """Return the configuration of a preset by name."""
    if name not in PRESETS:
        raise RequestError(
            f"unknown model {name!r}{nearest(name, PRESETS)}; available presets: {', '.join(PRESETS)}"
        )
    return PRESETS[name]


def preset_trees() -> Mapping[str, JsonMapping]:
    """Return the presets as dicts, for merging into recipes."""
    return {name: config.model_dump() for name, config in PRESETS.items()}
