"""Configuration shared by all stacks of layers, and builders of their modules."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import AfterValidator, Field, model_validator
from torch import nn

from heedful.config import ChangesOf, Config, merged
from heedful.models.mixers import AttentionConfig, CrossAttentionConfig, HeadsConfig, MixerConfig, StackSizes
from heedful.models.positions import NoPositionsConfig, OneHotConfig, PositionsConfig
from heedful.models.sections import (
    ChannelsConfig,
    FeedForwardConfig,
    LayerNormConfig,
    Layers,
    NormConfig,
    Rate,
    Width,
)
from heedful.nn.blocks import DecoderBlock, DecoderStack, EncoderBlock, EncoderStack
from heedful.nn.positions import Added, Concatenated
from heedful.nn.residual import PostNorm, PreNorm, Residual
from heedful.typing import JsonObject


class LayerConfig(Config):
    """Configuration of a layer: a position mixer, then a channel mixer, each with a residual connection and a
    norm.

    Args:
        mixer: the position mixer.
        channels: the channel mixer.
        norm: the norm of every residual connection, and of the output of a pre-norm stack.
        norm_placement: after each sum (``post``) or before each sublayer (``pre``).
    """

    mixer: MixerConfig = AttentionConfig()
    channels: ChannelsConfig = FeedForwardConfig()
    norm: NormConfig = LayerNormConfig()
    norm_placement: Literal["post", "pre"] = "post"


def _check_changes(changes: JsonObject, info: Any) -> JsonObject:
    """Check changes of ``layer``; an error in them has the location of its key."""
    if "layer" in info.data:
        info.data["layer"].changed(**changes)
    return changes


LayerChanges = Annotated[JsonObject, AfterValidator(_check_changes), ChangesOf(LayerConfig)]
"""Keys of a layer that replace those of ``layer``."""


class StackConfig(Config):
    """Configuration of a stack.

    Args:
        d_model: width of the hidden states.
        n_layers: number of layers.
        layer: the layers.
        pattern: for stacks whose layers differ: changes of ``layer``, the first for the first layer, and so
            on; after the last, the first again. ``pattern: [{}, {mixer: {visible: all}}]`` changes every
            second layer; null: all layers are alike.
        positions: position encoding; which ones are possible depends on the model family.
        dropout: dropout rate of embeddings and of the output of each sublayer.
    """

    causal: ClassVar[bool] = False
    """Whether the layers are causal."""

    default_sections: ClassVar[JsonObject] = {}
    """Sections of the family that are merged below the given ones."""

    kind: str
    d_model: Width = 512
    n_layers: Layers = 6
    layer: LayerConfig = LayerConfig()
    pattern: list[LayerChanges] | None = Field(default=None, min_length=1)
    positions: PositionsConfig = NoPositionsConfig()
    dropout: Rate = 0.1

    @model_validator(mode="before")
    @classmethod
    def _merge_defaults(cls, section: object) -> object:
        if not isinstance(section, Mapping):
            return section
        sections = {key: merged(value, section.get(key, {})) for key, value in cls.default_sections.items()}
        return {**section, **sections}

    @property
    def layers(self) -> tuple[LayerConfig, ...]:
        """Configurations of all layers, the first one first."""
        if self.pattern is None:
            return (self.layer,) * self.n_layers
        changed = [self.layer.changed(**changes) for changes in self.pattern]
        return tuple(changed[n % len(changed)] for n in range(self.n_layers))

    @model_validator(mode="after")
    def _layers_fit(self) -> "StackConfig":
        for layer in self.layers[: len(self.pattern or [0])]:
            self.check_layer(layer)
        return self

    def check_layer(self, layer: LayerConfig) -> None:
        """Check that a layer fits the stack.

        Raises:
            ValueError: names the key and the limit.
        """
        layer.mixer.check(self.d_model, self.positions, causal=self.causal)
        groups = getattr(layer.norm, "n_groups", None)
        if groups is not None and self.d_model % groups:
            raise ValueError(f"d_model={self.d_model} must be divisible by layer.norm.n_groups={groups}")

    def check_positions(self, key: str, width: int) -> None:
        """Check the width of the position vectors: sines and cosines are pairs.

        Raises:
            ValueError: names the key that determines the width.
        """
        if self.positions.kind == "sinusoidal" and (width % 2 or not width):
            raise ValueError(
                f"{key} must be even and at least 2 with positions.kind=sinusoidal, got {width}; "
                f"change {key}, or set positions=learned"
            )

    def refuse_positions(self, *supported: str) -> None:
        """Check that the family supports the positions.

        Raises:
            ValueError: lists those that it supports.
        """
        if self.positions.kind not in supported:
            raise ValueError(
                f"positions.kind={self.positions.kind} is not supported by kind={self.kind}; expected one of "
                f"{', '.join(supported)}"
            )


class TokenStackConfig(StackConfig):
    """Configuration of a stack over tokens, whose embeddings are combined with positions.

    Args:
        combine: whether positions are added to the embeddings or concatenated with them.
        d_positions: for ``concat``: width of the positions; null: d_model / 4. One-hot positions are as wide
            as the longest sequence.
    """

    limit_key: ClassVar[str] = "max_length"
    """The key of the maximum number of tokens of a sequence."""

    untied: ClassVar[str] = "tie=false"
    """How a recipe says that the output layer does not share the embedding table."""

    combine: Literal["add", "concat"] = "add"
    d_positions: Width | None = None

    @property
    def limit(self) -> int:
        """The maximum number of tokens of a sequence, as far as positions have one."""
        limit: int = getattr(self, self.limit_key)
        return limit

    @property
    def position_width(self) -> int:
        """Width of the positions: d_model if added, their own width if concatenated."""
        if self.combine == "add":
            return self.d_model
        if isinstance(self.positions, OneHotConfig):
            return self.limit
        has_vectors = self.positions.kind in {"sinusoidal", "learned", "constant"}
        return (self.d_positions or self.d_model // 4) if has_vectors else 0

    @property
    def d_embedding(self) -> int:
        """Width of the embedding table."""
        return self.d_model if self.combine == "add" else self.d_model - self.position_width

    def check_combination(self, *, is_tied: bool) -> None:
        """Check the positions, and that embeddings and positions fill the width of the model.

        Args:
            is_tied: whether the output layer shares the embedding table.

        Raises:
            ValueError: names the key and the limit.
        """
        self.refuse_positions("sinusoidal", "learned", "one-hot", "constant", "none", "rotary", "alibi")
        if self.combine == "concat" and is_tied:
            raise ValueError(f"combine=concat makes embeddings narrower than d_model: it needs {self.untied}")
        if self.combine == "concat" and self.d_embedding < 1:
            raise ValueError(f"{self.position_width} columns of positions leave none of d_model")
        if self.combine == "add" and self.positions.kind == "one-hot" and self.limit != self.d_model:
            raise ValueError(
                f"one-hot positions are {self.limit_key} wide: add them with {self.limit_key}=d_model, or "
                "concatenate them (combine=concat)"
            )
        self.check_positions("d_model" if self.combine == "add" else "d_positions", self.position_width)

    def build_positions(self) -> Added | Concatenated:
        """Build what combines embeddings with positions."""
        combine = Added if self.combine == "add" else Concatenated
        return combine(self.positions.build(self.limit, self.position_width))


def stack(config: StackConfig, n_positions: int) -> EncoderStack:
    """Build the layers of a stack, followed by a norm if the last one is pre-norm.

    Args:
        config: the configuration.
        n_positions: maximum number of tokens of a sequence; 0 if there is no limit.
    """
    sizes = StackSizes(config.d_model, n_positions, config.causal, config.positions)
    blocks = []
    for layer in config.layers:
        mixer = _residual(config, layer, layer.mixer.build(sizes))
        channels = layer.channels.build(config.d_model)
        channel_sublayer = nn.Identity() if channels is None else _residual(config, layer, channels)
        blocks.append(EncoderBlock(mixer, channel_sublayer))
    last = config.layers[-1] if blocks else config.layer
    return EncoderStack(blocks, _last_norm(config, last))


def _residual(config: StackConfig, layer: LayerConfig, part: nn.Module) -> Residual:
    """Wrap a sublayer in a residual connection with a norm."""
    wrapper = PostNorm if layer.norm_placement == "post" else PreNorm
    return wrapper(part, layer.norm.build(config.d_model), config.dropout)


def _last_norm(config: StackConfig, layer: LayerConfig) -> nn.Module:
    """Build what follows the last layer: a norm if its sums are not yet normalised, else an identity."""
    return nn.Identity() if layer.norm_placement == "post" else layer.norm.build(config.d_model)


def embedding_table(n_tokens: int, d_model: int) -> nn.Parameter:
    """Initialise E with variance 1 / d_model, so that sqrt(d_model) E has variance 1."""
    return nn.Parameter(torch.randn(n_tokens, d_model) * d_model**-0.5)


def token_head(d_model: int, n_tokens: int, tied: nn.Parameter | None, *, bias: bool = False) -> nn.Linear:
    """Build the output layer, with ``tied`` as its weight if given."""
    head = nn.Linear(d_model, n_tokens, bias=bias)
    if tied is None:
        nn.init.normal_(head.weight, std=d_model**-0.5)
    else:
        head.weight = tied
    if bias:
        nn.init.zeros_(head.bias)
    return head


def embedding_scale(config: StackConfig, scaled: bool | None) -> float:
    """Return the factor of the embeddings: sqrt(d_model) if ``scaled``, else 1.

    By default (None) it is sqrt(d_model) with sinusoidal and constant positions, which have size 1 and would
    dominate embeddings of size 0.02, and 1 with other positions.
    """
    if scaled is None:
        scaled = config.positions.kind in {"sinusoidal", "constant"}
    return math.sqrt(config.d_model) if scaled else 1.0


class DecoderConfig(StackConfig):
    """Configuration of a stack and of a decoder that attends to it.

    Args:
        n_layers: number of layers of the encoder.
        n_decoder_layers: number of layers of the decoder; null: n_layers.
        decoder_layer: changes of ``layer`` in the decoder. Power normalisation was released with
            ``layer.norm: power`` and ``decoder_layer.norm: layer``. The layers of the decoder are alike;
            ``pattern`` changes those of the encoder.
        cross_attention: attention to the output of the encoder; null: with the heads and the score of the
            decoder's self-attention, and all source tokens visible.
    """

    n_decoder_layers: Layers | None = None
    decoder_layer: LayerChanges = {}  # noqa: RUF012
    cross_attention: CrossAttentionConfig | None = None

    @property
    def decoder_layers(self) -> tuple[LayerConfig, ...]:
        """Configurations of the decoder's layers."""
        return (self.layer.changed(**self.decoder_layer),) * (self.n_decoder_layers or self.n_layers)

    @model_validator(mode="after")
    def _decoder_fits(self) -> "DecoderConfig":
        for layer in (*self.layers, self.decoder_layers[0]):
            if not isinstance(layer.mixer, AttentionConfig):
                raise ValueError(
                    f"layer.mixer.kind={layer.mixer.kind} is not supported with kind={self.kind}; "
                    "expected attention"
                )
            if layer.channels.kind == "none":
                raise ValueError(f"layer.channels.kind=none is not supported with kind={self.kind}")
        self.check_layer(self.decoder_layers[0])
        if self.cross_attention is not None:
            self.cross_attention.check_heads(self.d_model)
        return self


def decoder_stack(config: DecoderConfig) -> DecoderStack:
    """Build layers of causal self-attention, cross-attention and a channel mixer, and the last norm."""
    sizes, blocks = StackSizes(config.d_model, 0, causal=True, positions=config.positions), []
    for layer in config.decoder_layers:
        heads = layer.mixer.model_dump(include={*HeadsConfig.model_fields} - {"kind"})
        cross = config.cross_attention or CrossAttentionConfig.model_validate(heads)
        mixer = _residual(config, layer, layer.mixer.build(sizes))
        attention = _residual(config, layer, cross.build(config.d_model))
        channels = layer.channels.build(config.d_model)
        assert channels is not None  # checked by `DecoderConfig`
        blocks.append(DecoderBlock(mixer, attention, _residual(config, layer, channels)))
    return DecoderStack(blocks, _last_norm(config, config.decoder_layers[0]))
