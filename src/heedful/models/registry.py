"""Every model family and preset by name: one line here makes a model known to recipes and commands."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field
from torch import nn

from heedful.errors import RequestError, nearest
from heedful.models import recurrent, transformer
from heedful.models.recurrent import RecurrentConfig
from heedful.models.transformer import TransformerConfig

ModelConfig = Annotated[TransformerConfig | RecurrentConfig, Field(discriminator="kind")]

BUILDERS: dict[str, Callable[[Any, int, int], nn.Module]] = {
    "transformer": transformer.build,
    "recurrent": recurrent.build,
}

PRESETS: dict[str, TransformerConfig | RecurrentConfig] = {**transformer.PRESETS, **recurrent.PRESETS}


def build_model(
    config: TransformerConfig | RecurrentConfig, source_vocab: int, target_vocab: int
) -> nn.Module:
    """A freshly initialised model."""
    return BUILDERS[config.kind](config, source_vocab, target_vocab)


def preset(name: str) -> TransformerConfig | RecurrentConfig:
    """A configuration by its published name."""
    if name not in PRESETS:
        raise RequestError(
            f"unknown model {name!r}{nearest(name, PRESETS)}; the presets are {', '.join(PRESETS)}"
        )
    return PRESETS[name]


def preset_trees() -> Mapping[str, Mapping[str, Any]]:
    """The presets as plain maps, for merging into recipes."""
    return {name: config.model_dump() for name, config in PRESETS.items()}
