"""Attention of recurrent decoders: configurations and builders."""

from typing import Annotated, Literal

from pydantic import Field

from heedful.config import Config
from heedful.models.attention_stack import Positive
from heedful.nn.attention.recurrent import FixedContext, RecurrentAttention
from heedful.nn.attention.recurrent_heads import LocationFeatures, MultiHeadAdditiveAttention, resolutions
from heedful.nn.attention.scores import (
    AdditiveScore,
    BilinearScore,
    CosineScore,
    DotScore,
    ScaledDotScore,
    Score,
)
from heedful.nn.attentive import AnyAttention

SHARPENING = 2.0
"""Factor of the scores of location-aware attention, for sharper alignments."""


class DotAttention(Config):
    """s . h, divided by the square root of the width if scaled-dot; s and h must have equal widths."""

    score: Literal["dot", "scaled-dot"]


class BilinearAttention(Config):
    """s^T W h (Luong's "general")."""

    score: Literal["bilinear"]


class AdditiveAttention(Config):
    """v^T tanh(W s + U h).

    Args:
        d_attention: number of hidden units; null: d_hidden.
    """

    score: Literal["additive"]
    d_attention: Positive | None = None


class CosineAttention(Config):
    """beta cos(s, h).

    Args:
        key_strength: initial value of a learned beta; null: beta is 1.
    """

    score: Literal["cosine"]
    key_strength: Annotated[float, Field(gt=0)] | None = None


class MultiHeadAttention(Config):
    """Multi-head additive attention; the defaults are those of ESPnet's recipes.

    Args:
        n_heads: number of heads.
        d_k, d_v: widths of the keys and values of one head.
    """

    score: Literal["multi-head-additive"]
    n_heads: Positive = 4
    d_k: Positive = 320
    d_v: Positive = 320


class LocationAwareAttention(Config):
    """Multi-head additive attention in which each head also reads its previous alignment.

    The filters have width 2 half_width + 1. In multi-resolution attention, this is the width of the last
    head; the widths of the others increase evenly up to it.

    Args:
        n_heads: number of heads.
        d_k, d_v: widths of the keys and values of one head.
        channels: number of filters per head.
        half_width: number of positions on each side of a filter.
    """

    score: Literal["multi-head-location", "multi-head-multi-resolution"]
    n_heads: Positive = 4
    d_k: Positive = 320
    d_v: Positive = 320
    channels: Positive = 10
    half_width: Positive = 100


Attention = Annotated[
    DotAttention
    | BilinearAttention
    | AdditiveAttention
    | CosineAttention
    | MultiHeadAttention
    | LocationAwareAttention,
    Field(discriminator="score"),
]


def attention_of(attention: Attention | None, d_state: int, d_annotation: int) -> AnyAttention:
    """Build the attention module.

    Args:
        attention: its configuration; None: a fixed context for all steps.
        d_state: width of the decoder states.
        d_annotation: width of the encoder outputs.
    """
    if attention is None:
        return FixedContext(d_state)
    if isinstance(attention, MultiHeadAttention | LocationAwareAttention):
        return _with_heads(attention, d_state, d_annotation)
    return RecurrentAttention(_score(attention, d_state, d_annotation), d_annotation)


def _with_heads(
    attention: MultiHeadAttention | LocationAwareAttention, d_state: int, d_annotation: int
) -> MultiHeadAdditiveAttention:
    location, scale = None, None
    if isinstance(attention, LocationAwareAttention):
        widths = [attention.half_width] * attention.n_heads
        if attention.score == "multi-head-location":
            scale = SHARPENING
        else:
            widths = resolutions(attention.half_width, attention.n_heads)
        location = LocationFeatures(widths, attention.channels, attention.d_k)
    return MultiHeadAdditiveAttention(
        d_state,
        d_annotation,
        attention.n_heads,
        d_k=attention.d_k,
        d_v=attention.d_v,
        scale=scale,
        location=location,
    )


def _score(
    attention: DotAttention | BilinearAttention | AdditiveAttention | CosineAttention,
    d_state: int,
    d_annotation: int,
) -> Score:
    match attention:
        case AdditiveAttention():
            return AdditiveScore(d_state, d_annotation, attention.d_attention or d_state)
        case BilinearAttention():
            return BilinearScore(d_state, d_annotation)
        case CosineAttention():
            return CosineScore(attention.key_strength)
        case DotAttention():
            return DotScore() if attention.score == "dot" else ScaledDotScore()
