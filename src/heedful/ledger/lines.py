"""Lines of a ledger: parameters, operations and kept values of each part of a model.

`entries` is a single-dispatch function over module classes. A registered class is described by formulas;
any other is the sum of its parts, with its own parameters as lines. The parameters of every model
therefore add up, even if some of its parts are not registered. To describe a new part:

    @entries.register
    def _(module: MyPart, name: str, walk: Walk) -> list[Line]: ...
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from math import prod

from torch import Tensor, nn

from heedful.nn.dropout import Dropout

# Attributes of a model whose modules run over the source; all others run over the target.
SOURCE_SIDE = frozenset({"encoder", "source_embedding"})
# A dropout mask has one byte for each element: a quarter of a number in fp32.
MASK = 0.25
# Heads that read or compute one vector per sequence; others read every token.
ONCE = frozenset({"pooled", "class", "next", "value"})


@dataclass(frozen=True)
class Formula:
    """Sum of products of named sizes, with its value and its text."""

    text: str
    sizes: tuple[tuple[str, int], ...]

    @property
    def value(self) -> int:
        """The value of the sum."""
        terms = (term.split(" * ") for term in self._filled().split(" + "))
        return sum(prod(int(factor) for factor in term) for term in terms)

    def _filled(self) -> str:
        sizes = dict(self.sizes)
        return re.sub(r"[A-Za-z_]\w*", lambda found: str(sizes[found[0]]), self.text)

    def __str__(self) -> str:
        return f"{self.text} = {self._filled()}"


def formula(text: str, **sizes: int) -> Formula:
    """Return a formula such as ``formula("d_model * d_k", d_model=512, d_k=64)``.

    Terms are joined by `` + ``, factors by `` * ``.
    """
    return Formula(text, tuple(sizes.items()))


@dataclass(frozen=True)
class Line:
    """A line of the ledger: a part, its formula, and the number of equal parts.

    Args:
        name: the name of the part.
        how: the formula of ``each``, or a description.
        own: parameters of one part, if the line has no sub-parts.
        own_flops: FLOPs of one part, forward, for a pair of sentences.
        own_kept: numbers that one part keeps for the backward pass, for a pair of sentences.
        own_layers: layers in the lecture's sense (attentions, and layers of hidden units).
        times: number of equal parts.
        parts: the lines that are summed.
        note: a comment, for example if a lecture or paper prints another number.
    """

    name: str
    how: str = ""
    own: int = 0
    own_flops: int = 0
    own_kept: float = 0.0
    own_layers: int = 0
    times: int = 1
    parts: tuple["Line", ...] = ()
    note: str = ""

    @property
    def each(self) -> int:
        """Parameters of one part."""
        return self.own + sum(part.parameters for part in self.parts)

    @property
    def parameters(self) -> int:
        """Parameters of all equal parts."""
        return self.times * self.each

    @property
    def flops(self) -> int:
        """FLOPs of all equal parts, forward, for a pair of sentences."""
        return self.times * (self.own_flops + sum(part.flops for part in self.parts))

    @property
    def kept(self) -> float:
        """Numbers that all equal parts keep for the backward pass, for a pair of sentences."""
        return self.times * (self.own_kept + sum(part.kept for part in self.parts))

    @property
    def layers(self) -> int:
        """Attentions and layers of hidden units of all equal parts."""
        return self.times * (self.own_layers + sum(part.layers for part in self.parts))


@dataclass(frozen=True)
class Walk:
    """State of a walk through a model.

    Args:
        source, target: tokens of a pair of sentences.
        rows: number of tokens that the current part processes for such a pair.
        width: width of the hidden states that the current part reads, if they pass a norm; else 0.
        seen: parameters already counted, so that tied parameters are counted once.
    """

    source: int
    target: int
    rows: int
    width: int = 0
    seen: set[int] = field(default_factory=set)

    def first(self, parameter: Tensor | None) -> bool:
        """Return whether the parameter exists and was not counted before, and mark it as counted."""
        if parameter is None or id(parameter) in self.seen:
            return False
        self.seen.add(id(parameter))
        return True

    def over(self, rows: int) -> "Walk":
        """Return the same walk, for a part that processes ``rows`` tokens."""
        return replace(self, rows=rows)


@singledispatch
def entries(module: nn.Module, name: str, walk: Walk) -> list[Line]:
    """Return the lines of ``module``, whose attribute name is ``name``."""
    return grouped(name, parts(module, walk))


@singledispatch
def parts(module: nn.Module, walk: Walk) -> list[Line]:
    """Return the lines of a module's parts. Models whose parts depend on each other register a function."""
    return [*own(module, walk), *inside(module, walk)]


