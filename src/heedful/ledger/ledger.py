"""Ledger of a model: parameters, operations and memory, line by line, counted as in the lectures.

A multiplication and an addition are two FLOPs. Only matrix products, convolutions and Fourier transforms
are counted, forward: a layer of d_in * d_out takes 2 d_in d_out per token; scores and weighted sum of
n_heads heads take 2 n_heads d_k and 2 n_heads d_v per query and key; K * K filters take 2 K^2 d_in d_out
per output position, zero padding included. All keys are counted, also those hidden by a causal mask,
because they are computed. The backward pass takes about twice the forward pass (each product W x becomes
two: W^T g and g x^T), so training takes about three times.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import nn

from heedful.ledger import attention as _attention  # noqa: F401  (importing registers the parts)
from heedful.ledger import blocks as _blocks  # noqa: F401
from heedful.ledger import images as _images  # noqa: F401
from heedful.ledger import mixers as _mixers  # noqa: F401
from heedful.ledger import recurrent as _recurrent  # noqa: F401
from heedful.ledger.lines import Line, Walk, grouped, left_over, parts
from heedful.ledger.notes import noted
from heedful.ledger.text import as_text
from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.runs.timing import Timing

FLOAT = 4  # bytes of a number in fp32
LENGTH = 32
TOKENS = 4096
CHUNK = 1024


@dataclass(frozen=True)
class Memory:
    """Memory of training for one purpose, in fp32: ``bytes``, computed as described in ``how``."""

    name: str
    how: str
    bytes: int


@dataclass(frozen=True)
class Row:
    """A line and its depth: ``depth`` levels below the total."""

    depth: int
    line: Line
    flops_per_token: float


@dataclass(frozen=True)
class Ledger:
    """Parameters, operations and memory of a model.

    Args:
        name: the name of the model.
        total: the sum of all other lines.
        trainable: number of trainable parameters.
        source_length, target_length: tokens of the sentences that FLOPs are counted for.
        tokens: target tokens of the batch that memory is counted for.
        memory: memory by purpose.
        notes: assumptions.
        timing: measured time of a few updates on this machine, if requested.
    """

    name: str
    total: Line
    trainable: int
    source_length: int
    target_length: int
    tokens: int
    memory: tuple[Memory, ...]
    notes: tuple[str, ...] = ()
    timing: "Timing | None" = None

    @property
    def parameters(self) -> int:
        """Number of parameters; tied parameters are counted once."""
        return self.total.parameters

    @property
    def layers(self) -> int:
        """One layer per attention and two per feed-forward: 42 in the paper's base model (lecture S0)."""
        return self.total.layers

    @property
    def flops_per_token(self) -> float:
        """FLOPs of the forward pass, per target token."""
        return self.total.flops / self.target_length

    @property
    def training_flops_per_token(self) -> float:
        """FLOPs of forward and backward pass, per target token: about three times the forward pass."""
        return 3 * self.flops_per_token

    def lines(self) -> list[Row]:
        """Return all lines, each followed by its parts; the total is last."""
        rows = [row for part in self.total.parts for row in self._rows(part, 0)]
        return [*rows, Row(0, self.total, self.flops_per_token)]

    def _rows(self, line: Line, depth: int) -> Iterator[Row]:
        yield Row(depth, line, line.flops / self.target_length)
        for part in line.parts:
            yield from self._rows(part, depth + 1)

    def to_dict(self) -> JsonObject:
        """Return JSON-compatible data; the schema is ledger.schema.json."""
        return {
            "version": 1,
            "name": self.name,
            "total": self.parameters,
            "trainable": self.trainable,
            "layers": self.layers,
            "source_length": self.source_length,
            "target_length": self.target_length,
            "flops_per_token": self.flops_per_token,
            "training_flops_per_token": self.training_flops_per_token,
            "lines": [_plain(row) for row in self.lines()],
            "tokens": self.tokens,
            "memory": {memory.name: memory.bytes for memory in self.memory},
            "notes": list(self.notes),
            **({} if self.timing is None else {"timing": self.timing.to_dict()}),
        }

    def __str__(self) -> str:
        """Return the ledger as text in aligned columns."""
        return as_text(self)


def _plain(row: Row) -> JsonObject:
    line = row.line
    return {
        "name": line.name,
        "depth": row.depth,
        "formula": line.how,
        "each": line.each,
        "times": line.times,
        "parameters": line.parameters,
        "flops_per_token": row.flops_per_token,
        "note": line.note,
    }


def ledger_of(
    model: nn.Module,
    name: str = "",
    *,
    length: int = LENGTH,
    source_length: int | None = None,
    tokens: int = TOKENS,
    chunk: int = CHUNK,
    notes: tuple[str, ...] = (),
) -> Ledger:
    """Return the ledger of a model, which may be on the meta device: its values are not read.

    Args:
        model: any module; for unknown parts, only parameters are counted.
        name: the name of the model; by default its class.
        length: tokens of a target sentence.
        source_length: tokens of a source sentence; ``length`` by default.
        tokens: target tokens in the batch that memory is counted for.
        chunk: number of tokens whose logits exist at one time.
        notes: assumptions made when the model was built.
    """
    source = length if source_length is None else source_length
    if min(length, source, tokens, chunk) < 1:
        raise ValueError("lengths, tokens and chunk must be at least 1")
    walk = Walk(source, length, rows=length)
    lines = grouped("total", [*parts(model, walk), *left_over(model, walk)])
    total = replace(noted(lines[0]), times=1) if lines else Line("total")
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    memory = _memory(model, total, trainable, tokens / length, tokens, chunk)
    return Ledger(
        name or type(model).__name__, total, trainable, source, length, tokens, tuple(memory), notes
    )


def _memory(
    model: nn.Module, total: Line, trainable: int, pairs: float, tokens: int, chunk: int
) -> Iterator[Memory]:
    """Yield the memory in use at the end of the forward pass of training, by purpose."""
    kept = round(pairs * total.kept)
    yield Memory("weights", f"4 bytes * {total.parameters:,}", FLOAT * total.parameters)
    yield Memory("gradients", f"4 bytes * {trainable:,}", FLOAT * trainable)
    yield Memory("optimizer", f"Adam's two moments: 2 * 4 bytes * {trainable:,}", 2 * FLOAT * trainable)
    yield Memory(
        "activations",
        f"about 4 bytes * {kept:,}: inputs of linear layers and norms, queries, keys, values, attention "
        "weights, gates, and a byte for each element that dropout may zero",
        FLOAT * kept,
    )
    head = _output_layer(model)
    if head is not None:
        n, d, rows = head.out_features, head.in_features, min(chunk, tokens)
        how = (
            f"4 bytes * (chunk * V + V * d + tokens * d) = 4 * ({rows:,} * {n:,} + {n:,} * {d:,} + "
            f"{tokens:,} * {d:,}): logits of one chunk, gradients of the output layer and of its input"
        )
        yield Memory("loss", how, FLOAT * (rows * n + n * d + tokens * d))


def _output_layer(model: nn.Module) -> nn.Linear | None:
    heads = getattr(model, "heads", None)
    head = heads["token"] if isinstance(heads, nn.ModuleDict) and "token" in heads else None
    return head if isinstance(head, nn.Linear) else None
