"""Find the attention sites of a model, the modules whose attention weights can be captured, and select some.

| module | kind | queries | keys |
|---|---|---|---|
| `SelfAttention` of an encoder | self | ``source``, or ``input`` in models with one input | the same |
| causal `SelfAttention` of a decoder | causal | ``prefix``: the decoder input | the same |
| causal `SelfAttention` of a language model | causal | ``input`` | the same |
| `MemoryCompressedAttention` | causal | ``input`` | ``capture_memory``: slots, each for several tokens |
| `CrossAttention`, `AttentiveDecoder` | cross | ``target``: the decoder output | ``source`` |

A decoder reads ``<s> y`` and predicts ``y </s>``: it reads token t of ``prefix`` when it predicts token t of
``target``. Local attention has weights over the whole sequence, which are 0 outside its blocks.

A language model that translates reads ``<s> x_1 … x_S <sep> y_1 … y_T`` and generates ``y </s>`` (lecture
S1). Token t of the output (t = 0 … T, the end token last) is predicted at position S + 1 + t; source and
separator are at positions 1 … S + 1. A *part* of a head's causal self-attention a has the form of
cross-attention (`source_part`):

    w[t, s] = a[S + 1 + t, 1 + s] / sum_{s' = 0 … S} a[S + 1 + t, 1 + s']        t = 0 … T,  s = 0 … S

The weights of ``<s>`` and of earlier target tokens are dropped, and rows are rescaled to sum 1. The separator
takes the role of the source's end token: a word with its largest weight there has no link. A row without any
weight on the source gets weight 1 at the separator.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from torch import nn

from heedful.errors import RequestError, nearest
from heedful.explain.attention_map import MEMORY, Kind, Weights
from heedful.nn.attention.compressed import MemoryCompressedAttention
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.recurrent import FixedContext
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.attentive import AttentiveDecoder
from heedful.runs.loading import LoadedRun
from heedful.tasks.generation.sequence_formats import ConcatenatedFormat
from heedful.tasks.model_input import INPUT, PREFIX, SOURCE, TARGET, Axis

KINDS: tuple[Kind, ...] = get_args(Kind)

_STACK_AXES = {"encoder": SOURCE, "decoder": PREFIX}
"""Axes of the stacks of an encoder-decoder model; all other stacks read the input."""

BYTES_PER_WEIGHT = 4
"""Bytes per weight."""

TEMPORARY_ARRAYS = 3
"""Arrays of the size of a layer's weights that exist during their computation: scores, softmax, weights."""


@dataclass(frozen=True)
class AttentionSite:
    """A point in a model at which attention weights can be captured.

    Args:
        tap: name of the tap.
        kind: kind of attention.
        layer: index among the layers of this kind in the stack, from 0.
        heads: indices of the selected heads, from 0.
        n_heads: number of heads.
        queries, keys: names of axes.
        factor: number of tokens per slot if the keys are memory slots; otherwise 1.
        is_part: whether the weights are a part of the captured ones, from target to source.
    """

    tap: str
    kind: Kind
    layer: int
    heads: tuple[int, ...]
    n_heads: int
    queries: str
    keys: str
    factor: int = 1
    is_part: bool = False


def find_sites(model: nn.Module) -> list[AttentionSite]:
    """Return the attention sites of a model with all heads, by kind and layer."""
    sites: list[AttentionSite] = []
    counts: Counter[tuple[str, Kind]] = Counter()
    for name, module in model.named_modules():
        attention = _attention_kind(module)
        if attention is None or name.startswith("heads."):  # heads are not part of the pass that is captured
            continue
        kind, n_heads = attention
        stack = name.partition(".")[0]
        axis, factor = _STACK_AXES.get(stack, INPUT), getattr(module, "factor", 1)
        queries, keys = (TARGET, SOURCE) if kind == "cross" else (axis, axis if factor == 1 else MEMORY)
        layer = counts[stack, kind]
        counts[stack, kind] += 1
        heads = tuple(range(n_heads))
        sites.append(AttentionSite(f"{name}.weights", kind, layer, heads, n_heads, queries, keys, factor))
    return sorted(sites, key=lambda site: (KINDS.index(site.kind), site.layer))


def _attention_kind(module: nn.Module) -> tuple[Kind, int] | None:
    """Return the kind and number of heads of an attention module; None for other modules."""
    match module:
        case SelfAttention():
            return ("causal" if module.causal else "self"), module.n_heads
        case MemoryCompressedAttention():
            return "causal", module.n_heads
        case CrossAttention():
            return "cross", module.n_heads
        case AttentiveDecoder() if not isinstance(module.step.attention, FixedContext):
            return "cross", getattr(module.step.attention, "n_heads", 1)
    return None


def sites_of(run: LoadedRun) -> list[AttentionSite]:
    """Return the attention sites of a run's model.

    If source and target are one text, these include the parts of the attention between them.
    """
    sites = find_sites(run.model)
    return [*sites, *part_sites(sites)] if is_one_text(run) else sites


def is_one_text(run: LoadedRun) -> bool:
    """Whether the model of a run reads source and target as one text."""
    return isinstance(getattr(run.recipe, "sequence_format", None), ConcatenatedFormat)


