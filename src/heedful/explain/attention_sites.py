"""Find all attention sites of a model: the modules whose attention weights can be captured.

| module | kind | queries | keys |
|---|---|---|---|
| `SelfAttention` of an encoder | self | ``source``, or ``input`` in models with one side | the same |
| causal `SelfAttention` of a decoder | causal | ``prefix``: the decoder input | the same |
| causal `SelfAttention` of a language model | causal | ``input`` | the same |
| `MemoryCompressedAttention` | causal | ``input`` | ``memory``: slots, each for several tokens |
| `CrossAttention`, `AttentiveDecoder` | cross | ``target``: the decoder output | ``source`` |

A decoder reads ``<s> y`` and predicts ``y </s>``: it reads token t of ``prefix`` when it predicts token t of
``target``. Local attention has weights over the whole sequence, which are 0 outside its blocks.
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
"""Sides of the stacks of an encoder-decoder model; all other stacks read the input."""

NUMBER = 4
"""Bytes per weight."""

WORKING = 3
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
        queries, keys: names of sides.
        factor: number of tokens per slot if the keys are memory slots; otherwise 1.
        is_part: whether the weights are a part of the captured ones (`heedful.explain.one_text`).
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
        """Query and key sides of the captured weights."""
        return (INPUT, INPUT) if self.is_part else (self.queries, self.keys)


def find_sites(model: nn.Module) -> list[AttentionSite]:
    """Return the attention sites of a model with all heads, by kind and layer."""
    found: list[AttentionSite] = []
    counts: Counter[tuple[str, Kind]] = Counter()
    for name, part in model.named_modules():
        attention = _attention(part)
        if attention is None:
            continue
        kind, n_heads = attention
        stack = name.partition(".")[0]
        own, factor = _OWN.get(stack, INPUT), getattr(part, "factor", 1)
        queries, keys = (TARGET, SOURCE) if kind == "cross" else (own, own if factor == 1 else MEMORY)
        layer = counts[stack, kind]
        counts[stack, kind] += 1
        heads = tuple(range(n_heads))
        found.append(AttentionSite(f"{name}.weights", kind, layer, heads, n_heads, queries, keys, factor))
    order = {kind: number for number, kind in enumerate(KINDS)}
    return sorted(found, key=lambda point: (order[point.kind], point.layer))


def _attention(part: nn.Module) -> tuple[Kind, int] | None:
    """Return the kind and number of heads of an attention module; None for other modules."""
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
    """Selection of attention maps; None selects all.

    Args:
        layers: indices of layers, from 0.
        heads: indices of heads in these layers, from 0.
        kinds: any of ``self``, ``causal`` and ``cross``; empty: no maps.
    """

    layers: Collection[int] | None = None
    heads: Collection[int] | None = None
    kinds: Collection[str] | None = None


def refuse_text(name: str, given: object) -> None:
    """Check that a list of names is not a single text, whose characters would be taken for names.

    Raises:
        RequestError: it is a text.
    """
    if isinstance(given, str):
        raise RequestError(f"{name} must be a list of names, got a text; use [{given!r}]")


EVERY_MAP = Selection()
NO_MAPS = Selection(kinds=())


def chosen(sites: Sequence[AttentionSite], maps: Selection) -> list[AttentionSite]:
    """Return the selected sites.

    A layer or head that only some stacks have is selected in those stacks.

    Raises:
        RequestError: no site has the kind, layer or head.
    """
    found = list(sites)
    if maps.kinds is not None:
        found = _of_kinds(found, list(maps.kinds))
    if maps.layers is not None:
        found = _of_layers(found, sorted(set(maps.layers)))
    if maps.heads is not None:
        found = _of_heads(found, sorted(set(maps.heads)))
    return found


def _of_kinds(found: list[AttentionSite], kinds: list[str]) -> list[AttentionSite]:
    known = list(dict.fromkeys(site.kind for site in found))
    for kind in kinds:
        if kind not in known:
            expected = f"expected {' or '.join(known)}" if known else "this model has no attention"
            raise RequestError(f"unknown kind of attention {kind!r}{nearest(kind, known)}; {expected}")
    return [site for site in found if site.kind in kinds]


def _of_layers(found: list[AttentionSite], layers: list[int]) -> list[AttentionSite]:
    n_layers = 1 + max((site.layer for site in found), default=-1)
    for layer in layers:
        if not 0 <= layer < n_layers:
            raise RequestError(
                f"layer must be between 1 and {n_layers} (layers with attention), got {layer + 1}"
            )
    return [site for site in found if site.layer in layers]


def _of_heads(found: list[AttentionSite], heads: list[int]) -> list[AttentionSite]:
    most = max((site.n_heads for site in found), default=0)
    for head in heads:
        if not 0 <= head < most:
            raise RequestError(f"head must be between 1 and {most}, got {head + 1}")
    kept = [(site, tuple(head for head in heads if head < site.n_heads)) for site in found]
    return [AttentionSite(**{**vars(site), "heads": own}) for site, own in kept if own]


def memory(wanted: Sequence[AttentionSite], sides: Mapping[str, Axis]) -> int:
    """Return the peak memory of capturing the weights, in bytes."""
    collected = {site.tap: _size(site, *site.collected, sides) for site in wanted}
    cut = sum(_size(site, site.queries, site.keys, sides) for site in wanted if site.is_part)
    return sum(collected.values()) + cut + WORKING * max(collected.values(), default=0)


def _size(site: AttentionSite, queries: str, keys: str, sides: Mapping[str, Axis]) -> int:
    return len(site.heads) * len(sides[queries].tokens) * len(sides[keys].tokens) * NUMBER


def refuse_too_much(
    wanted: Sequence[AttentionSite], sides: Mapping[str, Axis], limit: int, taken: int = 0
) -> None:
    """Check that the maps fit into ``limit`` bytes.

    Args:
        wanted: the selected sites.
        sides: sides of the input.
        limit: in bytes.
        taken: bytes of the maps of other inputs that are kept.

    Raises:
        RequestError: the maps need more memory; the message reports how much, and how to reduce it.
    """
    needed = taken + memory(wanted, sides)
    if needed > limit:
        n_maps = sum(len(site.heads) for site in wanted)
        longest = max(len(side.tokens) for side in sides.values())
        raise RequestError(
            f"attention of {n_maps} heads over up to {longest:,} tokens needs {_shown(needed)}"
            f"{' with that of previous inputs' * bool(taken)}, limit is {_shown(limit)}; select layers and "
            "heads (--layer, --head), shorten the input, or raise the limit (--limit)"
        )


def _shown(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.2g} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.2g} MiB"
