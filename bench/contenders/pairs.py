"""Encoder-decoder training peers: torch's Transformer, Marian of transformers, x-transformers."""

import math
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from contenders.training import contenders, cross_entropy
from harness.batches import PAD, START, padded, pairs
from harness.contender import Contender
from harness.flops import Shape


def peers(shape: Shape, dropout: float, rounds: int, device: str) -> list[Contender]:
    """Return all three with every setting."""
    classes = {
        "torch nn.Transformer": TorchTransformer,
        "transformers Marian": Marian,
        "x-transformers": XTransformers,
    }
    batches = lru_cache(lambda: _batches(shape, rounds))
    return [
        contender
        for library, module in classes.items()
        for contender in contenders(library, partial(module, shape, dropout), batches, device)
    ]


def _batches(shape: Shape, rounds: int) -> list[tuple[Tensor, ...]]:
    """Return sources, inputs, targets (all padded) and the mask of real source tokens."""
    batches = []
    for batch in pairs(shape, rounds):
        source, inputs = padded(batch.sources), padded(batch.inputs)
        batches.append((source, inputs, padded(batch.targets, fill=-100), source != PAD))
    return batches


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` between tied embeddings with sinusoidal positions."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.smoothing, self.scale = shape.smoothing, math.sqrt(shape.d_model)
        self.embedding = nn.Embedding(shape.vocab, shape.d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=shape.d_model**-0.5)
        self.dropout = nn.Dropout(dropout)
        self.transformer = nn.Transformer(
            shape.d_model, shape.n_heads, shape.n_layers, shape.n_layers, shape.d_ff, dropout,
            batch_first=True,
        )  # fmt: skip
        hidden = nn.Transformer.generate_square_subsequent_mask(shape.length).isinf()
        self.register_buffer("causal", hidden)
        self.register_buffer("positions", _sinusoids(shape.length, shape.d_model))

    def embed(self, ids: Tensor) -> Tensor:
        """Return scaled embeddings plus positions."""
        return self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.shape[1]])

    def forward(self, source: Tensor, inputs: Tensor, targets: Tensor, real: Tensor) -> Tensor:
        """Return the loss. Padding comes last, so the causal mask already hides it from real inputs."""
        n = inputs.shape[1]
        hidden = self.transformer(
            self.embed(source), self.embed(inputs), tgt_mask=self.causal[:n, :n], tgt_is_causal=True,
            src_key_padding_mask=~real, memory_key_padding_mask=~real,
        )  # fmt: skip
        return cross_entropy(hidden @ self.embedding.weight.T, targets, self.smoothing)


def _sinusoids(length: int, width: int) -> Tensor:
    angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class Marian(nn.Module):
    """`transformers.MarianMTModel` with scaled-dot-product attention."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.smoothing = shape.smoothing
        self.model = marian(shape, dropout)

    def forward(self, source: Tensor, inputs: Tensor, targets: Tensor, real: Tensor) -> Tensor:
        """Return the loss, computed here because the model's own has no label smoothing."""
        out = self.model(
            input_ids=source, attention_mask=real, decoder_input_ids=inputs, use_cache=False
        )  # fmt: skip
        return cross_entropy(out.logits, targets, self.smoothing)


def marian(shape: Shape, dropout: float, positions: int = 1024) -> Any:
    """Return a freshly initialised Marian model of this shape."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=shape.vocab, decoder_vocab_size=shape.vocab, d_model=shape.d_model,
        encoder_layers=shape.n_layers, decoder_layers=shape.n_layers,
        encoder_attention_heads=shape.n_heads, decoder_attention_heads=shape.n_heads,
        encoder_ffn_dim=shape.d_ff, decoder_ffn_dim=shape.d_ff, activation_function="relu",
        dropout=dropout, attention_dropout=0.0, activation_dropout=0.0, scale_embedding=True,
        max_position_embeddings=positions, pad_token_id=PAD, decoder_start_token_id=START,
        eos_token_id=2, forced_eos_token_id=None, attn_implementation="sdpa",
    )  # fmt: skip
    return MarianMTModel(config)


class XTransformers(nn.Module):
    """`x_transformers.XTransformer` with its flash path, which calls scaled-dot-product attention."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        from x_transformers import XTransformer

        side = {
            "num_tokens": shape.vocab, "max_seq_len": shape.length, "depth": shape.n_layers,
            "heads": shape.n_heads, "attn_dim_head": shape.d_model // shape.n_heads, "attn_flash": True,
            "ff_mult": shape.d_ff / shape.d_model, "layer_dropout": 0.0, "ff_dropout": dropout,
            "emb_dropout": dropout,
        }  # fmt: skip
        sides = {f"{name}_{key}": value for name in ("enc", "dec") for key, value in side.items()}
        model = XTransformer(dim=shape.d_model, tie_token_emb=True, **sides)
        self.smoothing = shape.smoothing
        self.encoder, self.decoder = model.encoder, model.decoder.net
        self.decoder.to_logits = None
        self.embedding = self.encoder.token_emb.emb

    def forward(self, source: Tensor, inputs: Tensor, targets: Tensor, real: Tensor) -> Tensor:
        """Return the loss. A key mask is faster than the library's padding mask, and trains in pure bf16."""
        memory = self.encoder(source, attn_mask=real[:, None, None], return_embeddings=True)
        hidden = self.decoder(inputs, context=memory, context_mask=real, return_embeddings=True)
        return cross_entropy(hidden @ self.embedding.weight.T, targets, self.smoothing)
