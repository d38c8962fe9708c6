"""Temperature scaling: probabilities of classes that are right as often as they say.

    p_i = softmax(z_i / T),     T = argmin - sum_i log p_i(y_i)     over the validation data

In beta = 1 / T the loss is convex, with the derivative sum_i (sum_c p_i(c) z_i(c) - z_i(y_i)), whose root is
found by bisection. A class stays the most probable one at any temperature. Source: Guo et al. 2017, "On
calibration of modern neural networks", section 4.2.

T is not applied by whoever reads a run: the last layer of the head is stored divided by T (`scaled_head`), so
predictions, evaluations, explanations and exported models all have the same probabilities. Checkpoints have
the layer as it was trained, and the metric that selects them is computed without T.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from heedful.config import Config
from heedful.data.batch import Batch
from heedful.data.plan import in_order
from heedful.data.store import TokenStore
from heedful.models.base import Model
from heedful.nn.modes import evaluating
from heedful.objectives.classification import class_logits
from heedful.records import Count, Record, read_record
from heedful.tasks.evaluation import Batches, micro_batch_tokens
from heedful.typing import JsonMapping

FEWEST = 50
"""Validation items (rows, words, ends of answers) that a temperature needs."""

FEWEST_WRONG = 5
"""Validation items with another most probable class that a temperature below 1 needs.

