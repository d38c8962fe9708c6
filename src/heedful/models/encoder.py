"""Bidirectional text encoders, for tasks that label or fill in text.

| preset | n_layers | d_model | d_ff | n_heads | parameters, with the pooler |
|---|---|---|---|---|---|
| bert-base | 12 | 768 | 3072 | 12 | 86,041,344 + 768 V |
| bert-large | 24 | 1024 | 4096 | 16 | 303,887,360 + 1024 V |

With V = 30,522 the totals are 109,482,240 and 335,141,888; the paper (Devlin et al. 2019, section 3) prints
110M and 340M. The ε of their norms, 1e-12, is that of the released code.
"""

from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.models.base import Model, check_packed
from heedful.models.sections import Layers, Positive, Width
from heedful.models.stacks import StackConfig, TokenStackConfig, embedding_scale, stack
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderStack
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import SegmentedEmbedding
from heedful.nn.feedforward import FeedForward, GatedFeedForward
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images
from heedful.nn.pooling import FirstPooling, MaxPooling, MeanPooling, Pooler
from heedful.nn.positions import LearnedPositions
from heedful.typing import JsonObject

STD = 0.02


class Encoder(Model):
    """Tokens or images → stack → hidden states; ``heads["pooled"]`` computes one vector per sequence.

    Tasks add further heads under their own names.

    Args:
        embedding: called on the inputs, packed tokens or images.
        stack: bidirectional blocks, or causal ones if the last token represents the sequence.
        pooler: called on hidden states and layout.
    """

    lowers = True

    def __init__(self, embedding: nn.Module, stack: EncoderStack, pooler: nn.Module) -> None:
        super().__init__()
        self.embedding, self.stack = embedding, stack
        self.heads = nn.ModuleDict({"pooled": pooler})

    def forward(self, inputs: Tokens | Images, source: Tokens | None = None) -> Float[Tensor, "T d"]:
        """Return the hidden states of all tokens; ``source`` must be None (model interface)."""
        check_packed(inputs)
        if source is not None:
            raise ValueError("an encoder has no source; pass the whole text as inputs")
        return self.stack(self.embedding(inputs), inputs.layout)


class EncoderConfig(TokenStackConfig):
    """Configuration of an encoder, by default BERT-base (Devlin et al. 2019, section 3), except the ε of its
    norms.

    Args:
        max_length: maximum number of tokens of a sequence, including special tokens.
        segments: number of segment embeddings, for the first and second text of a pair; 0: none.
        embedding_norm: whether the sum of the embeddings is normalised.
        pooling: pooling of the hidden states to one vector per sequence.
        pooler: whether a linear layer with tanh follows the pooling.
        tie: whether the output layer of a masked language model shares the embedding table.
        scale_embedding: whether embeddings are multiplied by sqrt(d_model); null: only with the positions
            ``sinusoidal`` and ``constant``, which have size 1.
    """

    default_sections: ClassVar[JsonObject] = {
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 12, "dropout": 0.1},
            "channels": {"kind": "feed-forward", "activation": "gelu"},
        },
        "positions": {"kind": "learned"},
    }

    kind: Literal["encoder"] = "encoder"
    d_model: Width = 768
    n_layers: Layers = 12
    max_length: Positive = 512
    segments: Annotated[int, Field(ge=0)] = 2
    embedding_norm: bool = True
    pooling: Literal["first", "mean", "max"] = "first"
    pooler: bool = True
    tie: bool = True
    scale_embedding: bool | None = None

    @model_validator(mode="after")
    def _positions_and_pooling_fit(self) -> "EncoderConfig":
        self.check_combination(is_tied=False)
        if self.pooling == "first" and reads_left_to_right(self):
            raise ValueError(
                "pooling=first is not supported with direction=left-to-right, in which the first token sees "
                "only itself; set pooling=mean or max, or another direction"
            )
        return self

    @property
    def longest(self) -> int:
        """Maximum number of tokens of a sequence."""
        return self.max_length


def reads_left_to_right(config: StackConfig) -> bool:
    """Return whether no token sees a later one, because all layers are recurrences from left to right."""
    return all(getattr(layer.mixer, "direction", "both") == "left-to-right" for layer in config.layers)


_BERT: JsonObject = {"norm": {"eps": 1e-12}}

PRESETS: dict[str, EncoderConfig] = {
    "bert-base": EncoderConfig.model_validate({"layer": _BERT}),
    "bert-large": EncoderConfig.model_validate(
        {"d_model": 1024, "n_layers": 24, "layer": {"mixer": {"n_heads": 16}, **_BERT}}
    ),
}

VOCABULARIES: dict[str, tuple[int, ...]] = dict.fromkeys(PRESETS, (30_522,))
"""Vocabulary of the released uncased models (section 3 of the paper says 30,000)."""


def build(config: EncoderConfig, vocab_size: int) -> Encoder:
    """Build a model, initialised like BERT: N(0, 0.02²), biases 0 (released code)."""
    d_model = config.d_model
    embedding = SegmentedEmbedding(
        nn.Parameter(torch.empty(vocab_size, config.d_embedding)),
        config.build_positions(),
        nn.Parameter(torch.empty(config.segments, d_model)) if config.segments else None,
        config.layer.norm.build(d_model) if config.embedding_norm else nn.Identity(),
        scale=embedding_scale(config, config.scale_embedding),
        dropout=config.dropout,
    )
    pooling = POOLINGS[config.pooling]()
    pooler = Pooler(pooling, d_model) if config.pooler else pooling
    model = Encoder(embedding, stack(config, config.max_length), pooler)
    initialise(model)
    return model


POOLINGS: dict[str, type[nn.Module]] = {"first": FirstPooling, "mean": MeanPooling, "max": MaxPooling}


def initialise(model: Encoder) -> None:
    """Initialise matrices and tables to N(0, 0.02²), biases to 0; cells and scores are not changed."""
    layers: list[nn.Linear] = []
    tables: list[Tensor | None] = []
    for part in model.modules():
        match part:
            case SelfAttention():
                layers += [part.qkv, part.out]
            case FeedForward():
                layers += [part.up, part.down]
            case GatedFeedForward():
                layers += [part.gate_up, part.down]
            case Pooler():
                layers.append(part.dense)
            case SegmentedEmbedding():
                tables += [part.weight, part.segments]
            case LearnedPositions():
                tables.append(part.weight)
    for layer in layers:
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    for table in [*(layer.weight for layer in layers), *tables]:
        if table is not None:
            nn.init.normal_(table, std=STD)


def class_head(d_model: int, n_classes: int, dropout: float) -> nn.Sequential:
    """Build dropout and a linear layer from the pooled vector to class logits."""
    layer = nn.Linear(d_model, n_classes)
    nn.init.normal_(layer.weight, std=STD)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(Dropout(dropout), layer)
