"""A model compiled for the native engine.

| program | rows | writes |
|---|---|---|
| encoder | the tokens of whole sources | keys and values of the sources for every decoder layer |
| decoder | the next tokens of hypotheses | their keys and values; hidden states |
| last instruction of the decoder | hypotheses | logits |
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.engine import native_library as native
from heedful.engine.program import CacheShape, Program, UnfitError, looked_into
from heedful.models.encoder_decoder import EncoderDecoder
from heedful.models.language_model import LanguageModel


@dataclass(frozen=True, eq=False)
class Engine:
    """The programs of a model with weights of one precision. Running does not change it.

    Args:
        precision: fp32, bf16 or int8.
        encoder: None for a model without a source.
        decoder: the decoder stack, followed by the output head.
        library: the native library.
    """

    precision: str
    encoder: Program | None
    decoder: Program
    library: native.Library
    _tables: dict[int, Tensor] = field(default_factory=dict)

    def positions(self, program: Program, n: int) -> Float[Tensor, "P d"]:
        """Return the vectors of at least the first ``n`` positions; the tensor is reused while large enough.

        Raises:
            RequestError: the model supports fewer positions.
        """
        table = self._tables.get(id(program))
        if table is None or len(table) < n:
            assert program.embedding is not None
            joined: Any = program.embedding.positions
            most = joined.positions.max_length
            rows = max(n, 1 << max(8, n.bit_length())) if most is None else max(n, most)
            # A copy: a module may return its own table, and replace it for more positions.
            table = joined.positions(torch.arange(rows)).detach().float().clone()
            self._tables[id(program)] = table
        return table

    @property
    def own_caches(self) -> list[CacheShape]:
        """Return the caches of the decoder for its own tokens, one per layer."""
        return [shape for shape in self.decoder.caches if not shape.of_source]

    @property
    def source_caches(self) -> list[CacheShape]:
        """Return the caches that the decoder reads of the source, one per layer."""
        return [shape for shape in self.decoder.caches if shape.of_source]


def compiled(model: nn.Module, precision: str) -> Engine:
    """Compile an encoder-decoder or a causal language model.

    Raises:
        UnfitError: the engine does not support a part of the model, or is not available.
    """
    library = native.library()
    if library is None:
        raise UnfitError(f"no native library: {native.unavailable()}")
    if any(p.device.type != "cpu" or p.dtype != torch.float32 for p in model.parameters()):
        raise UnfitError("weights must be float32 on the CPU")
    if reason := looked_into(model):
        raise UnfitError(reason)
    program = Program(precision)
    x = program.buffer("x", 0)
    encoder = None
    if type(model) is EncoderDecoder:
        program.embed(model.target_embedding, x)
        program.decoder_stack(model.decoder)
        encoder = _encoder(model, precision)
    elif type(model) is LanguageModel:
        program.embed(model.embedding, x)
        program.encoder_stack(model.stack, causal=True)
    else:
        raise UnfitError(f"unsupported model: {type(model).__name__}")
    head: Any = model.heads
    program.linear(head["token"], x, program.buffer("logits", head["token"].out_features))
    return Engine(precision, encoder, program, library)


def _encoder(model: EncoderDecoder, precision: str) -> Program:
    """Compile the encoder, and the projections of its output to keys and values of every decoder layer."""
    program = Program(precision)
    x = program.buffer("x", 0)
    program.embed(model.source_embedding, x)
    program.encoder_stack(model.encoder, causal=False)
    blocks: Any = model.decoder.blocks
    for block in blocks:
        part = block.cross_attention.part
        memory = program.buffer("memory", sum(part.sizes[1:]))
        program.linear(part.kv, x, memory)
        program.store(part, memory, 0)
    return program
