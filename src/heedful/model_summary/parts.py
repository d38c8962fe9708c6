"""Names of parts of models in the lines of a summary, in the symbols of the lectures.

A class that is not listed is shown under the names of its attributes: nothing here is needed to count it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from heedful.nn.attention.compressed import MemoryCompressedAttention
from heedful.nn.attention.recurrent import RecurrentAttention
from heedful.nn.attention.recurrent_heads import LocationFeatures, MultiHeadAdditiveAttention
from heedful.nn.attention.scores import AdditiveScore, BilinearScore, ScoreFunction
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.attentive import AttendThenUpdate, AttentiveDecoder, UpdateThenAttend
from heedful.nn.blocks import DecoderBlock, EncoderBlock
from heedful.nn.bridges import ProjectedBridge
from heedful.nn.cells import ElmanCell, GRUCell, LSTMCell, ResetAfterGRUCell, StackedCell
from heedful.nn.convolutional import Bottleneck, GroupNorm, StandardisedConvolution
from heedful.nn.embeddings import SegmentedEmbedding, TokenEmbedding
from heedful.nn.experts import Gate
from heedful.nn.feedforward import FeedForward, GatedFeedForward
from heedful.nn.mixers import (
    Convolution,
    DepthwiseSeparableConvolution,
    FourierMixer,
    ParallelConvolutions,
    PositionMLP,
)
from heedful.nn.norms import BatchNorm, LayerNorm, PowerNorm, RMSNorm
from heedful.nn.patches import ConvolutionPatches, GridEmbedding, LinearPatches, PatchEmbedding
from heedful.nn.positions import Added, LearnedPositions
from heedful.nn.readouts import MaxoutReadout, TanhReadout
from heedful.nn.recurrent import Bidirectional, Recurrence, RecurrentLayer, ResidualRecurrence
from heedful.nn.residual import PostNorm, PreNorm
from heedful.nn.visibility import AttentionPattern, Blocks, Mask, Window


@dataclass(frozen=True)
class Part:
    """How a class of modules is shown.

    Args:
        title: name of its line; empty: the name of its attribute; None: its parts stand in its place.
        names: for a parameter or a part with a matrix, its line's name and the symbols of the axes.
        products: names of the lines that its own products belong to, in turn.
        layers: attentions and layers of hidden units in it.
    """

    title: str | None = ""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    products: tuple[str, ...] = ()
    layers: int = 0


_READOUT = Part(
    "readout",
    {
        "state": ("W for the state", "d_state", "d_readout"),
        "token": ("W for the token", "d_embedding", "d_readout"),
        "context": ("W for the context", "d_context", "d_readout"),
    },
)
_PATCHES = Part(None, {"projection": ("patches", "numbers", "d_model")}, ("patches",))
_TRANSPARENT = Part(None)

PARTS: dict[type[nn.Module], Part] = {
    **dict.fromkeys(
        (PostNorm, PreNorm, Added, Recurrence, ResidualRecurrence, Bidirectional, StackedCell), _TRANSPARENT
    ),
    TokenEmbedding: Part(None, {"weight": ("", "V", "d_model")}),
    SegmentedEmbedding: Part(
        "", {"weight": ("tokens", "V", "d_model"), "segments": ("segments", "n_segments", "d_model")}
    ),
    PatchEmbedding: Part("", {"class_token": ("class token", "d_model")}),
    GridEmbedding: Part("", {"projection": ("cells", "d_cell", "d_model")}),
    LinearPatches: _PATCHES,
    ConvolutionPatches: _PATCHES,
    FeedForward: Part(
        "feed-forward",
        {"up": ("W_1 and b_1", "d_model", "d_ff"), "down": ("W_2 and b_2", "d_ff", "d_model")},
        layers=2,
    ),
    GatedFeedForward: Part("gated feed-forward", layers=2),
    PositionMLP: Part(
        "mixing of positions",
        {
            "up": ("W_1 and b_1", "n_positions", "d_tokens"),
            "down": ("W_2 and b_2", "d_tokens", "n_positions"),
        },
        ("W_1 and b_1", "W_2 and b_2"),
        layers=2,
    ),
    FourierMixer: Part(None, products=("Fourier transform",)),
    DepthwiseSeparableConvolution: Part(
        "separable convolution",
        {"depthwise": ("depthwise", "kernel", "d_model"), "pointwise": ("pointwise", "d_model", "d_model")},
        layers=1,
    ),
    Convolution: Part("convolution", {"convolution": ("filters", "kernel", "d_model", "d_model")}, layers=1),
    ParallelConvolutions: Part("parallel convolutions", layers=1),
    Bottleneck: Part(
        "bottleneck", {"shortcut": ("shortcut, convolution", "kernel", "kernel", "d_in", "d_out")}
    ),
    AdditiveScore: Part(
        None,
        {
            "query": ("W_q of the score", "d_q", "d_a"),
            "key": ("W_k of the score", "d_k", "d_a"),
            "vector": ("v of the score", "d_a", "n_heads"),
        },
        ("v of the score",),
    ),
    BilinearScore: Part(None, {"key": ("W of the score", "d_k", "d_q")}, ("scores",)),
    RecurrentAttention: Part("attention", {"key": ("W_k", "2 d_h", "d_h")}, ("weighted sum",)),
    MultiHeadAdditiveAttention: Part(
        "attention with heads",
        {
            "query": ("W_q and b", "d_q", "n_heads_d_k"),
            "key": ("W_k", "d_annotation", "n_heads_d_k"),
            "value": ("W_v", "d_annotation", "n_heads_d_v"),
            "vector": ("g", "n_heads", "d_k"),
            "out": ("W_o", "n_heads_d_v", "d_annotation"),
        },
        ("g", "weighted sum"),
    ),
    LocationFeatures: Part("location", {"weight": ("U", "n_heads", "channels", "d_k")}, ("U",)),
    AttentiveDecoder: Part("", {"feed": ("input feeding to the gates", "d_readout", "gates")}),
    AttendThenUpdate: Part(None, {"context": ("context to the gates", "d_context", "gates")}),
    UpdateThenAttend: _TRANSPARENT,
    ElmanCell: Part("Elman cell"),
    LSTMCell: Part("LSTM cell"),
    GRUCell: Part("GRU cell"),
    ResetAfterGRUCell: Part("GRU cell, reset after"),
    ProjectedBridge: Part(None, {"linear": ("bridge", "d_h", "states")}),
    MaxoutReadout: _READOUT,
    TanhReadout: _READOUT,
}

LEAVES: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Linear: ("", "d_in", "d_out"),
    nn.Conv1d: ("", "kernel", "d_model", "d_out"),
    StandardisedConvolution: ("convolution", "kernel", "kernel", "d_in", "d_out"),
    **dict.fromkeys((LayerNorm, BatchNorm, PowerNorm, RMSNorm), ("norm", "d_model")),
    GroupNorm: ("norm", "channels"),
    LearnedPositions: ("positions", "max_length", "d"),
    Gate: ("W_g", "n", "d_model"),
}
"""Classes without parts: the line's name (empty: the attribute's), and the axes of ``weight``."""


def part_of(module: nn.Module) -> Part:
    """Return how a module is shown."""
    for cls in type(module).__mro__:
        if cls in PARTS:
            return PARTS[cls]
    return Part(None, products=("scores",)) if isinstance(module, ScoreFunction) else Part()


def block_title(module: EncoderBlock | DecoderBlock) -> str:
    """Return the name of a layer, from its position mixer."""
    if isinstance(module, DecoderBlock):
        return "decoder layer"
    mixer = module.mixer.part
    if isinstance(mixer, MemoryCompressedAttention):
        return "memory-compressed layer"
    if isinstance(mixer, RecurrentLayer):
        return "recurrent layer"
    match getattr(mixer, "pattern", None):
        case None:
            return "causal layer" if getattr(mixer, "causal", False) else "encoder layer"
        case Window():
            return "layer with windows"
        case Blocks():
            return "local layer"
    return "layer with a pattern"


def attention_title(module: nn.Module) -> str:
    """Return the name of a multi-head attention."""
    if isinstance(module, MemoryCompressedAttention):
        return "memory-compressed attention"
    if isinstance(module, SelfAttention):
        title, pattern = "causal self-attention" if module.causal else "self-attention", module.pattern
    else:
        title, pattern = "cross-attention", getattr(module, "pattern", None)
    match pattern:
        case None:
            return title
        case Window(size=size):
            return f"{title} in windows of {size}"
        case Blocks():
            return f"local {title}"
        case Mask():
            return f"{title} with a mask"
    return f"{title} with {pattern}"


def attention_note(module: nn.Module, tokens: int, keys: int) -> str:
    """Return a note on the keys that each of ``tokens`` tokens is compared with, and on hidden ones."""
    if isinstance(module, MemoryCompressedAttention):
        return f"{keys} slots stand for {tokens} tokens"
    if not isinstance(module, SelfAttention):
        return ""
    notes = []
    block, earlier = module.blocks_for(tokens) or (tokens, 0)
    if block < tokens:
        blocks = f"{earlier + 1} blocks" if earlier else "its block"
        notes.append(f"each token with {blocks} of {block} alone")
    if isinstance(module.pattern, Window) and module.pattern.size < tokens:
        size = module.pattern.size
        notes.append(f"all computed; a window leaves {min(size if module.causal else 2 * size - 1, tokens)}")
    elif module.pattern is not None and block == tokens and not module.pattern.covers(tokens):
        n_visible = _mean_visible(module.pattern, tokens, causal=module.causal)
        notes.append(f"all computed; the pattern leaves {n_visible:.0f} on average")
    elif module.causal:
        notes.append("all computed; causality hides about half")
    return "; ".join(notes)


def _mean_visible(pattern: AttentionPattern, n: int, *, causal: bool) -> float:
    """Return how many of ``n`` tokens a token sees, on average."""
    keys, total = torch.arange(n), 0
    for queries in keys.split(256):
        visible = pattern.sees(queries[:, None], keys)
        total += int((visible & (keys <= queries[:, None]) if causal else visible).sum())
    return total / n
