"""Attention of recurrent decoders: configurations and builders."""

from typing import TYPE_CHECKING, Literal

from heedful.config import Section, by_kind
from heedful.models.sections import SCORES, AdditiveConfig, OwnScore, Positive, ScoreSection
from heedful.nn.attention.recurrent import FixedContext, RecurrentAttention
from heedful.nn.attention.recurrent_heads import LocationFeatures, MultiHeadAdditiveAttention, resolutions
from heedful.nn.attentive import AnyAttention

SHARPENING = 2.0
"""Factor of the scores of location-aware attention, for sharper alignments."""


class MultiHeadAttention(Section):
    """Multi-head additive attention; the defaults are those of ESPnet's recipes.

    Args:
        n_heads: number of heads.
        d_k, d_v: widths of the keys and values of one head.
    """

    kind: Literal["multi-head-additive"] = "multi-head-additive"
    n_heads: Positive = 4
    d_k: Positive = 320
    d_v: Positive = 320


class LocationAwareAttention(Section):
    """Multi-head additive attention in which each head also reads its previous alignment.

    The filters have width 2 half_width + 1.

    Args:
        n_heads: number of heads.
        d_k, d_v: widths of the keys and values of one head.
        channels: number of filters per head.
        half_width: number of positions on each side of a filter.
    """

    kind: Literal["multi-head-location"] = "multi-head-location"
    n_heads: Positive = 4
    d_k: Positive = 320
    d_v: Positive = 320
    channels: Positive = 10
    half_width: Positive = 100


class MultiResolutionAttention(MultiHeadAttention):
    """Location-aware attention whose last head has filters of width 2 half_width + 1; the widths of the
    others increase evenly up to it.

    Args:
        channels: number of filters per head.
        half_width: number of positions on each side of a filter of the last head.
    """

    kind: Literal["multi-head-multi-resolution"] = "multi-head-multi-resolution"  # type: ignore[assignment]
    channels: Positive = 10
    half_width: Positive = 100


_SINGLE = (AdditiveConfig, *(score for score in SCORES if score is not AdditiveConfig))

if TYPE_CHECKING:
    Attention = Section
else:
    Attention = by_kind(
        *_SINGLE, MultiHeadAttention, LocationAwareAttention, MultiResolutionAttention, own=OwnScore
    )


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
    assert isinstance(attention, ScoreSection)
    return RecurrentAttention(attention.build(d_state, d_annotation), d_annotation)


def _with_heads(
    attention: MultiHeadAttention | LocationAwareAttention, d_state: int, d_annotation: int
) -> MultiHeadAdditiveAttention:
    location, scale = None, None
    if isinstance(attention, LocationAwareAttention):
        widths, scale = [attention.half_width] * attention.n_heads, SHARPENING
        location = LocationFeatures(widths, attention.channels, attention.d_k)
    elif isinstance(attention, MultiResolutionAttention):
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
