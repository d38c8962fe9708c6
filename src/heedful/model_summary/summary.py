"""Summary of a model: parameters, operations and memory, line by line, counted as in the lectures.

A multiplication and an addition are two FLOPs. Only matrix products, convolutions and Fourier transforms
are counted, in the forward pass: a layer of d_in * d_out takes 2 d_in d_out per token; scores and weighted
sum of n_heads heads take 2 n_heads d_k and 2 n_heads d_v per query and key. All keys are counted, also those
hidden by a causal mask. The backward pass takes about twice the forward pass (each product W x becomes two:
W^T g and g x^T), so training takes about three times.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from heedful.checks import whole_number
from heedful.errors import RequestError
from heedful.memory import machine_memory, memory_errors_as
from heedful.model_summary.described_model import (
    DescribedModel,
    Extent,
    RequestedSizes,
    find_model,
    from_recipe,
)
from heedful.model_summary.fitting import Fit
from heedful.model_summary.lines import Line, total_line, with_notes
from heedful.model_summary.measuring import (
    M,
    Operations,
    apply_heads,
    count_operations,
    inputs_of,
    without_values,
)
from heedful.model_summary.memory import KINDS, LENGTH, Update, update_of
from heedful.model_summary.text import COLUMNS, as_text, cells
from heedful.models.base import Model
from heedful.recipes.resolve import Overrides, overrides_of, overrides_tree
from heedful.recipes.settings import Settings, plain
from heedful.recipes.trees import IN_PYTHON, Tree
from heedful.runs.building import TOO_LARGE, Vocabularies
from heedful.runs.loading import LoadedRun
from heedful.tables import html_table
from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.runs.timing import Timing

FLOAT = 4  # bytes of a number in fp32
HEAP, THREADS = 1.14, 16 << 20
"""Updates on a CPU keep HEAP times the bytes of their tensors, and THREADS more.

