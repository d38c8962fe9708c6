"""Every model family and preset by name: one line here makes a model known to recipes and commands."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field
from torch import nn

from heedful.errors import RequestError, nearest
from heedful.models import captioner, encoder, language_model, recurrent, resnet, transformer, vision
from heedful.models.captioner import CaptionerConfig
from heedful.models.encoder import EncoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.resnet import ResNetConfig
from heedful.models.transformer import TransformerConfig
from heedful.models.vision import VisionConfig

AnyConfig = (
    TransformerConfig
    | RecurrentConfig
    | LanguageModelConfig
    | EncoderConfig
    | VisionConfig
    | ResNetConfig
    | CaptionerConfig
)

ModelConfig = Annotated[AnyConfig, Field(discriminator="kind")]

BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "transformer": transformer.build,
    "recurrent": recurrent.build,
    "language-model": language_model.build,
    "encoder": encoder.build,
    "vision": vision.build,
    "resnet": resnet.build,
    "captioner": captioner.build,
}

READERS: dict[str, Callable[..., nn.Module]] = {
    "encoder": encoder.build,
    "language-model": language_model.build_reader,
}
"""Families of which a model can be made that reads a text and makes one vector of it."""

SIZES: dict[str, tuple[str, ...]] = {
    "transformer": ("source_vocab", "target_vocab"),
    "recurrent": ("source_vocab", "target_vocab"),
    "language-model": ("vocab_size",),
    "encoder": ("vocab_size",),
    "vision": (),
    "resnet": (),
    "captioner": ("vocab_size",),
}
"""What the data decide of each family, by the names of its builder's arguments."""

PRESETS: dict[str, AnyConfig] = {
    **transformer.PRESETS,
    **recurrent.PRESETS,
    **language_model.PRESETS,
    **encoder.PRESETS,
    **vision.PRESETS,
    **resnet.PRESETS,
    **captioner.PRESETS,
}

VOCABULARIES: dict[str, tuple[int, ...]] = {
    **transformer.VOCABULARIES,
    **recurrent.VOCABULARIES,
    **language_model.VOCABULARIES,
    **encoder.VOCABULARIES,
    **captioner.VOCABULARIES,
}
"""What presets of texts were published with, or are for, in the order of `SIZES`: counts assume these."""

CLASSES: dict[str, int] = {**vision.CLASSES, **resnet.CLASSES}
"""Likewise of presets of pictures: the classes of the head that a task puts on top."""


def build_model(config: Any, *sizes: int) -> nn.Module:
    """A freshly initialised model.

    Args:
        config: one of `ModelConfig`.
        sizes: what the data decide, in the order of `SIZES`.
    """
    return BUILDERS[config.kind](config, *sizes)


def build_reader(config: Any, vocab_size: int) -> nn.Module:
    """A freshly initialised model of one of `READERS`; ``heads["pooled"]`` makes one vector of a text."""
    return READERS[config.kind](config, vocab_size)


def preset(name: str) -> AnyConfig:
    """A configuration by its published name."""
    if name not in PRESETS:
        raise RequestError(
            f"unknown model {name!r}{nearest(name, PRESETS)}; the presets are {', '.join(PRESETS)}"
        )
    return PRESETS[name]


def preset_trees() -> Mapping[str, Mapping[str, Any]]:
    """The presets as plain maps, for merging into recipes."""
    return {name: config.model_dump() for name, config in PRESETS.items()}
