"""What the laws are tested for: every model family and option, every position mixer, every decoder.

A new model, mixer or decoder is held to the laws by a line here. `test_registry.py` finds options that
no line has.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from heedful.config import merged
from heedful.data.batch import Batch
from heedful.data.images import UNSCORED
from heedful.data.masking import Draw, Masking, SpanLengths
from heedful.decoding.config import (
    BeamConfig,
    DecodingConfig,
    DiverseBeamConfig,
    GreedyConfig,
    MaxLength,
    MbrConfig,
    SampleConfig,
)
from heedful.model_summary.measuring import images_of
from heedful.models.captioner import CaptionerConfig
from heedful.models.encoder import EncoderConfig, class_head
from heedful.models.language_model import LanguageModel, LanguageModelConfig
from heedful.models.mixers import MIXERS as MIXERS_OF_RECIPES
from heedful.models.mixers import HeadsConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.recurrent_captioner import RecurrentCaptionerConfig
from heedful.models.registry import SIZES, build_model, build_reader
from heedful.models.resnet import ResNet, ResNetConfig
from heedful.models.segmentation import MaskTransformerConfig
from heedful.models.stacks import LayerConfig
from heedful.models.transformer import TransformerConfig
from heedful.models.vision import VisionConfig
from heedful.nn.attention.compressed import CompressedCache, MemoryCompressedAttention
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.plain import parameter_free_self_attention
from heedful.nn.attention.relative import Alibi, Rotary
from heedful.nn.attention.scores import AdditiveScore, BilinearScore, CosineScore, DotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.cells import ElmanCell, GRUCell, LSTMCell, ResetAfterGRUCell, StackedCell
from heedful.nn.declarations import declared
from heedful.nn.layout import Layout, Tokens
from heedful.nn.mixers import (
    Convolution,
    ConvolutionCache,
    DepthwiseSeparableConvolution,
    FourierMixer,
    ParallelConvolutions,
    PositionMLP,
)
from heedful.nn.norms import BatchNorm, PowerNorm
from heedful.nn.output import BoundaryHead, MaskedHead
from heedful.nn.patches import GridEmbedding, Images, PatchEmbedding
from heedful.nn.pooling import FirstPooling, MeanPooling, Pooler
from heedful.nn.recurrent import (
    Bidirectional,
    Recurrence,
    RecurrentCache,
    ResidualRecurrence,
)
from heedful.nn.segmentation import LinearDecoder, SegmentationHead
from heedful.nn.state import KeyValueCache
from heedful.nn.visibility import Blocks, GlobalTokens, Mask, Strided, Tree, Window
from heedful.objectives.classification import SequenceClass
from heedful.objectives.contrastive import InfoNCE
from heedful.objectives.cross_entropy import MaskedToken, NextToken, SpanBoundary
from heedful.objectives.segmentation import PixelClass
from heedful.objectives.terms import CombinedObjective, couples_batch
from heedful.recipes.schema import ClassObjectiveConfig, ObjectiveConfig, TokenObjectiveConfig
from heedful.tasks.inputs.texts import CLASS_TEMPLATE
from heedful.tasks.masked_language_modelling.task import ObjectiveConfig as MaskedTokenObjectiveConfig
from heedful.tasks.question_answering.task import ObjectiveConfig as AnswerObjectiveConfig
from heedful.tasks.regression import ObjectiveConfig as NumberObjectiveConfig
from heedful.tasks.segmentation.task import ObjectiveConfig as PixelObjectiveConfig
from heedful.tasks.sentence_embedding import ObjectiveConfig as ContrastObjectiveConfig
from heedful.tasks.sentence_embedding import contrastive_batch
from heedful.tasks.tagging import ObjectiveConfig as TagObjectiveConfig

# The one tolerance of all laws, in fp32: the largest difference between two whole tensors, relative to
# the largest number expected (or to 1, where all are smaller).
TOLERANCE = 5e-6


def same(actual: Any, expected: Any) -> None:
    """Whole tensors, or lists of them, agree within `TOLERANCE`; NaN agrees with nothing."""
    if not isinstance(expected, Tensor):
        assert len(actual) == len(expected)
        for ours, theirs in zip(actual, expected, strict=True):
            same(ours, theirs)
        return
    scale = max(1.0, float(expected.detach().abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=TOLERANCE * scale)


# Models ------------------------------------------------------------------------------------------------

V_SOURCE, V_TARGET = 31, 37
START, END = 1, 2

_LAYER = {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 19}}
_GATED = {"kind": "gated", "d_ff": 19, "activation": "silu"}
_COMPRESSED = {"kind": "compressed-attention", "n_heads": 2}
_EXPERTS = {"kind": "experts", "expert": {"kind": "feed-forward", "d_ff": 19, "activation": "gelu"}}
_TWO_GATES = [{}, {"channels": {"gate": "top-k"}}]
_BIASED = {"kind": "additive", "d_attention": 5, "bias": True}


def _blocks(size: int) -> dict[str, Any]:
    return {"kind": "attention", "n_heads": 2, "visible": {"kind": "blocks", "size": size}}


_VISIBLE = [
    {"kind": "dilated", "size": 3, "step": 2},
    {"kind": "strided", "stride": 3},
    {"kind": "fixed", "size": 4, "summary": 2},
    {"kind": "global", "n": 2, "size": 3},
    {"kind": "tree", "branching": 3},
    {"kind": "mask", "rows": ["".join("01"[i != j + 2] for j in range(17)) for i in range(17)]},
]
_T = {
    "kind": "transformer",
    "d_model": 14,
    "n_layers": 2,
    "dropout": 0.0,
    "max_length": 17,
    "layer": _LAYER,
}
_R = {
    "kind": "recurrent",
    "d_embedding": 5,
    "d_hidden": 7,
    "d_readout": 11,
    "attention": {"kind": "additive", "d_attention": 13},
}
_LOCATION = {
    "kind": "multi-head-location",
    "n_heads": 3,
    "d_k": 5,
    "d_v": 4,
    "channels": 2,
    "half_width": 4,
}
_ONE_WAY = {**_R, "direction": "left-to-right"}
_L = {
    "kind": "language-model",
    "d_model": 14,
    "n_layers": 2,
    "dropout": 0.0,
    "context": 17,
    "layer": _LAYER,
}
_C = {
    "kind": "captioner",
    "image_size": 12,
    "channels": 2,
    "patch_size": 4,
    "d_model": 14,
    "n_layers": 2,
    "dropout": 0.0,
    "max_length": 17,
    "layer": _LAYER,
}
_GRID = {
    "kind": "resnet",
    "n_blocks": [1, 2],
    "width": 4,
    "n_groups": 2,
    "root_kernel": 3,
    "root_stride": 1,
    "root_pool": False,
}
_RC = {
    "kind": "recurrent-captioner",
    "image_size": 7,
    "channels": 2,
    "encoder": _GRID,
    "d_embedding": 5,
    "d_hidden": 7,
    "d_readout": 11,
    "attention": {"kind": "additive", "d_attention": 13},
}

MODELS: dict[str, dict[str, Any]] = {
    "transformer": {**_T, "n_layers": 1, "n_decoder_layers": 3},
    "pre-norm": merged(
        _T, {"tie": "target", "layer": {"channels": {"activation": "gelu"}, "norm_placement": "pre"}}
    ),
    "no bias": merged(
        _T, {"tie": "none", "layer": {"mixer": {"bias": False}, "channels": {"activation": "gelu-tanh"}}}
    ),
    "patterns of visible tokens": merged(
        _T,
        {
            "layer": {"mixer": {"visible": {"kind": "window", "size": 2}}},
            "decoder_layer": {"mixer": {"visible": {"kind": "strided", "stride": 2}}},
            "cross_attention": {"n_heads": 2, "visible": {"kind": "global", "n": 1, "size": 2}},
        },
    ),
    "rms norm": merged(_T, {"layer": {"norm": "rms"}}),
    "batch norm": merged(_T, {"layer": {"norm": "batch"}}),
    "batch norm, pre": merged(_T, {"layer": {"norm": "batch", "norm_placement": "pre"}}),
    "power norm": merged(_T, {"layer": {"norm": {"kind": "power", "warmup": 0}}}),
    "power norm, warm": merged(_T, {"layer": {"norm": "power", "norm_placement": "pre"}}),
    "power norm, as released": merged(
        _T, {"layer": {"norm": {"kind": "power", "n_groups": 2}}, "decoder_layer": {"norm": "layer"}}
    ),
    "dot": merged(_T, {"layer": {"mixer": {"score": "dot"}}}),
    "bilinear": merged(_T, {"layer": {"mixer": {"score": "bilinear"}}}),
    "additive": merged(_T, {"n_layers": 1, "layer": {"mixer": {"score": "additive"}}}),
    "cosine": merged(_T, {"layer": {"mixer": {"score": "cosine"}}}),
    "narrow heads": merged(_T, {"layer": {"mixer": {"n_heads": 3, "d_k": 5, "d_v": 11}}}),
    "grouped heads": merged(_T, {"layer": {"mixer": {"n_heads": 6, "n_kv_heads": 3, "d_k": 5, "d_v": 3}}}),
    "one key head": merged(_T, {"layer": {"mixer": {"n_kv_heads": 1, "score": "additive"}}}),
    "gated": merged(_T, {"layer": {"channels": _GATED}}),
    "gated, no bias": merged(
        _T,
        {
            "layer": {
                "channels": {**_GATED, "activation": "relu", "bias": False},
                "norm_placement": "pre",
            }
        },
    ),
    "feed-forward without bias": merged(_T, {"layer": {"channels": {"bias": False}, "norm": "batch"}}),
    "learned": {**_T, "positions": "learned"},
    "one-hot": {**_T, "positions": "one-hot", "max_length": 14},
    "constant": {**_T, "positions": "constant"},
    "no positions": {**_T, "positions": "none"},
    "rotary": merged(_T, {"positions": "rotary", "layer": {"mixer": {"d_k": 6}}}),
    "rotary, concat": merged(
        _T,
        {
            "positions": "rotary",
            "combine": "concat",
            "tie": "none",
            "layer": {"mixer": {"d_k": 4, "score": "cosine"}, "norm_placement": "pre"},
        },
    ),
    "rotary, in part": merged(
        _T, {"positions": {"kind": "rotary", "base": 37.0, "d_rotated": 4}, "layer": {"mixer": {"d_k": 7}}}
    ),
    "alibi": merged(_T, {"positions": "alibi", "layer": {"mixer": {"n_heads": 3, "d_k": 5, "d_v": 3}}}),
    "concat": {**_T, "combine": "concat", "d_positions": 4, "tie": "none"},
    "as marian": {**_T, "positions": {"kind": "sinusoidal", "interleaved": False}, "head_bias": True},
    "swish": merged(_T, {"layer": {"channels": {"activation": "silu"}}}),
    "small epsilon": merged(_T, {"layer": {"norm": {"eps": 1e-12}, "norm_placement": "pre"}}),
    "concat, one-hot": {
        **_T,
        "combine": "concat",
        "d_model": 22,
        "max_length": 17,
        "positions": "one-hot",
        "tie": "none",
    },
    "norm without bias": merged(_T, {"layer": {"norm": {"bias": False}}}),
    "norms over the batch": merged(
        _T,
        {
            "layer": {"norm": {"kind": "batch", "eps": 1e-3, "momentum": 0.3}},
            "decoder_layer": {
                "norm": {"kind": "power", "warmup": 2, "eps": 1e-4, "alpha_fwd": 0.8, "alpha_bkw": 0.7}
            },
        },
    ),
    "additive with bias": merged(_T, {"layer": {"mixer": {"score": _BIASED}}}),
    "sinusoids from 2": {**_T, "positions": {"kind": "sinusoidal", "base": 50.0, "offset": 2}},
    "another cross-attention": {
        **_T,
        "cross_attention": {"n_heads": 6, "n_kv_heads": 3, "d_k": 5, "d_v": 3, "score": "dot", "bias": False},
    },
    "another cross-attention, additive": merged(
        _T, {"layer": {"mixer": {"bias": False}}, "cross_attention": {"n_heads": 7, "score": "additive"}}
    ),
    "another decoder": merged(
        _T,
        {
            "positions": {"kind": "rotary", "interleaved": True, "d_rotated": 4},
            "decoder_layer": {
                "mixer": {"n_heads": 6, "d_k": 4, "d_v": 3},
                "channels": _GATED,
                "norm": {"kind": "rms", "eps": 1e-3},
                "norm_placement": "pre",
            },
        },
    ),
    "experts": merged(_T, {"layer": {"channels": {**_EXPERTS, "n": 12}}, "pattern": _TWO_GATES}),
    "bahdanau": _R,
    "bahdanau, fed": {
        **_R,
        "cell": "lstm",
        "n_layers": 2,
        "residual": True,
        "input_feeding": True,
        "d_readout": 5,
        "tie": "target",
    },
    "bahdanau, one way": {**_ONE_WAY, "cell": "rnn", "attention": "dot", "bridge": "copy"},
    "fixed context": {
        **_ONE_WAY,
        "attention": None,
        "d_readout": 5,
        "tie": "three-way",
        "scale_embedding": True,
    },
    "luong": {**_R, "decoder": "luong", "attention": "bilinear", "bridge": "zero"},
    "luong, fed": {
        **_R,
        "decoder": "luong",
        "direction": "right-to-left",
        "cell": {"kind": "lstm", "forget_bias": 0.5},
        "n_layers": 2,
        "attention": {"kind": "cosine", "key_strength": 2.0},
        "bridge": "copy",
        "input_feeding": True,
    },
    "luong, scaled": {**_ONE_WAY, "decoder": "luong", "cell": "rnn", "attention": "scaled-dot"},
    "luong, dot in both directions": {**_R, "decoder": "luong", "attention": "dot"},
    "bahdanau, heads": {
        **_R,
        "attention": {"kind": "multi-head-additive", "n_heads": 3, "d_k": 5, "d_v": 4},
    },
    "bahdanau, bias": {**_R, "attention": _BIASED},
    "bahdanau, location": {
        **_R,
        "attention": _LOCATION,
        "n_layers": 2,
        "cell": {"kind": "lstm", "forget_gate": False},
    },
    "luong, location, fed": {
        **_ONE_WAY,
        "decoder": "luong",
        "attention": {**_LOCATION, "kind": "multi-head-multi-resolution"},
        "input_feeding": True,
    },
    "plain": {
        "kind": "recurrent",
        "d_embedding": 5,
        "d_hidden": 7,
        "decoder": "plain",
        "attention": None,
        "direction": "right-to-left",
        "bridge": "copy",
        "n_layers": 3,
        "cell": "lstm",
        "residual": True,
    },
    "language model": _L,
    "language model, post-norm": merged(
        _L,
        {
            "positions": "sinusoidal",
            "tie": False,
            "layer": {"mixer": {"bias": False}, "channels": {"activation": "relu"}, "norm_placement": "post"},
        },
    ),
    "language model, grouped heads": merged(
        _L,
        {
            "positions": "none",
            "layer": {
                "mixer": {"n_heads": 6, "n_kv_heads": 3, "d_k": 5, "d_v": 3, "score": "dot"},
                "channels": {"activation": "gelu-tanh"},
            },
        },
    ),
    "language model, bilinear": merged(
        _L, {"positions": "constant", "layer": {"mixer": {"score": "bilinear"}}}
    ),
    "language model, rms norm": merged(_L, {"scale_embedding": True, "layer": {"norm": "rms"}}),
    "language model, gated": merged(_L, {"layer": {"channels": {**_GATED, "bias": False}}}),
    "language model, rotary": merged(_L, {"positions": "rotary", "layer": {"mixer": {"d_k": 6}}}),
    "language model, rotary in part": merged(
        _L, {"positions": {"kind": "rotary", "base": 5e5, "d_rotated": 4}}
    ),
    "language model, rotary bilinear": merged(
        _L, {"positions": "rotary", "layer": {"mixer": {"d_k": 4, "score": "bilinear"}}}
    ),
    "language model, alibi": {**_L, "positions": "alibi"},
    "language model, alibi additive": merged(
        _L, {"positions": "alibi", "layer": {"mixer": {"score": "additive"}}}
    ),
    "language model, modern": merged(
        _L,
        {
            "positions": "rotary",
            "layer": {
                "mixer": {"n_heads": 6, "n_kv_heads": 3, "d_k": 4, "d_v": 5, "bias": False},
                "channels": {**_GATED, "bias": False},
                "norm": "rms",
            },
        },
    ),
    "language model, batch norm": merged(_L, {"layer": {"mixer": {"score": "additive"}, "norm": "batch"}}),
    "language model, power norm": merged(_L, {"layer": {"mixer": {"score": "cosine"}, "norm": "power"}}),
    "language model, windows": merged(
        _L, {"positions": "alibi", "layer": {"mixer": {"visible": {"kind": "window", "size": 3}}}}
    ),
    "language model, windows and full layers": merged(
        _L,
        {
            "n_layers": 3,
            "positions": "rotary",
            "layer": {
                "mixer": {
                    "n_heads": 6,
                    "n_kv_heads": 3,
                    "d_k": 4,
                    "d_v": 5,
                    "score": "dot",
                    "visible": {"kind": "window", "size": 2},
                }
            },
            "pattern": [{}, {"mixer": {"visible": "all"}}],
        },
    ),
    "language model, concatenated positions": {
        **_L,
        "combine": "concat",
        "positions": "sinusoidal",
        "d_positions": 4,
        "tie": False,
    },
    "language model, one-hot positions": {**_L, "positions": "one-hot", "context": 14},
    "language model, patterns of visible tokens": merged(
        _L, {"n_layers": 6, "pattern": [{"mixer": {"visible": visible}} for visible in _VISIBLE]}
    ),
    "language model, windows, additive": merged(
        _L, {"layer": {"mixer": {"score": "additive", "visible": {"kind": "window", "size": 2}}}}
    ),
    "language model, local": merged(
        _L,
        {"layer": {"mixer": {"visible": {"kind": "blocks", "size": 3, "earlier": 1}}}},
    ),
    "language model, compressed": merged(
        _L, {"layer": {"mixer": {"kind": "compressed-attention", "n_heads": 7, "n_kv_heads": 1}}}
    ),
    "language model, alternating": {
        **_L,
        "n_layers": 3,
        "pattern": [{"mixer": _blocks(2)}, {"mixer": _COMPRESSED}],
    },
    "language model, alternating, additive": merged(
        _L,
        {
            "layer": {"mixer": {"score": "additive", "bias": False}},
            "pattern": [
                {"mixer": _blocks(4)},
                {"mixer": {**_COMPRESSED, "factor": 2, "score": "additive", "bias": False}},
            ],
        },
    ),
    "language model, experts": {
        **_L,
        "n_layers": 3,
        "pattern": [{}, {"channels": {**_EXPERTS, "n": 5, "k": 2, "gate": "top-k"}}, {}],
    },
    "language model, noisy experts": merged(
        _L,
        {
            "layer": {"channels": {**_EXPERTS, "n": 4, "k": 3}},
            "pattern": [{"mixer": _blocks(3)}, {"mixer": _COMPRESSED}],
        },
    ),
    "language model, gated experts": merged(
        _L,
        {
            "layer": {
                "mixer": {"score": _BIASED},
                "channels": {"kind": "experts", "n": 4, "importance": 0.3, "load": 0.2, "expert": _GATED},
                "norm": {"bias": False},
            }
        },
    ),
    "language model, compressed, other widths": merged(
        _L, {"layer": {"mixer": {**_COMPRESSED, "d_k": 5, "d_v": 3}}}
    ),
    "language model, lstm": merged(
        _L, {"positions": "none", "layer": {"mixer": {"kind": "recurrent"}, "channels": "none"}}
    ),
    "language model, gru": merged(
        _L,
        {
            "tie": False,
            "layer": {
                "mixer": {
                    "kind": "recurrent",
                    "cell": {"kind": "gru", "reset": "after"},
                    "direction": "left-to-right",
                },
                "norm_placement": "post",
            },
        },
    ),
    "language model, rnn": merged(
        _L,
        {
            "layer": {
                "mixer": {"kind": "recurrent", "cell": "rnn", "direction": "right-to-left"},
                "norm": "power",
            }
        },
    ),
    "language model, separable": merged(
        _L, {"positions": "none", "layer": {"mixer": {"kind": "separable", "kernel": 4}}}
    ),
    "language model, convolution": merged(
        _L,
        {
            "layer": {
                "mixer": {"kind": "convolution", "kernel": 3, "activation": "relu"},
                "channels": {"activation": "relu"},
            }
        },
    ),
    "language model, parallel convolutions": merged(
        _L,
        {
            "positions": "none",
            "layer": {
                "mixer": {"kind": "parallel-convolutions", "widths": [2, 4, 2], "activation": "gelu"},
            },
        },
    ),
    "language model, several convolutions": {
        **_L,
        "n_layers": 3,
        "pattern": [
            {"mixer": {"kind": "convolution", "kernel": 2, "activation": "gelu-tanh", "bias": False}},
            {"mixer": {"kind": "parallel-convolutions", "widths": [3, 2], "activation": "silu"}},
            {"mixer": {"kind": "separable", "kernel": 3, "bias": False}},
        ],
    },
    "language model, attention alone": merged(_L, {"layer": {"mixer": {"d_v": 5}, "channels": "none"}}),
    "captioner": {**_C, "n_layers": 1, "n_decoder_layers": 3, "patches": "convolution"},
    "captioner, post-norm": merged(
        _C, {"positions": "learned", "layer": {"channels": {"activation": "relu"}, "norm_placement": "post"}}
    ),
    "captioner, untied": merged(
        _C,
        {
            "tie": False,
            "positions": "none",
            "layer": {"mixer": {"score": "dot", "bias": False}, "channels": {"activation": "gelu-tanh"}},
        },
    ),
    "captioner, batch norm": merged(_C, {"layer": {"mixer": {"score": "bilinear"}, "norm": "batch"}}),
    "captioner, power norm": merged(
        _C, {"layer": {"mixer": {"score": "cosine"}, "norm": "power"}, "decoder_layer": {"norm": "rms"}}
    ),
    "captioner, experts": merged(
        _C,
        {
            "positions": {"kind": "sinusoidal", "interleaved": False},
            "layer": {
                "mixer": {"score": _BIASED},
                "channels": {**_EXPERTS, "n": 20},
                "norm": {"bias": False},
            },
            "pattern": _TWO_GATES,
            "cross_attention": {"n_heads": 7},
        },
    ),
    "captioner, gated": merged(
        _C,
        {
            "layer": {
                "mixer": {"score": "additive"},
                "channels": {**_GATED, "bias": False},
                "norm": "rms",
            }
        },
    ),
    "captioner, resnet": {**_C, "image_size": 7, "encoder": _GRID},
    "captioner, resnet, post-norm": merged(
        _C,
        {
            "image_size": 13,
            "encoder": {"kind": "resnet", "n_blocks": [1], "width": 6, "n_groups": 3},
            "layer": {"norm_placement": "post"},
        },
    ),
    "recurrent captioner": _RC,
    "recurrent captioner, fed": {
        **_RC,
        "encoder": {**_GRID, "root_pool": True},
        "cell": "gru",
        "decoder": "luong",
        "attention": "scaled-dot",
        "bridge": "zero",
        "input_feeding": True,
        "d_readout": 5,
        "tie": "target",
        "scale_embedding": True,
    },
    "recurrent captioner, fixed context": {**_RC, "cell": "rnn", "attention": None},
    "recurrent captioner, plain": {
        **_RC,
        "d_readout": None,
        "decoder": "plain",
        "attention": None,
        "n_layers": 2,
        "residual": True,
    },
}

AnyGenerator = (
    TransformerConfig | RecurrentConfig | LanguageModelConfig | CaptionerConfig | RecurrentCaptionerConfig
)


def configuration(name: str) -> AnyGenerator:
    kinds: dict[str, Any] = {
        "transformer": TransformerConfig,
        "recurrent": RecurrentConfig,
        "language-model": LanguageModelConfig,
        "captioner": CaptionerConfig,
        "recurrent-captioner": RecurrentCaptionerConfig,
    }
    return kinds[MODELS[name]["kind"]].model_validate(MODELS[name])


@cache
def _declared(name: str) -> frozenset[str]:
    with torch.device("meta"):
        return frozenset(declared(plain_model(name)))


def keeping(*declarations: str) -> list[str]:
    """The models that declare none of them."""
    return [name for name in MODELS if not {*declarations} & _declared(name)]


every_model = pytest.mark.parametrize("name", MODELS)


def with_kernels(names: Sequence[str], has_products: Callable[[str], bool]) -> Any:
    """Parametrise by name and kernel (the fixture in `conftest.py`): the fused one where it can be used."""
    pairs = [(n, "explicit") for n in names] + [(n, "fused") for n in names if has_products(n)]
    return pytest.mark.parametrize("name, kernel", pairs, indirect=["kernel"])


def _model_has_products(name: str) -> bool:
    return has_products(configuration(name))


def has_products(config: Any) -> bool:
    """Whether the fused kernel can compute an attention of its layers, whose scores are then products."""
    return any(
        isinstance(layer.mixer, HeadsConfig) and layer.mixer.score.kind not in ("additive", "cosine")
        for layer in layers_of(config)
    )


def layers_of(config: Any) -> list[LayerConfig]:
    """Of a stack, and of a decoder beside it; none of models that are no stacks."""
    return [*getattr(config, "layers", ()), *getattr(config, "decoder_layers", ())]


every_model_and_kernel = with_kernels(list(MODELS), _model_has_products)

# A few that differ in all that matters to caches and decoders.
DECODED = [
    "transformer",
    "patterns of visible tokens",
    "grouped heads",
    "learned",
    "bahdanau",
    "luong, fed",
    "luong, location, fed",
    "fixed context",
    "plain",
    "language model",
    "language model, grouped heads",
    "language model, alibi",
    "language model, modern",
    "language model, windows and full layers",
    "language model, alternating",
    "language model, lstm",
    "language model, gru",
    "language model, separable",
    "captioner",
    "recurrent captioner",
]
every_decoded_and_kernel = with_kernels(DECODED, _model_has_products)
every_decoded = pytest.mark.parametrize("name", DECODED)

TUNING = (
    [[3, 13, 14, 15], [16, 17, 18, 19, 20, 3]],
    [[START, 13, 14, 15, 16], [START, 3, 20, 21]],
)  # Ids 3 and up; sequences of different lengths.
SOURCES = [[3, 4, 5, 6, 7], [8, 9], [10, 11, 12]]
TARGETS = [[START, 5, 6, 7], [START, 7, 8, 9, 10, 11, 12], [START]]


def vocabularies(config: Any) -> tuple[int, ...]:
    """The sizes of a model's vocabularies; that of the target comes last."""
    if SIZES[config.kind] == ("vocab_size",):
        return (V_TARGET,)
    return (V_TARGET, V_TARGET) if config.tie == "three-way" else (V_SOURCE, V_TARGET)


