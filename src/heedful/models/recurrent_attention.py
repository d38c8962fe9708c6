"""The attentions that a recurrent decoder may have: their options, and the parts made of them."""

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
"""Multiplies the scores of location-aware attention, so that its alignments are sharper."""


class DotAttention(Config):
    """s . h, divided by the root of its width (scaled-dot) or not; both must have one width."""

    score: Literal["dot", "scaled-dot"]


class BilinearAttention(Config):
    """s^T W h (Luong's "general")."""

    score: Literal["bilinear"]


class AdditiveAttention(Config):
    """v^T tanh(W s + U h).

    Args:
        d_attention: hidden units; null: d_hidden.
    """

    score: Literal["additive"]
    d_attention: Positive | None = None


class CosineAttention(Config):
    """beta cos(s, h).

    Args:
        key_strength: where a learned beta starts; null: beta is 1.
    """

    score: Literal["cosine"]
    key_strength: Annotated[float, Field(gt=0)] | None = None


class MultiHeadAttention(Config):
    """Additive attention with several heads; the defaults are those of ESPnet's recipes.

    Args:
        n_heads: how many.
        d_k, d_v: widths of a key and of a value of one head.
    """

    score: Literal["multi-head-additive"]
    n_heads: Positive = 4
    d_k: Positive = 320
    d_v: Positive = 320


class LocationAwareAttention(Config):
    """Additive attention with several heads, each of which also sees where it looked last.

    Its filters see 2 half_width + 1 places. In multi-resolution, that is the width of the last head's;
    those before it have even shares.

    Args:
        n_heads: how many.
        d_k, d_v: widths of a key and of a value of one head.
        channels: filters of each head.
        half_width: places that a filter sees on each side.
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
    """The part that attends, freshly initialised.

    Args:
        attention: its options; None: one fixed context for every step.
        d_state: width of the decoder's states.
        d_annotation: width of what the encoder says of each token.
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
