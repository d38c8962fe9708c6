"""The typed configuration of a training, apart from its optimizer and schedule."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from heedful.config import Config
from heedful.training.schedules import Direction

Count = Annotated[int, Field(ge=1, le=1024)]
"""How many processes or threads work side by side: the system refuses to start many more."""


class TrainingConfig(Config):
    """How long to train, how to group samples, and what to keep.

    Args:
        seed: of the model's randomness (dropout) and, through the data, of its order.
        max_updates: stop after this many updates.
        max_epochs: stop after this many times through the data.
        max_minutes: stop after this many minutes of training, resumed parts together.
        tokens_per_update: the most tokens of an update (of pairs: target tokens), over all ranks and
            micro-batches.
        accumulate: micro-batches into which a rank splits its part of an update.
        validate_every: updates between validations.
        save_every: updates between checkpoints; one is also made after each validation and at the end.
        keep_last: how many of the newest checkpoints stay.
        keep_best: how many of the best checkpoints that were validated in turn stay besides; the best one
            always does. A better one from the end, validated out of turn, stays until training continues.
        patience: stop after this many regular validations in a row without a better metric; null: never.
        metric: the name of the validation metric that decides what is best.
        direction: which way that metric improves.
        precision: ``auto`` takes bf16 where the chip multiplies faster in it (`heedful.training.precision`).
        processes: how many processes train together on a CPU, each on a part of every update; ``auto`` takes
            one for each core if the model is small and the training long (`heedful.training.companions`), and
            the run keeps the number: another one on resume changes the last digits of the results. Several
            processes keep more of their speed beside other programs. Without effect under `torchrun`.
        threads: threads of each process; null: all cores, shared by the processes. With a number,
            ``processes: auto`` is 1.
        compile: whether the blocks of the model are compiled; ``auto`` does so where a compiler is found and
            the run is so long that it earns the half minute back that this takes.
        clip_norm: the largest norm of the gradients; null: no clipping.
        average: of how many checkpoints the final weights are the average; 0: of none.
        average_of: the ``last`` or the ``best`` checkpoints.
        log_every: updates between two lines of figures in ``metrics.jsonl`` (and for TensorBoard).
    """

    seed: NonNegativeInt = 1
    max_updates: PositiveInt | None = None
    max_epochs: PositiveInt | None = None
    max_minutes: PositiveFloat | None = None
    tokens_per_update: PositiveInt = 4096
    accumulate: PositiveInt = 1
    validate_every: PositiveInt = 500
    save_every: PositiveInt = 500
    keep_last: PositiveInt = 2
    keep_best: NonNegativeInt = 1
    patience: PositiveInt | None = None
    metric: str = "loss"
    direction: Direction = "lower"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    processes: Count | Literal["auto"] = "auto"
    threads: Count | None = None
    compile: Literal["auto", "on", "off"] = "auto"
    clip_norm: PositiveFloat | None = 1.0
    average: NonNegativeInt = 0
    average_of: Literal["last", "best"] = "last"
    log_every: PositiveInt = 1

    @model_validator(mode="after")
    def _ends(self) -> "TrainingConfig":
        if self.max_updates is self.max_epochs is self.max_minutes is self.patience is None:
            raise ValueError("set at least one of max_updates, max_epochs, max_minutes and patience")
        return self

    def n_tokens(self, an_epoch: int, an_update: int) -> int | None:
        """How many tokens will be read at most, or None where neither updates nor epochs are limited.

        Args:
            an_epoch: tokens of all samples.
            an_update: tokens of the largest update.
        """
        limits = ((self.max_epochs, an_epoch), (self.max_updates, an_update))
        return min((n * tokens for n, tokens in limits if n is not None), default=None)

    @property
    def fewest_updates(self) -> int | None:
        """How many it makes at least where patience alone ends it; the first validation is always better."""
        alone = self.max_updates is self.max_epochs is self.max_minutes is None
        return (self.patience + 1) * self.validate_every if alone and self.patience is not None else None

    @property
    def n_last(self) -> int:
        """How many of the newest checkpoints stay: what is asked for, or what the average needs."""
        return max(self.keep_last, self.average if self.average_of == "last" else 0)

    @property
    def n_best(self) -> int:
        """How many of the best checkpoints stay: at least one."""
        return max(self.keep_best, 1, self.average if self.average_of == "best" else 0)
