"""A declared table of names: each parameter of heedful's, and the tensors of another library's that hold it.

The table is read in both directions. What a tensor must look like on the other side is not said twice:
it is what the parameter becomes when it is written.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from heedful.artifacts.weights import fit, named_tensors
from heedful.errors import RequestError, nearest

MOST = 12
"""Problems that are told; where every name is wrong, a few of them say so."""


class Form(Protocol):
    """How a parameter lies in the other library's tensors."""

    def read(self, theirs: Sequence[Tensor]) -> Tensor:
        """Ours, of theirs."""
        ...

    def write(self, ours: Tensor) -> list[Tensor]:
        """Theirs, of ours; also of tensors that have a shape and no content (the device ``meta``)."""
        ...


class Same:
    """One tensor, as it is."""

    def read(self, theirs: Sequence[Tensor]) -> Tensor:
        """See `Form`."""
        return theirs[0]

    def write(self, ours: Tensor) -> list[Tensor]:
        """See `Form`."""
        return [ours]


class Transposed:
    """One matrix that multiplies from the other side: ``x W`` and not ``x W'``."""

    def read(self, theirs: Sequence[Tensor]) -> Tensor:
        """See `Form`."""
        return theirs[0].mT

    def write(self, ours: Tensor) -> list[Tensor]:
        """See `Form`."""
        return [ours.mT]


@dataclass(frozen=True)
class Stacked:
    """Several tensors of one shape, which lie one below the other in ours (queries, keys and values).

    Args:
        n: how many.
    """

    n: int

    def read(self, theirs: Sequence[Tensor]) -> Tensor:
        """See `Form`."""
        return torch.cat(list(theirs))

    def write(self, ours: Tensor) -> list[Tensor]:
        """See `Form`."""
        return list(ours.chunk(self.n))


@dataclass(frozen=True)
class Reshaped:
    """One tensor whose numbers lie in the same order, under another shape (the kernel of a convolution).

    Args:
        ours: the shape here.
        theirs: the shape there.
    """

    ours: tuple[int, ...]
    theirs: tuple[int, ...]

    def read(self, theirs: Sequence[Tensor]) -> Tensor:
        """See `Form`."""
        return theirs[0].reshape(self.ours)

    def write(self, ours: Tensor) -> list[Tensor]:
        """See `Form`."""
        return [ours.reshape(self.theirs)]


@dataclass(frozen=True)
class Affine:
    """One tensor in another unit: theirs = factor · ours + offset.

    Args:
        factor: not zero.
        offset: added to every number.
    """

    factor: float
    offset: float = 0.0

    def read(self, theirs: Sequence[Tensor]) -> Tensor:
        """See `Form`."""
        return (theirs[0] - self.offset) / self.factor

    def write(self, ours: Tensor) -> list[Tensor]:
        """See `Form`."""
        return [ours * self.factor + self.offset]


@dataclass(frozen=True)
class Numbering:
    """Which of their ids each of our ids has.

    Args:
        theirs: by our id; None where they have no such token. Every id of theirs occurs once.
    """

    theirs: tuple[int | None, ...]

    @property
    def ours(self) -> list[int]:
        """Our id, by theirs."""
        known = {their: our for our, their in enumerate(self.theirs) if their is not None}
        return [known[their] for their in range(len(known))]


@dataclass(frozen=True)
class Rows:
    """A row for each token of the vocabulary.

    A token that they have not gets the mean of all their rows. It is never written, but it has its part
    in the probabilities: with the mean of the rows of an output layer its logit is the mean of all logits,
    so that (the exponential being convex) it is at most as probable as tokens are on average. Rows of
    zeros could take nearly everything, where all other logits are negative.

    Args:
        numbering: of the tokens.
        axis: whether they keep the rows as columns of a matrix with a single row.
    """

    numbering: Numbering
    as_one_row: bool = False

    def read(self, theirs: Sequence[Tensor]) -> Tensor:
        """See `Form`."""
        rows = theirs[0][0] if self.as_one_row else theirs[0]
        made = rows.double().mean(0).to(rows.dtype)
        known = [0 if their is None else their for their in self.numbering.theirs]
        found = rows[torch.tensor(known)]
        found[[our for our, their in enumerate(self.numbering.theirs) if their is None]] = made
        return found

    def write(self, ours: Tensor) -> list[Tensor]:
        """See `Form`."""
        rows = ours[torch.tensor(self.numbering.ours, device=ours.device)]
        return [rows[None] if self.as_one_row else rows]


@dataclass(frozen=True)
class Pair:
    """A parameter of heedful's and where it is found: a line of the table.

    Args:
        ours: its name.
        theirs: their names.
        form: how it lies there.
    """

    ours: str
    theirs: tuple[str, ...]
    form: Form = field(default_factory=Same)


def pair(ours: str, *theirs: str, form: Form | None = None) -> Pair:
    """A line of the table; where they have several tensors for one of ours, these are stacked."""
    return Pair(ours, theirs, form or (Same() if len(theirs) == 1 else Stacked(len(theirs))))


def linear(ours: str, *theirs: str) -> list[Pair]:
    """The weight and the bias of a projection, or of a norm."""
    return [pair(f"{ours}.{kind}", *(f"{name}.{kind}" for name in theirs)) for kind in ("weight", "bias")]