def plain_model(name: str, seed: int = 1) -> Any:
    """The model as it is initialised."""
    torch.manual_seed(seed)
    return build_model(configuration(name), *vocabularies(configuration(name)))


def model_of(name: str, seed: int = 1) -> Any:
    """The model with its weights moved from their special first values, and met statistics."""
    model = _moved(plain_model(name, seed))
    if "couples_batch" in declared(model):
        _meet(model, lambda: hidden_of(model, *TUNING))
    return model


def _meet(model: Any, read: Callable[[], Any]) -> None:
    """Give the norms the statistics of one batch, layer by layer; ``read`` calls the model on it."""
    norms = [m for m in model.modules() if isinstance(m, BatchNorm | PowerNorm)]
    at_once = {"momentum": 1.0, "alpha_fwd": 0.0, "warmup": 1}
    kept = [{name: getattr(norm, name) for name in at_once if hasattr(norm, name)} for norm in norms]
    for norm, own in zip(norms, kept, strict=True):
        vars(norm).update({name: at_once[name] for name in own})
    model.train()
    with torch.no_grad():
        read()
    for norm, own in zip(norms, kept, strict=True):
        vars(norm).update(own)
    model.eval()


def hidden_of(model: Any, sources: Sequence[Any], targets: Sequence[Any]) -> list[Tensor]:
    """Teacher-forced hidden states, one tensor for each sequence."""
    return list(model(Tokens.of(targets), source_of(model, sources)).split([len(t) for t in targets]))


