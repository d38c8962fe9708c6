"""Where a model attends: every point at which weights can be seen, found from the model itself.

| module | kind | queries | keys |
|---|---|---|---|
| `SelfAttention` of an encoder | self | ``source``, or ``input`` where there is one side | the same |
| causal `SelfAttention` of a decoder | causal | ``prefix``: what the decoder read | the same |
| causal `SelfAttention` of a language model | causal | ``input`` | the same |
| `MemoryCompressedAttention` | causal | ``input`` | ``memory``: slots, each for several tokens |
| `CrossAttention`, `AttentiveDecoder` | cross | ``target``: what was written | ``source`` |

A decoder reads ``<s> y`` and writes ``y </s>``, so token t of ``prefix`` is what it looked from when it wrote
token t of ``target``. Local attention has weights over the whole sequence, which are 0 beyond its blocks.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from torch import nn

from heedful.errors import RequestError, nearest
from heedful.explain.view import INPUT, MEMORY, PREFIX, SOURCE, TARGET, Axis, Kind
from heedful.nn.attention.compressed import MemoryCompressedAttention
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.recurrent import FixedContext
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.attentive import AttentiveDecoder

KINDS: tuple[Kind, ...] = get_args(Kind)

_OWN = {"encoder": SOURCE, "decoder": PREFIX}
"""The side of each stack of a model with two; a single stack reads the input."""

NUMBER = 4
"""Bytes of a weight."""

WORKING = 3
"""Rectangles as large as a layer's weights that exist while they are computed: scores, softmax, weights."""