def part_sites(sites: Sequence[AttentionSite]) -> list[AttentionSite]:
    """Return, for each causal attention over a text, a site for its part from target to source."""
    return [
        replace(site, kind="cross", queries=TARGET, keys=SOURCE, is_part=True)
        for site in sites
        if (site.kind, site.queries, site.keys) == ("causal", INPUT, INPUT)
    ]


def source_part(weights: Weights, n_source: int, n_target: int) -> Weights:
    """Return w of the formula above, ``[..., T + 1, S + 1]``.

    Args:
        weights: ``[..., N, N]`` of one text, with N at least S + T + 2.
        n_source: S.
        n_target: T.
    """
    start = n_source + 1
    part = weights[..., start : start + n_target + 1, 1 : start + 1].astype(np.float64)
    sums = part.sum(axis=-1, keepdims=True)
    default = np.zeros_like(part)
    default[..., -1] = 1.0
    rescaled: Weights = np.divide(part, sums, out=default, where=sums > 0).astype(np.float32)
    return rescaled


@dataclass(frozen=True)
class Selection:
    """Selection of attention maps; None selects all.

    Args:
        layers: indices of layers, from 0.
        heads: indices of heads in these layers, from 0.
        kinds: any of ``self``, ``causal`` and ``cross``; empty: no maps.
    """

    layers: Collection[int] | None = None
    heads: Collection[int] | None = None
    kinds: Collection[str] | None = None


EVERY_MAP = Selection()
NO_MAPS = Selection(kinds=())


def check_is_list(name: str, names: object) -> None:
    """Check that a list of names is not a single text, whose characters would be taken for names.

    Raises:
        RequestError: it is a text.
    """
    if isinstance(names, str):
        raise RequestError(f"{name} must be a list of names, got a text; use [{names!r}]")


def select_sites(sites: Sequence[AttentionSite], maps: Selection) -> list[AttentionSite]:
    """Return the selected sites.

    A layer or head that only some stacks have is selected in those stacks.

    Raises:
        RequestError: no site has the kind, layer or head.
    """
    selected = list(sites)
    if maps.kinds is not None:
        model_kinds = list(dict.fromkeys(site.kind for site in selected))
        for kind in maps.kinds:
            if kind not in model_kinds:
                expected = (
                    f"expected {' or '.join(model_kinds)}" if model_kinds else "this model has no attention"
                )
                raise RequestError(
                    f"unknown kind of attention {kind!r}{nearest(kind, model_kinds)}; {expected}"
                )
        selected = [site for site in selected if site.kind in maps.kinds]
    if maps.layers is not None:
        n_layers = 1 + max((site.layer for site in selected), default=-1)
        _check_numbers("layer", maps.layers, n_layers, " (layers with attention)")
        selected = [site for site in selected if site.layer in maps.layers]
    if maps.heads is not None:
        heads = sorted(set(maps.heads))
        _check_numbers("head", heads, max((site.n_heads for site in selected), default=0))
        heads_by_site = [(site, tuple(head for head in heads if head < site.n_heads)) for site in selected]
        selected = [
            replace(site, heads=selected_heads) for site, selected_heads in heads_by_site if selected_heads
        ]
    return selected


def _check_numbers(name: str, indices: Collection[int], n: int, suffix: str = "") -> None:
    """Check indices of layers or heads; the command counts them from 1."""
    for index in sorted(indices):
        if not 0 <= index < n:
            raise RequestError(
                f"{name}s: expected indices from 0 to {n - 1}{suffix}, got {index} (--{name} counts from 1: "
                f"it must be between 1 and {n}, got {index + 1})"
            )


def capture_memory(sites: Sequence[AttentionSite], axes: Mapping[str, Axis]) -> int:
    """Return the peak memory of capturing the weights, in bytes."""

    def size(site: AttentionSite, queries: str, keys: str) -> int:
        return len(site.heads) * len(axes[queries].tokens) * len(axes[keys].tokens) * BYTES_PER_WEIGHT

    tap_bytes = {
        site.tap: size(site, INPUT, INPUT) if site.is_part else size(site, site.queries, site.keys)
        for site in sites
    }
    part_bytes = sum(size(site, site.queries, site.keys) for site in sites if site.is_part)
    return sum(tap_bytes.values()) + part_bytes + TEMPORARY_ARRAYS * max(tap_bytes.values(), default=0)


def check_memory_limit(
    sites: Sequence[AttentionSite], axes: Mapping[str, Axis], limit: int, used_bytes: int = 0
) -> None:
    """Check that the maps fit into ``limit`` bytes.

    Args:
        sites: the selected sites.
        axes: axes of the input.
        limit: in bytes.
        used_bytes: bytes of the maps of other inputs that are kept.

    Raises:
        RequestError: the maps need more memory; the message reports how much, and how to reduce it.
    """
    needed = used_bytes + capture_memory(sites, axes)
    if needed > limit:
        n_maps = sum(len(site.heads) for site in sites)
        longest = max(len(axis.tokens) for axis in axes.values())
        raise RequestError(
            f"attention of {n_maps} heads over up to {longest:,} tokens needs {_format_bytes(needed)}"
            f"{' with that of previous inputs' * bool(used_bytes)}, limit is {_format_bytes(limit)}; "
            "select layers and heads (--layer, --head), shorten the input, or raise the limit (--memory); in "
            "Python, with the arguments layers, heads and limit"
        )


def _format_bytes(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.2g} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.2g} MiB"