If all items are right, the loss falls without end as T falls, whatever the model.
"""

LEAST, GREATEST = 0.01, 100.0
"""Temperatures beyond are not used: no class is more probable than others, or right more often."""

MOST_ROWS = 20_000
"""Maximum number of validation rows that are used; of more, evenly spaced ones."""

ITERATIONS = 60

Classes = tuple[Float[Tensor, "n C"], Int[Tensor, " n"]]
"""Logits of items, and the right class of each."""


class CalibrationConfig(Config):
    """A task whose answers have probabilities.

    Args:
        calibration: ``temperature``: at the end of training, divide the logits by the temperature with the
            lowest loss on the validation data; ``off``: leave them as they are.
    """

    calibration: Literal["temperature", "off"] = "temperature"


class Calibration(Record):
    """Content of ``calibration.json``.

    Args:
        temperature: T, by which the stored head is divided already.
        items: number of validation items.
        loss: their mean loss with it.
        unscaled_loss: and without.
    """

    version: Literal[1] = 1
    temperature: Annotated[float, Field(ge=LEAST, le=GREATEST)]
    items: Count
    loss: Annotated[float, Field(ge=0)]
    unscaled_loss: Annotated[float, Field(ge=0)]

    def __str__(self) -> str:
        return (
            f"temperature {self.temperature:.3g} (loss {self.loss:.4f} instead of {self.unscaled_loss:.4f} "
            f"on {self.items:,} validation items)"
        )


@dataclass(frozen=True)
class Tuned:
    """What is chosen on the validation data once training is over.

    Args:
        calibration: the temperature of a head; None: it is 1.
        head: the name of the head.
        records: content of further files, by name.
    """

    calibration: Calibration | None = None
    head: str = ""
    records: Mapping[str, JsonMapping] = field(default_factory=dict)

    @property
    def temperature(self) -> float:
        """The temperature; 1 if none was fitted."""
        return self.calibration.temperature if self.calibration else 1.0


NOT_TUNED = Tuned()


def tune_temperature(
    task: "CalibratedTask", model: Model, store: TokenStore, log: Callable[[str], None]
) -> Tuned:
    """Return the temperature of a task's head, unless its recipe has none.

    Args:
        task: the task.
        model: with the weights that the run keeps.
        store: the validation data.
        log: called with a line about the result.
    """
    if not task.calibrated_head or getattr(task.recipe.task, "calibration", "off") == "off":
        return NOT_TUNED
    found = fit_temperature(collect_outputs(task, model, task.classes_of, store))
    if isinstance(found, str):
        log(f"probabilities are not calibrated: {found}")
        return NOT_TUNED
    log(f"probabilities are calibrated: {found}")
    return Tuned(found, task.calibrated_head)


class BatchedTask(Protocol):
    """What a task gives to `collect_outputs`."""

    recipe: Any

    def batches(self, store: TokenStore, *, training: bool) -> Batches:
        """Return batches of a data set."""
        ...


class CalibratedTask(BatchedTask, Protocol):
    """What a task gives to `tune_temperature`."""

    calibrated_head: ClassVar[str]

    def classes_of(self, model: Model, batch: Batch) -> Classes:
        """Return the logits of the items of a batch, and the right class of each."""
        ...


@torch.no_grad()
def collect_outputs(
    task: "BatchedTask",
    model: Model,
    outputs_of: Callable[[Model, Batch], tuple[Tensor, Tensor]],
    store: TokenStore,
    most: int | None = MOST_ROWS,
) -> list[tuple[Tensor, Tensor]]:
    """Return outputs and targets of validation data, on the CPU.

    Args:
        task: the task.
        model: its model.
        outputs_of: returns the outputs of a batch (logits, for example), and what they should be.
        store: the validation data.
        most: maximum number of rows, evenly spaced; None: all.
    """
    batches = task.batches(store, training=False)
    lengths = np.asarray(batches.lengths)
    rows = np.arange(0, len(lengths), -(-len(lengths) // (most or len(lengths) or 1)) or 1)
    device, found = next(model.parameters()).device, list[tuple[Tensor, Tensor]]()
    with evaluating(model):
        for group in in_order(lengths[rows], micro_batch_tokens(task.recipe)):
            outputs, targets = outputs_of(model, batches(rows[group].tolist(), 0).to(device))
            found.append((outputs.float().cpu(), targets.cpu()))
    return found


def classes_of_sequences(model: Model, batch: Batch) -> Classes:
    """Return the logits of the head ``class`` for the sequences of a batch, and the class of each."""
    assert batch.classes is not None
    return class_logits(model(batch.inputs), model.heads, batch.inputs.layout), batch.classes


def fit_temperature(items: Sequence[Classes]) -> Calibration | str:
    """Return the temperature with the lowest loss, or why there is none.

    Args:
        items: logits and right classes, in any number of parts; of padding, the logit is minus infinity.
    """
    n = sum(len(targets) for _, targets in items)
    if n < FEWEST:
        return f"{n} validation items are too few; {FEWEST} are needed"
    low, high = 1 / GREATEST, 1 / LEAST
    n_wrong = sum(int((logits.argmax(-1) != targets).sum()) for logits, targets in items)
    if n_wrong < FEWEST_WRONG and _slope(items, 1.0) < 0:
        return f"{n - n_wrong:,} of {n:,} validation items are right, too many to choose a temperature"
    if _slope(items, high) < 0:
        return "the probabilities of the classes are nearly equal; train for longer"
    if _slope(items, low) > 0:
        return "the most probable class is right no more often than others"
    for _ in range(ITERATIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _slope(items, middle) > 0 else (middle, high)
    loss, unscaled = (_loss(items, beta) / n for beta in (low, 1.0))
    if not loss < unscaled:
        return "1 is the best temperature"
    return Calibration(temperature=1 / low, items=n, loss=loss, unscaled_loss=unscaled)


def _loss(items: Sequence[Classes], beta: float) -> float:
    """Return the summed loss at the temperature 1 / beta."""
    return sum(
        -float((logits.double() * beta).log_softmax(-1).gather(1, targets[:, None]).sum())
        for logits, targets in items
    )


def _slope(items: Sequence[Classes], beta: float) -> float:
    """Return the derivative of the summed loss with respect to beta."""
    total = 0.0
    for single, targets in items:
        logits = single.double()
        means = ((logits * beta).softmax(-1) * logits.clamp(min=torch.finfo(logits.dtype).min)).sum(-1)
        total += float((means - logits.gather(1, targets[:, None])[:, 0]).sum())
    return total


def scaled_head(model: nn.Module, head: str, temperature: float) -> dict[str, Tensor]:
    """Return the tensors of the last linear layer of a head, divided by a temperature, by name."""
    prefix = f"heads.{head}"
    parts = model.get_submodule(prefix).named_modules(prefix=prefix)
    name, layer = [(name, part) for name, part in parts if isinstance(part, nn.Linear)][-1]
    return {f"{name}.{key}": tensor.detach() / temperature for key, tensor in layer.named_parameters()}


def read_calibration(path: Path) -> Calibration | None:
    """Read the file of a run; None if it has none.

    Raises:
        DamagedError: it is damaged.
    """
    return read_record(path, Calibration) if path.is_file() else None