def source_of(model: Any, sources: Sequence[Any]) -> Tokens | Images | None:
    """What the model is given beside the targets: the sources, images made of them, or nothing."""
    if isinstance(model, LanguageModel):
        return None
    embedding = getattr(model, "source_embedding", None)
    if not isinstance(embedding, PatchEmbedding | GridEmbedding | ResNet):
        return Tokens.of(sources)
    shape, n_tokens = images_of(embedding)
    return Images.of(torch.stack([_image_of(source, *shape) for source in sources]), n_tokens)


def _image_of(source: Sequence[int], *size: int) -> Tensor:
    """An image that is another one for every other row of ids."""
    seed = sum(37**place * int(number) for place, number in enumerate(source[:8], 1))
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed % 2**31))


def start(model: Any, sources: Sequence[Any]) -> Any:
    """The state before anything is written: of as many sequences as there are sources."""
    source = source_of(model, sources)
    return model.start(len(sources) if source is None else source)


def batch_for(model: Any, sources: Sequence[Any], targets: Sequence[Any]) -> Batch:
    """Teacher forcing."""
    source = source_of(model, [[*each, END] for each in sources])
    if isinstance(source, Images):
        return replace(Batch.teacher_forced(None, targets, start=START, end=END), source=source)
    return Batch.teacher_forced(None if source is None else sources, targets, start=START, end=END)


