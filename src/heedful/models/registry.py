"""Registry of model families and presets by name; models added here are available to recipes and commands."""

from collections.abc import Callable, Mapping
from inspect import signature
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
from heedful.typing import JsonMapping

AnyConfig = (
    transformer.TransformerConfig
    | recurrent.RecurrentConfig
    | language_model.LanguageModelConfig
    | encoder.EncoderConfig
    | vision.VisionConfig
    | resnet.ResNetConfig
    | captioner.CaptionerConfig
    | recurrent_captioner.RecurrentCaptionerConfig
)

ModelConfig = Annotated[AnyConfig, Field(discriminator="kind")]

FAMILIES = {
    "transformer": transformer,
    "recurrent": recurrent,
    "language-model": language_model,
    "encoder": encoder,
    "vision": vision,
    "resnet": resnet,
    "captioner": captioner,
    "recurrent-captioner": recurrent_captioner,
}
"""The module of each family, with its presets, and ``build`` of a model from a configuration and sizes."""

BUILDERS: dict[str, Callable[..., Model]] = {kind: family.build for kind, family in FAMILIES.items()}

READERS: dict[str, Callable[..., Model]] = {
    "encoder": encoder.build,
    "language-model": language_model.build_reader,
}
"""Families that can encode a text as one vector."""

SIZES = {kind: tuple(signature(build).parameters)[1:] for kind, build in BUILDERS.items()}
"""Sizes of each family that depend on the data, by the argument names of its builder."""

PRESETS: dict[str, AnyConfig] = {
    name: config for family in FAMILIES.values() for name, config in family.PRESETS.items()
}

VOCABULARIES: dict[str, tuple[int, ...]] = {
    name: sizes for family in FAMILIES.values() for name, sizes in getattr(family, "VOCABULARIES", {}).items()
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
