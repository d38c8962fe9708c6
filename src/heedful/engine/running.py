"""Run programs: caches of keys and values, row arrays, and working memory."""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from weakref import ref

import numpy as np
import torch
from jaxtyping import Float, Int32
from torch import Tensor, nn

from heedful.engine import native
from heedful.engine.program import CacheShape, Program, UnsupportedError, observer, unsupported
from heedful.models.language_model import LanguageModel
from heedful.models.transformer import EncoderDecoder
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.positions import Added, Concatenated

ROWS = 256
"""Maximum number of rows per run of a program; more rows take several runs."""

Numbers = Int32[np.ndarray, " R"]


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
            encoding = program.embedding.positions
            assert isinstance(encoding, Added | Concatenated)
            max_length = encoding.positions.max_length
            rows = max(n, 1 << max(8, n.bit_length())) if max_length is None else max(n, max_length)
            # A copy: a module may return its own table, and replace it for more positions.
            table = encoding.positions(torch.arange(rows)).detach().float().clone()
            self._tables[id(program)] = table
        return table

    @property
    def own_cache_shapes(self) -> list[CacheShape]:
        """Return the shapes of the caches of the decoder for its own tokens, one per layer."""
        return [shape for shape in self.decoder.caches if not shape.of_source]

    @property
    def source_cache_shapes(self) -> list[CacheShape]:
        """Return the shapes of the caches of the source that the decoder reads, one per layer."""
        return [shape for shape in self.decoder.caches if shape.of_source]


def compile_model(model: nn.Module, precision: str) -> Engine:
    """Compile an encoder-decoder or a causal language model.

    Raises:
        UnsupportedError: the engine does not support a part of the model, or is not available.
    """
    library = native.library()
    if library is None:
        raise UnsupportedError(f"no native library: {native.unavailable()}")
    if any(p.device.type != "cpu" or p.dtype != torch.float32 for p in model.parameters()):
        raise UnsupportedError("weights must be float32 on the CPU")
    if reason := observer(model):
        raise UnsupportedError(reason)
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
        raise unsupported("model", model)
    head = model.heads["token"]
    if not isinstance(head, nn.Linear):
        raise unsupported("projection", head)
    program.linear(head, x, program.buffer("logits", head.out_features))
    return Engine(precision, encoder, program, library)


def _encoder(model: EncoderDecoder, precision: str) -> Program:
    """Compile the encoder, and the projections of its output to keys and values of every decoder layer."""
    program = Program(precision)
    x = program.buffer("x", 0)
    program.embed(model.source_embedding, x)
    program.encoder_stack(model.encoder, causal=False)
    for block in model.decoder.block_list:
        part = block.cross_attention.part
        assert isinstance(part, CrossAttention)  # checked by `Program.cross_attention`
        memory = program.buffer("memory", sum(part.sizes[1:]))
        program.linear(part.kv, x, memory)
        program.store(part, memory, 0)
    return program


class KeyValueCaches:
    """Cache of keys and values: ``[lines, heads, capacity, width]`` for each layer."""

    def __init__(self, shapes: Sequence[CacheShape], lines: int, capacity: int) -> None:
        self.shapes, self.lines, self.capacity = shapes, lines, capacity
        self.keys = [torch.empty(lines, s.n_heads, capacity, s.d_k) for s in shapes]
        self.values = [torch.empty(lines, s.n_heads, capacity, s.d_v) for s in shapes]

    def grown(self, lines: int, capacity: int, n_used: int) -> "KeyValueCaches":
        """Return a larger cache with the same content in the first ``n_used`` positions."""
        larger = KeyValueCaches(self.shapes, lines, capacity)
        for old, new in zip((*self.keys, *self.values), (*larger.keys, *larger.values), strict=True):
            new[: self.lines, :, :n_used] = old[:, :, :n_used]
        return larger

    def taken(
        self, chosen: Int32[np.ndarray, " M"], lines: int, capacity: int, n_used: int
    ) -> "KeyValueCaches":
        """Return new caches whose first lines have the first ``n_used`` positions of the ``chosen`` ones."""
        new_caches, index = KeyValueCaches(self.shapes, lines, capacity), torch.from_numpy(chosen).long()
        for old, new in zip((*self.keys, *self.values), (*new_caches.keys, *new_caches.values), strict=True):
            new[: len(chosen), :, :n_used] = old[:, :, :n_used][index]
        return new_caches

    def part(self, lines: slice) -> "KeyValueCaches":
        """Return a view of some of the lines."""
        part = KeyValueCaches((), lines.stop - lines.start, self.capacity)
        part.shapes = self.shapes
        part.keys, part.values = [k[lines] for k in self.keys], [v[lines] for v in self.values]
        return part

    def caches(self) -> Iterator[native.Cache]:
        """Yield the addresses and sizes of each layer's keys and values."""
        for keys, values in zip(self.keys, self.values, strict=True):
            yield native.Cache(
                keys.data_ptr(), values.data_ptr(), self.capacity, self.lines, keys.nbytes, values.nbytes
            )