@dataclass(frozen=True)
class AttentionSite:
    """A point at which attention weights are seen.

    Args:
        tap: its name.
        kind: who looks at whom.
        layer: counted from 0 among those of the kind in its stack.
        heads: which, counted from 0.
        n_heads: how many there are.
        queries, keys: names of sides.
        factor: how many tokens a slot stands for, where keys are slots; else 1.
        is_part: whether it is cut out of what is seen there (`heedful.explain.one_text`).
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

    @property
    def collected(self) -> tuple[str, str]:
        """The sides between which the weights are that are seen there."""
        return (INPUT, INPUT) if self.is_part else (self.queries, self.keys)


def points(model: nn.Module) -> list[AttentionSite]:
    """All of a model, with all heads, stack by stack and from the first layer to the last."""
    found: list[AttentionSite] = []
    counts: Counter[tuple[str, Kind]] = Counter()
    for name, part in model.named_modules():
        seen = _seen(part)
        if seen is None:
            continue
        kind, n_heads = seen
        stack = name.partition(".")[0]
        own, factor = _OWN.get(stack, INPUT), getattr(part, "factor", 1)
        queries, keys = (TARGET, SOURCE) if kind == "cross" else (own, own if factor == 1 else MEMORY)
        layer = counts[stack, kind]
        counts[stack, kind] += 1
        heads = tuple(range(n_heads))
        found.append(AttentionSite(f"{name}.weights", kind, layer, heads, n_heads, queries, keys, factor))
    order = {kind: number for number, kind in enumerate(KINDS)}
    return sorted(found, key=lambda point: (order[point.kind], point.layer))


def _seen(part: nn.Module) -> tuple[Kind, int] | None:
    """The kind of an attention and its number of heads; None for any other module."""
    match part:
        case SelfAttention():
            return ("causal" if part.causal else "self"), part.n_heads
        case MemoryCompressedAttention():
            return "causal", part.n_heads
        case CrossAttention():
            return "cross", part.n_heads
        case AttentiveDecoder() if not isinstance(part.step.attention, FixedContext):
            return "cross", getattr(part.step.attention, "n_heads", 1)
    return None


@dataclass(frozen=True)
class Selection:
    """Which attention maps are wanted; of each field, None: all there are.

    Args:
        layers: counted from 0.
        heads: of those layers, counted from 0.
        kinds: ``self``, ``causal``, ``cross``; none of them: no maps.
    """

    layers: Collection[int] | None = None
    heads: Collection[int] | None = None
    kinds: Collection[str] | None = None


def refuse_text(name: str, given: object) -> None:
    """Refuse one name where several are wanted: its letters would be taken for names.

    Raises:
        RequestError: it is a text.
    """
    if isinstance(given, str):
        raise RequestError(f"{name}: give a list of names, not a text: [{given!r}]")


EVERY_MAP = Selection()
NO_MAPS = Selection(kinds=())


def chosen(all_points: Sequence[AttentionSite], maps: Selection) -> list[AttentionSite]:
    """Those that are selected.

    A layer or head that some stacks have and others have not is taken where it is.

    Raises:
        RequestError: there is nowhere such a kind, layer or head.
    """
    found = list(all_points)
    if maps.kinds is not None:
        found = _of_kinds(found, list(maps.kinds))
    if maps.layers is not None:
        found = _of_layers(found, sorted(set(maps.layers)))
    if maps.heads is not None:
        found = _of_heads(found, sorted(set(maps.heads)))
    return found


def _of_kinds(found: list[AttentionSite], kinds: list[str]) -> list[AttentionSite]:
    known = list(dict.fromkeys(point.kind for point in found))
    for kind in kinds:
        if kind not in known:
            has = f"this model has {' and '.join(known)}" if known else "this model has no attention"
            raise RequestError(f"there is no {kind} attention{nearest(kind, known)}: {has}")
    return [point for point in found if point.kind in kinds]


def _of_layers(found: list[AttentionSite], layers: list[int]) -> list[AttentionSite]:
    n_layers = 1 + max((point.layer for point in found), default=-1)
    for layer in layers:
        if not 0 <= layer < n_layers:
            raise RequestError(f"there is no layer {layer + 1}: the model has {n_layers} with attention")
    return [point for point in found if point.layer in layers]


def _of_heads(found: list[AttentionSite], heads: list[int]) -> list[AttentionSite]:
    most = max((point.n_heads for point in found), default=0)
    for head in heads:
        if not 0 <= head < most:
            raise RequestError(f"there is no head {head + 1}: a layer has {most}")
    kept = [(point, tuple(head for head in heads if head < point.n_heads)) for point in found]
    return [AttentionSite(**{**vars(point), "heads": own}) for point, own in kept if own]


def memory(wanted: Sequence[AttentionSite], sides: Mapping[str, Axis]) -> int:
    """Bytes that the weights take while they are collected."""
    collected = {point.tap: _size(point, *point.collected, sides) for point in wanted}
    cut = sum(_size(point, point.queries, point.keys, sides) for point in wanted if point.is_part)
    return sum(collected.values()) + cut + WORKING * max(collected.values(), default=0)


def _size(point: AttentionSite, queries: str, keys: str, sides: Mapping[str, Axis]) -> int:
    return len(point.heads) * len(sides[queries].tokens) * len(sides[keys].tokens) * NUMBER


def refuse_too_much(
    wanted: Sequence[AttentionSite], sides: Mapping[str, Axis], limit: int, taken: int = 0
) -> None:
    """Refuse maps that would take more memory than ``limit`` bytes.

    Args:
        wanted: the points to watch.
        sides: of the input.
        limit: in bytes.
        taken: by the maps of other inputs that are kept.

    Raises:
        RequestError: it says how much they would take, and what takes less.
    """
    needed = taken + memory(wanted, sides)
    if needed > limit:
        n_maps = sum(len(point.heads) for point in wanted)
        longest = max(len(side.tokens) for side in sides.values())
        raise RequestError(
            f"attention of {n_maps} heads over as many as {longest:,} tokens takes {_shown(needed)}"
            f"{' with that of the inputs before' * bool(taken)}, more "
            f"than the limit of {_shown(limit)}: ask for single layers and heads (--layer, --head), "
            "shorten the input, or raise the limit (--limit)"
        )


def _shown(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.2g} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.2g} MiB"