def own(module: nn.Module, walk: Walk) -> list[Line]:
    """Return a line for each parameter of the module itself."""
    return [
        Line(name, " * ".join(map(str, parameter.shape)), own=parameter.numel())
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
        if walk.first(parameter)
    ]


def left_over(model: nn.Module, walk: Walk) -> list[Line]:
    """Return a line for each parameter not counted yet: additions in subclasses of registered parts."""
    return [
        Line(name, " * ".join(map(str, parameter.shape)), own=parameter.numel())
        for name, parameter in model.named_parameters()
        if walk.first(parameter)
    ]


def inside(module: nn.Module, walk: Walk, skip: Iterable[str] = ()) -> list[Line]:
    """Return the lines of a module's submodules. (A submodule used in two places computes in both.)"""
    lines = []
    for name, part in module._modules.items():
        if part is not None and name not in set(skip):
            there = walk.over(walk.source) if name in SOURCE_SIDE else walk
            lines += entries(part, name.replace("_", " "), there)
    return lines


def grouped(name: str, lines: Sequence[Line]) -> list[Line]:
    """Return one line that is the sum of others, equal lines merged; an empty list if they count nothing."""
    lines = [line for line in merged(lines) if line.parameters or line.flops or line.kept]
    return [Line(name, parts=tuple(lines))] if lines else []


def merged(lines: Iterable[Line]) -> list[Line]:
    """Merge equal lines into one with its ``times``, at the position of the last."""
    found: dict[Line, int] = {}
    for line in lines:
        one = replace(line, times=1)
        found[one] = found.pop(one, 0) + line.times
    return [replace(one, times=times) for one, times in found.items()]


def linear(
    name: str,
    module: nn.Linear,
    walk: Walk,
    names: tuple[str, str] = ("d_in", "d_out"),
    *,
    keeps: bool = True,
) -> Line:
    """Return the line of a linear layer: ``d_in * d_out`` and a bias; with ``keeps``, its input is kept."""
    d_in, d_out = names
    terms = [f"{d_in} * {d_out}"] if walk.first(module.weight) else []
    terms += [d_out] if walk.first(module.bias) else []
    how = formula(" + ".join(terms), **{d_in: module.in_features, d_out: module.out_features})
    tied = "" if len(terms) and "*" in terms[0] else "tied to a matrix above"
    return Line(
        name,
        "; ".join(text for text in (tied, str(how) if terms else "") if text),
        own=how.value if terms else 0,
        own_flops=2 * walk.rows * module.in_features * module.out_features,
        own_kept=walk.rows * module.in_features if keeps else 0,
    )


@entries.register
def _linear(module: nn.Linear, name: str, walk: Walk) -> list[Line]:
    return [linear(name, module, walk)]


@entries.register
def _heads(module: nn.ModuleDict, name: str, walk: Walk) -> list[Line]:
    """Count the heads of a model, named by what they predict; they read all hidden states, or one."""
    lines = []
    for key, head in module.items():
        called = "output layer" if key == "token" else f"head {key}"
        there = walk.over(1) if key in ONCE else walk
        match [*head.children()] or [head]:
            case [nn.Linear() as layer]:
                lines.append(linear(called, layer, there, ("d_model", "V")))
            case [Dropout(), nn.Linear() as layer]:
                lines.append(linear(called, layer, there, ("d_model", "n")))
            case _:
                lines += entries(head, called, there)
    return lines


@entries.register
def _list(module: nn.ModuleList, name: str, walk: Walk) -> list[Line]:
    """Name every layer "layer", so that equal ones are merged."""
    return [line for part in module for line in entries(part, "layer", walk)]


@entries.register
def _dropout(module: Dropout, name: str, walk: Walk) -> list[Line]:
    """Dropout keeps only a mask, which the module that contains it counts, because it knows the width."""
    return []