@dataclass
class Rows:
    """The rows of a run; each is one token of one sequence.

    Args:
        ids: token ids, int64.
        positions: positions of the tokens in their sequences.
        cache_lines: the cache line that each row writes.
        sequences: the line of ``ancestors`` that each row reads.
        n_visible: number of visible positions of its own sequence.
        ancestors: ``[sequences, capacity]``: the cache line that holds each position.
        sources, source_lengths: the line of the source caches that each row reads, and its length.
    """

    ids: np.ndarray
    positions: Numbers
    cache_lines: Numbers
    sequences: Numbers
    n_visible: Numbers
    ancestors: Int32[np.ndarray, "N C"]
    sources: Numbers | None = None
    source_lengths: Numbers | None = None

    def part(self, span: slice) -> "Rows":
        """Return some of the rows."""
        arrays = {name: getattr(self, name) for name in _PER_ROW}
        arrays = {name: None if array is None else array[span] for name, array in arrays.items()}
        return Rows(ancestors=self.ancestors, **arrays)


_PER_ROW = ("ids", "positions", "cache_lines", "sequences", "n_visible", "sources", "source_lengths")


class Runner:
    """A program with its working memory, for one caller at a time.

    Args:
        engine: the engine of the program.
        program: the program of the encoder or decoder.
        n_rows: maximum number of rows per run.
        n_threads: number of threads; default: that of torch.
    """

    def __init__(
        self, engine: Engine, program: Program, n_rows: int = ROWS, n_threads: int | None = None
    ) -> None:
        self.engine, self.program, self.n_rows = engine, program, n_rows
        self.buffers = [torch.empty(n_rows, width) for width in program.widths]
        self._code = program.array()
        self._first, self._count = ctypes.addressof(self._code), len(self._code)
        self._addresses = (ctypes.c_void_p * len(self.buffers))(*(b.data_ptr() for b in self.buffers))
        self._widths = np.array(program.widths, np.int64)
        threads = min(n_threads or torch.get_num_threads(), native.MOST_THREADS)
        shared = max(n_rows, threads * native.CONVERTED_ALONE)
        self._converted = torch.empty(shared, program.converted, dtype=torch.int32)
        self._row_scales = torch.empty(shared)
        self._scores, self._caches = torch.empty(0), (native.Cache * len(program.caches))()
        self._table, self._longest = torch.empty(0), 0
        # Weak references, so that the caches of a batch are freed with its hypotheses.
        self._attached: tuple[ref[KeyValueCaches] | None, ...] = ()
        self._rows: Rows | None = None
        self.call = native.Call(
            n_threads=threads,
            most_threads=threads,
            n_buffers=len(self.buffers),
            n_lines=n_rows,
            n_caches=len(self._caches),
            buffers=ctypes.addressof(self._addresses),
            widths=self._widths.ctypes.data,
            caches=ctypes.addressof(self._caches),
            converted=self._converted.data_ptr(),
            n_converted=program.converted,
            row_scales=self._row_scales.data_ptr(),
        )

    def attach(self, own_caches: KeyValueCaches, source_caches: KeyValueCaches | None, longest: int) -> None:
        """Use these caches at positions below ``longest``; the caller must keep them alive."""
        if longest > self._longest:
            self._table = self.engine.positions(self.program, longest)
            self._code[0].bias, self._code[0].n_bias = self._table.data_ptr(), self._table.nbytes
            self._longest = len(self._table)
        references = (ref(own_caches), ref(source_caches) if source_caches else None)
        if self._attached == references:
            return
        self._attached = references
        own_entries = own_caches.caches()
        source_entries = source_caches.caches() if source_caches else iter(())
        for i, shape in enumerate(self.program.caches):
            self._caches[i] = next(source_entries if shape.of_source else own_entries)
        longest = max(own_caches.capacity, source_caches.capacity if source_caches else 0)
        width = longest + -longest % native.LANES
        if width > self.call.n_scores:
            self._scores = torch.empty(int(self.call.n_threads), width)
            self.call.scores, self.call.n_scores = self._scores.data_ptr(), width

    def use(self, rows: Rows, *, linked: bool) -> None:
        """Use these rows. Their arrays are read when the program runs, and may change until then.

        Args:
            rows: the rows.
            linked: whether rows read cache entries that other rows of the run write.
        """
        n = len(rows.positions)
        self.call.n_rows, self.call.linked = n, linked
        if rows is self._rows:
            return
        for name in _PER_ROW:
            array = getattr(rows, name)
            if array is not None:
                _require(array, (n,), np.int64 if name == "ids" else np.int32, name)
            setattr(self.call, name, None if array is None else array.ctypes.data)
        _require(rows.ancestors, rows.ancestors.shape[:2], np.int32, "ancestors")
        self.call.ancestors = rows.ancestors.ctypes.data
        self.call.n_sequences, self.call.n_ancestors = rows.ancestors.shape
        self._rows = rows

    def run(self, *, head: bool = True) -> None:
        """Run the program, with or without its last instruction, the output head."""
        self.call.program, self.call.n_instructions = self._first, self._count - (not head)
        self.engine.library.run(self.call)

    def run_head(self, n: int) -> None:
        """Run only the last instruction, the output head, for the first ``n`` rows."""
        self.call.program = self._first + (self._count - 1) * ctypes.sizeof(native.Instruction)
        self.call.n_instructions, self.call.n_rows = 1, n
        self.engine.library.run(self.call)

    def buffer(self, name: str) -> Tensor:
        """Return the named buffer, ``[n_rows, width]``."""
        return self.buffers[self.program.buffers[name]]


def _require(array: np.ndarray, shape: tuple[int, ...], dtype: type, name: str) -> None:
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(
            f"{name} must be contiguous {dtype.__name__} of shape {shape}, got {array.dtype} {array.shape}"
        )
