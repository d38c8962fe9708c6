"""Table that maps parameters of heedful to tensors of another library.

The table is used for reading and writing. The expected shape of a tensor is the shape of the parameter as it
would be written.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from heedful.artifacts.weights import load_tensors, named_tensors
from heedful.errors import RequestError, nearest

MOST = 12
"""Maximum number of problems listed in a message."""


class Form(Protocol):
    """Layout of a parameter in the tensors of the other library."""

    def read(self, theirs: Sequence[Tensor]) -> Tensor:
        """Convert their tensors to our parameter."""
        ...

    def write(self, ours: Tensor) -> list[Tensor]:
        """Convert our parameter to their tensors; also supports the ``meta`` device."""
        ...


class Same:
    """One tensor, unchanged."""

    def read(self, theirs: Sequence[Tensor]) -> Tensor:
        """See `Form`."""
        return theirs[0]

    def write(self, ours: Tensor) -> list[Tensor]:
        """See `Form`."""
        return [ours]


class Transposed:
    """One transposed matrix: ``x W`` instead of ``x W'``."""

    def read(self, theirs: Sequence[Tensor]) -> Tensor:
        """See `Form`."""
        return theirs[0].mT

    def write(self, ours: Tensor) -> list[Tensor]:
        """See `Form`."""
        return [ours.mT]


@dataclass(frozen=True)
class Stacked:
    """Several tensors of one shape, concatenated in ours (queries, keys and values).

    Args:
        n: number of tensors.
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
    """One tensor with another shape and the same order of elements (e.g. a convolution kernel).

    Args:
        ours: our shape.
        theirs: their shape.
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
    """One tensor in other units: theirs = factor · ours + offset.

    Args:
        factor: scale; must not be 0.
        offset: added to every element.
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
    """Mapping between our token ids and theirs.

    Args:
        theirs: their id for each of our ids; None for tokens they lack. Each of their ids occurs once.
    """

    theirs: tuple[int | None, ...]

    @property
    def ours(self) -> list[int]:
        """Our id for each of their ids."""
        known = {their: our for our, their in enumerate(self.theirs) if their is not None}
        return [known[their] for their in range(len(known))]


@dataclass(frozen=True)
class Rows:
    """One row per token of the vocabulary.

    Tokens that they lack get the mean of all their rows. Such a token is never generated but takes part in
    the softmax: its logit is the mean of all logits, so (the exponential being convex) its probability is at
    most the mean probability. Zero rows could take nearly all probability if all other logits are negative.

    Args:
        numbering: numbering of the tokens.
        as_one_row: whether they keep the values in a matrix with a single row.
    """

    numbering: Numbering
    as_one_row: bool = False

    def read(self, theirs: Sequence[Tensor]) -> Tensor:
        """See `Form`."""
        rows = theirs[0][0] if self.as_one_row else theirs[0]
        mean = rows.double().mean(0).to(rows.dtype)
        known = [0 if their is None else their for their in self.numbering.theirs]
        found = rows[torch.tensor(known)]
        found[[our for our, their in enumerate(self.numbering.theirs) if their is None]] = mean
        return found

    def write(self, ours: Tensor) -> list[Tensor]:
        """See `Form`."""
        rows = ours[torch.tensor(self.numbering.ours, device=ours.device)]
        return [rows[None] if self.as_one_row else rows]


@dataclass(frozen=True)
class Pair:
    """One row of the table: a parameter and the tensors that hold it.

    Args:
        ours: our name of the parameter.
        theirs: their names of the tensors.
        form: conversion between them.
    """

    ours: str
    theirs: tuple[str, ...]
    form: Form = field(default_factory=Same)


def pair(ours: str, *theirs: str, form: Form | None = None) -> Pair:
    """Return a row of the table; several tensors for one parameter are stacked by default."""
    return Pair(ours, theirs, form or (Same() if len(theirs) == 1 else Stacked(len(theirs))))


def linear(ours: str, *theirs: str) -> list[Pair]:
    """Return the rows for weight and bias of a linear layer or norm."""
    return [pair(f"{ours}.{kind}", *(f"{name}.{kind}" for name in theirs)) for kind in ("weight", "bias")]


@dataclass(frozen=True)
class Table:
    """Name mapping of a format.

    Args:
        pairs: one row per parameter of the model.
        copies: their names of tied tensors, which files may omit, by name of the original.
        derived: patterns of their names of tensors that are not learned (masks, sinusoids).
        prefix: prefix of their names; files of models without head omit it.
        left: patterns of our names that are neither read nor written.
    """

    pairs: Sequence[Pair]
    copies: Mapping[str, str] = field(default_factory=dict)
    derived: Sequence[str] = ()
    prefix: str = ""
    left: Sequence[str] = ()

    def is_derived(self, name: str) -> bool:
        """Return whether the tensor is not learned."""
        return any(re.fullmatch(pattern, name) for pattern in self.derived)

    def full(self, held: Mapping[str, Tensor]) -> dict[str, str]:
        """Map names in the table to names in a file; a tied copy can replace its original."""
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
    """Load the weights of another library into a model; the model is unchanged on any error.

    Args:
        table: name mapping.
        held: their tensors.
        model: model built from their configuration.
        source: name of the file in messages.

    Raises:
        RequestError: a tensor is unknown, missing, of wrong shape or type, or differs from its tied copy;
            the message lists every difference.
    """
    own, aliases = _checked(table, model)
    names = table.full(held)
    expected = {
        their: shape for line in table.pairs for their, shape in _shapes(line, own[line.ours]).items()
    }
    problems = [
        *_strange(table, names, expected),
        *(f"missing: {their}" for their in sorted(expected.keys() - names.keys())),
        *_other_shapes(names, held, expected),
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
    load_tensors(found | {name: own[name] for name in own.keys() - found.keys()}, aliases, model, source)


def take(table: Table, model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a model with the names and shapes of another library."""
    own, _ = _checked(table, model)
    return {
        # Clone, since safetensors rejects tensors that share memory.
        their: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for line in table.pairs
        for their, tensor in zip(line.theirs, line.form.write(own[line.ours]), strict=True)
    }


def _checked(table: Table, model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a model and their aliases, after checking that the table is complete.

    Raises:
        ValueError: the table and the model differ.
    """
    own, aliases = named_tensors(model)
    listed = [line.ours for line in table.pairs]
    expected = {name for name in own if not any(re.fullmatch(pattern, name) for pattern in table.left)}
    if sorted(listed) != sorted(expected):
        differing = sorted({*listed} ^ expected) or sorted(name for name in own if listed.count(name) > 1)
        raise ValueError(f"the table of names and the model differ: {', '.join(differing)}")
    return own, aliases


def _shapes(line: Pair, ours: Tensor) -> dict[str, list[int]]:
    written = line.form.write(torch.empty(ours.shape, device="meta"))
    return {their: list(tensor.shape) for their, tensor in zip(line.theirs, written, strict=True)}


def _strange(table: Table, names: Mapping[str, str], expected: Iterable[str]) -> list[str]:
    known = {*expected, *table.copies}
    strange = sorted(name for name in names if name not in known and not table.is_derived(name))
    return [f"unknown: {names[name]}{nearest(name, known - names.keys())}" for name in strange]


def _other_shapes(
    names: Mapping[str, str], held: Mapping[str, Tensor], expected: Mapping[str, list[int]]
) -> list[str]:
    problems = []
    for their, shape in expected.items():
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
