"""Table that maps parameters of heedful to tensors of another library.

The table is used for reading and writing. The expected shape of a tensor is the shape of the parameter as it
would be written.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.artifacts.weights import load_tensors, named_tensors
from heedful.errors import RequestError, nearest
from heedful.text.specials import SPECIALS

MAX_PROBLEMS = 12
"""Maximum number of problems listed in a message."""


class Form(NamedTuple):
    """Layout of a parameter in the tensors of the other library.

    Args:
        read: converts their tensors to our parameter.
        write: converts our parameter to their tensors; also supports the ``meta`` device.
        n_rows: for a row per token: number of their tokens, after which only padding follows.
    """

    read: Callable[[Sequence[Tensor]], Tensor]
    write: Callable[[Tensor], Sequence[Tensor]]
    n_rows: int | None = None


SAME = Form(lambda theirs: theirs[0], lambda ours: [ours])
"""One tensor, unchanged."""

TRANSPOSED = Form(lambda theirs: theirs[0].mT, lambda ours: [ours.mT])
"""One transposed matrix: ``x W`` instead of ``x W'``."""


def stacked(n: int) -> Form:
    """Return the form of ``n`` tensors of one shape, concatenated in ours (queries, keys and values)."""
    return Form(lambda theirs: torch.cat(list(theirs)), lambda ours: ours.chunk(n))


def reshaped(ours: tuple[int, ...], theirs: tuple[int, ...]) -> Form:
    """Return the form of one tensor with other shapes and the same order of elements (as of convolutions)."""
    return Form(lambda tensors: tensors[0].reshape(ours), lambda tensor: [tensor.reshape(theirs)])


def affine(factor: float, offset: float = 0.0) -> Form:
    """Return the form of one tensor in other units: theirs = factor · ours + offset; factor is not 0."""
    return Form(lambda theirs: (theirs[0] - offset) / factor, lambda ours: [ours * factor + offset])


@dataclass(frozen=True)
class Numbering:
    """Mapping between our token ids and theirs.

    Args:
        theirs: their id for each of our ids; None for tokens they lack. Each of their ids occurs once.
    """

    theirs: tuple[int | None, ...]

    @classmethod
    def of(cls, specials: Mapping[int, int], size: int) -> "Numbering":
        """Return the numbering in which all but the special tokens keep their order.

        Args:
            specials: their id of each of our special tokens that they have.
            size: number of their ids.
        """
        others = (i for i in range(size) if i not in specials.values())
        return cls((*(specials.get(our) for our in range(len(SPECIALS))), *others))

    @property
    def ours(self) -> list[int]:
        """Our id for each of their ids."""
        our_ids = {their: our for our, their in enumerate(self.theirs) if their is not None}
        return [our_ids[their] for their in range(len(our_ids))]


def rows(numbering: Numbering, *, as_one_row: bool = False) -> Form:
    """Return the form of one row per token of the vocabulary.

    Tokens that they lack get the mean of all their rows. Such a token is never generated but takes part in
    the softmax: its logit is the mean of all logits, so (the exponential being convex) its probability is at
    most the mean probability. Zero rows could take nearly all probability if all other logits are negative.

    Args:
        numbering: numbering of the tokens.
        as_one_row: whether they keep the values in a matrix with a single row.
    """

    def read(theirs: Sequence[Tensor]) -> Tensor:
        matrix = theirs[0][0] if as_one_row else theirs[0]
        parameter = matrix[torch.tensor([their or 0 for their in numbering.theirs])]
        missing = [our for our, their in enumerate(numbering.theirs) if their is None]
        parameter[missing] = matrix.double().mean(0).to(matrix.dtype)
        return parameter

    def write(ours: Tensor) -> list[Tensor]:
        matrix = ours[torch.tensor(numbering.ours, device=ours.device)]
        return [matrix[None] if as_one_row else matrix]

    return Form(read, write, None if as_one_row else len(numbering.ours))


class Pair(NamedTuple):
    """One row of the table: our name of a parameter, and their names and form of the tensors that hold it."""

    ours: str
    theirs: tuple[str, ...]
    form: Form


def pair(ours: str, *theirs: str, form: Form | None = None) -> Pair:
    """Return a row of the table; several tensors for one parameter are stacked by default."""
    return Pair(ours, theirs, form or (SAME if len(theirs) == 1 else stacked(len(theirs))))


def linear(ours: str, *theirs: str, weight: Form | None = None) -> list[Pair]:
    """Return the rows for weight and bias of a linear layer or norm."""
    return [
        pair(f"{ours}.{kind}", *(f"{name}.{kind}" for name in theirs), form=form)
        for kind, form in (("weight", weight), ("bias", None))
    ]


def layers(
    n: int, ours: str, theirs: str, names: Mapping[str, Sequence[str]], weight: Form | None = None
) -> list[Pair]:
    """Return the rows of the ``n`` layers of a stack.

    Args:
        n: number of layers.
        ours: our name of the stack.
        theirs: their name of the stack.
        names: their names in a layer for each of our linear layers and norms.
        weight: form of the weights of linear layers, by default unchanged.
    """
    return [
        row
        for i in range(n)
        for module, their_modules in names.items()
        for row in linear(
            f"{ours}.blocks.{i}.{module}",
            *(f"{theirs}.{i}.{name}" for name in their_modules),
            weight=None if module.endswith("norm") else weight,
        )
    ]


