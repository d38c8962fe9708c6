"""The model together with its loss: the module that `DistributedDataParallel` wraps."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from heedful.data.batch import Batch
from heedful.errors import WorkError
from heedful.nn.blocks import DecoderStack, EncoderStack
from heedful.nn.declarations import claims
from heedful.objectives.balance import Balance
from heedful.objectives.terms import (
    AuxiliaryLoss,
    Objective,
    Term,
    check_names,
    checked_counts,
    checked_terms,
    couples_batch,
    total,
)
from heedful.training.fast_paths import Precision, separate_compiled_code
from heedful.training.scheduled_sampling import ScheduledSampling


class ModelWithLoss(nn.Module):
    """Compute the loss of one micro-batch: run the model, then its objective.

    Args:
        model: returns hidden states and has named ``heads``.
        objective: computes loss terms from hidden states, in fp32 where needed. If the model has experts,
            their balance adds terms (`heedful.objectives.balance`).
        precision: the weights are always fp32. With bf16, the forward and backward passes use a bf16 copy of
            the weights and bf16 activations; operations that need fp32 (softmax, loss, statistics) convert
            to it. A model that does not support this (``lowers`` is False), or that has a module with a
            recurrent state or with weights that would lose precision (`heedful.nn.declarations`), runs under
            `torch.autocast` instead: only matrix products are bf16.
        auxiliary: further losses, on values inside the model (`heedful.objectives.guided`).
        sampling: replaces inputs by predictions in training; None: the model reads the batch as it is.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        precision: Precision = "fp32",
        auxiliary: Sequence[AuxiliaryLoss] = (),
        sampling: ScheduledSampling | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.auxiliary: list[AuxiliaryLoss] = [Balance(model), *auxiliary]
        self.precision, self.sampling = precision, sampling
        needs_fp32 = claims(model, "carries_state") or claims(model, "needs_wide_weights")
        self._lowers = getattr(model, "lowers", False) and not needs_fp32
        self.compiled = False

    @property
    def couples_batch(self) -> bool:
        """Whether the objective depends on which samples are in a micro-batch (`heedful.nn.declarations`)."""
        return couples_batch(self.objective)

    def compile(self, backend: str = "inductor") -> None:  # type: ignore[override]
        """Compile the blocks of the model for training (`EncoderStack.compile_blocks`), if it has any.

        Not compiled are stacks that contain norms with running statistics (each of their states would need
        a graph of its own), that declare ``not_compilable`` (`heedful.nn.declarations`), or whose taps an
        auxiliary loss captures (each new capture would need a graph).
        """
        taps = [tap for loss in self.auxiliary for tap in loss.taps]
        stacks = [
            part
            for name, part in self.model.named_modules()
            if isinstance(part, EncoderStack | DecoderStack)
            and not (claims(part, "couples_batch") or claims(part, "not_compilable"))
            and not any(tap.startswith(f"{name}.") for tap in taps)
        ]
        if stacks and backend == "inductor":
            separate_compiled_code()
        for stack in stacks:
            stack.compile_blocks(backend)
        self.compiled = bool(stacks)

    def uncompile(self) -> None:
        """Undo `compile`."""
        for part in self.model.modules():
            if isinstance(part, EncoderStack | DecoderStack):
                part.compiled = None
        self.compiled = False

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the count of every loss term of the batch, before the forward pass."""
        counts = checked_counts(self.objective, self.objective.counts(batch))
        for loss in self.auxiliary:
            counts |= loss.counts(batch)
        return counts

    def forward(
        self, batch: Batch, counts: Mapping[str, int], update: int | None = None
    ) -> tuple[Tensor, list[Term]]:
        """Return the micro-batch's share of the loss of the update, and its detached terms.

        Args:
            batch: a batch on the model's device.
            counts: the counts of the whole update, by which the sums are divided.
            update: number of the update, for scheduled sampling; None (as in validation): without it.
        """
        if self.compiled:
            batch.prepare()
        if self.precision == "bf16":
            with self._bf16_errors():
                terms = self._lowered(batch, update)
        else:
            terms = self._terms(batch, update)
        check_names(self.objective, terms, counts)
        return total(terms, counts), [replace(term, sum=term.sum.detach()) for term in terms]

    @contextmanager
    def _bf16_errors(self) -> Iterator[None]:
        """Name the parts of the user's own if an operation does not support bf16.

        Raises:
            WorkError: in place of the error of torch.
        """
        try:
            yield
        except RuntimeError as error:  # also NotImplementedError
            own = own_parts(self.model)
            if not own or not re.search(r"dtype|scalar type|bfloat16", str(error), re.IGNORECASE):
                raise
            raise WorkError(
                f"the model has a part of your own ({', '.join(own)}), and an operation failed in bf16: "
                f"{error}; set training.precision=fp32, or convert the inputs of the operation with .float()"
            ) from error

    def _terms(self, batch: Batch, update: int | None) -> list[Term]:
        if self.sampling is not None and update is not None:
            batch = self.sampling.mixed(self.model, batch, update)
        heads = self.model.heads
        assert isinstance(heads, nn.ModuleDict)
        with ExitStack() as stack:
            auxiliary = [stack.enter_context(loss.attached(batch)) for loss in self.auxiliary]
            hidden = self.model(batch.inputs, batch.source)
        return [
            *checked_terms(self.objective, self.objective(hidden, heads, batch)),
            *(term for terms in auxiliary for term in terms()),
        ]

    def _lowered(self, batch: Batch, update: int | None) -> list[Term]:
        if not self._lowers:
            with torch.autocast(batch.targets.device.type, torch.bfloat16):
                return self._terms(batch, update)
        copies = {
            f"model.{name}": parameter.to(torch.bfloat16) for name, parameter in self.model.named_parameters()
        }
        return functional_call(_Call(self.model, self._terms), copies, (batch, update))


def own_parts(module: nn.Module) -> list[str]:
    """Return the names of the classes in a module that are neither of heedful nor of torch."""
    classes = dict.fromkeys(type(part) for part in module.modules())
    return [
        part.__name__ for part in classes if part.__module__.partition(".")[0] not in ("heedful", "torch")
    ]


class _Call(nn.Module):
    """Wrap a function of a model as a module, so that `functional_call` can substitute its weights."""

    def __init__(self, model: nn.Module, function: Callable[[Batch, int | None], list[Term]]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, batch: Batch, update: int | None) -> list[Term]:
        return self.function(batch, update)