def in_fresh_process(script: str, *arguments: str) -> str:
    """Run a script of this folder, which must succeed; what it printed."""
    command = [sys.executable, str(Path(__file__).parent / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def embeddings(model: Any) -> list[Any]:
    """Of the target, and where there is one, of the source."""
    if isinstance(model, LanguageModel):
        return [model.embedding]
    return [model.target_embedding, model.source_embedding]


@contextmanager
def embedded_as(model: Any, *vectors: Tensor) -> Iterator[None]:
    """Within the context, the `embeddings` give these vectors in place of their own."""
    handles = [
        part.register_forward_hook(lambda *_, given=given: given)
        for part, given in zip(embeddings(model), vectors, strict=True)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


# Encoders ----------------------------------------------------------------------------------------------

N_CLASSES = 5
_E = {
    "kind": "encoder",
    "d_model": 14,
    "n_layers": 2,
    "dropout": 0.0,
    "max_length": 17,
    "layer": {
        "mixer": {"kind": "attention", "n_heads": 2, "dropout": 0.0},
        "channels": {"kind": "feed-forward", "d_ff": 19},
    },
}
_BIDIRECTIONAL = [mixer.model_fields["kind"].default for mixer in MIXERS_OF_RECIPES if mixer.both_ways]


def _mixer(word: str) -> dict[str, Any]:
    """A small one of this kind."""
    match word:
        case "attention":
            return {}
        case "separable":
            return {"kind": word, "kernel": 3}
        case "convolution":
            return {"kind": word, "kernel": 3, "activation": "gelu"}
        case "parallel-convolutions":
            return {"kind": word, "activation": "gelu"}
        case _:
            return {"kind": word}


ENCODERS: dict[str, dict[str, Any]] = {
    "encoder": _E,
    "encoder, pre-norm": merged(
        _E,
        {
            "positions": "sinusoidal",
            "pooling": "mean",
            "pooler": False,
            "segments": 0,
            "layer": {"mixer": {"bias": False}, "channels": {"activation": "relu"}, "norm_placement": "pre"},
        },
    ),
    "encoder, max": merged(
        _E,
        {
            "pooling": "max",
            "positions": "none",
            "embedding_norm": False,
            "layer": {"mixer": {"score": "dot"}, "channels": {"activation": "gelu-tanh"}},
        },
    ),
    "encoder, bilinear": merged(_E, {"positions": "constant", "layer": {"mixer": {"score": "bilinear"}}}),
    "encoder, additive": merged(_E, {"layer": {"mixer": {"score": "additive"}, "norm": "batch"}}),
    "encoder, cosine": merged(
        _E, {"layer": {"mixer": {"score": "cosine"}, "norm": "power", "norm_placement": "pre"}}
    ),
    # Every mixer that recipes know.
    **{f"encoder, {word}": merged(_E, {"layer": {"mixer": _mixer(word)}}) for word in _BIDIRECTIONAL},
    "encoder, gru": merged(
        _E,
        {
            "pooling": "max",
            "layer": {"mixer": {"kind": "recurrent", "cell": "gru", "direction": "left-to-right"}},
        },
    ),
    "encoder, rnn": merged(
        _E, {"layer": {"mixer": {"kind": "recurrent", "cell": "rnn", "direction": "right-to-left"}}}
    ),
    "encoder, convolution, max": merged(_E, {"pooling": "max", "layer": {"mixer": _mixer("convolution")}}),
    "encoder, concatenated positions": {
        **_E,
        "combine": "concat",
        "d_positions": 5,
        "positions": "learned",
        "pooling": "mean",
        "tie": False,
    },
    "encoder, one-hot positions": {**_E, "positions": "one-hot", "combine": "concat", "d_model": 20},
    "encoder, windows": merged(
        _E, {"pooling": "mean", "layer": {"mixer": {"visible": {"kind": "window", "size": 2}}}}
    ),
    "encoder, windows and full layers": merged(
        _E,
        {
            "positions": "alibi",
            "layer": {"mixer": {"visible": {"kind": "window", "size": 3}}},
            "pattern": [{}, {"mixer": {"visible": "all"}}],
        },
    ),
    "encoder, parallel convolutions, max": merged(
        _E,
        {
            "pooling": "max",
            "layer": {
                "mixer": {"kind": "parallel-convolutions", "widths": [1, 4], "activation": "relu"},
                "channels": {"activation": "relu"},
            },
        },
    ),
    "encoder, several convolutions": {
        **_E,
        "scale_embedding": True,
        "pooling": "mean",
        "pattern": [
            {"mixer": {"kind": "convolution", "kernel": 3, "activation": "silu"}},
            {"mixer": {"kind": "parallel-convolutions", "widths": [3, 1], "activation": "gelu-tanh"}},
        ],
    },
    "encoder, recurrent, alone": merged(_E, {"layer": {"mixer": {"kind": "recurrent"}, "channels": "none"}}),
    "encoder, experts": merged(
        _E,
        {
            "layer": {
                "mixer": {"score": _BIASED},
                "channels": {"kind": "experts", "n": 4, "expert": {**_GATED, "activation": "gelu"}},
                "norm": {"bias": False},
            },
            "pattern": _TWO_GATES,
        },
    ),
    "encoder, rotary": merged(
        _E, {"positions": "rotary", "embedding_norm": False, "layer": {"mixer": {"d_k": 6}, "norm": "rms"}}
    ),
    "encoder, rotary in part": merged(_E, {"positions": {"kind": "rotary", "d_rotated": 2}}),
    "encoder, alibi": merged(
        _E,
        {"positions": "alibi", "layer": {"channels": {**_GATED, "bias": False}}},
    ),
}

# Texts, and pairs of texts, of different lengths; ids from 7 on.
TEXTS = [[[7, 8, 9, 10], [11]], [[12], [13, 14, 15, 16, 17]], [[18, 19], []], [[20, 21, 22], [23]]]
LABELS = [0, 3, 2, 4]


# Language models that read a text to its end, in place of an encoder.
READERS: dict[str, dict[str, Any]] = {
    "reader": _L,
    "reader, untied": merged(
        _L, {"tie": False, "positions": "sinusoidal", "layer": {"norm_placement": "post"}}
    ),
    "reader, modern": MODELS["language model, modern"],
    "reader, windows": merged(_L, {"layer": {"mixer": {"visible": {"kind": "window", "size": 4}}}}),
    "reader, alternating": {
        **_L,
        "n_layers": 3,
        "pattern": [{"mixer": _blocks(3)}, {"mixer": _COMPRESSED}],
    },
    "reader, batch norm": merged(_L, {"layer": {"norm": "batch"}}),
    "reader, lstm": merged(_L, {"layer": {"mixer": {"kind": "recurrent"}, "channels": "none"}}),
}


def reader_configuration(name: str) -> EncoderConfig | LanguageModelConfig:
    kinds: dict[str, Any] = {"encoder": EncoderConfig, "language-model": LanguageModelConfig}
    case = {**ENCODERS, **READERS}[name]
    return kinds[case["kind"]].model_validate(case)


def reader_of(name: str, seed: int = 1) -> Any:
    """The encoder, or language model, with a head for classes, its weights moved, having met statistics."""
    torch.manual_seed(seed)
    config = reader_configuration(name)
    model: Any = build_reader(config, V_TARGET)
    model.heads["class"] = class_head(config.d_model, N_CLASSES, config.dropout)
    model = _moved(model)
    if "couples_batch" in declared(model):
        _meet(model, lambda: model(labelled(name, texts_for(name), LABELS).inputs))
    return model


def texts_for(name: str) -> list[list[list[int]]]:
    """Pairs, or single texts where there is no table of segments."""
    return TEXTS if reads_pairs(name) else [[first + second] for first, second in TEXTS]


def reads_pairs(name: str) -> bool:
    """Whether two texts are told apart: by segments, or by the end token between documents."""
    return bool({**ENCODERS, **READERS}[name].get("segments", 2))


def labelled(name: str, texts: Sequence[Any], labels: Sequence[int]) -> Batch:
    """With BERT's special tokens, or as documents."""
    first, last = (END, END) if name in READERS else (4, 5)
    return Batch.labelled(texts, labels, classify=first, separate=last)


# Models of images ------------------------------------------------------------------------------------

_P = {
    "kind": "vision",
    "image_size": 12,
    "channels": 2,
    "patch_size": 4,
    "d_model": 14,
    "n_layers": 2,
    "dropout": 0.0,
    "layer": _LAYER,
}
_N = {"kind": "resnet", "image_size": 12, "channels": 2, "n_blocks": [1, 2], "width": 6, "n_groups": 2}
IMAGES: dict[str, dict[str, Any]] = {
    "vit": _P,
    "vit, mean": merged(
        _P,
        {
            "pooling": "mean",
            "layer": {"mixer": {"score": "dot", "bias": False}, "channels": {"activation": "relu"}},
        },
    ),
    "vit, convolution of patches": {**_P, "patches": "convolution"},
    "vit, sinusoidal": {**_P, "d_model": 12, "positions": "grid"},
    "vit, post-norm": merged(
        _P,
        {
            "layer": {
                "mixer": {"score": "bilinear"},
                "channels": {"activation": "gelu-tanh"},
                "norm_placement": "post",
            }
        },
    ),
    "vit, batch norm": merged(_P, {"layer": {"mixer": {"score": "additive"}, "norm": "batch"}}),
    "vit, power norm": merged(_P, {"layer": {"mixer": {"score": "cosine"}, "norm": "power"}}),
    "vit, gated": merged(_P, {"layer": {"channels": {**_GATED, "bias": False}, "norm": "rms"}}),
    "vit, windows": merged(
        _P, {"pooling": "mean", "layer": {"mixer": {"visible": {"kind": "window", "size": 4}}}}
    ),
    "vit, windows and full layers": merged(
        _P,
        {
            "layer": {"mixer": {"visible": {"kind": "window", "size": 2}}},
            "pattern": [{}, {"mixer": {"visible": "all"}}],
        },
    ),
    "mlp-mixer": merged(
        _P, {"positions": "none", "pooling": "mean", "layer": {"mixer": {"kind": "mlp", "d_tokens": 5}}}
    ),
    "fourier, class token": merged(_P, {"layer": {"mixer": {"kind": "fourier"}}}),
    **{
        f"vit, {word}": merged(_P, {"pooling": "mean", "layer": {"mixer": _mixer(word)}})
        for word in _BIDIRECTIONAL
    },
    "vit, gru": merged(
        _P,
        {
            "pooling": "mean",
            "layer": {"mixer": {"kind": "recurrent", "cell": "gru", "direction": "left-to-right"}},
        },
    ),
    "vit, rnn": merged(
        _P, {"layer": {"mixer": {"kind": "recurrent", "cell": "rnn", "direction": "right-to-left"}}}
    ),
    "vit, several mlps": {
        **_P,
        "n_layers": 3,
        "pattern": [
            {"mixer": {"kind": "mlp", "activation": activation}}
            for activation in ("relu", "gelu-tanh", "silu")
        ],
    },
    "vit, attention alone": merged(_P, {"layer": {"channels": "none"}}),
    "vit, experts": merged(
        _P,
        {
            "layer": {
                "mixer": {"score": _BIASED},
                "channels": {"kind": "experts", "n": 4, "expert": {**_GATED, "activation": "gelu-tanh"}},
                "norm": {"bias": False},
            },
            "pattern": _TWO_GATES,
        },
    ),
    "resnet": _N,
    "resnet, small root": {**_N, "root_kernel": 3, "root_stride": 1, "root_pool": False, "n_groups": 3},
}


def image_configuration(name: str) -> VisionConfig | ResNetConfig:
    kinds: dict[str, Any] = {"vision": VisionConfig, "resnet": ResNetConfig}
    return kinds[IMAGES[name]["kind"]].model_validate(IMAGES[name])


def image_model(name: str, seed: int = 1) -> Any:
    """The model with a head for classes, its weights moved, having met statistics."""
    torch.manual_seed(seed)
    config = image_configuration(name)
    model: Any = build_model(config)
    model.heads["class"] = class_head(config.d_model, N_CLASSES, config.dropout)
    model = _moved(model)
    if "couples_batch" in declared(model):
        _meet(model, lambda: model(images_for(name)))
    return model


def images_for(name: str, n: int = len(LABELS), seed: int = 4) -> Images:
    """Some images of the size that the model reads."""
    config, generator = image_configuration(name), torch.Generator().manual_seed(seed)
    pixels = torch.randn(n, config.channels, *[config.image_size] * 2, generator=generator)
    return Images.of(pixels, config.n_tokens)


# Models of either, with a label for each sequence ------------------------------------------------------

LABELLED = {**ENCODERS, **READERS, **IMAGES}
every_labelled = pytest.mark.parametrize("name", LABELLED)


def labelled_configuration(name: str) -> EncoderConfig | LanguageModelConfig | VisionConfig | ResNetConfig:
    return image_configuration(name) if name in IMAGES else reader_configuration(name)


def labelled_model(name: str, seed: int = 1) -> Any:
    """The model with a head for classes, its weights moved, having met statistics."""
    return image_model(name, seed) if name in IMAGES else reader_of(name, seed)


def labelled_batch(name: str, rows: Sequence[int] = range(len(LABELS))) -> Batch:
    """Some of the four examples of the model's kind, in this order."""
    labels = [LABELS[row] for row in rows]
    if name not in IMAGES:
        texts = texts_for(name)
        return labelled(name, [texts[row] for row in rows], labels)
    nothing = torch.zeros(0, dtype=torch.int64)
    inputs = images_for(name).select(rows)
    return Batch(inputs, nothing, rows=nothing, ragged=False, classes=torch.tensor(labels))


# Mixers ------------------------------------------------------------------------------------------------

D = 13  # width of the tokens of all mixers
D_MEMORY = 11


class ParameterFree(nn.Module):
    non_causal = True

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        return parameter_free_self_attention(x, layout)


@dataclass(frozen=True)
class Mixer:
    """How a position mixer is made, and, where it can continue sequences, its cache."""

    make: Callable[[], nn.Module]
    cache: Callable[[], Any] | None = None


def _attention(**options: Any) -> Mixer:
    cache = KeyValueCache if options.get("causal") else None
    return Mixer(lambda: SelfAttention(D, 3, **{"d_k": 5, "d_v": 7, "qkv_bias": True, **options}), cache)


def _compressed(**options: Any) -> Mixer:
    sizes = {"d_k": 5, "d_v": 7, "qkv_bias": True}
    return Mixer(lambda: MemoryCompressedAttention(D, 3, **{**sizes, **options}), CompressedCache)


def _recurrence(cell: Callable[[int, int], Any], reverse: bool = False) -> Mixer:
    return Mixer(lambda: Recurrence(cell(D, 7), reverse=reverse), None if reverse else RecurrentCache)


def _bidirectional(cell: Callable[[int, int], Any]) -> Mixer:
    return Mixer(lambda: Bidirectional(Recurrence(cell(D, 7)), Recurrence(cell(D, 7), reverse=True)))


def _stacked(d_in: int, d_hidden: int) -> StackedCell:
    return StackedCell([GRUCell(d_in, d_hidden), LSTMCell(d_hidden, d_hidden)])


MIXERS: dict[str, Mixer] = {
    "all": _attention(),
    "all, window": _attention(pattern=Window(2)),
    "all, block": _attention(pattern=Blocks(3)),
    "causal": _attention(causal=True),
    "causal, window": _attention(causal=True, pattern=Window(3)),
    "causal, block": _attention(causal=True, pattern=Blocks(2)),
    "causal, earlier block": _attention(causal=True, pattern=Blocks(2, 1)),
    "all, strided": _attention(pattern=Strided(2)),
    "all, global": _attention(pattern=GlobalTokens(1, 2)),
    "all, mask": _attention(pattern=Mask.of(torch.ones(13, 13).triu(-1) > 0)),
    "causal, strided": _attention(causal=True, pattern=Strided(3)),
    "causal, tree": _attention(causal=True, pattern=Tree(2), rotary=Rotary(6), d_k=6),
    "causal, grouped": _attention(causal=True, n_kv_heads=1),
    "causal, dot": _attention(causal=True, score=DotScore()),
    "causal, bilinear": Mixer(
        lambda: SelfAttention(D, 3, d_k=5, d_v=7, causal=True, score=BilinearScore(5, 5)), KeyValueCache
    ),
    "causal, additive": Mixer(
        lambda: SelfAttention(D, 3, d_k=5, d_v=7, causal=True, score=AdditiveScore(5, 5, 11, n_heads=3)),
        KeyValueCache,
    ),
    "causal, block additive": Mixer(
        lambda: SelfAttention(
            D,
            3,
            d_k=5,
            d_v=7,
            causal=True,
            pattern=Blocks(2),
            qkv_bias=True,
            score=AdditiveScore(5, 5, 11, n_heads=3),
        ),
        KeyValueCache,
    ),
    "causal, cosine": Mixer(
        lambda: SelfAttention(D, 3, d_k=5, d_v=7, causal=True, score=CosineScore(3.0)), KeyValueCache
    ),
    "all, rotary": _attention(d_k=6, rotary=Rotary(6, d_rotated=4)),
    "causal, rotary": _attention(causal=True, d_k=6, n_kv_heads=1, rotary=Rotary(6)),
    "causal, rotary in halves": _attention(
        causal=True, d_k=6, pattern=Window(4), rotary=Rotary(6, interleaved=False)
    ),
    "all, alibi": _attention(score_bias=Alibi(3)),
    "causal, alibi": _attention(causal=True, score_bias=Alibi(3)),
    "causal, alibi additive": Mixer(
        lambda: SelfAttention(
            D, 3, d_k=5, d_v=7, causal=True, score=AdditiveScore(5, 5, 11), score_bias=Alibi(3)
        ),
        KeyValueCache,
    ),
    "causal, rotary block": _attention(causal=True, d_k=6, pattern=Blocks(2), rotary=Rotary(6)),
    "causal, rotary earlier block": _attention(causal=True, d_k=6, pattern=Blocks(2, 1), rotary=Rotary(6)),
    "causal, alibi earlier block": _attention(causal=True, pattern=Blocks(2, 1), score_bias=Alibi(3)),
    "all, alibi block": _attention(pattern=Blocks(3), score_bias=Alibi(3)),
    "compressed": _compressed(),
    "compressed, grouped": _compressed(factor=2, n_kv_heads=1, qkv_bias=False),
    "compressed, additive": Mixer(
        lambda: MemoryCompressedAttention(
            D, 3, d_k=5, d_v=7, qkv_bias=True, score=AdditiveScore(5, 5, 11, n_heads=3)
        ),
        CompressedCache,
    ),
    "parameter-free": Mixer(ParameterFree),
    "fourier": Mixer(FourierMixer),
    "position mlp": Mixer(lambda: PositionMLP(D, 11, 5)),
    "separable": Mixer(lambda: DepthwiseSeparableConvolution(D, 3)),
    "separable, causal": Mixer(
        lambda: DepthwiseSeparableConvolution(D, 4, causal=True, bias=False), ConvolutionCache
    ),
    "convolution": Mixer(lambda: Convolution(D, 5, activation=nn.GELU(), bias=False)),
    "parallel convolutions": Mixer(lambda: ParallelConvolutions(D, [2, 1, 4, 3], activation=nn.GELU())),
    "parallel convolutions, causal": Mixer(
        lambda: ParallelConvolutions(D, [3, 2], causal=True, activation=nn.Tanh()), ConvolutionCache
    ),
    "convolution, causal": Mixer(
        lambda: Convolution(D, 3, causal=True, activation=nn.Tanh()), ConvolutionCache
    ),
    "rnn": _recurrence(ElmanCell),
    "lstm": _recurrence(LSTMCell),
    "lstm without forget gate": _recurrence(partial(LSTMCell, forget_gate=False)),
    "gru": _recurrence(GRUCell),
    "gru, reset after": _recurrence(ResetAfterGRUCell),
    "stacked": _recurrence(_stacked),
    "lstm, reversed": _recurrence(LSTMCell, reverse=True),
    "bidirectional": _bidirectional(GRUCell),
    "residual": Mixer(lambda: ResidualRecurrence(Recurrence(LSTMCell(D, D))), RecurrentCache),
    "residual, reversed": Mixer(lambda: ResidualRecurrence(Recurrence(GRUCell(D, D), reverse=True))),
    "residual, bidirectional": Mixer(
        lambda: ResidualRecurrence(
            Bidirectional(Recurrence(GRUCell(D, 6)), Recurrence(GRUCell(D, 7), reverse=True))
        )
    ),
}
every_mixer = pytest.mark.parametrize("name", MIXERS)


def _mixer_has_products(name: str) -> bool:
    return name.startswith(("all", "causal", "compressed")) and not name.endswith(("additive", "cosine"))


every_mixer_and_kernel = with_kernels(list(MIXERS), _mixer_has_products)
every_cached_mixer_and_kernel = with_kernels([n for n, m in MIXERS.items() if m.cache], _mixer_has_products)

CROSS: dict[str, Callable[[], dict[str, Any]]] = {
    "cross": lambda: {"qkv_bias": True},
    "cross, grouped": lambda: {"n_kv_heads": 1},
    "cross, additive": lambda: {"score": AdditiveScore(5, 5, 7, n_heads=3)},
    "cross, cosine": lambda: {"score": CosineScore(3.0)},
}
every_cross = pytest.mark.parametrize("name", CROSS)
every_cross_and_kernel = with_kernels(list(CROSS), lambda name: name in ("cross", "cross, grouped"))

LENGTHS = [5, 0, 7, 1, 3]
KEY_LENGTHS = [2, 4, 0, 11, 3]


def mixer_of(name: str) -> Any:
    torch.manual_seed(2)
    return _moved(MIXERS[name].make())


def cross_of(name: str) -> CrossAttention:
    torch.manual_seed(2)
    return _moved(CrossAttention(D, 3, d_memory=D_MEMORY, d_k=5, d_v=7, **CROSS[name]()))


def _moved(module: Any) -> Any:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return module.eval()


def tokens_of(lengths: Sequence[int], d: int = D, seed: int = 3) -> Tensor:
    return torch.randn(sum(lengths), d, generator=torch.Generator().manual_seed(seed))


# Objectives --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Minimised:
    """An objective, the heads that it needs, and batches of some of four samples for it."""

    make: Callable[[], Any]
    heads: Callable[[], nn.ModuleDict]
    batch: Callable[[Sequence[int]], Batch]


ANSWERS = [[7, 8, 9], [10], [], [11, 12, 13, 14]]
PROMPTS = [[15, 16], [17, 18, 19], [20], [21, 22]]


def _forced(rows: Sequence[int]) -> Batch:
    return Batch.teacher_forced(None, [ANSWERS[row] for row in rows], start=START, end=END)


def _delimited(rows: Sequence[int]) -> Batch:
    prompts, answers = ([texts[row] for row in rows] for texts in (PROMPTS, ANSWERS))
    return Batch.delimited(prompts, answers, start=START, separate=5, end=END)


def _labelled_texts(rows: Sequence[int]) -> Batch:
    return labelled("encoder", [TEXTS[row] for row in rows], [LABELS[row] for row in rows])


def _framed(rows: Sequence[int]) -> Batch:
    return Batch.with_special_tokens([TEXTS[row] for row in rows], classify=4, separate=5)


def _valued(rows: Sequence[int]) -> Batch:
    return replace(_framed(rows), values=torch.tensor([0.5 * row - 1 for row in rows]))


def _answered(rows: Sequence[int]) -> Batch:
    answers = [(1, 3), None, (2, 2), (4, 5)]
    return _framed(rows).answered([answers[row] for row in rows])


def _tagged(rows: Sequence[int]) -> Batch:
    """Every second word has a tag."""
    framed = Batch.with_special_tokens([[PROMPTS[row]] for row in rows], classify=4, separate=5)
    return framed.tagged([[(row + 1) * (i % 2 == 0) for i in range(len(PROMPTS[row]))] for row in rows])


def _masked(rows: Sequence[int]) -> Batch:
    """Spans are hidden, and whether the second text follows is asked."""
    masking = Masking(3, 7, V_TARGET, rate=0.4, begins_word=np.ones(V_TARGET, bool), spans=SpanLengths())
    sequences = [np.concatenate([[4], np.arange(7, 16 + row), [5]]) for row in rows]
    hidden = [masking.mask_tokens(sequence, Draw(row)) for sequence, row in zip(sequences, rows, strict=True)]
    return Batch.masked(sequences, hidden, classes=[row % 2 for row in rows])


def _segmented(rows: Sequence[int]) -> Batch:
    """A row of pixels of each image is not scored."""
    masks = np.zeros((len(rows), 4, 4), np.uint8)
    for mask, row in zip(masks, rows, strict=True):
        mask[:] = np.random.default_rng(row).integers(0, N_CLASSES, mask.shape)
        mask[row] = UNSCORED
    return Batch.segmented(Images.of(torch.zeros(len(rows), 1, 4, 4), 5), masks)


def _contrasted(rows: Sequence[int]) -> Batch:
    """The second texts are the positives of the first."""
    columns = [[TEXTS[row][i] or [24] for row in rows] for i in range(2)]
    return contrastive_batch(columns, 11, CLASS_TEMPLATE, rows)


def _hard_contrasted(rows: Sequence[int]) -> Batch:
    """Each has a hard negative too."""
    columns = [[TEXTS[row][i] or [24] for row in rows] for i in range(2)]
    return contrastive_batch([*columns, [[30 + row, 7] for row in rows]], 11, CLASS_TEMPLATE, rows)


def _mask_head(decoder: nn.Module) -> nn.ModuleDict:
    return nn.ModuleDict({"mask": SegmentationHead(decoder, (2, 2), (4, 4), n_before=1)})


def _linear_masks() -> nn.ModuleDict:
    return _mask_head(LinearDecoder(D, N_CLASSES))


def _pixel_masks() -> nn.ModuleDict:
    return _mask_head(LinearDecoder(D, N_CLASSES, cells=2))


def _transformed_masks() -> nn.ModuleDict:
    config = MaskTransformerConfig(n_layers=1, n_heads=1, d_ff=11, dropout=0.0)
    return _mask_head(config.build(VisionConfig(d_model=D, layer={"mixer": {"n_heads": 1}}), N_CLASSES))


def _token_head() -> nn.ModuleDict:
    return nn.ModuleDict({"token": nn.Linear(D, V_TARGET)})


def _class_heads() -> nn.ModuleDict:
    return nn.ModuleDict({"pooled": FirstPooling(), "class": nn.Linear(D, N_CLASSES)})


def _tag_head() -> nn.ModuleDict:
    return nn.ModuleDict({"tag": nn.Linear(D, N_CLASSES)})


def _answer_head() -> nn.ModuleDict:
    # A bias would be the same for all tokens, and change no softmax over them.
    return nn.ModuleDict({"answer": nn.Linear(D, 2, bias=False)})


def _pooler_heads() -> nn.ModuleDict:
    return nn.ModuleDict({"pooled": Pooler(MeanPooling(), D)})


def _value_heads() -> nn.ModuleDict:
    return nn.ModuleDict({"pooled": FirstPooling(), "value": nn.Linear(D, 1)})


def _masked_head() -> nn.ModuleDict:
    return nn.ModuleDict({"token": MaskedHead(nn.Parameter(torch.randn(V_TARGET, D)))})


def _masked_heads() -> nn.ModuleDict:
    table = nn.Parameter(torch.randn(V_TARGET, D))
    heads = {"token": MaskedHead(table), "boundary": BoundaryHead(table, 10)}
    return nn.ModuleDict({**heads, "pooled": FirstPooling(), "next": nn.Linear(D, 2)})


# What recipes may minimise, and what each needs.
REGISTERED: dict[str, tuple[type[ObjectiveConfig], Callable[[], nn.ModuleDict], Callable[..., Batch]]] = {
    "token": (TokenObjectiveConfig, _token_head, _forced),
    "masked token": (MaskedTokenObjectiveConfig, _masked_head, _masked),
    "class": (ClassObjectiveConfig, _class_heads, _labelled_texts),
    "tag": (TagObjectiveConfig, _tag_head, _tagged),
    "number": (NumberObjectiveConfig, _value_heads, _valued),
    "answer": (AnswerObjectiveConfig, _answer_head, _answered),
    "pixel": (PixelObjectiveConfig, _linear_masks, _segmented),
    "contrast": (ContrastObjectiveConfig, _pooler_heads, _contrasted),
}


def _named(config: type[ObjectiveConfig], word: str) -> Callable[[], Any]:
    return lambda: config(loss=word).make()


OBJECTIVES: dict[str, Minimised] = {
    **{
        f"{what}, {word}": Minimised(_named(config, word), heads, batch)
        for what, (config, heads, batch) in REGISTERED.items()
        for word in config.losses
    },
    "answers": Minimised(lambda: NextToken(), _token_head, _delimited),
    "chunks": Minimised(lambda: NextToken(0.2, chunk=2), _token_head, _forced),
    "class of pixels, each with its score": Minimised(lambda: PixelClass(0.1), _pixel_masks, _segmented),
    "class of pixels, mask transformer": Minimised(PixelClass, _transformed_masks, _segmented),
    "contrast in both directions": Minimised(
        lambda: InfoNCE(0.1, symmetric=True), _pooler_heads, _contrasted
    ),
    "contrast with hard negatives": Minimised(InfoNCE, _pooler_heads, _hard_contrasted),
    "smoothed class": Minimised(lambda: SequenceClass(0.2), _class_heads, _labelled_texts),
    "masked": Minimised(
        lambda: CombinedObjective(MaskedToken(), SpanBoundary(), SequenceClass(head="next")),
        _masked_heads,
        _masked,
    ),
}
every_objective = pytest.mark.parametrize("name", OBJECTIVES)
COUPLED_OBJECTIVES = [name for name, case in OBJECTIVES.items() if couples_batch(case.make())]
every_coupled_objective = pytest.mark.parametrize("name", COUPLED_OBJECTIVES)
every_additive_objective = pytest.mark.parametrize(
    "name", [name for name in OBJECTIVES if name not in COUPLED_OBJECTIVES]
)


# Decoders ----------------------------------------------------------------------------------------------

_ROOM = MaxLength(ratio=1.0, extra=3)
DECODERS: dict[str, DecodingConfig] = {
    "greedy": GreedyConfig(max_length=_ROOM),
    "beam": BeamConfig(max_length=_ROOM, beam=3, n_best=3),
    "beam, unfinished kept": BeamConfig(max_length=_ROOM, beam=3, n_best=3, unfinished="keep"),
    "beam, coverage": BeamConfig(max_length=_ROOM, beam=5, n_best=2, coverage=0.3),
    "diverse beam": DiverseBeamConfig(max_length=_ROOM, beam=4, groups=2, n_best=4, diversity=0.7),
    "mbr": MbrConfig(max_length=_ROOM, n=5, seed=3),
    "sample": SampleConfig(max_length=_ROOM, n=3, temperature=1.3, top_k=23, top_p=0.97, seed=5),
}
every_decoder = pytest.mark.parametrize("decoder", DECODERS)
