"""The lines of a ledger, made by walking a model: what each part holds, computes and keeps.

`entries` is a single-dispatch function over module classes. A class that is registered is described
by its formulas; any other is a group of its parts, with its own parameters as plain lines. So the
parameters of every model add up, whether its parts are known here or not. To describe a new part:

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

# Attributes of a model that hold what runs over the source; everything else runs over the target.
SOURCE_SIDE = frozenset({"encoder", "source_embedding"})
# A dropout mask has one byte for each element: a quarter of a number in fp32.
MASK = 0.25
# Heads that read one vector of a sequence, or make it; others read every token.
ONCE = frozenset({"pooled", "class", "next", "value"})


@dataclass(frozen=True)
class Formula:
    """A sum of products of named sizes; its value and its text come from the same terms."""

    text: str
    sizes: tuple[tuple[str, int], ...]

    @property
    def value(self) -> int:
        """The sum."""
        terms = (term.split(" * ") for term in self._filled().split(" + "))
        return sum(prod(int(factor) for factor in term) for term in terms)

    def _filled(self) -> str:
        sizes = dict(self.sizes)
        return re.sub(r"[A-Za-z_]\w*", lambda found: str(sizes[found[0]]), self.text)

    def __str__(self) -> str:
        return f"{self.text} = {self._filled()}"


def formula(text: str, **sizes: int) -> Formula:
    """``formula("d_model * d_k", d_model=512, d_k=64)``; terms are joined by `` + ``, factors by `` * ``."""
    return Formula(text, tuple(sizes.items()))


@dataclass(frozen=True)
class Line:
    """One line: a part, how it is counted, and how many equal ones there are.

    Args:
        name: what the part is called.
        how: the formula of ``each``, or words.
        own: parameters of one, where the line has no parts.
        own_flops: of one, forward, for a pair of sentences.
        own_kept: numbers of one that the backward pass needs, for a pair of sentences.
        own_layers: layers in the lecture's sense (attentions, and layers of hidden units).
        times: how many equal parts stand for this line.
        parts: what the line is the sum of.
        note: where a lecture or paper prints something else.
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
        """Parameters of one."""
        return self.own + sum(part.parameters for part in self.parts)

    @property
    def parameters(self) -> int:
        """Parameters of all of them."""
        return self.times * self.each

    @property
    def flops(self) -> int:
        """Forward, for a pair of sentences, of all of them; a multiplication and an addition are two."""
        return self.times * (self.own_flops + sum(part.flops for part in self.parts))

    @property
    def kept(self) -> float:
        """Numbers kept for the backward pass, for a pair of sentences, of all of them."""
        return self.times * (self.own_kept + sum(part.kept for part in self.parts))

    @property
    def layers(self) -> int:
        """Attentions and layers of hidden units, of all of them."""
        return self.times * (self.own_layers + sum(part.layers for part in self.parts))


@dataclass(frozen=True)
class Walk:
    """Where a walk through a model is.

    Args:
        source, target: tokens of a pair of sentences.
        rows: how often the part at hand runs for such a pair.
        width: of the hidden states that the part at hand reads, where they go through a norm; else 0.
        seen: parameters that were counted, so that tied ones are counted once.
    """

    source: int
    target: int
    rows: int
    width: int = 0
    seen: set[int] = field(default_factory=set)

    def first(self, parameter: Tensor | None) -> bool:
        """Whether the parameter is there and was not counted before; from now on it was."""
        if parameter is None or id(parameter) in self.seen:
            return False
        self.seen.add(id(parameter))
        return True

    def over(self, rows: int) -> "Walk":
        """The same walk, for a part that runs ``rows`` times."""
        return replace(self, rows=rows)


@singledispatch
def entries(module: nn.Module, name: str, walk: Walk) -> list[Line]:
    """The lines of ``module``, which its holder calls ``name``."""
    return grouped(name, parts(module, walk))


@singledispatch
def parts(module: nn.Module, walk: Walk) -> list[Line]:
    """The lines of what a module is made of. Models whose parts cannot be told one by one register theirs."""
    return [*own(module, walk), *inside(module, walk)]


def own(module: nn.Module, walk: Walk) -> list[Line]:
    """Parameters that a module holds itself, one line each."""
    return [
        Line(name, " * ".join(map(str, parameter.shape)), own=parameter.numel())
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
        if walk.first(parameter)
    ]


def left_over(model: nn.Module, walk: Walk) -> list[Line]:
    """Parameters that no line has counted: what a subclass of a known part was given besides."""
    return [
        Line(name, " * ".join(map(str, parameter.shape)), own=parameter.numel())
        for name, parameter in model.named_parameters()
        if walk.first(parameter)
    ]


def inside(module: nn.Module, walk: Walk, skip: Iterable[str] = ()) -> list[Line]:
    """The lines of a module's parts. (A part that stands in two places computes in both.)"""
    lines = []
    for name, part in module._modules.items():
        if part is not None and name not in set(skip):
            there = walk.over(walk.source) if name in SOURCE_SIDE else walk
            lines += entries(part, name.replace("_", " "), there)
    return lines


def grouped(name: str, lines: Sequence[Line]) -> list[Line]:
    """One line that is the sum of others; none for nothing. What is equal is merged."""
    lines = [line for line in merged(lines) if line.parameters or line.flops or line.kept]
    return [Line(name, parts=tuple(lines))] if lines else []


def merged(lines: Iterable[Line]) -> list[Line]:
    """Equal lines become one, with its ``times``, at the place of the last."""
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
    """A linear layer: ``d_in * d_out`` and a bias; it keeps its input unless another part does."""
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
    """Heads of a model: called by what they predict. Their inputs are the hidden states, or one of them."""
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
    """Layers, each called a layer: equal ones are then merged."""
    return [line for part in module for line in entries(part, "layer", walk)]


@entries.register
def _dropout(module: Dropout, name: str, walk: Walk) -> list[Line]:
    """A mask is all that it keeps, and who holds it knows its width."""
    return []