Measured in `docs/benchmarks/performance.md`.
"""
TOKENS = 4096

LONGEST = 1 << 20
"""Longest sequence that is measured."""


@dataclass(frozen=True)
class MemoryUse:
    """Memory of training for one purpose at the peak of an update in fp32, and the formula of its bytes."""

    name: str
    formula: str
    bytes: int


@dataclass(frozen=True)
class Row:
    """A line and its depth: ``depth`` levels below the total."""

    depth: int
    line: Line
    flops_per_token: float


@dataclass(frozen=True, repr=False)
class ModelSummary:
    """Parameters, operations and memory of a model.

    Args:
        name: the name of the model.
        total: the sum of all other lines.
        trainable: number of trainable parameters.
        source_length, target_length: tokens of the sentences that FLOPs are counted for.
        tokens: target tokens of the batch that memory is measured for.
        measure: measures the memory by purpose, which takes a second or two.
        notes: assumptions.
        timing: measured time of a few updates on this machine, if requested.
        find_fit: finds the number of micro-batches for an amount of memory, or for that of this machine if
            the recipe's own does not fit (None: it does); for a recipe or run.
    """

    name: str
    total: Line
    trainable: int
    source_length: int
    target_length: int
    tokens: int
    measure: Callable[[], tuple[MemoryUse, ...]] = field(repr=False, compare=False)
    notes: tuple[str, ...] = ()
    timing: "Timing | None" = None
    find_fit: Callable[[], Fit | None] = field(default=lambda: None, repr=False, compare=False)

    @property
    def parameters(self) -> int:
        """Number of parameters; tied parameters are counted once."""
        return self.total.parameters

    @cached_property
    def memory(self) -> tuple[MemoryUse, ...]:
        """Memory by purpose."""
        return self.measure()

    @cached_property
    def fit(self) -> Fit | None:
        """The number of micro-batches that fits, if it is worth knowing."""
        return self.find_fit()

    @property
    def resident(self) -> int:
        """Bytes that updates on a CPU keep resident: `memory`, and freed blocks that no other tensor fits."""
        return _resident(sum(part.bytes for part in self.memory))

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
            "lines": [
                {
                    "name": row.line.name,
                    "depth": row.depth,
                    "formula": row.line.formula,
                    "each": row.line.each,
                    "times": row.line.times,
                    "parameters": row.line.parameters,
                    "flops_per_token": row.flops_per_token,
                    "note": row.line.note,
                }
                for row in self.lines()
            ],
            "tokens": self.tokens,
            "memory": {memory.name: memory.bytes for memory in self.memory},
            "resident": self.resident,
            "notes": list(self.notes),
            **({} if self.fit is None else {"fit": self.fit.to_dict()}),
            **({} if self.timing is None else {"timing": self.timing.to_dict()}),
        }

    def __str__(self) -> str:
        """Return the summary as text in aligned columns."""
        return as_text(self)

    def __repr__(self) -> str:
        """Show the sizes in one line; ``print`` shows the table."""
        counts = f"{self.parameters:,} parameters, {self.flops_per_token:,.0f} FLOPs per token"
        return f"<ModelSummary {self.name}: {counts}>" if self.name else f"<ModelSummary: {counts}>"

    def _repr_html_(self) -> str:
        """Show the main parts, and the sum, as a table in a notebook."""
        rows = [COLUMNS, *(cells(row) for row in self.lines() if row.depth == 0)]
        return html_table([(name, n, flops) for name, *_, n, flops in rows])


def _resident(tensor_bytes: int) -> int:
    return round(HEAP * tensor_bytes) + THREADS


# What is summarised


def describe(
    model: object,
    *,
    vocab_size: int | None = None,
    source_vocab: int | None = None,
    target_vocab: int | None = None,
    n_classes: int | None = None,
    length: int | None = None,
    source_length: int | None = None,
    tokens: int | None = None,
    available: int | None = None,
    overrides: Settings | Overrides = (),
) -> ModelSummary:
    """Return the summary of a model, a model's configuration, a preset, a recipe or a run.

    Args:
        model: a module; a loaded run, for its model; a configuration; a preset's name, a recipe's name,
            path or settings (`heedful.recipe`), or a run's folder.
        vocab_size: entries of both vocabularies; by default those of the preset, recipe or run, else
            37,000. Not for a module.
        source_vocab: entries of the source vocabulary only; overrides ``vocab_size``.
        target_vocab: entries of the target vocabulary only; overrides ``vocab_size``.
        n_classes: number of classes of a model that reads texts or images; by default that of the image
            preset, of the run or of the recipe; 0: no head.
        length: tokens of a target sentence; by default the context of a language model, the tokens of an
            image, the windows of a masked language model, else 32.
        source_length: tokens of a source sentence; by default ``length``, or the patches of an image.
        tokens: target tokens of a batch, for which memory is measured; by default the recipe's, else 4096.
        available: bytes of memory for which ``training.accumulate`` is chosen; by default those of this
            machine, if the recipe's updates need more.
        overrides: a dict, or ``key=value`` texts: keys of the configuration (``{"n_layers": 2}``), or for a
            recipe or run, of the recipe (``{"model.n_layers": 2}``).

    Raises:
        RequestError: if there is no such preset, recipe or run, or a setting is invalid.
    """
    requested = RequestedSizes(Vocabularies(vocab_size, source_vocab, target_vocab), n_classes)
    extent = Extent(length, source_length, tokens)
    if isinstance(model, LoadedRun):
        model = model.model
    if not isinstance(model, nn.Module):
        described = find_model(model, requested, _layer(overrides))
        if available is not None and described.recipe is None:
            raise RequestError(
                f"{described.name}: memory is only given for a recipe or a run, which have updates"
            )
        return _summary(described, extent, available)
    if overrides or requested or available is not None:
        raise ValueError("sizes, memory and overrides are not supported for a module")
    return _summary(DescribedModel("", model), extent)


def _layer(overrides: Settings | Overrides) -> Tree:
    """Return the overrides of a program as one layer."""
    if isinstance(overrides, Mapping):
        return overrides_of(plain(overrides, IN_PYTHON))
    return overrides_tree(overrides, IN_PYTHON)


def timed(
    source: object,
    extent: Extent,
    overrides: Overrides = (),
    *,
    device: str = "auto",
    log: Callable[[str], None] = lambda line: None,
) -> ModelSummary:
    """Return the summary of a recipe or run, with the measured time of a few updates.

    Updates run on the recipe's own data, if these are available and no sizes or lengths are given; otherwise
    on made-up tokens.

    Args:
        source: as in `describe`.
        extent: the sizes to count for.
        overrides: as in `describe`.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        log: called with progress messages.

    Raises:
        RequestError: if it is only a model, there is no such recipe or run, or a setting is invalid.
    """
    from heedful.runs.timing import own_data, time_updates

    described = find_model(source, RequestedSizes(), overrides)
    if described.recipe is None:
        raise RequestError(
            f"{described.name}: timing needs a recipe or a run; a model has no batches and no optimizer"
        )
    recipe, fixed = described.recipe, described.sizes_fixed or extent.length or extent.source_length
    with nullcontext() if fixed else own_data(recipe, log) as prepared:
        if prepared is not None:
            described = from_recipe(described.name, recipe, RequestedSizes(), prepared.task.processor.sizes)
        summary = _summary(described, extent)
        timing = time_updates(
            recipe,
            described.sizes,
            length=extent.length or LENGTH,
            source_length=extent.source_length or extent.length or LENGTH,
            prepared=prepared,
            device=device,
            log=log,
        )
    return replace(summary, timing=timing)


def summary_of(model: M, run: Callable[[M], object], length: int = 1) -> ModelSummary:
    """Return the summary of any module: ``run`` calls it on inputs on the meta device.

    Args:
        model: a module; its values are not read.
        run: called with a copy of the module on the meta device.
        length: number of tokens of the inputs, for FLOPs per token.
    """
    return _build_summary(DescribedModel("", model), length, length, length, run, None)


# Measuring


def _summary(described: DescribedModel, extent: Extent, available: int | None = None) -> ModelSummary:
    """Measure a described model; ``extent`` overrides its sizes. ``available`` is memory for its updates."""
    for key, n in vars(extent).items():
        if n is not None:
            whole_number(key, n, least=1)
    for key in ("length", "source_length"):
        if (getattr(extent, key) or 1) > LONGEST:
            raise RequestError(f"{key}: must be at most {LONGEST:,}, got {getattr(extent, key):,}")
    tokens = extent.tokens or TOKENS
    if described.recipe is not None and not extent.tokens:
        training = described.recipe.training
        tokens = max(1, training.tokens_per_update // training.accumulate)
    if not isinstance(described.model, Model):
        length = extent.length or LENGTH
        return _build_summary(described, length, extent.source_length or length, tokens, None, None)
    heads, update = described.model.heads, update_of(described, extent)
    example = update.batch(1)
    target = extent.length or described.length or example.inputs.layout.max_length
    source = extent.source_length or extent.length or target
    if example.source is not None:
        source = described.source_length or extent.source_length or example.source.layout.max_length
    n = max(1, tokens // example.inputs.layout.max_length)
    memory = cache(lambda: update.memory(n))
    with memory_errors_as(f"{TOO_LARGE}; lower its sizes"):
        inputs = inputs_of(described.model, 1, target, source, "meta")
        of_sequences = None
        if described.recipe is not None:
            of_sequences = set() if {*heads} == {"token"} else memory()[1]
        layout = inputs[0].layout

        def run(model: Model) -> list[Tensor]:
            return apply_heads(model(*inputs), layout, model.heads, of_sequences)

        target = layout.max_length
        source = source if inputs[1] is not None else target
        summary = _build_summary(described, target, source, tokens, run, lambda: memory()[0])
        return replace(summary, find_fit=partial(_fit, described, update, summary, available))


def _fit(
    described: DescribedModel, update: Update, summary: ModelSummary, available: int | None
) -> Fit | None:
    """Return the fewest micro-batches that fit: those of the recipe, or twice, four times … as many.

    None without a recipe, or if memory is no problem.
    """
    if described.recipe is None:
        return None
    if available is None:
        available = machine_memory()
        if available is None or summary.resident <= available:
            return None

    training, length = described.recipe.training, update.batch(1).inputs.layout.max_length
    n_parts = training.accumulate
    while True:
        tokens = max(1, training.tokens_per_update // n_parts)
        n_sequences = max(1, tokens // length)
        memory, _ = replace(update, accumulates=n_parts > 1).memory(n_sequences)
        needed = _resident(sum(memory.values()))
        if needed <= available:
            return Fit(available, n_parts, tokens, needed, n_parts == training.accumulate)
        if n_sequences == 1:
            return Fit(available, None, tokens, needed, False)
        n_parts *= 2


def _build_summary(
    described: DescribedModel,
    target: int,
    source: int,
    tokens: int,
    run: Callable[[Any], object] | None,
    memory: Callable[[], dict[str, int]] | None,
) -> ModelSummary:
    """Return a summary with the FLOPs of ``run``; without it, of the parameters only."""
    model = without_values(described.model, lambda x: torch.empty_like(x, device="meta"))
    operations = Operations() if run is None else count_operations(model, run)
    total = with_notes(total_line(model, operations))
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)

    def measure() -> tuple[MemoryUse, ...]:
        if memory is not None:
            return tuple(_memory_uses(memory(), total.parameters, trainable))
        persistent = dict(zip(KINDS, (total.parameters, trainable, 2 * trainable), strict=False))
        return tuple(
            _memory_uses({kind: FLOAT * n for kind, n in persistent.items()}, total.parameters, trainable)
        )

    name = described.name or type(described.model).__name__
    return ModelSummary(name, total, trainable, source, target, tokens, measure, described.notes)


def _memory_uses(memory: dict[str, int], parameters: int, trainable: int) -> Iterator[MemoryUse]:
    gradients = f"4 bytes * {trainable:,}"
    if memory.get("gradients", 0) < FLOAT * trainable:
        gradients = f"at the peak of an update; {gradients} after it, when the activations are freed"
    formulas = {
        "weights": f"4 bytes * {parameters:,}, and tables of positions",
        "gradients": gradients,
        "optimizer": f"its state for {trainable:,} parameters",
        "activations": "kept for the backward pass",
        "loss": "logits and their gradients, and all other temporary tensors",
    }
    return (MemoryUse(kind, formulas[kind], memory[kind]) for kind in KINDS if kind in memory)