@dataclass(frozen=True)
class Table:
    """Name mapping of a format.

    Args:
        pairs: one row per parameter of the model.
        copies: their names of tied tensors, which files may omit, by name of the original.
        derived: patterns of their names of tensors that are not learned (masks, sinusoids).
        prefix: prefix of their names; files of models without head omit it.
        ignored: patterns of our names that are neither read nor written.
    """

    pairs: Sequence[Pair]
    copies: Mapping[str, str] = field(default_factory=dict)
    derived: Sequence[str] = ()
    prefix: str = ""
    ignored: Sequence[str] = ()

    def is_derived(self, name: str) -> bool:
        """Return whether the tensor is not learned."""
        return any(re.fullmatch(pattern, name) for pattern in self.derived)

    def without_padding(self, tensors: Mapping[str, Tensor], vocab_size: int) -> dict[str, Tensor]:
        """Return the tensors without the rows that pad a vocabulary.

        Args:
            tensors: their tensors.
            vocab_size: number of rows with padding; tensors with another number are not changed.
        """
        names, n_rows = self.full(tensors), dict[str, int]()
        for row in self.pairs:
            if row.form.n_rows is not None:
                copies = [copy for copy, original in self.copies.items() if original in row.theirs]
                n_rows |= {names[name]: row.form.n_rows for name in (*row.theirs, *copies) if name in names}
        return {
            name: tensor[: n_rows[name]] if name in n_rows and tensor.shape[:1] == (vocab_size,) else tensor
            for name, tensor in tensors.items()
        }

    def full(self, file_names: Iterable[str]) -> dict[str, str]:
        """Map names in the table to names in a file; a tied copy can replace its original."""
        names = {name: name for name in file_names}
        if not any(name.startswith(self.prefix) for name in names):
            table_names = {their for row in self.pairs for their in row.theirs} | {*self.copies}
            names = {
                name if name in table_names or self.is_derived(name) else self.prefix + name: name
                for name in names
            }
        for copy, original in self.copies.items():
            if copy in names:
                names.setdefault(original, names[copy])
        return names


def read_weights(table: Table, tensors: Mapping[str, Tensor], model: nn.Module, source: str) -> None:
    """Load the weights of another library into a model; the model is unchanged on any error.

    Args:
        table: name mapping.
        tensors: their tensors.
        model: model built from their configuration.
        source: name of the file in messages.

    Raises:
        RequestError: a tensor is unknown, missing, of wrong shape or type, or differs from its tied copy;
            the message lists every difference.
    """
    parameters, aliases = _checked(table, model)
    names = table.full(tensors)
    if problems := _problems(table, tensors, names, parameters):
        omitted = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
        lines = [f"{source}: does not fit its configuration:", *problems[:MAX_PROBLEMS], *omitted]
        raise RequestError("\n  ".join(lines))
    converted = {
        row.ours: row.form.read([tensors[names[their]].float() for their in row.theirs])
        for row in table.pairs
    }
    load_tensors(parameters | converted, aliases, model, source)


def write_weights(table: Table, model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a model with the names and shapes of another library."""
    parameters, _ = _checked(table, model)
    return {
        # Clone, since safetensors rejects tensors that share memory.
        their: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for row in table.pairs
        for their, tensor in zip(row.theirs, row.form.write(parameters[row.ours]), strict=True)
    }


def _checked(table: Table, model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a model and their aliases, after checking that the table is complete.

    Raises:
        ValueError: the table and the model differ.
    """
    parameters, aliases = named_tensors(model)
    listed = [row.ours for row in table.pairs]
    expected = {
        name for name in parameters if not any(re.fullmatch(pattern, name) for pattern in table.ignored)
    }
    if sorted(listed) != sorted(expected):
        differing = sorted({*listed} ^ expected) or sorted(
            name for name in parameters if listed.count(name) > 1
        )
        raise ValueError(f"the table of names and the model differ: {', '.join(differing)}")
    return parameters, aliases


def _problems(
    table: Table, tensors: Mapping[str, Tensor], names: Mapping[str, str], parameters: Mapping[str, Tensor]
) -> list[str]:
    """Return every difference between the tensors of a file and those of a model, as a line of text.

    Args:
        table: name mapping.
        tensors: their tensors.
        names: their names in the file, by name in the table.
        parameters: our tensors.
    """
    shapes = {
        their: list(tensor.shape)
        for row in table.pairs
        for their, tensor in zip(
            row.theirs, row.form.write(torch.empty(parameters[row.ours].shape, device="meta")), strict=True
        )
    }
    known = {*shapes, *table.copies}
    unknown = sorted(name for name in names if name not in known and not table.is_derived(name))
    problems = [f"unknown: {names[name]}{nearest(name, known - names.keys())}" for name in unknown]
    problems += [f"missing: {their}" for their in sorted(shapes.keys() - names.keys())]
    for their, shape in shapes.items():
        tensor = tensors[names[their]] if their in names else None
        if tensor is not None and list(tensor.shape) != shape:
            problems.append(f"{names[their]} has shape {list(tensor.shape)} in the file, expected {shape}")
        elif tensor is not None and not tensor.is_floating_point():
            dtype = str(tensor.dtype).removeprefix("torch.")
            problems.append(f"{names[their]} holds {dtype}: quantised weights are not read")
    return problems + [
        f"{names[copy]} should be a copy of {names[original]}, and differs: the configuration ties them"
        for copy, original in table.copies.items()
        if copy in names
        and original in names
        and not torch.equal(tensors[names[copy]], tensors[names[original]])
    ]