@dataclass(frozen=True)
class Table:
    """All that a format has to say about names.

    Args:
        pairs: a line for each parameter of the model.
        copies: their names of tensors that are the same as another, which they may leave out.
        derived: patterns of their names of tensors that hold nothing learned (masks, tables of sines).
        prefix: what their names begin with; a file of a model without its head leaves it out.
        left: patterns of our names that have no place there: they are neither read nor written.
    """

    pairs: Sequence[Pair]
    copies: Mapping[str, str] = field(default_factory=dict)
    derived: Sequence[str] = ()
    prefix: str = ""
    left: Sequence[str] = ()

    def is_derived(self, name: str) -> bool:
        """Whether a tensor of this name holds nothing learned."""
        return any(re.fullmatch(pattern, name) for pattern in self.derived)

    def full(self, held: Mapping[str, Tensor]) -> dict[str, str]:
        """The names in a file, by the names in the table; a copy stands for what it is a copy of."""
        bare = self.prefix and not any(name.startswith(self.prefix) for name in held)
        names = {self._full(name) if bare else name: name for name in held}
        for copy, of in self.copies.items():
            if copy in names:
                names.setdefault(of, names[copy])
        return names

    def _full(self, name: str) -> str:
        known = {their for line in self.pairs for their in line.theirs} | {*self.copies}
        return name if name in known or self.is_derived(name) else self.prefix + name


def give(table: Table, held: Mapping[str, Tensor], model: nn.Module, source: str) -> None:
    """Give a model the weights that another library's file holds; nothing is changed unless all fits.

    Args:
        table: of their names.
        held: their tensors.
        model: as their configuration says.
        source: how messages call the file.

    Raises:
        RequestError: a tensor is unknown, missing, of another shape or type, or contradicts a copy of it;
            the message lists every difference.
    """
    own, aliases = _checked(table, model)
    names = table.full(held)
    wanted = {their: shape for line in table.pairs for their, shape in _shapes(line, own[line.ours]).items()}
    problems = [
        *_strange(table, names, wanted),
        *(f"missing: {their}" for their in sorted(wanted.keys() - names.keys())),
        *_other_shapes(names, held, wanted),
        *_untied(table, names, held),
    ]
    if problems:
        left_out = [f"and {len(problems) - MOST} more"] if len(problems) > MOST else []
        lines = [f"{source}: does not fit its configuration:", *problems[:MOST], *left_out]
        raise RequestError("\n  ".join(lines))
    found = {
        line.ours: line.form.read([held[names[their]].float() for their in line.theirs])
        for line in table.pairs
    }
    fit(found | {name: own[name] for name in own.keys() - found.keys()}, aliases, model, source)


def take(table: Table, model: nn.Module) -> dict[str, Tensor]:
    """The weights of a model, named and shaped as another library wants them."""
    own, _ = _checked(table, model)
    return {
        # A copy: files take no two tensors that share memory, as parts of one do.
        their: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for line in table.pairs
        for their, tensor in zip(line.theirs, line.form.write(own[line.ours]), strict=True)
    }


def _checked(table: Table, model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a model, and their other names, of which the table must know every one.

    Raises:
        ValueError: it does not: whoever wrote the table forgot one.
    """
    own, aliases = named_tensors(model)
    listed = [line.ours for line in table.pairs]
    wanted = {name for name in own if not any(re.fullmatch(pattern, name) for pattern in table.left)}
    if sorted(listed) != sorted(wanted):
        differing = sorted({*listed} ^ wanted) or sorted(name for name in own if listed.count(name) > 1)
        raise ValueError(f"the table of names and the model differ: {', '.join(differing)}")
    return own, aliases


def _shapes(line: Pair, ours: Tensor) -> dict[str, list[int]]:
    written = line.form.write(torch.empty(ours.shape, device="meta"))
    return {their: list(tensor.shape) for their, tensor in zip(line.theirs, written, strict=True)}


def _strange(table: Table, names: Mapping[str, str], wanted: Iterable[str]) -> list[str]:
    known = {*wanted, *table.copies}
    strange = sorted(name for name in names if name not in known and not table.is_derived(name))
    return [f"unknown: {names[name]}{nearest(name, known - names.keys())}" for name in strange]


def _other_shapes(
    names: Mapping[str, str], held: Mapping[str, Tensor], wanted: Mapping[str, list[int]]
) -> list[str]:
    problems = []
    for their, shape in wanted.items():
        tensor = held[names[their]] if their in names else None
        if tensor is not None and list(tensor.shape) != shape:
            problems.append(f"{names[their]} is {list(tensor.shape)} in the file, and should be {shape}")
        elif tensor is not None and not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            problems.append(f"{names[their]} holds {kind}: quantised weights are not read")
    return problems


def _untied(table: Table, names: Mapping[str, str], held: Mapping[str, Tensor]) -> list[str]:
    return [
        f"{names[copy]} should be a copy of {names[of]}, and differs: the configuration ties them"
        for copy, of in table.copies.items()
        if copy in names and of in names and not torch.equal(held[names[copy]], held[names[of]])
    ]
